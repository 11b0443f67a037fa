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
	long := *b
	long.seconds = 3 * b.seconds
	e, err := long.endToEndLoad(ctx, "endtoend", 50, closedLoop(20, false))
	if err != nil {
		return err
	}
	// What was still waiting at the end was not yet queryable: it does not count.
	b.judged(atLeast(50_000, 150_000, perSecond), fmt.Sprintf("end to end, ten rules per reading, 50 clients × 20 in flight, %s", long.seconds), e.rate-e.grown,
		"acknowledged %s; %s", perSecond(e.rate), e)
	return nil
}

// pacedLoads measures the same at a given rate: how long a PUBACK takes, what the server needs of the processors.
func (b *bench) pacedLoads(ctx context.Context) error {
	e, err := b.endToEndLoad(ctx, "paced-12000", 500, paced(12_000))
	if err != nil {
		return err
	}
	const what = "ten rules per reading, paced at "
	b.judged(atMost(25, 8, millis), what+"12,000/s over 500 clients: PUBACK p99", inMillis(e.lat.quantile(0.99)), "%s were sent; %s", perSecond(e.rate), e)
	if e, err = b.endToEndLoad(ctx, "paced-30000", 50, paced(30_000)); err != nil {
		return err
	}
	b.judged(atMost(50, 15, millis), what+"30,000/s over 50 clients: PUBACK p99", inMillis(e.lat.quantile(0.99)), "%s were sent; %s", perSecond(e.rate), e)
	b.judged(atMost(1, 0.6, cores), what+"30,000/s over 50 clients: CPU of the server", e.cpu, "of the same load%s", e.others())
	return nil
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

// wholeWay is a load that was followed to the end.
type wholeWay struct {
	*outcome
	backlog *watchBacklog
	grown   float64 // records per second that waited at the end and had not at the beginning
	each    float64 // bytes that the process wrote per reading
}

func (e *wholeWay) String() string {
	return fmt.Sprintf("waiting for the applier %d at first, %d at last, %d at most; server %.2f cores, %.1f µs per reading; PUBACK p50 %s, p99 %s; %.0f bytes written per reading%s",
		e.backlog.first, e.backlog.last, e.backlog.most, e.cpu, e.micro, short(e.lat.quantile(0.5)), short(e.lat.quantile(0.99)), e.each, e.others())
}

func (b *bench) endToEndLoad(ctx context.Context, name string, conns int, p pattern) (*wholeWay, error) {
	in, err := b.ready(ctx, setup{devices: conns, rules: rulesPerReading})
	if err != nil {
		return nil, err
	}
	defer in.drop()
	before, err := written(in.pid())
	if err != nil {
		return nil, err
	}
	w := &watchBacklog{in: in, ctx: ctx}
	o, err := b.load(ctx, in, name, conns, p, kept{rules: true}, w.watch)
	if err != nil {
		return nil, err
	}
	after, err := written(in.pid())
	if err != nil {
		return nil, err
	}
	return &wholeWay{outcome: o, backlog: w, grown: max(float64(w.last-w.first)/w.finished.Sub(w.began).Seconds(), 0),
		each: float64(after-before) / float64(o.acked)}, nil
}
