package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"weir/model"
	"weir/rules"
	"weir/rules/preview"
	"weir/series"
	"weir/store"
	"weir/store/sqlite"
)

// past is a store with the readings of devices that send one every interval, all at once.
func pastOf(b *testing.B, devices, readings int, every time.Duration) (*series.Series, model.Offset) {
	b.Helper()
	ctx := context.Background()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	db, err := sqlite.Open(ctx, filepath.Join(b.TempDir(), "weir.db"), sqlite.Options{})
	must(err)
	b.Cleanup(func() { _ = db.Close() })
	body := func(v any) []byte {
		text, err := json.Marshal(v)
		must(err)
		return text
	}
	must(db.Write(ctx, store.Results, func(tx store.Tx) error {
		set := func(kind model.ViewKind, key string, v any) error { return store.SetView(tx, kind, key, body(v), 1, 1) }
		err := set(model.ViewTenant, "acme", model.TenantView{V: 1, ID: 1, Enabled: true})
		if err == nil {
			err = set(model.ViewDeviceType, "10", model.DeviceTypeView{V: 1, Profile: 20})
		}
		if err == nil {
			err = set(model.ViewProfile, "20", model.ProfileView{V: 1, Tenant: "acme", Token: "boiler", Version: 1})
		}
		for i := 1; i <= devices && err == nil; i++ {
			err = set(model.ViewDevice, fmt.Sprintf("acme/d%d", i), model.DeviceView{V: 1, ID: int64(i), Type: 10})
		}
		return err
	}))
	s, err := series.Open(ctx, series.Config{}, db, series.Options{})
	must(err)
	offset, points := model.Offset(1), make([]series.Point, 1)
	gen := uint64(0)
	for i := range readings {
		at := model.Micros(1772366400e6) + model.Micros(time.Duration(i)*every/time.Microsecond)
		for d := 1; d <= devices; d++ {
			offset++
			points[0] = series.Point{TenantID: 1, Device: int64(d), DeviceToken: fmt.Sprintf("d%d", d), Metric: "temp", Source: "mqtt1", Occurred: at, Received: at + 1000, Offset: offset,
				Value: float64((i*7 + d) % 60)}
			must(s.Put(ctx, points))
		}
		if s.Bytes() > 32<<20 || i == readings-1 {
			f := s.Freeze(offset)
			gen++
			must(f.Write(ctx, gen, func(fn func(store.Tx) error) error { return db.Write(ctx, store.Results, fn) }))
			must(db.Write(ctx, store.Durable, f.Publish))
			f.Release()
		}
	}
	return s, offset
}

func benchmarkPreview(b *testing.B, devices, readings int, every time.Duration) {
	s, upto := pastOf(b, devices, readings, every)
	c, err := rules.NewCompiler(rules.Limits{})
	if err != nil {
		b.Fatal(err)
	}
	from := model.Micros(1772366400e6)
	q := Query{TenantID: 1, Tenant: "acme", Profile: 20, Rule: model.RuleView{Token: "r", Definition: `{"name":"n","type":"threshold","when":{"metric":"temp","op":"gt","threshold":58}}`},
		Window: preview.Window{From: from, To: from + model.Micros(24*time.Hour/time.Microsecond)}}
	deps := Deps{Series: s, Applied: func() model.Offset { return upto }, Heard: func() int64 { return 0 }, Compiler: c.ForPreviews()}
	b.ReportAllocs()
	for b.Loop() {
		r, err := Run(context.Background(), deps, q)
		if err != nil || r.Events != int64(devices*readings) {
			b.Fatalf("%+v %v", r.Stats, err)
		}
	}
	b.ReportMetric(float64(devices*readings)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkADayOfOneDevice(b *testing.B)     { benchmarkPreview(b, 1, 8640, 10*time.Second) }
func BenchmarkTenThousandDevices(b *testing.B)  { benchmarkPreview(b, 10_000, 50, 10*time.Second) }
func BenchmarkLongChunksOfDevices(b *testing.B) { benchmarkPreview(b, 2_000, 500, 10*time.Second) }
