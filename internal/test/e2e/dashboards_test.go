package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"weir/internal/test/conformance"
)

// dashboards shows the life of a dashboard: its definition, the precondition, versions, lists.
func dashboards(t *testing.T, w *world) {
	tn := w.tenant(t, "dashboards")
	do := func(query string, vars map[string]any) *answer {
		t.Helper()
		return w.ask(t, "dashboard-management", tn.token, query, vars)
	}
	must := func(query string, vars map[string]any, want string) {
		t.Helper()
		if a := do(query, vars); len(a.Errors) > 0 || string(a.Data) != want {
			t.Errorf("%s %.200v: %.500s, want %s", query, vars, a.raw, want)
		}
	}
	refused := func(query string, vars map[string]any, code string, texts ...string) {
		t.Helper()
		a := do(query, vars)
		if !strings.HasPrefix(a.refusal(), code+" ") {
			t.Errorf("%s %.200v: %.500s, want %s", query, vars, a.raw, code)
		}
		for _, text := range texts {
			if !strings.Contains(a.raw, text) {
				t.Errorf("%s %.200v: %.500s, want %q", query, vars, a.raw, text)
			}
		}
	}
	const make = `mutation($t:String!,$n:String,$d:String!){createDashboard(request:{token:$t,name:$n,definition:$d}){token}}`
	const read = `{dashboard(token:"plant"){name description definition}}`
	whole := func(name, description, definition string) string {
		return fmt.Sprintf(`{"dashboard":{"name":%s,"description":%s,"definition":%q}}`, name, description, definition)
	}
	// The text is kept as it was sent, blanks and the order of keys included.
	definition := "{ \"title\": \"Plant\",\n  \"b\": 1.50, \"a\": [] }"
	must(make, map[string]any{"t": "plant", "n": "Plänt One", "d": definition}, `{"createDashboard":{"token":"plant"}}`)
	must(read, nil, whole(`"Plänt One"`, "null", definition))
	for _, bad := range []string{"", "{", "[]", `"text"`, "null", "1", `{"a":1}x`, "{}{}"} {
		refused(make, map[string]any{"t": "bad", "d": bad}, "INVALID_INPUT", "definition")
		refused(`mutation($d:String!){updateDashboard(token:"plant",request:{name:"new",definition:$d}){token}}`, map[string]any{"d": bad}, "INVALID_INPUT", "definition")
	}
	refused(`mutation{updateDashboard(token:"plant",request:{name:"new",definition:null}){token}}`, nil, "INVALID_INPUT", "definition")
	large := `{"a":"` + strings.Repeat("x", 1<<20-8) + `"}`
	refused(make, map[string]any{"t": "large", "d": large + " "}, "LIMIT_EXCEEDED", "definition")
	must(make, map[string]any{"t": "large", "d": large}, `{"createDashboard":{"token":"large"}}`)
	must(read, nil, whole(`"Plänt One"`, "null", definition)) // nothing of the refused updates was taken, the name neither
	conformance.Shown(t, "S3-065")
	must(`mutation{updateDashboard(token:"plant",request:{description:"d"}){token}}`, nil, `{"updateDashboard":{"token":"plant"}}`)
	must(read, nil, whole(`"Plänt One"`, `"d"`, definition))
	conformance.Shown(t, "S3-064")

	stamp := func() string {
		t.Helper()
		var out struct{ Dashboard struct{ UpdatedAt string } }
		do(`{dashboard(token:"plant"){updatedAt}}`, nil).into(t, &out)
		return out.Dashboard.UpdatedAt
	}
	const update = `mutation($r:DashboardUpdateRequest!,$e:String){updateDashboard(token:"plant",request:$r,expectedUpdatedAt:$e){updatedAt}}`
	before := stamp()
	must(update, map[string]any{"r": map[string]any{}, "e": before}, fmt.Sprintf(`{"updateDashboard":{"updatedAt":%q}}`, before))
	must(update, map[string]any{"r": map[string]any{}}, fmt.Sprintf(`{"updateDashboard":{"updatedAt":%q}}`, before))
	do(update, map[string]any{"r": map[string]any{"description": nil}, "e": before})
	if stamp() <= before {
		t.Error("an update did not move updatedAt")
	}
	for _, request := range []map[string]any{{}, {"name": "late"}} {
		refused(update, map[string]any{"r": request, "e": before}, "CONFLICT", "conflict:", "STALE_WRITE")
	}
	refused(update, map[string]any{"r": map[string]any{}, "e": "yesterday"}, "INVALID_INPUT", "expectedUpdatedAt")
	refused(`mutation($e:String){publishDashboard(token:"plant",expectedUpdatedAt:$e){version}}`, map[string]any{"e": before}, "CONFLICT", "STALE_WRITE")
	conformance.Shown(t, "S3-053")

	// Versions: a publish freezes the draft, a rollback copies one back, and none of them goes.
	must(`mutation{publishDashboard(token:"plant",label:"first"){version label}}`, nil, `{"publishDashboard":{"version":1,"label":"first"}}`)
	must(`mutation{updateDashboard(token:"plant",request:{name:"Two",definition:"{}"}){token}}`, nil, `{"updateDashboard":{"token":"plant"}}`)
	must(`mutation($e:String){publishDashboard(token:"plant",expectedUpdatedAt:$e){version}}`, map[string]any{"e": stamp()}, `{"publishDashboard":{"version":2}}`)
	refused(`mutation($e:String){rollbackDashboard(token:"plant",version:1,expectedUpdatedAt:$e){token}}`, map[string]any{"e": before}, "CONFLICT", "STALE_WRITE")
	refused(`mutation{rollbackDashboard(token:"plant",version:3){token}}`, nil, "NOT_FOUND", "plant@3")
	must(`mutation{rollbackDashboard(token:"plant",version:1){name definition}}`, nil, fmt.Sprintf(`{"rollbackDashboard":{"name":"Plänt One","definition":%q}}`, definition))
	must(`{all:dashboardVersions(token:"plant"){version publishedBy} one:dashboardVersions(token:"plant",limit:1,offset:1){version} none:dashboardVersions(token:"nope",limit:null){version}}`, nil,
		`{"all":[{"version":2,"publishedBy":"admin@example.org"},{"version":1,"publishedBy":"admin@example.org"}],"one":[{"version":1}],"none":[]}`)
	for _, args := range []string{"limit:0", "limit:1001", "offset:-1"} {
		refused(`{dashboardVersions(token:"plant",`+args+`){version}}`, nil, "INVALID_INPUT", strings.Split(args, ":")[0])
	}

	// Lists leave the definition out, and find a part of a name in either case.
	must(`{dashboards(criteria:{pageNumber:1,pageSize:10,name:"PLÄNT o"}){results{token name} pagination{totalRecords}}}`, nil,
		`{"dashboards":{"results":[{"token":"plant","name":"Plänt One"}],"pagination":{"totalRecords":1}}}`)
	for _, part := range []string{"%", "_", "Two", `"`} {
		must(`query($n:String){dashboards(criteria:{pageNumber:1,pageSize:10,name:$n}){pagination{totalRecords}}}`, map[string]any{"n": part},
			`{"dashboards":{"pagination":{"totalRecords":0}}}`)
	}
	refused(`{dashboards(criteria:{pageNumber:1,pageSize:10}){results{definition}}}`, nil, "INVALID_INPUT", "dashboard(token)")
	must(`mutation{a:deleteDashboard(token:"plant") b:deleteDashboard(token:"plant")}`, nil, `{"a":true,"b":false}`)
	must(`{dashboard(token:"plant"){token} dashboardVersions(token:"plant"){version}}`, nil, `{"dashboard":null,"dashboardVersions":[]}`)
}
