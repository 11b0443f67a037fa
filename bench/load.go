package main

import (
	"errors"
	"fmt"
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
	out   []byte       // of the goroutine that writes
	held  atomic.Bool  // the server is delayed on purpose: timeouts do not apply
}

// pattern is how a sender sends until stop: it returns when everything that it has sent is acknowledged.
type pattern func(s *sender, stop *atomic.Bool) error

// grace is how long a sender waits for an acknowledgement before it gives the server up.
const grace = 60 * time.Second

// closedLoop keeps window messages in flight. The messages that acknowledgements allow are sent in one write, or, when split,
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
	window  int64
	split   bool
	stamps  []time.Time // of the messages in flight
	payload []byte
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
	if err := l.patient(now); err != nil {
		return err
	}
	_, err := l.Write(l.out)
	return err
}

// patient sets until when an acknowledgement is waited for.
func (s *sender) patient(now time.Time) error {
	if s.held.Load() {
		return s.SetDeadline(time.Time{})
	}
	return s.SetDeadline(now.Add(grace))
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
	var payload []byte
	for !stop.Load() {
		time.Sleep(time.Until(next))
		s.out = s.out[:0]
		for now := time.Now(); !next.After(now); next = next.Add(every) {
			payload = s.body.append(payload[:0])
			s.out = appendPublish(s.out, s.topic, s.sent, payload)
			s.sent++
			due <- next
		}
		if err := s.patient(time.Now()); err != nil {
			return err
		}
		if _, err := s.Write(s.out); err != nil {
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
