package gql_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"weir/model"
)

// A tenant reads its own part of the journal, by each criterion and both at once, and nothing of another tenant's.
func TestATenantReadsItsOwnJournal(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	auditor, other := member("acme", 1, model.AuditRead), member("other", 2, model.AuditRead)
	for _, q := range []string{`mutation { createDeviceType(request: {token: "a"}) { id } }`, `mutation { createDeviceType(request: {token: "b"}) { id } }`,
		`mutation { updateDeviceType(token: "a", request: {name: "A"}) { id } }`, `mutation { createDeviceProfile(request: {token: "p"}) { id } }`,
		`mutation { deleteDeviceType(token: "b") }`} {
		w.ok(q, nil)
	}
	w.value(w.as(neighbour, `mutation { createDeviceType(request: {token: "theirs"}) { id } }`, nil), "")
	at := func(n int64) string { // of the n-th change, from 1
		return model.Micros(1_700_000_000_000_000 + n*1000).Time().Format(time.RFC3339Nano)
	}
	for _, c := range []struct {
		by       *model.Principal
		criteria string
		labels   []string // operation and label
		total    float64
	}{
		{auditor, ``, []string{"delete b", "create p", "update a", "create b", "create a"}, 5},
		{auditor, `operation: "update"`, []string{"update a"}, 1},
		{auditor, `tableName: "device_types", operation: "create"`, []string{"create b", "create a"}, 2},
		{auditor, `tableName: "device_types", entityPk: "2"`, []string{"delete b", "create b"}, 2},
		{auditor, fmt.Sprintf(`startTime: %q, endTime: %q`, at(2), at(4)), []string{"create p", "update a", "create b"}, 3},
		{auditor, `category: "auth"`, nil, 0},
		{auditor, `actor: "ada", category: "mutation", pageNumber: 2, pageSize: 4`, []string{"create a"}, 5},
		{auditor, `actor: "AD"`, nil, 0}, // exactly the actor
		{other, ``, []string{"create theirs"}, 1},
	} {
		page := `pageNumber: 1, pageSize: 10, `
		if strings.Contains(c.criteria, "pageNumber") {
			page = ""
		}
		query := `{ auditEvents(criteria: {` + page + c.criteria + `}) { results { id occurredTime category actor operation tableName entityPk entityLabel rowsAffected } pagination { totalRecords } } }`
		b, err := json.Marshal(w.value(w.as(c.by, query, nil), query, "auditEvents"))
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Results []struct {
				Actor, Category, Operation, EntityLabel string
				RowsAffected                            int
			}
			Pagination struct{ TotalRecords float64 }
		}
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		var labels []string
		for _, e := range got.Results {
			if e.Actor != "ada" || e.Category != "mutation" || e.RowsAffected != 1 {
				t.Errorf("%s: %+v", query, e)
			}
			labels = append(labels, e.Operation+" "+e.EntityLabel)
		}
		if !reflect.DeepEqual(labels, c.labels) || got.Pagination.TotalRecords != c.total {
			t.Errorf("%s gives %q of %v, want %q of %v", query, labels, got.Pagination.TotalRecords, c.labels, c.total)
		}
	}
	w.refusesFor(auditor, `{ auditEvents(criteria: {pageNumber: 1, pageSize: 1, endTime: "never"}) { pagination { totalRecords } } }`, nil, model.CodeInvalidInput, "endTime")
	w.refusesFor(writer, `{ auditEvents(criteria: {pageNumber: 1, pageSize: 1}) { pagination { totalRecords } } }`, nil, model.CodeForbidden, "audit:read")
	w.refusesFor(member("", 0, model.AuditRead), `{ auditEvents(criteria: {pageNumber: 1, pageSize: 1}) { pagination { totalRecords } } }`, nil, model.CodeUnauthenticated, "no tenant")
}
