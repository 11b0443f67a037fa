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
		Long:    "Print the version, the Go release it was built with, the platform, the edition, and the\ncommit of the sources where the build knows it. The edition is full, or gateway for a\nprogram that was built smaller, without the connector types kafka, aws_sns and aws_sqs.",
		Example: "  weir version\n  weir version --json",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			v := versions()
			c.show(v, func(w io.Writer) {
				fmt.Fprintf(w, "weir %s %s %s\n", v["version"], v["go"], v["platform"])
				if v["edition"] == gatewayEdition {
					fmt.Fprintln(w, "for gateways, without the connector types kafka, aws_sns and aws_sqs")
				}
				if v["revision"] != "" {
					fmt.Fprintf(w, "commit %s of %s\n", v["revision"], build.Time().Format(time.DateOnly))
				}
			})
			return nil
		},
	}
}

// The editions of the program.
const (
	fullEdition    = "full"
	gatewayEdition = "gateway"
)

// versions says which binary this is.
func versions() map[string]string {
	v := map[string]string{"version": Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH, "edition": fullEdition}
	if build.Gateway {
		v["edition"] = gatewayEdition
	}
	if c := build.Commit(); c != "" {
		v["revision"] = c
	}
	return v
}
