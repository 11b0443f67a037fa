package series

import (
	"context"

	"weir/model"
	"weir/store"
)

// Trace is the record of one message: its offset in the log, and the number of its readings.
type Trace struct {
	Offset   model.Offset
	Received model.Micros
	Source   string
	AltID    string
	Readings int
}

// Traces returns the messages of a device's measurements with event times between from and to that were received between
// since and until, by their offset in the log. More than most messages are refused.
func (s *Series) Traces(ctx context.Context, tenantID, device int64, from, to, since, until model.Micros, most int) (map[model.Offset]*Trace, error) {
	sel := &selection{tenantID: tenantID, device: device, from: from, to: to}
	var out map[model.Offset]*Trace
	err := s.read(ctx, func(tx store.Tx, snap snapshot) error {
		out = map[model.Offset]*Trace{} // fn may run again: results of the last run must not remain
		w := new(snap.walk(ctx, tx, sel))
		add := func(p *piece) error {
			if err := w.spend(1); err != nil {
				return err
			}
			return p.trace(w.scratch(), out, since, until, most)
		}
		pieces, err := s.capture(snap, sel)
		if err != nil {
			return err
		}
		for i := range pieces {
			if err := add(&pieces[i]); err != nil {
				return err
			}
		}
		scopes, only, err := w.scopes()
		if err != nil {
			return err
		}
		for _, sc := range scopes.chunks {
			if err := w.pieces(&chunkCursor{scope: sc, limit: fullBatch}, add); err != nil {
				return err
			}
		}
		for _, sc := range scopes.blocks {
			if err := w.pieces(&blockCursor{scope: sc, only: only}, add); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

func (p *piece) trace(c *columns, out map[model.Offset]*Trace, since, until model.Micros, most int) error {
	c, err := p.decode(c, everything)
	if err != nil {
		return err
	}
	for i := range c.Times {
		at, received := model.Offset(c.Offsets[i]), model.Micros(c.Received[i])
		if received < since || received > until {
			continue
		}
		t := out[at]
		if t == nil {
			if len(out) >= most {
				return model.Errorf(model.CodeLimitExceeded, "more than %d messages lie in that span; narrow the time", most)
			}
			t = &Trace{Offset: at, Received: received, Source: p.labels.source}
			if c.AltIDs != nil {
				t.AltID = c.AltIDs[i]
			}
			out[at] = t
		}
		t.Readings++
	}
	return nil
}
