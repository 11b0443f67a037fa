package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"weir/model"
	"weir/rules"
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
		done := make(chan Answer, 1)
		w.intake.Presence(context.Background(), TransportMQTT, "mqtt1", *w.arrival(device, "").Conn,
			model.Presence{State: state, Session: session, Occurred: w.clock.stamp().Wall}, func(a Answer) { done <- a })
		if a := <-done; a.Outcome != Stored {
			t.Fatalf("the transition is not taken: %+v", a)
		}
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
