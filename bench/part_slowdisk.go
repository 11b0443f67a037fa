package main

import (
	"context"
	"time"
)

// slowFlush is what each flush of the log takes on the slow disk: a poor eMMC or an SD card.
const slowFlush = 20 * time.Millisecond

// slowDisk measures PUBACKs where each flush of the log is delayed; the log flushes twice for a batch.
func (b *bench) slowDisk(ctx context.Context) error {
	in, err := b.ready(ctx, setup{devices: 50, lab: []string{"-sync", slowFlush.String()}})
	if err != nil {
		return err
	}
	defer in.drop()
	s := shape{conns: 50, window: 20}
	o, err := b.load(ctx, in, "slowdisk", s.conns, closedLoop(s.window, s.split), kept{}, nil)
	if err != nil {
		return err
	}
	b.judged(atLeast(11_000, 18_000, perSecond), "durable QoS 1 PUBACKs, "+s.String()+", each flush at least "+slowFlush.String(), o.rate,
		"two flushes for a batch; server %.1f µs CPU per message; PUBACK p50 %s, p99 %s%s", o.micro, short(o.lat.quantile(0.5)), short(o.lat.quantile(0.99)), o.others())
	return nil
}
