package broker

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/internal/test/made"
)

const (
	conformancePage   = "../docs/mqtt-conformance.md"
	conformanceUpdate = "go test ./broker -run TestTheConformancePage -update"
)

// TestTheConformancePage holds the page to the list of statements and to the cases that show them.
func TestTheConformancePage(t *testing.T) {
	t.Parallel()
	made.File(t, conformancePage, writeConformance(t), conformanceUpdate)
}

// Every statement of both standards is listed, once, and every one that a case claims to show is on the list.
func TestEveryStatementHasItsPlace(t *testing.T) {
	t.Parallel()
	listed := map[string]int{}
	for _, c := range statements {
		for _, s := range c.list {
			for _, n := range s.numbers() {
				listed[n]++
			}
		}
	}
	for version, sections := range normative {
		for section, count := range sections {
			for i := range count {
				n := numberIn(version, fmt.Sprintf("%s-%d", section, i+1))
				if listed[n] != 1 && n != "2.2.1-1" {
					t.Errorf("%s of %s is listed %d times", n, version, listed[n])
				}
				delete(listed, n)
			}
		}
	}
	for n := range listed {
		t.Errorf("%s is no statement", n)
	}
	for test, cases := range conformanceCases() {
		for _, tc := range cases {
			for _, n := range clausesOf(tc) {
				if !slices.ContainsFunc(statements, func(c chapter) bool {
					return slices.ContainsFunc(c.list, func(s statement) bool { return slices.Contains(s.numbers(), n) })
				}) {
					t.Errorf("%s, %q shows %s, which is not listed", test, tc.name, n)
				}
			}
		}
	}
}

// What conforms or is refused is shown by a test, and every test that is named is there.
func TestEveryStatementIsShown(t *testing.T) {
	t.Parallel()
	there := testNames(t)
	for _, c := range statements {
		for _, s := range c.list {
			for name := range strings.FieldsSeq(s.also) {
				if !there[name] {
					t.Errorf("%s: there is no %s", s.says, name)
				}
			}
			if s.stand != off && s.stand != ofClients && len(s.shownBy()) == 0 {
				t.Errorf("%s: %s, which nothing shows", s.says, s.stand)
			}
		}
	}
}

// testNames are the tests of the package.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}

func numberIn(version, number string) string {
	if version == "3.1.1" {
		return "v3:" + number
	}
	return number
}

// numbers are those of the statement as the cases write them.
func (s *statement) numbers() []string {
	all := strings.Fields(s.v5)
	for n := range strings.FieldsSeq(s.v3) {
		all = append(all, numberIn("3.1.1", n))
	}
	return all
}

// shownBy are the cases that name one of the statement's numbers, by their test, and the tests that the list names.
func (s *statement) shownBy() (tests []string) {
	cases := conformanceCases()
	for _, test := range slices.Sorted(maps.Keys(cases)) {
		for _, tc := range cases[test] {
			if slices.ContainsFunc(clausesOf(tc), func(n string) bool { return slices.Contains(s.numbers(), n) }) {
				tests = append(tests, test+": "+tc.name)
			}
		}
	}
	return append(tests, strings.Fields(s.also)...)
}

const conformancePreamble = `# MQTT conformance

<!-- Written by ` + "`" + conformanceUpdate + "`" + `; do not edit. -->

Every numbered normative statement of MQTT 5.0 and MQTT 3.1.1, paraphrased, with Weir's conformance on a device's
connection and the tests of package ` + "`broker`" + ` that show it: raw bytes in, exact bytes out. Statements that both versions share
have one row. Codes are reason codes of MQTT 5.0; a 3.1.1 connection is closed where 3.1.1 has no code.

A device's connection is not a general broker: a device publishes on its own topics, subscribes to its own commands, and
its messages go to the durable log. The column "Weir" has one of these:

- **conforms**: as the standard demands
- **refused by policy**: the standard allows it, a device may not; the row names the code
- **not offered**: optional in the standard, or not applicable; the CONNACK of MQTT 5.0 states it if it has a field for it
- **departs**: deliberate; the row gives the reason
- **of clients**: binds the client; the row says what follows from a violation

`

func writeConformance(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString(conformancePreamble)
	counts := map[stand]int{}
	for _, c := range statements {
		for _, s := range c.list {
			counts[s.stand] += len(s.numbers())
		}
	}
	var words []string
	for _, s := range []stand{conforming, refused, off, departs, ofClients} {
		words = append(words, fmt.Sprintf("%d %s", counts[s], s))
	}
	fmt.Fprintf(&b, "Statements: %s.\n", strings.Join(words, ", "))
	for _, c := range statements {
		fmt.Fprintf(&b, "\n## %s\n\n| 5.0 | 3.1.1 | says | Weir | shown by |\n|---|---|---|---|---|\n", c.title)
		for _, s := range c.list {
			weir := string(s.stand)
			if s.how != "" {
				weir += ": " + s.how
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", brief(s.v5), brief(s.v3), s.says, weir, strings.Join(s.shownBy(), "; "))
		}
	}
	return b.Bytes()
}

// brief writes numbers of one section in the way of "3.1.2-4, -5".
func brief(numbers string) string {
	var all []string
	last := ""
	for n := range strings.FieldsSeq(numbers) {
		section, number, _ := strings.Cut(n, "-")
		if section == last {
			n = "-" + number
		}
		last = section
		all = append(all, n)
	}
	return strings.Join(all, ", ")
}
