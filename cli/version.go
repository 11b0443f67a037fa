package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion(c *command) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version, the Go release it was built with and the platform.",
		Example: "  weir version\n  weir version --json",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			v := versions()
			c.show(v, func(w io.Writer) { fmt.Fprintf(w, "weir %s %s %s\n", v["version"], v["go"], v["platform"]) })
			return nil
		},
	}
}

// versions says which binary this is.
func versions() map[string]string {
	v := map[string]string{"version": Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v["revision"] = s.Value
			}
		}
	}
	return v
}
