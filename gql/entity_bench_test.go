package gql_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"weir/gql"
	"weir/gql/engine"
)

// A page of 100 rows with 20 fields each, without and with what the rows refer to.
func BenchmarkPageOfEntities(b *testing.B) {
	w := newRegistryWorld(b)
	w.ok(`mutation { createDeviceType(request: {token: "t", name: "Pump", model: "P-100", manufacturer: "Acme"}) { token } }`, nil)
	w.ok(`mutation { createDevices(request: {deviceTypeToken: "t", count: 100, tokenTemplate: "d{n}", nameTemplate: "Device {n}",
		externalIdTemplate: "SN {n}", metadata: "{\"a\": 1}"}) { token } }`, nil)
	const own = `id createdAt updatedAt deletedAt token externalId name description metadata
		a: id b: createdAt c: updatedAt d: token e: externalId f: name g: description h: metadata i: token j: name`
	for name, fields := range map[string]string{"plain": own + " k: id", "referring": own + " deviceType { token }"} {
		b.Run(name, func(b *testing.B) {
			query := fmt.Sprintf(`{ devices(criteria: {pageNumber: 1, pageSize: 100}) { results { %s } pagination { totalRecords } } }`, fields)
			ctx := gql.WithCall(b.Context(), gql.Call{Principal: writer, Transport: gql.HTTP})
			b.ReportAllocs()
			for b.Loop() {
				if body, err := json.Marshal(w.engine.Execute(ctx, engine.Request{Query: query})); err != nil || len(body) < 30_000 {
					b.Fatal(len(body), err)
				}
			}
		})
	}
}
