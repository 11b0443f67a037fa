package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const log = "S1-001\tgql\tTestA\nS1-001\tbroker\tTestB\nS3-113\tgql\tTestA\nS1-001\tgql\tTestA\n"

// files writes a log and the document that -write makes from it, and returns how to check one against the other.
func files(t *testing.T, logged string) (check func(doc, logged string) error, doc string) {
	t.Helper()
	dir := t.TempDir()
	logPath, docPath := filepath.Join(dir, "log"), filepath.Join(dir, "conformance.md")
	put := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(logPath, logged)
	if err := run([]string{"-log", logPath, "-doc", docPath, "-write"}, t.Output()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(docPath)
	if err != nil {
		t.Fatal(err)
	}
	return func(doc, logged string) error {
		put(logPath, logged)
		put(docPath, doc)
		return run([]string{"-log", logPath, "-doc", docPath}, t.Output())
	}, string(b)
}

func TestWhatWasWrittenAgreesWithItsLog(t *testing.T) {
	t.Parallel()
	check, doc := files(t, log)
	if err := check(doc, log); err != nil {
		t.Error(err)
	}
	if !strings.Contains(doc, "| `broker.TestB`, `gql.TestA` |") || !strings.Contains(doc, "2 of 348 statements") {
		t.Error(doc)
	}
}

func TestEachDifferenceIsNamed(t *testing.T) {
	t.Parallel()
	check, doc := files(t, log)
	for name, c := range map[string]struct{ doc, log, want string }{
		"a test that no longer shows it": {doc, strings.Replace(log, "S1-001\tbroker\tTestB\n", "", 1), "S1-001: broker.TestB did not show it"},
		"a statement nobody shows":       {doc, strings.Replace(log, "S3-113\tgql\tTestA\n", "", 1), "S3-113: gql.TestA did not show it"},
		"a test the document lacks":      {doc, log + "S1-001\tapp\tTestC\n", "S1-001: add app.TestC"},
		"a statement it lacks":           {doc, log + "S2-124\tapp\tTestC\n", "S2-124: add app.TestC"},
		"the same name elsewhere":        {doc, strings.Replace(log, "broker", "web", 1), "S1-001: broker.TestB did not show it"},
		"an id that does not exist":      {doc, log + "S1-999\tapp\tTestC\n", "app.TestC shows S1-999, which is no statement"},
		"half a line":                    {doc, log + "S1-0", "no id, package, test"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := check(c.doc, c.log); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %q", name, err, c.want)
			}
		})
	}
}

func TestEveryStatementIsThereOnce(t *testing.T) {
	t.Parallel()
	s, err := parseStatements(statementsText)
	if err != nil {
		t.Fatal(err)
	}
	var n []int
	for _, c := range s {
		n = append(n, len(c.lines))
	}
	if want := []int{111, 124, 113}; !slices.Equal(n, want) {
		t.Errorf("got %d statements a chapter, want %d", n, want)
	}
	everything := shown{}
	for _, c := range s {
		for _, l := range c.lines {
			everything.add(l.id, "p.Test")
		}
	}
	if got := compare(parseDocument(render(s, everything)), everything); len(got) > 0 {
		t.Errorf("a document of all statements does not read back: %q", got)
	}
}
