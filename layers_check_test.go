package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The rules, as exceptions name them.
const (
	ruleParse    = "files that parse"
	ruleFloor    = "floors"
	ruleLibrary  = "libraries"
	ruleStandard = "the standard library"
	ruleDriver   = "drivers"
	ruleSQL      = "SQL"
	rulePure     = "purity"
	ruleClock    = "replay"
	ruleDomain   = "domain packages"
	ruleCLI      = "the command line"
	ruleText     = "errors read from their text"
	ruleDeps     = "embedded collaborators"
	ruleDial     = "connections"
)

// violation is one thing that the house does not allow.
type violation struct{ rule, file, why string }

func (v violation) String() string { return v.file + " " + v.why }

// sources returns the Go files of the module by their path.
func sources(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != root {
			if n := d.Name(); n[0] == '.' || n[0] == '_' || n == "testdata" || n == "node_modules" {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil {
				return filepath.SkipDir // another module
			}
		}
		if d.IsDir() || filepath.Ext(p) != ".go" {
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		out[filepath.ToSlash(rel)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 100 {
		t.Fatalf("only %d Go files found", len(out))
	}
	return out
}

// goFile is a file as the rules see it.
type goFile struct {
	name, dir string
	test      bool
	imports   []string
	tree      *ast.File
	refused   map[string]bool // imports that were reported
	found     *[]violation
}

// refuse reports an import, once: the first rule that it breaks is reason enough.
func (f *goFile) refuse(rule, imported, format string, args ...any) {
	if !f.refused[imported] {
		f.refused[imported] = true
		f.report(rule, "imports "+imported+": "+format, args...)
	}
}

func (f *goFile) report(rule, format string, args ...any) {
	v := violation{rule, f.name, fmt.Sprintf(format, args...)}
	if !slices.Contains(*f.found, v) {
		*f.found = append(*f.found, v)
	}
}

// violations names everything in the files (path → source) that the house does not allow.
func violations(files map[string]string) []violation {
	var found []violation
	var parsed []*goFile
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := parse(name, files[name])
		if err != nil {
			found = append(found, violation{ruleParse, name, err.Error()})
			continue
		}
		f.found = &found
		parsed = append(parsed, f)
	}
	reached := reach(parsed)
	for _, f := range parsed {
		if _, known := floors[room(f.dir)]; !known {
			f.report(ruleFloor, "stands in %s, which has no floor", room(f.dir))
			continue
		}
		if root := cmp.Or(pureRoot(f), reached[f.dir]); root != "" && !f.test {
			f.checkPure(root)
		}
		for _, imported := range f.imports {
			f.checkImport(imported)
		}
		if f.test {
			continue
		}
		if under(f.dir, replayed) && !under(f.dir, testOnly) {
			f.checkReplayed()
		}
		f.checkSQL()
		f.checkErrorTexts()
		f.checkEmbedding()
		f.checkDialling()
	}
	return found
}

func parse(name, source string) (*goFile, error) {
	tree, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &goFile{name: name, dir: strings.TrimPrefix(path.Dir(name), "."), test: strings.HasSuffix(name, "_test.go"), tree: tree, refused: map[string]bool{}}
	for _, spec := range tree.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		f.imports = append(f.imports, imported)
	}
	return f, nil
}

func (f *goFile) checkImport(imported string) {
	if to, ours := ourPackage(imported); ours {
		f.checkArrow(to)
		return
	}
	if lib, ok := libraryOf(imported); !ok {
		f.refuse(ruleLibrary, imported, "the module is in no table, see docs/dependencies.md")
	} else if !lib.open(f) {
		rule := ruleLibrary
		if isStandard(imported) {
			rule = ruleStandard
		}
		f.refuse(rule, imported, "%s belongs in %s only", lib.what, strings.Join(lib.within, ", "))
	}
	if !f.test && under(f.dir, domain) && !under(f.dir, testOnly) && under(imported, outside) && !under(imported, harmless) {
		f.refuse(ruleDomain, imported, "%s knows neither files nor the network", room(f.dir))
	}
}

// checkArrow is about imports of our own packages.
func (f *goFile) checkArrow(to string) {
	if why := refusedArrow(f.dir, to, f.test); why != "" {
		f.refuse(ruleFloor, strings.TrimSuffix("weir/"+to, "/"), "%s", why)
		return
	}
	if !f.test && under(to, drivers) && !under(f.dir, drivers) && !under(f.dir, driverUsers) && !under(f.dir, testOnly) {
		f.refuse(ruleDriver, "weir/"+to, "only %s chooses a driver", strings.Join(driverUsers, ", "))
	}
	if !f.test && room(f.dir) == "cli" && !under(to, cliMay) {
		f.refuse(ruleCLI, "weir/"+to, "the command line knows %s only", strings.Join(cliMay, ", "))
	}
}

func refusedArrow(dir, imported string, test bool) string {
	from, to := room(dir), room(imported)
	floor, known := floors[to]
	switch {
	case !known:
		return to + " has no floor"
	case under(imported, testOnly) && !test && !under(dir, testOnly):
		return "only tests may"
	case under(dir, []string{"internal/test"}):
		return "" // it stands beside the house and builds worlds of any floor for the tests
	case !test && under(dir, foundations) && to != "model" && to != "internal" && !(under(imported, foundations) && under(imported, pure)):
		return "a foundation imports model and internal only"
	case from == to && under(imported, foundations):
		return ""
	case from == to && (test || from == "internal" || under(dir, []string{imported})):
		return "" // a test of the package, a helper, or a part of its parent
	case from == to:
		return "a part of a package imports its parent only, and a package no part of its own"
	case floor > floors[from]:
		return fmt.Sprintf("the arrow runs up, from floor %d to floor %d", floors[from], floor)
	case floor == floors[from]:
		return fmt.Sprintf("the arrow runs sideways on floor %d", floor)
	}
	return ""
}

func ourPackage(imported string) (dir string, ours bool) {
	if imported == "weir" {
		return "", true
	}
	return strings.CutPrefix(imported, "weir/")
}

func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// libraryOf returns the entry with the longest path. Packages of the standard library without one are open to all.
func libraryOf(imported string) (best library, ok bool) {
	table, ok := libraries, false
	if isStandard(imported) {
		table, ok, best.within = standard, true, everyTest
	}
	for _, l := range table {
		if under(imported, []string{l.path}) && len(l.path) > len(best.path) {
			best, ok = l, true
		}
	}
	return best, ok
}

// open reports whether a file may import the library.
func (l library) open(f *goFile) bool {
	return l.path == "" || under(f.dir, l.within) || f.test && (slices.Contains(l.tests, "") || under(f.dir, l.tests))
}

// reach returns the packages that pure ones import, directly or not, and the pure package for each.
func reach(files []*goFile) map[string]string {
	imports := map[string][]string{}
	out := map[string]string{}
	var walk func(dir, root string)
	walk = func(dir, root string) {
		for _, to := range imports[dir] {
			if out[to] == "" {
				out[to] = root
				walk(to, root)
			}
		}
	}
	for _, f := range files {
		if !f.test {
			imports[f.dir] = append(imports[f.dir], f.ours()...)
		}
	}
	for _, f := range files {
		root := pureRoot(f)
		if root == "" {
			continue
		}
		for _, to := range f.ours() {
			if out[to] == "" {
				out[to] = root
				walk(to, root)
			}
		}
	}
	return out
}

// ours returns what a file imports of the module.
func (f *goFile) ours() (dirs []string) {
	for _, imported := range f.imports {
		if dir, ok := ourPackage(imported); ok {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// pureRoot is the entry of pure that a file belongs to, "" for none.
func pureRoot(f *goFile) string {
	for _, p := range pure {
		if !f.test && (f.name == p || under(f.dir, []string{p})) {
			return p
		}
	}
	return ""
}

func (f *goFile) checkPure(root string) {
	for _, imported := range f.imports {
		if under(imported, impure) && !under(imported, harmless) {
			f.refuse(rulePure, imported, "%s does no I/O and knows no randomness", root)
		}
	}
	for _, used := range f.selected("time", clocks) {
		f.report(rulePure, "uses %s: %s knows no clock", used, root)
	}
	ast.Inspect(f.tree, func(n ast.Node) bool {
		if _, ok := n.(*ast.GoStmt); ok {
			f.report(rulePure, "starts a goroutine: %s does all in its caller's", root)
		}
		return true
	})
}

func (f *goFile) checkReplayed() {
	for _, imported := range f.imports {
		if under(imported, []string{"math/rand", "crypto/rand"}) {
			f.refuse(ruleClock, imported, "a replay would not repeat it")
		}
	}
	for _, used := range f.selected("time", []string{"Now", "Since", "Until"}) {
		f.report(ruleClock, "uses %s: a replay would not repeat it", used)
	}
}

// selected returns which of the names of a package a file uses, called or not.
func (f *goFile) selected(pkg string, names []string) (out []string) {
	local := f.localName(pkg)
	ast.Inspect(f.tree, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && x.Name == local && slices.Contains(names, s.Sel.Name) {
			out = append(out, pkg+"."+s.Sel.Name)
		}
		return true
	})
	return out
}

// localName is what a file calls a package that it imports.
func (f *goFile) localName(pkg string) string {
	for _, spec := range f.tree.Imports {
		if spec.Path.Value == strconv.Quote(pkg) && spec.Name != nil {
			return spec.Name.Name
		}
	}
	return path.Base(pkg)
}

// statement is the beginning of an SQL statement, or a part of one that is put together.
var statement = regexp.MustCompile(`(?s)^\s*(SELECT\s|INSERT\s+(OR\s+\w+\s+)?INTO\s|UPDATE\s+\S*\s*(SET\s|$)|DELETE\s+FROM\s|REPLACE\s+INTO\s|WITH\s+(RECURSIVE\s+)?\w+\s*(\(|AS\s)|(CREATE|DROP|ALTER)\s+(TABLE|INDEX|VIEW|TRIGGER)\s|PRAGMA\s|UNION\s+(ALL\s+)?SELECT\s)`)

func (f *goFile) checkSQL() {
	if under(f.dir, sqlWithin) || under(f.dir, testOnly) {
		return
	}
	ast.Inspect(f.tree, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil && statement.MatchString(text) {
				f.report(ruleSQL, "holds SQL: it belongs in %s only", strings.Join(sqlWithin, ", "))
			}
		}
		return true
	})
}

// readers are the functions of package strings that look for something in a text.
var readers = []string{"Contains", "ContainsAny", "ContainsRune", "Count", "Cut", "CutPrefix", "CutSuffix", "EqualFold", "Fields", "HasPrefix", "HasSuffix",
	"Index", "LastIndex", "Split", "SplitN", "TrimPrefix", "TrimSuffix"}

// checkErrorTexts looks for code that reads the text of an error: Field, Kind, Token, errors.Is and errors.AsType are there.
func (f *goFile) checkErrorTexts() {
	if under(f.dir, testOnly) {
		return
	}
	local := f.localName("strings")
	ast.Inspect(f.tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			s, ok := n.Fun.(*ast.SelectorExpr)
			if !ok || len(n.Args) == 0 {
				return true
			}
			if x, ok := s.X.(*ast.Ident); ok && x.Name == local && slices.Contains(readers, s.Sel.Name) && isErrorText(n.Args[0]) {
				f.report(ruleText, "reads the text of an error with strings.%s", s.Sel.Name)
			}
		case *ast.BinaryExpr:
			if (n.Op == token.EQL || n.Op == token.NEQ) && (isErrorCall(n.X) && isLiteral(n.Y) || isLiteral(n.X) && isErrorCall(n.Y)) {
				f.report(ruleText, "compares the text of an error")
			}
		}
		return true
	})
}

// isErrorText reports whether an expression is x.Error() or the Message of something that is named as an error.
func isErrorText(e ast.Expr) bool {
	if s, ok := e.(*ast.SelectorExpr); ok && s.Sel.Name == "Message" {
		x, ok := s.X.(*ast.Ident)
		return ok && slices.Contains([]string{"e", "err", "refusal", "refused"}, x.Name)
	}
	return isErrorCall(e)
}

func isErrorCall(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Error"
}

func isLiteral(e ast.Expr) bool {
	_, ok := e.(*ast.BasicLit)
	return ok
}

// checkEmbedding: the collaborators of an exported type are its own affair; embedded, they are fields of everybody.
func (f *goFile) checkEmbedding() {
	for _, decl := range f.tree.Decls {
		d, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range d.Specs {
			if t, ok := spec.(*ast.TypeSpec); ok && t.Name.IsExported() {
				f.checkEmbedded(t)
			}
		}
	}
}

func (f *goFile) checkEmbedded(t *ast.TypeSpec) {
	s, ok := t.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range s.Fields.List {
		if len(field.Names) == 0 {
			if id, ok := field.Type.(*ast.Ident); ok && id.IsExported() && strings.HasSuffix(id.Name, "Deps") {
				f.report(ruleDeps, "embeds %s in %s: its fields would be open to all", id.Name, t.Name.Name)
			}
		}
	}
}

// checkDialling looks for connections that are not made by the destination guard, and for clients that could make them.
func (f *goFile) checkDialling() {
	if under(f.dir, dialsWithin) || under(f.dir, testOnly) {
		return
	}
	for _, imported := range f.imports {
		if names, ok := dialling[imported]; ok && names == nil {
			f.refuse(ruleDial, imported, "%s", throughGuard)
		} else if ok {
			for _, used := range f.selected(imported, names) {
				f.report(ruleDial, "uses %s: %s", used, throughGuard)
			}
		}
		if o, ok := handedDialer[imported]; ok && len(f.selected(imported, []string{o.client})) > 0 && len(f.selected(imported, []string{o.dialer})) == 0 {
			f.report(ruleDial, "uses %s.%s without %s: %s", imported, o.client, o.dialer, throughGuard)
		}
	}
}

// stale names what the tables name and is not there, and modules in no table.
func stale(have, required map[string]bool) []string {
	var out []string
	check := func(table, name string, exists bool) {
		if !exists {
			out = append(out, fmt.Sprintf("%s names %s, which does not exist", table, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(floors)) {
		check("floors", name, have[name])
	}
	for table, names := range map[string][]string{"testOnly": testOnly, "drivers": drivers, "driverUsers": driverUsers, "sqlWithin": sqlWithin,
		"cliMay": cliMay, "pure": pure, "foundations": foundations, "replayed": replayed, "domain": domain} {
		for _, name := range names {
			check(table, name, have[name])
		}
	}
	for _, l := range slices.Concat(libraries, standard) {
		for _, name := range slices.Concat(l.within, l.tests) {
			check(l.path, name, have[name])
		}
	}
	for _, l := range libraries {
		check("libraries", l.path, slices.ContainsFunc(slices.Collect(maps.Keys(required)), func(module string) bool {
			return required[module] && (under(l.path, []string{module}) || under(module, []string{l.path}))
		}))
	}
	for _, module := range slices.Sorted(maps.Keys(required)) {
		known := slices.ContainsFunc(libraries, func(l library) bool { return under(l.path, []string{module}) || under(module, []string{l.path}) })
		if required[module] && !known {
			out = append(out, fmt.Sprintf("go.mod requires %s: the module is in no table", module))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// room is the top directory of a package.
func room(dir string) string {
	r, _, _ := strings.Cut(dir, "/")
	return r
}

// under reports whether p is one of these paths or lies under one; "" is above all.
func under(p string, paths []string) bool {
	return slices.ContainsFunc(paths, func(q string) bool { return q == "" || p == q || strings.HasPrefix(p, q+"/") })
}
