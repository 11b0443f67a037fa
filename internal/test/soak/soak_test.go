// Package soak_test lets the real program work among good and bad clients for as long as it is told to (SOAK, as "1h"), and
// looks at what it takes meanwhile: what was acknowledged must be kept once, and goroutines, descriptors and memory must be
// as flat at the end as they were near the beginning. "make soak" is the long form; without SOAK a few seconds show that
// the soak itself works.
package soak_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// short is how long the soak takes where nothing is said.
const short = 4 * time.Second

func TestSoak(t *testing.T) {
	t.Parallel()
	length, err := short, error(nil)
	if s := os.Getenv("SOAK"); s != "" {
		if length, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, map[string]int{"old": 6, "new": 4, "tls": 2, "ws": 2, "http": 4, "churn": churners, "bad": 4, "drip": 2,
		"deaf": 1, "flood": 1, "rush": 1, "cut": 2, "noise": 2, "twice": 1, "foreign": 1})
	p.reader = p.SignIn(tenant)

	// What is opened once, such as the readers of the database, is opened before the base is taken.
	p.act(t, time.Second, append(crowd(), churn()))
	base := p.quiet(t, sample{}, 20*time.Second)
	began, seen := time.Now(), &samples{}
	stop := seen.watch(t, p)
	made := p.act(t, length, append(append(crowd(), hostile()...), churn()))
	stop()
	took := time.Since(began)
	after := p.quiet(t, base, 90*time.Second)
	if seen.metrics, err = p.Scrape(t.Context()); err != nil {
		t.Fatal(err)
	}
	report(t, seen, base, after, made, took)

	seen.judge(t, length, base, after)
	p.balance(t)
	if err := p.Stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
	p.noComplaint(t)
}

// act lets the actors work for a time. When one meets a fault all stop.
func (p *plant) act(t *testing.T, length time.Duration, all []actor) map[string]int64 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer time.AfterFunc(length, cancel).Stop() // a deadline would make a dial fail a moment before the context has ended
	var wg sync.WaitGroup
	counts := map[string]*atomic.Int64{}
	for _, a := range all {
		n := &atomic.Int64{}
		counts[a.kind] = n
		for i := range a.n {
			wg.Go(func() {
				if err := a.act(tally(ctx, n), p, i); err != nil {
					t.Errorf("%s: %v", a.kind, err)
					cancel()
				}
			})
		}
	}
	wg.Wait()
	made := map[string]int64{}
	for kind, n := range counts {
		made[kind] = n.Load()
	}
	return made
}

type tallyKey struct{}

// tally lets every count what was done.
func tally(ctx context.Context, n *atomic.Int64) context.Context {
	return context.WithValue(ctx, tallyKey{}, n)
}

func counted(ctx context.Context) {
	if n, ok := ctx.Value(tallyKey{}).(*atomic.Int64); ok {
		n.Add(1)
	}
}

// quiet waits until nobody is connected and what the instance holds is no more than base, or until the time is over. A zero
// base waits for silence only.
func (p *plant) quiet(t *testing.T, base sample, within time.Duration) sample {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		s, err := p.sample(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done, err := p.Applied()
		if err != nil {
			t.Fatal(err)
		}
		if done && s.Connections == 0 && (base == sample{} || s.Goroutines <= base.Goroutines+slack && s.Descriptors <= base.Descriptors+slack) {
			return s
		}
		if time.Now().After(deadline) {
			return s
		}
		time.Sleep(100 * time.Millisecond) // another process is asked; it cannot be waited for otherwise
	}
}

// balance looks for every reading and lets the ledger be recounted.
func (p *plant) balance(t *testing.T) {
	t.Helper()
	token := p.SignIn(tenant)
	var certain int64
	for d, l := range p.ledgers {
		if err := p.count(token, d); err != nil {
			t.Error(err)
		}
		certain += l.certain.Load()
	}
	t.Logf("%d readings were acknowledged and found again", certain)
	if out, err := p.TryRun("", "ledger", "verify"); err != nil {
		t.Errorf("weir ledger verify: %v\n%s", err, out)
	}
}

// noComplaint looks through the log for errors: whatever strangers do is none.
func (p *plant) noComplaint(t *testing.T) {
	t.Helper()
	for line := range strings.Lines(p.Stderr()) {
		var entry struct{ Level, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Level == "ERROR" {
			t.Errorf("logged: %s", line)
		}
	}
}

var errGrown = errors.New("it grows")

// judge compares the second quarter with the last one, and what remains with what was there before.
func (all *samples) judge(t *testing.T, length time.Duration, base, after sample) {
	t.Helper()
	if after.Goroutines > base.Goroutines+slack || after.Descriptors > base.Descriptors+slack {
		t.Errorf("when all had gone %d goroutines and %d descriptors were left; at first there were %d and %d",
			after.Goroutines, after.Descriptors, base.Goroutines, base.Descriptors)
	}
	if n := after.Panics; n > 0 {
		t.Errorf("%d connections ended with a panic", n)
	}
	for _, s := range all.list {
		if s.Anonymous > most {
			t.Errorf("at %v it held %d MiB, over limits.memory", s.At.Round(time.Second), s.Anonymous>>20)
			break
		}
	}
	if length < time.Minute { // caches are still filling, and not every bad client has met its end
		return
	}
	all.endings(t)
	second, last := all.quarter(1), all.quarter(3)
	for _, c := range []struct {
		what        string
		of          func(sample) int64
		part, fixed int64 // how much more is no growth: a part of a hundred, and so much
	}{
		{"goroutines", func(s sample) int64 { return s.Goroutines }, 25, 50},
		{"descriptors", func(s sample) int64 { return s.Descriptors }, 25, 30},
		{"memory", func(s sample) int64 { return s.Anonymous }, 15, 24 << 20},
	} {
		was, is := median(second, c.of), median(last, c.of)
		if is > was+was*c.part/100+c.fixed {
			t.Errorf("%s: %d in the second quarter, %d in the last one: %v", c.what, was, is, errGrown)
		}
	}
}

// endings are the causes by which bad clients lose their connection, each of which must have been met.
func (all *samples) endings(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		`weir_broker_disconnects_total{cause="keep-alive-timeout"}`, `weir_broker_disconnects_total{cause="malformed-packet"}`,
		`weir_broker_disconnects_total{cause="qos-2"}`, `weir_broker_disconnects_total{cause="forbidden-publish"}`,
		`weir_broker_disconnects_total{cause="slow-reader"}`, `weir_broker_disconnects_total{cause="taken-over"}`,
		`weir_broker_disconnects_total{cause="connection-lost"}`, `weir_broker_refused_connects_total{reason="not-authorized"}`,
		`weir_broker_disconnects_total{cause="receive-maximum-exceeded"}`, `weir_broker_refused_connects_total{reason="no-connect"}`,
		`weir_broker_refused_connects_total{reason="tls-handshake"}`, `weir_httpingest_requests_total{code="400"}`,
	} {
		if all.metrics[name] == 0 {
			t.Errorf("%s: none", name)
		}
	}
	if n := all.metrics[`weir_config_reloads_total{outcome="failed"}`]; n > 0 {
		t.Errorf("%.0f reloads failed", n)
	}
}

// report prints what was seen, and writes each sample to SOAK_OUT for a graph.
func report(t *testing.T, all *samples, base, after sample, made map[string]int64, took time.Duration) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-10s %10s %11s %8s %8s %11s %8s\n", "", "goroutines", "descriptors", "memory", "heap", "connections", "log")
	row := func(name string, s sample) {
		fmt.Fprintf(&b, "%-10s %10d %11d %4d MiB %4d MiB %11d %4d MiB\n", name, s.Goroutines, s.Descriptors, s.Anonymous>>20, s.Heap>>20, s.Connections, s.Spool>>20)
	}
	row("before", base)
	for q := range 4 {
		if part := all.quarter(q); len(part) > 0 {
			row(fmt.Sprintf("quarter %d", q+1), middle(part))
		}
	}
	row("after", after)
	fmt.Fprintf(&b, "\nin %v:\n", took.Round(time.Second))
	for _, a := range append(append(crowd(), hostile()...), churn()) {
		fmt.Fprintf(&b, "%10d × %s\n", made[a.kind], a.kind)
	}
	fmt.Fprintf(&b, "%10.0f connections a minute by churn\n", float64(made["churn"])/took.Minutes())
	t.Log(b.String())
	file := os.Getenv("SOAK_OUT")
	if file == "" {
		return
	}
	text, err := json.Marshal(all.list)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Error(err)
	}
}
