package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
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

// retiredNames are words that no exported identifier, flag or name in a struct tag contains.
var retiredNames = map[string]string{
	"door": "transport, listener", "doors": "transports, listeners", "gate": "Intake", "fate": "Outcome", "fates": "Outcomes",
	"heading": "Outcome", "headings": "Outcomes", "stranger": "unauthenticated", "strangers": "unauthenticated",
	"told": "notified, reported", "tell": "notify, report", "tells": "notifies, reports", "patience": "timeout", "curve": "DeltaOfDelta",
	"hole": "LogGap", "holes": "LogGaps", "obey": "apply", "obeyed": "effective", "hurry": "cancel", "lobby": "pending connections",
	"guest": "pending connection", "guests": "pending connections", "ailing": "Unhealthy", "keeper": "tracker", "onlooker": "watcher",
	"onlookers": "watchers", "station": "component", "stations": "components", "room": "package, component", "rooms": "packages, components",
	"anew": "again", "whoever": "the client", "nobody": "no client", "somebody": "a client", "most": "max", "least": "min",
}

// TestRetiredWordsStayOut reads what users and programmers read and fails on each word that docs/glossary.md retired.
func TestRetiredWordsStayOut(t *testing.T) {
	t.Parallel()
	found := map[string][]string{}
	for page, text := range proseOf(t) {
		found[page] = retiredIn(text)
	}
	for _, n := range declaredNames(t) {
		if n.name == "tag presence_gate" { // a key of the contract
			continue
		}
		if words := retiredInName(n.name); len(words) > 0 && !(slices.Equal(words, []string{"heading"}) && n.location) {
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
	for name, want := range map[string]bool{"ingest.OpenDoor": true, "ingest.GateConfig": true, "ingest.Aggregate": false, "app.LeastMemory": true,
		"a.Investigate": false, "flag --max-doors": true, "tag told_by": true, "flag --outdoor": false} {
		if got := retiredInName(name); len(got) > 0 != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	got := map[string]bool{}
	for _, n := range namesIn(t, "p.go", `package p
type Location struct { Latitude, Heading float64 `+"`json:\"heading\" gql:\"way\"`"+` }
type Seen struct { Outcome string `+"`json:\"heading,omitempty\"`"+` }
func Add(c *cobra.Command) { c.Flags().StringVarP(&x, "door", "d", "", ""); c.PersistentFlags().Bool("quiet", false, "") }`) {
		got[n.name] = n.location
	}
	want := map[string]bool{"p.Location": false, "p.Location.Latitude": true, "p.Location.Heading": true, "tag heading": false, "tag way": true,
		"p.Seen": false, "p.Seen.Outcome": false, "p.Add": false, "flag --door": false, "flag --quiet": false}
	if !maps.Equal(got, want) {
		t.Errorf("names %v, want %v", got, want)
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

// declaredName is a name that users or other packages see; location says that it belongs to a type with a latitude, whose
// heading is a direction.
type declaredName struct {
	pkg, name, at string
	location      bool
}

// declaredNames returns the exported identifiers of the program (package.Name, package.Type.Member), the names in the tags of
// its structs (JSON, GraphQL, YAML) and the flags of its commands.
func declaredNames(t *testing.T) []declaredName {
	t.Helper()
	var out []declaredName
	for path, text := range sources(t, ".") {
		if !strings.HasSuffix(path, "_test.go") {
			out = append(out, namesIn(t, path, text)...)
		}
	}
	slices.SortFunc(out, func(a, b declaredName) int { return strings.Compare(a.at, b.at) })
	return out
}

func namesIn(t *testing.T, path, text string) (out []declaredName) {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	add := func(name string, at token.Pos, location bool) {
		out = append(out, declaredName{filepath.Dir(path), name, files.Position(at).String(), location})
	}
	exported := func(id *ast.Ident, owner string, location bool) {
		if id.IsExported() {
			add(strings.ReplaceAll(f.Name.Name+"."+owner+"."+id.Name, "..", "."), id.Pos(), location)
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			exported(d.Name, receiverOf(d), false)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				namesOf(s, exported)
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructType:
			location := hasLatitude(n)
			for _, field := range n.Fields.List {
				for _, name := range tagNames(field.Tag) {
					add("tag "+name, field.Pos(), location)
				}
			}
		case *ast.CallExpr:
			if name := flagName(n); name != "" {
				add("flag --"+name, n.Pos(), false)
			}
		}
		return true
	})
	return out
}

// tagNames returns the names that a struct tag gives a field.
func tagNames(tag *ast.BasicLit) (names []string) {
	if tag == nil {
		return nil
	}
	text, _ := strconv.Unquote(tag.Value)
	for _, key := range []string{"json", "gql", "yaml"} {
		if name, _, _ := strings.Cut(reflect.StructTag(text).Get(key), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

var flagMethod = regexp.MustCompile(`^(?:Bool|Duration|Int|Int64|String|StringArray|StringSlice|Uint|Uint64|Float64)(?:Var)?P?$`)

// flagName returns the name of the flag that a call declares: the first string among its arguments.
func flagName(call *ast.CallExpr) string {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !flagMethod.MatchString(method.Sel.Name) {
		return ""
	}
	for _, arg := range call.Args {
		if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			name, _ := strconv.Unquote(lit.Value)
			return name
		}
	}
	return ""
}

func hasLatitude(s *ast.StructType) bool {
	return slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool {
		return slices.ContainsFunc(f.Names, func(id *ast.Ident) bool { return id.Name == "Latitude" })
	})
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
func namesOf(s ast.Spec, add func(id *ast.Ident, owner string, location bool)) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, id := range s.Names {
			add(id, "", false)
		}
	case *ast.TypeSpec:
		add(s.Name, "", false)
		fields, ok := s.Type.(*ast.StructType)
		location := ok && hasLatitude(fields)
		ast.Inspect(s.Type, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok {
				for _, id := range field.Names {
					add(id, s.Name.Name, location)
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

// camelWords splits a name at its capitals, hyphens and underscores: OpenDoor, HTTPDoor, max-doors.
func camelWords(name string) (words []string) {
	if parts := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("-_ ", r) }); len(parts) > 1 || len(parts) == 1 && parts[0] != name {
		for _, part := range parts {
			words = append(words, camelWords(part)...)
		}
		return words
	}
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
