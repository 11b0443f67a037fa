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
	const devices = 2500
	span := time.Duration(b.disk/devices) * every
	if err := b.diskOf(ctx, atMost(10, 7, bytesEach), devices, span, "two-decimal sensor, a third with an altId", func(d *body) { d.kind, d.altEvery = sensor, 3 }); err != nil {
		return err
	}
	return b.diskOf(ctx, atMost(18, 14, bytesEach), devices, span, "random float64", func(d *body) { d.kind = noise })
}

func (b *bench) diskOf(ctx context.Context, g goal, devices int, span time.Duration, what string, shape func(*body)) error {
	m, err := b.takes(ctx, devices, span, shape)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	b.judged(g, "disk per stored reading, "+what, m.disk, "%s", m)
	return nil
}

// taken is what a fleet's readings took of the disk.
type taken struct {
	replayed
	devices int
	span    time.Duration
	disk    float64 // bytes of the store per reading
	written float64 // bytes per reading that the process has had written until it had stopped
	log     float64 // of these, for the log
	delays  *hist
	rest    diskUse
}

func (m *taken) String() string {
	return fmt.Sprintf("all of the store; %s of the log's files in addition; each of %s devices has a reading each 10 s ± 50 ms that arrives %s to %s later (p1 and p99), for %s of a clock that the bench advances; %s readings",
		mebi(m.rest.log), count(float64(m.devices)), short(m.delays.quantile(0.01)), short(m.delays.quantile(0.99)), m.span, count(float64(m.readings)))
}

// takes lets a fleet send for so much of its own time and measures.
func (b *bench) takes(ctx context.Context, devices int, span time.Duration, shape func(*body)) (*taken, error) {
	shared, lab, start, err := b.shared()
	if err != nil {
		return nil, err
	}
	in, err := b.ready(ctx, setup{devices: devices, lab: lab})
	if err != nil {
		return nil, err
	}
	defer in.drop()
	// The same state without readings, to be taken off: devices, credentials, keys, an empty log.
	if err := in.stop(); err != nil {
		return nil, err
	}
	empty, err := in.bytes()
	if err != nil {
		return nil, err
	}
	if err := in.start(ctx); err != nil {
		return nil, err
	}
	before, err := written(in.pid())
	if err != nil {
		return nil, err
	}
	b.say.Printf("  %s devices are made", count(float64(devices)))
	logged := shared.writtenByLog()
	m := &taken{devices: devices, span: span}
	if m.replayed, err = b.replay(ctx, in, shared, start, span, shape); err != nil {
		return nil, err
	}
	b.say.Printf("  %s readings are stored, in %s", count(float64(m.readings)), short(m.took))
	if m.delays, err = in.delays(ctx); err != nil {
		return nil, err
	}
	if err := in.still(ctx); err != nil {
		return nil, err
	}
	b.say.Printf("  nothing is written any more")
	if err := in.settle(ctx); err != nil {
		return nil, err
	}
	b.say.Printf("  stopped and started again")
	wrote := in.wrote
	if err := in.verify(ctx, m.kept); err != nil {
		return nil, err
	}
	if err := in.stop(); err != nil { // the store's own log is folded in
		return nil, err
	}
	if m.rest, err = in.bytes(); err != nil {
		return nil, err
	}
	n := float64(m.readings)
	m.disk, m.written, m.log = float64(m.rest.store-empty.store)/n, float64(wrote-before)/n, float64(shared.writtenByLog()-logged)/n
	return m, nil
}

// still waits until the process writes no more than an idle one, half a minute at most: what it does in its own time, such
// as merging, belongs to the readings.
func (in *instance) still(ctx context.Context) error {
	for range 10 {
		before, err := written(in.pid())
		if err != nil {
			return err
		}
		if err := pause(ctx, 3*time.Second); err != nil {
			return err
		}
		after, err := written(in.pid())
		if err != nil || after-before < 100<<10 {
			return err
		}
	}
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
