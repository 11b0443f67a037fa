package app

import (
	"context"
	"net"
	"slices"
	"strings"

	"weir/model"
)

// dialOperators connects to brokers that the operator names in the configuration: unlike those that a tenant's user names they may be anywhere.
func dialOperators(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// suspension is why all transports are closed.
type suspension struct{ reason string }

// suspend closes all transports until resume is called: no message is taken in, devices are disconnected and cannot connect, listening time
// stands still. Several suspensions can overlap.
func (t *transports) suspend(reason string) (resume func()) {
	s := &suspension{reason}
	t.mu.Lock()
	first := len(t.suspended) == 0
	t.suspended = append(t.suspended, s)
	t.mu.Unlock()
	// The first suspension closes, the last resume opens.
	if first {
		// Intake before the connections: nothing is taken in any more while they are dropped.
		t.intake.into.Suspend(reason)
		t.spool.links.Shut()
		t.log.Error("all transports are closed", "reason", reason)
		for _, served := range t.all() {
			served.Drop(func(model.Binding) bool { return true })
		}
	}
	return func() {
		t.mu.Lock()
		// resume may be called twice: only a call that removes something can be the last.
		before := len(t.suspended)
		t.suspended = slices.DeleteFunc(t.suspended, func(o *suspension) bool { return o == s })
		last := before == 1 && len(t.suspended) == 0
		t.mu.Unlock()
		if last {
			t.intake.into.Resume()
			t.spool.links.Open()
			t.log.Info("all transports are open again")
		}
	}
}

// closedReasons says why all transports are closed, "" while they are open.
func (t *transports) closedReasons() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var reasons []string
	for _, s := range t.suspended {
		if !slices.Contains(reasons, s.reason) {
			reasons = append(reasons, s.reason)
		}
	}
	return strings.Join(reasons, "; ")
}
