package site

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/internal/test/need"
)

// named are the files of secrets that a site file names.
var namedSecrets = regexp.MustCompile(`_file: *([A-Za-z0-9./_-]+)`)

// Each example is valid, can be applied to an empty instance, and then its own plan and that of its export are empty.
func TestTheExamplesAreMadeAndKept(t *testing.T) {
	t.Parallel()
	examples, err := filepath.Glob(filepath.Join("..", "examples", "*", "site.yaml"))
	if err != nil || len(examples) < 3 {
		t.Fatal(examples, err)
	}
	for _, file := range examples {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			t.Parallel()
			if _, warnings, err := Read(Source{WithoutSecrets: true}, file); err != nil || len(warnings) > 0 {
				t.Fatal(warnings, err)
			}
			w := newWorld(t)
			dir := w.copyExample(filepath.Dir(file))
			read := func() *Document {
				d, warnings, err := Read(Source{}, filepath.Join(dir, "site.yaml"))
				if err != nil || len(warnings) > 0 {
					t.Fatal(warnings, err)
				}
				return d
			}
			d := read()
			p := w.apply(d, Options{})
			if p.Count(Create) != d.entities() {
				t.Errorf("%d things are declared, made were\n%s", d.entities(), lines(p))
			}
			w.wantPlan(read(), Options{Prune: true}, "")
			w.wantPlan(w.export(), Options{Prune: true}, "")
		})
	}
}

// copyExample copies an example and makes the secrets that it names.
func (w *world) copyExample(from string) (dir string) {
	w.Helper()
	dir = filepath.Join(w.dir, "example")
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		w.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "site.yaml"))
	if err != nil {
		w.Fatal(err)
	}
	for _, m := range namedSecrets.FindAllStringSubmatch(string(b), -1) {
		path := filepath.Join(dir, m[1])
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			w.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("the secret in "+m[1]+"\n"), 0o600); err != nil {
			w.Fatal(err)
		}
	}
	return dir
}

// A list gets its access tokens by the script that stands beside it, and each device has one then.
func TestTheFleetGetsItsTokensByTheScript(t *testing.T) {
	t.Parallel()
	need.Program(t, "sh")
	w := newWorld(t)
	dir := w.copyExample(filepath.Join("..", "examples", "fleet"))
	list := filepath.Join(dir, "fleet.csv")
	b, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	few := strings.Join(strings.SplitAfter(string(b), "\n")[:6], "")
	if err := os.WriteFile(list, []byte(few), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("sh", filepath.Join(dir, "tokens.sh"), list).Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list, out, 0o600); err != nil {
		t.Fatal(err)
	}
	d, _, err := Read(Source{}, filepath.Join(dir, "site.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.apply(d, Options{})
	if devices, credentials := w.count("devices"), w.count("device_credentials"); devices != 5 || credentials != 5 {
		t.Errorf("%d devices, %d credentials", devices, credentials)
	}
}
