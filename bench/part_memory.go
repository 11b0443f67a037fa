package main

import (
	"context"
	"fmt"
	"time"
)

// memory measures what an idle instance holds: its own memory, not the pages of files that the kernel can drop.
func (b *bench) memory(ctx context.Context) error {
	conns := []int{0, 1000}
	if b.all {
		conns = append(conns, 5000)
	}
	for _, n := range conns {
		if err := b.idle(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) idle(ctx context.Context, conns int) error {
	in, err := b.ready(ctx, "", max(conns, 1), 1)
	if err != nil {
		return err
	}
	defer in.drop()
	if err := in.restart(ctx); err != nil { // making the devices is over and forgotten
		return err
	}
	senders, err := in.connect(ctx, conns, live)
	if err != nil {
		return err
	}
	defer closeAll(senders)
	if err := pause(ctx, b.seconds/2); err != nil {
		return err
	}
	n, err := anonymous(in.pid())
	if err != nil {
		return err
	}
	beside := "nobody connected"
	if conns > 0 {
		beside = fmt.Sprintf("%d devices connected and silent", conns)
	}
	b.row("memory, idle", mebi(n), "RSS without file pages, %s, %s after the start", beside, (b.seconds / 2).Round(time.Second))
	return nil
}
