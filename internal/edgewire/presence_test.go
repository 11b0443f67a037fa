package edgewire

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func transitions() *Presence {
	at := time.Unix(1_800_000_000, 5000).UTC()
	return &Presence{Kind: KindPresence, Transitions: []Transition{{Device: "pump", State: StateConnected, Session: 1 << 62, Occurred: at},
		{Device: "pump", State: StateDisconnected, Reason: "timeout", Session: 1 << 62, Expected: 7, Occurred: at}}}
}

func TestTransitionsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	p := transitions()
	if got, err := ParseUp(encoded(t, p)); err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, change := range map[string]func(*Presence){
		"none":     func(p *Presence) { p.Transitions = nil },
		"too many": func(p *Presence) { p.Transitions = make([]Transition, MaxTransitions+1) },
		"device":   func(p *Presence) { p.Transitions[1].Device = "a/b" },
		"state":    func(p *Presence) { p.Transitions[0].State = "connected" },
		"reason":   func(p *Presence) { p.Transitions[0].Reason = strings.Repeat("x", 257) },
		"session":  func(p *Presence) { p.Transitions[0].Session = 0 },
		"time":     func(p *Presence) { p.Transitions[0].Occurred = time.Unix(0, 0) },
	} {
		p := transitions()
		change(p)
		if _, err := ParseUp(encoded(t, p)); !errors.Is(err, ErrDocument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{`{"kind":"presence"}`, `{"kind":"presence","transitions":[{"device":"a","state":"CONNECTED","sessionId":1,"occurredTime":"2027-01-15T08:00:00Z"}]}`} {
		if _, err := ParseUp([]byte(text)); !errors.Is(err, ErrDocument) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzPresence(f *testing.F) {
	f.Add(encoded(f, transitions()))
	f.Add([]byte(`{"kind":"presence","transitions":[{"device":"a","state":"DEMOTED","sessionId":"1","occurredTime":"2027-01-15T08:00:00Z"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePresence(b)
		if err != nil {
			return
		}
		again, err := parsePresence(encoded(t, p))
		if err != nil || len(again.Transitions) != len(p.Transitions) {
			t.Fatalf("%+v became %+v, %v", p, again, err)
		}
	})
}
