package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir/model"
	"weir/operate"
)

func newArtifactGroup(c *command) *cobra.Command {
	return group("artifact", "Files that devices are given, such as firmware", newArtifactAdd(c), newArtifactList(c), newArtifactRm(c))
}

// shownArtifact is an artifact as the API shows it.
type shownArtifact struct {
	Token     string  `json:"token"`
	Name      *string `json:"name,omitempty"`
	Version   *string `json:"version,omitempty"`
	SHA256    string  `json:"sha256"`
	Bytes     int64   `json:"bytes"`
	CreatedAt string  `json:"createdAt"`
}

func newArtifactAdd(c *command) *cobra.Command {
	var name, version string
	cmd := &cobra.Command{
		Use:   "add TENANT TOKEN FILE",
		Short: "Keep a file for devices, such as firmware",
		Long: "Keep a file as an artifact of a tenant, for commands that give it to devices. The\n" +
			"SHA-256 of the file is checked against what arrives. What an artifact holds never\n" +
			"changes: the same file again only changes its name and version, another file\n" +
			"needs another token. Nothing of it is ever run or opened.",
		Example: "  weir artifact add acme meter-2-1 meter-2.1.bin --version 2.1",
		Args:    exactly("the tenant's token", "a token for the artifact", "the file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := os.Open(args[2])
			if err != nil {
				return &model.Error{Message: err.Error(), Err: err}
			}
			defer f.Close()
			hash := sha256.New()
			size, err := io.Copy(hash, f)
			if err == nil {
				_, err = f.Seek(0, io.SeekStart)
			}
			if err != nil {
				return &model.Error{Message: fmt.Sprintf("%s cannot be read as a file: %v", args[2], err), Err: err}
			}
			to, err := c.client(cmd.Context())
			if err != nil {
				return err
			}
			defer to.Close()
			passed := c.passing(io.Discard)
			passed.expect(size)
			kept, err := operate.AddArtifact.Ask(cmd.Context(), to, operate.NewArtifact{Tenant: args[0], Token: args[1],
				Name: name, Version: version, SHA256: hex.EncodeToString(hash.Sum(nil))}, io.TeeReader(f, passed))
			passed.done()
			if err != nil {
				return err
			}
			c.show(kept, func(w io.Writer) {
				what := "kept"
				if !kept.Made {
					what = "was there already, its name and version are set"
				}
				fmt.Fprintf(w, "artifact %s of tenant %s: %s, %s, SHA-256 %s\n", kept.Token, kept.Tenant, what, bytesText(kept.Bytes), kept.SHA256)
			})
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "`TEXT` for people, at most 128 characters")
	cmd.Flags().StringVar(&version, "version", "", "`TEXT` that a device with it reports as its version")
	return cmd
}

func newArtifactList(c *command) *cobra.Command {
	return &cobra.Command{
		Use:     "list TENANT",
		Short:   "List the artifacts of a tenant",
		Long:    "List the artifacts of a tenant by token, with version, size and SHA-256.",
		Example: "  weir artifact list acme\n  weir artifact list acme --json",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var found struct{ Artifacts []shownArtifact }
			if err := c.askTenant(cmd.Context(), args[0], deviceArea, `{ artifacts { token name version sha256 bytes createdAt } }`, nil, &found); err != nil {
				return err
			}
			c.show(found.Artifacts, func(w io.Writer) { printArtifacts(w, found.Artifacts) })
			return nil
		},
	}
}

func printArtifacts(w io.Writer, all []shownArtifact) {
	if len(all) == 0 {
		fmt.Fprintln(w, "there is no artifact")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOKEN\tVERSION\tSIZE\tSHA-256\tNAME")
	for i := range all {
		a := &all[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", a.Token, orDash(a.Version), bytesText(a.Bytes), a.SHA256, orDash(a.Name))
	}
	_ = t.Flush() // the reader has gone
}

func newArtifactRm(c *command) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "rm TENANT TOKEN",
		Short:   "Remove an artifact",
		Long:    "Remove an artifact. While a device is being given it, it stays.",
		Example: "  weir artifact rm acme meter-2-1 --yes",
		Args:    exactly("the tenant's token", "the artifact's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.confirm(cmd.Context(), yes, fmt.Sprintf("Remove the artifact %s of tenant %s?", args[1], args[0])); err != nil {
				return err
			}
			if err := c.askTenant(cmd.Context(), args[0], deviceArea, `mutation($t: String!) { deleteArtifact(token: $t) }`, gqlVars{"t": args[1]}, nil); err != nil {
				return err
			}
			c.show(map[string]any{"tenant": args[0], "removed": args[1]}, func(w io.Writer) { fmt.Fprintf(w, "artifact %s removed from tenant %s\n", args[1], args[0]) })
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return cmd
}
