package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// overloadConfig gives the instance a small log, so that it would be full in a few seconds.
const overloadConfig = stormy + "ingest: {spool_max_bytes: 32MiB}\nspool: {replay_bytes: 16MiB}\n"

// overload measures how evenly PUBACKs come while far more is sent than can be applied: a closed loop of readings that each cross many
// thresholds, with a log that could fill in seconds.
func (b *bench) overload(ctx context.Context) error {
	long := *b
	long.seconds = 5 * b.seconds
	const conns, rules = 50, crowdRules
	in, err := b.ready(ctx, setup{config: overloadConfig, devices: conns, rules: rules, limit: crowdLimit})
	if err != nil {
		return err
	}
	defer in.drop()
	if err := b.quiet(ctx); err != nil {
		return err
	}
	senders, err := in.connect(ctx, conns, swing)
	if err != nil {
		return err
	}
	defer closeAll(senders)
	defer b.perf(ctx, "overload", in.pid())()
	w := &watchPauses{senders: senders, backlog: watchBacklog{in: in, ctx: ctx}}
	o, err := long.drive(ctx, in.pid(), senders, closedLoop(20, false), w.watch)
	if err != nil {
		return err
	}
	waiting := time.Now()
	if err := in.verify(ctx, kept{readings: o.acked, sum: o.sum}); err != nil {
		return err
	}
	b.judged(atMost(500, 100, millis), fmt.Sprintf("more readings than can be applied, %d clients × 20 in flight, %d rules, a log of 32 MiB, %s: longest time without a PUBACK", conns, rules, long.seconds),
		inMillis(w.longest), "the longest of one client %s; PUBACK p50 %s, p99 %s; acknowledged %s; waiting for the applier %d at most, which took %s; server %.2f cores%s",
		short(o.lat.quantile(1)), short(o.lat.quantile(0.5)), short(o.lat.quantile(0.99)), perSecond(o.rate), w.backlog.most, short(time.Since(waiting)), o.cpu, o.others())
	return nil
}

// watchPauses looks for how long no PUBACK comes on any connection.
type watchPauses struct {
	senders []*sender
	backlog watchBacklog
	stop    atomic.Bool
	done    chan struct{}
	longest time.Duration
}

func (w *watchPauses) watch(begins bool) error {
	if !begins {
		w.stop.Store(true)
		<-w.done
		return w.backlog.watch(false)
	}
	w.done = make(chan struct{})
	go func() {
		defer close(w.done)
		n, at := total(w.senders), time.Now()
		for !w.stop.Load() {
			time.Sleep(time.Millisecond)
			if now := total(w.senders); now != n {
				n, at = now, time.Now()
			}
			w.longest = max(w.longest, time.Since(at))
		}
	}()
	return w.backlog.watch(true)
}
