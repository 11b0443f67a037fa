package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"weir/config"
)

func newConfigValidate(c *command) *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "validate [FILE...]",
		Short: "Check the configuration and change nothing",
		Long: "Read the configuration as weir run would, including the environment, and report\n" +
			"every mistake with its line and column. Warnings go to stderr; with --strict a\n" +
			"warning makes the exit code 5. Several files are checked independently.",
		Example: "  weir config validate --config weir.yaml\n  weir config validate --strict plant-1.yaml plant-2.yaml",
		RunE: func(cmd *cobra.Command, files []string) error {
			src, err := c.source()
			if err != nil {
				return err
			}
			if len(files) == 0 {
				return c.validate(src, strict)
			}
			if c.configFile != "" {
				return usageError{errors.New("give the files either with --config or after validate")}
			}
			return c.validateEach(src, files, strict)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "treat warnings as errors")
	return cmd
}

// verdict is what is said of one configuration.
type verdict struct {
	File     string           `json:"file,omitempty"`
	Valid    bool             `json:"valid"`
	Problems config.Problems  `json:"problems,omitempty"`
	Warnings []config.Warning `json:"warnings,omitempty"`

	dataDir string
}

func judge(src config.Source) verdict {
	src.Thorough = true
	r := config.Read(src)
	v := verdict{File: src.File, Valid: r.Problems == nil, Problems: r.Problems}
	if v.Valid {
		v.Warnings, v.dataDir = r.Config.Warnings(), r.Config.DataDir
	}
	return v
}

// validate checks the one configuration of the command line.
func (c *command) validate(src config.Source, strict bool) error {
	v := judge(src)
	if !v.Valid {
		return v.Problems
	}
	v.File = ""
	c.warn(v.Warnings)
	c.show(v, func(w io.Writer) { fmt.Fprintf(w, "the configuration is valid; data in %s\n", v.dataDir) })
	return strictly(strict, len(v.Warnings))
}

// validateEach checks several, reports all that is wrong with them, and only then ends.
func (c *command) validateEach(src config.Source, files []string, strict bool) error {
	verdicts, problems, warnings := []verdict{}, config.Problems{}, 0
	for _, src.File = range files {
		v := judge(src)
		verdicts, problems, warnings = append(verdicts, v), append(problems, v.Problems...), warnings+len(v.Warnings)
		c.warn(v.Warnings)
	}
	c.show(map[string]any{"valid": len(problems) == 0, "files": verdicts}, func(w io.Writer) {
		for _, v := range verdicts {
			if v.Valid {
				fmt.Fprintf(w, "%s: the configuration is valid; data in %s\n", v.File, v.dataDir)
			}
		}
	})
	if len(problems) > 0 {
		return problems
	}
	return strictly(strict, warnings)
}

// warn reports warnings; as JSON they are part of the answer.
func (c *command) warn(ws []config.Warning) {
	if c.json {
		return
	}
	for _, w := range ws {
		c.note("warning: %s", w)
	}
}

func strictly(strict bool, warnings int) error {
	if !strict || warnings == 0 {
		return nil
	}
	return checkError{error: fmt.Errorf("the configuration is valid, but for %s", count(warnings, "warning"))}
}
