package operate

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestEachVerbHasANameOfItsOwn: the socket serves each under its name.
func TestEachVerbHasANameOfItsOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, v := range verbs {
		if v.path() == "" || seen[v.path()] {
			t.Errorf("%T: the name %q is empty or taken", v, v.path())
		}
		seen[v.path()] = true
	}
}

// TestEachDeclaredVerbIsServed reads the sources: a verb that is declared and missing from the list of those that the socket serves would
// be answered only where nothing runs.
func TestEachDeclaredVerbIsServed(t *testing.T) {
	t.Parallel()
	served := map[string]bool{}
	for _, v := range verbs {
		served[v.path()] = true
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if verb, ok := verbOf(n); ok {
				if declared++; !served[verb] {
					t.Errorf("%s declares the verb %q, which the list of those that are served does not have", name, verb)
				}
			}
			return true
		})
	}
	if declared != len(verbs) {
		t.Errorf("%d verbs are declared, %d are served", declared, len(verbs))
	}
}

// verbOf returns the name of a verb that a literal declares.
func verbOf(n ast.Node) (name string, ok bool) {
	literal, ok := n.(*ast.CompositeLit)
	if !ok {
		return "", false
	}
	typ := literal.Type
	if generic, ok := typ.(*ast.IndexListExpr); ok {
		typ = generic.X
	}
	if id, ok := typ.(*ast.Ident); !ok || !strings.HasSuffix(id.Name, "Verb") {
		return "", false
	}
	for _, e := range literal.Elts {
		field, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue // the verb that is extended, which is visited by itself
		}
		if key, ok := field.Key.(*ast.Ident); ok && key.Name == "Name" {
			if text, ok := field.Value.(*ast.BasicLit); ok {
				name, err := strconv.Unquote(text.Value)
				return name, err == nil
			}
		}
	}
	return "", false
}

func TestAVerbIsAnsweredAtRestOnlyWhereItSaysSo(t *testing.T) {
	t.Parallel()
	d := &Directory{}
	needsRunning := Verb[None, int]{running: func(*Operator, context.Context, None) (int, error) { return 1, nil }}
	if _, err := needsRunning.Ask(t.Context(), d, None{}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("got %v", err)
	}
	either := Verb[None, int]{running: needsRunning.running, atRest: func(*Directory, context.Context, None) (int, error) { return 2, nil }}
	if n, err := either.Ask(t.Context(), d, None{}); n != 2 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	d.entities = &Entities{}
	entities := Verb[None, int]{entities: func(e *Entities, _ context.Context, _ None) (int, error) {
		if e != d.entities {
			t.Error("asked of other entities")
		}
		return 3, nil
	}}
	if n, err := entities.Ask(t.Context(), d, None{}); n != 3 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}
