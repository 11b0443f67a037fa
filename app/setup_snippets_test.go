package app_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/test/need"
)

// Each snippet of the page, run as it stands there, leads to a reading that is stored.
func TestEverySnippetOfTheSetupPageSendsAReading(t *testing.T) {
	t.Parallel()
	f := startFirstRun(t, t.TempDir()+"/d")
	page := f.page(t)
	f.must(t, "tenant", form{"page": page, "token": "acme", "name": ""})
	var titles []string
	for i, title := range []string{"mosquitto_pub", "curl", "Python", "Go"} {
		device := "device-" + string(rune('1'+i))
		made := f.must(t, "device", form{"page": page, "token": device})
		snippet := made["snippets"].([]any)[i].(map[string]any)
		titles = append(titles, snippet["title"].(string))
		t.Run(title, func(t *testing.T) {
			if !ran(t, snippet["language"].(string), snippet["text"].(string)) {
				return
			}
			for {
				got := f.must(t, "reading", form{"page": page, "device": device})
				if refused := got["refused"]; refused != nil {
					t.Fatalf("refused: %v", refused)
				}
				if readings := got["readings"].([]any); len(readings) > 0 {
					if r := readings[0].(map[string]any); r["metric"] != "temp" || r["value"] != "21.5" {
						t.Errorf("%v", r)
					}
					return
				}
			}
		})
	}
	if got := strings.Join(titles, " "); got != "mosquitto_pub curl Python Go" {
		t.Errorf("the page shows %s", got)
	}
}

// ran runs a snippet with what its language needs, and reports whether it was: the library of the one in Python is not at
// hand everywhere, and interop runs it.
func ran(t *testing.T, language, text string) bool {
	t.Helper()
	file := filepath.Join(t.TempDir(), map[string]string{"sh": "first.sh", "python": "first.py", "go": "first.go"}[language])
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var run *exec.Cmd
	switch language {
	case "sh":
		program, _, _ := strings.Cut(text, " ")
		need.Program(t, program)
		run = exec.CommandContext(t.Context(), need.Program(t, "sh"), "-e", file)
	case "python":
		run = exec.CommandContext(t.Context(), need.Program(t, "python3"), "-m", "py_compile", file)
	case "go":
		run = exec.CommandContext(t.Context(), need.Program(t, "go"), "run", file)
	}
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, text)
	} else if strings.HasPrefix(text, "curl") && !strings.Contains(string(out), " 202 ") {
		t.Fatalf("curl says %s", out)
	}
	return language != "python"
}
