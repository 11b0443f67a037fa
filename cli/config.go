package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"weir/config"
)

func newConfig(c *command) *cobra.Command {
	return group("config", "The configuration", newConfigValidate(c), newConfigShow(c), newConfigDiff(c), newConfigEnv(c), newConfigSchema(c))
}

// source is everything that this command line and its environment say of the configuration.
func (c *command) source() (config.Source, error) {
	for _, s := range c.set {
		if path, _, ok := strings.Cut(s, "="); !ok || path == "" {
			return config.Source{}, usageError{fmt.Errorf("--set %s: must be KEY=VALUE, such as logging.level=debug", s)}
		}
	}
	return config.Source{File: c.file(), Environ: c.io.Environ, Set: c.set, DataDir: c.dataDir}, nil
}

// file is the configuration file that counts, "" for none: the flag's, the variable's (which is none when it is set and
// empty), or that of the packages where it is there and no data directory is named.
func (c *command) file() string {
	if c.configFile != "" {
		return c.configFile
	}
	if file, set := c.lookupEnv("WEIR_CONFIG"); set {
		return file
	}
	if c.dataDir == "" && c.io.SystemConfig != "" {
		if _, err := os.Stat(c.io.SystemConfig); err == nil {
			return c.io.SystemConfig
		}
	}
	return ""
}

func newConfigShow(c *command) *cobra.Command {
	var origin bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the effective configuration and its sources",
		Long: "Show every key with its effective value: from defaults, files, environment and\n" +
			"flags, in increasing order of precedence. Secrets are shown as (set).",
		Example: "  weir config show --config weir.yaml\n  weir config show --config weir.yaml --origin",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			if origin {
				values := cfg.Values()
				c.show(map[string]any{"total": len(values), "keys": values}, func(w io.Writer) { fmt.Fprint(w, cfg.OriginYAML()) })
				return nil
			}
			c.show(cfg.Tree(), func(w io.Writer) { fmt.Fprint(w, cfg.YAML()) })
			return nil
		},
	}
	cmd.Flags().BoolVar(&origin, "origin", false, "show the source of each value")
	return cmd
}

func newConfigSchema(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration file",
		Long: "Print the JSON Schema (2020-12) of the configuration file, for editors that\n" +
			"complete and check while you type.",
		Example: "  weir config schema > weir.schema.json",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			c.writeJSON(c.io.Stdout, config.Schema())
			return nil
		},
	}
}
