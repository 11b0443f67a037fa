//go:build linux

package siege_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/test/loopback"
)

// attackerVariable makes this test binary the attackers' process.
const attackerVariable = "SIEGE_ATTACKERS"

// sources is from how many addresses attackers come.
const sources = 250

// attacker is what an attacker knows.
type attacker struct {
	API, Ingest, MQTT string // host:port
	Token             string // of the evil tenant's user
	full              func() // that user has met the budget of its tenant
}

// met is what the attackers write to their parent when the evil tenant has met its budget; their counts follow at the end.
const met = "budget met"

// attack runs every flood until in ends, and writes how many rounds each has had. What an attacker is answered is not looked at.
func attack(in io.Reader, out io.Writer) int {
	var a attacker
	r := bufio.NewReader(in)
	line, err := r.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	chosen, wrong := regexp.Compile(os.Getenv("SIEGE_FLOODS")) // all where it is not set
	if err = errors.Join(err, wrong); err != nil {
		fmt.Fprintln(os.Stderr, "attackers:", err)
		return 1
	}
	a.full = sync.OnceFunc(func() { _, _ = fmt.Fprintln(out, met) })
	ctx, cancel := context.WithCancel(context.Background())
	rounds := map[string]*atomic.Int64{}
	var wg sync.WaitGroup
	for _, f := range floods() {
		if !chosen.MatchString(f.kind) {
			continue
		}
		n := new(atomic.Int64)
		rounds[f.kind] = n
		for i := range f.n {
			wg.Go(func() { f.run(ctx, &a, i, n) })
		}
	}
	_, _ = io.Copy(io.Discard, r) // until the parent closes it, or is gone
	cancel()
	wg.Wait()
	counts := map[string]int64{}
	for kind, n := range rounds {
		counts[kind] = n.Load()
	}
	if err := json.NewEncoder(out).Encode(counts); err != nil {
		return 1
	}
	return 0
}

// run has one attacker act until the context ends, each round from another address.
func (f flood) run(ctx context.Context, a *attacker, i int, n *atomic.Int64) {
	for ctx.Err() == nil {
		if err := f.act(ctx, a, i); err == nil {
			n.Add(1)
		}
		select { // closed listeners and the attackers' own pace
		case <-ctx.Done():
		case <-time.After(f.pause):
		}
	}
}

// dial connects from a random address. The connection ends with the context.
func (a *attacker) dial(ctx context.Context, to string) (net.Conn, func(), error) {
	c, err := loopback.DialContext(ctx, loopback.Address(rand.IntN(sources)), to)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	return c, func() { stop(); _ = c.Close() }, nil
}

// hold sends something and keeps the connection until the server ends it.
func (a *attacker) hold(ctx context.Context, to, sent string) error {
	c, end, err := a.dial(ctx, to)
	if err != nil {
		return err
	}
	defer end()
	if _, err := io.WriteString(c, sent); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, c)
	return nil
}

// attackers is the process, as its parent sees it.
type attackers struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	budget chan struct{}    // closed when the evil tenant has met its budget
	ended  chan struct{}    // closed when the process has written its last line
	rounds map[string]int64 // once it has ended
}

// besiege starts the attackers, at the lowest priority: on the two cores of a small machine they have what is left.
func (x *target) besiege(t *testing.T) *attackers {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := &attackers{cmd: exec.Command("nice", "-n", "19", self), budget: make(chan struct{}), ended: make(chan struct{})}
	b.cmd.Env = append(os.Environ(), attackerVariable+"=1")
	b.cmd.Stderr = os.Stderr
	out, err := b.cmd.StdoutPipe()
	if err == nil {
		b.in, err = b.cmd.StdinPipe()
	}
	if err == nil {
		err = b.cmd.Start()
	}
	if err == nil {
		err = json.NewEncoder(b.in).Encode(attacker{API: strings.TrimPrefix(x.API, "http://"), Ingest: strings.TrimPrefix(x.Ingest, "http://"), MQTT: x.MQTT, Token: x.evil})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.cmd.Process.Kill() })
	go func() {
		defer close(b.ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			if s.Text() == met {
				close(b.budget)
				continue
			}
			_ = json.Unmarshal(s.Bytes(), &b.rounds) // nothing counted fails the test
		}
	}()
	return b
}

// waitForBudget waits until the evil tenant has met its budget, for as long as a siege takes at most: what was written before then is
// for the most part the tenant's own, and shows nothing of unauthenticated senders.
func (b *attackers) waitForBudget(t *testing.T, f *figures, x *target, length time.Duration, long bool) {
	t.Helper()
	end := time.Now().Add(length)
	for time.Now().Before(end) {
		select {
		case <-b.budget:
			return
		default:
			f.wait(t, x, 100*time.Millisecond)
		}
	}
	if long {
		t.Errorf("within %v the evil tenant has not met its budget", length)
	}
}

// stop ends the attackers and waits for their counts.
func (b *attackers) stop(t *testing.T) {
	t.Helper()
	if err := b.in.Close(); err != nil {
		t.Error(err)
	}
	<-b.ended
	if err := b.cmd.Wait(); err != nil {
		t.Errorf("the attackers: %v", err)
	}
}
