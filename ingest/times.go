package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"

	"weir/model"
	"weir/spool"
	"weir/store"
)

// Keys of the newest receive stamp and the newest time map as of the checkpoint.
const (
	metaReceived = "received"
	metaTimeMap  = "time_map"
)

// recordTimes resolves the receive times of records that were stamped while the time of day was unknown: by the time map of
// their boot, which lies further on in the log.
type recordTimes struct {
	log    spool.Log
	clock  *Clock // nil: it was always set
	logger *slog.Logger

	newest   model.Nanos            // receive time of any record
	timeMap  *model.TimeMap         // newest that is known: of the boot whose records are read
	received atomic.Int64           // newest, as of the last batch that is committed
	waiting  atomic.Pointer[string] // why the applier waits for the clock
}

// await waits until the time of day is known for every record of the batch that is not applied yet: of this boot until its
// clock is set, of a former one until the log has been searched. A metadata change needs none.
func (t *recordTimes) await(ctx context.Context, b *spool.Batch, applied model.Offset) error {
	for i := range b.Records {
		kind, boot, unset := model.PeekRecord(b.Records[i].Data)
		if !unset || !timed(kind) || t.timeMap != nil && t.timeMap.Boot == boot {
			continue
		}
		m, err := t.find(ctx, boot, max(b.First, applied+1))
		if err != nil {
			return err
		}
		t.timeMap = m
	}
	return nil
}

// timed reports whether the receive time of such a record means something.
func timed(k model.RecordKind) bool { return k != model.KindControl && k != model.KindTimeMap }

// find returns the time map of a boot. It lies in the log after the records that need it. A boot that ended before it knew
// the time gets one that says so, in the log too, so that every replay reads the same.
func (t *recordTimes) find(ctx context.Context, boot uint64, from model.Offset) (*model.TimeMap, error) {
	if c := t.clock; c != nil && c.cfg.Boot == boot {
		if m := c.mapOfBoot(); m != nil {
			return m, nil
		}
		why := "what came in since the start waits for the clock: " + c.Doubt()
		t.waiting.Store(&why)
		defer t.waiting.Store(nil)
		return c.timeMap(ctx)
	}
	m, err := t.search(boot, from)
	if err != nil || m != nil {
		return m, err
	}
	m = &model.TimeMap{Boot: boot, Guessed: true}
	t.logger.Warn("a former start ended before the clock was set: what came in then counts from the newest stamp before it; event times are kept as sent")
	return m, appendTimeMap(ctx, t.log, model.Stamp{Boot: boot, Wall: t.newest, Clock: model.ClockUnset}, m)
}

func (t *recordTimes) search(boot uint64, from model.Offset) (*model.TimeMap, error) {
	r, err := t.log.Reader(from)
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

// resolve gives a record that was stamped without a time of day the one that the time map of its boot says. The record is
// shared: what is changed is a copy.
func (t *recordTimes) resolve(r *model.Record) *model.Record {
	if r.Received.Clock != model.ClockUnset || !timed(r.Kind) || t.timeMap == nil {
		return r
	}
	c := *r
	s := &c.Received
	s.Counted, s.Clock, s.Wall = s.Wall, model.ClockGuessed, max(s.Wall, t.newest)
	if m := t.timeMap; !m.Guessed {
		at := m.At(s.Mono)
		s.Clock, s.Wall = model.ClockSure, max(at, t.newest)
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

// learn adds a time map that was read from the log. The first of a boot counts.
func (t *recordTimes) learn(m *model.TimeMap) {
	if t.timeMap == nil || t.timeMap.Boot != m.Boot {
		t.timeMap = m
	}
}

// load reads the times as of the checkpoint.
func (t *recordTimes) load(tx store.Tx) (err error) {
	if t.newest, err = ReceivedAtCheckpoint(tx); err != nil {
		return err
	}
	t.received.Store(int64(t.newest))
	b, err := store.Meta(tx, metaTimeMap)
	if err != nil || b == nil {
		return err
	}
	t.timeMap = new(model.TimeMap)
	if err := json.Unmarshal(b, t.timeMap); err != nil {
		return fmt.Errorf("%w: meta %s", store.ErrDamaged, metaTimeMap)
	}
	return nil
}

// ReceivedAtCheckpoint is the receive time of the newest record that the checkpoint contains.
func ReceivedAtCheckpoint(tx store.Tx) (model.Nanos, error) {
	n, _, err := store.MetaInt(tx, metaReceived)
	return model.Nanos(n), err
}

// writeTimes writes the times as of a checkpoint.
func writeTimes(tx store.Tx, received model.Nanos, m *model.TimeMap) error {
	if err := store.SetMetaInt(tx, metaReceived, int64(received)); err != nil || m == nil {
		return err
	}
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return store.SetMeta(tx, metaTimeMap, b)
}
