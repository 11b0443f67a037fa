package series

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

func exec(tb testing.TB, st store.Store, query string, args ...any) {
	tb.Helper()
	err := st.Write(tb.Context(), store.Results, func(tx store.Tx) error {
		_, err := tx.Exec(query, args...)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// insertEvents writes row events as the applier does, each twice.
func insertEvents(tb testing.TB, st store.Store, rows ...store.EventRow) {
	tb.Helper()
	for range 2 {
		err := st.Write(tb.Context(), store.Results, func(tx store.Tx) error {
			for i := range rows {
				insert := map[model.EventType]func(store.Tx, *store.EventRow) error{model.LocationEvent: store.InsertLocation,
					model.AlertEvent: store.InsertAlert, model.StateChange: store.InsertStateChange}[rows[i].Type]
				if err := insert(tx, &rows[i]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
}

func row(typ model.EventType, offset model.Offset, index uint32, at model.Micros) store.EventRow {
	return store.EventRow{TenantID: 1, Device: 1, DeviceToken: "dev-1", Type: typ, Offset: offset, Index: index, Source: "mqtt1", AltID: "a1",
		Occurred: at, Received: at + 5, Location: model.Location{}, State: store.StateChange{}}
}

func ids(events []Event) []string {
	var out []string
	for i := range events {
		out = append(out, events[i].ID())
	}
	return out
}

func TestEventsOfAllTypesAreMergedInOneOrder(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{ChunkBytes: 1, ChunkReadings: 2, FullReadings: 2})
	location, alert, change := row(model.LocationEvent, 3, 0, day0), row(model.AlertEvent, 2, 1, day0+10), row(model.StateChange, 5, 0, day0+10)
	location.Location = model.Location{Latitude: 47.123456789, Longitude: -8.000000004, Elevation: 400.00005, Accuracy: math.NaN(), Speed: math.NaN(), Heading: 359.99994}
	alert.Alert = model.Alert{Type: "overheat", Level: 3, Message: "too hot", Source: "probe"}
	change.State = store.StateChange{State: model.Connected, Reason: "connect", Session: math.MaxUint64}
	other := row(model.AlertEvent, 9, 0, day0+500)
	other.TenantID = 2
	insertEvents(t, st, location, alert, change, other)
	put(t, s, reading(2, 1, "temp", day0+10, 20))
	put(t, s, reading(4, 2, "temp", day0+5, 21))
	want := []string{"dev-1:4:1790035200000010000:5.0", "dev-1:3:1790035200000010000:2.1", "dev-1:2:1790035200000010000:2.0",
		"dev-2:2:1790035200000005000:4.0", "dev-1:1:1790035200000000000:3.0"}
	for range 2 { // in the head, then in rows
		res, err := s.Events(t.Context(), Query{TenantID: 1})
		if err != nil || res.Total != 5 || !slices.Equal(ids(res.Events), want) {
			t.Fatalf("%v %+v", err, ids(res.Events))
		}
		if e := res.Events[0]; e.State != change.State || e.Source != "mqtt1" || e.AltID != "a1" || e.Received != day0+15 {
			t.Fatalf("%+v", e)
		}
		if e := res.Events[1]; e.Alert != alert.Alert {
			t.Fatalf("%+v", e)
		}
		l := res.Events[4].Location
		if l.Latitude != 47.12345679 || l.Longitude != -8 || l.Elevation != 400.0001 && l.Elevation != 400 || !math.IsNaN(l.Accuracy) || !math.IsNaN(l.Speed) || l.Heading != 359.9999 {
			t.Fatalf("%+v", l)
		}
		for i, id := range want { // a page of one, by before
			res, err := s.Events(t.Context(), Query{TenantID: 1, Before: id, Page: Page{Size: 1}})
			if err != nil || res.Total != int64(4-i) || i < 4 && !slices.Equal(ids(res.Events), want[i+1:i+2]) {
				t.Fatalf("before %s: %v %+v", id, err, res)
			}
			res, err = s.Events(t.Context(), Query{TenantID: 1, Page: Page{Number: i + 1, Size: 1}})
			if err != nil || !slices.Equal(ids(res.Events), want[i:i+1]) {
				t.Fatalf("page %d: %v %+v", i+1, err, res)
			}
		}
		if err := writeHead(s, 9); err != nil {
			t.Fatal(err)
		}
	}
	device, other2, end := int64(1), int64(7), day0+9
	for name, tc := range map[string]struct {
		run  func() (*Result, error)
		want []string
	}{
		"locations": {func() (*Result, error) { return s.Locations(t.Context(), Query{TenantID: 1}) }, want[4:]},
		"alerts":    {func() (*Result, error) { return s.Alerts(t.Context(), Query{TenantID: 1, Device: &device}) }, want[1:2]},
		"types": {func() (*Result, error) {
			return s.Events(t.Context(), Query{TenantID: 1, Types: []model.EventType{1, 4}})
		}, []string{want[0], want[4]}},
		"a device": {func() (*Result, error) {
			return s.Events(t.Context(), Query{TenantID: 1, Device: &device, Page: Page{Size: 3}})
		}, want[:3]},
		"no such device": {func() (*Result, error) { return s.Events(t.Context(), Query{TenantID: 1, Device: &other2}) }, nil},
		"another tenant": {func() (*Result, error) { return s.Events(t.Context(), Query{TenantID: 2, Device: &device, End: &end}) }, nil},
		"until":          {func() (*Result, error) { return s.Events(t.Context(), Query{TenantID: 1, End: &end}) }, want[3:]},
		"an anchor":      {func() (*Result, error) { return s.Events(t.Context(), Query{TenantID: 1, Anchors: []int64{4}}) }, nil},
		"no anchor":      {func() (*Result, error) { return s.Events(t.Context(), Query{TenantID: 1, Anchors: []int64{}}) }, nil},
		"past the end":   {func() (*Result, error) { return s.Events(t.Context(), Query{TenantID: 1, Page: Page{Number: 2}}) }, nil},
		"types without": {func() (*Result, error) {
			return s.Events(t.Context(), Query{TenantID: 1, Types: []model.EventType{0, 5, 6}})
		}, nil},
		"start after end": {func() (*Result, error) {
			e := end + 5
			return s.Events(t.Context(), Query{TenantID: 1, Start: &e, End: &end})
		}, nil},
	} {
		res, err := tc.run()
		if err != nil || !slices.Equal(ids(res.Events), tc.want) {
			t.Errorf("%s: %v %+v, want %v", name, err, ids(res.Events), tc.want)
		}
	}
}

func TestManyRowEventsAreWalkedInBatches(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{})
	var rows []store.EventRow
	for i := range 3 * fullBatch {
		rows = append(rows, row(model.AlertEvent, model.Offset(i/3+1), uint32(i%3), day0+model.Micros(i/10)))
	}
	insertEvents(t, st, rows...)
	var got []string
	for page := 1; ; page++ {
		res, err := s.Alerts(t.Context(), Query{TenantID: 1, Page: Page{Number: page, Size: 50}})
		if err != nil || res.Total != int64(len(rows)) {
			t.Fatalf("%+v %v", res, err)
		}
		got = append(got, ids(res.Events)...)
		if len(res.Events) < 50 {
			break
		}
	}
	var want []string
	for _, r := range slices.Backward(rows) {
		want = append(want, EventID("dev-1", model.AlertEvent, r.Occurred, r.Offset, r.Index))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%d events, want %d", len(got), len(want))
	}
}

func TestBothEndsOfARangeAreInclusiveAndAMicrosecondCounts(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{ChunkBytes: 1, ChunkReadings: 4, FullReadings: 2})
	for i := range 6 {
		put(t, s, reading(model.Offset(i+1), 1, "temp", day0+model.Micros(i), float64(i)))
	}
	from, to := day0+1, day0+4
	for range 2 {
		res, err := s.Measurements(t.Context(), Query{TenantID: 1, Start: &from, End: &to})
		if err != nil || res.Total != 4 || res.Events[0].Value != 4 || res.Events[3].Value != 1 {
			t.Fatalf("%+v %v", res, err)
		}
		if err := writeHead(s, 6); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBucketsRefuseWhatTheyMust(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{Settings: Settings{SeriesPerDevice: 10}})
	if _, err := s.Buckets(t.Context(), BucketQuery{TenantID: 1}); model.CodeOf(err) != model.CodeInvalidInput {
		t.Fatalf("interval 0: %v", err)
	}
	const each = 100
	var record []Point
	for i := range MaxBuckets {
		record = append(record, reading(model.Offset(i/each+1), 1, "m", day0+model.Micros(i)*1_000_000, 1))
		if len(record) == each {
			put(t, s, record...)
			record = record[:0]
		}
	}
	q := BucketQuery{TenantID: 1, IntervalSeconds: 1}
	if got, err := s.Buckets(t.Context(), q); err != nil || len(got) != MaxBuckets {
		t.Fatalf("%d buckets, %v", len(got), err)
	}
	put(t, s, reading(MaxBuckets, 1, "m", day0-1_000_000, 1))
	if _, err := s.Buckets(t.Context(), q); model.CodeOf(err) != model.CodeLimitExceeded {
		t.Fatalf("one more: %v", err)
	}
	q.IntervalSeconds, q.Types = 1_000_000, []model.EventType{model.LocationEvent}
	if got, err := s.Buckets(t.Context(), q); err != nil || len(got) != 0 {
		t.Fatalf("without measurements: %d, %v", len(got), err)
	}
}

func TestBucketsOfDaysAreAnsweredFromSummariesAndEqualTheRawOnes(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{ChunkBytes: 1, ChunkReadings: 50, FullReadings: 50})
	f := newFleet(3, 600_000_000)
	for range 400 {
		f.round(t, s)
	}
	raw, err := s.Buckets(t.Context(), BucketQuery{TenantID: 1, IntervalSeconds: 86400, Metric: "temp"})
	if err != nil || len(raw) != 3 {
		t.Fatalf("%d %v", len(raw), err)
	}
	if err := writeHead(s, f.offset); err != nil {
		t.Fatal(err)
	}
	// A summary changed by hand shows that it is what the answer is made of: every chunk lies in one day.
	exec(t, st, `UPDATE series_chunks SET total = total + 1000`)
	got, err := s.Buckets(t.Context(), BucketQuery{TenantID: 1, IntervalSeconds: 86400, Metric: "temp"})
	if err != nil || len(got) != 3 || got[0].Count != raw[0].Count || got[0].Sum < raw[0].Sum+900 {
		t.Fatalf("%+v, raw %+v, %v", got, raw, err)
	}
	exec(t, st, `UPDATE series_chunks SET total = total - 1000`)
	if got, err = s.Buckets(t.Context(), BucketQuery{TenantID: 1, IntervalSeconds: 86400, Metric: "temp"}); err != nil || !slices.EqualFunc(got, raw, sameBucket) {
		t.Fatalf("%+v, raw %+v, %v", got, raw, err)
	}
}

func TestADamagedRowIsAnErrorThatNamesIt(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{ChunkBytes: 1, ChunkReadings: 10, FullReadings: 8})
	for i := range 25 {
		put(t, s, reading(model.Offset(i+1), 1, "temp", day0+model.Micros(i)*7_000_000, float64(i)))
	}
	if err := writeHead(s, 25); err != nil {
		t.Fatal(err)
	}
	tables := []string{"series_chunks", "series_blocks", "series"}
	for _, table := range tables {
		exec(t, st, `CREATE TABLE sound_`+table+` AS SELECT * FROM `+table)
	}
	queries := map[string]func(*Series) error{
		"page": func(s *Series) error { _, err := s.Measurements(t.Context(), Query{TenantID: 1}); return err },
		"buckets": func(s *Series) error {
			_, err := s.Buckets(t.Context(), BucketQuery{TenantID: 1, IntervalSeconds: 1})
			return err
		},
	}
	for name, tc := range map[string]struct{ sql, row string }{
		"a flipped bit in a chunk":     {`UPDATE series_chunks SET data = substr(data, 1, 20) || x'ff' || substr(data, 22) WHERE id = 1`, "series_chunks 1"},
		"a cut chunk":                  {`UPDATE series_chunks SET data = substr(data, 1, 20) WHERE id = 1`, "series_chunks 1"},
		"a chunk with a wrong count":   {`UPDATE series_chunks SET n = n + 1 WHERE id = 1`, "series_chunks 1"},
		"another chunk's blob":         {`UPDATE series_chunks SET data = (SELECT data FROM series_chunks WHERE id = 2) WHERE id = 1`, "series_chunks 1"},
		"a flipped bit in a block":     {`UPDATE series_blocks SET data = substr(data, 1, 20) || x'ff' || substr(data, 22)`, "series_blocks 1"},
		"a block with a wrong count":   {`UPDATE series_blocks SET n = n + 1`, "series_blocks 1"},
		"a series that does not exist": {`DELETE FROM series WHERE id = 512`, "series"},
	} {
		exec(t, st, tc.sql)
		for query, run := range queries {
			if err := run(s); !errors.Is(err, store.ErrDamaged) || !strings.Contains(fmt.Sprint(err), tc.row) {
				t.Errorf("%s, %s: %v", name, query, err)
			}
		}
		for _, table := range tables {
			exec(t, st, `DELETE FROM `+table)
			exec(t, st, `INSERT INTO `+table+` SELECT * FROM sound_`+table)
		}
		for query, run := range queries {
			if err := run(s); err != nil {
				t.Fatalf("%s after %s: %v", query, name, err)
			}
		}
	}
}

func TestANewerRowFormatIsSaidToBeNewer(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{ChunkBytes: 1, ChunkReadings: 4})
	for i := range 4 {
		put(t, s, reading(model.Offset(i+1), 1, "temp", day0+model.Micros(i), 1))
	}
	if err := writeHead(s, 4); err != nil {
		t.Fatal(err)
	}
	var blob []byte
	if err := st.Read(t.Context(), func(tx store.Tx) error { return tx.QueryRow(`SELECT data FROM series_chunks`).Scan(&blob) }); err != nil {
		t.Fatal(err)
	}
	blob[0] = chunkVersion + 1
	exec(t, st, `UPDATE series_chunks SET data = ?`, resealed(blob))
	if _, err := s.Measurements(t.Context(), Query{TenantID: 1}); !errors.Is(err, store.ErrVersion) {
		t.Fatal(err)
	}
}

func TestLatestLocationIsMergedFromHeadsAndRows(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{})
	at := func(offset model.Offset, device int64, occurred model.Micros, lat float64) {
		s.PutLocation(&store.LatestLocation{Device: device, TenantID: 1, DeviceToken: fmt.Sprintf("dev-%d", device), Occurred: occurred, Updated: occurred + 7,
			Location: model.Location{Latitude: lat, Longitude: math.NaN(), Elevation: math.NaN(), Accuracy: math.NaN(), Speed: 1.23456, Heading: math.NaN()}}, offset)
	}
	check := func(want ...float64) {
		t.Helper()
		ls, err := s.LatestLocations(t.Context(), []int64{1, 2, 3})
		var got []float64
		for _, l := range ls {
			got = append(got, l.Location.Latitude)
			if !math.IsNaN(l.Location.Longitude) || l.Location.Speed != 1.2346 || l.Created != day0+7 {
				t.Fatalf("%+v", l)
			}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%v %v, want %v", got, err, want)
		}
	}
	check()
	at(1, 1, day0, 1)
	at(2, 1, day0, 2) // not strictly newer
	check(1)
	f := s.Freeze(2)
	at(3, 1, day0+1, 3)
	at(4, 3, day0, 4)
	check(3, 4)
	if err := errors.Join(f.Write(t.Context(), 1, runner(st)), st.Write(t.Context(), store.Durable, f.Publish)); err != nil {
		t.Fatal(err)
	}
	check(3, 4)
	f.Release()
	check(3, 4)
	if err := writeHead(s, 4); err != nil {
		t.Fatal(err)
	}
	at(4, 1, day0+50, 9) // a replay of what rows hold
	at(5, 1, day0, 9)    // late
	check(3, 4)
	if err := s.RemoveDevice(t.Context(), 1, 1); err != nil {
		t.Fatal(err)
	}
	if err := writeHead(s, 6); err != nil {
		t.Fatal(err)
	}
	check(4)
}

func TestBeforeMustBeAnEventsID(t *testing.T) {
	t.Parallel()
	s := open(t, fixture.Store(t), Config{})
	for _, id := range []string{"x", ":::", "d:2:3", "d:2:1:5", "d:2:x:5.1", "d:2:1:-5.1", "d:2:1:5.-1", "d:2:1:5.1:6", strings.Repeat("x", 200)} {
		_, err := s.Events(t.Context(), Query{TenantID: 1, Before: id})
		if model.CodeOf(err) != model.CodeInvalidInput || !strings.HasPrefix(err.Error(), "before: ") || len(err.Error()) > 150 {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, err := s.Events(t.Context(), Query{TenantID: 1, Before: "d:2:1000:5.1", Page: Page{Number: 2}}); model.CodeOf(err) != model.CodeInvalidInput {
		t.Errorf("page 2: %v", err)
	}
}

func FuzzParseEventID(f *testing.F) {
	for _, id := range []string{"dev-1:2:1790035200000000000:17.3", "d:1:-1000:0.0", "d:2:x:5.1", ":::", "a:b:c:d.e"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		p, err := parseEventID(id)
		if err != nil {
			return
		}
		again, err := parseEventID(EventID("d", model.AlertEvent, p.at, p.offset, p.index))
		if err != nil || again != p {
			t.Fatalf("%q: %+v became %+v, %v", id, p, again, err)
		}
	})
}

func TestPageNumbersAndSizesAreBounded(t *testing.T) {
	for in, want := range map[Page]Page{{}: {1, 100}, {-1, -1}: {1, 100}, {2, 1000}: {2, 1000}, {3, 1001}: {3, 1000}, {1, 1}: {1, 1}} {
		if got := in.normal(); got != want {
			t.Errorf("%+v became %+v, want %+v", in, got, want)
		}
	}
}

func TestOpenReportsAStoreThatCannotBeRead(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	exec(t, st, `DROP TABLE series_blocks`)
	if _, err := Open(t.Context(), Config{}, st, Options{}); err == nil {
		t.Fatal("opened without its table")
	}
}
