package series

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

// reading is a point of the simple kind that most tests need.
func reading(offset model.Offset, device int64, metric string, at model.Micros, v float64) Point {
	return Point{TenantID: 1, Device: device, DeviceToken: fmt.Sprintf("dev-%d", device), Metric: metric, Source: "mqtt1", Occurred: at,
		Received: at + 1000, Offset: offset, Value: v, Unit: "°C", DataType: "double"}
}

func put(tb testing.TB, s *Series, points ...Point) {
	tb.Helper()
	if err := s.Put(context.Background(), points); err != nil {
		tb.Fatal(err)
	}
}

// count sums the account, to see that what grows shrinks again.
type count struct{ atomic.Int64 }

func (c *count) Grow(n int64)   { c.Add(n) }
func (c *count) Shrink(n int64) { c.Add(-n) }

func TestNoReadingIsMissingOrDoubledWhileHeadsAreWritten(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{ChunkBytes: 1, ChunkReadings: 16, FullReadings: 8})
	s.captureSlice = 1
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const records, devices = 1500, 5
	var applied atomic.Int64
	writer := make(chan error, 1)
	go func() {
		defer cancel()
		for i := range int64(records) {
			o := model.Offset(i + 1)
			at := day0 + model.Micros(i)*1_000_000
			// Two readings of one record: readers see both or none.
			if err := s.Put(context.Background(), []Point{reading(o, i%devices+1, "a", at, float64(i)), reading(o, i%devices+1, "b", at, 1)}); err != nil {
				writer <- err
				return
			}
			applied.Store(i + 1)
			if i%20 == 19 {
				if err := writeHead(s, o); err != nil {
					writer <- err
					return
				}
			}
		}
		writer <- nil
	}()
	reads := 0
	for done := false; !done; reads++ {
		done = ctx.Err() != nil
		checkRead(t, s, &applied, reads)
	}
	if err := <-writer; err != nil {
		t.Fatal(err)
	}
	checkRead(t, s, &applied, 0)
	t.Logf("%d reads during %d head writes", reads, records/20)
}

func checkRead(t *testing.T, s *Series, applied *atomic.Int64, turn int) {
	t.Helper()
	q := Query{TenantID: 1, Page: Page{Size: 1000}}
	device := int64(turn%5 + 1)
	if turn%2 == 1 {
		q.Device = &device
	}
	before := applied.Load()
	res, err := s.Measurements(context.Background(), q)
	after := applied.Load()
	if err != nil {
		t.Fatal(err)
	}
	perReader := func(n int64) int64 {
		if q.Device == nil {
			return 2 * n
		}
		return 2 * ((n - device + 5) / 5)
	}
	if res.Total < perReader(before) || res.Total > perReader(after+1) || res.Total%2 != 0 {
		t.Fatalf("turn %d: %d readings, between %d and %d were applied", turn, res.Total, perReader(before), perReader(after+1))
	}
	if want := min(res.Total, 1000); int64(len(res.Events)) != want {
		t.Fatalf("%d events on the page of %d in all", len(res.Events), res.Total)
	}
	step := uint64(1)
	if q.Device != nil {
		step = 5
	}
	for i := 2; i < len(res.Events); i += 2 {
		if got := uint64(res.Events[i-2].Offset - res.Events[i].Offset); got != step {
			t.Fatalf("turn %d: offset %d follows %d", turn, res.Events[i].Offset, res.Events[i-2].Offset)
		}
	}
	latest, err := s.LatestMeasurements(context.Background(), 1)
	if err != nil || before > 5 && (len(latest) != 2 || int64(latest[0].Value) < before-1-5) {
		t.Fatalf("%v, latest %+v after %d", err, latest, before)
	}
}

// dump returns every row of the room's tables as text.
func dump(t *testing.T, st store.Store) string {
	t.Helper()
	return fixture.Dump(t, st, "series_head", "series", "series_chunks", "series_blocks", "latest_measurements", "latest_locations")
}

var errDisk = errors.New("disk full")

func TestTheSameLogGivesTheSameRowsThroughFailuresAndRestarts(t *testing.T) {
	t.Parallel()
	var log [][]Point
	for i := range 600 {
		o := model.Offset(i + 1)
		at := day0 + model.Micros(i)*40_000_000 - model.Micros(i%7)*50_000_000
		p := reading(o, int64(i%9+1), fmt.Sprintf("m%d", i%4), at, float64(i%50)/10)
		p.TenantID = p.Device%2 + 1
		q := reading(o, p.Device, "x", at-microsPerDay*model.Micros(i%3), float64(i))
		q.TenantID, q.Source = p.TenantID, []string{"mqtt1", "http1"}[i%2]
		log = append(log, []Point{p, q})
	}
	cfg := Config{ChunkBytes: 1, ChunkReadings: 4, FullReadings: 3}
	// run applies the log with heads at fixed places; fail says whether a slice of a head write fails.
	run := func(fail func(slice int) bool, restart bool) string {
		st := fixture.Store(t)
		s := open(t, st, cfg)
		for i := 0; i < len(log); i++ {
			put(t, s, log[i]...)
			if (i+1)%100 != 0 {
				continue
			}
			f := s.Freeze(log[i][0].Offset)
			slice := 0
			err := f.Write(t.Context(), s.Generation()+1, func(fn func(store.Tx) error) error {
				if slice++; fail(slice) {
					return errDisk
				}
				return runner(st)(fn)
			})
			if err != nil && restart {
				s = open(t, st, cfg)
				i = int(s.HeadOffset()) - 1
				fail = func(int) bool { return false }
				continue
			}
			if err != nil {
				err = f.Write(t.Context(), s.Generation()+1, runner(st))
			}
			if err == nil {
				err = st.Write(t.Context(), store.Durable, f.Publish)
			}
			if err != nil {
				t.Fatal(err)
			}
			f.Release()
		}
		return dump(t, st)
	}
	never := func(int) bool { return false }
	want := run(never, false)
	if strings.Count(want, "series_chunks:") < 10 || strings.Count(want, "series_blocks:") < 10 {
		t.Fatalf("the log makes too few rows to be a test:\n%s", want)
	}
	third := func(slice int) bool { return slice == 3 }
	if got := run(third, false); got != want {
		t.Errorf("rows differ after a failure that was tried again")
	}
	if got := run(third, true); got != want {
		t.Errorf("rows differ after a restart in the middle of a head write")
	}
}

func TestAFailedOrUnwrittenHeadCannotBeFlippedAndIsStillRead(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{})
	put(t, s, reading(1, 1, "temp", day0, 20))
	f := s.Freeze(1)
	if s.Freeze(1) != nil {
		t.Fatal("a second freeze while the first is outstanding")
	}
	if err := st.Write(t.Context(), store.Durable, f.Publish); err == nil {
		t.Fatal("flipped a head that was never written")
	}
	if err := f.Write(t.Context(), 1, func(func(store.Tx) error) error { return errDisk }); !errors.Is(err, errDisk) {
		t.Fatal(err)
	}
	put(t, s, reading(2, 1, "temp", day0+1, 21))
	res, err := s.Measurements(t.Context(), Query{TenantID: 1})
	if err != nil || res.Total != 2 || s.HeadOffset() != 0 {
		t.Fatalf("%+v %v", res, err)
	}
}

func TestAReleasedHeadGivesItsMemoryBackAndSilentDevicesAreForgotten(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	var account count
	s, err := Open(t.Context(), Config{ChunkBytes: 1, ChunkReadings: 8}, st, Options{Account: &account})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		put(t, s, reading(model.Offset(i+1), int64(i%10+1), "temp", day0+model.Micros(i), 1))
	}
	s.PutLocation(&store.LatestLocation{Device: 1, TenantID: 1, Updated: day0}, 101)
	if s.Stats().Bytes <= 0 || account.Load() != s.Bytes() {
		t.Fatalf("%d bytes, account says %d", s.Bytes(), account.Load())
	}
	for head := range 2 {
		if err := writeHead(s, model.Offset(200+head)); err != nil {
			t.Fatal(err)
		}
	}
	if s.Bytes() != 0 || account.Load() != 0 || len(s.devices) != 0 {
		t.Fatalf("%d bytes, account %d, %d devices", s.Bytes(), account.Load(), len(s.devices))
	}
	// A device that speaks again goes on with its series.
	put(t, s, reading(300, 3, "temp", day0+1000, 2))
	device := int64(3)
	res, err := s.Measurements(t.Context(), Query{TenantID: 1, Device: &device})
	if err != nil || res.Total != 11 || s.tenants[1].count != 10 {
		t.Fatalf("%+v %v, %d series", res, err, s.tenants[1].count)
	}
}

// heap returns what the heap holds once nothing more is freed: earlier tests may leave garbage that several collections and
// their finalizers remove. Nothing else runs beside a test that is not parallel.
func heap() int64 {
	var m runtime.MemStats
	for least := uint64(math.MaxUint64); ; least = m.HeapAlloc {
		runtime.GC()
		if runtime.ReadMemStats(&m); m.HeapAlloc >= least {
			return int64(least)
		}
	}
}

func TestAnActiveSeriesTakesAtMost512BytesBesidesItsReadings(t *testing.T) {
	st := fixture.Store(t)
	s := open(t, st, Config{})
	const n = 20_000
	tokens := make([]string, n)
	for i := range tokens {
		tokens[i] = fmt.Sprintf("device-%d", i)
	}
	before := heap()
	for i := range n {
		// As if read from the store, whose caches are not what is measured.
		dev := &device{id: int64(i + 1), tenantID: 1, heard: s.active.seq}
		s.devices[dev.id] = dev
		s.active.devices = append(s.active.devices, dev)
		s.charge(s.active, deviceBytes)
		p := reading(model.Offset(i+1), dev.id, "temperature", day0+model.Micros(i), 20)
		p.DeviceToken = tokens[i]
		put(t, s, p)
	}
	after := heap()
	readings := int64(0)
	for _, a := range s.active.acts {
		readings += int64(cap(a.runs.buf))
	}
	each := (after - before - readings) / n
	t.Logf("%d bytes a series besides readings; the account says %d", each, (s.Bytes()-readings)/n)
	if each > 512 {
		t.Fatalf("%d bytes a series", each)
	}
	runtime.KeepAlive(s)
}

func TestADeviceHeardInEveryHeadStaysKnownWhileItsNewSeriesWaitForTheirRows(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{})
	put(t, s, reading(1, 1, "a", day0, 1), reading(1, 2, "a", day0, 1))
	if err := writeHead(s, 1); err != nil {
		t.Fatal(err)
	}
	put(t, s, reading(2, 1, "a", day0, 1))
	f := s.Freeze(2)
	put(t, s, reading(3, 1, "b", day0, 1)) // new, and only in the active head
	put(t, s, reading(3, 2, "b", day0, 1)) // of a device that the frozen head lacks
	if err := errors.Join(f.Write(t.Context(), 2, runner(st)), st.Write(t.Context(), store.Durable, f.Publish)); err != nil {
		t.Fatal(err)
	}
	f.Release()
	put(t, s, reading(4, 1, "b", day0, 2), reading(4, 2, "b", day0, 2))
	if err := writeHead(s, 4); err != nil {
		t.Fatal(err)
	}
	if s.tenants[1].count != 4 {
		t.Fatalf("%d series of two devices with two metrics", s.tenants[1].count)
	}
}

func TestTheSameLogMakesAHeadOfTheSameSize(t *testing.T) {
	t.Parallel()
	size := func(freezes bool) int64 {
		s := open(t, fixture.Store(t), Config{ChunkBytes: 1, ChunkReadings: 64})
		f := newFleet(3, 10_000_000)
		for range 50 {
			f.round(t, s)
		}
		frozen := s.Freeze(f.offset)
		if freezes { // an earlier head may be written by now or not
			if err := errors.Join(frozen.Write(t.Context(), 1, runner(s.st)), s.st.Write(t.Context(), store.Durable, frozen.Publish)); err != nil {
				t.Fatal(err)
			}
			frozen.Release()
		}
		for range 100 {
			f.round(t, s)
		}
		return s.Bytes()
	}
	if a, b := size(true), size(false); a != b || a == 0 {
		t.Fatalf("%d and %d bytes", a, b)
	}
}

func TestSeriesBeyondTheLimitsAreNotAdmitted(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{Settings: Settings{SeriesPerDevice: 3, SeriesPerTenant: 5}})
	metrics := func(names ...string) []model.Reading {
		var out []model.Reading
		for _, n := range names {
			out = append(out, model.Reading{Metric: n})
		}
		return out
	}
	admitted := func(tenant, device int64, names ...string) bool {
		t.Helper()
		ok, err := s.Admit(t.Context(), tenant, device, metrics(names...))
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if !admitted(1, 1, "a", "b", "c", "a") || admitted(1, 1, "a", "b", "c", "d") {
		t.Fatal("a device may have three series")
	}
	put(t, s, reading(1, 1, "a", day0, 1), reading(1, 1, "b", day0, 1), reading(1, 1, "c", day0, 1))
	if admitted(1, 1, "d") || !admitted(1, 1, "c", "a") {
		t.Fatal("a fourth series")
	}
	put(t, s, reading(2, 2, "a", day0, 1), reading(2, 2, "b", day0, 1))
	check := func() {
		t.Helper()
		if admitted(1, 3, "a") || admitted(1, 2, "c") || !admitted(1, 2, "b") || !admitted(2, 9, "a") {
			t.Fatal("a tenant may have five series")
		}
	}
	check()
	if err := writeHead(s, 2); err != nil {
		t.Fatal(err)
	}
	check()
	s = open(t, st, s.cfg)
	check()
	// A deleted device's series stop counting, whether the head was written since or not.
	if err := s.RemoveDevice(t.Context(), 1, 1); err != nil {
		t.Fatal(err)
	}
	roomAgain := func() {
		t.Helper()
		if !admitted(1, 3, "a", "b", "c") || admitted(1, 3, "a", "b", "c", "d") {
			t.Fatal("three series are free again")
		}
	}
	roomAgain()
	if err := writeHead(s, 3); err != nil {
		t.Fatal(err)
	}
	roomAgain()
	s = open(t, st, s.cfg)
	roomAgain()
	if ms, err := s.LatestMeasurements(t.Context(), 1); err != nil || len(ms) != 0 {
		t.Fatalf("latest of a deleted device: %+v %v", ms, err)
	}
	if res, err := s.Measurements(t.Context(), Query{TenantID: 1}); err != nil || res.Total != 5 {
		t.Fatalf("history after a delete: %+v %v", res, err)
	}
}

func TestASeriesCountsUntilItsDeviceIsDeletedHoweverOldItsReadings(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{Settings: Settings{SeriesPerDevice: 2, SeriesPerTenant: 3}})
	put(t, s, reading(1, 1, "a", day0, 1), reading(1, 1, "b", day0, 1), reading(1, 2, "a", day0, 1))
	if err := writeHead(s, 1); err != nil {
		t.Fatal(err)
	}
	admits := func(want bool, device int64, metric string) {
		t.Helper()
		ok, err := s.Admit(t.Context(), 1, device, []model.Reading{{Metric: metric}})
		if err != nil || ok != want {
			t.Errorf("device %d, %s: %v, %v", device, metric, ok, err)
		}
	}
	for _, again := range []bool{false, true} {
		if again { // the same after a start
			s = open(t, st, s.cfg)
		}
		if err := st.Write(t.Context(), store.Results, func(tx store.Tx) error {
			_, err := store.RemoveBefore(tx, store.KeptReadings, day0+2*microsPerDay, 100)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if got := countRows(t, st); got.readings != 0 {
			t.Fatalf("%+v are left", got)
		}
		admits(true, 1, "a")
		admits(false, 1, "c")
		admits(false, 3, "a")
	}
	if err := s.RemoveDevice(t.Context(), 1, 1); err != nil {
		t.Fatal(err)
	}
	admits(true, 3, "a")
	if err := writeHead(s, 2); err != nil {
		t.Fatal(err)
	}
	s = open(t, st, s.cfg)
	admits(true, 3, "a")
}

func TestAnInterruptedForgetIsUndoneUntilItsReplay(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{})
	put(t, s, reading(1, 1, "a", day0, 1))
	if err := writeHead(s, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveDevice(t.Context(), 1, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Freeze(2).Write(t.Context(), 2, runner(st)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // after a kill, and after a head of the same generation that ends before the delete
		s = open(t, st, Config{})
		if s.tenants[1].count != 1 {
			t.Fatalf("%d series before the replay of the delete", s.tenants[1].count)
		}
		if err := writeHead(s, s.HeadOffset()+1); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.RemoveDevice(t.Context(), 1, 1); err != nil || s.tenants[1].count != 0 {
		t.Fatalf("%d series after it, %v", s.tenants[1].count, err)
	}
}

func TestIDsOfATenantShareGroupsWithNoOther(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{Settings: Settings{SeriesPerDevice: 1 << 20}})
	const each = 600
	add := func(from, to int) {
		for i := from; i < to; i++ {
			for tenant := range int64(3) {
				p := reading(model.Offset(i+1), tenant+1, fmt.Sprintf("m%d", i), day0, 1)
				p.TenantID = tenant + 1
				put(t, s, p)
			}
		}
	}
	add(0, each/2)
	if err := writeHead(s, each/2); err != nil {
		t.Fatal(err)
	}
	s = open(t, st, s.cfg)
	add(each/2, each)
	owner := map[int64]int64{}
	for _, d := range s.devices {
		for _, sr := range d.series {
			g := store.SeriesGroup(sr.id)
			if have, ok := owner[g]; ok && have != d.tenantID {
				t.Fatalf("group %d has series of tenants %d and %d", g, have, d.tenantID)
			}
			owner[g] = d.tenantID
		}
	}
	if len(owner) != 6 {
		t.Fatalf("%d groups for %d series of three tenants", len(owner), each)
	}
}

func TestLatestMeasurementIsReplacedByAStrictlyNewerOneOnly(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{})
	check := func(want float64, created, updated model.Micros) {
		t.Helper()
		ms, err := s.LatestMeasurements(t.Context(), 1)
		if err != nil || len(ms) != 1 || ms[0].Value != want || ms[0].Created != created || ms[0].Updated != updated || ms[0].Unit != "°C" {
			t.Fatalf("%+v %v, want %v", ms, err, want)
		}
	}
	put(t, s, reading(1, 1, "temp", day0, 20))
	put(t, s, reading(2, 1, "temp", day0, 21))
	check(20, day0+1000, day0+1000)
	if err := writeHead(s, 2); err != nil {
		t.Fatal(err)
	}
	put(t, s, reading(3, 1, "temp", day0, 22))
	put(t, s, reading(4, 1, "temp", day0-1, 23))
	check(20, day0+1000, day0+1000)
	f := s.Freeze(4)
	put(t, s, reading(5, 1, "temp", day0+1, 24))
	check(24, day0+1000, day0+1001)
	if err := f.Write(t.Context(), 2, runner(st)); err != nil {
		t.Fatal(err)
	}
	check(24, day0+1000, day0+1001)
	if err := st.Write(t.Context(), store.Durable, f.Publish); err != nil {
		t.Fatal(err)
	}
	f.Release()
	check(24, day0+1000, day0+1001)
	if err := writeHead(s, 5); err != nil {
		t.Fatal(err)
	}
	check(24, day0+1000, day0+1001)
}

func TestMetricsCountWhatIsWritten(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	reg := prometheus.NewRegistry()
	s, err := Open(t.Context(), Config{ChunkBytes: 1, ChunkReadings: 4, FullReadings: 3}, st, Options{Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		put(t, s, reading(model.Offset(i+1), 1, "temp", day0+model.Micros(i), 1))
	}
	if err := writeHead(s, 6); err != nil {
		t.Fatal(err)
	}
	for c, want := range map[prometheus.Counter]float64{s.m.readings: 6, s.m.chunks: 1, s.m.blocks: 1, s.m.refused: 0, s.m.retries: 0} {
		if got := testutil.ToFloat64(c); got != want {
			t.Errorf("%v: %v, want %v", c.Desc(), got, want)
		}
	}
	if n, err := testutil.GatherAndCount(reg); err != nil || n != 16 {
		t.Errorf("%d metrics, %v", n, err)
	}
	err = st.Read(t.Context(), func(tx store.Tx) error {
		cs, err := store.Chunks(tx, store.PackedScope{TenantID: 1, Gen: 1, From: store.MinMicros, To: store.MaxMicros}, nil, 10)
		bs, err2 := store.Blocks(tx, store.PackedScope{TenantID: 1, Gen: 1, From: store.MinMicros, To: store.MaxMicros}, nil, 10)
		if len(cs) != 1 || cs[0].Count != 4 || len(bs) != 1 || bs[0].Count != 2 || bs[0].Runs != 1 {
			t.Errorf("chunks %+v, blocks %+v", cs, bs)
		}
		return errors.Join(err, err2)
	})
	if err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.HeadOffset != 6 || st.Generation != 1 || st.Readings != 0 || st.Writing {
		t.Fatalf("%+v", st)
	}
	if !slices.Equal([]int{s.cfg.SeriesPerDevice, s.cfg.SeriesPerTenant}, []int{256, 100_000}) {
		t.Fatalf("%+v", s.cfg)
	}
}
