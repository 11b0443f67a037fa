package rules_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weir/model"
	"weir/rules"
)

// everyKind are rules of all kinds.
var everyKind = []string{
	`"type":"threshold",` + over5,
	`"type":"deltaRate","metric":"v","op":"gt","threshold":3,"clear":1`,
	`"type":"deltaRate","metric":"v","op":"gt","threshold":3,"lateness":"0s"`,
	`"type":"repeating","count":2,"window":"10s",` + over5,
	`"type":"duration","hold":"6s",` + over5,
	`"type":"duration","hold":"3s","lateness":"0s",` + over5,
	`"type":"absence","timeout":"20s"`,
	`"type":"aggregate","windowMode":"tumbling","window":"10s","agg":"avg","metric":"v","op":"gt","threshold":4`,
	`"type":"aggregate","windowMode":"sliding","window":"10s","agg":"max","metric":"v","op":"gt","threshold":5,"lateness":"2s"`,
	`"type":"aggregate","windowMode":"session","gap":"8s","agg":"sum","metric":"v","op":"gt","threshold":4`,
	`"type":"aggregate","windowMode":"count","count":2,"agg":"min","metric":"v","op":"gt","threshold":3`,
	`"type":"correlation","anchorType":"area","count":2,"memberCap":2,"window":"10s",` + over5,
	`"type":"correlation","anchorType":"area","count":1,"window":"5s","lateness":"0s"`,
	`"type":"connectivity"`,
	`"type":"aggregate","windowMode":"sliding","window":"2m","agg":"sum","metric":"v","op":"gt","threshold":60`,
	`"type":"repeating","count":7,"window":"1m","lateness":"1s",` + over5,
	`"type":"threshold","when":{"metric":"v","op":"gt","thresholdAttr":"limit"}`,
	`"type":"repeating","count":2,"window":"10s","when":{"cel":"has(m.v) && m.v > attr.limit"}`,
	`"type":"duration","hold":"6s","when":{"cel":"geo.inFence('yard')"}`,
	`"type":"aggregate","windowMode":"sliding","window":"10s","agg":"count","op":"ge","threshold":2,"when":{"cel":"!geo.inFence('yard') && has(attr.limit)"}`,
	`"type":"correlation","anchorType":"area","count":2,"window":"10s","when":{"cel":"has(m.v) && m.v > attr.limit && anchors.area == 'a'"}`,
	scoped + `"type":"threshold",` + over5,
	scoped + `"type":"deltaRate","metric":"v","op":"gt","threshold":3`,
	scoped + `"type":"duration","hold":"6s","when":{"metric":"v","op":"ge","thresholdAttr":"limit"}`,
	scoped + `"type":"aggregate","windowMode":"tumbling","window":"10s","agg":"sum","metric":"v","op":"gt","threshold":4`,
	scoped + `"type":"connectivity"`,
}

// scoped begins the body of a rule that judges the members of a group.
const scoped = "group "

// bodyView is a rule of a body, scoped to a group if it says so.
func bodyView(token, body string) model.RuleView {
	body, group := strings.CutPrefix(body, scoped)
	v := view(token, `{"name":"n",`+body+`}`)
	if group {
		v.Group, v.GroupVersion = "g", 1
	}
	return v
}

// everyRule installs a rule of each body.
func (tl *timeline) everyRule() *timeline {
	tl.rule = nil
	for i, body := range everyKind {
		tl.rule = append(tl.rule, bodyView(fmt.Sprintf("r%d", i), body))
	}
	tl.install(0, tl.rule...)
	for _, h := range tl.e.Health(pump.ProfileKey) {
		if h.Status != rules.Active {
			tl.t.Fatalf("%s: %s", h.Token, h.Message)
		}
	}
	return tl
}

// neighbour is a device whose pages are those of device 1.
const neighbour = 90

// drawLines draws a log of everything that can happen, as lines of a timeline.
func drawLines(t *rapid.T) (lines []string) {
	now := 0
	for range rapid.IntRange(1, 80).Draw(t, "length") {
		now += rapid.SampledFrom([]int{0, 0, 1, 1, 2, 7, 30}).Draw(t, "listening")
		d := rapid.SampledFrom([]int{1, 2, neighbour}).Draw(t, "device")
		line := fmt.Sprintf("%d d%d %d", now, d, 1000+now-rapid.SampledFrom([]int{0, 0, 0, 1, 3, 6, 500}).Draw(t, "age"))
		switch what := rapid.SampledFrom([]string{"v", "v", "v", "v", "v", "v", "bare", "state", "gone", "leave", "enroll", "tick", "publish", "boot", "hold", "release",
			"limit", "limit", "yard", "member", "^", "^"}).Draw(t, "what"); what {
		case "v":
			line += fmt.Sprintf(" v=%d", rapid.IntRange(0, 9).Draw(t, "v"))
		case "state":
			line += " " + rapid.SampledFrom([]string{"connected", "disconnected", "demoted/x", "demoted/source-gone"}).Draw(t, "state")
		case "gone", "enroll":
			line = fmt.Sprintf("%d %s d%d", now, what, d)
		case "leave":
			line = fmt.Sprintf("%d leave d%d %s", now, d, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "anchor"))
		case "boot":
			line = fmt.Sprintf("%d boot %d %d", now, now, rapid.SampledFrom([]int{0, 5, 20}).Draw(t, "grace"))
		case "hold", "release":
			line = fmt.Sprintf("%d %s", now, what)
		case "^":
			line += fmt.Sprintf(" ^%g", rapid.SampledFrom(longitudes).Draw(t, "lon"))
		case "limit":
			line = fmt.Sprintf("%d limit d%d%s", now, d, rapid.SampledFrom([]string{"", " 3", " 5", " 8"}).Draw(t, "limit"))
		case "member":
			line = fmt.Sprintf("%d member d%d", now, d)
		case "yard":
			line = fmt.Sprintf("%d yard %d", now, rapid.IntRange(0, len(yards)-1).Draw(t, "yard"))
		case "tick":
			line = fmt.Sprint(now)
		case "publish":
			line = "publish"
			for i := range everyKind {
				line += " " + rapid.SampledFrom([]string{"same", "same", "same", "same", "gone", fmt.Sprint((i + 1) % len(everyKind))}).Draw(t, "body")
			}
		}
		if strings.Contains(line, " v=") || strings.Contains(line, " ^") {
			for _, a := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"@a", "@b"}), 0, 2, rapid.ID).Draw(t, "anchors") {
				line += " " + a
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func (tl *timeline) chaos(line string) {
	words := strings.Fields(line)
	if words[0] != "publish" {
		tl.record(words)
		return
	}
	tl.rule = nil
	for i, w := range words[1:] {
		body := everyKind[i]
		switch w {
		case "gone":
			continue
		case "same":
		default:
			_, _ = fmt.Sscan(w, &i)
			body = everyKind[i]
		}
		tl.rule = append(tl.rule, bodyView(fmt.Sprintf("r%d", i), body))
	}
	tl.e.Install(tl.at(float64(tl.last)/1e9), pump, tl.rule, tl.emit)
}

// TestEveryKindIsTheSameWhereverTheEngineIsLoadedAgain runs a log in one go, and once more with the engine loaded from its
// pages at random places: late samples, clocks that were set back, full budgets, publishes and removals among it.
func TestEveryKindIsTheSameWhereverTheEngineIsLoadedAgain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limits := rules.Limits{Settings: rules.Settings{MaxKeys: rapid.SampledFrom([]int{8, 1000}).Draw(t, "keys"),
			MaxSamples: rapid.SampledFrom([]int{5, 1000}).Draw(t, "samples")}}
		whole, cut := newTimeline(t, limits).everyRule(), newTimeline(t, limits).everyRule()
		for _, line := range drawLines(t) {
			whole.chaos(line)
			cut.chaos(line)
			if rapid.IntRange(0, 5).Draw(t, "cut") == 0 {
				cut.reload(cut.store, cut.rule)
			}
		}
		whole.at(9000)
		cut.at(9000)
		if !slices.Equal(cut.edges, whole.edges) {
			t.Fatalf("edges differ:\n got %v\nwant %v", cut.edges, whole.edges)
		}
		if a, b := cut.e.Stats(), whole.e.Stats(); a != b {
			t.Fatalf("figures are %+v, not %+v", a, b)
		}
		if a, b := cut.e.Stats().Samples, whole.e.Stats().Samples; a != b {
			t.Fatalf("%d samples, not %d", a, b)
		}
		if a, b := cut.e.Health(pump.ProfileKey), whole.e.Health(pump.ProfileKey); !reflect.DeepEqual(a, b) {
			t.Fatalf("health is %+v, not %+v", a, b)
		}
		cut.reload(cut.store, cut.rule)
		whole.reload(whole.store, whole.rule)
		comparePages(t, cut, whole)
		checkEnds(t, whole)
	})
}

// comparePages compares what two engines store of the same state.
func comparePages(t *rapid.T, got, want *timeline) {
	if g, w := got.e.Everything(), want.e.Everything(); !reflect.DeepEqual(g, w) {
		t.Fatalf("pages differ:\n got %v\nwant %v", g, w)
	}
	if g, w := got.store["clocks"], want.store["clocks"]; !reflect.DeepEqual(g, w) {
		t.Fatalf("clocks differ:\n got %v\nwant %v", g, w)
	}
}

// running is a timeline whose snapshots are encoded while it goes on, and that begins again from one as soon as it is stored.
type running struct {
	*timeline
	t        *rapid.T
	snapshot *rules.Snapshot
	pages    []rules.Page // of it, so far
	before   plant        // as of the snapshot
	knew     *registered
	rule     []model.RuleView
	since    []string // lines after it
}

func (r *running) cut() {
	r.snapshot, r.pages, r.since = r.e.Cut(), r.e.FreezeClocks(), nil
	r.before, r.rule, r.knew = *r.plant, r.timeline.rule, r.facts.copy()
}

// encode encodes a part of the snapshot. After the last one the engine begins again there, and hears what has come since.
func (r *running) encode(units int) {
	pages, more := r.snapshot.NextUnits(units)
	if r.pages = append(r.pages, pages...); more {
		return
	}
	for _, pg := range r.pages {
		if r.store[pg.ID] = pg; pg.Data == nil {
			delete(r.store, pg.ID)
		}
	}
	fresh := rules.NewEngine(r.c, nil)
	if err := fresh.Load(slices.Collect(maps.Values(r.store))); err != nil {
		r.t.Fatal(err)
	}
	r.snapshot, *r.plant, r.timeline.rule, r.facts = nil, r.before, r.rule, r.knew
	r.e = fresh
	r.e.Install(rules.Position{Offset: r.offset, Listening: r.last}, pump, r.rule, func(e model.Edge) { r.t.Fatalf("a start emitted %+v", e) })
	for _, line := range r.since {
		r.chaos(line)
	}
}

// TestASnapshotIsOfItsPlaceWhateverComesMeanwhile: between its begin and its end there are records, which change what is not
// encoded yet, bring devices and remove them. What is stored is the state at its begin.
func TestASnapshotIsOfItsPlaceWhateverComesMeanwhile(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		whole, part := newTimeline(t, rules.Limits{}).everyRule(), &running{timeline: newTimeline(t, rules.Limits{}).everyRule(), t: t}
		for _, line := range drawLines(t) {
			whole.chaos(line)
			if part.snapshot == nil {
				part.cut()
			}
			part.chaos(line)
			part.since = append(part.since, line)
			if units := rapid.SampledFrom([]int{0, 0, 1, 1, 2, 64}).Draw(t, "units"); units > 0 {
				part.encode(units)
			}
		}
		for part.snapshot != nil {
			part.encode(1)
		}
		whole.at(9000)
		part.at(9000)
		if !slices.Equal(part.edges, whole.edges) {
			t.Fatalf("edges differ:\n got %v\nwant %v", part.edges, whole.edges)
		}
		if a, b := part.e.Stats(), whole.e.Stats(); a != b {
			t.Fatalf("figures are %+v, not %+v", a, b)
		}
		part.timeline.reload(part.store, part.timeline.rule)
		whole.reload(whole.store, whole.rule)
		comparePages(t, part.timeline, whole)
	})
}

// checkEnds removes the profile: what was raised and did not resolve resolves, and no budget holds anything.
func checkEnds(t *rapid.T, tl *timeline) {
	tl.e.Remove(tl.at(9001), pump.ProfileKey, tl.emit)
	if s, n := tl.e.Stats(), tl.e.Stats().Samples; s != (rules.Stats{}) || n != 0 {
		t.Fatalf("left %+v and %d samples", s, n)
	}
	raised := map[string]bool{}
	for _, e := range tl.edges {
		k := e.ID.Rule + " " + e.ID.Key
		if raised[k] == (e.Signal == model.Raised) {
			t.Fatalf("%s %s twice", k, e.Signal)
		}
		raised[k] = e.Signal == model.Raised
	}
	for k, up := range raised {
		if up {
			t.Fatalf("%s stays raised", k)
		}
	}
}

// TestDamagedMemoryOfEveryKindIsAnError flips each byte of each page, with its checksum mended: the engine either refuses the
// page or has a state that it writes again as it read it.
func TestDamagedMemoryOfEveryKindIsAnError(t *testing.T) {
	t.Parallel()
	tl := newTimeline(t, rules.Limits{}).everyRule()
	for line := range strings.SplitSeq("1 d1 1000 v=9 @a;2 d1 1004 v=8 @a @b;3 d2 1003 v=9 @a;3 d1 1001 v=1;4 d1 900 v=9;5 d3 1000 disconnected;6 enroll d4", ";") {
		tl.record(strings.Fields(line))
	}
	tl.edges = nil
	tl.reload(tl.store, tl.rule)
	pages := slices.Collect(maps.Values(tl.store))
	for i, pg := range pages {
		for at := range pg.Data[:len(pg.Data)-4] {
			for _, flip := range []byte{1, 0x80} {
				damaged := slices.Clone(pages)
				damaged[i].Data = reseal(pg.Data, at, flip)
				e := rules.NewEngine(tl.c, nil)
				if err := e.Load(damaged); err != nil {
					if !errors.Is(err, rules.ErrDamaged) && !errors.Is(err, rules.ErrVersion) {
						t.Errorf("page %s, byte %d: %v", pg.ID, at, err)
					}
					continue
				}
				e.Install(rules.Position{Offset: 1}, pump, tl.rule, func(model.Edge) {})
				e.Advance(rules.Position{Offset: 2, Listening: 1e15}, func(model.Edge) {})
			}
		}
	}
}

func reseal(page []byte, at int, flip byte) []byte {
	b := slices.Clone(page[:len(page)-4])
	b[at] ^= flip
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}
