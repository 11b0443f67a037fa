package rules

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/test/draws"
	"weir/model"
)

// storm is a profile of a tenant with a rule that flaps and one that is honest.
type storm struct {
	e     *Engine
	at    Position
	edges []model.Edge
}

func (s *storm) emit(e model.Edge) { s.edges = append(s.edges, e) }

func (s *storm) install(tenant int64) {
	ref := ProfileRef{ProfileKey: ProfileKey{tenant, 10 * tenant}, TenantToken: fmt.Sprint("t", tenant), Token: "pump", Version: 1}
	s.e.Install(s.at, ref, []model.RuleView{view("noisy", hot(80)), view("honest", threshold(`{"metric":"hum","op":"gt","threshold":50}`))}, s.emit)
}

// apply advances listening time by a step and judges a value of a metric.
func (s *storm) apply(step time.Duration, tenant int64, metric string, value float64) {
	s.at.Offset++
	s.at.Listening += Listening(step)
	s.at.Received += model.Nanos(step)
	s.e.Advance(s.at, s.emit)
	s.e.Apply(&Input{Position: s.at, Profile: ProfileKey{tenant, 10 * tenant}, Device: testDevice(tenant), Occurred: s.at.Received.Micros(),
		Readings: readings(metric, value)}, s.emit)
}

func (s *storm) fired(tenant int64, rule string) (n int) {
	for _, e := range s.edges {
		if e.TenantID == tenant && e.Rule == rule {
			n++
		}
	}
	return n
}

func newStorm(t *testing.T, perSecond int) *storm {
	t.Helper()
	s := &storm{e: NewEngine(newTestCompiler(t, Limits{Settings: Settings{MaxEdges: perSecond}}), nil), at: Position{Epoch: 1, Received: 1e18}}
	s.install(1)
	s.install(2)
	return s
}

func TestARuleThatFlapsIsHeldAtTheCeilingAndNamed(t *testing.T) {
	t.Parallel()
	s := newStorm(t, 10)
	const n = 5000 // edges of the noisy rule, a millisecond apart
	for i := range n {
		s.apply(time.Millisecond, 1, "temp", float64(70+20*(i%2)))
	}
	// Two minutes of ten a second at once, ten for each of the five seconds, and one of its own.
	noisy := s.fired(1, "noisy")
	if noisy < 1245 || noisy > 1255 {
		t.Errorf("%d edges were kept", noisy)
	}
	s.apply(0, 1, "hum", 60)
	s.apply(0, 2, "temp", 90)
	s.apply(0, 2, "hum", 60)
	if s.fired(1, "honest") != 1 || s.fired(2, "noisy") != 1 || s.fired(2, "honest") != 1 {
		t.Errorf("a rule that flaps silences others: %d, %d, %d", s.fired(1, "honest"), s.fired(2, "noisy"), s.fired(2, "honest"))
	}
	h := s.e.Health(ProfileKey{1, 10})
	if h[0].Token != "honest" || h[0].Flaps || h[0].HeldEdges != 0 || h[0].Message != "" {
		t.Errorf("the honest rule: %+v", h[0])
	}
	if r := h[1]; r.Status != Active || !r.Flaps || r.HeldEdges != int64(n-1-noisy) || !strings.Contains(r.Message, "flaps") || !strings.Contains(r.Message, "detection.max_edges_per_second") {
		t.Errorf("the rule that flaps, of which %d edges are kept: %+v", noisy, r)
	}
	if u := s.e.Unhealthy(); len(u) != 1 || u[0].RuntimeID != "t1/pump@1/noisy" {
		t.Errorf("unhealthy are %+v", u)
	}
	if n, rule := s.e.Flapped(); n != h[1].HeldEdges || rule != "t1/pump@1/noisy" {
		t.Errorf("%d of %s flapped", n, rule)
	}
	if n, _ := s.e.Flapped(); n != 0 {
		t.Errorf("%d flapped since", n)
	}
	// What it may have comes back with the time, and the finding goes.
	s.edges = nil
	s.apply(time.Hour, 1, "temp", 70)
	s.apply(0, 1, "temp", 90)
	if h := s.e.Health(ProfileKey{1, 10})[1]; s.fired(1, "noisy") < 1 || h.Flaps || h.Message != "" || len(s.e.Unhealthy()) != 0 {
		t.Errorf("an hour later %d edges, %+v", s.fired(1, "noisy"), h)
	}
}

// TestTheCeilingIsTheSameWhereverTheEngineIsLoadedAgain cuts a log in which the ceiling is met at random places.
func TestTheCeilingIsTheSameWhereverTheEngineIsLoadedAgain(t *testing.T) {
	t.Parallel()
	for seed := range draws.Seeds(5) {
		run := func(loads bool) *storm {
			s, r, cut := newStorm(t, 1+int(seed)), rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
			pages := map[string]Page{}
			for range 4000 {
				s.apply(time.Duration(r.IntN(30))*time.Millisecond, 1+int64(r.IntN(2)), []string{"temp", "temp", "temp", "hum"}[r.IntN(4)], float64(r.IntN(2)*100))
				if !loads || cut.IntN(300) > 0 {
					continue
				}
				for _, p := range slices.Concat(s.e.Freeze(), s.e.FreezeCeilings(s.at.Listening), s.e.FreezeOwed()) {
					if pages[p.ID] = p; p.Data == nil {
						delete(pages, p.ID)
					}
				}
				var all []Page
				for _, p := range pages {
					all = append(all, p)
				}
				s.e = NewEngine(newTestCompiler(t, s.e.limits), nil)
				if err := s.e.Load(all); err != nil {
					t.Fatal(err)
				}
				before := len(s.edges)
				s.install(1)
				s.install(2)
				if len(s.edges) != before {
					t.Fatal("edges while it was loaded")
				}
			}
			return s
		}
		whole, cut := run(false), run(true)
		if !slices.Equal(whole.edges, cut.edges) {
			t.Errorf("seed %d: %d edges, in one go %d", seed, len(cut.edges), len(whole.edges))
		}
		for tenant := range int64(2) {
			k := ProfileKey{1 + tenant, 10 + 10*tenant}
			got, want := fmt.Sprintf("%+v", cut.e.Health(k)), fmt.Sprintf("%+v", whole.e.Health(k))
			if got != want {
				t.Errorf("seed %d: health\n%s, in one go\n%s", seed, got, want)
			}
			if seed == 0 && !strings.Contains(want, "flaps") {
				t.Errorf("the ceiling is not met: %s", want)
			}
		}
	}
}

func TestThePageOfCeilingsIsFrozen(t *testing.T) {
	t.Parallel()
	s := newStorm(t, 1)
	if pages := s.e.FreezeCeilings(0); len(pages) != 0 {
		t.Errorf("without edges: %+v", pages)
	}
	for i := range 300 {
		s.apply(0, 1, "temp", float64(90-20*(i%2)))
	}
	pages := s.e.FreezeCeilings(0)
	const want = "0165010280c0f588fe06010214056e6f69737980c0a8ca9a3ae6028080a0f6f4acdbe01b"
	if len(pages) != 1 || pages[0].ID != "edges" || fmt.Sprintf("%x", pages[0].Data[:len(pages[0].Data)-4]) != want {
		t.Errorf("the page is %s %x, want %s", pages[0].ID, pages[0].Data[:len(pages[0].Data)-4], want)
	}
	for at := range pages[0].Data {
		bad := Page{ID: "edges", Data: slices.Clone(pages[0].Data)}
		bad.Data[at] ^= 4
		if err := NewEngine(newTestCompiler(t, Limits{}), nil).Load(append(s.e.Freeze(), bad)); err == nil || !strings.Contains(err.Error(), "edges") {
			t.Errorf("byte %d changed: %v", at, err)
		}
	}
	if err := NewEngine(newTestCompiler(t, Limits{}), nil).Load(pages); err == nil {
		t.Error("a page of rules that do not exist is loaded")
	}
}

// TestAfterAStormWhatWasHeardOfAKeyIsRight: a key whose last edge was over the ceiling is heard as soon as there is room, and so
// are its alarms; one that came back to what was heard of it is not.
func TestAfterAStormWhatWasHeardOfAKeyIsRight(t *testing.T) {
	t.Parallel()
	for seed := range draws.Seeds(6) {
		r, cut := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
		s := newStorm(t, 1)
		pages := map[string]Page{}
		raised := map[int64]bool{}
		step := func(device int64, up bool) {
			s.at.Offset++
			s.at.Listening += Listening(time.Millisecond)
			s.at.Received += 1e6
			s.e.Advance(s.at, s.emit)
			s.e.Apply(&Input{Position: s.at, Profile: ProfileKey{1, 10}, Device: testDevice(device), Occurred: s.at.Received.Micros(),
				Readings: readings("temp", map[bool]float64{true: 90, false: 70}[up])}, s.emit)
			raised[device] = up
		}
		for range 3000 {
			step(100+int64(r.IntN(40)), r.IntN(2) == 0)
			if cut.IntN(500) > 0 {
				continue
			}
			for _, p := range slices.Concat(s.e.Freeze(), s.e.FreezeCeilings(s.at.Listening), s.e.FreezeOwed()) {
				if pages[p.ID] = p; p.Data == nil {
					delete(pages, p.ID)
				}
			}
			s.e = NewEngine(newTestCompiler(t, s.e.limits), nil)
			if err := s.e.Load(slices.Collect(maps.Values(pages))); err != nil {
				t.Fatal(err)
			}
			s.install(1)
			s.install(2)
		}
		if owed := testutil.ToFloat64(s.e.metrics.owed); s.e.owing == 0 || owed != float64(s.e.owing) {
			t.Fatalf("%d are owed after the storm, the metric says %v", s.e.owing, owed)
		}
		for range 10 { // some minutes of quiet: a record of another device now and then
			s.apply(time.Minute, 2, "hum", 10)
		}
		heard := map[int64]bool{}
		for _, e := range s.edges {
			heard[e.Device] = e.Signal == model.Raised
		}
		for d, up := range raised {
			if heard[d] != up {
				t.Errorf("seed %d: of device %d raised=%v was heard last, it is %v", seed, d, heard[d], up)
			}
		}
		if owed := testutil.ToFloat64(s.e.metrics.owed); s.e.owing != 0 || owed != 0 {
			t.Errorf("seed %d: %d edges are still owed, the metric says %v", seed, s.e.owing, owed)
		}
	}
}

func TestThePageOfOwedEdgesIsFrozen(t *testing.T) {
	t.Parallel()
	s := newStorm(t, 1)
	for i := range 300 {
		s.apply(0, 1, "temp", float64(90-20*(i%2)))
	}
	pages := s.e.FreezeOwed()
	const want = "016f01021402048080b4ccd4dfc603056e6f697379000a70756d702f6e6f697379056465762d310000"
	if len(pages) != 1 || pages[0].ID != "owed" || fmt.Sprintf("%x", pages[0].Data[:len(pages[0].Data)-4]) != want {
		t.Fatalf("the page is %s %x, want %s", pages[0].ID, pages[0].Data[:len(pages[0].Data)-4], want)
	}
	for at := range pages[0].Data {
		bad := Page{ID: "owed", Data: slices.Clone(pages[0].Data)}
		bad.Data[at] ^= 4
		if err := NewEngine(newTestCompiler(t, Limits{}), nil).Load(append(s.e.Freeze(), bad)); err == nil || !strings.Contains(err.Error(), "owed") {
			t.Errorf("byte %d changed: %v", at, err)
		}
	}
}
