package cli

import (
	"runtime/debug"

	"github.com/spf13/cobra"

	"weir/app"
)

func (c *command) run() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run an instance until Ctrl-C",
		Long: "Run an instance on the data directory. An empty directory will do: keys and database are made, the listeners are\n" +
			"printed with what protects them, and how to make the first administrator. No default password exists.",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			if c.getenv("GOMEMLIMIT") == "" {
				debug.SetMemoryLimit(app.MemoryLimit(*cfg))
			}
			in := app.New(*cfg, app.Options{Logger: c.logger(cfg.Logging), Getenv: c.getenv, Version: Version, Out: c.io.Stdout})
			return in.Run(cmd.Context(), nil, c.io.Hurry)
		},
	}
}
