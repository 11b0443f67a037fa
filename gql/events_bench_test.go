package gql_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/gql"
	"weir/internal/hub"
	"weir/model"
	"weir/registry"
	"weir/series"
	"weir/store"
	"weir/store/sqlite"
)

// A tenth of what bench/run -only queries asks: 100 devices of 10,000 readings each, 10 s apart, that come 250 to a message.
const (
	benchDevices = 100
	benchDay     = model.Micros(20_000 * 24 * 60 * 60 * 1_000_000)
	benchStep    = 10_000_000
)

type benchFinder struct{}

func (benchFinder) ByToken(_ context.Context, _ *model.Principal, tokens []string) ([]*registry.Device, error) {
	var n int64
	if _, err := fmt.Sscanf(tokens[0], "device-%d", &n); err != nil {
		return nil, err
	}
	d := &registry.Device{}
	d.ID = n
	return []*registry.Device{d}, nil
}

func (benchFinder) ByID(context.Context, *model.Principal, []int64) ([]*registry.Device, error) {
	return nil, nil
}

func benchSeries(b *testing.B) *series.Series {
	b.Helper()
	ctx := b.Context()
	st, err := sqlite.Open(ctx, filepath.Join(b.TempDir(), "weir.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := st.Close(); err != nil {
			b.Error(err)
		}
	})
	s, err := series.Open(ctx, series.Config{}, st, series.Options{})
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	offset, values := model.Offset(0), make([]int64, benchDevices+1)
	points := make([]series.Point, 250)
	for message := range 40 {
		for device := 1; device <= benchDevices; device++ {
			offset++
			for i := range points {
				at := benchDay + model.Micros(message*250+i)*benchStep + 1000*model.Micros(r.Int64N(101)-50)
				values[device] += r.Int64N(21) - 10
				points[i] = series.Point{TenantID: 1, Device: int64(device), DeviceToken: fmt.Sprintf("device-%d", device), Metric: "temp", Source: "mqtt1",
					Occurred: max(at, benchDay), Received: benchDay + 3*24*3600*1_000_000 + model.Micros(offset), Offset: offset, Index: uint32(i),
					Value: float64(values[device]) / 100, Unit: "°C", DataType: "double"}
			}
			if err := s.Put(ctx, points); err != nil {
				b.Fatal(err)
			}
		}
	}
	f := s.Freeze(offset)
	if err := f.Write(ctx, s.Generation()+1, func(fn func(store.Tx) error) error { return st.Write(ctx, store.Results, fn) }); err != nil {
		b.Fatal(err)
	}
	if err := st.Write(ctx, store.Durable, f.Publish); err != nil {
		b.Fatal(err)
	}
	f.Release()
	return s
}

// BenchmarkEvents asks what a dashboard asks, through the handler; layer=series asks the room below alone.
func BenchmarkEvents(b *testing.B) {
	readings := benchSeries(b)
	server := gql.New(gql.Config{})
	gql.RegisterEvents(server.Area("event-management", gql.TenantPlane), gql.EventDeps{Events: readings, Devices: benchFinder{}, Readings: hub.New[series.Point]("m", nil)})
	if err := server.Build(); err != nil {
		b.Fatal(err)
	}
	handler := server.Handler("event-management", as(member("acme", 1, model.EventRead)))
	const events = `query($c:EventSearchCriteria!){measurementEvents(criteria:$c){results{id deviceToken name value occurredTime} pagination{totalRecords}}}`
	const buckets = `query($c:MeasurementAggregationCriteria!){bucketedMeasurements(criteria:$c){bucketStart name avg min max count}}`
	text := func(m model.Micros) string { return time.UnixMicro(int64(m)).UTC().Format(time.RFC3339Nano) }
	const day = 24 * 60 * 60 * 1_000_000
	device, dayEnd, allEnd := int64(7), benchDay+day-1, benchDay+2*day
	start := benchDay
	for _, q := range []struct {
		name   string
		query  string
		vars   map[string]any
		member string
		want   int
		series func(context.Context) error
	}{
		{"buckets of a device and day at 5 min", buckets, map[string]any{"deviceToken": "device-7", "name": "temp", "startTime": text(benchDay), "endTime": text(dayEnd), "intervalSeconds": 300}, "bucketStart", 288,
			func(ctx context.Context) error {
				_, err := readings.Buckets(ctx, series.BucketQuery{TenantID: 1, Device: &device, Metric: "temp", Start: &start, End: &dayEnd, IntervalSeconds: 300})
				return err
			}},
		{"buckets of all at 1 h", buckets, map[string]any{"name": "temp", "endTime": text(allEnd), "intervalSeconds": 3600}, "bucketStart", 28,
			func(ctx context.Context) error {
				_, err := readings.Buckets(ctx, series.BucketQuery{TenantID: 1, Metric: "temp", End: &allEnd, IntervalSeconds: 3600})
				return err
			}},
		{"newest page of a device", events, map[string]any{"deviceToken": "device-7", "pageNumber": 1, "pageSize": 100}, "id", 100,
			func(ctx context.Context) error {
				_, err := readings.Measurements(ctx, series.Query{TenantID: 1, Device: &device})
				return err
			}},
		{"newest page of the tenant", events, map[string]any{"pageNumber": 1, "pageSize": 100}, "id", 100,
			func(ctx context.Context) error {
				_, err := readings.Measurements(ctx, series.Query{TenantID: 1})
				return err
			}},
		{"page 1,000 of the tenant", events, map[string]any{"pageNumber": 1000, "pageSize": 100}, "id", 100,
			func(ctx context.Context) error {
				_, err := readings.Measurements(ctx, series.Query{TenantID: 1, Page: series.Page{Number: 1000}})
				return err
			}},
	} {
		b.Run(q.name+"/layer=series", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := q.series(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(q.name+"/layer=http", func(b *testing.B) {
			body, err := json.Marshal(map[string]any{"query": q.query, "variables": map[string]any{"c": q.vars}})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
				r.Header.Set("Authorization", "Bearer x")
				handler.ServeHTTP(w, r)
				if n := strings.Count(w.Body.String(), `"`+q.member+`"`); n != q.want {
					b.Fatal(n, w.Body.String())
				}
			}
		})
	}
}
