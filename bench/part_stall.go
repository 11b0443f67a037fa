package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// stalledConfig gives the instance little memory and a log that is soon full; the rule's edges have to be stored.
const stalledConfig = "limits: {memory: 256MiB}\ningest: {spool_max_bytes: 128MiB}\nspool: {replay_bytes: 1MiB}\n"

const stalledLimit = 256 // MiB

// stall measures memory while nothing can be applied and all clients keep sending: MQTT with the maximum in flight, HTTP again
// after each refusal. Finally the applier is released, and every acknowledged reading must be there.
func (b *bench) stall(ctx context.Context) error {
	long := *b
	long.seconds = 30 * b.seconds
	if !b.all {
		long.seconds = 5 * b.seconds
	}
	const clients, posters = 200, 16
	in, err := b.ready(ctx, setup{config: stalledConfig, devices: clients + posters, rules: rulesPerReading})
	if err != nil {
		return err
	}
	defer in.drop()
	senders, err := in.connect(ctx, clients, live)
	if err != nil {
		return err
	}
	defer func() { closeAll(senders) }()
	for i := range posters {
		s, err := in.poster(ctx, clients+i)
		if err != nil {
			return err
		}
		senders = append(senders, s)
	}
	for _, s := range senders {
		s.held.Store(true)
	}
	var refused atomic.Int64
	mqtt, post := closedLoop(20, false), postsOrRefusals(in.ingest, &refused)
	w := &watchMemory{in: in}
	o, err := long.drive(ctx, in.pid(), senders, func(s *sender, stop *atomic.Bool) error {
		if s.index >= clients {
			return post(s, stop)
		}
		return mqtt(s, stop)
	}, w.watch)
	if err != nil {
		return err
	}
	if err := in.verify(ctx, kept{readings: o.acked, sum: o.sum, edges: o.edges, rules: true, refusals: true}); err != nil {
		return err
	}
	early, late := w.halves()
	what := fmt.Sprintf("memory with a stalled applier, %s: ", long.seconds)
	b.judged(within(stalledLimit, mebibytes), what+"at most", w.most(), "RSS without file pages, limits.memory %d MiB; %d clients × 20 in flight, %d posting; %s readings acknowledged and found again, %s posts refused",
		stalledLimit, clients, posters, count(float64(o.acked)), count(float64(refused.Load())))
	b.judged(within(5, percent), what+"growth", 100*(late/early-1), "most of the second half over most of the first, after the first tenth: %.1f and %.1f MiB", late, early)
	return nil
}

// watchMemory stalls the applier and looks at the memory meanwhile.
type watchMemory struct {
	in    *instance
	lock  *os.File
	stop  chan struct{}
	done  chan struct{}
	err   error
	sizes []float64 // MiB, one a second
}

func (w *watchMemory) watch(begins bool) (err error) {
	if !begins {
		close(w.stop)
		<-w.done
		return errors.Join(w.err, w.lock.Close())
	}
	if w.lock, err = holdDatabase(filepath.Join(w.in.data(), "weir.db-shm")); err != nil {
		return err
	}
	w.stop, w.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(w.done)
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-t.C:
			case <-w.stop:
				return
			}
			n, err := anonymous(w.in.pid())
			if err != nil {
				w.err = err
				return
			}
			w.sizes = append(w.sizes, float64(n)/(1<<20))
		}
	}()
	return nil
}

func (w *watchMemory) most() float64 { return slices.Max(w.sizes) }

// halves are the most of the first and of the second half, the first tenth left out: then the log fills.
func (w *watchMemory) halves() (early, late float64) {
	s := w.sizes[len(w.sizes)/10:]
	return slices.Max(s[:len(s)/2]), slices.Max(s[len(s)/2:])
}

// walWriteLock is the byte of a database's -shm file that the writer has locked (sqlite.org/walformat.html, 2.3.2).
const walWriteLock = 120

// holdDatabase takes the writer's lock of a database, as another program could, until the file is closed.
func holdDatabase(shm string) (*os.File, error) {
	f, err := os.OpenFile(shm, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(10 * time.Second); ; {
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: walWriteLock, Len: 1})
		if err == nil {
			return f, nil
		}
		if time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("the database's lock: %w", err), f.Close())
		}
		time.Sleep(time.Millisecond)
	}
}

// postsOrRefusals sends one event per POST; an event refused because the log is full is not counted and is tried again.
func postsOrRefusals(host string, refused *atomic.Int64) pattern {
	return func(s *sender, stop *atomic.Bool) error {
		var payload []byte
		for !stop.Load() {
			before := *s.body
			payload = s.body.append(payload[:0])
			err := s.post(host, payload)
			if e, ok := errors.AsType[*statusError](err); ok && e.code == http.StatusServiceUnavailable {
				*s.body = before
				refused.Add(1)
				time.Sleep(10 * time.Millisecond)
				continue
			}
			if err != nil {
				return err
			}
			s.sent++
			s.acked.Add(1)
		}
		return nil
	}
}
