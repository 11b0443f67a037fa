// Check compares what a test run has shown (the log that conformance.Shown writes) with docs/conformance.md: each
// statement of the document must have been shown by each of the tests named beside it, and what was shown must stand in
// the document. With -write it writes the document anew from the log of a whole run.
//
//	WEIR_CONFORMANCE_LOG=/tmp/log go test -count=1 ./...
//	go run ./internal/test/conformance/check -log /tmp/log [-write]
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

//go:embed statements.txt
var statementsText string

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	logFile := flags.String("log", "", "the log of a whole test run")
	document := flags.String("doc", "docs/conformance.md", "the document")
	write := flags.Bool("write", false, "write the document from the log")
	if err := flags.Parse(args); err != nil {
		return err
	}
	known, err := parseStatements(statementsText)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(*logFile)
	if err != nil {
		return fmt.Errorf("the log of the test run: %w", err)
	}
	logged, err := parseLog(string(b), known)
	if err != nil {
		return err
	}
	if *write {
		fmt.Fprintf(out, "%d of %d statements are shown\n", len(logged), known.count())
		return os.WriteFile(*document, []byte(render(known, logged)), 0o644)
	}
	b, err = os.ReadFile(*document)
	if err != nil {
		return err
	}
	if problems := compare(parseDocument(string(b)), logged); len(problems) > 0 {
		return fmt.Errorf("docs/conformance.md and the test run differ (make conformance regenerates it):\n  %s", strings.Join(problems, "\n  "))
	}
	fmt.Fprintf(out, "%d of %d statements are shown, as docs/conformance.md says\n", len(logged), known.count())
	return nil
}

// statements are the chapters of statements.txt.
type statements []chapter

type chapter struct {
	title string
	lines []statement
}

type statement struct{ id, text string }

func (s statements) count() int {
	n := 0
	for _, c := range s {
		n += len(c.lines)
	}
	return n
}

func (s statements) has(id string) bool {
	return slices.ContainsFunc(s, func(c chapter) bool {
		return slices.ContainsFunc(c.lines, func(l statement) bool { return l.id == id })
	})
}

func parseStatements(text string) (statements, error) {
	var out statements
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			out = append(out, chapter{title: title})
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		id, what, ok := strings.Cut(line, " | ")
		if !ok || len(out) == 0 || out.has(id) {
			return nil, fmt.Errorf("statements.txt: %q", line)
		}
		c := &out[len(out)-1]
		c.lines = append(c.lines, statement{id, what})
	}
	return out, nil
}

// shown holds the tests of each id, as package.Test.
type shown map[string]map[string]bool

func (s shown) add(id, test string) {
	if s[id] == nil {
		s[id] = map[string]bool{}
	}
	s[id][test] = true
}

func parseLog(text string, known statements) (shown, error) {
	out := shown{}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 3 {
			return nil, fmt.Errorf("the log has a line that is no id, package, test: %q", line)
		}
		if !known.has(f[0]) {
			return nil, fmt.Errorf("%s.%s shows %s, which is no statement", f[1], f[2], f[0])
		}
		out.add(f[0], f[1]+"."+f[2])
	}
	return out, nil
}

// rowPattern takes id and tests out of a row; the statement between them may hold anything.
var rowPattern = regexp.MustCompile(`^\| (S[123]-\d{3}) \| .* \| ([^|]*) \|\s*$`)

// parseDocument reads the rows of the tables: | id | statement | `test`, `test` |.
func parseDocument(text string) shown {
	out := shown{}
	for line := range strings.Lines(text) {
		row := rowPattern.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		for t := range strings.SplitSeq(row[2], ",") {
			out.add(row[1], strings.Trim(t, " `"))
		}
	}
	return out
}

func compare(document, logged shown) []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(document)) {
		for _, test := range slices.Sorted(maps.Keys(document[id])) {
			if !logged[id][test] {
				out = append(out, fmt.Sprintf("%s: %s did not show it", id, test))
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(logged)) {
		for _, test := range slices.Sorted(maps.Keys(logged[id])) {
			if !document[id][test] {
				out = append(out, fmt.Sprintf("%s: add %s", id, test))
			}
		}
	}
	return out
}

const preface = `# Conformance

The testable statements of the three contracts that Weir fulfils today, each with the tests that show it. A statement that is not
listed is not fulfilled yet, or no test shows it yet.

A test logs a statement's id after its assertion ran; ` + "`make check`" + ` compares that log with this page, so that a row without a test fails.
` + "`make conformance`" + ` regenerates the page. "floor" marks a limitation that a contract admits: Weir provides at least that.
`

func render(known statements, logged shown) string {
	var b strings.Builder
	b.WriteString(preface)
	fmt.Fprintf(&b, "\n%d of %d statements are shown.\n", len(logged), known.count())
	for _, c := range known {
		rows := 0
		for _, s := range c.lines {
			tests := slices.Sorted(maps.Keys(logged[s.id]))
			if len(tests) == 0 {
				continue
			}
			if rows++; rows == 1 {
				fmt.Fprintf(&b, "\n## %s\n\n| id | statement | shown by |\n|---|---|---|\n", c.title)
			}
			fmt.Fprintf(&b, "| %s | %s | `%s` |\n", s.id, strings.ReplaceAll(s.text, "|", `\|`), strings.Join(tests, "`, `"))
		}
	}
	return b.String()
}
