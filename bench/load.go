package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// sender is one device at work.
type sender struct {
	*client
	body  *body
	index int
	of    int
	sent  int64        // messages; of the goroutine that writes
	acked atomic.Int64 // messages; the ledger of what was acknowledged
	lat   hist         // of the goroutine that reads
	timed atomic.Bool  // whether lat is kept: not while the load warms up
}

// pattern is how a sender sends until stop: it returns when everything that it has sent is acknowledged.
type pattern func(s *sender, stop *atomic.Bool) error

// grace is how long a sender waits for an acknowledgement before it gives the server up.
const grace = 60 * time.Second

// closedLoop keeps window messages in flight. What the acknowledgements make room for is sent in one write, or, when split,
// in a write each.
func closedLoop(window int, split bool) pattern {
	return func(s *sender, stop *atomic.Bool) error {
		l := loop{sender: s, window: int64(window), split: split, stamps: make([]time.Time, window)}
		for !stop.Load() {
			if err := l.fill(s.acked.Load() + l.window); err != nil {
				return err
			}
			if err := l.drain(); err != nil {
				return err
			}
		}
		return l.rest()
	}
}

// upTo sends most messages, window of them in flight.
func upTo(most int64, window int) pattern {
	return func(s *sender, stop *atomic.Bool) error {
		l := loop{sender: s, window: int64(window), stamps: make([]time.Time, window)}
		for s.sent < most && !stop.Load() {
			if err := l.fill(min(most, s.acked.Load()+l.window)); err != nil {
				return err
			}
			if err := l.drain(); err != nil {
				return err
			}
		}
		return l.rest()
	}
}

type loop struct {
	*sender
	window       int64
	split        bool
	stamps       []time.Time // of the messages in flight
	out, payload []byte
}

// fill sends until limit messages are sent in all.
func (l *loop) fill(limit int64) error {
	l.out = l.out[:0]
	now := time.Now()
	for ; l.sent < limit; l.sent++ {
		l.payload = l.body.append(l.payload[:0])
		l.stamps[l.sent%l.window] = now
		l.out = appendPublish(l.out, l.topic, l.sent, l.payload)
		if l.split {
			if _, err := l.Write(l.out); err != nil {
				return err
			}
			l.out = l.out[:0]
		}
	}
	if len(l.out) == 0 {
		return nil
	}
	if err := l.SetDeadline(now.Add(grace)); err != nil {
		return err
	}
	_, err := l.Write(l.out)
	return err
}

// drain takes the acknowledgements that have come, at least one.
func (l *loop) drain() error {
	acked := l.acked.Load()
	n, err := l.acks(acked)
	if err == nil && acked+int64(n) > l.sent {
		err = fmt.Errorf("%d messages acknowledged, %d sent", acked+int64(n), l.sent)
	}
	if err != nil {
		return err
	}
	now, timed := time.Now(), l.timed.Load()
	for i := range int64(n) {
		if timed {
			l.lat.add(now.Sub(l.stamps[(acked+i)%l.window]), 1)
		}
	}
	l.acked.Store(acked + int64(n))
	return nil
}

func (l *loop) rest() error {
	for l.acked.Load() < l.sent {
		if err := l.drain(); err != nil {
			return err
		}
	}
	return nil
}

// paced sends rate messages per second over all senders, each at its own moment. A delay is counted from the moment at
// which the message was due, so that a server that stands still is not spared.
func paced(rate float64) pattern {
	return func(s *sender, stop *atomic.Bool) error {
		every := time.Duration(float64(s.of) / rate * float64(time.Second))
		due := make(chan time.Time, 60_000) // what is in flight; packet ids bound it, too
		reader := make(chan error, 1)
		go func() { reader <- s.readPaced(due) }()
		err := s.writePaced(every, due, stop)
		close(due)
		return errors.Join(err, <-reader)
	}
}

func (s *sender) writePaced(every time.Duration, due chan<- time.Time, stop *atomic.Bool) error {
	next := time.Now().Add(every * time.Duration(s.index) / time.Duration(s.of))
	var out, payload []byte
	for !stop.Load() {
		time.Sleep(time.Until(next))
		out = out[:0]
		for now := time.Now(); !next.After(now); next = next.Add(every) {
			payload = s.body.append(payload[:0])
			out = appendPublish(out, s.topic, s.sent, payload)
			s.sent++
			due <- next
		}
		if err := s.SetDeadline(time.Now().Add(grace)); err != nil {
			return err
		}
		if _, err := s.Write(out); err != nil {
			return err
		}
	}
	return nil
}

func (s *sender) readPaced(due <-chan time.Time) error {
	for at := range due {
		acked := s.acked.Load()
		n, err := s.acks(acked)
		if err != nil {
			for range due { // the writer must not wait for us
			}
			return err
		}
		now := time.Now()
		for i := range n {
			if i > 0 {
				var ok bool
				if at, ok = <-due; !ok {
					return errors.New("more was acknowledged than sent")
				}
			}
			if s.timed.Load() {
				s.lat.add(now.Sub(at), 1)
			}
		}
		s.acked.Store(acked + int64(n))
	}
	return nil
}

// outcome is what a load was.
type outcome struct {
	rate  float64 // messages acknowledged per second, the warm-up left out
	cpu   float64 // cores of the server
	micro float64 // microseconds of the server's processors per message
	lat   hist
	other float64 // cores that neither the server nor the generator had
	acked int64   // messages, the warm-up included
	sum   float64
	edges int64
}

// drive lets the senders work for the time of the bench. watch, unless nil, is told when the measured time begins and ends.
func (b *bench) drive(ctx context.Context, pid int, senders []*sender, p pattern, watch func(begins bool) error) (*outcome, error) {
	var stop atomic.Bool
	errs := make(chan error, len(senders))
	var wg sync.WaitGroup
	for _, s := range senders {
		wg.Go(func() {
			if err := p(s, &stop); err != nil {
				errs <- fmt.Errorf("sender %d, %d sent, %d acknowledged: %w", s.index, s.sent, s.acked.Load(), err)
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	wait := func(d time.Duration) error {
		select {
		case err := <-errs:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-done:
			return nil
		case <-time.After(d):
			return nil
		}
	}
	o := &outcome{}
	err := b.measured(o, pid, senders, wait, watch)
	stop.Store(true)
	<-done
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	for _, s := range senders {
		o.acked += s.acked.Load()
		o.sum += s.body.sum
		o.edges += s.body.edges
		o.lat.merge(&s.lat)
	}
	return o, err
}

// measured fills in what happens between the warm-up and the end.
func (b *bench) measured(o *outcome, pid int, senders []*sender, wait func(time.Duration) error, watch func(bool) error) error {
	if err := wait(b.warmup); err != nil {
		return err
	}
	if watch == nil {
		watch = func(bool) error { return nil }
	}
	if err := watch(true); err != nil {
		return err
	}
	for _, s := range senders {
		s.timed.Store(true)
	}
	before, err := readMeter(pid, senders)
	if err != nil {
		return err
	}
	if err := wait(b.seconds); err != nil {
		return err
	}
	after, err := readMeter(pid, senders)
	if err != nil {
		return err
	}
	o.between(before, after)
	return watch(false)
}

// quiet waits until other programs leave the machine alone for two seconds, or the patience of the bench ends.
func (b *bench) quiet(ctx context.Context) error {
	for end := time.Now().Add(b.patience); time.Now().Before(end); {
		before, err := readMeter(os.Getpid(), nil)
		if err != nil {
			return err
		}
		if err := pause(ctx, 2*time.Second); err != nil {
			return err
		}
		after, err := readMeter(os.Getpid(), nil)
		if err != nil {
			return err
		}
		if after.all-before.all-(after.self-before.self) < 2*time.Second/5 {
			return nil
		}
	}
	return nil
}

// meter is what is read off at a moment.
type meter struct {
	at                time.Time
	acked             int64
	server, self, all time.Duration // of the processors
}

func readMeter(pid int, senders []*sender) (m meter, err error) {
	m.at, m.acked = time.Now(), total(senders)
	if m.server, err = cpuTime(pid); err != nil {
		return m, err
	}
	if m.self, err = cpuTime(os.Getpid()); err != nil {
		return m, err
	}
	m.all, err = busy()
	return m, err
}

func (o *outcome) between(a, b meter) {
	seconds, n, cpu := b.at.Sub(a.at).Seconds(), b.acked-a.acked, b.server-a.server
	o.rate = float64(n) / seconds
	o.cpu = cpu.Seconds() / seconds
	o.micro = float64(cpu.Microseconds()) / float64(max(n, 1))
	o.other = max(0, ((b.all-a.all)-cpu-(b.self-a.self)).Seconds()/seconds)
}

// others says how much of the machine other programs had, when it was worth a word.
func (o *outcome) others() string {
	if o.other < 0.1 {
		return ""
	}
	return fmt.Sprintf("; other programs had %.1f cores meanwhile", o.other)
}

func total(senders []*sender) (n int64) {
	for _, s := range senders {
		n += s.acked.Load()
	}
	return n
}

func closeAll(senders []*sender) {
	for _, s := range senders {
		_ = s.Close() // everything was acknowledged, or the error is told already
	}
}
