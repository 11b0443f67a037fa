package service

import (
	"strings"
	"testing"
	"time"
)

func defaults(i Init) Options {
	o := Defaults(i)
	o.StopTimeout = 100 * time.Second
	return o
}

func TestEachInitSystemHasItsText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		init Init
		want []string
	}{
		{Systemd, []string{"\nExecStart=/usr/bin/weir run --config /etc/weir/weir.yaml\n", "\nUser=weir\n", "\nStateDirectory=weir\n", "\nTimeoutStopSec=130s\n",
			"\nRestartPreventExitStatus=2 3 7\n", "\nCapabilityBoundingSet=\n", "\nProtectHome=yes\n"}},
		{Procd, []string{"procd_set_param command /usr/bin/weir run --config /etc/weir/weir.yaml\n", "procd_set_param user weir\n", "term_timeout 130\n", "mkdir -p /srv/weir "}},
		{OpenRC, []string{"\ncommand_args=\"run --config /etc/weir/weir.yaml\"\n", "\ncommand_user=weir:weir\n", "retry=\"TERM/130/KILL/5\""}},
	} {
		text := defaults(c.init).Unit()
		for _, w := range c.want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: %q is missing in\n%s", c.init, w, text)
			}
		}
		if strings.Contains(text, "{{") || strings.Contains(text, "<no value>") {
			t.Errorf("%s: something is not filled in:\n%s", c.init, text)
		}
	}
}

func TestPlacesOfOnesOwnStandInTheUnit(t *testing.T) {
	t.Parallel()
	o := defaults(Systemd)
	o.Binary, o.Config, o.Data, o.User, o.GiveData, o.LowPorts = "/home/me/bin/weir", "/srv/w.yaml", "/mnt/disk/weir", "iot", true, true
	text := o.Unit()
	for _, w := range []string{"ExecStart=/home/me/bin/weir run --config /srv/w.yaml --data /mnt/disk/weir\n", "RequiresMountsFor=/mnt/disk/weir\n",
		"ReadWritePaths=/mnt/disk/weir\n", "User=iot\n", "ProtectHome=read-only\n", "AmbientCapabilities=CAP_NET_BIND_SERVICE\n"} {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in\n%s", w, text)
		}
	}
	if strings.Contains(text, "StateDirectory") {
		t.Error("systemd makes directories under /var/lib only")
	}
}

func TestWhatAServiceCannotNameIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"a relative path", func(o *Options) { o.Data = "weir-data" }, `the data directory is "weir-data"`},
		{"a blank", func(o *Options) { o.Binary = "/opt/my weir" }, "the binary is"},
		{"a line break", func(o *Options) { o.Config = "/etc/x\nUser=root" }, "the configuration is"},
		{"a percent sign", func(o *Options) { o.Config = "/etc/%h/weir.yaml" }, "the configuration is"},
		{"a quote", func(o *Options) { o.Data = `/x"$(id)` }, "the data directory is"},
		{"a way up", func(o *Options) { o.Data = "/var/lib/../../etc" }, "without .."},
		{"the root", func(o *Options) { o.Data = "/" }, "cannot be /"},
		{"a place that is swept", func(o *Options) { o.Data = "/tmp/weir" }, "does not outlive a restart"},
		{"a place in memory", func(o *Options) { o.Data = "/run/weir" }, "does not outlive a restart"},
		{"a RAM disk of OpenWrt", func(o *Options) { o.Init, o.Data = Procd, "/var/lib/weir" }, "does not outlive a restart"},
		{"root", func(o *Options) { o.User = "root" }, "does not run as root"},
		{"no name", func(o *Options) { o.User = "we ir" }, "no name for a user"},
		{"low ports elsewhere", func(o *Options) { o.Init, o.Data, o.LowPorts = Procd, "/srv/weir", true }, "with systemd only"},
	} {
		o := defaults(Systemd)
		c.change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	for _, i := range inits {
		if err := defaults(i).Check(); err != nil {
			t.Errorf("%s: %v", i, err)
		}
	}
	if _, err := ParseInit("upstart"); err == nil || !strings.Contains(err.Error(), "systemd, procd, openrc") {
		t.Errorf("%v", err)
	}
}
