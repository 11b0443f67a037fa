package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// TestTheRowsOfEveryQueryAreClosedWhateverHappens: no path of a function may leave rows open. A loop that reads all of them closes them by itself, so that
// a missing Close shows only where it is left early, and which test does that for each of them?
func TestTheRowsOfEveryQueryAreClosedWhateverHappens(t *testing.T) {
	t.Parallel()
	files := sources(t, ".")
	queries := 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		own := strings.HasSuffix(name, "_test.go") || path.Dir(name) == "store/sqlite" || path.Dir(name) == "store/storetest" // tests, and the driver itself
		if !own {
			left, n := leftOpen(t, name, files[name])
			queries += n
			for _, l := range left {
				t.Error(l)
			}
		}
	}
	if queries < 80 {
		t.Errorf("only %d queries were found", queries)
	}
}

func TestRowsThatMayStayOpenAreFound(t *testing.T) {
	t.Parallel()
	const check = "if err != nil { return err }\n"
	for what, c := range map[string]struct {
		body string
		left int
	}{
		"closed":                   {"rows, err := tx.Query(q)\n" + check + "defer rows.Close()\nfor rows.Next() {}", 0},
		"closed, without := there": {"var err error\nvar rows *sql.Rows\nif rows, err = tx.Query(q); err != nil { return err }\ndefer rows.Close()", 0},
		"never closed":             {"rows, err := tx.Query(q)\n" + check + "for rows.Next() {}\nreturn rows.Err()", 1},
		"closed at the end":        {"rows, err := tx.Query(q)\n" + check + "for rows.Next() { if enough { break } }\nreturn rows.Close()", 1},
		"closed too late":          {"rows, err := tx.Query(q)\n" + check + "if odd { return nil }\ndefer rows.Close()", 1},
		"others are closed":        {"rows, err := tx.Query(q)\n" + check + "defer others.Close()", 1},
		"in a function of its own": {"return read(func(tx Tx) error {\nrows, err := tx.Query(q)\n" + check + "return rows.Err()\n})", 1},
		"kept by nobody":           {"_, err := tx.Query(q)\nreturn err", 1},
		"handed on":                {"return tx.Query(q)", 0},
		"of a URL":                 {"q := r.URL.Query()", 0},
	} {
		if got, _ := leftOpen(t, "x.go", "package x\nfunc f() error {\n"+c.body+"\n}\n"); len(got) != c.left {
			t.Errorf("%s: found %q, want %d", what, got, c.left)
		}
	}
}

// leftOpen names the queries of a file whose rows may stay open, and counts all queries. Safe is what closes the rows by a defer as soon as there are some,
// and what hands them to its caller.
func leftOpen(t *testing.T, name, source string) (left []string, queries int) {
	t.Helper()
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, name, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	look := func(list []ast.Stmt) {
		for i, s := range list {
			rows, after := queried(s), 2
			if checked, ok := s.(*ast.IfStmt); ok {
				rows, after = queried(checked.Init), 1 // rows, err = …; err != nil
			}
			if rows == nil {
				continue
			}
			queries++
			if i+after >= len(list) || !closes(list[i+after], rows.Name) {
				left = append(left, fmt.Sprintf("%s: the statement after the check of the error is not defer %s.Close()", set.Position(s.Pos()), rows.Name))
			}
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			look(n.List)
		case *ast.CaseClause:
			look(n.Body)
		case *ast.CommClause:
			look(n.Body)
		}
		return true
	})
	return left, queries
}

// queried is the variable that gets the rows of a query, nil for another statement.
func queried(s ast.Stmt) *ast.Ident {
	a, ok := s.(*ast.AssignStmt)
	if !ok || len(a.Lhs) != 2 || len(a.Rhs) != 1 {
		return nil
	}
	call, ok := a.Rhs[0].(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return nil
	}
	of, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || of.Sel.Name != "Query" {
		return nil
	}
	rows, _ := a.Lhs[0].(*ast.Ident)
	return rows
}

func closes(s ast.Stmt, rows string) bool {
	d, ok := s.(*ast.DeferStmt)
	if !ok {
		return false
	}
	of, ok := d.Call.Fun.(*ast.SelectorExpr)
	if !ok || of.Sel.Name != "Close" {
		return false
	}
	x, ok := of.X.(*ast.Ident)
	return ok && x.Name == rows
}
