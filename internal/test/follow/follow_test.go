package follow

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestWhatIsPrintedIsHeldAgainstThePage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		got  string
		want []string
		ok   bool
	}{
		{"a\nb\nc\n", []string{"a", "c"}, true},
		{"a\nb\n", []string{"b", "a"}, false},
		{"  token: x17 (once)\n", []string{"token: … (once)"}, true},
		{"anything\n", []string{""}, true},
		{"a.c\n", []string{"abc"}, false},
	} {
		if err := printed(c.got, c.want); (err == nil) != c.ok {
			t.Errorf("%q against %q: %v", c.got, c.want, err)
		}
	}
}

func TestAPageIsReadAsItIsRendered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		page string
		want []Step
	}{
		"commands and what they print": {"# Run\n\nThen:\n\n```sh\na <b> \"c\"\n```\n\n```text\n1\n2\n```\n",
			[]Step{{Line: 6, Language: "sh", Section: "Run", Body: "a <b> \"c\"\n", Prints: []string{"1", "2"}}}},
		"a name above":            {"**`etc/a.yml`**\n\n```yaml\na: 1\n```\n", []Step{{Line: 4, Language: "yaml", File: "etc/a.yml", Body: "a: 1\n"}}},
		"a name behind the fence": {"The file:\n\n```yaml file=a.yml\na: 1\n```\n", nil},
		"a name in a sentence":    {"The file **`a.yml`** is:\n\n```yaml\na: 1\n```\n", nil},
		"a list":                  {"- One:\n\n  ```sh\n  true\n  ```\n", []Step{{Line: 4, Language: "sh", Body: "true\n"}}},
		"terminals": {"```sh\na\n```\nIn a second\nterminal:\n```sh\nb\n```\nBack in the first terminal:\n```sh\nc\n```\n",
			[]Step{{Line: 2, Language: "sh", Body: "a\n"}, {Line: 7, Language: "sh", Terminal: 1, Body: "b\n"}, {Line: 11, Language: "sh", Body: "c\n"}}},
		"another terminal, twice": {"```sh\na\n```\nIn another terminal:\n```sh\nb\n```\nIn another terminal:\n```console\nc\n```\n",
			[]Step{{Line: 2, Language: "sh", Body: "a\n"}, {Line: 6, Language: "sh", Terminal: 1, Body: "b\n"}, {Line: 10, Language: "console", Terminal: 2, Body: "c\n"}}},
	} {
		got, err := read([]byte(c.page))
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			got[i].Above = ""
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n%+v, want\n%+v", name, got, c.want)
		}
	}
}

// rendered is a page in a directory of its own, where it is followed.
func rendered(t *testing.T, text string) (page string, o Options) {
	t.Helper()
	dir := t.TempDir()
	page = filepath.Join(dir, "page.md")
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return page, Options{Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")}, Timeout: 3 * time.Second}
}

func TestAPageIsFollowed(t *testing.T) {
	t.Parallel()
	page, o := rendered(t, "**`sub/greeting`**\n\n```txt\nhello 8080\n```\n\nand show it, not this\n\nWith `nothing`:\n\n```sh\nexit 1\n```\n\n"+
		"```text\nnever\n```\n\n```console\nexit 1\n```\n\n```sh\ncat sub/greeting\n```\n\n```text\nhello …\n```\n")
	o.Have, o.Timeout = map[string]bool{"nothing": false}, 0
	Page(t, page, o)
}

// ended is a test that has failed, for tests of what makes one fail.
type ended struct {
	testing.TB
	why string
}

func (e *ended) Helper()             {}
func (e *ended) Logf(string, ...any) {}
func (e *ended) Fatal(args ...any)   { e.Fatalf("%s", fmt.Sprint(args...)) }
func (e *ended) Fatalf(f string, a ...any) {
	e.why = fmt.Sprintf(f, a...)
	runtime.Goexit()
}

func TestAPageThatDoesNotWorkAsPrintedFails(t *testing.T) {
	t.Parallel()
	const server = "```sh\ncd sub; greeting=hello; echo ready; sleep 60\n```\n\n```text\nready\n```\n"
	for name, c := range map[string]struct{ page, want string }{
		"other output":                        {"```sh\necho b\n```\n\n```text\na\n```\n", `does not print "a"`},
		"a command that fails":                {"```sh\nfalse\n```\n", "its last command failed"},
		"a server and no other terminal":      {server + "\nThen:\n\n```sh\ntrue\n```\n", "leads to no other terminal"},
		"a variable of the other terminal":    {server + "\nIn a second terminal:\n\n```sh\necho \"$greeting\"\n```\n\n```text\nhello\n```\n", `does not print "hello"`},
		"the directory of the other terminal": {server + "\nIn a second terminal:\n\n```sh\nls file\n```\n", "its last command failed"},
		"back where the server runs":          {server + "\nIn a second terminal:\n\n```sh\ntrue\n```\n\nIn the first terminal:\n\n```sh\ntrue\n```\n", "is taken by"},
		"nothing to do":                       {"Text.\n", "no step"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page, o := rendered(t, c.page)
			if err := os.MkdirAll(filepath.Join(o.Dir, "sub"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(o.Dir, "sub", "file"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			failed := &ended{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				Page(failed, page, o)
			}()
			<-done
			if !strings.Contains(failed.why, c.want) {
				t.Errorf("it ends with %q, want %q", failed.why, c.want)
			}
		})
	}
}
