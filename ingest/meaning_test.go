package ingest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"weir/internal/test/draws"
	"weir/model"
	"weir/series"
	"weir/store"
)

type removedValue struct{}

// removed stands for an attribute that goes.
var removed removedValue

// attribute is the change that gives an attribute of a device a value: a float64, a string, a bool, or nil for null.
func attribute(device int, scope, key string, value any) model.ViewChange {
	b := model.AttributeView{V: 1}
	name := model.AttributeKey(int64(device), scope, key)
	switch v := value.(type) {
	case removedValue:
		return model.ViewChange{Kind: model.ViewAttribute, Key: name}
	case float64:
		b.Number = &v
	case string:
		b.Text = &v
	case bool:
		b.Bool = &v
	}
	return row(model.ViewAttribute, name, b)
}

// inGroups is the change that makes a device a member of these static groups.
func inGroups(device int, groups ...string) model.ViewChange {
	if len(groups) == 0 {
		return model.ViewChange{Kind: model.ViewMemberships, Key: fmt.Sprint(device)}
	}
	return row(model.ViewMemberships, fmt.Sprint(device), model.MembershipsView{V: 1, Tenant: 1, Groups: groups})
}

// groupIDs are the row ids of the groups of the tests.
var groupIDs = map[string]int{"hot": 1, "far": 2}

// published is the change that brings a version of a group into use.
func published(token string, version int, selector string, active bool) model.ViewChange {
	return row(model.ViewGroup, fmt.Sprintf("%d/%d", groupIDs[token], version), model.GroupView{V: 1, Tenant: 1, Token: token, Version: version, Selector: selector, Active: active})
}

const square = `{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[[8,47],[9,47],[9,48],[8,48],[8,47]]]}}`

// fenced is the change that gives a fence of a tenant a geometry, "" for none.
func fenced(tenant, version int64, token, geometry string) []model.ViewChange {
	f := model.ViewChange{Kind: model.ViewFence, Key: fmt.Sprintf("%d/%s", tenant, token)}
	if geometry != "" {
		f = row(f.Kind, f.Key, model.FenceView{V: 1, Geometry: geometry})
	}
	return []model.ViewChange{f, row(model.ViewFenceSet, fmt.Sprint(tenant), model.FenceSetView{V: 1, Version: version})}
}

// judgement is what the view says at the place of an event: a projection notes it.
type judgement struct {
	ProjectionBase
	view func() *metadataProjection
	said []string
}

func (j *judgement) Record(_ context.Context, e *Event, _ *Effects) error {
	if e.Record == nil || e.Record.Kind != model.KindMessage || e.DeviceID == 0 {
		return nil
	}
	v := j.view().view
	n, has := v.Number(e.DeviceID, "limit")
	scoped, known := v.InGroup(1, e.DeviceID, "hot", 1)
	listed, _ := v.InGroup(1, e.DeviceID, "first", 0)
	set, err := v.Fences(1)
	if err != nil {
		return err
	}
	inside := set.Fences["yard"] != nil && set.Fences["yard"].Contains(8.5, 47.5)
	j.said = append(j.said, fmt.Sprintf("%v/%v hot %v/%v first %v fences %d/%v", n, has, scoped, known, listed, set.Version, inside))
	return nil
}

// TestEachEventIsJudgedByWhatHeldAtItsPlace changes attributes, relationships, groups and fences while nothing is applied: each event
// bears, and each projection sees, what held at its place; also when the log is applied again from the middle on.
func TestEachEventIsJudgedByWhatHeldAtItsPlace(t *testing.T) {
	t.Parallel()
	var j *judgement
	w := newWorld(t, func(w *world) {
		w.projections = func() []Projection {
			j = &judgement{view: func() *metadataProjection { return w.applier.results.metadata }}
			return []Projection{j}
		}
	})
	w.furnish(2)
	var bears, said []string
	n := 0.0
	send := func(anchors, judged string) {
		w.clock.advance(1e9)
		n++
		if an := w.send(w.arrival(1, temp(n))); an.Outcome != Stored {
			t.Fatal(an)
		}
		bears, said = append(bears, "2: "+anchors), append(said, judged)
	}
	const nothing = "0/false hot false/false first false fences 0/false"
	send("", nothing)
	w.change(attribute(1, "SHARED", "limit", 3.0), attribute(2, "SHARED", "limit", 1.0))
	send("", "3/true hot false/false first false fences 0/false")
	w.change(published("hot", 1, `attr["limit"] > 2 && !(attr["site"] == "west")`, true))
	send("group/hot", "3/true hot true/true first false fences 0/false")
	w.change(attribute(1, "SERVER", "limit", 1.0)) // rules see it first, selectors never
	send("group/hot", "1/true hot true/true first false fences 0/false")
	w.change(anchored(1, hall), inGroups(1, "first", "second"))
	send("area/hall group/first group/hot group/second", "1/true hot true/true first true fences 0/false")
	w.change(attribute(1, "SHARED", "site", "west"))
	send("area/hall group/first group/second", "1/true hot false/true first true fences 0/false")
	w.change(fenced(1, 1, "yard", square)...)
	w.change(attribute(1, "SHARED", "site", nil), inGroups(1))
	send("area/hall group/hot", "1/true hot true/true first false fences 1/true")
	w.change(published("hot", 1, `attr["limit"] > 2 && !(attr["site"] == "west")`, false), published("far", 1, `!("site" in attr)`, true)) // a rule is still scoped to it
	send("area/hall", "1/true hot true/true first false fences 1/true")
	w.change(attribute(1, "SHARED", "site", removed), attribute(1, "SERVER", "limit", removed))
	send("area/hall group/far", "3/true hot true/true first false fences 1/true")
	w.change(append(fenced(1, 2, "yard", ""), model.ViewChange{Kind: model.ViewGroup, Key: "1/1"}, model.ViewChange{Kind: model.ViewGroup, Key: "2/1"}, anchored(1), attribute(1, "SHARED", "limit", removed))...)
	send("", "0/false hot false/false first false fences 2/false")

	middle := len(said) / 2
	r, err := w.log.Reader(1)
	w.must(err)
	for len(j.said) < middle {
		b, err := r.TryNext()
		w.must(err)
		w.must(w.applier.apply(t.Context(), b))
	}
	r.Close()
	w.finishHead(w.applier)
	first := slices.Clone(j.said)
	w.restart()
	w.apply()
	if got := append(first, j.said...); !slices.Equal(got, said) {
		t.Errorf("the events were judged by\n%q, want\n%q", got, said)
	}
	check := func(stage string) {
		t.Helper()
		if got := w.borne(w.applier, 1, series.Query{}); !slices.Equal(got, bears) {
			t.Errorf("%s: events bear\n%q, want\n%q", stage, got, bears)
		}
		sets, err := w.applier.AnchorSetsWith(t.Context(), 1, model.Anchor{Type: "group", Token: "hot"})
		w.must(err)
		if got := w.borne(w.applier, 1, series.Query{Anchors: sets}); len(got) != 4 {
			t.Errorf("%s: %d events of the group, want 4", stage, len(got))
		}
	}
	check("applied")
	w.finishHead(w.applier)
	w.restart()
	check("after a start")

	w.removeBefore(store.KeptMetadata, w.clock.stamp().Wall.Time().Add(1e9), 100)
	for _, r := range tableRows(t, w.db, "view_rows", `SELECT kind, key FROM view_rows WHERE to_offset IS NOT NULL`) {
		t.Errorf("%s is left of what no longer holds", r)
	}
}

// TestGroupsOfManyDevicesTakeBoundedMemory: sets of anchors that groups make are made again when they are too many, under the same numbers.
func TestGroupsOfManyDevicesTakeBoundedMemory(t *testing.T) {
	draws.NeedsAll(t)
	t.Parallel()
	w := newWorld(t, func(w *world) { w.cfg.ReplayBytes = 64 << 20 })
	w.furnish(1)
	groups := make([]string, 200)
	for i := range groups {
		groups[i] = fmt.Sprintf("%0120d", i)
	}
	var most int64
	for i := range 400 {
		w.change(inGroups(1, groups[:1+i%200]...))
		w.send(w.arrival(1, temp(float64(i))))
		w.apply()
		most = max(most, w.applier.MetadataBytes())
	}
	if most < 7<<20 || most > 9<<20 {
		t.Errorf("at most %d bytes were held, 8 MiB are the bound of what groups make", most)
	}
	if sets := tableRows(t, w.db, "anchor_sets", `SELECT id FROM anchor_sets`); len(sets) != 200 {
		t.Errorf("%d sets are numbered, want 200", len(sets))
	}
}
