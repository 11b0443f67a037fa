package broker

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	d.each(c, len(p.Transitions), d.b.metrics.edgePresence, func(i int) string { return p.Transitions[i].Device },
		func(i int, b model.Binding) bool { return d.transition(c, b, &p.Transitions[i]) }, done)
}

// firings does the same with edges of rules that the site of an edge has judged.
func (d *devices) firings(c *conn, f *edgewire.Firings, done func(verdict)) {
	link := model.FiringLink(f.Install, f.Epoch)
	d.each(c, len(f.Firings), d.b.metrics.edgeFirings, func(i int) string { return f.Firings[i].Device },
		func(i int, b model.Binding) bool { return d.firing(c, b, link, &f.Firings[i]) }, done)
}

// each hands n things that an edge says of devices to the intake, each again until it is synced, and counts them.
func (d *devices) each(c *conn, n int, counted *prometheus.CounterVec, of func(i int) string, hand func(i int, b model.Binding) bool, done func(verdict)) {
	for i := range n {
		behind, err := d.b.deps.Edges.Behind(c.ctx, c.binding, of(i))
		switch {
		case errors.Is(err, ErrNotBehind) || err == nil && behind.DeviceID == 0:
			counted.WithLabelValues("not-authorized").Inc()
			continue
		case err != nil:
			done(verdict{code: codeUnspecified, reason: "the device cannot be looked up now"})
			return
		}
		for !hand(i, behind) {
			counted.WithLabelValues("delayed").Inc()
			wait := time.NewTimer(presenceRetry)
			select {
			case <-wait.C:
			case <-c.ctx.Done():
				wait.Stop()
				return // the edge sends it again
			}
		}
		counted.WithLabelValues("taken").Inc()
	}
	done(verdict{})
}

// firing hands one to the intake, and reports whether it is synced.
func (d *devices) firing(c *conn, device model.Binding, link string, f *edgewire.Firing) bool {
	made := model.Firing{Profile: f.Profile, Rule: f.Rule, Signal: map[string]model.EdgeSignal{edgewire.SignalRaised: model.Raised, edgewire.SignalResolved: model.Resolved}[f.Signal],
		Occurred: model.MicrosOf(f.Occurred)}
	if f.Value != nil {
		made.Value, made.HasValue = *f.Value, true
	}
	return synced(c, func(done func(ingest.Answer)) {
		d.b.deps.Intake.Firing(c.ctx, ingest.TransportUplink, EdgeSource(c.binding.Device), device, made, link, f.ID, done)
	})
}

// synced hands something to the intake, and reports whether it is synced.
func synced(c *conn, hand func(done func(ingest.Answer))) bool {
	answers := make(chan ingest.Answer, 1)
	var once sync.Once
	hand(func(a ingest.Answer) { once.Do(func() { answers <- a }) })
	select {
	case a := <-answers:
		return a.Outcome == ingest.Stored
	case <-c.ctx.Done():
		return false
	}
}

// transition hands one to the intake, and reports whether it is synced.
func (d *devices) transition(c *conn, device model.Binding, t *edgewire.Transition) bool {
	state := map[string]model.PresenceState{edgewire.StateConnected: model.Connected, edgewire.StateDisconnected: model.Disconnected, edgewire.StateDemoted: model.Demoted}[t.State]
	return synced(c, func(done func(ingest.Answer)) {
		d.b.deps.Intake.Presence(c.ctx, ingest.TransportUplink, EdgeSource(c.binding.Device), device,
			model.Presence{State: state, Reason: t.Reason, Session: t.Session, Expected: t.Expected, Occurred: model.NanosOf(t.Occurred)}, done)
	})
}
