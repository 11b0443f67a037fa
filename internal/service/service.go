// Package service contains the files with which a machine's init system runs a program: a systemd unit, an OpenWrt init
// script for procd, an OpenRC script, the small configuration with them and the creation of the user. The packages are
// built from these files, and Installer installs the same ones by hand.
package service

import (
	"embed"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Init is an init system.
type Init string

// The init systems that are known.
const (
	Systemd Init = "systemd"
	Procd   Init = "procd"  // OpenWrt
	OpenRC  Init = "openrc" // Alpine
)

// inits are the init systems in the order in which help texts name them.
var inits = []Init{Systemd, Procd, OpenRC}

// ParseInit reads the name of an init system.
func ParseInit(name string) (Init, error) {
	var known []string
	for _, i := range inits {
		if name == string(i) {
			return i, nil
		}
		known = append(known, string(i))
	}
	return "", fmt.Errorf("init system %q: it is one of %s", name, strings.Join(known, ", "))
}

// Options are the values in the files. All paths are absolute.
type Options struct {
	Init   Init
	Binary string
	Config string
	Data   string // the only directory that the service may write to
	// GiveData puts --data on the command line; otherwise the configuration names the directory.
	GiveData bool
	User     string // and group of the same name
	// LowPorts lets it listen on ports below 1024. systemd only.
	LowPorts bool
	// StopTimeout is how long the program may take to stop.
	StopTimeout time.Duration
}

// Defaults are the paths of the packages for the init system.
func Defaults(i Init) Options {
	o := Options{Init: i, Binary: "/usr/bin/weir", Config: "/etc/weir/weir.yaml", Data: "/var/lib/weir", User: "weir"}
	if i == Procd {
		o.Data = "/srv/weir" // /var is a RAM disk there, and what is acknowledged would be lost with it
	}
	return o
}

// plainPath is a path without characters that are special to an init system or a shell.
var plainPath = regexp.MustCompile(`^/[A-Za-z0-9._+/@:-]*$`)

var plainUser = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,30}$`)

// Check refuses values that the files cannot contain.
func (o Options) Check() error {
	for _, p := range []struct{ name, path string }{{"the binary", o.Binary}, {"the configuration", o.Config}, {"the data directory", o.Data}} {
		if !plainPath.MatchString(p.path) || path.Clean(p.path) != p.path {
			return fmt.Errorf("%s is %q: a service needs an absolute path, without .. and of letters, digits and . _ + @ : - only", p.name, p.path)
		}
	}
	switch {
	case o.Data == "/":
		return fmt.Errorf("the data directory cannot be /")
	case o.volatile():
		return fmt.Errorf("%s does not outlive a restart of the machine, and what is acknowledged would be lost with it", o.Data)
	case !plainUser.MatchString(o.User):
		return fmt.Errorf("%q is no name for a user of the system", o.User)
	case o.User == "root":
		return fmt.Errorf("the service does not run as root: it needs a user of its own")
	case o.LowPorts && o.Init != Systemd:
		return fmt.Errorf("ports below 1024 can be granted with systemd only; with %s let the firewall redirect them", o.Init)
	}
	return nil
}

// volatile reports whether the data directory is in memory or in a directory that is cleaned.
func (o Options) volatile() bool {
	gone := []string{"/tmp/", "/var/tmp/", "/run/", "/dev/"}
	if o.Init == Procd {
		gone = append(gone, "/var/")
	}
	return slices.ContainsFunc(gone, func(dir string) bool { return strings.HasPrefix(o.Data+"/", dir) })
}

//go:embed text
var texts embed.FS

// Unit is the unit or init script.
func (o Options) Unit() string { return o.text(string(o.Init)) }

// Starter is the configuration of a first installation.
func (o Options) Starter() string { return o.text("weir.yaml") }

// MakeUser is a shell script that creates the user and the group if they are missing.
func (o Options) MakeUser() string { return o.text("user.sh") }

func (o Options) text(name string) string {
	text := strings.Replace(read(name), "{{make-user}}\n", read("user.sh"), 1)
	return strings.NewReplacer("{{binary}}", o.Binary, "{{args}}", o.Args(), "{{command}}", o.Command(), "{{user}}", o.User,
		"{{config}}", o.Config, "{{config-dir}}", o.ConfigDir(), "{{data}}", o.Data, "{{state-directory}}", o.stateDirectory(),
		"{{protect-home}}", o.protectHome(), "{{capabilities}}", o.capabilities(), "{{timeout}}", strconv.Itoa(int(o.StopTimeout.Seconds())),
		"{{stop-timeout}}", strconv.Itoa(o.StopSeconds())).Replace(text)
}

// read returns an embedded text.
func read(name string) string {
	text, err := texts.ReadFile("text/" + name)
	if err != nil {
		panic(err) // each is written by a test
	}
	return string(text)
}

// stateDirectory has systemd create the data directory, where it can.
func (o Options) stateDirectory() string {
	dir := o.StateDirectory()
	if dir == "" {
		return ""
	}
	return "StateDirectory=" + dir + "\nStateDirectoryMode=0750\n"
}

// protectHome hides the home directories from the service, unless it lives in one.
func (o Options) protectHome() string {
	if o.InHome() {
		return "read-only"
	}
	return "yes"
}

// capabilities are those of the unit.
func (o Options) capabilities() string {
	comment, set := "No capability at all. A port below 1024 needs CAP_NET_BIND_SERVICE here and in AmbientCapabilities.", ""
	if o.LowPorts {
		comment, set = "Ports below 1024.", "CAP_NET_BIND_SERVICE"
	}
	return "# " + comment + "\nCapabilityBoundingSet=" + set + "\nAmbientCapabilities=" + set
}

// UnitPath is the path of an administrator's unit or init script; packages use another one for systemd.
func (o Options) UnitPath() string {
	if o.Init == Systemd {
		return "/etc/systemd/system/weir.service"
	}
	return "/etc/init.d/weir"
}

// Command is the command of the service.
func (o Options) Command() string { return o.Binary + " " + o.Args() }

// Args are the arguments of Command.
func (o Options) Args() string {
	if o.GiveData {
		return "run --config " + o.Config + " --data " + o.Data
	}
	return "run --config " + o.Config
}

// StopSeconds is how long the init system waits before it kills: longer than the program's own timeout.
func (o Options) StopSeconds() int { return int(o.StopTimeout.Seconds()) + 30 }

// StateDirectory is the data directory as systemd creates it, "" when it lies elsewhere.
func (o Options) StateDirectory() string {
	dir, ok := strings.CutPrefix(o.Data, "/var/lib/")
	if !ok {
		return ""
	}
	return dir
}

// InHome reports whether a path of the service is in a home directory, which systemd hides from services.
func (o Options) InHome() bool {
	for _, p := range []string{o.Binary, o.Config, o.Data} {
		if strings.HasPrefix(p, "/home/") || strings.HasPrefix(p, "/root/") {
			return true
		}
	}
	return false
}

// ConfigDir is the directory of the configuration.
func (o Options) ConfigDir() string { return path.Dir(o.Config) }
