package broker

import (
	"errors"
	"sync"
	"time"

	"weir/ingest"
	"weir/internal/edgewire"
	"weir/model"
)

// EdgeSource is the event source of what an edge asserts of the presence of the devices at its site.
func EdgeSource(device string) string { return "edge:" + device }

// presenceRetry is how long a transition waits that the tenant's ceiling or the log does not let in; its edge waits with it.
const presenceRetry = time.Second

// presence takes in transitions of devices at the site of an edge, in their order, and calls done once all of them are synced. What is said of devices for
// which the edge may not speak is counted and left out.
func (d *devices) presence(c *conn, p *edgewire.Presence, done func(verdict)) {
	for i := range p.Transitions {
		t := &p.Transitions[i]
		behind, err := d.b.deps.Edges.Behind(c.ctx, c.binding, t.Device)
		switch {
		case errors.Is(err, ErrNotBehind) || err == nil && behind.DeviceID == 0:
			d.b.metrics.edgePresence.WithLabelValues("not-authorized").Inc()
			continue
		case err != nil:
			done(verdict{code: codeUnspecified, reason: "the device cannot be looked up now"})
			return
		}
		for !d.transition(c, behind, t) {
			d.b.metrics.edgePresence.WithLabelValues("delayed").Inc()
			wait := time.NewTimer(presenceRetry)
			select {
			case <-wait.C:
			case <-c.ctx.Done():
				wait.Stop()
				return // the edge sends it again
			}
		}
		d.b.metrics.edgePresence.WithLabelValues("taken").Inc()
	}
	done(verdict{})
}

// transition hands one to the intake, and reports whether it is synced.
func (d *devices) transition(c *conn, device model.Binding, t *edgewire.Transition) bool {
	state := map[string]model.PresenceState{edgewire.StateConnected: model.Connected, edgewire.StateDisconnected: model.Disconnected, edgewire.StateDemoted: model.Demoted}[t.State]
	answers := make(chan ingest.Answer, 1)
	var once sync.Once
	d.b.deps.Intake.Presence(c.ctx, ingest.TransportUplink, EdgeSource(c.binding.Device), device,
		model.Presence{State: state, Reason: t.Reason, Session: t.Session, Expected: t.Expected, Occurred: model.NanosOf(t.Occurred)},
		func(a ingest.Answer) { once.Do(func() { answers <- a }) })
	select {
	case a := <-answers:
		return a.Outcome == ingest.Stored
	case <-c.ctx.Done():
		return false
	}
}
