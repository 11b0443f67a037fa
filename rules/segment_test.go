package rules

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/model"
	"weir/rules/page"
)

// trend is a rule over the mean of a window.
func trend(window string) string {
	return fmt.Sprintf(`{"name":"n","type":"aggregate","windowMode":"sliding","window":%q,"agg":"avg","metric":"temp","op":"gt","threshold":80,"lateness":"0s"}`, window)
}

// slide lets devices send, each a reading every ten seconds, and takes a snapshot after so many of each. It returns what the
// snapshots have written, in bytes and by page, and what the store holds in the end.
func (b *bench) slide(devices []int64, readings, each int, seen func(pages []Page)) (written int, store map[string]Page) {
	store = map[string]Page{}
	in := &Input{Position: b.place(0), Profile: plant.ProfileKey, Readings: []model.Reading{{Metric: "temp"}}}
	for i := range readings {
		for _, id := range devices {
			in.Offset++
			in.Occurred = model.Micros(1_790_000_000_000_000 + int64(i)*10_000_000 + id)
			in.Listening = Listening(in.Occurred) * 1000
			in.Device, in.Readings[0].Value = Device{ID: id, Token: fmt.Sprintf("device-%06d", id)}, float64(i%50)+0.25
			b.e.Apply(in, b.emit)
		}
		if i%each == each-1 {
			pages := b.e.Freeze()
			for _, p := range pages {
				written += len(p.Data)
			}
			keep(store, pages)
			if seen != nil {
				seen(pages)
			}
		}
	}
	return written, store
}

func ids(n int) (all []int64) {
	for i := range n {
		all = append(all, int64(i+1))
	}
	return all
}

// TestASlidingWindowIsNotWrittenAnew: what snapshots write for a reading does not grow with the window.
func TestASlidingWindowIsNotWrittenAnew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		window string
		each   int // readings of a device between two snapshots
		most   int // bytes for a reading
	}{{"10m", 12, 26}, {"10m", 1, 170}, {"4h", 12, 26}, {"100s", 12, 30}} {
		const devices, readings = 500, 480
		b := newBench(t, Limits{})
		b.install(1, view("r", trend(c.window)))
		bytes, store := b.slide(ids(devices), readings, c.each, nil)
		if got := bytes / (devices * readings); got > c.most {
			t.Errorf("window of %s, %d readings each: %d bytes are written for a reading, at most %d", c.window, c.each, got, c.most)
		}
		stored := 0
		for _, p := range store {
			stored += len(p.Data)
		}
		if held := b.e.Stats().Samples; stored > 40*held+160*devices+64*13*spareSamples {
			t.Errorf("window of %s, %d readings each: %d bytes are stored for %d samples", c.window, c.each, stored, held)
		}
	}
}

// TestSegmentsAreBoundedWhereADeviceFallsSilent: its window is as it was for ever, and keeps no segment of the others.
func TestSegmentsAreBoundedWhereADeviceFallsSilent(t *testing.T) {
	t.Parallel()
	var devices []int64
	for id := int64(1); len(devices) < 40; id++ {
		if bucketOf(id) == bucketOf(1) {
			devices = append(devices, id)
		}
	}
	b := newBench(t, Limits{})
	b.install(1, view("r", trend("10m")))
	b.slide(devices, 60, 12, nil)
	most, renewed := 0, 0
	b.slide(devices[1:], 1200, 12, func(pages []Page) {
		bucket := &b.e.profiles[plant.ProfileKey].parts[bucketOf(1)]
		stored := 0
		for _, s := range bucket.segments {
			stored += s.samples
		}
		if most = max(most, stored); len(bucket.segments) == 1 {
			renewed++
		}
	})
	if held := b.e.Stats().Samples; most > 2*held+spareSamples+40*12 {
		t.Errorf("segments hold %d samples, where windows have %d", most, held)
	}
	if counted := int(testutil.ToFloat64(b.e.metrics.rewritten)); renewed == 0 || renewed > 20 || counted != renewed {
		t.Errorf("of 100 snapshots %d wrote all windows anew, %d were counted", renewed, counted)
	}
	few := newBench(t, Limits{})
	few.install(1, view("r", trend("4h")))
	for _, x := range few.e.profiles {
		few.slide([]int64{1}, 3*maxSegments, 1, func([]Page) {
			if n := len(x.parts[bucketOf(1)].segments); n > maxSegments {
				t.Fatalf("%d segments", n)
			}
		})
	}
}

// windows are the pages of a device with two windows in segments, and of one whose window is short.
func windows(t testing.TB) (*bench, []Page) {
	b := newBench(t, Limits{})
	b.install(1, view("long", trend("10m")), view("short", trend("30s")))
	_, store := b.slide([]int64{1}, 12, 6, nil)
	return b, slices.SortedFunc(maps.Values(store), func(a, b Page) int { return strings.Compare(a.ID, b.ID) })
}

// TestPageFormatOfSegmentsIsFrozen compares the pages of keys and of samples byte by byte.
func TestPageFormatOfSegmentsIsFrozen(t *testing.T) {
	t.Parallel()
	b := newBench(t, Limits{})
	b.install(1, view("r", trend("50s")))
	in := &Input{Position: b.place(0), Profile: plant.ProfileKey, Device: Device{ID: 1, Token: "d"}, Readings: readings("temp", 1.5)}
	for i := range 5 {
		in.Occurred = model.Micros(i)
		b.e.Apply(in, b.emit)
	}
	value := "000000000000f83f"
	want := map[string]string{
		"7/70/k39":   "036b" + "0001" + "010172" + "01" + "02" + "01" + "00" + "0c" + "03040000" + "00" + "0201" + "0800" + "08" + "0500",
		"7/70/w39.0": "0177" + "010172" + "01" + "02" + "01" + "00" + "30" + "00" + "0500" + "07" + value + strings.Repeat("0f"+value, 4),
	}
	got := map[string]string{}
	for _, p := range b.e.Freeze() {
		if kind := p.Data[1]; kind == pageKeys || kind == pageSamples {
			got[p.ID] = fmt.Sprintf("%x", p.Data[:len(p.Data)-4])
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("pages are\n%v, not\n%v: add a version and read these too", got, want)
	}
}

// TestPagesOfBeforeSegmentsAreRead: a window of version 2 lies in the page of keys. The next snapshot stores it in a segment.
func TestPagesOfBeforeSegmentsAreRead(t *testing.T) {
	t.Parallel()
	b, pages := windows(t)
	before := b.e.everything()
	at := slices.IndexFunc(pages, func(p Page) bool { return strings.Contains(p.ID, "/k") })
	d := b.e.devices.get(1)
	old := page.Header(pageKeys)
	old[0] = page.Version2
	var e page.Entries
	for i := range d.keys {
		e.Data = putState(e.Data, &d.keys[i], nil)
		e.End(d.keys[i].rule)
	}
	old, numbers := e.Names(old, 2, func(i int) string { return []string{"long", "short"}[i] })
	pages[at].Data = page.Seal(e.Append(append(old, 1, 2, 2), 0, 2, numbers))
	pages = slices.DeleteFunc(pages, func(p Page) bool { return strings.Contains(p.ID, "/w") })
	again := NewEngine(newTestCompiler(t, Limits{}), nil)
	if err := again.Load(pages); err != nil {
		t.Fatal(err)
	}
	if got := again.everything(); !slices.EqualFunc(got, before, func(a, b Page) bool { return a.ID == b.ID && bytes.Equal(a.Data, b.Data) }) {
		t.Errorf("stored as\n%v, not\n%v", got, before)
	}
}

// TestDamagedSegmentsAreErrorsThatNameThem: a segment that is damaged, missing, of another bucket or not asked for is an error.
func TestDamagedSegmentsAreErrorsThatNameThem(t *testing.T) {
	t.Parallel()
	_, pages := windows(t)
	c := newTestCompiler(t, Limits{})
	refused := func(what, id string, pages []Page) {
		t.Helper()
		if err := NewEngine(c, nil).Load(pages); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "(page "+id+")") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := NewEngine(c, nil).Load(pages); err != nil {
		t.Fatal(err)
	}
	if ids := pageIDs(pages); ids != "7/70/d39+ 7/70/k39+ 7/70/r00+ 7/70/w39.0+ 7/70/w39.1+" {
		t.Fatal(ids)
	}
	for i, p := range pages[3:] {
		set := slices.Clone(pages)
		refused("missing", p.ID, slices.Delete(slices.Clone(set), 3+i, 4+i))
		for at := range p.Data {
			set[3+i].Data = slices.Clone(p.Data)
			set[3+i].Data[at] ^= 0x40
			refused(fmt.Sprintf("byte %d", at), p.ID, set)
			set[3+i].Data = p.Data[:at]
			refused(fmt.Sprintf("cut at %d", at), p.ID, set)
		}
		set[3+i].Data = resealed(append(p.Data[:len(p.Data)-4:len(p.Data)-4], 0))
		refused("a byte more", p.ID, set)
		set[3+i].Data = resealed([]byte{1, pageSamples, 0, 0})
		refused("empty", p.ID, set)
		set[3+i].Data = resealed(append([]byte{2}, p.Data[1:len(p.Data)-4]...))
		refused("of a newer version", p.ID, set)
	}
	extra := pages[4]
	for _, id := range []string{"7/70/w39.2", "7/70/w38.0"} {
		extra.ID = id
		refused("not asked for", id, append(slices.Clone(pages), extra))
	}
	swapped := slices.Clone(pages)
	swapped[3].Data, swapped[4].Data = swapped[4].Data, swapped[3].Data
	if err := NewEngine(c, nil).Load(swapped); err == nil || !strings.Contains(err.Error(), "k39") {
		t.Errorf("in the wrong order: %v", err)
	}
	for _, id := range []string{"7/70/w39", "7/70/w39.", "7/70/w39.00", "7/70/w39.-1", "7/70/k39.0", "7/70/w64.0"} {
		if _, ok := parsePageID(id); ok {
			t.Errorf("%s is an id", id)
		}
	}
}

// FuzzLoadSegments gives a start pages of keys and of samples with right checksums and any content.
func FuzzLoadSegments(f *testing.F) {
	b, pages := windows(f)
	var seed [][]byte
	for _, p := range pages {
		seed = append(seed, p.Data[2:len(p.Data)-4])
	}
	f.Add(seed[1], seed[3], seed[4])
	f.Add(seed[1], seed[4], seed[3])
	c := newTestCompiler(f, Limits{})
	views := []model.RuleView{view("long", trend("10m")), view("short", trend("30s"))}
	f.Fuzz(func(t *testing.T, keys, first, second []byte) {
		set := slices.Clone(pages)
		set[1].Data = resealed(append([]byte{page.Version, pageKeys}, keys...))
		set[3].Data = resealed(append([]byte{1, pageSamples}, first...))
		set[4].Data = resealed(append([]byte{1, pageSamples}, second...))
		e := NewEngine(c, nil)
		if err := e.Load(set); err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		whole := e.everything()
		again := NewEngine(c, nil)
		if err := again.Load(whole); err != nil {
			t.Fatalf("what was written does not load: %v", err)
		}
		if got := again.everything(); !slices.EqualFunc(got, whole, func(a, b Page) bool { return a.ID == b.ID && bytes.Equal(a.Data, b.Data) }) {
			t.Fatalf("pages change:\n%v\n%v", whole, got)
		}
		at := Position{Offset: b.offset + 1}
		again.Install(at, plant, views, func(model.Edge) {})
		again.Advance(Position{Offset: b.offset + 2, Listening: 1e15}, func(model.Edge) {})
		again.Remove(at, plant.ProfileKey, func(model.Edge) {})
		if s := again.Stats(); s != (Stats{}) {
			t.Fatalf("after the end: %+v", s)
		}
	})
}

// TestADeviceThatIsRenamedDuringASnapshotHasItsFormerTokenThere, and the next one brings the new token.
func TestADeviceThatIsRenamedDuringASnapshotHasItsFormerTokenThere(t *testing.T) {
	t.Parallel()
	b := filled(t)
	s := b.e.Cut()
	b.e.Rename(3, "another")
	var taken []Page
	for more := true; more; {
		var pages []Page
		pages, more = s.Next()
		taken = append(taken, pages...)
	}
	has := func(pages []Page, token string) bool {
		return slices.ContainsFunc(pages, func(p Page) bool { return bytes.Contains(p.Data, []byte(token)) })
	}
	if next := b.e.Freeze(); !has(taken, "dev-3") || has(taken, "another") || !has(next, "another") {
		t.Errorf("%s, then %s", pageIDs(taken), pageIDs(next))
	}
}
