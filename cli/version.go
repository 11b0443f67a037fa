package cli

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/build"
)

func newVersion(c *command) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version, the Go release it was built with, the platform, and the commit\nof the sources where the build knows it.",
		Example: "  weir version\n  weir version --json",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			v := versions()
			c.show(v, func(w io.Writer) {
				fmt.Fprintf(w, "weir %s %s %s\n", v["version"], v["go"], v["platform"])
				if v["revision"] != "" {
					fmt.Fprintf(w, "commit %s of %s\n", v["revision"], build.Time().Format(time.DateOnly))
				}
			})
			return nil
		},
	}
}

// versions says which binary this is.
func versions() map[string]string {
	v := map[string]string{"version": Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
	if c := build.Commit(); c != "" {
		v["revision"] = c
	}
	return v
}
