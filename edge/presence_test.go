package edge

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/edgewire"
	"weir/internal/test/poll"
	"weir/model"
)

func comes(device string, session uint64) transition {
	return transition{Transition: edgewire.Transition{Device: device, State: edgewire.StateConnected, Session: session, Occurred: time.Unix(1_800_000_000, 0).UTC()}}
}

// TestTransitionsWaitUntilTheyAreTaken: they keep their order, what is lost on a connection is sent on the next, and at the bound the newest of each
// device stays.
func TestTransitionsWaitUntilTheyAreTaken(t *testing.T) {
	t.Parallel()
	lost := 0
	p := newSitePresence("acme", savedPresence{}, func() { lost++ })
	at := func(t *transition) time.Time { return t.Occurred }
	p.note("other", comes("x", 1))
	for i := range 3 {
		p.note("acme", comes("pump", uint64(i+1)))
	}
	one, two := &connection{}, &connection{}
	if got := p.batch(one, at); got == nil || len(got.Transitions) != 3 || got.Transitions[2].Session != 3 {
		t.Fatalf("%+v", got)
	}
	if got := p.batch(one, at); got != nil {
		t.Errorf("%+v is sent while another batch is on its way", got)
	}
	if got := p.batch(two, at); got == nil || len(got.Transitions) != 3 {
		t.Errorf("the next connection sends %+v", got)
	}
	p.answered(one, 0) // too late: that connection is over
	if p.count() != 3 {
		t.Errorf("%d wait", p.count())
	}
	p.answered(two, 0x97)
	if got := p.batch(two, at); got == nil || len(got.Transitions) != 3 {
		t.Errorf("after a refusal for now: %+v", got)
	}
	p.answered(two, 0)
	if p.count() != 0 {
		t.Errorf("%d wait", p.count())
	}
	for i := range maxTransitions {
		p.note("acme", comes(fmt.Sprint("d", i%100), uint64(i+1)))
	}
	p.batch(two, at)
	p.note("acme", comes("d7", 1<<40))
	if n := p.count(); n != edgewire.MaxTransitions+100+1 || lost != maxTransitions-edgewire.MaxTransitions-100 {
		t.Errorf("%d wait, %d are lost", n, lost)
	}
	saved := p.save()
	again := newSitePresence("acme", saved, func() {})
	if again.count() != p.count() {
		t.Errorf("%d wait after a restart", again.count())
	}
	if p.answered(two, 0x99) || p.batch(two, at) != nil {
		t.Error("a peer that does not know them is asked again")
	}
}

// TestWhoIsAtTheSiteIsKept for the tracker of the edge's own broker.
func TestWhoIsAtTheSiteIsKept(t *testing.T) {
	t.Parallel()
	p := newSitePresence("acme", savedPresence{}, func() {})
	b := func(id int64) model.Binding {
		return model.Binding{Tenant: "acme", Device: fmt.Sprint("d", id), DeviceID: id}
	}
	for id := range int64(5) {
		p.asserted(b(id+1), &model.Presence{State: model.Connected, Session: uint64(id) + 10, Occurred: model.NanosOf(time.Unix(1_800_000_000, 0))})
	}
	p.asserted(b(2), &model.Presence{State: model.Disconnected, Session: 11})
	p.asserted(b(3), &model.Presence{State: model.Demoted, Session: 12})
	p = newSitePresence("acme", p.save(), func() {})
	all, err := p.AssertedPresence(t.Context(), "mqtt1", 1, 2)
	if err != nil || len(all) != 2 || all[0].Binding.DeviceID != 2 || all[0].Connected || all[1].Binding.DeviceID != 4 || !all[1].Connected {
		t.Errorf("%+v, %v", all, err)
	}
	if s, _ := p.PresenceSession(t.Context(), 5); s != 14 {
		t.Errorf("session %d", s)
	}
}

// TestThePresenceOfAPlatformsDevicesGoesUp, also what happened while the uplink was away, and across a restart.
func TestThePresenceOfAPlatformsDevicesGoesUp(t *testing.T) {
	t.Parallel()
	w := startWeirAbove(t)
	dir := t.TempDir()
	p := openPlatform(t, dir, refusingAddress(t), func(s *Settings) { s.Uplink.Presence = true })
	told := func(want ...string) {
		t.Helper()
		poll.Until(t, "transitions are above", func() error {
			var got []string
			for _, m := range w.Messages() {
				if m.Topic != "weir/acme/edges/gw/up" {
					continue
				}
				if d, err := edgewire.ParseUp([]byte(m.Payload)); err == nil {
					if d, ok := d.(*edgewire.Presence); ok {
						for _, one := range d.Transitions {
							got = append(got, fmt.Sprint(one.Device, " ", one.State, " ", one.Session))
						}
					}
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("%v, want %v", got, want)
			}
			return nil
		})
	}
	transit := func(state model.PresenceState, session uint64) *model.Record {
		return stamped(model.Record{Kind: model.KindPresence, Presence: &model.Presence{State: state, Session: session, Occurred: model.NanosOf(time.Now())}})
	}
	p.append(t, nil, transit(model.Connected, 5), transit(model.Disconnected, 5))
	poll.True(t, "they wait", func() bool { return p.presence.count() == 2 })
	p.stop()
	p = openPlatform(t, dir, "127.0.0.1:"+w.Port(), func(s *Settings) { s.Uplink.Presence = true })
	told("pump CONNECTED 5", "pump DISCONNECTED 5")
	p.append(t, nil, transit(model.Connected, 6))
	told("pump CONNECTED 5", "pump DISCONNECTED 5", "pump CONNECTED 6")
	poll.True(t, "none waits", func() bool { return p.presence.count() == 0 })
	if n := p.Status().Newest; n != 0 {
		t.Errorf("transitions have numbers up to %d", n)
	}
}

func refusingAddress(t *testing.T) string { return "127.0.0.1:" + refusing(t) }
