package ingest

import (
	"context"
	"errors"
	"time"

	"weir/model"
	"weir/spool"
)

// RunCounts makes a batch for the doors' counts when none came along for an interval: a clock record, which brings
// nothing else about. An instance that nobody knocks at writes none.
func (g *Intake) RunCounts(ctx context.Context, interval time.Duration) error {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if err := g.keepCounts(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, spool.ErrClosed) {
			g.Logger.Warn("the doors' counts wait for the log", "error", err)
		}
	}
}

func (g *Intake) keepCounts(ctx context.Context) error {
	if !g.Doors.Pending() {
		return nil
	}
	r := &model.Record{Kind: model.KindClock, Received: g.Stamp()}
	return g.Log.Append(ctx, spool.Entry{Data: model.AppendRecord(nil, r), Value: r, Exempt: true, Done: func(model.Offset, error) {}})
}

// Received counts the bytes of a packet that never becomes an arrival; Refuse counts the message.
func (g *Intake) Received(_, _ string, bytes int) { g.metrics.strayBytes.Add(float64(bytes)) }
