// Package spooltest is the conformance suite of the durable log: what every driver must show, however it keeps its
// records. A driver's test calls Run with a function that opens its log.
package spooltest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"weir/model"
	"weir/spool"
)

// Options are the driver options that the suite uses. Zero values mean the driver's defaults.
type Options struct {
	// Place distinguishes logs: the same place is the same log, opened again. It is a folder that exists.
	Place         string
	MaxBytes      int64 // budget
	SpanBytes     int64 // the maximum that Trim may leave unfreed
	UnsyncedBytes int64 // bound of what waits for its sync; the driver may raise it to MaxUnsynced
	TailBytes     int64 // memory for readers that keep up
	Meta          spool.MetaSource
	Sync          func(sync func() error) error // wraps each batch's durable step
	MinOffset     model.Offset
	PairID        [16]byte
}

// MaxUnsynced is what a driver may raise a small unsynced bound to: one largest group and a little.
const MaxUnsynced = spool.MaxGroup + 128*spool.MaxGroupEntries

// Reserve is the minimum space above MaxBytes that a driver keeps for exempt entries.
const Reserve = 16 << 20

// Opener opens a log. It fails the test when it cannot. The suite closes the log.
type Opener func(t *testing.T, opt Options) spool.Log

// Run runs the whole suite.
func Run(t *testing.T, open Opener) {
	for name, test := range map[string]func(*testing.T, Opener){
		"Done is called once per entry in offset order":         testOrder,
		"nothing is readable or answered before its sync":       testHeldSync,
		"a failed batch is answered and never readable":         testFailedSync,
		"records are there after opening again":                 testReopen,
		"next offset lies above what the results know":          testMinOffset,
		"the pair id is kept":                                   testPairID,
		"trim removes records and frees space":                  testTrim,
		"trim waits for the last hold":                          testHoldTrim,
		"purge removes records from the files":                  testPurge,
		"purge ends with the next append and its trim":          testPurgeNeedsAnAppend,
		"purge waits for the last hold":                         testPurgeHeld,
		"several readers from memory and from disk":             testReaders,
		"a reader waits for the next batch":                     testReaderWaits,
		"full refuses, the reserve takes exempt entries":        testFull,
		"entries of one append share a batch or none is kept":   testGroup,
		"a record above the largest size is refused":            testTooLarge,
		"append blocks at the unsynced bound until ctx ends":    testUnsyncedBound,
		"meta rides in its batch and comes back after failure":  testMeta,
		"close answers everything and readers drain":            testClose,
		"sync waits for what was appended before it":            testSync,
		"concurrent appenders, trim and readers keep every one": testConcurrent,
		"random operations agree with a plain model":            testModel,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open)
		})
	}
}

// timeout ends a test that would otherwise hang.
const timeout = 30 * time.Second

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// answer is what Done was given.
type answer struct {
	offset model.Offset
	err    error
}

// answers collects them in the order in which they come.
type answers struct {
	mu   sync.Mutex
	got  []answer
	more chan struct{}
}

func newAnswers() *answers { return &answers{more: make(chan struct{}, 1)} }

func (a *answers) done(offset model.Offset, err error) {
	a.mu.Lock()
	a.got = append(a.got, answer{offset, err})
	a.mu.Unlock()
	select {
	case a.more <- struct{}{}:
	default:
	}
}

func (a *answers) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.got)
}

// wait returns the first n answers.
func (a *answers) wait(t *testing.T, n int) []answer {
	t.Helper()
	ctx := deadline(t)
	for {
		a.mu.Lock()
		got := a.got
		a.mu.Unlock()
		if len(got) >= n {
			return got[:n:n]
		}
		select {
		case <-a.more:
		case <-ctx.Done():
			t.Fatalf("%d answers of %d", len(got), n)
		}
	}
}

// put appends data and waits for its offset.
func put(t *testing.T, l spool.Log, data ...string) model.Offset {
	t.Helper()
	a := newAnswers()
	for _, d := range data {
		must(t, l.Append(deadline(t), spool.Entry{Data: []byte(d), Value: d, Done: a.done}))
	}
	var last model.Offset
	for _, got := range a.wait(t, len(data)) {
		must(t, got.err)
		last = got.offset
	}
	return last
}

// readAll reads what is there from from on, by offset.
func readAll(t *testing.T, l spool.Log, from model.Offset) map[model.Offset]string {
	t.Helper()
	r, err := l.Reader(from)
	must(t, err)
	defer r.Close()
	got := map[model.Offset]string{}
	for {
		b, err := r.TryNext()
		if b == nil && err == nil || errors.Is(err, spool.ErrClosed) {
			return got
		}
		must(t, err)
		for i, rec := range b.Records {
			got[b.First+model.Offset(i)] = string(rec.Data)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}

// opened opens a log that is closed with the test.
func opened(t *testing.T, open Opener, opt Options) spool.Log {
	t.Helper()
	if opt.Place == "" {
		opt.Place = t.TempDir()
	}
	l := open(t, opt)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return l
}

// gate holds, fails or lets pass the durable step of batches.
type gate struct {
	mu     sync.Mutex
	before error         // returned instead of syncing
	after  error         // returned although it was synced
	held   chan struct{} // when set, each step waits for it to be closed
	inside chan struct{} // signaled when a step waits
}

func newGate() *gate { return &gate{inside: make(chan struct{}, 64)} }

func (g *gate) sync(sync func() error) error {
	g.mu.Lock()
	before, after, held := g.before, g.after, g.held
	g.mu.Unlock()
	if held != nil {
		g.inside <- struct{}{}
		<-held
	}
	if before != nil {
		return before
	}
	if err := sync(); err != nil {
		return err
	}
	return after
}

func (g *gate) fail(before, after error) {
	g.mu.Lock()
	g.before, g.after = before, after
	g.mu.Unlock()
}

// hold makes the next steps wait; the returned function lets them go on.
func (g *gate) hold() (release func()) {
	held := make(chan struct{})
	g.mu.Lock()
	g.held = held
	g.mu.Unlock()
	return sync.OnceFunc(func() {
		g.mu.Lock()
		g.held = nil
		g.mu.Unlock()
		close(held)
	})
}

func numbered(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return out
}
