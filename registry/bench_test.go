package registry

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"weir/store"
)

// fleet makes n devices, each with an access token.
func (b *bench) fleet(n int) {
	b.Helper()
	ctx := b.Context()
	b.seed()
	for start := 0; start < n; start += maxBulk {
		must(b.Devices.CreateBulk(ctx, acme, Bulk{Type: "t", Count: maxBulk, StartIndex: new(int64(start + 1)), TokenTemplate: "f{n}"}))(b)
	}
}

func BenchmarkCreateDevice(b *testing.B) {
	w := newBench(b, Config{DeviceSettings: DeviceSettings{DevicesPerTenant: 1 << 40}})
	w.seed()
	for i := 0; b.Loop(); i++ {
		must(w.Devices.Create(b.Context(), acme, store.Patch{"token": fmt.Sprint("n", i), "deviceTypeToken": "t"}))(b)
	}
}

func BenchmarkBulkOf1000(b *testing.B) {
	w := newBench(b, Config{DeviceSettings: DeviceSettings{DevicesPerTenant: 1 << 40}})
	w.seed()
	for i := 0; b.Loop(); i++ {
		must(w.Devices.CreateBulk(b.Context(), acme, Bulk{Type: "t", Count: maxBulk, TokenTemplate: fmt.Sprint("r", i, "-{n}")}))(b)
	}
}

func BenchmarkImportOf10000(b *testing.B) {
	w := newBench(b, Config{DeviceSettings: DeviceSettings{DevicesPerTenant: 1 << 40}})
	w.seed()
	for i := 0; b.Loop(); i++ {
		entries := make([]Entry, 10_000)
		for n := range entries {
			entries[n] = entry(fmt.Sprintf("m%d-%d", i, n), "t", "externalId", fmt.Sprintf("SN %d/%d", i, n))
		}
		if _, problems, err := w.Devices.Import(b.Context(), acme, Import{Entries: entries}); err != nil || len(problems) > 0 {
			b.Fatal(problems, err)
		}
	}
}

func BenchmarkFindCredential(b *testing.B) {
	w := newBench(b, Config{DeviceSettings: DeviceSettings{DevicesPerTenant: 1 << 40}})
	w.fleet(10_000)
	issued := must(w.Credentials.IssueToken(b.Context(), acme, TokenRequest{Device: "f5000"}))(b)
	hash := sha256.Sum256([]byte(issued.Secret))
	for b.Loop() {
		if len(must(w.Credentials.Find(b.Context(), 1, AccessToken, hash))(b)) != 1 {
			b.Fatal("not found")
		}
	}
}

func BenchmarkListOf100000(b *testing.B) {
	w := newBench(b, Config{DeviceSettings: DeviceSettings{DevicesPerTenant: 1 << 40}})
	w.fleet(100_000)
	for name, page := range map[string]store.Page{"first": {Number: 1}, "last": {Number: 1000}} {
		for of, filters := range map[string][]store.Filter{"all": nil, "type": {store.RefersTo("type_id", "device_types", "t")}} {
			b.Run(name+"/"+of, func(b *testing.B) {
				for b.Loop() {
					rows, total, err := w.Devices.List(b.Context(), acme, page, filters...)
					if err != nil || len(rows) != 100 || total < 100_000 {
						b.Fatal(len(rows), total, err)
					}
				}
			})
		}
	}
}
