package service

import (
	"os"
	"os/exec"
	"path/filepath"
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

// startScript runs the part of an init script that prepares the start, as sh would, and returns the calls of chown and chmod.
func startScript(t *testing.T, o Options, start string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"passwd", "group"} {
		path := filepath.Join(root, "etc", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(o.User+":x:1:1:::\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script := `for name in chown chmod; do eval "$name() { echo $name \"\$@\"; }"; done
mkdir() { :; }; checkpath() { :; }; procd_open_instance() { :; }; procd_set_param() { :; }; procd_close_instance() { :; }
` + o.Unit() + start
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = append(os.Environ(), "IPKG_INSTROOT="+root)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestTheStartGivesWhatRootHasRestoredToTheUser covers the init systems whose script does it; systemd does it for a
// StateDirectory by itself.
func TestTheStartGivesWhatRootHasRestoredToTheUser(t *testing.T) {
	t.Parallel()
	for init, start := range map[Init]string{Procd: "\nstart_service\n", OpenRC: "\nstart_pre\n"} {
		o := defaults(init)
		owned := func(owner string) string {
			return "\nls() { echo \"drwxr-x--- 5 " + owner + " " + owner + " 4096 Nov 20 08:30 $2\"; }" + start
		}
		want := "chown -Rh weir:weir " + o.Data + "/\n"
		if got := startScript(t, o, owned("root")); !strings.Contains(got, want) {
			t.Errorf("%s: the data of another user: %q is missing in\n%s", init, want, got)
		}
		if got := startScript(t, o, owned("weir")); strings.Contains(got, "-Rh") {
			t.Errorf("%s: the data of its user is touched:\n%s", init, got)
		}
	}
}

func TestOnOpenWrtTheStartOpensTheSecretsOfAnImageToTheUser(t *testing.T) {
	t.Parallel()
	o := defaults(Procd)
	dir := t.TempDir()
	o.Config, o.Data = filepath.Join(dir, "weir.yaml"), t.TempDir()
	for _, name := range []string{"weir.yaml", "conf.d/site.yaml", "secrets/boiler-1", "site.yaml"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := startScript(t, o, "\nstart_service\n")
	for _, part := range []string{"weir.yaml", "conf.d", "conf.d/site.yaml", "secrets", "secrets/boiler-1"} {
		path := filepath.Join(dir, part)
		if want := "chown root:weir " + path + "\nchmod g+rX,o= " + path + "\n"; !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, filepath.Join(dir, "site.yaml")) {
		t.Errorf("a file that is none of the service's is changed:\n%s", got)
	}
}

func TestTheConfigurationOfAFirstInstallationNamesTLS(t *testing.T) {
	t.Parallel()
	text := defaults(Systemd).Starter()
	for _, w := range []string{"mqtts:", "_tls", "cert_file", `"weir cert"`} {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in\n%s", w, text)
		}
	}
	if strings.Contains(text, "None of them") {
		t.Errorf("listeners with TLS exist:\n%s", text)
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
