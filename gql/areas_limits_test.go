package gql_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vektah/gqlparser/v2/ast"

	"weir/gql"
	"weir/gql/engine"
	"weir/internal/test/draws"
	"weir/model"
)

// attack is a document that is refused before anything of it runs.
type attack struct {
	what, query string
	code        model.Code
	text        string // in the message
}

// aliased repeats a field under other names.
func aliased(n int, field string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, " a%d: %s", i, field)
	}
	return b.String()
}

// pageSize and listOf find what bounds the rows that arguments ask for.
var (
	pageSize = regexp.MustCompile(`pageSize: \d+`)
	listOf   = regexp.MustCompile(`\["[^"]*"\]`)
)

// attacks are the documents about one operation of an area: many roots, many selections, deep ones, fragments that double, and as
// many rows as may be asked for.
func (w *areasWorld) attacks(area string, op walkOp) (all []attack) {
	typ, args := w.result(area, op), op.filledArgs()
	def := w.schemas[area].Types[typ]
	leaf := def.Kind == ast.Scalar || def.Kind == ast.Enum
	field, below := op.name+args, ""
	if !leaf {
		below = " { __typename }"
	}
	roots, code := map[string]int{"query": 21, "mutation": 6, "subscription": 2}[op.kind], model.CodeTooManyRootFields
	if op.kind == "subscription" {
		code = ""
	}
	add := func(what, query string, code model.Code, text string) {
		all = append(all, attack{what, op.kind + " {" + query, code, text})
	}
	add("aliases", aliased(roots, field+below)+" }", code, "root field")
	add("aliases in a fragment", " ...F } fragment F on "+strings.ToUpper(op.kind[:1])+op.kind[1:]+" {"+aliased(roots, field+below)+" }", code, "root field")
	add("nesting", strings.Repeat(" "+op.name+" {", 16)+" __typename"+strings.Repeat(" }", 17), model.CodeLimitExceeded, "levels deep")
	add("selections", " "+field+" {"+aliased(2000, "__typename")+" } }", model.CodeLimitExceeded, "more than 2000 fields")
	add("one key again and again", " "+field+" {"+strings.Repeat(" __typename", 101)+" } }", model.CodeLimitExceeded, "more than 100 times")
	var doubling strings.Builder
	doubling.WriteString(" " + field + " { ...F0 } }")
	for i := range 30 {
		doubling.WriteString(fmt.Sprintf(" fragment F%d on %s { ...F%d ...F%d }", i, typ, i+1, i+1))
	}
	add("fragments that double", doubling.String()+" fragment F30 on "+typ+" { __typename }", model.CodeLimitExceeded, "more than 2000 fields")
	if op.name == "login" {
		add("guesses", " a: "+field+below+" b: "+field+below+" }", model.CodeTooManyCredentials, "check credentials")
	}
	if rows := w.manyRows(area, op, args); rows != "" && op.kind == "query" {
		add("rows", aliased(20, rows)+" }", model.CodeLimitExceeded, "cost")
	}
	return all
}

// manyRows asks for a thousand rows with thirty fields each, "" where an operation gives no list.
func (w *areasWorld) manyRows(area string, op walkOp, args string) string {
	typ := w.schemas[area].Types[w.result(area, op)]
	many := aliased(30, "__typename")
	switch {
	case pageSize.MatchString(args) && typ.Fields.ForName("results") != nil:
		return op.name + pageSize.ReplaceAllString(args, "pageSize: 1000") + " { results {" + many + " } }"
	case listOf.MatchString(args) && typ.Kind != ast.Scalar:
		return op.name + listOf.ReplaceAllString(args, "["+strings.Repeat(`"1" `, 1000)+"]") + " {" + many + " }"
	}
	return ""
}

// In every area, whatever operation a document repeats, nests or asks too many rows of: it is refused before a resolver, a
// statement or a password hash.
func TestEveryAreaRefusesADocumentOverItsLimits(t *testing.T) {
	draws.NeedsAll(t)
	t.Parallel()
	w := newAreasWorld(t, gql.Limits{})
	w.furnish()
	rows := map[string]bool{} // areas of which a list was refused for its cost
	for _, area := range slices.Sorted(maps.Keys(walkTable)) {
		for _, op := range walkTable[area] {
			for _, a := range w.attacks(area, op) {
				before := w.work.Load()
				resp := w.run(t.Context(), area, a.query, nil)
				if len(resp.Errors) != 1 || resp.Errors[0].Code() != a.code || !strings.Contains(resp.Errors[0].Message, a.text) || !resp.Refused() {
					t.Errorf("%s %s, %s: %v, want %s with %q\n%.300s", area, op.name, a.what, resp.Errors, a.code, a.text, a.query)
				}
				if n := w.work.Load() - before; n != 0 {
					t.Errorf("%s %s, %s: %d statements before the refusal", area, op.name, a.what, n)
				}
				rows[area] = rows[area] || a.what == "rows"
			}
		}
	}
	for _, area := range []string{"device-management", "dashboard-management", "event-management", "device-state", "event-processing", "user-management-admin"} {
		if !rows[area] {
			t.Errorf("%s: no list was asked for too many rows", area)
		}
	}
}

// An answer over the limit is not sent, and a document that takes too long ends, in the areas whose rows are large or many.
func TestAnswersAndTimeAreLimitedInTheAreas(t *testing.T) {
	t.Parallel()
	small := newAreasWorld(t, gql.Limits{Limits: engine.Limits{ResponseBytes: 20_000}})
	small.furnish()
	long := strings.Repeat("x", 9000)
	if resp := small.run(t.Context(), "dashboard-management", fmt.Sprintf(`mutation { createDashboard(request: {token: "large", definition: %q}) { token } }`, `{"a":"`+long+`"}`), nil); len(resp.Errors) > 0 {
		t.Fatal(resp.Errors[0])
	}
	for area, query := range map[string]string{
		"event-sources":         `{ ` + strings.Repeat("a", 11_000) + `: _empty ` + strings.Repeat("b", 11_000) + `: _empty }`, // of keys alone
		"dashboard-management":  `{` + aliased(3, `dashboard(token: "large") { definition }`) + ` }`,
		"device-management":     `{ auditEvents(criteria: {pageNumber: 1, pageSize: 1000}) { results {` + aliased(20, "occurredTime") + ` } } }`,
		"user-management-admin": `{ governanceDimensions {` + aliased(300, "__typename") + ` } }`,
	} {
		written, err := small.run(t.Context(), area, query, nil).MarshalJSON()
		if got := string(written); err != nil || len(got) > 300 || !strings.Contains(got, "LIMIT_EXCEEDED") || !strings.Contains(got, "response") {
			t.Errorf("%s: %v %d bytes: %.300s", area, err, len(got), got)
		}
	}
	if resp := small.run(t.Context(), "dashboard-management", `{ dashboard(token: "large") { definition } }`, nil); len(resp.Errors) > 0 {
		t.Errorf("an answer below the limit: %v", resp.Errors)
	}
	hasty := newAreasWorld(t, gql.Limits{Limits: engine.Limits{Time: time.Nanosecond}})
	for _, q := range [][2]string{
		{"device-management", `{ devices(criteria: {pageNumber: 1, pageSize: 10}) { results { token } } }`},
		{"device-management", `{ auditEvents(criteria: {pageNumber: 1, pageSize: 10}) { results { id } } }`},
		{"dashboard-management", `{ dashboards(criteria: {pageNumber: 1, pageSize: 10}) { results { token } } }`},
		{"device-state", `{ deviceStates(criteria: {pageNumber: 1, pageSize: 10}) { results { deviceToken } } }`},
		{"user-management", `{ tenant { token } }`},
		{"user-management-admin", `{ tenants { token } }`},
		{"user-management-settings", `{ settings { key } }`},
	} {
		resp := hasty.run(t.Context(), q[0], q[1], nil)
		if len(resp.Errors) != 1 || resp.Errors[0].Code() != model.CodeLimitExceeded || !strings.Contains(resp.Errors[0].Message, "time") {
			t.Errorf("%s %s: %v", q[0], q[1], resp.Errors)
		}
	}
}
