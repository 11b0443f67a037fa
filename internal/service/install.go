package service

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Installer installs a service by hand. It can be repeated: existing parts stay unchanged.
type Installer struct {
	Options
	// Root is the root directory of the machine's files ("/").
	Root string
	// DryRun changes nothing and reports the steps.
	DryRun bool
	// Run runs a command of the machine with the given stdin.
	Run func(ctx context.Context, stdin string, argv ...string) error
	// Chown changes the owner of a file.
	Chown func(path string, uid, gid int) error

	steps []Step
}

// Step is one step of Install.
type Step struct {
	What  string `json:"what"` // user, directory, configuration, unit, command
	Name  string `json:"name"`
	State State  `json:"state"`
}

// State is the result of a step.
type State string

// States.
const (
	Unchanged   State = "unchanged" // it existed
	Made        State = "made"
	Replaced    State = "replaced" // the previous one is kept as .old
	Done        State = "done"
	WouldMake   State = "would make"
	WouldChange State = "would replace"
	WouldDo     State = "would do"
)

// Detect returns the init system of the machine under root, "" when it is unknown.
func Detect(root string) Init {
	for _, sign := range []struct {
		path string
		init Init
	}{{"run/systemd/system", Systemd}, {"sbin/procd", Procd}, {"sbin/openrc-run", OpenRC}, {"usr/lib/systemd/systemd", Systemd}, {"lib/systemd/systemd", Systemd}} {
		if _, err := os.Stat(filepath.Join(root, sign.path)); err == nil {
			return sign.init
		}
	}
	return ""
}

// BinaryError is returned when the program is not at the path from which the service starts it.
type BinaryError struct{ Path string }

func (e *BinaryError) Error() string { return "there is no program at " + e.Path }

// OwnerError is returned when the data directory belongs to another user than the service's.
type OwnerError struct{ Dir, User string }

func (e *OwnerError) Error() string {
	return fmt.Sprintf("the data directory %s belongs to another user than %s", e.Dir, e.User)
}

// Install creates user, directories, a first configuration and the unit, if they are missing, and returns its
// steps. Errors: *BinaryError, *OwnerError, and those of the file system and of commands.
func (in *Installer) Install(ctx context.Context) ([]Step, error) {
	in.steps = nil
	if err := in.check(); err != nil {
		return nil, err
	}
	for _, do := range []func(context.Context) error{in.user, in.directories, in.starter, in.unit} {
		if err := do(ctx); err != nil {
			return in.steps, err
		}
	}
	return in.steps, nil
}

// check returns its errors before anything is changed.
func (in *Installer) check() error {
	if err := in.Options.Check(); err != nil {
		return err
	}
	if info, err := os.Stat(in.at(in.Binary)); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
		return &BinaryError{in.Binary}
	}
	info, err := os.Stat(in.at(in.Data))
	if err != nil {
		return nil // it is created
	}
	if uid, _, known := in.ids(); !known || info.Sys().(*syscall.Stat_t).Uid != uint32(uid) {
		return &OwnerError{in.Data, in.User}
	}
	return nil
}

func (in *Installer) user(ctx context.Context) error {
	if _, _, known := in.ids(); known {
		in.step("user", in.User, Unchanged)
		return nil
	}
	return in.do("user", in.User, Made, WouldMake, func() error { return in.Run(ctx, in.MakeUser(), "sh", "-e") })
}

func (in *Installer) directories(context.Context) error {
	return errors.Join(
		in.directory(in.ConfigDir(), 0o755, false, false),
		in.directory(filepath.Join(in.ConfigDir(), "conf.d"), 0o750, false, true),
		in.directory(in.Data, 0o750, true, true))
}

// directory creates a directory that belongs to root or to the service. An existing one stays unchanged.
func (in *Installer) directory(path string, mode fs.FileMode, owner, group bool) error {
	if _, err := os.Stat(in.at(path)); err == nil {
		in.step("directory", path, Unchanged)
		return nil
	}
	return in.do("directory", path, Made, WouldMake, func() error {
		if err := os.MkdirAll(in.at(path), 0o755); err != nil {
			return err
		}
		return in.own(path, mode, owner, group)
	})
}

func (in *Installer) starter(context.Context) error {
	if _, err := os.Lstat(in.at(in.Config)); err == nil {
		in.step("configuration", in.Config, Unchanged)
		return nil
	}
	return in.do("configuration", in.Config, Made, WouldMake, func() error {
		return in.write(in.Config, in.Starter(), 0o640, true)
	})
}

func (in *Installer) unit(ctx context.Context) error {
	text, mode := in.Unit(), fs.FileMode(0o755)
	path := in.UnitPath()
	if in.Init == Systemd {
		mode = 0o644
		for _, packaged := range []string{"/usr/lib/systemd/system/weir.service", "/lib/systemd/system/weir.service"} {
			if have, err := os.ReadFile(in.at(packaged)); err == nil && string(have) == text {
				path = packaged
			}
		}
	}
	have, err := os.ReadFile(in.at(path))
	switch {
	case err == nil && string(have) == text:
		in.step("unit", path, Unchanged)
	case err == nil:
		err = in.do("unit", path, Replaced, WouldChange, func() error {
			if err := os.Rename(in.at(path), in.at(path+".old")); err != nil {
				return err
			}
			return in.write(path, text, mode, false)
		})
	default:
		err = in.do("unit", path, Made, WouldMake, func() error {
			if err := os.MkdirAll(filepath.Dir(in.at(path)), 0o755); err != nil {
				return err
			}
			return in.write(path, text, mode, false)
		})
	}
	if err != nil {
		return err
	}
	return in.reload(ctx)
}

// reload makes the init system read the unit.
func (in *Installer) reload(ctx context.Context) error {
	var argv []string
	switch _, err := os.Stat(in.at("/run/systemd/system")); {
	case in.Init == Systemd && err == nil:
		argv = []string{"systemctl", "daemon-reload"}
	case in.Init == Procd:
		argv = []string{"/etc/init.d/weir", "enable"}
	default:
		return nil
	}
	return in.do("command", strings.Join(argv, " "), Done, WouldDo, func() error { return in.Run(ctx, "", argv...) })
}

// Next are the commands that start the service and show its log.
func (o Options) Next() []string {
	switch o.Init {
	case Procd:
		return []string{"/etc/init.d/weir start", "logread -e weir"}
	case OpenRC:
		return []string{"rc-update add weir default", "rc-service weir start", "grep weir /var/log/messages"}
	}
	return []string{"systemctl enable --now weir", "journalctl -u weir"}
}

func (in *Installer) step(what, name string, s State) {
	in.steps = append(in.steps, Step{what, name, s})
}

// do does a step, or only reports it in a dry run.
func (in *Installer) do(what, name string, done, would State, act func() error) error {
	if in.DryRun {
		in.step(what, name, would)
		return nil
	}
	if err := act(); err != nil {
		return fmt.Errorf("%s %s: %w", what, name, err)
	}
	in.step(what, name, done)
	return nil
}

// write writes a file atomically: it never appears incomplete or with another mode.
func (in *Installer) write(path, text string, mode fs.FileMode, group bool) error {
	fresh := path + ".new"
	if err := os.WriteFile(in.at(fresh), []byte(text), 0o600); err != nil {
		return err
	}
	if err := in.own(fresh, mode, false, group); err != nil {
		return err
	}
	return os.Rename(in.at(fresh), in.at(path))
}

// own sets mode, owner and group, whatever the umask; files that are not the service's belong to root.
func (in *Installer) own(path string, mode fs.FileMode, owner, group bool) error {
	uid, gid, known := in.ids()
	if !known {
		return fmt.Errorf("the user %s is not there", in.User)
	}
	if !owner {
		uid = 0
	}
	if !group {
		gid = 0
	}
	return errors.Join(in.Chown(in.at(path), uid, gid), os.Chmod(in.at(path), mode))
}

func (in *Installer) at(path string) string { return filepath.Join(in.Root, path) }

// ids finds the user in the files of the machine.
func (in *Installer) ids() (uid, gid int, known bool) {
	b, err := os.ReadFile(in.at("/etc/passwd"))
	if err != nil {
		return 0, 0, false
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		f := strings.Split(s.Text(), ":")
		if len(f) < 4 || f[0] != in.User {
			continue
		}
		u, errU := strconv.Atoi(f[2])
		g, errG := strconv.Atoi(f[3])
		return u, g, errU == nil && errG == nil
	}
	return 0, 0, false
}
