package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// load runs a pattern against an instance and verifies what it has acknowledged.
func (b *bench) load(ctx context.Context, in *instance, name string, conns int, p pattern, want kept, watch func(bool) error) (*outcome, error) {
	if err := b.quiet(ctx); err != nil {
		return nil, err
	}
	senders, err := in.connect(ctx, conns, live)
	if err != nil {
		return nil, err
	}
	defer closeAll(senders)
	defer b.perf(ctx, name, in.pid())()
	o, err := b.drive(ctx, in.pid(), senders, p, watch)
	if err != nil {
		return nil, err
	}
	want.readings += o.acked
	want.sum += o.sum
	want.edges += o.edges
	return o, in.verify(ctx, want)
}

// perf records a profile of the process over the length of a load when one is wanted.
func (b *bench) perf(ctx context.Context, name string, pid int) (stop func()) {
	if b.profile == "" {
		return func() {}
	}
	cmd := exec.CommandContext(ctx, "perf", "record", "-q", "-F", "499", "-g", "-p", fmt.Sprint(pid), "-o", filepath.Join(b.profile, name+".perf"),
		"--", "sleep", fmt.Sprint(int(b.seconds.Seconds())))
	if err := cmd.Start(); err != nil {
		b.say.Printf("no profile: %v", err)
		return func() {}
	}
	return func() {
		if err := cmd.Wait(); err != nil {
			b.say.Printf("profile %s: %v", name, err)
		}
	}
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

// drive lets the senders work for the time of the bench. watch, unless nil, is called when the measured time begins and ends.
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
	err = errors.Join(err, firstOf(errs))
	for _, s := range senders {
		o.acked += s.acked.Load()
		o.sum += s.body.sum
		o.edges += s.body.edges
		o.lat.merge(&s.lat)
	}
	return o, err
}

// shown is how many senders' errors are shown; usually all are the same.
const shown = 3

// firstOf joins the first errors and counts the others.
func firstOf(errs <-chan error) (err error) {
	n := 0
	for e := range errs {
		if n++; n <= shown {
			err = errors.Join(err, e)
		}
	}
	if n > shown {
		err = errors.Join(err, fmt.Errorf("and %d more senders", n-shown))
	}
	return err
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

// quiet waits until other programs leave the machine alone for two seconds, or the timeout of the bench ends.
func (b *bench) quiet(ctx context.Context) error {
	for end := time.Now().Add(b.quietTimeout); time.Now().Before(end); {
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

// middle is the load of the middle rate; of an even number the slower one of the two in the middle.
func middle(os []*outcome) *outcome {
	sorted := slices.SortedFunc(slices.Values(os), func(a, b *outcome) int { return cmp.Compare(a.rate, b.rate) })
	return sorted[(len(sorted)-1)/2]
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
		_ = s.Close() // everything was acknowledged, or the error is reported already
	}
}
