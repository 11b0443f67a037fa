package ingest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/internal/test/draws"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/rules"
	"weir/store"
	"weir/store/listening"
)

// timesHeard notes at each message what the engine knew of time.
type timesHeard struct {
	ProjectionBase
	w    *world
	all  *[]heardAt
	seen map[model.Offset]bool
}

type heardAt struct {
	received model.Micros
	boot     uint64
	all      rules.Listening // of the transports
	own      map[string]rules.Listening
}

func (h *timesHeard) Record(_ context.Context, e *Event, _ *Effects) error {
	if e.Record == nil || !timed(e.Record.Kind) || h.seen[e.At.Offset] {
		return nil
	}
	h.seen[e.At.Offset] = true
	at := heardAt{received: e.Record.Received.Wall.Micros(), boot: e.Record.Received.Boot, all: e.At.Listening, own: map[string]rules.Listening{}}
	for _, link := range []string{"", "plant"} {
		at.own[link] = h.w.applier.deps.Rules.Own(1, link, e.At.Listening)
	}
	*h.all = append(*h.all, at)
	return nil
}

func (w *world) history() (h *listening.History) {
	w.t.Helper()
	w.must(w.db.Read(context.Background(), func(tx store.Tx) (err error) {
		h, err = listening.Read(tx, 1)
		return err
	}))
	return h
}

// TestTheListeningTimeOfAReadingFollowsFromItsReceiveStamp: whatever happened, the rows say what the engine had.
func TestTheListeningTimeOfAReadingFollowsFromItsReceiveStamp(t *testing.T) {
	t.Parallel()
	for seed := range draws.Seeds(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			var heard []heardAt
			seen := map[model.Offset]bool{}
			w := newWorld(t, func(w *world) {
				w.built = noon.AddDate(-1, 0, 0)
				w.cfg.RestartGrace = time.Minute
				w.projections = func() []Projection { return []Projection{&timesHeard{w: w, all: &heard, seen: seen}} }
			})
			w.furnish(3, model.RuleView{Token: "a", Definition: `{"name":"n","type":"absence","timeout":"30s"}`})
			w.begin()
			w.happens(rand.New(rand.NewPCG(seed, 7)), 150)
			w.apply()
			if len(heard) < 60 {
				t.Fatalf("%d messages", len(heard))
			}
			h := w.history()
			for i, at := range heard {
				all, boot, ok := h.Transports(at.received)
				if d := all - int64(at.all); !ok || d < -5000 || d > 5000 || boot != at.boot {
					t.Fatalf("message %d at %s: %d of start %d, %v; the engine had %d of %d", i, at.received, all, boot, ok, at.all, at.boot)
				}
				for link, want := range at.own {
					if own, _ := h.Of(1, link, at.received); own-int64(want) < -5000 || own-int64(want) > 5000 {
						t.Fatalf("message %d at %s, link %q: %d, the engine had %d", i, at.received, link, own, want)
					}
				}
			}
			if n := len(fixture.Rows(t, w.db, `SELECT id FROM listening_spans WHERE tenant_id = 0`)); n > len(heard)/2 {
				t.Errorf("%d rows for %d messages", n, len(heard))
			}
		})
	}
}

// happens is a random life of an instance: messages of two sources, and everything that stops time or moves the wall clock.
func (w *world) happens(r *rand.Rand, n int) {
	w.t.Helper()
	enabled := true
	for range n {
		w.clock.advance(time.Duration(r.IntN(20_000)) * time.Millisecond / time.Duration(1+r.IntN(50)))
		switch r.IntN(24) {
		case 0:
			wall, _ := w.clock.now()
			w.clock.step(wall.Add(time.Duration(r.IntN(240)-120) * time.Second))
		case 1:
			w.counts.links.Shut()
			w.clock.advance(time.Duration(r.IntN(30)) * time.Second)
			w.counts.links.Open()
		case 2:
			w.counts.links.Refused("acme")
		case 3:
			w.counts.links.Link("plant").Up()
		case 4:
			w.counts.links.Link("plant").Down()
		case 5:
			enabled = !enabled
			w.change(row(model.ViewTenant, "acme", model.TenantView{V: 1, ID: 1, Enabled: enabled}))
		case 6:
			w.startAgain(r)
		case 7:
			w.apply()
		default:
			a := w.arrival(1+r.IntN(3), temp(1))
			if r.IntN(2) == 0 {
				a.Source = "plant"
			}
			w.send(a)
		}
	}
}

// TestListeningSpansAreFew: a row is written where the time goes on otherwise, and none as long as it does not.
func TestListeningSpansAreFew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.built = noon.AddDate(-1, 0, 0) })
	w.furnish(1, model.RuleView{Token: "a", Definition: `{"name":"n","type":"absence","timeout":"30s"}`})
	w.begin()
	known := 0
	spans := func(what string, want ...string) {
		t.Helper()
		w.apply()
		var got []string
		for _, r := range fixture.Rows(t, w.db, `SELECT tenant_id || link, slope, (listening + 500000000) / 1000000000, (lag + 500000000) / 1000000000 FROM listening_spans ORDER BY id`) {
			got = append(got, fmt.Sprint(r))
		}
		if !slices.Equal(got[known:], want) {
			t.Errorf("%s: %q, want %q", what, got[known:], want)
		}
		known = len(got)
	}
	say := func(n int, source string) {
		for range n {
			w.clock.advance(10*time.Second + time.Duration(n)*time.Nanosecond)
			a := w.arrival(1, temp(1))
			a.Source = source
			w.send(a)
		}
	}
	say(20, "mqtt1")
	spans("as it goes", "0 1 0 0")
	w.clock.step(noon.Add(-time.Hour))
	say(20, "mqtt1")
	spans("an hour back", "0 2 210 0")
	w.clock.step(noon.Add(10 * time.Minute))
	say(5, "mqtt1")
	spans("forward again", "0 1 410 0")
	w.counts.links.Shut()
	w.clock.advance(time.Minute)
	w.counts.links.Open()
	say(5, "mqtt1")
	spans("closed for a minute", "0 1 460 0")
	w.counts.links.Refused("acme")
	say(5, "mqtt1")
	spans("refused", "1 0 500 0", "1 1 510 10")
	w.counts.links.Link("plant").Up()
	say(5, "plant")
	spans("a link comes up")
	w.counts.links.Link("plant").Down()
	say(2, "mqtt1")
	w.counts.links.Link("plant").Up()
	say(2, "mqtt1")
	spans("and is cut", "1plant 0 600 10", "1plant 1 620 30")
	w.change(row(model.ViewTenant, "acme", model.TenantView{V: 1, ID: 1}))
	w.clock.advance(time.Hour)
	w.change(row(model.ViewTenant, "acme", model.TenantView{V: 1, ID: 1, Enabled: true}))
	spans("disabled for an hour", "1 0 640 10", "1plant 0 640 30", "1 1 4240 3610", "1plant 1 4240 3630")
	say(1, "mqtt1")
	w.apply()
	w.clock.advance(time.Minute)
	w.restart()
	w.begin()
	say(2, "mqtt1")
	spans("another start", "0 1 4260 10", "1plant 0 4250 3630")
	w.clock.step(w.applier.Received().Time().Add(-30 * time.Second))
	say(5, "mqtt1")
	spans("half a minute back", "0 2 4280 0")
}

// TestListeningSpansAreBounded: by number, of a tenant and in all, and by age: what explains readings that are kept stays.
func TestListeningSpansAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(w.db.Write(context.Background(), store.Durable, func(tx store.Tx) error {
		var spans []listening.Span
		for i := range 16<<10 + 50 {
			spans = append(spans, listening.Span{TenantID: 1, Offset: model.Offset(i + 1), Received: model.Micros(i), Slope: int64(i % 2)})
		}
		spans = append(spans, listening.Span{TenantID: 2, Offset: 5}, spans[7])
		for i := range 100 {
			spans = append(spans, listening.Span{Offset: model.Offset(i + 1), Received: model.Micros(i), Slope: 1})
		}
		if err := listening.Add(tx, spans); err != nil {
			return err
		}
		if err := listening.Trim(tx, 16<<10+10, 0, 1, 2); err != nil { // 40 lie after the checkpoint
			return err
		}
		return store.SetCheckpointState(tx, 16<<10+10, 1)
	}))
	count := func(what, want string) {
		t.Helper()
		rows := fixture.Rows(t, w.db, `SELECT tenant_id, count(*), min(log_offset), max(log_offset) FROM listening_spans GROUP BY tenant_id ORDER BY tenant_id`)
		if got := fmt.Sprint(rows); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	count("by number", "[0 100 1 100 1 16424 11 16434 2 1 5 5]")
	sweep := func(before model.Micros) {
		w.must(w.db.Write(context.Background(), store.Durable, func(tx store.Tx) error {
			_, err := store.RemoveBefore(tx, store.KeptListening, before, 1<<20)
			return err
		}))
	}
	sweep(30) // what began last before that explains what came then
	count("by age", "[0 71 30 100 1 16405 30 16434 2 1 5 5]")
	sweep(1 << 40)
	count("all are old", "[0 64 37 100 1 41 16394 16434 2 1 5 5]") // also the one in which the checkpoint lies
}

// TestRecordsThatOvertakeOneAnother: a record that reaches the log after later ones has the listening time of its own stamp, on both sides of a
// step of the wall clock, and a course that is read again goes on as the one that was not.
func TestRecordsThatOvertakeOneAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for seed := range draws.Seeds(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		type at struct{ received, mono int64 }
		var stamps []at
		received, mono := int64(1e15), int64(0)
		for range 400 { // microseconds
			d := int64(r.IntN(1_000_000))
			if received, mono = received+d, mono+d; r.IntN(40) == 0 {
				received += int64(1e6 + r.IntN(1e9))
			}
			stamps = append(stamps, at{received, mono})
		}
		for i := range stamps { // each may be overtaken by some
			if j := i + r.IntN(6); j < len(stamps) {
				stamps[i], stamps[j] = stamps[j], stamps[i]
			}
		}
		var course, again listening.Course
		var spans []listening.Span
		var newest at
		for i, s := range stamps {
			rec := listening.Record{Offset: model.Offset(i + 1), Received: model.Micros(s.received), Boot: 1, Listening: s.mono * 1000, Open: true,
				NewestReceived: model.Micros(newest.received), NewestListening: newest.mono * 1000}
			n, needed := course.Next(&rec)
			if i >= 200 {
				if m, also := again.Next(&rec); also != needed || m != n {
					t.Fatalf("seed %d: read again the course has %+v, %v for %d, not %+v, %v", seed, m, also, i, n, needed)
				}
			}
			if needed {
				spans = append(spans, n)
			}
			newest = at{max(newest.received, s.received), max(newest.mono, s.mono)}
			if i == 199 {
				w.must(w.db.Write(context.Background(), store.Durable, func(tx store.Tx) error {
					if _, err := tx.Exec(`DELETE FROM listening_spans`); err != nil {
						return err
					}
					if err := listening.Add(tx, spans); err != nil {
						return err
					}
					return again.Load(tx, model.Offset(i+1))
				}))
			}
		}
		w.must(w.db.Write(context.Background(), store.Durable, func(tx store.Tx) error { return listening.Add(tx, spans) }))
		h := w.history()
		for i, s := range stamps {
			if l, _, ok := h.Transports(model.Micros(s.received)); !ok || l != s.mono*1000 {
				t.Fatalf("seed %d: record %d has %d, %v, not %d", seed, i, l, ok, s.mono*1000)
			}
		}
		if len(spans) > 60 {
			t.Errorf("seed %d: %d rows", seed, len(spans))
		}
	}
}

// startAgain ends the process, with or without a last checkpoint, and starts it some time later.
func (w *world) startAgain(r *rand.Rand) {
	w.t.Helper()
	w.apply()
	if r.IntN(2) == 0 {
		w.writeHead()
	}
	w.clock.advance(time.Duration(r.IntN(100)) * time.Second)
	if wall, _ := w.clock.now(); wall.Before(w.applier.Received().Time()) { // a start waits for a wall clock that it can believe
		w.clock.step(w.applier.Received().Time())
	}
	w.restart()
	w.begin()
}
