package main

import (
	"context"
	"fmt"
	"time"
)

// rulesPerReading is how many threshold rules judge each reading.
const rulesPerReading = 10

// endToEnd measures the whole way: acknowledged, stored, judged and queryable, without the log growing.
func (b *bench) endToEnd(ctx context.Context) error {
	if err := b.endToEndLoad(ctx, "as fast as it goes, 50 clients × 20 in flight", "endtoend", 50, closedLoop(20, false)); err != nil {
		return err
	}
	if b.all {
		if err := b.endToEndLoad(ctx, "paced at 12,000/s, 500 clients", "paced-12000", 500, paced(12_000)); err != nil {
			return err
		}
	}
	return b.endToEndLoad(ctx, fmt.Sprintf("paced at %s, 50 clients", perSecond(float64(b.paced))), "paced", 50, paced(float64(b.paced)))
}

// watchBacklog looks at how much waits for the applier over the measured time.
type watchBacklog struct {
	in              *instance
	ctx             context.Context
	stop            chan struct{}
	done            chan struct{}
	first, last     int64
	most            int64
	err             error
	began, finished time.Time
}

func (w *watchBacklog) watch(begins bool) error {
	if !begins {
		close(w.stop)
		<-w.done
		w.finished = time.Now()
		return w.err
	}
	w.stop, w.done, w.began = make(chan struct{}), make(chan struct{}), time.Now()
	if w.first, w.err = w.in.backlog(w.ctx); w.err != nil {
		close(w.done)
		return w.err
	}
	go func() {
		defer close(w.done)
		t := time.NewTicker(250 * time.Millisecond)
		defer t.Stop()
		for {
			if w.last, w.err = w.in.backlog(w.ctx); w.err != nil {
				return
			}
			w.most = max(w.most, w.last)
			select {
			case <-t.C:
			case <-w.stop:
				return
			}
		}
	}()
	return nil
}

func (b *bench) endToEndLoad(ctx context.Context, what, name string, conns int, p pattern) error {
	in, err := b.ready(ctx, "", conns, rulesPerReading)
	if err != nil {
		return err
	}
	defer in.drop()
	bytes, err := written(in.pid())
	if err != nil {
		return err
	}
	w := &watchBacklog{in: in, ctx: ctx}
	o, err := b.load(ctx, in, name, conns, p, kept{rules: true}, w.watch)
	if err != nil {
		return err
	}
	after, err := written(in.pid())
	if err != nil {
		return err
	}
	// What was still waiting at the end was not yet queryable: it does not count.
	grown := float64(w.last-w.first) / w.finished.Sub(w.began).Seconds()
	b.row("end to end, ten rules per reading, "+what, perSecond(o.rate-max(grown, 0)),
		"acknowledged %s; waiting for the applier %d at first, %d at last, %d at most; server %.2f cores, %.1f µs per reading; PUBACK p50 %s, p99 %s; %.0f bytes written per reading%s",
		perSecond(o.rate), w.first, w.last, w.most, o.cpu, o.micro, short(o.lat.quantile(0.5)), short(o.lat.quantile(0.99)), float64(after-bytes)/float64(o.acked), o.others())
	return nil
}
