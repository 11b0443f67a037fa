// Package transporttest is the conformance suite of the transports: what each must show, however its bytes arrive. A
// transport's test calls Run with an Adapter, which makes the transport over an instance and speaks to it as a peer.
package transporttest

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"weir/ingest"
	"weir/internal/test/poll"
	"weir/model"
	"weir/store"
)

// Acknowledged is the answer of every transport to a message that is stored, or dropped by rule.
const Acknowledged = "acknowledged"

// Closed is the answer when the connection ends without one.
const Closed = "closed"

// Peer is a device that speaks to the transport. Each answer comes through a channel of its own: Acknowledged, Closed, or a
// word of the Adapter's Refusals.
type Peer interface {
	// Send sends one reading of the metric temp.
	Send(value float64) <-chan string
	// Garbage sends what is no message of the transport's format.
	Garbage() <-chan string
	Close()
}

// Subject is a transport that the suite runs.
type Subject struct {
	ingest.Transport
	// Connect connects a peer that proves to be a device, see Token. An error says that it was turned away.
	Connect func(device string) (Peer, error)
}

// Adapter makes a transport for the suite.
type Adapter struct {
	// New returns a transport over the instance, for Source and Tenant. The suite runs and closes it.
	New func(t *testing.T, in *Instance) Subject
	// Refusals are what a peer is answered, by reason. What is not in it leaves the peer without an answer.
	Refusals map[ingest.Reason]string
	// Holds says that a full log holds the peer without an answer; else it is refused.
	Holds bool
	// Source is the event source of the transport, where it names that itself; "": Source.
	Source string
	// Extra is how many messages besides the first reading a source has received by then: a session of a host, a birth.
	Extra int64
}

// Run runs the whole suite, one test after the other: the last one counts goroutines.
func Run(t *testing.T, a Adapter) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Adapter)
	}{
		{"the transport says who it is and what it serves", testSources},
		{"no acknowledgement while a sync is held", testHeldSync},
		{"no acknowledgement when a sync fails", testFailedSync},
		{"each refusal in its own words", testRefusals},
		{"the ceiling comes before the pressure", testCeilingFirst},
		{"a full log", testFullLog},
		{"a credential disabled in mid-session", testDisabled(func(b model.Binding) bool { return b.Credential == credentialOf(1) }, Device(1))},
		{"a device disabled in mid-session", testDisabled(func(b model.Binding) bool { return b.DeviceID == 1 }, Device(1))},
		{"a tenant disabled in mid-session", testDisabled(func(b model.Binding) bool { return b.Tenant == Tenant }, "")},
		{"stop and start are no transition of a device", testStopAndStart},
		{"close answers what was accepted", testClose},
		{"kills lose nothing that was acknowledged, and the ledger balances", testKills},
		{"two instances in one process", testTwoInstances},
		{"no goroutine and no descriptor is left", testLeaks},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, a) })
	}
}

// run is a subject that runs.
type run struct {
	Subject
	t      *testing.T
	cancel context.CancelFunc
	ended  <-chan error // of Run; nil once it was stopped
}

func start(t *testing.T, a Adapter, in *Instance) *run {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	r := &run{t: t, Subject: a.New(t, in), cancel: cancel, ended: ended}
	go func() { ended <- r.Run(ctx) }()
	poll.True(t, "the source is up", func() bool { return r.Sources()[0].State == ingest.SourceUp })
	t.Cleanup(r.stop)
	return r
}

// stop closes the transport and ends its Run.
func (r *run) stop() {
	if r.ended == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		r.t.Errorf("closing: %v", err)
	}
	r.cancel()
	if err := <-r.ended; err != nil {
		r.t.Errorf("running: %v", err)
	}
	r.ended = nil
}

func (r *run) peer(device int) Peer {
	r.t.Helper()
	p, err := r.Connect(Device(device))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.Close)
	return p
}

// answer waits for one.
func (r *run) answer(c <-chan string) string {
	r.t.Helper()
	select {
	case s := <-c:
		return s
	case <-time.After(timeout):
		r.t.Fatal("no answer")
		return ""
	}
}

func (r *run) wants(what string, c <-chan string, want string) {
	r.t.Helper()
	if got := r.answer(c); got != want {
		r.t.Errorf("%s: the peer is answered %q, want %q", what, got, want)
	}
}

func (r *run) unanswered(what string, c <-chan string) {
	r.t.Helper()
	select {
	case s := <-c:
		r.t.Errorf("%s: the peer is answered %q", what, s)
	default:
	}
}

// refused waits for the words of a refusal, if the transport has any.
func (r *run) refused(a Adapter, why ingest.Reason, c <-chan string) {
	r.t.Helper()
	if want, known := a.Refusals[why]; known {
		r.wants(string(why), c, want)
	}
}

func testSources(t *testing.T, a Adapter) {
	in := newInstance(t, a)
	r := start(t, a, in)
	r.wants("a reading", r.peer(1).Send(1), Acknowledged)
	all := r.Sources()
	if len(all) != 1 || r.Name() == "" {
		t.Fatalf("%q has the sources %+v", r.Name(), all)
	}
	s := all[0]
	if s.ID != in.source || s.Kind != r.Name() || s.State != ingest.SourceUp || s.Since.IsZero() || s.LastMessage.IsZero() || s.LastError != "" || s.Counts.Received != 1+a.Extra {
		t.Errorf("running: %+v", s)
	}
	r.stop()
	if s := r.Sources()[0]; s.State != ingest.SourceShut {
		t.Errorf("closed: %+v", s)
	}
	in.records(func(rec *model.Record) {
		if rec.Kind == model.KindMessage && (rec.Transport != r.Name() || rec.Source != in.source || rec.Device != Device(1) || rec.DeviceID != 1) {
			t.Errorf("the record bears %+v", rec)
		}
	})
}

func testHeldSync(t *testing.T, a Adapter) {
	in := newInstance(t, a)
	r := start(t, a, in)
	p := r.peer(1)
	in.sync.set(syncHeld)
	c := p.Send(1)
	poll.True(t, "the message waits for its sync", func() bool { waiting, _ := in.sync.seen(); return waiting > 0 })
	r.refused(a, ingest.ReasonUndecodable, r.peer(2).Garbage()) // needs no sync: an answer that came too early is here by now
	r.unanswered("before the sync", c)
	in.sync.set(syncFree)
	r.wants("after it", c, Acknowledged)
}

func testFailedSync(t *testing.T, a Adapter) {
	in := newInstance(t, a)
	r := start(t, a, in)
	p := r.peer(1)
	in.sync.set(syncFails)
	c := p.Send(1)
	poll.True(t, "a sync has failed", func() bool { _, failed := in.sync.seen(); return failed > 0 })
	if want, known := a.Refusals[ingest.ReasonUnavailable]; known {
		r.wants("a sync that fails", c, want)
	} else {
		r.unanswered("a sync that fails", c)
	}
	in.sync.set(syncFree)
	p.Close()
	poll.True(t, "the log takes messages again", func() bool { return in.log.Stats().Err == nil })
	poll.True(t, "the message is acknowledged when it is sent again", func() bool {
		again, err := r.Connect(Device(1))
		if err != nil {
			return false
		}
		defer again.Close()
		return r.answer(again.Send(1)) == Acknowledged
	})
	in.apply()
	if o := in.outcomes(); o[store.OutcomeStored] != 1 || o[store.OutcomeRefused]+o[store.OutcomeDropped] < 1 {
		t.Errorf("the ledger: %v", o)
	}
}

func testRefusals(t *testing.T, a Adapter) {
	in := newInstance(t, a)
	r := start(t, a, in)
	p := r.peer(1)
	r.refused(a, ingest.ReasonUndecodable, p.Garbage())
	in.ceiling.set(true, false)
	r.refused(a, ingest.ReasonCeiling, p.Send(1))
	in.ceiling.set(false, false)
	if _, known := a.Refusals[ingest.ReasonUnauthenticated]; known {
		in.disable(Device(2))
		in.ceiling.set(false, true)
		r.refused(a, ingest.ReasonUnauthenticated, r.peer(2).Send(1))
		in.ceiling.set(false, false)
	}
	if !a.Holds {
		in.pressure.set(true)
		r.refused(a, ingest.ReasonBackpressure, p.Send(1))
		in.pressure.set(false)
	}
	r.wants("after the refusals", p.Send(2), Acknowledged)
	in.apply()
	if o := in.outcomes(); o[store.OutcomeStored] != 1 || o[store.OutcomeReceived] < 3 || o[store.OutcomeWaiting] != 0 {
		t.Errorf("the ledger: %v", o)
	}
}

func testCeilingFirst(t *testing.T, a Adapter) {
	in := newInstance(t, a)
	r := start(t, a, in)
	in.ceiling.set(true, false)
	in.pressure.set(true)
	want, known := a.Refusals[ingest.ReasonCeiling]
	if !known {
		want = Acknowledged // it is dropped
	}
	r.wants("over the ceiling, at a full log", r.peer(1).Send(1), want)
}

func testFullLog(t *testing.T, a Adapter) {
	in := newInstance(t, a)
	r := start(t, a, in)
	p := r.peer(1)
	in.pressure.set(true)
	c := p.Send(1)
	if a.Holds {
		poll.True(t, "the message is held", func() bool { return in.pressure.holding() > 0 })
		r.unanswered("at a full log", c)
	} else {
		r.wants("at a full log", c, a.Refusals[ingest.ReasonBackpressure])
		c = p.Send(1)
		r.wants("again", c, a.Refusals[ingest.ReasonBackpressure])
	}
	in.pressure.set(false)
	if !a.Holds {
		c = p.Send(1)
	}
	r.wants("with room again", c, Acknowledged)
	in.apply()
	if o := in.outcomes(); o[store.OutcomeStored] != 1 {
		t.Errorf("the ledger: %v", o)
	}
}

// testDisabled: what comes after the change is not stored, whether the connection ends or the message proves to be unfit.
func testDisabled(match func(model.Binding) bool, disabled string) func(*testing.T, Adapter) {
	return func(t *testing.T, a Adapter) {
		in := newInstance(t, a)
		r := start(t, a, in)
		p := r.peer(1)
		r.wants("before", p.Send(1), Acknowledged)
		in.disable(disabled)
		r.Drop(match)
		r.answer(p.Send(2))
		if again, err := r.Connect(Device(1)); err == nil {
			r.answer(again.Send(3))
			again.Close()
		}
		if disabled != "" {
			r.wants("another device", r.peer(2).Send(4), Acknowledged)
		}
		r.stop()
		in.apply()
		want := map[bool]int64{true: 2, false: 1}[disabled != ""]
		if o := in.outcomes(); o[store.OutcomeStored] != want {
			t.Errorf("the ledger: %v, %d were sent with a proof", o, want)
		}
	}
}

func testStopAndStart(t *testing.T, a Adapter) {
	in := newInstance(t, a)
	for range 2 {
		r := start(t, a, in)
		r.wants("a reading", r.peer(1).Send(1), Acknowledged)
		r.stop()
	}
	in.must(in.log.Sync(context.Background()))
	in.records(func(rec *model.Record) {
		if rec.Kind == model.KindPresence && rec.Presence.State != model.Connected {
			t.Errorf("the stop is reported as %v of %s: %s", rec.Presence.State, rec.Device, rec.Presence.Reason)
		}
	})
}

// testClose: what was accepted before Close is answered before it returns, and no new peer is served.
func testClose(t *testing.T, a Adapter) {
	in := newInstance(t, a)
	r := start(t, a, in)
	p := r.peer(1)
	in.sync.set(syncHeld)
	c := p.Send(1)
	poll.True(t, "the message waits for its sync", func() bool { waiting, _ := in.sync.seen(); return waiting > 0 })
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		closed <- r.Close(ctx)
	}()
	in.sync.set(syncFree)
	r.wants("accepted before the close", c, Acknowledged)
	in.must(<-closed)
	if late, err := r.Connect(Device(2)); err == nil {
		if s := r.answer(late.Send(2)); s == Acknowledged {
			t.Errorf("a peer after the close is answered %q", s)
		}
		late.Close()
	}
}

// testKills ends the process without a last checkpoint, before and after what was acknowledged is applied, and while a sync is
// held. What was acknowledged is stored once; what was not may be.
func testKills(t *testing.T, a Adapter) {
	in := newInstance(t, a)
	acked := int64(0)
	send := func(r *run, device int) {
		r.wants("a reading", r.peer(device).Send(float64(acked)), Acknowledged)
		acked++
	}
	for _, point := range []string{"before anything is applied", "after what came before is applied and written", "again"} {
		r := start(t, a, in)
		send(r, 1)
		send(r, 2)
		r.refused(a, ingest.ReasonUndecodable, r.peer(1).Garbage())
		r.stop()
		in.kill()
		if stored, waiting := in.recount(); stored+waiting < acked {
			t.Errorf("killed %s: %d are acknowledged, %d are stored and %d wait in the log", point, acked, stored, waiting)
		}
		if point != "before anything is applied" {
			in.apply()
			in.kill() // an applier runs once
		}
	}
	r := start(t, a, in)
	p := r.peer(3)
	in.sync.set(syncHeld)
	c := p.Send(9)
	poll.True(t, "the message waits for its sync", func() bool { waiting, _ := in.sync.seen(); return waiting > 0 })
	r.unanswered("killed in the sync", c)
	in.sync.set(syncFails) // the process dies before the disk has it
	poll.True(t, "the sync has failed", func() bool { _, failed := in.sync.seen(); return failed > 0 })
	in.sync.set(syncFree)
	p.Close()
	r.stop()
	in.kill()
	in.apply()
	in.recount()
	if o := in.outcomes(); o[store.OutcomeStored] < acked || o[store.OutcomeStored] > acked+1 || o[store.OutcomeWaiting] != 0 {
		t.Errorf("in the end: %d are acknowledged, the ledger says %v", acked, o)
	}
}

func testTwoInstances(t *testing.T, a Adapter) {
	var all [2]*Instance
	for i := range all {
		all[i] = newInstance(t, a)
	}
	for i, in := range all {
		r := start(t, a, in)
		p := r.peer(1)
		for v := range i + 1 {
			r.wants("a reading", p.Send(float64(v)), Acknowledged)
		}
	}
	for i, in := range all {
		in.apply()
		if o := in.outcomes(); o[store.OutcomeStored] != int64(i+1) || o[store.OutcomeReceived] != int64(i+1) {
			t.Errorf("instance %d: %v", i, o)
		}
	}
}

func testLeaks(t *testing.T, a Adapter) {
	in := newInstance(t, a)
	use := func() {
		r := start(t, a, in)
		var peers []Peer
		for n := range Devices {
			p, err := r.Connect(Device(n + 1))
			in.must(err)
			r.wants("a reading", p.Send(1), Acknowledged)
			r.refused(a, ingest.ReasonUndecodable, p.Garbage())
			peers = append(peers, p)
		}
		r.Drop(func(b model.Binding) bool { return b.DeviceID == 2 })
		peers[0].Close()
		r.stop()
		for _, p := range peers[1:] {
			p.Close()
		}
	}
	use() // what the first use makes may stay
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	for range 3 {
		use()
	}
	poll.True(t, "as many goroutines are left as before", func() bool { return runtime.NumGoroutine() <= goroutines })
	poll.True(t, "as many descriptors are left as before", func() bool { return descriptors(t) <= files })
}

// descriptors is how many files and sockets the process has open, 0 where that cannot be counted.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
