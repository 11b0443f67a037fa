package ingest

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"weir/model"
	"weir/series"
	"weir/store"
)

// anchored is the change that gives a device these anchors.
func anchored(device int, anchors ...model.Anchor) model.ViewChange {
	if len(anchors) == 0 {
		return model.ViewChange{Kind: model.ViewAnchors, Key: fmt.Sprint(device)}
	}
	return row(model.ViewAnchors, fmt.Sprint(device), model.AnchorsView{V: 1, Tenant: 1, Anchors: anchors})
}

var seriesAll series.Query

var hall, roof = model.Anchor{Type: "area", Token: "hall"}, model.Anchor{Type: "area", Token: "roof"}

// borne returns what the events of a device bear, oldest first: their type and their anchors.
func (w *world) borne(a *Applier, device int64, q series.Query) (out []string) {
	w.t.Helper()
	q.TenantID, q.Device = 1, &device
	page, err := a.deps.Series.Events(context.Background(), q)
	w.must(err)
	for _, e := range slices.Backward(page.Events) {
		sets, err := a.AnchorsOf(context.Background(), 1, []int64{e.Anchors})
		w.must(err)
		var names []string
		for _, x := range sets[e.Anchors] {
			names = append(names, x.Type+"/"+x.Token)
		}
		out = append(out, fmt.Sprintf("%d: %s", e.Type, strings.Join(names, " ")))
	}
	return out
}

// TestEachEventBearsTheAnchorsThatHeldAtItsPlace changes what devices belong to while nothing is applied.
func TestEachEventBearsTheAnchorsThatHeldAtItsPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(2)
	const location = `{"eventType":"Location","payload":{"entries":[{"latitude":"47.1","longitude":"8.5"}]}}`
	const alert = `{"eventType":"Alert","payload":{"entries":[{"type":"door","level":2}]}}`
	send := func(device int, bodies ...string) {
		for _, body := range bodies {
			w.clock.advance(1e9)
			if an := w.send(w.arrival(device, body)); an.Outcome != Stored {
				t.Fatal(an)
			}
		}
	}
	send(1, temp(1))
	w.change(anchored(1, hall))
	send(1, temp(2), location, alert)
	w.change(anchored(1, roof, hall, roof), anchored(2, hall, roof))
	send(1, temp(3), location)
	send(2, temp(4))
	w.change(anchored(1))
	send(1, temp(5), alert)
	w.change(model.ViewChange{Kind: model.ViewDevice, Key: "acme/d2"}, row(model.ViewDevice, "acme/d2", model.DeviceView{V: 1, ID: 3, Type: 10}))
	send(2, temp(6)) // of a device made again: its credential is of the one that is gone
	w.apply()

	check := func(stage string) {
		t.Helper()
		a := w.applier
		if got, want := w.borne(a, 1, series.Query{}), []string{"2: ", "2: area/hall", "1: area/hall", "3: area/hall", "2: area/hall area/roof", "1: area/hall area/roof", "2: ", "3: "}; !slices.Equal(got, want) {
			t.Errorf("%s: events bear %q, want %q", stage, got, want)
		}
		if got, want := w.borne(a, 2, series.Query{}), []string{"2: area/hall area/roof"}; !slices.Equal(got, want) {
			t.Errorf("%s: those of the other device %q, want %q", stage, got, want)
		}
		for anchor, want := range map[model.Anchor]int{hall: 5, roof: 2, {Type: "customer", Token: "hall"}: 0} {
			sets, err := a.AnchorSetsWith(t.Context(), 1, anchor)
			w.must(err)
			if sets == nil {
				sets = []int64{}
			}
			if got := w.borne(a, 1, series.Query{Anchors: sets}); len(got) != want {
				t.Errorf("%s: %d events of %v, want %d: %q", stage, len(got), anchor, want, got)
			}
			if foreign, err := a.AnchorSetsWith(t.Context(), 2, anchor); err != nil || len(foreign) != 0 {
				t.Errorf("%s: another tenant finds %v, %v", stage, foreign, err)
			}
		}
	}
	check("in memory")
	w.finishHead(w.applier)
	check("written")
	w.restart()
	check("after a start")
}

// TestAnchorsAreNumberedOnceForAllDevices: the sets in the store are those that events bear, each once.
func TestAnchorsAreNumberedOnceForAllDevices(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(6)
	for i := range 6 {
		w.change(anchored(i+1, roof)) // borne by none
		w.change(anchored(i+1, []model.Anchor{hall, roof}[i%2]))
		w.send(w.arrival(i+1, temp(float64(i))))
		w.apply()
		if i == 3 {
			w.finishHead(w.applier)
		}
	}
	if got, want := tableRows(t, w.db, "anchor_sets", `SELECT id, members FROM anchor_sets`), []string{`id=1 members=[{"type":"area","token":"hall"}] `, `id=2 members=[{"type":"area","token":"roof"}] `}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// afterRead is a store in which something happens after each reading of it.
type afterRead struct {
	store.Store
	then func()
}

func (s *afterRead) Read(ctx context.Context, fn func(store.Tx) error) error {
	err := s.Store.Read(ctx, fn)
	s.then()
	return err
}

// TestASetThatIsCommittedWhileItIsLookedFor: a query finds the set of an event that it can see, also where the set is committed, and
// dropped from memory, while the query looks for it.
func TestASetThatIsCommittedWhileItIsLookedFor(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(m *metadataProjection) (any, error){
		"by the anchor": func(m *metadataProjection) (any, error) { return m.setsWith(t.Context(), 1, hall) },
		"by the number": func(m *metadataProjection) (any, error) {
			found, err := m.anchorsOf(t.Context(), 1, []int64{1, 2})
			return slices.Collect(maps.Keys(found)), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.furnish(1)
			w.change(anchored(1, hall))
			w.send(w.arrival(1, temp(1)))
			w.change(anchored(1, roof)) // no device has the other set now, so that memory may drop it
			w.apply()
			write := func(fn func(store.Tx) error) { w.must(w.db.Write(t.Context(), store.Results, fn)) }
			write(func(tx store.Tx) error { // it is not committed yet
				_, err := tx.Exec(`DELETE FROM anchor_sets`)
				return err
			})
			m := w.applier.results.metadata
			m.queries = &afterRead{Store: w.db, then: func() {
				write(func(tx store.Tx) error {
					return store.InsertAnchorSet(tx, store.AnchorSet{Number: 1, TenantID: 1, Members: "[]", Anchors: []model.Anchor{hall}})
				})
				m.dropAnchorSets()
			}}
			got, err := look(m)
			w.must(err)
			if !reflect.DeepEqual(got, []int64{1}) {
				t.Errorf("the sets %v are found, want 1", got)
			}
		})
	}
}
