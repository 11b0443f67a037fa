package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"weir/app"
	"weir/config"
	"weir/model"
)

func newInit(c *command) *cobra.Command {
	var profile, out string
	var force bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a first configuration, or make an empty instance",
		Long: "Write a configuration file with every key and what it is for. A key is set where the profile differs\n" +
			"from the defaults; the others are commented out. The profiles:\n\n" + profileList() + "\n" +
			"With --data, make an empty instance in that directory instead, without starting it, so that tenants,\n" +
			"devices and administrators can be added before the first start. Only weir init --data, weir run and\n" +
			"weir demo make an instance.",
		Example: "  weir init\n  weir init --profile gateway -o /etc/weir/weir.yaml\n  weir init --data /var/lib/weir",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("data") {
				for _, flag := range []string{"profile", "output", "force"} {
					if cmd.Flags().Changed(flag) {
						return usageError{fmt.Errorf("--%s is for a configuration file, --data for an instance: use one after the other", flag)}
					}
				}
				return c.makeInstance(cmd.Context())
			}
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
				fmt.Fprintf(w, "%s is written for the profile %s; check it with: weir config validate --config %[1]s\n", out, p.Name)
			})
			return nil
		},
	}
	cmd.Flags().StringVar(&profile, "profile", "dev", "what to begin for: "+strings.Join(profileNames(), ", "))
	cmd.Flags().StringVarP(&out, "output", "o", "weir.yaml", "file to write; - for stdout")
	cmd.Flags().BoolVar(&force, "force", false, "write over a file that is there")
	return cmd
}

// makeInstance makes an instance in the data directory, which must hold none.
func (c *command) makeInstance(ctx context.Context) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	d := app.AtRest(*cfg, c.getenv, c.logger(cfg.Logging))
	if err := errors.Join(d.Make(ctx), d.Close()); err != nil {
		return err
	}
	dir := cfg.DataDir
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	c.show(map[string]any{"dataDir": dir, "instanceId": cfg.Instance.ID}, func(w io.Writer) {
		fmt.Fprintf(w, "%s holds a new, empty instance; start it with: weir run --data %[1]s\n", dir)
	})
	return nil
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
