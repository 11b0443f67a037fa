package lwm2m

import (
	"bytes"
	"context"
	"encoding/gob"
	"maps"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/pion/dtls/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/test/lwm2mpeer"
	"weir/internal/test/poll"
	"weir/model"
)

// life is one run of a server on rows that outlive it.
type life struct {
	*Server
	address string
	stop    func()
}

func live(t *testing.T, in Intake, rows *rowsOf, set Settings, more ...func(*Deps)) *life {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	set.ConnectionIDLength = 8
	deps := Deps{Listen: func() (net.PacketConn, error) { return socket, nil }, Intake: in, Keys: keysOf{"meter": []byte("0123456789abcdef")},
		Store: rows, Registerer: prometheus.NewRegistry()}
	for _, f := range more {
		f(&deps)
	}
	s, err := New(Config{Settings: set}, deps)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.Background()) }()
	stopped := false
	l := &life{Server: s, address: socket.LocalAddr().String()}
	l.stop = func() {
		if stopped {
			return
		}
		stopped = true
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(l.stop)
	return l
}

// copyOf is what a crash leaves of rows.
func (r *rowsOf) copyOf() *rowsOf {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &rowsOf{rows: map[int64]Registration{}, sessions: map[int64]Session{}, observations: map[string]Observation{}, firmware: maps.Clone(r.firmware)}
	maps.Copy(c.rows, r.rows)
	maps.Copy(c.sessions, r.sessions)
	maps.Copy(c.observations, r.observations)
	return c
}

// meterOf connects a device through a relay.
func meterOf(t *testing.T, relay *lwm2mpeer.Relay, o lwm2mpeer.Options) *lwm2mpeer.Client {
	t.Helper()
	o.Server, o.Identity, o.Key, o.Timeout = relay.Address(), "meter", []byte("0123456789abcdef"), time.Minute
	o.Handle = func(m *lwm2mpeer.Message) *lwm2mpeer.Message {
		return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(2, 5), Options: []lwm2mpeer.Option{{Number: 12, Value: []byte{110}}}, Payload: []byte(`[{"n":"/3303/0/5700","v":1}]`)}
	}
	c, err := lwm2mpeer.Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func notifies(t *testing.T, c *lwm2mpeer.Client, v int) {
	t.Helper()
	if ack, err := c.Notify(t.Context(), "/3303/0", 110, []byte(`[{"n":"/3303/0/5700","v":`+string(rune('0'+v))+`}]`)); err != nil || ack.Type != 2 || ack.Code != 0 {
		t.Fatalf("%d: %+v %v", v, ack, err)
	}
}

// TestASessionGoesOnAfterARestart, clean or by what a crash has left: the device shakes no hands and does not register, it is observed, and
// no record number is used twice. Without a connection id its address is what it is known by.
func TestASessionGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]lwm2mpeer.Options{"with a connection id": {}, "without": {NoConnectionID: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, rows := &intakeOf{}, &rowsOf{rows: map[int64]Registration{}}
			first := live(t, in, rows, Settings{Reserve: 64})
			relay, err := lwm2mpeer.NewRelay(first.address)
			if err != nil {
				t.Fatal(err)
			}
			defer relay.Close()
			c := meterOf(t, relay, o)
			if _, err := c.Register(t.Context(), []string{"ep=meter", "lt=300", "lwm2m=1.1"}, "</3303/0>"); err != nil {
				t.Fatal(err)
			}
			// One that is not known to have agreed is asked again, under another token, in the life after.
			poll.True(t, "that it has agreed to be observed is stored", func() bool {
				rows.mu.Lock()
				defer rows.mu.Unlock()
				return slices.ContainsFunc(slices.Collect(maps.Values(rows.observations)), func(o Observation) bool { return o.Session != "" })
			})
			crashed := rows.copyOf() // while the first is stopped it may write more
			for v := range 5 {
				notifies(t, c, v)
			}
			first.stop()
			for v, left := range []*rowsOf{crashed, nil} {
				if left == nil {
					left = rows
				}
				next := live(t, in, left, Settings{Reserve: 64})
				if err := relay.Target(next.address); err != nil {
					t.Fatal(err)
				}
				notifies(t, c, 5+v)
				if n := testutil.ToFloat64(next.metrics.handshakes.WithLabelValues("ok")) + testutil.ToFloat64(next.metrics.registrations); n != 0 || relay.Hellos() != 1 {
					t.Errorf("%v handshakes and registrations, %d", n, relay.Hellos())
				}
				if n := testutil.ToFloat64(next.metrics.wakes); n != 1 {
					t.Errorf("%v sessions are woken", n)
				}
				if name == "with a connection id" {
					relay.Rebind()
					notifies(t, c, 7+v)
				}
				next.stop()
				rows = left // of the life before
			}
			if twice := relay.Twice(); len(twice) > 0 {
				t.Errorf("used twice: %q", twice)
			}
		})
	}
}

// TestAQuietSessionIsParked: its device finds it again, and so do we; it goes with its credential, and with its registration.
func TestAQuietSessionIsParked(t *testing.T) {
	t.Parallel()
	in, rows := &intakeOf{}, &rowsOf{rows: map[int64]Registration{}}
	s := live(t, in, rows, Settings{ParkAfter: time.Millisecond})
	relay, err := lwm2mpeer.NewRelay(s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	c := meterOf(t, relay, lwm2mpeer.Options{})
	at, err := c.Register(t.Context(), []string{"ep=meter", "lt=300", "lwm2m=1.1"}, "</3303/0>")
	if err != nil {
		t.Fatal(err)
	}
	counts := func() (live, parked int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.sessions), len(s.parked)
	}
	parked := func() {
		t.Helper()
		poll.True(t, "it is parked", func() bool { live, parked := counts(); return live == 0 && parked == 1 })
	}
	poll.True(t, "it is observed", func() bool { return c.Observed("/3303/0") })
	for v := range 3 {
		parked()
		notifies(t, c, v)
	}
	parked()
	if sess := s.reach(t.Context(), s.registered(7)); sess == nil {
		t.Fatal("it is not reached")
	} else if _, code, err := s.read(sess, []uint16{3303, 0}, []uint16{110}); err != nil || !code.Success() {
		t.Fatal(code, err)
	}
	parked()
	if answer, err := c.Request(t.Context(), 2, at, nil, -1, nil); err != nil || answer.Code != lwm2mpeer.Code2(2, 4) {
		t.Fatalf("%+v %v", answer, err)
	}
	if twice := relay.Twice(); len(twice) > 0 || relay.Hellos() != 1 {
		t.Errorf("%d handshakes; used twice: %q", relay.Hellos(), twice)
	}
	parked()
	s.Drop(func(b model.Binding) bool { return b.Credential == 3 })
	poll.True(t, "nothing is left of it", func() bool {
		rows.mu.Lock()
		defer rows.mu.Unlock()
		live, parked := counts()
		return live == 0 && parked == 0 && len(rows.sessions) == 0
	})
}

// TestRecordNumbersAreReserved: more is sent than was reserved, in one life: the row's bound is always above.
func TestRecordNumbersAreReserved(t *testing.T) {
	t.Parallel()
	in, rows := &intakeOf{}, &rowsOf{rows: map[int64]Registration{}}
	s := live(t, in, rows, Settings{Reserve: 64})
	relay, err := lwm2mpeer.NewRelay(s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	c := meterOf(t, relay, lwm2mpeer.Options{})
	if _, err := c.Register(t.Context(), []string{"ep=meter", "lt=300", "lwm2m=1.1"}, "</3303/0>"); err != nil {
		t.Fatal(err)
	}
	poll.True(t, "it is observed", func() bool { return c.Observed("/3303/0") })
	used := func() uint64 {
		s.mu.Lock()
		p := s.byDevice[7].session.peer
		s.mu.Unlock()
		p.bounds.mu.Lock()
		defer p.bounds.mu.Unlock()
		return p.bounds.next
	}
	bound := func() uint64 {
		rows.mu.Lock()
		defer rows.mu.Unlock()
		return rows.sessions[7].Bound
	}
	for i := range 200 {
		notifies(t, c, i%10)
		if n, b := used(), bound(); n > b {
			t.Fatalf("%d are used, %d reserved", n, b)
		}
	}
	if used() < 200 {
		t.Fatalf("%d are used", used())
	}
	rows.mu.Lock()
	rows.failing = true
	rows.mu.Unlock()
	last := bound()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { // in vain, from some moment on
		for ctx.Err() == nil {
			_, _ = c.Notify(ctx, "/3303/0", 110, []byte(`[{"n":"/3303/0/5700","v":1}]`))
		}
	}()
	poll.True(t, "what is reserved is used up", func() bool { return used() > last })
	if twice := relay.Twice(); len(twice) > 0 {
		t.Errorf("used twice: %q", twice)
	}
	if n := relay.Highest(); n >= last {
		t.Errorf("record %d was sent, %d is reserved", n, last)
	}
}

// TestTheFormOfTheLibrary: what the library exports has the fields that are stored, no more and no less. Where it has others, stateForm
// changes with dtlsState.
func TestTheFormOfTheLibrary(t *testing.T) {
	t.Parallel()
	s := live(t, &intakeOf{}, &rowsOf{rows: map[int64]Registration{}}, Settings{})
	c, err := lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: s.address, Identity: "meter", Key: []byte("0123456789abcdef"), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var conn *dtls.Conn
	poll.True(t, "there is a session", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for sess := range s.sessions {
			conn = sess.dtls
		}
		return conn != nil
	})
	state, _ := conn.ConnectionState()
	theirs, err := state.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var d dtlsState
	if err := gob.NewDecoder(bytes.NewReader(theirs)).Decode(&d); err != nil {
		t.Fatal(err)
	}
	// gob refuses no field that is missing, and describes those that there are by their names and types.
	var ours bytes.Buffer
	if err := gob.NewEncoder(&ours).Encode(d); err != nil {
		t.Fatal(err)
	}
	if a, b := describes(t, theirs), describes(t, ours.Bytes()); a != b {
		t.Errorf("the library exports\n%q, stored is\n%q", a, b)
	}
	if n, ok := firstField(theirs); !ok || n != d.RemoteSequenceNumber || n == 0 {
		t.Errorf("received %d, %v, want %d", n, ok, d.RemoteSequenceNumber)
	}
}

// describes is the description of the struct in a gob stream, without what differs between types of the same fields.
func describes(t *testing.T, b []byte) string {
	t.Helper()
	size, rest, ok := gobUint(b)
	if !ok || int(size) > len(rest) {
		t.Fatal("no gob")
	}
	var names []byte
	for _, c := range rest[:size] {
		if c >= ' ' && c < 0x7f {
			names = append(names, c)
		}
	}
	_, fields, _ := bytes.Cut(names, []byte("RemoteSequenceNumber"))
	return string(fields)
}

func FuzzFirstField(f *testing.F) {
	var b bytes.Buffer
	_ = gob.NewEncoder(&b).Encode(dtlsState{RemoteSequenceNumber: 300, SequenceNumber: 4})
	f.Add(b.Bytes())
	f.Add([]byte{0xf7, 1, 2})
	f.Fuzz(func(t *testing.T, b []byte) { firstField(b); lastRecord(b, 8) })
}
