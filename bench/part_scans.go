package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	scanners     = 8
	scanReadings = 1_000_000 // at least: fewer are no long query
	scanRate     = 2_000     // readings a second that arrive meanwhile
	connectPause = 20 * time.Millisecond
	appliedEvery = 2 * time.Millisecond // between two looks at what is applied
)

// scans measures how long the applier, a device that connects for the first time and a small query stand still while all
// readings of all devices are queried eight times at once, without a pause.
func (b *bench) scans(ctx context.Context) error {
	senders := 50
	readings := max(b.readings, scanReadings)
	devices := readings / perDevice
	connects := int((b.warmup + b.seconds) / connectPause)
	in, err := b.ready(ctx, setup{devices: devices + connects, rules: rulesPerReading})
	if err != nil {
		return err
	}
	defer in.drop()
	day := time.Now().UTC().Truncate(24 * time.Hour).Add(-72 * time.Hour)
	want, took, err := b.fill(ctx, in, devices, func(d *body) { d.kind, d.base, d.step, d.perMsg = sensor, day, 10*time.Second, 250 }, perDevice/250)
	if err != nil {
		return err
	}
	b.say.Printf("  %s readings of %d devices stored in %s", count(float64(want.readings)), devices, short(took))
	if err := in.settle(ctx); err != nil {
		return err
	}
	s := &scanLoad{in: in, ctx: ctx, from: devices, connects: connects, devices: devices}
	o, err := b.load(ctx, in, "scans", min(senders, devices), paced(scanRate), want, s.watch)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%d queries of all devices at once, %s readings: ", scanners, count(float64(want.readings)))
	b.judged(atMost(100, 20, millis), what+"longest stand-still of the applier", inMillis(s.still), "%d looks at the counter of stored readings, %s apart at most; paced at %s; %d queries, p50 %s; server %.2f cores%s",
		s.looks, short(s.apart), perSecond(o.rate), s.all.n, short(s.all.quantile(0.5)), o.cpu, o.others())
	b.judged(atMost(100, 20, millis), what+"longest CONNECT of a new device", inMillis(s.connect.quantile(1)), "%d devices, p50 %s, p99 %s; PUBACK p50 %s, p99 %s, longest %s; newest page of a device p50 %s, p99 %s",
		s.connect.n, short(s.connect.quantile(0.5)), short(s.connect.quantile(0.99)), short(o.lat.quantile(0.5)), short(o.lat.quantile(0.99)), short(o.lat.quantile(1)),
		short(s.small.quantile(0.5)), short(s.small.quantile(0.99)))
	return nil
}

// scanLoad is the queries beside a load, and what is measured meanwhile.
type scanLoad struct {
	in                      *instance
	ctx                     context.Context
	from, connects, devices int
	stop                    atomic.Bool
	working                 sync.WaitGroup
	mu                      sync.Mutex
	err                     error
	all, small, connect     hist
	still, apart            time.Duration // longest time without progress; between two looks
	looks                   int
}

func (s *scanLoad) watch(begins bool) error {
	if !begins {
		s.stop.Store(true)
		s.working.Wait()
		return s.err
	}
	for range scanners {
		s.goes(s.scan)
	}
	s.goes(s.ask)
	s.goes(s.connectAll)
	s.goes(s.follow)
	return nil
}

// goes runs one part of the load until the measured time ends or it fails.
func (s *scanLoad) goes(part func() error) {
	s.working.Go(func() {
		if err := part(); err != nil {
			s.mu.Lock()
			s.err = errors.Join(s.err, err)
			s.mu.Unlock()
		}
	})
}

// timed measures f.
func (s *scanLoad) timed(h *hist, f func() error) error {
	began := time.Now()
	err := f()
	s.mu.Lock()
	h.add(time.Since(began), 1)
	s.mu.Unlock()
	return err
}

func (s *scanLoad) scan() error {
	const doc = `{bucketedMeasurements(criteria:{name:"temp",intervalSeconds:3600}){bucketStart avg min max count}}`
	for !s.stop.Load() {
		if err := s.timed(&s.all, func() error { return s.in.query(s.ctx, "event-management", doc, nil, nil) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanLoad) ask() error {
	r := rand.New(rand.NewPCG(5, 6))
	for !s.stop.Load() {
		doc := fmt.Sprintf(`{measurementEvents(criteria:{pageNumber:1,pageSize:100,deviceToken:%q}){results{id value}}}`, deviceToken(r.IntN(s.devices)))
		if err := s.timed(&s.small, func() error { return s.in.query(s.ctx, "event-management", doc, nil, nil) }); err != nil {
			return err
		}
		if err := pause(s.ctx, connectPause); err != nil {
			return err
		}
	}
	return nil
}

// connectAll connects devices that never did before, one after the other.
func (s *scanLoad) connectAll() error {
	for i := s.from; i < s.from+s.connects && !s.stop.Load(); i++ {
		var c *client
		if err := s.timed(&s.connect, func() (err error) {
			c, err = dialMQTT(s.ctx, s.in.mqtt, "weir:"+tenant+":"+deviceToken(i), tenant+":"+accessToken(i), "")
			return err
		}); err != nil {
			return err
		}
		if err := errors.Join(c.Close(), pause(s.ctx, connectPause)); err != nil {
			return err
		}
	}
	return nil
}

// follow looks at how many readings are stored. It stands still from the answer of the first look that shows a number until the
// question of the last: what a look itself takes is not counted.
func (s *scanLoad) follow() error {
	last, since, before := -1.0, time.Now(), time.Now()
	for !s.stop.Load() {
		asked := time.Now()
		n, err := s.in.metric(s.ctx, "weir_ingest_readings_stored_total")
		if err != nil {
			return err
		}
		s.looks, s.apart, before = s.looks+1, max(s.apart, time.Since(before)), time.Now()
		if n != last {
			last, since = n, before
		} else {
			s.still = max(s.still, asked.Sub(since))
		}
		if err := pause(s.ctx, appliedEvery); err != nil {
			return err
		}
	}
	return nil
}
