package series

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

// TestMain has the race detector see fewer random runs: it makes the store some twenty times slower.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); underRace && f.Value.String() == f.DefValue {
		if err := f.Value.Set("20"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

const day0 model.Micros = 1_790_035_200_000_000 // a UTC midnight

func open(tb interface{ Fatal(...any) }, st store.Store, cfg Config) *Series {
	s, err := Open(context.Background(), cfg, st, Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// runner runs the slices of a head write on a store.
func runner(st store.Store) func(func(store.Tx) error) error {
	return func(fn func(store.Tx) error) error { return st.Write(context.Background(), store.Results, fn) }
}

// writeHead freezes at a place, writes, flips and releases.
func writeHead(s *Series, at model.Offset) error {
	f := s.Freeze(at)
	if err := f.Write(context.Background(), s.Generation()+1, runner(s.st)); err != nil {
		return err
	}
	if err := s.st.Write(context.Background(), store.Durable, f.Publish); err != nil {
		return err
	}
	f.Release()
	return nil
}

// plain is the model: all readings, in the order of the log.
type plain struct {
	log [][]Point
}

func (m *plain) points() []Point { return slices.Concat(m.log...) }

func (m *plain) events(q Query) []Event {
	sel, err := q.selection()
	if err != nil {
		panic(err)
	}
	var out []Event
	for _, p := range m.points() {
		at := place{p.Occurred, p.Offset, p.Index}
		if p.TenantID != q.TenantID || q.Device != nil && p.Device != *q.Device || p.Occurred < sel.from || p.Occurred > sel.to ||
			q.Anchors != nil && (p.Anchors == 0 || !slices.Contains(q.Anchors, p.Anchors)) || sel.before != nil && !at.less(*sel.before) {
			continue
		}
		out = append(out, Event{Type: model.MeasurementEvent, Device: p.Device, DeviceToken: p.DeviceToken, Source: p.Source, AltID: p.AltID,
			Anchors: p.Anchors, Occurred: p.Occurred, Received: p.Received, Offset: p.Offset, Index: p.Index, Metric: p.Metric, Value: p.Value,
			Classifier: p.Classifier, HasClassifier: p.HasClassifier, Unit: p.Unit, DataType: p.DataType, Mark: p.Mark})
	}
	slices.SortFunc(out, func(a, b Event) int {
		return place{b.Occurred, b.Offset, b.Index}.compare(place{a.Occurred, a.Offset, a.Index})
	})
	return out
}

func (m *plain) page(q Query) ([]Event, int64) {
	all := m.events(q)
	p := q.Page.normal()
	from := min(len(all), (p.Number-1)*p.Size)
	return all[from:min(len(all), from+p.Size)], int64(len(all))
}

func (m *plain) buckets(q BucketQuery) []Bucket {
	by := map[bucketKey]*Bucket{}
	names := map[string]int32{}
	for _, e := range m.events(Query{TenantID: q.TenantID, Device: q.Device, Start: q.Start, End: q.End, Anchors: q.Anchors}) {
		if q.Metric != "" && e.Metric != q.Metric {
			continue
		}
		us := q.IntervalSeconds * 1_000_000
		start := int64(e.Occurred) - ((int64(e.Occurred)%us)+us)%us
		if _, ok := names[e.Metric]; !ok {
			names[e.Metric] = int32(len(names))
		}
		k := bucketKey{start, names[e.Metric]}
		b := by[k]
		if b == nil {
			b = &Bucket{Start: model.Micros(start), Metric: e.Metric, Min: e.Value, Max: e.Value}
			by[k] = b
		}
		b.Count++
		b.Sum += e.Value
		b.Min, b.Max = min(b.Min, e.Value), max(b.Max, e.Value)
	}
	out := make([]Bucket, 0, len(by))
	for _, b := range by {
		out = append(out, *b)
	}
	slices.SortFunc(out, func(a, b Bucket) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Metric, b.Metric)) })
	return out
}

func (m *plain) latest(device int64) map[string]store.LatestMeasurement {
	out := map[string]store.LatestMeasurement{}
	for _, p := range m.points() {
		have, ok := out[p.Metric]
		if p.Device != device || ok && p.Occurred <= have.Occurred {
			continue
		}
		created := have.Created
		if !ok {
			created = p.Received
		}
		out[p.Metric] = store.LatestMeasurement{Device: device, DeviceToken: p.DeviceToken, Metric: p.Metric, Value: p.Value, Classifier: p.Classifier,
			HasClassifier: p.HasClassifier, Unit: p.Unit, DataType: p.DataType, Mark: p.Mark, Occurred: p.Occurred, Created: created, Updated: p.Received}
	}
	return out
}

// machine drives a room and the model side by side.
type machine struct {
	st     store.Store
	cfg    Config
	s      *Series
	m      plain
	frozen *Frozen
	tenant int64
	offset *model.Offset
	now    model.Micros
}

func (x *machine) drawPoint(t *rapid.T, i int) Point {
	device := rapid.Int64Range(1, 4).Draw(t, "device")
	x.now += model.Micros(rapid.Int64Range(0, 60_000_000).Draw(t, "passes"))
	p := Point{TenantID: x.tenant + device%2, Device: 10*x.tenant + device, DeviceToken: fmt.Sprintf("dev-%d", device),
		Metric: rapid.SampledFrom([]string{"temp", "hum", "volt"}).Draw(t, "metric"), Source: rapid.SampledFrom([]string{"mqtt1", "mqtt1", "http1"}).Draw(t, "source"),
		Occurred: x.now, Received: x.now + 1500, Offset: *x.offset, Index: uint32(i), Unit: "u", DataType: "double",
		Value: rapid.OneOf(rapid.Map(rapid.Int64Range(-5000, 5000), func(v int64) float64 { return float64(v) / 100 }), rapid.Float64Range(-1e6, 1e6)).Draw(t, "value")}
	p.Mark = rapid.SampledFrom([]model.RangeMark{model.InRange, model.InRange, model.Flagged, model.Clamped}).Draw(t, "mark")
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		p.Occurred -= model.Micros(rapid.Int64Range(0, 3*microsPerDay).Draw(t, "late by"))
	case 1:
		p.Occurred = day0 + model.Micros(rapid.Int64Range(-2, 2).Draw(t, "edge of a day"))
	case 2:
		p.AltID = rapid.StringMatching(`[a-c]{1,4}`).Draw(t, "altId")
	case 3:
		p.Classifier, p.HasClassifier = rapid.Int32().Draw(t, "classifier"), true
	case 4:
		p.Anchors = rapid.Int64Range(1, 2).Draw(t, "anchors")
	case 5:
		p.Occurred = model.Micros(rapid.SampledFrom([]int64{0, -1, -microsPerDay, 1, math.MinInt64 / 1000, math.MaxInt64 / 1000}).Draw(t, "far"))
	}
	return p
}

func (x *machine) put(t *rapid.T) {
	for range rapid.IntRange(1, 12).Draw(t, "records") {
		*x.offset++
		var record []Point
		for i := range rapid.IntRange(1, 4).Draw(t, "readings") {
			record = append(record, x.drawPoint(t, i))
		}
		if err := x.s.Put(context.Background(), record); err != nil {
			t.Fatal(err)
		}
		x.m.log = append(x.m.log, record)
	}
}

func (x *machine) freeze(t *rapid.T) {
	if f := x.s.Freeze(*x.offset); (f == nil) != (x.frozen != nil) {
		t.Fatalf("freeze gave %v while one is outstanding: %v", f, x.frozen != nil)
	} else if f != nil {
		x.frozen = f
	}
}

func (x *machine) write(t *rapid.T) {
	if x.frozen == nil {
		t.Skip()
	}
	if err := x.frozen.Write(context.Background(), x.s.Generation()+1, runner(x.st)); err != nil {
		t.Fatal(err)
	}
}

func (x *machine) flip(t *rapid.T) {
	if x.frozen == nil || x.frozen.gen == 0 {
		t.Skip()
	}
	if err := x.st.Write(context.Background(), store.Durable, x.frozen.Publish); err != nil {
		t.Fatal(err)
	}
	if rapid.Bool().Draw(t, "a query before the release") {
		x.query(t)
	}
	x.frozen.Release()
	x.frozen = nil
}

// crash opens the room again, whatever was under way, and replays the log behind the head offset.
func (x *machine) crash(t *rapid.T) {
	x.frozen = nil
	x.s = open(t, x.st, x.cfg)
	for _, record := range x.m.log {
		if record[0].Offset > x.s.HeadOffset() || rapid.Bool().Draw(t, "what rows hold is replayed too") {
			if err := x.s.Put(context.Background(), record); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// merge merges what is due, as of the day or of a far later one, when every day is over.
func (x *machine) merge(t *rapid.T) {
	now := x.now
	if rapid.Bool().Draw(t, "every day is over") {
		now += 1000 * microsPerDay
	}
	if _, err := x.s.Merge(context.Background(), now, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
}

func (x *machine) drawQuery(t *rapid.T) Query {
	q := Query{TenantID: x.tenant + rapid.Int64Range(0, 1).Draw(t, "tenant"), Page: Page{rapid.IntRange(0, 4).Draw(t, "page"), rapid.IntRange(1, 40).Draw(t, "size")}}
	at := func(name string) *model.Micros {
		if points := x.m.points(); len(points) > 0 && rapid.Bool().Draw(t, name) {
			m := rapid.SampledFrom(points).Draw(t, name+" at").Occurred
			return &m
		}
		return nil
	}
	q.Start, q.End = at("start"), at("end")
	if rapid.Bool().Draw(t, "of one device") {
		d := 10*x.tenant + rapid.Int64Range(1, 5).Draw(t, "device")
		q.Device = &d
	}
	if rapid.IntRange(0, 4).Draw(t, "anchored") == 0 {
		q.Anchors = []int64{2}
	}
	return q
}

func (x *machine) query(t *rapid.T) {
	ctx := context.Background()
	q := x.drawQuery(t)
	compare := func(q Query) {
		want, total := x.m.page(q)
		res, err := x.s.Measurements(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		if res.Total != total {
			t.Fatalf("%+v: total %d, want %d", q, res.Total, total)
		}
		if !slices.EqualFunc(res.Events, want, func(a, b Event) bool {
			a.series = 0
			a.Location, b.Location = model.Location{}, model.Location{}
			return a == b
		}) {
			t.Fatalf("%+v:\n got %+v\nwant %+v", q, res.Events, want)
		}
	}
	compare(q)
	if all := x.m.events(q); len(all) > 0 {
		q.Page.Number = 1
		e := rapid.SampledFrom(all).Draw(t, "before")
		q.Before = e.ID()
		compare(q)
	}
	b := BucketQuery{TenantID: q.TenantID, Device: q.Device, Start: q.Start, End: q.End, Anchors: q.Anchors,
		Metric:          rapid.SampledFrom([]string{"", "temp"}).Draw(t, "metric"),
		IntervalSeconds: rapid.SampledFrom([]int64{1, 7, 60, 3600, 86400, 7 * 86400, math.MaxInt32}).Draw(t, "interval")}
	got, err := x.s.Buckets(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	if want := x.m.buckets(b); !slices.EqualFunc(got, want, sameBucket) {
		t.Fatalf("%+v:\n got %+v\nwant %+v", b, got, want)
	}
	x.latest(t)
}

func sameBucket(a, b Bucket) bool {
	close := math.Abs(a.Sum-b.Sum) <= 1e-9*max(1, math.Abs(a.Sum), math.Abs(b.Sum))*float64(a.Count)
	a.Sum, b.Sum = 0, 0
	return close && a == b
}

func (x *machine) latest(t *rapid.T) {
	device := 10*x.tenant + rapid.Int64Range(1, 5).Draw(t, "device of the latest")
	ms, err := x.s.LatestMeasurements(context.Background(), device)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]store.LatestMeasurement{}
	for _, m := range ms {
		m.ID = 0
		got[m.Metric] = m
	}
	if want := x.m.latest(device); !maps.Equal(got, want) || len(ms) != len(want) {
		t.Fatalf("latest of %d:\n got %+v\nwant %+v", device, got, want)
	}
}

func TestReadsEqualThePlainModelThroughFreezesMergesCrashesAndReplays(t *testing.T) {
	st := fixture.Store(t)
	var tenant int64
	offset := model.Offset(0)
	rapid.Check(t, func(t *rapid.T) {
		tenant += 10
		x := &machine{st: st, cfg: Config{ChunkReadings: 8, FullReadings: 5}, tenant: tenant, offset: &offset, now: day0}
		x.s = open(t, st, x.cfg)
		offset = max(offset, x.s.HeadOffset())
		t.Repeat(map[string]func(*rapid.T){"put": x.put, "put more": x.put, "freeze": x.freeze, "write": x.write, "flip": x.flip,
			"crash": x.crash, "query": x.query, "merge": x.merge})
		x.query(t)
	})
}
