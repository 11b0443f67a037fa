package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// machine is a root with an init system, and what was done to it.
type machine struct {
	t      *testing.T
	root   string
	ran    []string
	owners map[string]string // path → uid:gid
}

func newMachine(t *testing.T, signs ...string) *machine {
	m := &machine{t: t, root: t.TempDir(), owners: map[string]string{}}
	m.file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n", 0o644)
	m.file("etc/group", "root:x:0:\n", 0o644)
	m.file("usr/bin/weir", "", 0o755)
	for _, s := range signs {
		m.file(s, "", 0o755)
	}
	return m
}

func (m *machine) file(path, text string, mode os.FileMode) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(path string) string {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(m.root, path))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b)
}

// installer installs into the machine. Making the user is done by the real script, on the machine's own files.
func (m *machine) installer(i Init) *Installer {
	return &Installer{Options: defaults(i), Root: m.root,
		Run: func(ctx context.Context, stdin string, argv ...string) error {
			m.ran = append(m.ran, strings.Join(argv, " "))
			if argv[0] != "sh" {
				return nil
			}
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			cmd.Env, cmd.Stdin = append(os.Environ(), "IPKG_INSTROOT="+m.root), strings.NewReader(stdin)
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		},
		Chown: func(path string, uid, gid int) error {
			rel, err := filepath.Rel(m.root, path)
			m.owners[strings.TrimSuffix(rel, ".new")] = fmt.Sprintf("%d:%d", uid, gid)
			return err
		}}
}

func (m *machine) install(in *Installer) map[string]State {
	m.t.Helper()
	steps, err := in.Install(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	out := map[string]State{}
	for _, s := range steps {
		out[s.Name] = s.State
	}
	return out
}

func TestABareMachineGetsUserDirectoriesConfigurationAndUnit(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "run/systemd/system/x")
	in := m.installer(Detect(m.root))
	got := m.install(in)
	want := map[string]State{"weir": Made, "/etc/weir": Made, "/etc/weir/conf.d": Made, "/var/lib/weir": Made, "/etc/weir/weir.yaml": Made,
		"/etc/systemd/system/weir.service": Made, "systemctl daemon-reload": Done}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if text := m.read("etc/systemd/system/weir.service"); text != in.Unit() {
		t.Errorf("the unit:\n%s", text)
	}
	if line := "weir:x:980:980:Weir:/var/lib/weir:/bin/false\n"; !strings.Contains(m.read("etc/passwd"), line) {
		t.Errorf("the user: %s", m.read("etc/passwd"))
	}
	for path, want := range map[string]struct {
		mode  os.FileMode
		owner string
	}{"etc/weir": {0o755, "0:0"}, "etc/weir/conf.d": {0o750, "0:980"}, "var/lib/weir": {0o750, "980:980"}, "etc/weir/weir.yaml": {0o640, "0:980"},
		"etc/systemd/system/weir.service": {0o644, "0:0"}} {
		info, err := os.Stat(filepath.Join(m.root, path))
		if err != nil || info.Mode().Perm() != want.mode || m.owners[path] != want.owner {
			t.Errorf("%s: %v %v %s, want %+v", path, err, info.Mode(), m.owners[path], want)
		}
	}
}

func TestAnInstallationOnceMoreChangesNothing(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "sbin/procd")
	m.install(m.installer(Procd))
	m.file("etc/weir/weir.yaml", "data_dir: /srv/weir # mine\n", 0o640)
	m.owns("srv/weir")
	for name, s := range m.install(m.installer(Procd)) {
		if s != Unchanged && s != Done {
			t.Errorf("%s: %s", name, s)
		}
	}
	if text := m.read("etc/weir/weir.yaml"); !strings.Contains(text, "mine") {
		t.Errorf("the configuration was overwritten: %s", text)
	}
	if n := strings.Count(m.read("etc/passwd"), "weir:"); n != 1 {
		t.Errorf("the user is there %d times", n)
	}
	if want := []string{"sh -e", "/etc/init.d/weir enable", "/etc/init.d/weir enable"}; !slices.Equal(m.ran, want) {
		t.Errorf("ran %q, want %q", m.ran, want)
	}
}

// owns lets the directory belong to weir: the machine says that weir is whoever runs the test.
func (m *machine) owns(string) {
	m.file("etc/passwd", fmt.Sprintf("weir:x:%d:%d::/:/bin/false\n", os.Getuid(), os.Getgid()), 0o644)
}

func TestAUnitThatDiffersIsReplacedAndKept(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "sbin/openrc-run")
	m.file("etc/init.d/weir", "of before\n", 0o755)
	got := m.install(m.installer(OpenRC))
	if got["/etc/init.d/weir"] != Replaced || m.read("etc/init.d/weir.old") != "of before\n" || m.read("etc/init.d/weir") != m.installer(OpenRC).Unit() {
		t.Errorf("%v", got)
	}
}

func TestTheUnitOfThePackageIsLeftInCharge(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "run/systemd/system/x")
	in := m.installer(Systemd)
	m.file("usr/lib/systemd/system/weir.service", in.Unit(), 0o644)
	if got := m.install(in); got["/usr/lib/systemd/system/weir.service"] != Unchanged {
		t.Errorf("%v", got)
	}
	if _, err := os.Stat(filepath.Join(m.root, "etc/systemd/system/weir.service")); err == nil {
		t.Error("a second unit hides the one of the package")
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "run/systemd/system/x")
	before := m.tree()
	in := m.installer(Systemd)
	in.DryRun = true
	for name, s := range m.install(in) {
		if s != WouldMake && s != WouldDo {
			t.Errorf("%s: %s", name, s)
		}
	}
	if after := m.tree(); !slices.Equal(before, after) || len(m.ran) > 0 || len(m.owners) > 0 {
		t.Errorf("%q, %q, %v", after, m.ran, m.owners)
	}
}

func (m *machine) tree() []string {
	var out []string
	_ = filepath.WalkDir(m.root, func(path string, _ os.DirEntry, err error) error {
		out = append(out, path)
		return err
	})
	return out
}

func TestWhatCannotRunIsRefusedBeforeAnythingIsMade(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	in := m.installer(Systemd)
	in.Binary = "/opt/weir"
	before := m.tree()
	_, err := in.Install(t.Context())
	if _, ok := errors.AsType[*BinaryError](err); !ok {
		t.Errorf("no program: %v", err)
	}
	in = m.installer(Systemd)
	if err := os.MkdirAll(filepath.Join(m.root, "var/lib/weir"), 0o750); err != nil {
		t.Fatal(err)
	}
	_, err = in.Install(t.Context())
	if _, ok := errors.AsType[*OwnerError](err); !ok {
		t.Errorf("data of somebody else: %v", err)
	}
	if after := m.tree(); len(after) != len(before)+3 || len(m.ran) > 0 {
		t.Errorf("%q, ran %q", after, m.ran)
	}
}

func TestTheInitSystemIsRecognised(t *testing.T) {
	t.Parallel()
	for sign, want := range map[string]Init{"run/systemd/system/x": Systemd, "usr/lib/systemd/systemd": Systemd, "sbin/procd": Procd, "sbin/openrc-run": OpenRC, "sbin/init": ""} {
		if got := Detect(newMachine(t, sign).root); got != want {
			t.Errorf("%s: %q, want %q", sign, got, want)
		}
	}
}
