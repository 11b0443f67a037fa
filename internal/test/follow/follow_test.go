package follow

import (
	"os"
	"path/filepath"
	"testing"
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

func TestABlockIsKnownByWhatStandsBehindItsFence(t *testing.T) {
	t.Parallel()
	for info, want := range map[string]struct {
		step Step
		ok   bool
	}{
		"sh":                  {Step{Language: "sh"}, true},
		"sh server":           {Step{Language: "sh", Server: true}, true},
		"sh if=node":          {Step{Language: "sh", If: "node"}, true},
		"yaml file=etc/a.yml": {Step{Language: "yaml", File: "etc/a.yml"}, true},
		"yaml":                {Step{Language: "yaml"}, false},
		"console":             {Step{Language: "console"}, false},
		"":                    {Step{}, false},
	} {
		step, ok := stepOf(info)
		if ok != want.ok || step.Language != want.step.Language || step.Server != want.step.Server || step.If != want.step.If || step.File != want.step.File {
			t.Errorf("%q: %+v %v", info, step, ok)
		}
	}
}

func TestAPageIsFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page := filepath.Join(dir, "page.md")
	if err := os.WriteFile(page, []byte("Save\n\n```txt file=sub/greeting\nhello 8080\n```\n\nand show it, not this\n\n```sh if=nothing\nexit 1\n```\n\n"+
		"```text\nnever\n```\n\n```console\nexit 1\n```\n\n```sh\ncat sub/greeting\n```\n\n```text\nhello …\n```\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	Page(t, page, Options{Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")}})
	if steps := Read(t, page); len(steps) != 3 || steps[1].Prints[0] != "never" {
		t.Errorf("%+v", steps)
	}
}
