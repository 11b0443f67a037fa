package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/model"
	"weir/presence"
)

// fakeStore is stored presence.
type fakeStore struct {
	mu     sync.Mutex
	rows   []presence.Asserted
	fail   int // so many reads fail
	source string
}

func (f *fakeStore) PresenceSession(_ context.Context, device int64) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail > 0 {
		f.fail--
		return 0, errors.New("disk")
	}
	for _, r := range f.rows {
		if r.Binding.DeviceID == device {
			return r.Session, nil
		}
	}
	return 0, nil
}

func (f *fakeStore) AssertedPresence(_ context.Context, source string, after int64, limit int) ([]presence.Asserted, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.source = source
	if f.fail > 0 {
		f.fail--
		return nil, errors.New("disk")
	}
	var page []presence.Asserted
	for _, r := range f.rows {
		if r.Binding.DeviceID > after && len(page) < limit {
			page = append(page, r)
		}
	}
	return page, nil
}

func (f *fakeStore) set(rows ...presence.Asserted) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows = rows
}

func stored(device int64, session uint64, connected bool) presence.Asserted {
	return presence.Asserted{Binding: model.Binding{Tenant: "acme", Device: "x", DeviceID: device}, Session: session, Connected: connected}
}

func withStore(t *testing.T, cfg Config, store *fakeStore, test func(*testing.T, *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := newBench(t, cfg, store)
		defer x.stop()
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- x.broker.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		}()
		test(t, x)
	})
}

// sessions are the numbers of the transitions so far.
func (g *fakeIntake) sessions() (all []uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.presence {
		all = append(all, p.Session)
	}
	return all
}

func TestPresenceFollowsTheConnection(t *testing.T) {
	for _, tc := range []struct {
		end  func(*client)
		want string
	}{
		{func(c *client) { c.send([]byte{0xE0, 0}) }, "CONNECTED connected, DISCONNECTED disconnected"},
		{func(c *client) { c.conn.Close() }, "CONNECTED connected, DISCONNECTED connection-lost"},
		{func(c *client) { c.send([]byte{0xF0, 0}) }, "CONNECTED connected, DISCONNECTED protocol-error"},
	} {
		withStore(t, Config{}, &fakeStore{}, func(t *testing.T, x *bench) {
			c := x.connect(mqtt5)
			time.Sleep(time.Second)
			tc.end(c)
			synctest.Wait()
			if got := x.intake.transitions(); got != tc.want {
				t.Error(got)
			}
			up, down := x.intake.seenPresence()[0], x.intake.seenPresence()[1]
			if up.Session != down.Session || down.Occurred-up.Occurred != model.Nanos(time.Second) || up.Session != uint64(up.Occurred) {
				t.Errorf("up %+v, down %+v", up, down)
			}
		})
	}
}

func TestSuffixedConnectionsAssertNothing(t *testing.T) {
	withStore(t, Config{}, &fakeStore{}, func(t *testing.T, x *bench) {
		c := x.connect(mqtt5, func(h *hello) { h.clientID += ":second" })
		c.conn.Close()
		synctest.Wait()
		if got := x.intake.transitions(); got != "" {
			t.Error(got)
		}
	})
}

func TestSessionNumbersNeverFall(t *testing.T) {
	future := uint64(model.NanosOf(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)))
	store := &fakeStore{rows: []presence.Asserted{stored(1, future, false)}} // stored before the clock was set back
	withStore(t, Config{}, store, func(t *testing.T, x *bench) {
		for range 3 {
			c := x.connect(mqtt5)
			c.send([]byte{0xE0, 0})
			synctest.Wait()
		}
		want := []uint64{future + 1, future + 1, future + 2, future + 2, future + 3, future + 3}
		if got := x.intake.sessions(); !slices.Equal(got, want) {
			t.Errorf("sessions %d, want %d", got, want)
		}
		store.fail = 1
		c := x.connect(mqtt5)
		if got := x.intake.sessions(); got[6] != future+4 || counted(t, x.broker.metrics.presenceUnknown) != 1 {
			t.Errorf("with an unreadable store: session %d", got[6])
		}
		c.conn.Close()
	})
}

// After a start the devices that were connected have 150 s to return; then they are disconnected, 25 a second.
func TestRestartGrace(t *testing.T) {
	store := &fakeStore{rows: []presence.Asserted{stored(1, 10, true), stored(2, 11, false)}, fail: 1}
	for id := range int64(1200) {
		store.rows = append(store.rows, stored(100+id, 20+uint64(id), true))
	}
	withStore(t, Config{Timing: presence.Timing{Check: time.Hour}}, store, func(t *testing.T, x *bench) {
		c := x.connect(mqtt5)
		defer c.conn.Close()
		ping := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(min(time.Until(end), 50*time.Second)) {
				c.send([]byte{0xC0, 0})
			}
			synctest.Wait()
		}
		store.mu.Lock()
		store.fail = 1
		store.mu.Unlock()
		ping(149 * time.Second)
		if n := len(x.intake.seenPresence()); n != 1 {
			t.Fatalf("%d transitions within the grace", n)
		}
		ping(7 * time.Second) // the first read fails and is tried again after 5 s
		if n := len(x.intake.seenPresence()); n < 20 || n > 60 {
			t.Fatalf("%d transitions in the first second or two", n)
		}
		ping(60 * time.Second)
		if n := len(x.intake.seenPresence()); n != 1+1200 {
			t.Fatalf("%d transitions", n)
		}
		for i, p := range x.intake.seenPresence()[1:] {
			if p.State != model.Disconnected || p.Reason != "restart-timeout" || p.Session != 20+uint64(i) {
				t.Fatalf("transition %d is %+v", i, p)
			}
		}
		if store.source != "mqtt1" {
			t.Errorf("asked for source %q", store.source)
		}
	})
}

// Whom Weir cut off has the same grace.
func TestGraceAfterWeirCutsADeviceOff(t *testing.T) {
	for _, returns := range []bool{true, false} {
		withStore(t, Config{Timing: presence.Timing{Check: time.Hour}}, &fakeStore{}, func(t *testing.T, x *bench) {
			time.Sleep(200 * time.Second) // the grace of the start is over
			x.connect(mqtt5)
			x.broker.Drop(func(model.Binding) bool { return true })
			time.Sleep(140 * time.Second)
			want := "CONNECTED connected, DISCONNECTED restart-timeout"
			if returns {
				x.connect(mqtt5)
				want = "CONNECTED connected, CONNECTED connected"
			} else if got := x.intake.transitions(); got != "CONNECTED connected" {
				t.Errorf("within the grace: %s", got)
			}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if got := x.intake.transitions(); got != want {
				t.Error(got)
			}
			if counted(t, x.broker.metrics.grace) != 0 {
				t.Error("a grace is left over")
			}
		})
	}
}

// The check repairs both ways, but only what it has found twice.
func TestReconcile(t *testing.T) {
	store := &fakeStore{}
	withStore(t, Config{}, store, func(t *testing.T, x *bench) {
		time.Sleep(160 * time.Second)
		c := x.connect(mqtt5, func(h *hello) { h.keepAlive = 600 }) // its CONNECTED is lost: nothing is stored
		store.set(stored(7, 5, true))                               // and somebody is stored who is not here
		ping := func(d time.Duration) {
			time.Sleep(d)
			c.send([]byte{0xC0, 0})
			synctest.Wait()
		}
		ping(299 * time.Second)
		ping(10 * time.Second)
		if got := x.intake.transitions(); got != "CONNECTED connected" {
			t.Fatalf("after one check: %s", got)
		}
		ping(300 * time.Second)
		if got := x.intake.transitions(); got != "CONNECTED connected, DISCONNECTED restart-timeout, CONNECTED reconciled" {
			t.Fatalf("after two checks: %s", got)
		}
		if s := x.intake.sessions(); s[1] != 5 || s[2] != s[0] {
			t.Errorf("sessions %d", s)
		}
		store.set(stored(1, x.intake.sessions()[0], true))
		ping(600 * time.Second)
		if n := len(x.intake.seenPresence()); n != 3 {
			t.Errorf("%d transitions when all is well", n)
		}
	})
}

func TestSwitchedOffDemotes(t *testing.T) {
	store := &fakeStore{rows: []presence.Asserted{stored(1, 10, true), stored(2, 11, false)}}
	withStore(t, Config{SilentPresence: true}, store, func(t *testing.T, x *bench) {
		c := x.connect(mqtt5)
		c.conn.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := x.intake.transitions(); got != "DEMOTED broker-presence-off, DEMOTED broker-presence-off" {
			t.Error(got)
		}
		if s := x.intake.sessions(); !slices.Equal(s, []uint64{10, 11}) {
			t.Errorf("sessions %d", s)
		}
	})
}
