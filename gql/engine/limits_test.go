package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/test/fixture"
)

func nested(depth int) string {
	return `{ device(token: "d1") ` + strings.Repeat("{ parent ", depth-2) + "{ id }" + strings.Repeat(" }", depth-2) + " }"
}

func testAliases(n int, field string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "a%d: %s ", i, field)
	}
	return b.String()
}

func testTokens(n int) string { return "[" + strings.Repeat(`"x",`, n) + "]" }

// Every limit: a request that just fits, and one that does not.
func TestEachLimitHoldsAtItsEdge(t *testing.T) {
	w := newWorld(t, Config{})
	selections := 2000
	page := func(n int) string { return fmt.Sprintf(`devices(criteria: {pageNumber: 1, pageSize: %d})`, n) }
	for _, c := range []struct{ name, fits, over, code, word string }{
		{"query length", "{ ping }" + strings.Repeat(" ", 100_000-8), "{ ping }" + strings.Repeat(" ", 100_000-7), "LIMIT_EXCEEDED", "query length"},
		{"depth", nested(15), nested(16), "LIMIT_EXCEEDED", "depth"},
		{"depth in fragments", `{ device(token: "d1") { ...A } } fragment A on Device { parent { parent { parent { parent { parent { parent { parent { parent { parent { parent { parent { parent { parent { id } } } } } } } } } } } } } }`,
			`{ device(token: "d1") { ...A } } fragment A on Device { parent { parent { parent { parent { parent { parent { parent { parent { parent { parent { parent { parent { parent { parent { id } } } } } } } } } } } } } } }`,
			"LIMIT_EXCEEDED", "depth"},
		{"query roots", "{" + testAliases(20, "ping") + "}", "{" + testAliases(21, "ping") + "}", "TOO_MANY_ROOT_FIELDS", ""},
		{"query roots by response key", "{" + testAliases(20, "ping") + testAliases(20, "ping") + "}",
			"{ ...A ... on Query {" + testAliases(20, "ping") + "} } fragment A on Query { b: ping }", "TOO_MANY_ROOT_FIELDS", ""},
		{"mutation roots", "mutation {" + testAliases(5, `touch(token: "x") { id }`) + "}", "mutation {" + testAliases(6, `touch(token: "x") { id }`) + "}",
			"TOO_MANY_ROOT_FIELDS", ""},
		{"selections", `{ device(token: "d1") {` + testAliases(selections-1, "id") + `} }`, `{ device(token: "d1") {` + testAliases(selections, "id") + `} }`,
			"LIMIT_EXCEEDED", "selections"},
		{"selections spread", `{ device(token: "d1") { ...F } } fragment F on Device {` + testAliases(selections-2, "id") + `}`,
			`{ a: device(token: "d1") { ...F } b: device(token: "d1") { ...F } } fragment F on Device {` + testAliases(selections/2, "id") + `}`,
			"LIMIT_EXCEEDED", "selections"},
		{"cost of pages", "{" + page(1000) + " { results { kind { devices(pageSize: 496) { id } } } } }",
			"{" + page(1000) + " { results { kind { devices(pageSize: 500) { id } } } } }", "LIMIT_EXCEEDED", "cost"},
		{"cost of page sizes left out", `{ devicesByToken(tokens: ["x"]) { kind { devices { kind { devices { id } } } } } }`,
			"{" + page(0) + " { results { kind { devices { kind { devices { id } } } } } } }", "LIMIT_EXCEEDED", "cost"},
		{"list argument", `{ devicesByToken(tokens: ` + testTokens(1000) + `) { id } }`, `{ devicesByToken(tokens: ` + testTokens(1001) + `) { id } }`,
			"LIMIT_EXCEEDED", "list argument"},
		{"list argument with a limit of its own", `{ bulk(tokens: ` + testTokens(1500) + `) }`, `{ bulk(tokens: ` + testTokens(1501) + `) }`,
			"LIMIT_EXCEEDED", "list argument"},
		{"credential checks", `mutation { login(email: "a", password: "b") }`,
			`mutation { a: login(email: "a", password: "b") ...F } fragment F on Mutation { b: login(email: "a", password: "c") }`,
			"TOO_MANY_CREDENTIAL_CHECKS", ""},
		{"credential checks of queries", `{ check(password: "a") ping }`, `{ check(password: "a") b: check(password: "b") }`, "TOO_MANY_CREDENTIAL_CHECKS", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := w.do(c.fits, ``); !strings.HasPrefix(got, `{"data":`) || strings.Contains(got, `"errors"`) {
				t.Errorf("just fits: %.300s", got)
			}
			w.calls, w.touched = 0, nil
			got := w.do(c.over, ``)
			if !strings.HasPrefix(got, `{"errors":`) || !strings.Contains(got, `"code":"`+c.code+`"`) || !strings.Contains(got, c.word) {
				t.Errorf("over: %.300s", got)
			}
			if w.calls != 0 || w.touched != nil {
				t.Error("resolvers ran")
			}
		})
	}
}

func TestLimitsHoldForEveryOperationOfADocumentAndForListsInVariables(t *testing.T) {
	w := newWorld(t, Config{})
	query := `query A { ping } query B {` + testAliases(21, "ping") + `}`
	resp := w.engine.Execute(t.Context(), Request{Query: query, OperationName: "A"})
	if got := w.json(resp); !strings.Contains(got, "TOO_MANY_ROOT_FIELDS") {
		t.Error(got)
	}
	got := w.do(`query($t: [String!]!) { devicesByToken(tokens: $t) { id } }`, `{"t":[`+strings.Repeat(`"x",`, 1000)+`"x"]}`)
	if !strings.Contains(got, `the list \"tokens\" has 1001 elements`) {
		t.Error(got)
	}
	got = w.do(`query($c: Criteria!) { devices(criteria: $c) { total } }`,
		`{"c":{"pageNumber":1,"pageSize":1,"states":[`+strings.Repeat(`"ACTIVE",`, 1000)+`"ACTIVE"]}}`)
	if !strings.Contains(got, `the list \"criteria.states\" has 1001 elements`) {
		t.Error(got)
	}
}

func TestHostileDocumentsAreRefusedQuickly(t *testing.T) {
	w := newWorld(t, Config{})
	var doubling strings.Builder
	doubling.WriteString("{ device(token: \"d1\") { ...F0 } }")
	for i := range 60 {
		fmt.Fprintf(&doubling, " fragment F%d on Device { ...F%d ...F%d }", i, i+1, i+1)
	}
	doubling.WriteString(" fragment F60 on Device { id }")
	same := `{ device(token: "d1") {` + strings.Repeat(`note(prefix: "a") `, 1990) + `} }`
	for name, query := range map[string]string{
		"fragments that double":   doubling.String(),
		"fragments in a ring":     `{ device(token: "d1") { ...A } } fragment A on Device { parent { ...B } } fragment B on Device { parent { ...A } }`,
		"deep brackets":           "{ echo(lists: " + strings.Repeat("[", 50_000),
		"deep selections":         strings.Repeat("{a", 40_000),
		"many operations":         strings.Repeat("query a{ping}", 7_000),
		"many fragments":          "{ping}" + strings.Repeat("fragment a on Query{ping}", 3_900),
		"the same field again":    same,
		"many unknown fields":     `{ device(token: "d1") {` + testAliases(1990, "foo") + `} }`,
		"operations that share":   `fragment F on Query {` + strings.Repeat("device(token: \"d1\") { id } ", 990) + `}` + strings.Repeat("query a{...F}", 10),
		"long unknown name":       `{ echo(where: {lat: 1, ` + strings.Repeat("x", 90_000) + `: 1}) }`,
		"one variable many times": `query($x: Int) { device(token: "d1") {` + strings.Repeat("id @skip(if: $x) ", 1990) + `} }`,
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			took := fixture.CPU(t, func() { got = w.do(query, ``) })
			t.Log(took)
			if took > 2*time.Second { // a few milliseconds; the processor may be slow
				t.Errorf("it took %v of a processor", took)
			}
			if !strings.HasPrefix(got, `{"errors":`) || len(got) > 100_000 {
				t.Errorf("%.200s", got)
			}
		})
	}
}

func TestAnAnswerOverTheLimitIsNotSent(t *testing.T) {
	w := newWorld(t, Config{Limits: Limits{ResponseBytes: 10_000}})
	if got := w.do(`{ large(n: 9000) }`, ``); len(got) < 9000 || strings.Contains(got, "errors") {
		t.Errorf("%.100s", got)
	}
	for _, query := range []string{`{ large(n: 10001) }`, `{` + testAliases(12, "large(n: 900)") + `}`,
		`{ devicesByToken(tokens: ` + testTokens(1000) + `) { longkeyforeachofthem: id } }`} {
		got := w.do(query, ``)
		if !strings.Contains(got, "LIMIT_EXCEEDED") || !strings.Contains(got, "response") || len(got) > 300 || strings.Contains(got, "path") {
			t.Errorf("%.200s", got)
		}
	}
}

func TestAllAnswersTogetherAreBounded(t *testing.T) {
	w := newWorld(t, Config{Limits: Limits{ResponseBytes: 10_000, ResultBytes: 10_000}})
	r := w.runtime.results
	if got := w.do(`{ large(n: 9000) }`, ``); len(got) < 9000 || r.used.Load() != 0 {
		t.Errorf("%.100s; %d bytes are held when it is written", got, r.used.Load())
	}
	if !r.add(5000) { // somebody takes his time to read his answer
		t.Fatal("no room for the first")
	}
	if got := w.do(`{ large(n: 9000) }`, ``); !strings.Contains(got, "UNAVAILABLE") || len(got) > 300 {
		t.Errorf("%.200s", got)
	}
	if n := testutil.ToFloat64(r.refused); n != 1 || r.used.Load() != 5000 {
		t.Errorf("%v are counted, %d bytes are held", n, r.used.Load())
	}
	r.give(5000)
	if got := w.do(`{ large(n: 9000) }`, ``); len(got) < 9000 {
		t.Errorf("with room again: %.200s", got)
	}
}

// A caller in the process has no way to give a response back: Execute does so before it returns. The transports hold
// theirs until they have written it.
func TestAnExecutedResponseTakesNoRoomAmongTheResults(t *testing.T) {
	w := newWorld(t, Config{})
	used := &w.runtime.results.used
	for range 3 {
		resp := w.engine.Execute(t.Context(), Request{Query: `{ large(n: 9000) }`})
		if got := w.json(resp); len(got) < 9000 || used.Load() != 0 {
			t.Errorf("%.100s; %d bytes are held after Execute", got, used.Load())
		}
	}
	resp := w.engine.Respond(t.Context(), Request{Query: `{ large(n: 9000) }`})
	if used.Load() < 9000 {
		t.Errorf("%d bytes are held until the response is written", used.Load())
	}
	if resp.Done(); used.Load() != 0 {
		t.Errorf("%d bytes are held after it was written", used.Load())
	}
}

func TestErrorsOfOneAnswerAreBounded(t *testing.T) {
	w := newWorld(t, Config{})
	got := w.do(`{ devicesByToken(tokens: `+testTokens(1000)+`) { broken } }`, ``)
	if n := strings.Count(got, `"internal error"`); n != maxShownErrors || !strings.Contains(got, `"900 more errors are not shown"`) {
		t.Errorf("%d errors: %.300s", n, got)
	}
	if n := strings.Count(w.log.String(), "level=ERROR"); n != maxLoggedErrors {
		t.Errorf("%d log lines", n)
	}
	if n := testutil.ToFloat64(w.runtime.metrics.internal.WithLabelValues("test")); n != 1000 {
		t.Errorf("counted %v", n)
	}
}

// A subscription has exactly one root field, by response key (GraphQL, section 5.2.4.1): aliases of one field are several.
func TestASubscriptionSelectsOneRootField(t *testing.T) {
	w := newWorld(t, Config{})
	for query, refused := range map[string]bool{
		`subscription { counts }`:                                               false,
		`subscription { counts counts }`:                                        false,
		`subscription { counts refused }`:                                       true,
		`subscription { a: counts b: counts }`:                                  true,
		`subscription { counts again: counts }`:                                 true,
		`subscription { counts ...F } fragment F on Subscription { b: counts }`: true,
		`subscription { counts ... on Subscription { b: counts } }`:             true,
	} {
		_, resp := w.engine.Prepare(Request{Query: query})
		if got := resp != nil; got != refused {
			t.Errorf("%s: refused %v", query, got)
		}
		if refused && !strings.Contains(w.json(resp), "exactly one root field") {
			t.Errorf("%s: %s", query, w.json(resp))
		}
	}
}
