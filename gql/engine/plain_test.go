package engine

import (
	"context"
	"strings"
	"testing"
)

// Each query is answered as it is, and by the executor alone: the same bytes, the same room taken.
func TestPlainSelectionsAreAnsweredAsTheExecutorDoes(t *testing.T) {
	t.Parallel()
	const page = `devices(criteria: {pageNumber: 1, pageSize: 3})`
	for _, c := range []struct {
		name, query string
		plain       bool // is tried
		kept        bool // and needs no executor
	}{
		{"leaves of an object", `{ device(token: "d1") { id token name createdAt deletedAt state tags score count old } }`, true, true},
		{"a page", `{ ` + page + ` { total results { id token tags } } }`, true, true},
		{"two roots with aliases and a name of the type", `{ b: ` + page + ` { x: total __typename } a: ping c: free }`, true, true},
		{"fragments of the type itself", `{ ...R } fragment R on Query { all { ...D ... on Device { state } ... { score } } } fragment D on Device { id }`, true, true},
		{"null object", `{ device(token: "") { id } }`, true, true},
		{"an empty list", `{ devices(criteria: {pageNumber: 1, pageSize: 0}) { results { id } } }`, true, true},
		{"a variable", `query($t: String! = "d3") { device(token: $t) { token } }`, true, true},
		{"a null where none may be", `{ mustFail }`, true, false},
		{"an error beside a value", `{ ping fails(how: "wrapped") }`, true, false},
		{"a panic", `{ fails(how: "panic") ` + page + ` { total } }`, true, false},
		{"a value that comes later", `{ fails(how: "thunk") ping }`, true, false},
		{"a value that comes later still", `{ fails(how: "twice") ping }`, true, true},
		{"a value of another type", `{ fails(how: "type") }`, true, false},
		{"a resolver below", `{ device(token: "d1") { token kind { token } } }`, false, false},
		{"a resolver that panics", `{ device(token: "d1") { token broken } }`, false, false},
		{"an interface", `{ entities { token } }`, false, false},
		{"a union", `{ anything { ... on Kind { token } } }`, false, false},
		{"a condition", `query($w: Boolean! = false) { device(token: "d1") { token name @include(if: $w) } }`, false, false},
		{"a field twice", `{ device(token: "d1") { token } device(token: "d1") { id } }`, false, false},
		{"the root's type", `{ __typename ping }`, false, false},
		{"a mutation", `mutation { touch(token: "d1") { token } }`, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, alone := newWorld(t, Config{}), newWorld(t, Config{})
			d, errs := alone.engine.document(c.query)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			step := &d.operations[0].steps[0]
			if got := step.plain != nil; got != c.plain {
				t.Fatalf("plain: %v", got)
			}
			step.plain = nil
			got, want := w.run(c.query), alone.run(c.query)
			if w.json(got) != alone.json(want) {
				t.Errorf("%s\nthe executor alone: %s", w.json(got), alone.json(want))
			}
			if got.held != want.held || w.runtime.results.used.Load() != alone.runtime.results.used.Load() {
				t.Errorf("%d of %d bytes held, %d of %d by the executor alone", got.held, w.runtime.results.used.Load(), want.held, alone.runtime.results.used.Load())
			}
			if w.calls != alone.calls {
				t.Errorf("%d calls, %d by the executor alone", w.calls, alone.calls)
			}
			if kept := holdsEncoded(got); kept != c.kept {
				t.Errorf("needs no executor: %v", kept)
			}
		})
	}
}

func (w *world) run(query string) *Response {
	return w.engine.Respond(context.Background(), Request{Query: query})
}

func holdsEncoded(r *Response) bool {
	for _, v := range r.data {
		if _, ok := v.(encoded); ok {
			return true
		}
	}
	return false
}

// The limits hold for what the executor does not see, and what is refused takes no room.
func TestAPlainAnswerIsBoundedToo(t *testing.T) {
	t.Parallel()
	const query = `{ devices(criteria: {pageNumber: 1, pageSize: 1000}) { results { token name tags } } }`
	for _, c := range []struct {
		limits Limits
		code   string
	}{{Limits{ResponseBytes: 20_000}, "LIMIT_EXCEEDED"}, {Limits{ResultBytes: 20_000}, "UNAVAILABLE"}} {
		w := newWorld(t, Config{Limits: c.limits})
		if got := w.do(query, ""); !strings.Contains(got, c.code) || strings.Contains(got, "name-1") {
			t.Errorf("%+v: %.200s", c.limits, got)
		}
		if n := w.runtime.results.used.Load(); n != 0 {
			t.Errorf("%+v: %d bytes are still held", c.limits, n)
		}
	}
}
