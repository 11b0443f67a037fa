package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// retiredProse are words and phrases that docs/glossary.md replaces, with what stands instead of them.
var retiredProse = map[string]string{
	`doors?`:     "transport, listener",
	`strangers?`: "unauthenticated sender",
	`fates?`:     "outcome",
	`(?:one|the|its|this|each|which) headings?`: "outcome",
	`told`:                                 "notified, reported, returned, shown",
	`(?:no|some|any|every)body|whoever`:    "the client, the caller, the user",
	`patience`:                             "timeout",
	`in force`:                             "effective",
	`obey(?:s|ed|ing)?`:                    "apply, effective",
	`anew`:                                 "again",
	`gone past|goes past what`:             "skipped",
	`by its own word`:                      "by its own account",
	`makes? as if`:                         "pretends",
	`an own`:                               "its own",
	`he|his|him|himself|she|hers?|herself`: "they, their",
	`control records?`:                     "metadata change",
	`head writes?|the head is (?:written|cut)`: "checkpoint",
	`places? in the log`:                       "offset, log position",
	`hurry|hurried`:                            "cancel",
	`keeper`:                                   "presence tracker",
	`lobby`:                                    "pending connections",
}

// TestRetiredWordsStayOut reads what users read and fails on each word that docs/glossary.md retired. Names and comments of the
// code are the linter's.
func TestRetiredWordsStayOut(t *testing.T) {
	t.Parallel()
	found := map[string][]string{}
	for page, text := range proseOf(t) {
		found[page] = retiredIn(text)
	}
	for _, where := range slices.Sorted(maps.Keys(found)) {
		for _, f := range found[where] {
			t.Errorf("%s: %s", where, f)
		}
	}
}

func TestRetiredWordsAreFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"A message reaches a door.":                            1,
		"The sender is told.":                                  1,
		"`told` is the name of a flag; a door\nis a transport": 1,
		"```sh\nweir tail --fate\n```\nThe outcome is shown.":  0,
		"its fate, by his patience":                            3,
		"The theme, this hisses, folder":                       0,
	} {
		if got := retiredIn(text); len(got) != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

var (
	retiredPattern = regexp.MustCompile(`(?i)\b(?:` + strings.Join(slices.Sorted(maps.Keys(retiredProse)), "|") + `)\b`)
	fencedCode     = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$")
	inlineCode     = regexp.MustCompile("`[^`\n]*`")
)

// retiredIn returns a line for each retired word of a text; what is code in it may contain them.
func retiredIn(text string) []string {
	blank := func(code string) string { return strings.Repeat("\n", strings.Count(code, "\n")) }
	text = inlineCode.ReplaceAllStringFunc(fencedCode.ReplaceAllStringFunc(text, blank), blank)
	var out []string
	for _, at := range retiredPattern.FindAllStringIndex(text, -1) {
		word := text[at[0]:at[1]]
		for pattern, instead := range retiredProse {
			if regexp.MustCompile(`(?i)^(?:` + pattern + `)$`).MatchString(word) {
				out = append(out, fmt.Sprintf("line %d: %q; write %s", 1+strings.Count(text[:at[0]], "\n"), word, instead))
				break
			}
		}
	}
	return out
}

// proseOf returns the texts that users read, by their path.
func proseOf(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, page := range pages(t) {
		out[page] = read(page)
	}
	if newest := strings.SplitAfterN("\n"+read("docs/changelog.md"), "\n## ", 3); len(newest) > 1 {
		out["docs/changelog.md"] = newest[1]
	}
	out["app/testdata/metrics.txt"] = strings.ReplaceAll(read("app/testdata/metrics.txt"), "_", " ")
	schemas, err := filepath.Glob("gql/schema/*.graphql")
	if err != nil || len(schemas) == 0 {
		t.Fatal("no schemas", err)
	}
	description := regexp.MustCompile(`(?s)""".*?"""|"[^"\n]*"|#[^\n]*`)
	for _, path := range schemas {
		sdl, at := read(path), 0
		var b strings.Builder // descriptions and comments, each in its line
		for _, d := range description.FindAllStringIndex(sdl, -1) {
			b.WriteString(strings.Repeat("\n", strings.Count(sdl[at:d[0]], "\n")))
			b.WriteString(sdl[d[0]:d[1]])
			at = d[1]
		}
		out[path] = b.String()
	}
	delete(out, "docs/glossary.md") // it names them
	return out
}
