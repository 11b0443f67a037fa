package site

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/test/made"
)

// beside are the files that stand beside those of the gallery.
var besideFiles = map[string]string{
	"key.txt": "s3cret\n", "empty.txt": "\n",
	"fleet.csv":    "token\nd1\n",
	"bad.csv":      "token,externalId,accessToken\nd1,1,s3cret\nd 2,2,s3cret\nd1,3,s3cret\nd2,4,s3cret\n,5,s3cret\n",
	"header.csv":   "token,nam,name,name\nd1,a,b,c\n",
	"headless.csv": "d1,s3cret\n",
	"ragged.csv":   "token,name\nd7,a\nd8\n",
	"empty.csv":    "",
}

// gallerySource reads from memory.
func gallerySource(text string) Source {
	return Source{LookupEnv: lookup([]string{"KEY=s3cret", "EMPTY="}), Stat: func(string) (fs.FileInfo, error) { return nil, fs.ErrNotExist },
		ReadFile: func(name string) ([]byte, error) {
			if name == "site.yaml" {
				return []byte(text), nil
			}
			if s, ok := besideFiles[name]; ok {
				return []byte(s), nil
			}
			return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("no such file or directory")}
		}}
}

// pair is an entry of the gallery.
type pair struct{ name, text, want string }

func gallery(t testing.TB) []pair {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "bad.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var out []pair
	for i, entry := range strings.Split("\n"+string(b), "\n=== ") {
		name, rest, _ := strings.Cut(entry, "\n")
		text, want, ok := strings.Cut(rest, "\n--\n")
		if i == 0 {
			continue
		}
		if !ok {
			text = strings.TrimSuffix(rest, "\n--")
		}
		out = append(out, pair{name, text + "\n", strings.TrimSuffix(want, "\n")})
	}
	return out
}

func TestABadFileIsReportedWithEveryMistakeAndItsPosition(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, p := range gallery(t) {
		_, _, err := Read(gallerySource(p.text), "site.yaml")
		ps, ok := errors.AsType[Problems](err)
		got := strings.TrimPrefix(fmt.Sprint(err), "the site file is not valid:\n")
		if !ok || len(ps) == 0 {
			t.Errorf("%s: %v", p.name, err)
		}
		if strings.Contains(got, "s3cret") {
			t.Errorf("%s: a secret is shown:\n%s", p.name, got)
		}
		if got != p.want && !made.Update() {
			t.Errorf("%s: got\n%s\nwant\n%s", p.name, got, p.want)
		}
		fmt.Fprintf(&b, "=== %s\n%s--\n%s\n", p.name, p.text, got)
	}
	if made.Update() {
		made.Write(t, filepath.Join("testdata", "bad.txt"), []byte(b.String()))
	}
}

func TestSeveralFilesAreOneDocument(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.files(map[string]string{
		"a.yaml": "version: 1\ntenants:\n  - {token: acme, name: Acme, deviceTypes: [{token: t}]}\n",
		"b.yaml": "version: 1\ntenants:\n  - token: acme\n    ingestBurst: 300\n    devices: [{token: d, deviceTypeToken: t}]\n",
		"c.yaml": "version: 1\ntenants:\n  - token: acme\n    name: Other\n    devices: [{token: d}]\n",
	})
	path := func(name string) string { return filepath.Join(w.dir, name) }
	d, _, err := Read(Source{}, path("a.yaml"), path("b.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.wantPlan(d, Options{}, "+ tenant acme\n+ device type acme/t\n+ device acme/d\n")
	_, _, err = Read(Source{}, path("a.yaml"), path("b.yaml"), path("c.yaml"))
	want := "the site file is not valid:\n" +
		"c.yaml:4:5: tenants[0].name: is given at a.yaml:3:19 already\n        name: Other\n        ^\n" +
		"c.yaml:5:16: tenants[0].devices[0].token: the device \"d\" is declared at b.yaml:5:16 already\n        devices: [{token: d}]\n                   ^"
	if got := strings.ReplaceAll(fmt.Sprint(err), w.dir+"/", ""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestDevicesComeFromAList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.files(map[string]string{"fleet.csv": "\xef\xbb\xbftoken,name,deviceTypeToken,metadata,accessToken\n" +
		"d1,\"One, the first\",,\"{\"\"a\"\":1}\",key-1\nd2,,other,,\n"})
	file := func() *Document {
		return w.read(`
version: 1
tenants:
  - token: acme
    deviceTypes: [{token: t}, {token: other}]
    devicesFrom:
      - {file: fleet.csv, deviceTypeToken: t, description: of the list}
`)
	}
	w.wantPlan(file(), Options{}, "+ tenant acme\n+ device type acme/t\n+ device type acme/other\n+ device acme/d1\n+ device acme/d2\n+ device credential acme/d1-access-token\n")
	w.apply(file(), Options{})
	w.wantPlan(file(), Options{Prune: true}, "")
	w.files(map[string]string{"fleet.csv": "token,name,description,accessToken\nd1,,own,key-2\n"})
	w.wantPlan(file(), Options{Prune: true}, "- device acme/d2\n~ device acme/d1: description \"of the list\" → \"own\"\n~ device credential acme/d1-access-token: credentialId (changed)\n")
}

func TestSecretsThatEverybodyMayReadAreWarnedOf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, mode := range map[string]fs.FileMode{"open.txt": 0o644, "closed.txt": 0o600, "open.csv": 0o644, "plain.csv": 0o644} {
		t.Run(name, func(t *testing.T) {
			text := map[string]string{"open.csv": "token,accessToken\nd,k\n", "plain.csv": "token\ne\n"}[name]
			if text == "" {
				text = "secret\n"
			}
			path := filepath.Join(dir, name)
			if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)); err != nil { // whatever the umask is
				t.Fatal(err)
			}
		})
	}
	text := `
version: 1
identities: [{email: a@b, password_file: open.txt}, {email: c@d, password_file: closed.txt}, {email: e@f, password_file: open.txt}]
tenants: [{token: acme, devicesFrom: [{file: open.csv}, {file: plain.csv}]}]
`
	if err := os.WriteFile(filepath.Join(dir, "site.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	d, warnings, err := Read(Source{}, filepath.Join(dir, "site.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{}
	for _, name := range []string{"open.txt", "open.csv"} {
		path := filepath.Join(dir, name)
		want = append(want, path+" holds secrets and may be read by every user of this machine: chmod o-r "+path)
	}
	if fmt.Sprint(warnings) != fmt.Sprint(want) {
		t.Errorf("got %q", warnings)
	}
	if got := d.Lists["identities"][0].Secrets["password"]; got != "secret" {
		t.Errorf("the password is %q", got)
	}
}

func TestTheFormatIsCheckedWhereTheSecretsAreNot(t *testing.T) {
	t.Parallel()
	src := gallerySource("version: 1\nidentities: [{email: a@b, password_file: none.txt}]\n")
	if _, _, err := Read(src, "site.yaml"); err == nil {
		t.Error("a secret that is not there was found")
	}
	src.WithoutSecrets = true
	if _, _, err := Read(src, "site.yaml"); err != nil {
		t.Error(err)
	}
}

// FuzzRead: whatever a file says, reading it ends with a document or with problems that have a reason, with and without the checks
// of its values; and what a document can be written as is read as the same.
func FuzzRead(f *testing.F) {
	for _, p := range gallery(f) {
		f.Add(p.text)
	}
	f.Add(plantFile)
	f.Add(everySection().String())
	examples, err := filepath.Glob(filepath.Join("..", "examples", "*", "site.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range examples {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, text string) {
		src := gallerySource(text)
		src.WithoutSecrets, src.Checked, src.Complete = true, true, true
		if _, _, err := Read(src, "site.yaml"); err != nil {
			mustBeProblems(t, err)
		}
		src.Checked, src.Complete = false, false
		d, _, err := Read(src, "site.yaml")
		if err != nil {
			mustBeProblems(t, err)
			return
		}
		written := d.YAML()
		again, _, err := Read(gallerySource(written), "site.yaml")
		if err != nil {
			t.Fatalf("%v\nof\n%s", err, written)
		}
		if got := again.YAML(); got != written {
			t.Fatalf("got\n%s\nwant\n%s", got, written)
		}
	})
}

func mustBeProblems(t *testing.T, err error) {
	t.Helper()
	ps, ok := errors.AsType[Problems](err)
	if !ok || len(ps) == 0 {
		t.Fatalf("%v", err)
	}
	for _, p := range ps {
		if p.Reason == "" {
			t.Fatalf("%+v", p)
		}
	}
}

// What is wrong with the files of a start is written to the log.
func TestASecretUnderAMistypedKeyIsNotShown(t *testing.T) {
	t.Parallel()
	const text = `version: 1
identities:
  - {email: a@example.org, pasword: hunter2}
  - email: b@example.org
    Password: hunter2
    password_files: key.txt
tenants:
  - token: acme
    secret: hunter2
    devices: [{token: d, credentials: [{token: c, credentialid: hunter2, access_token: hunter2}]}]
`
	_, _, err := Read(gallerySource(text), "site.yaml")
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
	_, _, err = Read(gallerySource("version: 1\nidentities:\n  - {email: a@example.org, password_file: none.txt}\n"), "site.yaml")
	if err == nil || !strings.Contains(err.Error(), "password_file: none.txt") {
		t.Errorf("the place of a secret is none: %v", err)
	}
}
