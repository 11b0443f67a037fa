package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// starts measures how long it takes until every acknowledged reading can be queried.
func (b *bench) starts(ctx context.Context) error {
	if err := b.startEmpty(ctx); err != nil {
		return fmt.Errorf("empty: %w", err)
	}
	data, small, large := int64(1e9), int64(64<<20), int64(1e9)
	if !b.all {
		data, small, large = data/20, small/20, large/20
	}
	if err := b.startBacklog(ctx, backlog{goal: atMost(2000, 500, millis), data: data, bytes: small}); err != nil {
		return fmt.Errorf("with data: %w", err)
	}
	if err := b.startBacklog(ctx, backlog{goal: atMost(30_000, 10_000, millis), bytes: large, cold: true}); err != nil {
		return fmt.Errorf("cold: %w", err)
	}
	return b.startBacklog(ctx, backlog{goal: atMost(30_000, 10_000, millis), bytes: large, cold: true, edges: true})
}

// backlog is what a start finds.
type backlog struct {
	goal
	data, bytes int64 // in the store, and in the log after the last checkpoint
	cold        bool  // no file is in the page cache
	edges       bool  // the values lie all over the limits of the rules
}

func (b *bench) startEmpty(ctx context.Context) error {
	in, err := b.ready(ctx, setup{devices: 1, rules: 1})
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
	b.judged(atMost(300, 100, millis), "start to ready, initialised and empty", inMillis(took[len(took)/2]), "median of %d, %s to %s, from exec until queries are answered",
		len(took), short(took[0]), short(took[len(took)-1]))
	return nil
}

// roomy is an ordinary instance but for the size that its log may have.
const roomy = "ingest: {spool_max_bytes: 8GiB}\n"

// startBacklog kills the process with so many bytes of data in the store and of records in the log that no head covers,
// so that all of these are applied again, ten rules included, before queries are answered. Devices are served before.
func (b *bench) startBacklog(ctx context.Context, w backlog) error {
	s, values := setup{config: roomy, devices: 50, rules: rulesPerReading}, live
	if w.edges {
		s.config, s.limit, values = roomy+stormy, stormLimit, swing
	}
	in, err := b.ready(ctx, s)
	if err != nil {
		return err
	}
	defer in.drop()
	k := kept{rules: !w.edges}
	if w.data > 0 {
		if err := b.store(ctx, in, w.data, &k); err != nil {
			return err
		}
	}
	if err := in.stop(); err != nil {
		return err
	}
	use, err := in.bytes()
	if err != nil {
		return err
	}
	if err := in.start(ctx); err != nil {
		return err
	}
	behind, err := b.pile(ctx, in, w.bytes, values, &k)
	if err != nil {
		return err
	}
	pages := "files in the page cache"
	if w.cold {
		if err := dropped(in.data()); err != nil {
			return err
		}
		pages = "no file in the page cache"
	}
	if err := in.start(ctx); err != nil {
		return err
	}
	served, took := in.served, in.took
	if err := in.verify(ctx, k); err != nil {
		return err
	}
	if w.edges {
		if err := in.verifyFires(ctx, k.edges); err != nil {
			return err
		}
	}
	what := fmt.Sprintf("after SIGKILL, %.0f MB unapplied", float64(behind.bytes)/1e6)
	if w.data > 0 {
		what += fmt.Sprintf(", %.0f MB of data", float64(use.store)/1e6)
	}
	if w.edges {
		what += fmt.Sprintf(", %.1f edges a reading", float64(k.edges)/float64(k.readings))
	}
	if w.cold {
		what += ", cold"
	}
	b.judged(w.goal, "start to ready "+what, inMillis(took), "%s messages of one reading each, ten rules, applied again from %s of records; %s", count(float64(behind.messages)), mebi(behind.bytes), pages)
	b.judged(atMost(2000, 500, millis), "start to listeners open "+what, inMillis(served), "from exec until the last listener is open; the rest is applied while devices are served")
	return nil
}

// store fills the store with readings that cannot be packed well, up to so many bytes.
func (b *bench) store(ctx context.Context, in *instance, bytes int64, k *kept) error {
	const each, perMsg = 16, 250 // bytes of a random float64 on the disk, about
	messages := max(bytes/each/perMsg/int64(in.setup.devices), 1)
	base := time.Now().Add(-time.Duration(messages) * perMsg * time.Second).Truncate(time.Second)
	filled, took, err := b.fill(ctx, in, in.setup.devices, func(d *body) { d.kind, d.base, d.step, d.perMsg = frost, base, time.Second, perMsg }, messages)
	b.say.Printf("  %s readings stored in %s", count(float64(filled.readings)), short(took))
	k.readings, k.sum, k.edges = k.readings+filled.readings, k.sum+filled.sum, k.edges+filled.edges
	return err
}

// behind is what waits in the log.
type behind struct{ bytes, messages int64 }

// pile sends messages of one reading each until the records in the log have so many bytes, and kills the process. All the while
// the store cannot be written, so that no checkpoint is written and all of them remain to be applied.
func (b *bench) pile(ctx context.Context, in *instance, bytes int64, values bodyKind, k *kept) (w behind, err error) {
	senders, err := in.connect(ctx, in.setup.devices, values)
	if err != nil {
		return w, err
	}
	defer closeAll(senders)
	start, err := in.metric(ctx, "weir_spool_bytes")
	if err != nil {
		return w, err
	}
	lock, err := holdDatabase(filepath.Join(in.data(), "weir.db-shm"))
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	more := *b
	more.warmup, more.seconds = 0, time.Hour
	var o *outcome
	for sent := int64(500); w.bytes < bytes; sent += min(sent, 1000) {
		if o, err = more.drive(ctx, in.pid(), senders, upTo(sent, 20), nil); err != nil {
			return w, err
		}
		now, err := in.metric(ctx, "weir_spool_bytes")
		if err != nil {
			return w, err
		}
		w = behind{int64(now - start), o.acked}
	}
	k.readings, k.sum, k.edges = k.readings+o.acked, k.sum+o.sum, k.edges+o.edges
	return w, in.kill()
}
