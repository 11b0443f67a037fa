package gql_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2/ast"

	"weir/gql/notification"
	"weir/gql/outbound"
	"weir/inference"
	"weir/internal/test/conformance"
	"weir/model"
)

// renamed is a kind whose records can be renamed.
type renamed struct{ area, token, request string }

// renamedKinds are those kinds, by their name in the mutations. %q in a request is the token.
func (w *walk) renamedKinds(access string) map[string]renamed {
	return map[string]renamed{
		"DeviceProfile":       {"device-management", access, `{token: %q, name: "kept"}`},
		"Connector":           {outbound.Area, access, `{token: %q, name: "kept", type: "mqtt", config: "{\"urls\":[\"mqtt://b.example.com:1883\"],\"topic\":\"t\"}"}`},
		"AiProvider":          {inference.AdminArea, w.super, `{token: %q, name: "kept", kind: "openai-compatible", endpoint: "https://ai.example.com/v1", model: "m", enabled: false}`},
		"NotificationChannel": {notification.Area, access, `{token: %q, name: "kept", channelType: "webhook", enabled: true, config: "{\"url\":\"https://h.example.com\"}"}`},
	}
}

// renames renames a record of each kind that has a mutation for it: the answer is the record, under its new token and with all that it had.
func (w *walk) renames(t *testing.T) {
	access, _, _ := w.signIn(t, walkSuper, renamesTenant)
	kinds := w.renamedKinds(access)
	found := 0
	for area, schema := range w.schemas {
		if schema.Mutation == nil {
			continue
		}
		for _, m := range schema.Mutation.Fields {
			typ, ok := strings.CutPrefix(m.Name, "rename")
			if !ok {
				continue
			}
			k, ok := kinds[typ]
			if !ok || k.area != area || m.Type.String() != typ+"!" || len(m.Arguments) != 2 || m.Arguments[0].Name != "token" || m.Arguments[1].Name != "newToken" {
				t.Errorf("%s: %s(%v) %s is not in the table", area, m.Name, m.Arguments, m.Type)
				continue
			}
			found++
			w.rename(t, typ, k)
			if rename, update := w.row(t, area, m.Name), w.row(t, area, "update"+typ); rename.needs != update.needs || rename.also != update.also || rename.anonymous || update.anonymous {
				t.Errorf("%s needs %q, update%s needs %q", m.Name, rename.needs, typ, update.needs) // what each needs is shown by the walk's part access
			}
		}
	}
	if found != len(kinds) {
		t.Errorf("%d of %d renames are served", found, len(kinds))
	}
	conformance.Shown(t, "S3-083", "S3-084", "S3-085", "S3-086", "S3-087")
}

// row is the walk's row of an operation.
func (w *walk) row(t *testing.T, area, name string) walkOp {
	t.Helper()
	for _, op := range walkTable[area] {
		if op.name == name {
			return op
		}
	}
	t.Errorf("%s has no row for %s", area, name)
	return walkOp{}
}

// rename renames a record of a kind, and tries what is refused.
func (w *walk) rename(t *testing.T, typ string, k renamed) {
	t.Helper()
	by := caller{token: k.token}
	type record struct{ ID, Token, Name string }
	create := func(token string) (made record) {
		w.ask(t, k.area, by, "mutation { x: create"+typ+"(request: "+fmt.Sprintf(k.request, token)+") { id token name } }", nil).into(t, "x", &made)
		return made
	}
	rename := func(token, to string) *reply {
		return w.ask(t, k.area, by, fmt.Sprintf("mutation { x: rename%s(token: %q, newToken: %q) { id token name } }", typ, token, to), nil)
	}
	made, other := create("before"), create("taken")
	if made.ID == "" || made.Name != "kept" {
		t.Fatalf("create%s made %+v", typ, made)
	}
	is := func(want record, r *reply) {
		t.Helper()
		var got record
		if r.into(t, "x", &got); got != want {
			t.Errorf("rename%s returned %+v, want %+v", typ, got, want)
		}
	}
	for _, blank := range []string{"", " ", "\t", "\u00a0"} {
		if r := rename("before", blank); r.code() != model.CodeInvalidInput || !strings.Contains(r.message(), "newToken") {
			t.Errorf("rename%s to %q: %s", typ, blank, r.raw)
		}
	}
	is(made, rename("before", "before"))
	if r := rename("before", "taken"); r.code() != model.CodeConflict || r.Errors[0].Extensions.Reason != model.ReasonNotUnique || !strings.Contains(r.message(), `"taken"`) {
		t.Errorf("rename%s to a token that is taken: %s", typ, r.raw)
	}
	is(other, rename("taken", "taken")) // neither was changed
	is(made, rename("before", "before"))
	made.Token = "after"
	is(made, rename("before", "after"))
	if r := rename("before", "again"); r.code() != model.CodeNotFound {
		t.Errorf("rename%s of the old token: %s", typ, r.raw)
	}
}

// seedUpdates are the update mutations that the contract lists, by the names of their areas: on its admin plane or not.
var seedUpdates = map[string]string{
	"device-management": "DeviceType Device AssetType Asset CustomerType Customer AreaType Area MetricDefinition CommandDefinition DetectionRule GeoFence EntityGroup " +
		"DeviceCredential ProvisioningProfile EntityRelationshipType DeviceProfile",
	"user-management":      "Role Tenant TenantTier OauthClient Profile",
	notification.Area:      "NotificationChannel NotificationPolicy",
	outbound.Area:          "Connector",
	"ai-inference":         "AiProvider",
	"dashboard-management": "Dashboard",
}

// preconditions tries the update mutations that take expectedUpdatedAt, on a record of each: with the time of a record that has changed since
// nothing is written.
func (w *walk) preconditions(t *testing.T) {
	for name, types := range seedUpdates {
		for typ := range strings.FieldsSeq(types) {
			served := false
			for area, schema := range w.schemas {
				served = served || (area == name || strings.HasPrefix(area, name+"-")) && schema.Mutation != nil && schema.Mutation.Fields.ForName("update"+typ) != nil
			}
			if !served {
				t.Errorf("%s serves no update%s", name, typ)
			}
		}
	}
	conformance.Shown(t, "S3-046")

	access, _, _ := w.signIn(t, walkSuper, renamesTenant)
	kinds := w.renamedKinds(access)
	for typ, k := range map[string]renamed{"Connector": kinds["Connector"], "AiProvider": kinds["AiProvider"],
		"Dashboard": {"dashboard-management", access, `{token: %q, name: "kept", definition: "{}"}`}} {
		by := caller{token: k.token}
		if got := argumentOf(w.schemas[k.area], "update"+typ, "expectedUpdatedAt"); got != "String" {
			t.Errorf("update%s takes expectedUpdatedAt: %q, want an optional String", typ, got)
		}
		type record struct{ Name, UpdatedAt string }
		var made, changed, now record
		update := func(set, expected string) *reply {
			return w.ask(t, k.area, by, fmt.Sprintf(`mutation ($e: String) { x: update%s(token: "guarded", request: {name: %q}, expectedUpdatedAt: $e) { name updatedAt } }`, typ, set),
				map[string]any{"e": expected})
		}
		w.ask(t, k.area, by, "mutation { x: create"+typ+"(request: "+fmt.Sprintf(k.request, "guarded")+") { name updatedAt } }", nil).into(t, "x", &made)
		update("first", made.UpdatedAt).into(t, "x", &changed)
		if changed.Name != "first" || changed.UpdatedAt <= made.UpdatedAt {
			t.Errorf("update%s with the time of the record: %+v", typ, changed)
		}
		if r := update("second", made.UpdatedAt); r.code() != model.CodeConflict || r.Errors[0].Extensions.Reason != model.ReasonStaleWrite {
			t.Errorf("update%s with an older time: %s", typ, r.raw)
		}
		w.ask(t, k.area, by, "mutation { x: update"+typ+`(token: "guarded", request: {}) { name updatedAt } }`, nil).into(t, "x", &now)
		if now.Name != "first" {
			t.Errorf("update%s has written what it refused: %+v", typ, now)
		}
	}
	conformance.Shown(t, "S3-049", "S3-050")
	w.connectorPairs(t, access)
}

// connectorPairs: type and config of a connector belong together, so that naming one of them judges the stored other.
func (w *walk) connectorPairs(t *testing.T, access string) {
	by := caller{token: access}
	update := func(request string) *reply {
		return w.ask(t, outbound.Area, by, `mutation { x: updateConnector(token: "pair", request: `+request+`) { type config } }`, nil)
	}
	const sqs = `config: "{\"region\":\"eu-central-1\",\"accessKeyId\":\"AKIAIOSFODNN7EXAMPLE\",\"url\":\"https://sqs.eu-central-1.amazonaws.com/123456789012/alerts\"}"`
	w.ask(t, outbound.Area, by, "mutation { x: createConnector(request: "+fmt.Sprintf(w.renamedKinds(access)["Connector"].request, "pair")+") { type } }", nil).into(t, "x", &struct{}{})
	var before, after struct{ Type, Config string }
	update("{}").into(t, "x", &before)
	for _, request := range []string{`{type: "aws_sqs"}`, "{" + sqs + "}", `{type: "nonsense"}`, `{config: "{}"}`, `{config: "["}`, `{type: null}`, `{config: null}`, `{name: "x", type: "kafka"}`} {
		if r := update(request); r.code() != model.CodeInvalidInput {
			t.Errorf("updateConnector(%s): %s", request, r.raw)
		}
	}
	if update("{}").into(t, "x", &after); after != before {
		t.Errorf("what was refused was written: %+v, before %+v", after, before)
	}
	update(`{type: "aws_sqs", `+sqs+`}`).into(t, "x", &after)
	if after.Type != "aws_sqs" {
		t.Errorf("both together: %+v", after)
	}
	conformance.Shown(t, "S3-054", "S3-056")
}

// argumentOf is the type of an argument of a mutation, "" where it has none.
func argumentOf(s *ast.Schema, mutation, argument string) string {
	if s == nil || s.Mutation == nil || s.Mutation.Fields.ForName(mutation) == nil {
		return ""
	}
	if a := s.Mutation.Fields.ForName(mutation).Arguments.ForName(argument); a != nil {
		return a.Type.String()
	}
	return ""
}
