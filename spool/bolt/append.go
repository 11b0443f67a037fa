package bolt

import (
	"context"
	"errors"

	"weir/spool"
)

// Append implements spool.Log.
func (l *Log) Append(ctx context.Context, entries ...spool.Entry) error {
	err := l.gatherer.Append(ctx, entries)
	if err != nil {
		l.metrics.refusal(err)
	}
	return err
}

// Sync implements spool.Log.
func (l *Log) Sync(ctx context.Context) error { return l.gatherer.Sync(ctx) }

// Admit implements spool.Committer.
func (l committer) Admit(g, ahead spool.Group) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		return l.failure
	}
	budget := int64(l.opt.MaxBytes)
	if g.Exempt {
		budget += ReserveBytes
	}
	kept := int64(l.last+1-l.first) + ahead.Records
	if l.through-l.trimmed+ahead.Weight+g.Weight > budget || !g.Exempt && kept+g.Records > l.opt.MaxRecords {
		return spool.ErrFull
	}
	return nil
}

// refusal counts an append that was refused.
func (m *metrics) refusal(err error) {
	switch {
	case errors.Is(err, spool.ErrTooLarge):
		m.refused.tooLarge.Inc()
	case errors.Is(err, spool.ErrUnavailable):
		m.refused.unavailable.Inc()
	case errors.Is(err, spool.ErrFull):
		m.refused.full.Inc()
	case !errors.Is(err, spool.ErrClosed):
		m.refused.canceled.Inc()
	}
}
