package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func (c *command) config() *cobra.Command {
	return group("config", "The configuration", c.configValidate())
}

func (c *command) configValidate() *cobra.Command {
	return &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration and change nothing",
		Long:  "Read the configuration as weir run would, environment included, and tell every mistake with its line and column.",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			c.show(map[string]any{"valid": true}, func(w io.Writer) {
				fmt.Fprintf(w, "the configuration is valid; data in %s\n", cfg.DataDir)
			})
			return nil
		},
	}
}
