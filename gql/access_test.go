package gql

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	"weir/model"
)

func TestAuthorityComesBeforeAnythingElse(t *testing.T) {
	w := newWorld(t, Config{})
	nowhere := testReader(model.AllAuthorities)
	nowhere.Tenant = ""
	identity := &model.Principal{Kind: model.IdentityCaller, Subject: "eve", System: map[model.Authority]bool{model.AllAuthorities: true}}
	for _, c := range []struct {
		name  string
		p     *model.Principal
		query string
		want  string
	}{
		{"anonymous where a token is needed", nil, `{ device(token: "d1") { id } }`, "unauthenticated: a token is required"},
		{"anonymous, any caller", nil, `{ free }`, "unauthenticated: a token is required"},
		{"authority missing", testReader(model.StateRead), `{ device(token: "d1") { id } }`, "forbidden: device:read is required"},
		{"authority of another kind", testReader(model.DeviceRead), `mutation { touch(token: "x") { id } }`, "forbidden: device:write is required"},
		{"authority before tenant", func() *model.Principal { p := testReader(); p.Tenant = ""; return p }(), `{ all { id } }`, "forbidden: device:read"},
		{"no tenant", nowhere, `{ all { id } }`, "unauthenticated: no tenant is resolved"},
		{"identity token on the tenant plane", identity, `{ all { id } }`, "unauthenticated: this kind of token"},
	} {
		got := w.do(c.p, c.query, ``)
		if !strings.Contains(got, `"message":"`+c.want) || w.calls != 0 || w.touched != nil {
			t.Errorf("%s: %s, %d calls", c.name, got, w.calls)
		}
	}
	for _, c := range []struct {
		p     *model.Principal
		query string
		want  string
	}{
		{nil, `{ ping }`, `{"data":{"ping":"pong"}}`},
		{nowhere, `{ free }`, `{"data":{"free":"ada"}}`},
		{testReader(model.DeviceRead), `{ device(token: "x") { id } }`, `{"data":{"device":null}}`},
		{model.Service("svc", "t1", 1, model.DeviceRead), `{ device(token: "x") { id } }`, `{"data":{"device":null}}`},
	} {
		if got := w.do(c.p, c.query, ``); got != c.want {
			t.Errorf("%s: %s", c.query, got)
		}
	}
}

func TestTheIdentityPlaneAsksForASystemRole(t *testing.T) {
	role := &model.Principal{Kind: model.IdentityCaller, System: map[model.Authority]bool{model.UserRead: true}}
	for _, c := range []struct {
		access Access
		p      *model.Principal
		want   model.Code
	}{
		{AnyCaller(), role, ""},
		{Requires(model.UserRead), role, ""},
		{Requires(model.UserWrite), role, model.CodeForbidden},
		{AnyCaller(), &model.Principal{Kind: model.IdentityCaller}, model.CodeForbidden},
		{Requires(model.UserRead), &model.Principal{Kind: model.IdentityCaller}, model.CodeForbidden},
		{AnyCaller(), testReader(model.AllAuthorities), model.CodeUnauthenticated},
		{AnyCaller(), model.Service("s", "", 0, model.UserRead), model.CodeUnauthenticated},
		{Requires(model.UserWrite), &model.Principal{Kind: model.LocalOperator}, ""},
		{AnyCaller(), nil, model.CodeUnauthenticated},
	} {
		err := c.access.check(IdentityPlane, HTTP, c.p)
		if model.CodeOf(err) != c.want || (err == nil) != (c.want == "") {
			t.Errorf("%+v %+v: %v", c.access, c.p, err)
		}
	}
	if err := AnyCaller().check(TenantPlane, WebSocket, model.Service("s", "t", 1)); model.CodeOf(err) != model.CodeUnauthenticated {
		t.Errorf("service token over WebSocket: %v", err)
	}
}

func TestOperationsAreListedWithTheirAuthority(t *testing.T) {
	w := newWorld(t, Config{})
	ops := w.server.Operations()
	byName := map[string]Operation{}
	for _, op := range ops {
		byName[op.Kind+" "+op.Name] = op
	}
	if op := byName["mutation touch"]; op.Area != "test" || op.Plane != TenantPlane || !slices.Equal(op.Access.Authorities(), []model.Authority{model.DeviceWrite}) ||
		!op.Access.NeedsTenant() || op.Access.Anonymous() {
		t.Errorf("touch: %+v", op)
	}
	if op := byName["query ping"]; !op.Access.Anonymous() {
		t.Errorf("ping: %+v", op)
	}
	if op := byName["query free"]; op.Access.NeedsTenant() {
		t.Errorf("free: %+v", op)
	}
	// Every root field of the schema is there.
	schema, err := gqlparser.LoadSchema(&ast.Source{Input: testSDL})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for kind, root := range map[string]*ast.Definition{"query": schema.Query, "mutation": schema.Mutation, "subscription": schema.Subscription} {
		for _, f := range root.Fields {
			if !strings.HasPrefix(f.Name, "__") {
				want[kind+" "+f.Name] = true
			}
		}
	}
	if got := slices.Sorted(maps.Keys(byName)); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
		t.Errorf("got %v", got)
	}
	if !slices.IsSortedFunc(ops, compareOperations) {
		t.Error("not sorted")
	}
}
