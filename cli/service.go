package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir/app"
	"weir/config"
	"weir/internal/service"
	"weir/model"
)

func newService(c *command) *cobra.Command {
	return group("service", "Run Weir as a service of the machine", newServicePrint(c), newServiceInstall(c))
}

// serviceFlags are what the texts of a service name. --config and --data are those of every command.
type serviceFlags struct {
	init, user, binary string
	lowPorts           bool
}

func (f *serviceFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.init, "init", "", "init system: systemd, procd (OpenWrt) or openrc (Alpine); default: that of this machine")
	cmd.Flags().StringVar(&f.user, "user", "weir", "user and group that the service runs as")
	cmd.Flags().StringVar(&f.binary, "binary", "", "path of the program (default: the running program)")
	cmd.Flags().BoolVar(&f.lowPorts, "low-ports", false, "allow ports below 1024 (systemd)")
}

func newServicePrint(c *command) *cobra.Command {
	var f serviceFlags
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the unit or init script",
		Long: "Print the systemd unit, or the init script for procd or OpenRC, that weir\n" +
			"service install writes and that the packages contain. --config defaults to\n" +
			"/etc/weir/weir.yaml, the data directory to /var/lib/weir; on OpenWrt, where\n" +
			"/var is lost at a restart, to /srv/weir. The printed command line contains\n" +
			"--data if you give it.",
		Example: "  weir service print --init systemd\n  weir service print --init procd --data /mnt/sda1/weir",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			o, err := c.serviceOptions(f)
			if err != nil {
				return err
			}
			c.show(map[string]string{"init": string(o.Init), "path": o.UnitPath(), "text": o.Unit()}, func(w io.Writer) { fmt.Fprint(w, o.Unit()) })
			return nil
		},
	}
	f.add(cmd)
	return cmd
}

// serviceOptions are the defaults of the init system under what the command line says.
func (c *command) serviceOptions(f serviceFlags) (service.Options, error) {
	i := service.Detect("/")
	if f.init != "" {
		var err error
		if i, err = service.ParseInit(f.init); err != nil {
			return service.Options{}, usageError{err}
		}
	}
	if i == "" {
		return service.Options{}, &model.Error{Message: "no init system that weir knows is found on this machine",
			Hint: "name one with --init: systemd, procd or openrc; a container needs none and runs weir run"}
	}
	o := service.Defaults(i)
	o.User, o.LowPorts, o.StopTimeout = f.user, f.lowPorts, app.StopTimeout()
	if c.configFile != "" {
		o.Config = c.configFile
	}
	if c.dataDir != "" {
		o.GiveData, o.Data = c.dataDir != o.Data, c.dataDir
	}
	var err error
	if o.Binary = f.binary; o.Binary == "" {
		if o.Binary, err = thisProgram(); err != nil {
			return o, err
		}
	}
	if err := o.Check(); err != nil {
		return o, usageError{err}
	}
	return o, nil
}

func thisProgram() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

func newServiceInstall(c *command) *cobra.Command {
	var f serviceFlags
	var dry bool
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install the unit or init script, with user and directories",
		Long: "Create whatever is missing: the user, the directories, a small configuration,\n" +
			"the unit or init script. Existing files are kept, except for a unit that\n" +
			"differs: it is replaced and kept as .old. Nothing is started. The packages have\n" +
			"done all this already. An existing configuration determines the data directory.",
		Example: "  weir service install --dry-run\n  sudo weir service install",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := c.serviceOptions(f)
			if err != nil {
				return err
			}
			if o.Data, err = c.serviceData(o); err != nil {
				return err
			}
			if !dry && os.Geteuid() != 0 {
				return &model.Error{Message: "installing a service needs root", Hint: "sudo weir service install, or see with --dry-run what it would do"}
			}
			in := &service.Installer{Options: o, Root: "/", DryRun: dry, Run: c.runCommand, Chown: os.Lchown}
			steps, err := in.Install(cmd.Context())
			c.show(map[string]any{"init": o.Init, "steps": steps, "next": o.Next()}, func(w io.Writer) { printSteps(w, steps) })
			if err != nil {
				return serviceHint(err)
			}
			if !c.json && !dry {
				fmt.Fprintf(c.io.Stderr, "Next:\n  %s\nThe log says how the first administrator is made.\n", strings.Join(o.Next(), "\n  "))
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "change nothing, and show the planned changes")
	return cmd
}

// serviceData is where the data of the service is: as --data says, else as a configuration that is there says.
func (c *command) serviceData(o service.Options) (string, error) {
	if _, err := os.Stat(o.Config); c.dataDir != "" || errors.Is(err, os.ErrNotExist) {
		return o.Data, nil
	}
	cfg, err := config.Load(config.Source{File: o.Config}) // the service will not see this environment
	if err != nil {
		return "", err
	}
	o.Data = cfg.DataDir
	if err := o.Check(); err != nil {
		return "", &model.Error{Message: fmt.Sprintf("data_dir in %s: %v", o.Config, err), Hint: "write the whole path there, or give it with --data"}
	}
	return o.Data, nil
}

func serviceHint(err error) error {
	if e, ok := errors.AsType[*service.BinaryError](err); ok {
		return &model.Error{Message: err.Error(), Hint: "install -m 0755 weir " + e.Path + ", or name another path with --binary", Err: err}
	}
	if e, ok := errors.AsType[*service.OwnerError](err); ok {
		return &model.Error{Message: err.Error(), Hint: fmt.Sprintf("stop what runs on it, then: chown -R %s:%s %s, or name its owner with --user", e.User, e.User, e.Dir), Err: err}
	}
	return err
}

func printSteps(w io.Writer, steps []service.Step) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range steps {
		fmt.Fprintf(t, "%s\t%s\t%s\n", s.State, s.What, s.Name)
	}
	_ = t.Flush() // the reader has gone
}

// runCommand runs a command of the machine; what it says goes to stderr.
func (c *command) runCommand(ctx context.Context, stdin string, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), c.io.Stderr, c.io.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", argv[0], err)
	}
	return nil
}
