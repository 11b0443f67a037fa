package main

import (
	"context"
	"time"
)

// fleet measures a large fleet of slow devices: many series, few readings of each at a time.
func (b *bench) fleet(ctx context.Context) error {
	span := 10 * time.Minute
	if !b.all {
		span /= 5
	}
	m, err := b.takes(ctx, b.series, span, func(d *body) { d.kind = sensor })
	if err != nil {
		return err
	}
	what := count(float64(b.series)) + " series, one reading each 10 s: "
	b.judged(atMost(15, 8, bytesEach), what+"on disk per reading", m.disk, "each series is a device of its own; %s", m)
	b.judged(atMost(120, 60, bytesEach), what+"written per reading", m.written-m.log, "for the store, until the process has stopped, as the kernel counts; the log takes %.0f more, in batches of some hundred", m.log)
	return nil
}
