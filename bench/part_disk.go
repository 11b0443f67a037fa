package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// diskBytes measures what a reading takes of the disk once it is where it stays, and what was written for it on the way.
// Each reading is a message of its own, so that each has a receive time and an offset of its own, too.
func (b *bench) diskBytes(ctx context.Context) error {
	const devices = 100
	base := time.Now().UTC().Add(-time.Duration(b.disk/devices) * 10 * time.Second).Truncate(time.Second)
	if err := b.diskOf(ctx, devices, "two-decimal sensor every 10 s ± 50 ms, a third with an altId", func(d *body) {
		d.kind, d.base, d.step, d.altEvery = sensor, base, 10*time.Second, 3
	}); err != nil {
		return err
	}
	if b.all {
		if err := b.diskOf(ctx, devices, "two-decimal sensor every 10 s ± 50 ms, no altId", func(d *body) {
			d.kind, d.base, d.step = sensor, base, 10*time.Second
		}); err != nil {
			return err
		}
	}
	return b.diskOf(ctx, devices, "random float64 every 10 s ± 50 ms", func(d *body) {
		d.kind, d.base, d.step = noise, base, 10*time.Second
	})
}

func (b *bench) diskOf(ctx context.Context, devices int, what string, shape func(*body)) error {
	in, err := b.ready(ctx, "", devices, 0)
	if err != nil {
		return err
	}
	defer in.drop()
	// The same state without readings, to be taken off: devices, credentials, keys, an empty log.
	if err := in.stop(); err != nil {
		return err
	}
	empty, err := in.bytes()
	if err != nil {
		return err
	}
	if err := in.start(ctx); err != nil {
		return err
	}
	before, err := written(in.pid())
	if err != nil {
		return err
	}
	k, took, err := b.fill(ctx, in, devices, shape, int64(b.disk/devices))
	if err != nil {
		return err
	}
	if err := in.settle(ctx); err != nil {
		return err
	}
	wrote := in.wrote
	if err := in.verify(ctx, k); err != nil {
		return err
	}
	if err := in.stop(); err != nil { // the store's own log is folded in
		return err
	}
	full, err := in.bytes()
	if err != nil {
		return err
	}
	n := float64(k.readings)
	b.row("disk per stored reading, "+what, fmt.Sprintf("%.1f bytes", float64(full.store-empty.store)/n),
		"all of the store; the log's files beside it %s, empty %s; %.0f bytes written per reading at %s; %s readings of %d devices, receive times as they came",
		mebi(full.log), mebi(empty.log), float64(wrote-before)/n, perSecond(n/took.Seconds()), count(n), devices)
	return nil
}

func (in *instance) restart(ctx context.Context) error {
	if err := in.stop(); err != nil {
		return err
	}
	return in.start(ctx)
}

// diskUse is what the directory takes: the store, the log.
type diskUse struct{ store, log int64 }

func (in *instance) bytes() (u diskUse, err error) {
	log := filepath.Join(in.data(), "spool")
	if u.log, err = onDisk(log, nil); err != nil {
		return u, err
	}
	u.store, err = onDisk(in.data(), func(p string) bool { return !strings.HasPrefix(p, log) })
	return u, err
}
