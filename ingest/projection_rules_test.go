package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/rules"
	"weir/store"
)

// goneKind is a kind of rule from outside: it is raised while its device is disconnected.
type goneKind struct{}

func (goneKind) Type() rules.Type { return "gone" }

func (goneKind) Uses(*rules.Definition) (rules.Uses, *rules.Error) {
	return rules.Uses{Presence: true, Value: true, Keys: rules.ByDevice}, nil
}

func (goneKind) Check(*rules.Definition) *rules.Error { return nil }

func (k goneKind) Compile(*rules.Definition, *rules.Predicate) (rules.Judge, *rules.Error) {
	return k, nil
}

func (goneKind) Decode([]byte) (rules.Memory, error) {
	return nil, errors.New("the kind keeps nothing")
}

func (goneKind) Judge(st *rules.State, s *rules.Sample, out *rules.Verdict) {
	st.Latch(s.Presence == model.Disconnected, rules.Firing{At: s.Occurred, Value: float64(s.Presence), HasValue: true}, out)
}

// A rule that judges presence sees the state that each transition asserts, and no message; the transition of a session that is over does not count.
func TestRulesSeeTheStateOfATransition(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.kinds = []rules.Kind{goneKind{}} })
	w.furnish(2, model.RuleView{Token: "gone", Definition: `{"name":"gone","type":"gone","severity":"major"}`})
	presence := func(device int, state model.PresenceState, session uint64) {
		t.Helper()
		w.claim(device, state, session)
		w.clock.advance(1e9)
	}
	presence(1, model.Connected, 1)
	w.send(w.arrival(1, temp(20)))
	presence(1, model.Disconnected, 1)
	presence(2, model.Connected, 1)
	w.send(w.arrival(2, temp(20)))
	presence(1, model.Connected, 2)
	presence(1, model.Disconnected, 1) // of a session that is over
	presence(2, model.Disconnected, 1)
	w.apply()
	var got []string
	for _, e := range w.edges {
		got = append(got, fmt.Sprintf("%s %s %g", e.Series, e.Signal, e.Value))
	}
	raised := fmt.Sprintf("raised %g", float64(model.Disconnected))
	if want := []string{"d1 " + raised, "d1 resolved 0", "d2 " + raised}; !slices.Equal(got, want) {
		t.Errorf("edges %q, want %q", got, want)
	}
}

// The kinds that need no record of time run over the log: connectivity with its reasons, and the windows without a lateness.
func TestKindsWithoutTimersRunOverTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1, model.RuleView{Token: "a", Definition: `{"name":"a","type":"connectivity"}`},
		model.RuleView{Token: "b", Definition: `{"name":"b","type":"aggregate","windowMode":"count","count":2,"agg":"sum","metric":"temp","op":"gt","threshold":50}`},
		model.RuleView{Token: "c", Definition: `{"name":"c","type":"deltaRate","metric":"temp","op":"ge","threshold":10,"lateness":"0s"}`},
		model.RuleView{Token: "d", Definition: `{"name":"d","type":"repeating","count":2,"window":"1h","lateness":"0s","when":{"metric":"temp","op":"gt","threshold":25}}`},
		model.RuleView{Token: "e", Definition: `{"name":"e","type":"aggregate","windowMode":"sliding","window":"1h","agg":"max","metric":"temp","op":"gt","threshold":35,"lateness":"0s"}`})
	presence := func(state model.PresenceState, reason string) {
		t.Helper()
		done := make(chan Answer, 1)
		w.intake.Presence(context.Background(), TransportMQTT, "mqtt1", *w.arrival(1, "").Conn,
			model.Presence{State: state, Reason: reason, Session: 1, Occurred: w.clock.stamp().Wall}, func(a Answer) { done <- a })
		if a := <-done; a.Outcome != Stored {
			t.Fatalf("the transition is not taken: %+v", a)
		}
		w.clock.advance(1e9)
	}
	var got []string
	edges := func(what string, want ...string) {
		t.Helper()
		w.apply()
		for _, e := range w.edges[len(got):] {
			got = append(got, fmt.Sprintf("%s %s", e.Rule, e.Signal))
		}
		if tail := got[len(got)-min(len(want), len(got)):]; !slices.Equal(tail, want) {
			t.Errorf("%s: edges %q, want %q", what, got, want)
		}
	}
	say := func(v float64) {
		w.send(w.arrival(1, temp(v)))
		w.clock.advance(1e9)
	}
	presence(model.Connected, "")
	say(20)
	presence(model.Disconnected, "")
	edges("disconnected", "a raised")
	presence(model.Connected, "")
	edges("connected", "a raised", "a resolved")
	presence(model.Disconnected, "")
	say(31)
	edges("a jump of 11, a sum of 51", "a raised", "b raised", "c raised")
	w.restart()
	say(40)
	edges("twice over 25, once over 35", "c resolved", "d raised", "e raised")
	presence(model.Demoted, rules.ReasonSourceGone)
	edges("lost sight of", "c resolved", "d raised", "e raised")
	say(40)
	edges("heard of", "d raised", "e raised", "a resolved")
}

// TestTheStoreHoldsOneVersionOfEachPageOfRuleState: of long windows, over many heads, also after a process that ended before it removed what
// was replaced.
func TestTheStoreHoldsOneVersionOfEachPageOfRuleState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(4, model.RuleView{Token: "a", Definition: `{"name":"a","type":"aggregate","windowMode":"sliding","window":"10m","agg":"avg","metric":"temp","op":"gt","threshold":50}`})
	pages := func() (rows, versions, segments int) {
		w.must(w.db.Read(context.Background(), func(tx store.Tx) error {
			return tx.QueryRow(`SELECT COUNT(*), COUNT(DISTINCT page), COALESCE(SUM(page LIKE '%/w%'), 0) FROM rule_pages`).Scan(&rows, &versions, &segments)
		}))
		return rows, versions, segments
	}
	slide := func(heads int) {
		for range heads {
			for range 12 {
				for device := range 4 {
					w.send(w.arrival(device+1, temp(60)))
				}
				w.clock.advance(10e9)
			}
			w.apply()
			w.finishHead(w.applier)
		}
	}
	slide(8)
	if rows, versions, segments := pages(); rows != versions || segments < 4*5 || segments > 4*6 {
		t.Errorf("%d rows for %d pages, %d of segments", rows, versions, segments)
	}
	w.must(w.db.Write(context.Background(), store.Durable, func(tx store.Tx) error {
		_, err := tx.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
			INSERT INTO rule_pages (page, gen, tenant_id, body) SELECT page, 0, tenant_id, body FROM rule_pages
			UNION ALL SELECT 'unfinished ' || i, (SELECT MAX(gen) + 1 FROM rule_pages), 1, x'00' FROM n`)
		return err
	}))
	w.restart()
	edges := len(w.edges)
	slide(1)
	if rows, versions, _ := pages(); rows != versions {
		t.Errorf("%d rows for %d pages after a start", rows, versions)
	}
	if left := fixture.Rows(t, w.db, `SELECT page FROM rule_pages WHERE page LIKE 'unfinished%'`); len(left) > 0 {
		t.Errorf("%d pages of a checkpoint that did not end are left", len(left))
	}
	if w.edges = w.edges[edges:]; len(w.edges) > 0 {
		t.Errorf("a start fired %v", w.edges)
	}
}
