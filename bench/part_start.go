package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// starts measures how long it takes until every acknowledged reading can be queried.
func (b *bench) starts(ctx context.Context) error {
	if err := b.startEmpty(ctx); err != nil {
		return err
	}
	return b.startBacklog(ctx)
}

func (b *bench) startEmpty(ctx context.Context) error {
	in, err := b.ready(ctx, "", 1, 1)
	if err != nil {
		return err
	}
	defer in.drop()
	var took []time.Duration
	for range 7 {
		if err := in.restart(ctx); err != nil {
			return err
		}
		took = append(took, in.took)
		if err := in.verify(ctx, kept{}); err != nil {
			return err
		}
	}
	slices.Sort(took)
	b.row("start to ready, initialised and empty", short(took[len(took)/2]), "median of %d, %s to %s, from exec until the last door is open", len(took), short(took[0]), short(took[len(took)-1]))
	return nil
}

// startBacklog kills the process with a log that no head covers, so that all of it is applied again at the start.
func (b *bench) startBacklog(ctx context.Context) error {
	const devices = 50
	wanted := float64(56 << 20)
	if !b.all {
		wanted /= 8
	}
	in, err := b.ready(ctx, "", devices, rulesPerReading)
	if err != nil {
		return err
	}
	defer in.drop()
	senders, err := in.connect(ctx, devices, live)
	if err != nil {
		return err
	}
	defer closeAll(senders)
	var k kept
	var bytes float64
	chunk := *b
	chunk.warmup, chunk.seconds = 0, time.Hour
	for sent := int64(500); bytes < wanted; sent += 500 {
		o, err := chunk.drive(ctx, in.pid(), senders, upTo(sent, 20), nil)
		if err != nil {
			return err
		}
		k = kept{readings: o.acked, sum: o.sum, edges: o.edges, rules: true}
		if bytes, err = in.metric(ctx, "weir_spool_bytes"); err != nil {
			return err
		}
	}
	heads, err := in.metric(ctx, "weir_ingest_heads_written_total")
	if err != nil {
		return err
	}
	if err := in.kill(); err != nil {
		return err
	}
	if err := in.start(ctx); err != nil {
		return err
	}
	took := in.took
	if err := in.verify(ctx, k); err != nil {
		return err
	}
	note := ""
	if heads > 0 {
		note = fmt.Sprintf("; %.0f heads had been written before, so less was applied", heads)
	}
	b.row("start to ready after SIGKILL with a backlog", short(took), "%.0f MiB of log, %s readings with ten rules applied again, files in the page cache%s", bytes/(1<<20), count(float64(k.readings)), note)
	return nil
}
