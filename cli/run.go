package cli

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"weir/app"
	"weir/config"
	"weir/internal/memory"
)

func newRun(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run an instance until Ctrl-C",
		Long: "Run an instance on the data directory. In an empty directory the instance\n" +
			"creates keys and database. It prints the listeners with their protection, and\n" +
			"how to create the first administrator: with a command, or in a browser with a\n" +
			"link that is valid once. There is no default password. SIGHUP or weir reload\n" +
			"makes the instance read the configuration again; see weir reload --help.",
		Example: "  weir run\n  weir run --config /etc/weir/weir.yaml",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			src, err := c.source()
			if err != nil {
				return err
			}
			cfg, err := config.Load(src)
			if err != nil {
				return err
			}
			if err := app.CheckMemory(*cfg); err != nil {
				return err
			}
			if c.getenv("GOMEMLIMIT") == "" {
				debug.SetMemoryLimit(app.RuntimeLimit(*cfg))
			}
			if c.getenv("GOGC") == "" {
				paced, stop := context.WithCancel(cmd.Context())
				defer stop()
				go memory.NewPacer(app.RuntimeLimit(*cfg)).Run(paced)
			}
			lost := c.outlive()
			hangup, deaf := hangups()
			defer deaf()
			logger, level := c.levelled(cfg.Logging)
			if cfg.Instance.Node != "" {
				logger = logger.With("node", cfg.Instance.Node)
			}
			s := newInitSystem(cmd.Context(), c.notifier(), logger)
			opt := app.Options{Logger: logger, Level: level, Getenv: c.getenv, Version: Version, Program: programName(), Out: c.io.Stdout,
				Source: &src, Hangup: hangup, Serving: s.serving, Waits: s.waits, LostWrites: lost}
			if cfg.Role == config.RoleEdge {
				return app.NewEdge(*cfg, opt).Run(cmd.Context(), s.ready, c.io.Cancel)
			}
			return app.New(*cfg, opt).Run(cmd.Context(), s.ready, c.io.Cancel)
		},
	}
}

// outlive makes an instance outlive those who read what it prints and logs: in weir run 2>&1 | tee log, Ctrl-C ends tee first, and SIGPIPE
// would be the end of an instance that has not stopped. It returns how many writes were lost since.
func (c *command) outlive() (lost func() uint64) {
	signal.Ignore(syscall.SIGPIPE)
	c.out.outlives()
	logs := &output{to: c.io.Stderr}
	c.io.Stderr = logs
	return func() uint64 { return c.out.failed() + logs.failed() }
}

// hangups are SIGHUPs, and how to be deaf to them again. Under nohup they stay ignored.
func hangups() (<-chan os.Signal, func()) {
	if signal.Ignored(syscall.SIGHUP) {
		return nil, func() {}
	}
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGHUP)
	return ch, func() { signal.Stop(ch) }
}
