package gql_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2/ast"

	"weir/gql/notification"
	"weir/gql/outbound"
	"weir/inference"
	"weir/internal/test/conformance"
	"weir/internal/test/testweir"
	"weir/model"
)

// updateKind is one update mutation of the running program, on a tenant of its own.
type updateKind struct {
	area, typ string
	token     string // of the record, "" where the mutation takes none
	reads     string // query that shows the record
	list      bool   // reads gives a list of one
	fields    map[string]updateField
	create    map[string]any // what a create of one more needs besides the token
	verb      string         // the mutations' name of the kind, default: typ
	among     string         // reads lists all records, and this field names one of them
}

// name is that of the kind in its mutations.
func (k *updateKind) name() string { return cmp.Or(k.verb, k.typ) }

// updateKinds has a row for every update input that is served, by the name of its type.
func updateKinds() map[string]updateKind {
	kinds := map[string]updateKind{"Profile": {area: "user-management", typ: "Profile", reads: "me", fields: map[string]updateField{
		"firstName": {first: "Ada", second: "Grace", nulls: "clears", empty: true},
		"lastName":  {first: "Lovelace", second: "Hopper", nulls: "clears", empty: true},
	}}, "Dashboard": {area: "dashboard-management", typ: "Dashboard", token: "main", reads: `dashboard(token: "main")`, fields: map[string]updateField{
		"name":        text3,
		"description": text3,
		"definition":  {first: `{"a": [1, 2.50]}`, second: `{}`, nulls: "refused"},
	}, create: map[string]any{"definition": "{}"}}}
	maps.Copy(kinds, adminKinds())
	maps.Copy(kinds, noticeKinds())
	for typ, k := range updateInputs() {
		kinds[typ] = updateKind{area: "device-management", typ: typ, token: k.token, reads: fmt.Sprintf("%sByToken(tokens: [%q])", pluralOf(typ), k.token), list: true, fields: k.fields,
			create: createWith()[typ]}
	}
	return kinds
}

// noticeKinds are those of the notifications. What an update of a channel's type brings is in TestChannelSecretsAndRulesFollowTheUpdateRules of notify.
func noticeKinds() map[string]updateKind {
	number := updateField{first: 60.0, second: 600.0, nulls: "clears"}
	flag := updateField{first: false, second: true, nulls: "refused"}
	config := func(host string) string { return fmt.Sprintf(`{"url":"https://%s/weir"}`, host) }
	rule := func(severity, recipients string) any {
		return map[string]any{"severity": severity, "channelToken": "duty", "recipients": recipients}
	}
	kinds := map[string]updateKind{
		"NotificationChannel": {reads: "notificationChannelsByToken", create: map[string]any{"channelType": "webhook", "config": config("hooks.example.com"), "enabled": true},
			fields: map[string]updateField{
				"name": text3, "description": text3, "metadata": json3, "enabled": flag,
				"channelType": {nulls: "refused"},                                                                       // no other value goes with the config
				"config":      {first: config("a.example.com"), second: config("b.example.com"), nulls: "refused"},      // without a url there is no webhook
				"secret":      {first: "a-secret", second: "a-secret", nulls: "clears", empty: true, read: "hasSecret"}, // it is never shown
			}},
		"NotificationPolicy": {reads: "notificationPoliciesByToken", create: map[string]any{"enabled": true, "rules": []any{}}, fields: map[string]updateField{
			"name": text3, "description": text3, "metadata": json3, "enabled": flag, "throttleSeconds": number, "escalateAfterSeconds": number, "maxEscalations": number,
			"rules": {first: []any{rule("CRITICAL", `["ann"]`), rule("*", `[]`)}, second: []any{rule("MAJOR", `["bob"]`)}, nulls: "clears", cleared: []any{},
				read: "rules {severity recipients channel {token}}"},
		}},
		"NotificationMute": {reads: "notificationMutesByToken", create: map[string]any{"until": "2100-01-01T00:00:00Z"}, fields: map[string]updateField{
			"until": {first: "2100-02-01T00:00:00Z", second: "2100-03-01T00:00:00Z", nulls: "refused"}, "reason": text3,
		}},
	}
	for typ, k := range kinds {
		k.area, k.typ, k.token, k.list = notification.Area, typ, "subject", true
		k.reads += `(tokens: ["subject"])`
		kinds[typ] = k
	}
	return kinds
}

// notUpdated are fields of records that no update changes, by the part of an input's name before CreateRequest and UpdateRequest.
var notUpdated = map[string][]string{"ProvisioningProfile": {"credentialType"}, "EntityGroup": {"memberType", "membershipMode"}, "DeviceProfile": {"activeVersion"},
	"NotificationPolicy": {"deviceTypeToken"}}

// lacks checks that no update input has what updates do not change, although the records have it.
func (w *walk) lacks(t *testing.T) {
	t.Helper()
	for typ, fields := range notUpdated {
		found := false
		for _, schema := range w.schemas {
			input, record := schema.Types[typ+"UpdateRequest"], schema.Types[typ]
			if input == nil {
				continue
			}
			found = true
			for _, f := range fields {
				if input.Fields.ForName(f) != nil || record.Fields.ForName(f) == nil {
					t.Errorf("%s is to be a field of %s, and none of %s", f, typ, input.Name)
				}
			}
		}
		if !found {
			t.Errorf("there is no %sUpdateRequest", typ)
		}
	}
	conformance.Shown(t, "S3-067")
}

// updateTenants are the tenants that the walk over the updates needs.
func updateTenants() []string {
	var tenants []string
	for typ := range updateKinds() {
		tenants = append(tenants, "u-"+typ)
	}
	return append(tenants, renamesTenant)
}

// renamesTenant is the tenant in which the walk renames.
const renamesTenant = "renames"

// updates goes over every field of every update input.
func (w *walk) updates(t *testing.T) {
	kinds := updateKinds()
	_, _, identity := w.signIn(t, walkSuper, "u-Profile")
	w.lacks(t)
	served := 0
	for _, area := range slices.Sorted(maps.Keys(w.schemas)) {
		schema := w.schemas[area]
		if schema.Mutation == nil {
			continue
		}
		for _, m := range schema.Mutation.Fields {
			request := m.Arguments.ForName("request")
			if request == nil || !strings.HasSuffix(request.Type.Name(), "UpdateRequest") {
				if strings.HasPrefix(m.Name, "update") {
					t.Errorf("%s takes no update input of its own", m.Name)
				}
				continue
			}
			if area == inference.AdminArea || area == outbound.Area { // fields belong together: see TestDraftingOverTheAPI of e2e and TestUpdatesOfAConnector
				continue
			}
			served++
			typ := strings.TrimSuffix(request.Type.Name(), "UpdateRequest")
			kind, ok := kinds[typ]
			if !ok || kind.area != area || m.Name != "update"+kind.name() {
				t.Errorf("%s: %s with %s is not in updateKinds", area, m.Name, request.Type.Name())
				continue
			}
			t.Run(typ, func(t *testing.T) {
				t.Parallel()
				access := w.super
				if w.planes[area] != identityPlane {
					access, _ = w.enter(identity, "u-"+typ)
				}
				u := &updateWalk{walk: w, updateKind: kind, t: t, by: caller{token: access}, tenant: "u-" + typ, schema: schema,
					input: schema.Types[request.Type.Name()]}
				u.run(m)
			})
		}
	}
	if served != len(kinds) {
		t.Errorf("%d of %d update inputs are served", served, len(kinds))
	}
}

// into reads the answer under a name.
func (r *reply) into(t *testing.T, name string, to any) {
	t.Helper()
	if len(r.Errors) > 0 {
		t.Fatal(r.raw)
	}
	if err := json.Unmarshal(r.Data[name], to); err != nil {
		t.Fatalf("%v: %s", err, r.raw)
	}
}

// updateWalk walks over one update mutation.
type updateWalk struct {
	*walk
	updateKind
	t      *testing.T
	by     caller
	tenant string
	schema *ast.Schema
	input  *ast.Definition
}

func (u *updateWalk) run(m *ast.FieldDefinition) {
	t := u.t
	if (m.Arguments.ForName("token") != nil) != (u.token != "") || u.input.Fields.ForName("token") != nil {
		t.Errorf("%s: the record is selected by the argument token alone, updateProfile takes none", m.Name)
	}
	if u.area == "device-management" {
		for _, q := range seedRequests {
			u.must(q, map[string]any{"rule": hotRule})
		}
		for _, q := range seedDescribed("") {
			u.must(q, nil)
		}
	}
	if u.typ == "NotificationPolicy" { // whom its rules name
		u.must(`mutation { createNotificationChannel(request: {token: "duty", channelType: "webhook", enabled: true, config: "{\"url\":\"https://hooks.example.com\"}"}) { id } }`, nil)
	}
	if u.area == "dashboard-management" || u.area == notification.Area || u.among != "" {
		u.make(u.token)
	}
	if u.token != "" {
		u.make(siblingToken)
	}
	sibling := u.sibling()
	for _, def := range u.input.Fields {
		f, ok := u.fields[def.Name]
		if !ok {
			t.Errorf("%s.%s is not in the table", u.input.Name, def.Name)
			continue
		}
		u.threeStates(def.Name, def.Type.String(), f)
		if now := u.sibling(); now != sibling {
			t.Errorf("%s.%s: updates of %q changed another record from\n%s to\n%s", u.input.Name, def.Name, u.token, sibling, now)
		}
	}
	for field := range u.fields {
		if u.input.Fields.ForName(field) == nil {
			t.Errorf("%s has no field %s any more", u.input.Name, field)
		}
	}
	u.unknownFields()
	if u.token != "" {
		conformance.Shown(t, "S3-044")
	}
	conformance.Shown(t, "S3-042", "S3-043", "S3-045", "S3-048", "S3-103", "S3-104", "S3-105", "S3-113")
	if u.typ == "Profile" {
		conformance.Shown(t, "S3-047", "S3-066")
	}
	if u.typ == "DeviceType" {
		conformance.Shown(t, "S3-078")
	}
	if u.typ == "DeviceCredential" {
		conformance.Shown(t, "S3-076")
	}
	u.adminStatements()
}

// make makes a record of the kind.
func (u *updateWalk) make(token string) {
	u.t.Helper()
	u.must("mutation { create"+u.name()+"(request: "+literal(with(u.create, cmp.Or(u.among, "token"), token))+") { __typename } }", nil)
}

// do runs a request as the administrator of the tenant.
func (u *updateWalk) do(query string, vars map[string]any) *reply {
	u.t.Helper()
	return u.ask(u.t, u.area, u.by, query, vars)
}

func (u *updateWalk) must(query string, vars map[string]any) *reply {
	u.t.Helper()
	r := u.do(query, vars)
	if len(r.Errors) > 0 {
		u.t.Fatalf("%s %v: %s", query, vars, r.raw)
	}
	return r
}

// call writes the mutation with a request.
func (u *updateWalk) call(request string) string {
	if u.token == "" {
		return fmt.Sprintf(`update%s(request: %s) { __typename }`, u.name(), request)
	}
	return fmt.Sprintf(`update%s(token: %q, request: %s) { __typename }`, u.name(), u.token, request)
}

// record is the whole record as the API shows it.
func (u *updateWalk) record() string {
	u.t.Helper()
	depth := 2
	if u.among != "" { // what is effective stands one level deeper
		depth = 3
	}
	return u.whole(u.reads, u.token, func(typ string) string { return selectAll(u.schema, typ, depth, nil) })
}

// siblingToken is the token of a record of the same kind that no update names.
const siblingToken = "sibling"

// sibling is that record with the tokens of those that it refers to, "" where the mutation takes no token.
func (u *updateWalk) sibling() string {
	u.t.Helper()
	if u.token == "" {
		return ""
	}
	return u.whole(strings.Replace(u.reads, fmt.Sprintf("%q", u.token), fmt.Sprintf("%q", siblingToken), 1), siblingToken, u.withRefs)
}

// withRefs selects the fields of a type, and the tokens of the records that it refers to.
func (u *updateWalk) withRefs(typ string) string {
	var selection strings.Builder
	selection.WriteString(strings.TrimSuffix(selectAll(u.schema, typ, 1, nil), " }"))
	for _, f := range u.schema.Types[typ].Fields {
		if to := u.schema.Types[f.Type.Name()]; to.Kind == ast.Object && to.Fields.ForName("token") != nil && len(f.Arguments) == 0 {
			selection.WriteString(" " + f.Name + " { token }")
		}
	}
	return selection.String() + " }"
}

// whole is what a query shows of a record, with the selection for its type. token is the record's.
func (u *updateWalk) whole(query, token string, selection func(typ string) string) string {
	u.t.Helper()
	name, _, _ := strings.Cut(query, "(")
	r := u.must("{ x: "+query+selection(u.schema.Query.Fields.ForName(name).Type.Name())+" }", nil)
	if empty := string(r.Data["x"]); empty == "[]" || empty == "null" {
		u.t.Fatalf("%s shows no record", query)
	}
	if u.among != "" {
		b, err := json.Marshal(u.one(r, token))
		if err != nil {
			u.t.Fatal(err)
		}
		return string(b)
	}
	return r.raw
}

// one is the record of a token in a list of all.
func (u *updateWalk) one(r *reply, token string) map[string]any {
	u.t.Helper()
	var all []map[string]any
	if err := json.Unmarshal(r.Data["x"], &all); err != nil {
		u.t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(one map[string]any) bool { return one[u.among] == token })
	if i < 0 {
		u.t.Fatalf("%s shows no %q: %s", u.reads, token, r.raw)
	}
	return all[i]
}

// shown reads one field back. A password cannot be read: which of the two signs the device in is asked at the broker.
func (u *updateWalk) shown(field string, f updateField) any {
	u.t.Helper()
	if f.read == "hash" {
		return u.password(f)
	}
	read := f.read
	if read == "" {
		read = field
	}
	selection, nested, isNested := strings.Cut(read, ".")
	path := []string{strings.Fields(selection)[0]}
	if isNested {
		selection += " { " + nested + " }"
		path = append(path, nested)
	}
	r := u.must("{ x: "+u.reads+" { "+selection+" "+u.among+" } }", nil)
	var v any
	if err := json.Unmarshal(r.Data["x"], &v); err != nil {
		u.t.Fatal(err)
	}
	switch {
	case u.among != "":
		v = u.one(r, u.token)
	case u.list:
		v = v.([]any)[0]
	}
	for _, key := range path {
		if m, ok := v.(map[string]any); ok {
			v = m[key]
		}
	}
	switch {
	case u.area == notification.Area && field == "secret": // all that is shown of it is whether there is one
		if v != true {
			return nil
		}
		return f.first
	case u.area == notification.Area && field == "rules": // a request names the channel by its token
		for _, one := range v.([]any) {
			rule := one.(map[string]any)
			rule["channelToken"] = rule["channel"].(map[string]any)["token"]
			delete(rule, "channel")
		}
	}
	return v
}

// password returns that of the two values of a credential with which its device signs in, nil for neither.
func (u *updateWalk) password(f updateField) any {
	u.t.Helper()
	id := u.shown("credentialId", updateField{}).(string)
	device := u.shown("deviceToken", u.fields["deviceToken"]).(string)
	if shown := u.shown("credentialValue", updateField{}); shown != nil {
		u.t.Errorf("a password reads as %v", shown)
	}
	for _, v := range []any{f.first, f.second} {
		c, code, err := testweir.ConnectMQTT(u.MQTT, "weir:"+u.tenant+":"+device, u.tenant+":"+id, v.(string))
		if err != nil {
			u.t.Fatal(err)
		}
		if code == 0 {
			_ = c.Close()
			return v
		}
	}
	return nil
}

// refuses runs an update that must be refused and change nothing.
func (u *updateWalk) refuses(query string, vars map[string]any, code model.Code, texts ...string) {
	u.t.Helper()
	before := u.record()
	r := u.do(query, vars)
	if r.status != http.StatusOK || r.code() != code || !r.empty() {
		u.t.Errorf("%s %v: %d %s, want %s", query, vars, r.status, r.raw, code)
	}
	for _, text := range texts {
		if !strings.Contains(r.message(), text) {
			u.t.Errorf("%s %v: %q does not hold %q", query, vars, r.message(), text)
		}
	}
	if after := u.record(); after != before {
		u.t.Errorf("%s %v: refused, but from\n%s to\n%s", query, vars, before, after)
	}
}

// threeStates tries a field absent, null and with values; as a literal, as a variable of its own, and inside a variable
// of the whole request.
func (u *updateWalk) threeStates(field, graphqlType string, f updateField) {
	u.t.Helper()
	literally := func(v string) string { return "mutation { u: " + u.call("{"+field+": "+v+"}") + " }" }
	byField := fmt.Sprintf("mutation ($v: %s) { u: %s }", graphqlType, u.call("{"+field+": $v}"))
	byRequest := fmt.Sprintf("mutation ($r: %s!) { u: %s }", u.input.Name, u.call("$r"))
	expect := func(what string, want any) {
		u.t.Helper()
		if got := u.shown(field, f); !reflect.DeepEqual(got, want) {
			u.t.Errorf("%s.%s, %s: reads as %v, want %v", u.typ, field, what, got, want)
		}
	}
	if f.first != nil {
		u.must(byRequest, map[string]any{"r": map[string]any{field: f.first}})
		expect("value in the request", f.first)
		u.must(byRequest, map[string]any{"r": u.besides(field)})
		expect("absent in the request", f.first)
		u.must(byField, nil)
		expect("variable not given", f.first)
		u.must(byField, map[string]any{"v": f.second})
		expect("value in a variable", f.second)
		u.must(literally(literal(f.first)), nil)
		expect("literal value", f.first)
	}
	type null struct {
		what, query string
		vars        map[string]any
	}
	nulls := []null{{"literal null", literally("null"), nil}, {"null variable", byField, map[string]any{"v": nil}},
		{"null in the request", byRequest, map[string]any{"r": map[string]any{field: nil}}}}
	if f.empty {
		nulls = append(nulls, null{"empty text", literally(`""`), nil}, null{"empty text in a variable", byField, map[string]any{"v": ""}})
	}
	for _, n := range nulls {
		if f.nulls == "refused" {
			u.refuses(n.query, n.vars, model.CodeInvalidInput, field)
			continue
		}
		if f.first != nil {
			u.must(literally(literal(f.first)), nil)
		}
		u.must(n.query, n.vars)
		expect(n.what, f.cleared)
	}
	if f.first != nil { // a state on which the other fields can be tried
		u.must(literally(literal(f.second)), nil)
	}
}

// besides is a request that names another field.
func (u *updateWalk) besides(field string) map[string]any {
	if u.typ == "Profile" {
		other := map[string]string{"firstName": "lastName", "lastName": "firstName"}[field]
		return map[string]any{other: "Else"}
	}
	if u.typ == "NotificationMute" {
		return map[string]any{map[string]string{"until": "reason", "reason": "until"}[field]: "2100-05-01T00:00:00Z"}
	}
	if u.among != "" {
		other := map[bool]string{true: "description", false: "name"}[field == "name"]
		if u.fields[other].first == nil {
			other = "config"
		}
		return map[string]any{other: u.fields[other].second}
	}
	return another(u.typ, field)
}

// unknownFields: a field that the input does not define fails the whole request, and so does a token.
func (u *updateWalk) unknownFields() {
	u.t.Helper()
	known := u.input.Fields[0].Name
	good := "{" + known + ": " + literal(u.fields[known].first) + "}"
	byRequest := fmt.Sprintf("mutation ($r: %s!) { good: %s bad: %s }", u.input.Name, u.call(good), u.call("$r"))
	for _, typo := range []string{known[:len(known)-1], "token"} {
		undefined := fmt.Sprintf(`Field "%s" is not defined by type "%s".`, typo, u.input.Name)
		bad := fmt.Sprintf("{%s: %q}", typo, "x")
		texts := []string{undefined}
		if typo != "token" {
			texts = append(texts, "Did you mean", `"`+known+`"`)
		}
		u.refuses("mutation { good: "+u.call(good)+" bad: "+u.call(bad)+" }", nil, model.CodeInvalidInput, texts...)
		u.refuses(byRequest, map[string]any{"r": map[string]any{typo: "x"}}, model.CodeInvalidInput, append(texts, `Variable "$r" got invalid value`)...)
	}
}
