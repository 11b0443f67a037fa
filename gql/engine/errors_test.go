package engine

import (
	"strings"
	"testing"
)

func TestOnlyRefusalsOfTheDomainAreShown(t *testing.T) {
	w := newWorld(t, Config{})
	internal := `{"data":{"fails":null},"errors":[{"message":"internal error","locations":[{"line":1,"column":3}],"path":["fails"],"extensions":{"requestId":"req-1"}}]}`
	for _, c := range []struct{ how, want, logged string }{
		{"plain", internal, "disk /dev/secret is full"},
		{"panic", internal, "dsn=postgres://secret"},
		{"thunk", internal, "late secret"},
		{"latepanic", internal, "late secret"},
		{"type", internal, "is no String"},
		{"wrapped", `{"data":{"fails":null},"errors":[{"message":"conflict: token of a device must be unique, \"d1\" is in use","locations":[{"line":1,"column":3}],` +
			`"path":["fails"],"extensions":{"code":"CONFLICT","reason":"NOT_UNIQUE"}}]}`, ""},
		{"refused", `{"data":{"fails":null},"errors":[{"message":"wait","locations":[{"line":1,"column":3}],"path":["fails"],` +
			`"extensions":{"code":"THROTTLED","retryAfterSeconds":4}}]}`, ""},
	} {
		before := w.log.String()
		got := w.do(`{ fails(how: "`+c.how+`") }`, ``)
		if got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.how, got, c.want)
		}
		logged := strings.TrimPrefix(w.log.String(), before)
		if (c.logged == "") != (logged == "") || !strings.Contains(logged, c.logged) {
			t.Errorf("%s: logged %q", c.how, logged)
		}
		if c.logged != "" && (!strings.Contains(logged, "request=req-1") || !strings.Contains(logged, "area=test")) {
			t.Errorf("%s: logged %q without request and area", c.how, logged)
		}
		if strings.Contains(c.how, "panic") && !strings.Contains(logged, "world_test.go") {
			t.Errorf("%s: logged without a stack", c.how)
		}
	}
}

func TestErrorsStandAtTheirPathInDocumentOrder(t *testing.T) {
	w := newWorld(t, Config{})
	got := w.do(`{ b: all { x: broken } ping a: all { id broken } }`, ``)
	var at []string
	for part := range strings.SplitSeq(got, `"path":`) {
		if end := strings.IndexByte(part, ']'); strings.HasPrefix(part, "[") {
			at = append(at, part[:end+1])
		}
	}
	if want := `["b",0,"x"] ["b",1,"x"] ["b",2,"x"] ["a",0,"broken"] ["a",1,"broken"] ["a",2,"broken"]`; strings.Join(at, " ") != want {
		t.Errorf("paths %v", at)
	}
	if !strings.Contains(got, `"a":[{"id":"1","broken":null},`) {
		t.Error(got)
	}
}

func TestANullWhereNoneMayBeIsAnInternalError(t *testing.T) {
	w := newWorld(t, Config{})
	got := w.do(`{ ping mustFail }`, ``)
	if want := `{"data":null,"errors":[{"message":"internal error","locations":[{"line":1,"column":8}],"path":["mustFail"],"extensions":{"requestId":"req-1"}}]}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !strings.Contains(w.log.String(), "Cannot return null for non-nullable field Query.mustFail") {
		t.Error(w.log.String())
	}
}

func TestOperationsAreChosenByName(t *testing.T) {
	w := newWorld(t, Config{})
	for name, want := range map[string]string{
		"A": `{"data":{"ping":"pong"}}`, "B": `{"data":{"b":"pong"}}`,
		"":  `{"errors":[{"message":"Must provide operation name if query contains multiple operations."}]}`,
		"C": `{"errors":[{"message":"Unknown operation named \"C\"."}]}`,
	} {
		resp := w.engine.Execute(t.Context(), Request{Query: `query A { ping } query B { b: ping }`, OperationName: name})
		if got := w.json(resp); got != want {
			t.Errorf("%q: %s", name, got)
		}
	}
	if got := w.do(`subscription { counts }`, ``); !strings.Contains(got, "WebSocket") || strings.Contains(got, "data") {
		t.Error(got)
	}
}
