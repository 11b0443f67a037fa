package main

import (
	"context"
	"time"
)

// memory measures what an idle instance holds: its own memory, not the pages of files that the kernel can drop.
func (b *bench) memory(ctx context.Context) error {
	cases := []struct {
		conns int
		goal  goal
	}{
		{0, atMost(40, 30, mebibytes)}, {1000, atMost(80, 50, mebibytes)}, {5000, atMost(220, 120, mebibytes)},
	}
	if !b.all {
		cases = cases[:2]
	}
	for _, c := range cases {
		if err := b.idle(ctx, c.conns, c.goal); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) idle(ctx context.Context, conns int, g goal) error {
	in, err := b.ready(ctx, setup{devices: max(conns, 1), rules: 1})
	if err != nil {
		return err
	}
	defer in.drop()
	if conns == 0 { // with the memory that the first start and creating the device needed
		n, err := b.rests(ctx, in)
		if err != nil {
			return err
		}
		b.judged(g, "memory, idle, first start", n, "RSS without file pages, %s after a tenant, a device and a rule were made", (b.seconds / 2).Round(time.Second))
	}
	if err := in.restart(ctx); err != nil { // without the memory that creating the devices needed
		return err
	}
	senders, err := in.connect(ctx, conns, live)
	if err != nil {
		return err
	}
	defer closeAll(senders)
	n, err := b.rests(ctx, in)
	if err != nil {
		return err
	}
	who := "no connections"
	if conns > 0 {
		who = count(float64(conns)) + " devices connected and silent"
	}
	b.judged(g, "memory, idle, "+who, n, "RSS without file pages, %s after the start", (b.seconds / 2).Round(time.Second))
	return nil
}

// rests waits and returns the memory of its own that an instance has then, in MiB.
func (b *bench) rests(ctx context.Context, in *instance) (float64, error) {
	if err := pause(ctx, b.seconds/2); err != nil {
		return 0, err
	}
	n, err := anonymous(in.pid())
	return float64(n) / (1 << 20), err
}
