package ingest

import (
	"context"
	"runtime"
	"testing"

	"weir/model"
	"weir/store"
)

// World is an instance without listeners for tests outside the package. Its applier runs by itself from Start on.
type World struct {
	*world
	cancel context.CancelFunc
	ended  chan error

	lives   Life
	version int           // of the profile
	ids     map[int]int64 // of devices that were deleted, below 0, or made again
}

// NewWorld returns a world with further projections, which are made again for each start. It writes checkpoints often.
func NewWorld(t testing.TB, projections func() []Projection) *World {
	return &World{world: newWorld(t, smallHeads, func(w *world) { w.projections = projections })}
}

// DB is the database.
func (w *World) DB() store.Store { return w.db }

// Furnish gives the instance a tenant, a profile with rules and the devices d1 to dn, whose row ids are 1 to n.
func (w *World) Furnish(devices int) { w.furnish(devices, w.rulesOf(1)...) }

// EndDevice deletes a device.
func (w *World) EndDevice(name string) {
	w.change(model.ViewChange{Kind: model.ViewDevice, Key: "acme/" + name})
}

// Send takes in a message of a device and waits until the log has it.
func (w *World) Send(device int, body string) bool {
	return w.send(w.arrival(device, body)).Outcome == Stored
}

// Start runs the applier.
func (w *World) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel, w.ended = cancel, make(chan error, 1)
	go func(a *Applier, ended chan error) { ended <- a.Run(ctx) }(w.applier, w.ended)
}

// Kill ends the process where it is, without a last checkpoint, and opens everything again. It does not start.
func (w *World) Kill() {
	w.applier.checkpoints.end()
	w.cancel()
	<-w.ended
	w.restart()
}

// Stop waits until everything is applied, and stops with a last checkpoint.
func (w *World) Stop() {
	_, last := w.log.Bounds()
	for w.applier.Applied() < last {
		select {
		case err := <-w.ended:
			w.t.Fatalf("the applier ended: %v", err)
		default:
		}
		runtime.Gosched()
	}
	w.cancel()
	w.must(<-w.ended)
}

// Checkpoints is how many checkpoints were written since the log began.
func (w *World) Checkpoints() uint64 { return w.applier.checkpoints.newest.Generation }

// tampering is a projection whose Record is done so many times at one offset.
type tampering struct {
	Projection
	at    model.Offset
	times int
}

func (t *tampering) Record(ctx context.Context, e *Event, out *Effects) error {
	if e.At.Offset != t.at {
		return t.Projection.Record(ctx, e, out)
	}
	for range t.times {
		if err := t.Projection.Record(ctx, e, out); err != nil {
			return err
		}
	}
	return nil
}

// losing and doubling wrap a projection so that it loses the record at an offset, or takes it in twice.
func losing(at model.Offset) func(Projection) Projection {
	return func(p Projection) Projection { return &tampering{p, at, 0} }
}

func doubling(at model.Offset) func(Projection) Projection {
	return func(p Projection) Projection { return &tampering{p, at, 2} }
}

// wrap wraps every projection of the applier.
func (a *Applier) wrap(with func(Projection) Projection) {
	for i, p := range a.results.all {
		a.results.all[i] = with(p)
	}
}

// wrapReadings wraps the projection that keeps the readings.
func (a *Applier) wrapReadings(with func(Projection) Projection) {
	for i, p := range a.results.all {
		if p == Projection(a.results.readings) {
			a.results.all[i] = with(p)
		}
	}
}

// addAltID remembers an event by its key, and reports false for one that was remembered already.
func (s *seen) addAltID(key []byte, at model.Nanos) bool {
	h := altIDHash(key)
	if _, known := s.altIDs[h]; known {
		return false
	}
	s.remember(h, key, at)
	return true
}
