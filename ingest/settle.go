package ingest

import (
	"context"
	"encoding/json"
	"fmt"

	"weir/model"
	"weir/spool"
	"weir/store"
)

// Where the newest receive stamp and the newest time map as of the head are kept.
const (
	metaReceived = "received"
	metaTimeMap  = "time_map"
)

// Received is the newest receive stamp that was applied.
func (a *Applier) Received() model.Nanos { return model.Nanos(a.received.Load()) }

// awaitTimes waits until the time of day is known for every record of the batch: of this boot until its clock is set, of a
// former one until the log has been searched. A change of the registry needs none.
func (a *Applier) awaitTimes(ctx context.Context, b *spool.Batch) error {
	for i := range b.Records {
		kind, boot, unset := model.PeekRecord(b.Records[i].Data)
		if !unset || !timed(kind) || a.timeMap != nil && a.timeMap.Boot == boot {
			continue
		}
		m, err := a.findTimeMap(ctx, boot, max(b.First, a.Applied()+1))
		if err != nil {
			return err
		}
		a.timeMap = m
	}
	return nil
}

// timed reports whether the receive time of such a record means something.
func timed(k model.RecordKind) bool { return k != model.KindControl && k != model.KindTimeMap }

// findTimeMap returns the time map of a boot. It stands in the log behind the records that need it. A boot that ended
// before it knew the time gets one that says so, in the log too, so that every replay reads the same.
func (a *Applier) findTimeMap(ctx context.Context, boot uint64, from model.Offset) (*model.TimeMap, error) {
	if c := a.Clock; c != nil && c.cfg.Boot == boot {
		if m := c.mapOfBoot(); m != nil {
			return m, nil
		}
		why := "what came in since the start waits for the clock: " + c.Doubt()
		a.waiting.Store(&why)
		defer a.waiting.Store(nil)
		return c.timeMap(ctx)
	}
	m, err := a.searchTimeMap(boot, from)
	if err != nil || m != nil {
		return m, err
	}
	m = &model.TimeMap{Boot: boot, Guessed: true}
	a.Logger.Warn("a former start ended before the clock was set: what came in then counts from the newest stamp before it; event times are kept as sent")
	return m, appendTimeMap(ctx, a.Log, model.Stamp{Boot: boot, Wall: a.lastReceived, Clock: model.ClockUnset}, m)
}

func (a *Applier) searchTimeMap(boot uint64, from model.Offset) (*model.TimeMap, error) {
	r, err := a.Log.Reader(from)
	if err != nil {
		return nil, fmt.Errorf("looking for the time of a former start: %w", err)
	}
	defer r.Close()
	for {
		b, err := r.TryNext()
		if err != nil || b == nil {
			return nil, err
		}
		for i := range b.Records {
			if kind, _, _ := model.PeekRecord(b.Records[i].Data); kind != model.KindTimeMap {
				continue
			}
			rec, err := model.DecodeRecord(b.Records[i].Data)
			if err != nil {
				return nil, err
			}
			if rec.TimeMap.Boot == boot {
				return rec.TimeMap, nil
			}
		}
	}
}

// settle gives a record that was stamped without a time of day the one that its boot's time map tells. The record is
// shared: what is changed is a copy.
func (a *Applier) settle(r *model.Record) *model.Record {
	if r.Received.Clock != model.ClockUnset || !timed(r.Kind) || a.timeMap == nil {
		return r
	}
	c := *r
	s := &c.Received
	s.Counted, s.Clock, s.Wall = s.Wall, model.ClockGuessed, max(s.Wall, a.lastReceived)
	if m := a.timeMap; !m.Guessed {
		at := m.At(s.Mono)
		s.Clock, s.Wall = model.ClockSure, max(at, a.lastReceived)
		if s.Wall-at > clockSlack {
			s.Clock, s.Shown = model.ClockBehind, at
		}
	}
	if r.Presence != nil {
		p := *r.Presence
		p.Occurred = s.Wall
		if s.Shown != 0 {
			p.Occurred = s.Shown
		}
		c.Presence = &p
	}
	return &c
}

// learnTimeMap takes a time map in that is met in its place. The first of a boot holds.
func (a *Applier) learnTimeMap(m *model.TimeMap) {
	if a.timeMap == nil || a.timeMap.Boot != m.Boot {
		a.timeMap = m
	}
}

func (a *Applier) loadTimes(tx store.Tx) error {
	n, err := ReceivedAsOfHead(tx)
	if err != nil {
		return err
	}
	a.lastReceived = n
	a.received.Store(int64(n))
	b, err := store.Meta(tx, metaTimeMap)
	if err != nil || b == nil {
		return err
	}
	a.timeMap = new(model.TimeMap)
	if err := json.Unmarshal(b, a.timeMap); err != nil {
		return fmt.Errorf("%w: meta %s", store.ErrDamaged, metaTimeMap)
	}
	return nil
}

// ReceivedAsOfHead is the receive time of the newest record that the head contains.
func ReceivedAsOfHead(tx store.Tx) (model.Nanos, error) {
	n, _, err := store.MetaInt(tx, metaReceived)
	return model.Nanos(n), err
}

func (f *frozenHead) writeTimes(tx store.Tx) error {
	if err := store.SetMetaInt(tx, metaReceived, int64(f.received)); err != nil || f.timeMap == nil {
		return err
	}
	b, err := json.Marshal(f.timeMap)
	if err != nil {
		return err
	}
	return store.SetMeta(tx, metaTimeMap, b)
}
