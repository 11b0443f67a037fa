package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestAFigureOfTheBrowserIsOneThatIsAskedFor(t *testing.T) {
	t.Parallel()
	read := func(text string) (string, error) {
		var said []string
		found, err := readFigures(strings.NewReader(text), func(f measuredInBrowser) { said = append(said, f.Name) })
		if len(found) != len(said) {
			t.Errorf("%d found, %d said", len(found), len(said))
		}
		return strings.Join(said, " "), err
	}
	if said, err := read(`{"name":"signIn","value":412,"note":"n"}` + "\n" + `{"name":"rows","value":34}` + "\n"); said != "signIn rows" || err != nil {
		t.Errorf("got %s, %v", said, err)
	}
	for text, want := range map[string]string{
		`{"name":"signIn","value":1}` + "\nFAIL the page did not come\n      twice\n": "the page did not come\n      twice",
		`{"name":"rows","value":1}` + "\n" + `{"name":"other","value":1}` + "\n":      "the browser has measured other, which has no bound",
	} {
		if _, err := read(text); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestTheScriptMeasuresEachFigure: each name that has a bound is one that the script writes, and the other way round.
func TestTheScriptMeasuresEachFigure(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("../interop/console-bench.mjs")
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]bool{}
	for _, m := range regexp.MustCompile(`figure\('(\w+)'`).FindAllSubmatch(script, -1) {
		written[string(m[1])] = true
	}
	for _, f := range consoleFigures {
		if !written[f.name] {
			t.Errorf("the script does not measure %s", f.name)
		}
		delete(written, f.name)
	}
	for name := range written {
		t.Errorf("%s has no bound", name)
	}
}
