package ingest

import (
	"context"

	"weir/model"
)

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
