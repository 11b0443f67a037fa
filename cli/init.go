package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"weir/config"
	"weir/model"
)

func newInit(c *command) *cobra.Command {
	var profile, out string
	var force bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a first configuration",
		Long: "Write a configuration file with every key and its description. A key is set if\n" +
			"the profile differs from the default, otherwise it is commented out. The\n" +
			"profiles:\n\n" + profileList(),
		Example: "  weir init --profile gateway -o /etc/weir/weir.yaml\n  weir init --profile dev -o -",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			p, ok := config.ProfileNamed(profile)
			if !ok {
				return usageError{fmt.Errorf("--profile must be one of %s", strings.Join(profileNames(), ", "))}
			}
			if out == "-" {
				fmt.Fprint(c.io.Stdout, p.YAML())
				return nil
			}
			if err := writeNew(out, p.YAML(), 0o644, force); err != nil {
				return err
			}
			c.show(map[string]any{"file": out, "profile": p.Name}, func(w io.Writer) {
				fmt.Fprintf(w, "%s is written; check it with: weir config validate --config %[1]s\n", out)
			})
			return nil
		},
	}
	cmd.Flags().StringVar(&profile, "profile", "", "kind of machine: "+strings.Join(profileNames(), ", "))
	cmd.Flags().StringVarP(&out, "output", "o", "weir.yaml", "file to write; - for stdout")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite an existing file")
	return cmd
}

func profileNames() []string {
	var names []string
	for _, p := range config.Profiles() {
		names = append(names, p.Name)
	}
	return names
}

func profileList() string {
	var b strings.Builder
	for _, p := range config.Profiles() {
		fmt.Fprintf(&b, "  %-9s%s\n", p.Name, p.About)
	}
	return b.String()
}

// ownFile is the mode of what only its owner reads.
const ownFile fs.FileMode = 0o600

// inTheWay is the refusal to write over a file.
func inTheWay(name, hint string) error {
	return &model.Error{Code: model.CodeConflict, Message: name + " is there already", Hint: hint}
}

// writeNew writes a file that must not be there yet, or, with force, one that is written over whole or not at all.
func writeNew(name, text string, mode fs.FileMode, force bool) error {
	target, how := name, os.O_WRONLY|os.O_CREATE|os.O_EXCL
	if fi, err := os.Stat(name); err == nil && force {
		target, how, mode = name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fi.Mode().Perm()
	}
	f, err := os.OpenFile(target, how, mode)
	if errors.Is(err, fs.ErrExist) {
		return inTheWay(name, "--force writes over it, -o names another file")
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil && target != name {
		err = os.Rename(target, name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(target))
	}
	return nil
}
