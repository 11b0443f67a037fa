package storetest

import (
	"cmp"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"weir/model"
	"weir/store"
)

// hour0 is the first event time of the edges of these tests, and hour the microseconds of an hour.
const (
	hour0 = model.Micros(1_790_035_200_000_000)
	hour  = model.Micros(3_600_000_000)
)

// randomEdges returns n edges of the records after an offset, in the order of the log: of two tenants, some late by hours, several of a record.
func randomEdges(r *rand.Rand, after model.Offset, n int) []model.Edge {
	es := make([]model.Edge, n)
	for i := range es {
		after += model.Offset(r.IntN(2))
		device, rule, tenant := int64(1+r.IntN(4)), strconv.Itoa(r.IntN(5)), int64(1+r.IntN(2))
		e := model.Edge{TenantID: tenant, Tenant: fmt.Sprint("t", tenant), Profile: fmt.Sprint("p", r.IntN(2)), Version: 1, Rule: "r" + rule, Kind: "threshold",
			Signal: model.EdgeSignal(1 + r.IntN(2)), Series: fmt.Sprint("d", device), Device: device, Severity: []string{"major", "minor", ""}[r.IntN(3)],
			Occurred: hour0 + model.Micros(after/8)*1_000_000 - model.Micros(r.IntN(3)/2*r.IntN(4))*hour, Received: (hour0 + model.Micros(after)).Nanos()}
		e.ID = model.EdgeID{Epoch: 1, Offset: after, Index: uint32(i), Rule: e.Profile + "/" + e.Rule, Key: strconv.FormatInt(device, 10)}
		if e.Signal == model.Raised {
			e.Value, e.HasValue = float64(r.IntN(100))/4, true
		}
		es[i] = e
	}
	return es
}

// addRow stores an edge as an earlier Weir did.
func addRow(tx store.Tx, e *model.Edge) error {
	_, err := tx.Exec(`INSERT INTO edges (epoch, log_offset, idx, rule, key, n, tenant_id, tenant, profile, version, rule_token, kind,
		signal, series, device_id, occurred, received, severity, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		int64(e.ID.Epoch), int64(e.ID.Offset), int64(e.ID.Index), e.ID.Rule, e.ID.Key, int64(e.ID.N), e.TenantID, e.Tenant, e.Profile,
		e.Version, e.Rule, e.Kind, int64(e.Signal), e.Series, e.Device, int64(e.Occurred), int64(e.Received.Micros()), e.Severity,
		sql.NullFloat64{Float64: e.Value, Valid: e.HasValue})
	return err
}

func addEdges(t *testing.T, f *fixture, edges []model.Edge) (fresh []model.Edge) {
	t.Helper()
	f.write(t, func(tx store.Tx) (err error) {
		fresh, err = store.AddEdges(tx, edges)
		return err
	})
	return fresh
}

func edgesOf(t *testing.T, f *fixture, tenant int64) (all []model.Edge) {
	t.Helper()
	f.read(t, func(tx store.Tx) error {
		all = nil
		return store.Edges(tx, tenant, func(e *model.Edge) error { all = append(all, *e); return nil })
	})
	return all
}

// testEdges shows that an edge is stored once and a fire counted once, whatever a replay adds again.
func testEdges(t *testing.T, f *fixture) {
	r := rand.New(rand.NewPCG(1, 1))
	edges := randomEdges(r, 100, 6000)
	for from, n := 0, 0; from < len(edges); from += n {
		n = min(1+r.IntN(700), len(edges)-from)
		for from+n < len(edges) && edges[from+n].ID.Offset == edges[from+n-1].ID.Offset {
			n++ // a record is committed as a whole
		}
		// A process that ended is back at an earlier record: what it adds again is known.
		back := r.IntN(from + 1)
		for back > 0 && edges[back].ID.Offset == edges[back-1].ID.Offset {
			back--
		}
		if fresh := addEdges(t, f, edges[back:from+n]); !slices.Equal(fresh, edges[from:from+n]) {
			t.Fatalf("%d edges from %d on: %d are new, want %d", n, from, len(fresh), n)
		}
	}
	if fresh := addEdges(t, f, edges); len(fresh) != 0 {
		t.Fatalf("%d edges are new the second time", len(fresh))
	}
	type rule struct {
		tenant int64
		stable string
	}
	want := map[rule]store.RuleFires{}
	for i := range edges {
		e := &edges[i]
		k := rule{e.TenantID, e.ID.Rule}
		w := want[k]
		w.Rule = e.ID.Rule
		if w.Fires++; w.Fires == 1 || e.Occurred >= w.LastFired {
			w.LastFired, w.LastSignal = e.Occurred, e.Signal
		}
		want[k] = w
	}
	for tenant := range int64(2) {
		f.read(t, func(tx store.Tx) error {
			fires, err := store.Fires(tx, tenant+1, "p")
			if len(fires) != 10 {
				t.Errorf("tenant %d: %d rules fired", tenant+1, len(fires))
			}
			for stable, got := range fires {
				if w := want[rule{tenant + 1, stable}]; got != w {
					t.Errorf("tenant %d, %s: %+v, want %+v", tenant+1, stable, got, w)
				}
			}
			return err
		})
		order := func(a, b model.Edge) int {
			return cmp.Or(cmp.Compare(a.ID.Offset, b.ID.Offset), cmp.Compare(a.ID.Index, b.ID.Index))
		}
		got := slices.SortedFunc(slices.Values(edgesOf(t, f, tenant+1)), order)
		if !slices.Equal(got, slices.DeleteFunc(slices.Clone(edges), func(e model.Edge) bool { return e.TenantID != tenant+1 })) {
			t.Errorf("tenant %d: the edges are not those that were added", tenant+1)
		}
	}
}

// testDetections compares the list with one that is made by looking at everything: rows of an earlier Weir and blocks, each filter, page by page.
func testDetections(t *testing.T, f *fixture) {
	r := rand.New(rand.NewPCG(2, 2))
	old := randomEdges(r, 0, 700)
	f.write(t, func(tx store.Tx) error {
		for i := range old {
			if err := addRow(tx, &old[i]); err != nil {
				return err
			}
		}
		// As the migration leaves it.
		_, err := tx.Exec(`UPDATE edge_progress SET log_offset = ?, last_edge = ? WHERE id = 1`, int64(old[len(old)-1].ID.Offset), len(old))
		return err
	})
	if fresh := addEdges(t, f, old); len(fresh) != 0 {
		t.Errorf("%d edges of an earlier Weir are new", len(fresh))
	}
	edges := randomEdges(r, old[len(old)-1].ID.Offset+1, 3000)
	for from, n := 0, 0; from < len(edges); from += n {
		n = min(1+r.IntN(60), len(edges)-from)
		for from+n < len(edges) && edges[from+n].ID.Offset == edges[from+n-1].ID.Offset {
			n++
		}
		addEdges(t, f, edges[from:from+n])
	}
	var all []store.Detection
	f.read(t, func(tx store.Tx) (err error) {
		all, err = everyPage(tx, store.DetectionFilter{}, 1000)
		return err
	})
	checkList(t, all, len(old)+len(edges))
	for range 60 {
		checkFilter(t, f, all, randomFilter(r, all), 20+r.IntN(200))
	}
}

// everyPage returns a list page by page.
func everyPage(tx store.Tx, filter store.DetectionFilter, size int) (all []store.Detection, err error) {
	for n := 1; ; n++ {
		page, err := store.Detections(tx, filter, store.Page{Number: n, Size: size})
		if all = append(all, page...); err != nil || len(page) < size {
			return all, err
		}
	}
}

func after(a, b *store.Detection) bool {
	return a.Occurred < b.Occurred || a.Occurred == b.Occurred && a.Row < b.Row
}

// checkList looks at the list of everything: complete, each id once, in order.
func checkList(t *testing.T, all []store.Detection, n int) {
	t.Helper()
	rows := map[int64]bool{}
	for i := range all {
		if rows[all[i].Row] = true; i > 0 && !after(&all[i], &all[i-1]) {
			t.Fatalf("detection %d is not after the one before it: %+v, %+v", i, all[i-1], all[i])
		}
	}
	if len(all) != n || len(rows) != n {
		t.Fatalf("%d detections with %d ids, want %d", len(all), len(rows), n)
	}
}

func randomFilter(r *rand.Rand, all []store.Detection) store.DetectionFilter {
	f := store.DetectionFilter{TenantID: int64(r.IntN(3))}
	some := func() *store.Detection { return &all[r.IntN(len(all))] }
	for _, set := range []func(){
		func() { f.Device = some().Device }, func() { f.Series = some().Series }, func() { f.Profile = some().Profile }, func() { f.Rule = some().Rule },
		func() { f.Severity = some().Severity }, func() { f.Signal = some().Signal }, func() { f.From = some().Occurred }, func() { f.To = some().Occurred },
		func() { d := some(); f.Before = &store.DetectionPosition{Occurred: d.Occurred, Row: d.Row} },
	} {
		if r.IntN(5) == 0 {
			set()
		}
	}
	return f
}

func checkFilter(t *testing.T, f *fixture, all []store.Detection, filter store.DetectionFilter, size int) {
	t.Helper()
	want := slices.DeleteFunc(slices.Clone(all), func(d store.Detection) bool {
		is := (filter.TenantID == 0 || d.TenantID == filter.TenantID) && (filter.Device == 0 || d.Device == filter.Device) && (filter.Series == "" || d.Series == filter.Series) &&
			(filter.Profile == "" || d.Profile == filter.Profile) && (filter.Rule == "" || d.Rule == filter.Rule) && (filter.Severity == "" || d.Severity == filter.Severity) &&
			(filter.Signal == 0 || d.Signal == filter.Signal) && d.Occurred >= filter.From && (filter.To == 0 || d.Occurred <= filter.To)
		if b := filter.Before; b != nil {
			is = is && (d.Occurred < b.Occurred || d.Occurred == b.Occurred && d.Row < b.Row)
		}
		return !is
	})
	f.read(t, func(tx store.Tx) error {
		got, err := everyPage(tx, filter, size)
		if err != nil {
			return err
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v, %d a page: %d detections, want %d", filter, size, len(got), len(want))
		}
		if n, err := store.CountDetections(tx, filter); n != int64(len(want)) || err != nil {
			t.Errorf("%+v: counted %d, %v; want %d", filter, n, err, len(want))
		}
		for _, d := range want[:min(len(want), 3)] {
			at, err := store.DetectionAt(tx, d.TenantID, d.Row)
			if err != nil || at == nil || *at != (store.DetectionPosition{Occurred: d.Occurred, Row: d.Row}) {
				t.Errorf("detection %d lies at %+v, %v", d.Row, at, err)
			}
			if at, err := store.DetectionAt(tx, 3-d.TenantID, d.Row); at != nil || err != nil {
				t.Errorf("another tenant finds detection %d at %+v, %v", d.Row, at, err)
			}
		}
		at, err := store.DetectionAt(tx, 1, int64(len(all))+1)
		if at != nil || err != nil {
			t.Errorf("a detection that is none lies at %+v, %v", at, err)
		}
		return nil
	})
}

// testOldDetections shows that the oldest go first, rows and whole blocks, and that an id is not used twice.
func testOldDetections(t *testing.T, f *fixture) {
	edges := randomEdges(rand.New(rand.NewPCG(3, 3)), 1000, 2000)
	half := slices.IndexFunc(edges, func(e model.Edge) bool { return e.ID.Offset == edges[1000].ID.Offset })
	addEdges(t, f, edges[:half])
	addEdges(t, f, edges[half:])
	before := len(edgesOf(t, f, 1)) + len(edgesOf(t, f, 2))
	remove := func(limit int) (step store.Removal) {
		t.Helper()
		f.write(t, func(tx store.Tx) (err error) {
			step, err = store.RemoveBefore(tx, store.KeptDetections, hour0+hour, limit)
			return err
		})
		return step
	}
	if step := remove(100); step.Rows != 0 {
		t.Errorf("%+v went before a checkpoint lies after it", step)
	}
	f.write(t, func(tx store.Tx) error { return store.SetCheckpointState(tx, edges[len(edges)-1].ID.Offset, 1) })
	gone := int64(0)
	for step := remove(3); step.Rows > 0; step = remove(3) {
		if gone += step.Entries; step.Rows > 3 {
			t.Errorf("a step of at most 3 removed %+v", step)
		}
	}
	if left := len(edgesOf(t, f, 1)) + len(edgesOf(t, f, 2)); left != 0 || gone != int64(before) || before != len(edges) {
		t.Errorf("%d of %d are gone, %d are left", gone, before, left)
	}
	next := randomEdges(rand.New(rand.NewPCG(4, 4)), edges[len(edges)-1].ID.Offset+1, 1)
	addEdges(t, f, next)
	f.read(t, func(tx store.Tx) error {
		ds, err := store.Detections(tx, store.DetectionFilter{}, store.Page{Number: 1, Size: 10})
		if len(ds) != 1 || ds[0].Row != int64(len(edges)+1) {
			t.Errorf("the next detection is %+v", ds)
		}
		return err
	})
}

// testDetectionTies shows the order of detections at one instant, in more blocks than are read at a time: the newest id first, also
// where a block that reaches further has an older one.
func testDetectionTies(t *testing.T, f *fixture) {
	at := func(offset model.Offset, seconds ...model.Micros) (es []model.Edge) {
		for _, s := range seconds {
			es = append(es, model.Edge{TenantID: 1, ID: model.EdgeID{Epoch: 1, Offset: offset, Rule: "p/r", Key: "1"}, Profile: "p", Rule: "r", Device: 1, Occurred: hour0 + s*1_000_000})
		}
		return es
	}
	addEdges(t, f, at(1, 0, 5))
	for i := range 3 {
		addEdges(t, f, at(model.Offset(2+i), 0))
	}
	for i := range 6 {
		addEdges(t, f, at(model.Offset(10+i), 10))
	}
	f.read(t, func(tx store.Tx) error {
		ds, err := store.Detections(tx, store.DetectionFilter{TenantID: 1}, store.Page{})
		checkList(t, ds, 11)
		return err
	})
}
