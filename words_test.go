package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
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

// retiredNames are words that no exported identifier contains.
var retiredNames = map[string]string{
	"door": "transport, listener", "doors": "transports, listeners", "gate": "Intake", "fate": "Outcome", "fates": "Outcomes",
	"heading": "Outcome", "headings": "Outcomes", "stranger": "unauthenticated", "strangers": "unauthenticated",
	"told": "notified, reported", "tell": "notify, report", "tells": "notifies, reports", "patience": "timeout", "mute": "CannotRefuse",
	"hole": "LogGap", "holes": "LogGaps", "obey": "apply", "obeyed": "effective", "hurry": "cancel", "lobby": "pending connections",
	"guest": "pending connection", "guests": "pending connections", "ailing": "Unhealthy", "keeper": "tracker", "onlooker": "watcher",
	"onlookers": "watchers", "station": "component", "stations": "components", "room": "package, component", "rooms": "packages, components",
	"anew": "again", "whoever": "the client", "nobody": "no client", "somebody": "a client", "most": "max", "least": "min",
}

// locations have a heading in degrees, which is the field's own word.
var locations = regexp.MustCompile(`^(?:gql|ingest|model|series|store|httpingest|registry)\..*(?:Location|Heading$)`)

// TestRetiredWordsStayOut reads what users and programmers read and fails on each word that docs/glossary.md retired.
func TestRetiredWordsStayOut(t *testing.T) {
	t.Parallel()
	found := map[string][]string{}
	for page, text := range proseOf(t) {
		found[page] = retiredIn(text)
	}
	for _, n := range exportedNames(t) {
		if words := retiredInName(n.name); len(words) > 0 && !(slices.Equal(words, []string{"heading"}) && locations.MatchString(n.name)) {
			found[n.pkg] = append(found[n.pkg], fmt.Sprintf("%s: %s contains %s; write %s", n.at, n.name, words[0], retiredNames[words[0]]))
		}
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
	for name, want := range map[string]bool{"ingest.OpenDoor": true, "ingest.GateConfig": true, "ingest.Aggregate": false, "app.LeastMemory": true, "a.Investigate": false} {
		if got := retiredInName(name); len(got) > 0 != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !locations.MatchString("model.Location.Heading") || locations.MatchString("app.TailQuery.Heading") {
		t.Error("a location's heading is not distinguished from an outcome")
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
	if newest := strings.SplitAfterN("\n"+read("CHANGELOG.md"), "\n## ", 3); len(newest) > 1 {
		out["CHANGELOG.md"] = newest[1]
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

type exportedName struct{ pkg, name, at string }

// exportedNames returns the exported identifiers of the program: package.Name, package.Type.Member.
func exportedNames(t *testing.T) []exportedName {
	t.Helper()
	var out []exportedName
	files := token.NewFileSet()
	for path, text := range sources(t, ".") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		pkg := filepath.Dir(path)
		add := func(id *ast.Ident, owner string) {
			if id.IsExported() {
				out = append(out, exportedName{pkg, strings.ReplaceAll(f.Name.Name+"."+owner+"."+id.Name, "..", "."), files.Position(id.Pos()).String()})
			}
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				add(d.Name, receiverOf(d))
			case *ast.GenDecl:
				for _, s := range d.Specs {
					namesOf(s, add)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b exportedName) int { return strings.Compare(a.at, b.at) })
	return out
}

func receiverOf(d *ast.FuncDecl) (name string) {
	if d.Recv != nil {
		ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && name == "" {
				name = id.Name
			}
			return name == ""
		})
	}
	return name
}

// namesOf adds the names of a declaration: constants, variables, types with their fields and methods.
func namesOf(s ast.Spec, add func(id *ast.Ident, owner string)) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, id := range s.Names {
			add(id, "")
		}
	case *ast.TypeSpec:
		add(s.Name, "")
		ast.Inspect(s.Type, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok {
				for _, id := range field.Names {
					add(id, s.Name.Name)
				}
			}
			return true
		})
	}
}

// retiredInName returns the retired words of an identifier's last part.
func retiredInName(name string) (words []string) {
	for _, w := range camelWords(name[strings.LastIndex(name, ".")+1:]) {
		if retiredNames[w] != "" {
			words = append(words, w)
		}
	}
	return words
}

// camelWords splits an identifier at its capitals: OpenDoor, HTTPDoor.
func camelWords(name string) (words []string) {
	rs := []rune(name)
	begin := 0
	for i := 1; i <= len(rs); i++ {
		if i == len(rs) || unicode.IsUpper(rs[i]) && (!unicode.IsUpper(rs[i-1]) || i+1 < len(rs) && unicode.IsLower(rs[i+1])) {
			words = append(words, strings.ToLower(string(rs[begin:i])))
			begin = i
		}
	}
	return words
}
