package lwm2m

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/ingest"
	"weir/internal/test/conformance"
	"weir/internal/test/lwm2mpeer"
	"weir/internal/test/poll"
	"weir/model"
)

// intakeOf is an intake that a test fills up: messages are dropped while it is full, presence is taken all the same.
type intakeOf struct {
	mu        sync.Mutex
	full      bool
	sizes     []int // readings of each message
	faults    []string
	ceiling   bool // no message is under it
	readings  []float64
	locations []model.Location
	reported  map[string]string
	presence  []model.PresenceState
	answers   []model.Response
}

// until waits until an attribute was reported.
func (in *intakeOf) until(t *testing.T, key, value string) {
	t.Helper()
	poll.True(t, key, func() bool {
		in.mu.Lock()
		defer in.mu.Unlock()
		return in.reported[key] == value
	})
}

func (in *intakeOf) Accept(_ context.Context, a *ingest.Arrival, done func(ingest.Answer)) {
	in.mu.Lock()
	answer := ingest.Answer{Outcome: ingest.Stored}
	switch {
	case in.full && a.CannotRefuse:
		answer = ingest.Answer{Outcome: ingest.Dropped, Reason: ingest.ReasonBackpressure}
	case in.full:
		answer = ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonBackpressure, RetryAfter: 10}
	case in.ceiling:
		answer = ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonCeiling, RetryAfter: 3}
	case a.Fault != "":
		in.faults = append(in.faults, a.Fault)
		if !a.CannotRefuse {
			answer = ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonUndecodable}
		}
	case a.Message != nil:
		in.sizes = append(in.sizes, len(a.Message.Measurements))
		for _, r := range a.Message.Measurements {
			in.readings = append(in.readings, r.Value)
		}
		in.locations = append(in.locations, a.Message.Locations...)
	case a.Answer != nil:
		in.answers = append(in.answers, *a.Answer)
	case a.Report != nil:
		if in.reported == nil {
			in.reported = map[string]string{}
		}
		for _, r := range a.Report.Attributes {
			in.reported[r.Key] = r.Value
		}
	}
	in.mu.Unlock()
	done(answer)
}

func (in *intakeOf) Presence(_ context.Context, _, _ string, _ model.Binding, p model.Presence, done func(ingest.Answer)) {
	in.mu.Lock()
	in.presence = append(in.presence, p.State)
	in.mu.Unlock()
	done(ingest.Answer{Outcome: ingest.Stored})
}

func (in *intakeOf) set(full bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.full = full
}

type keysOf map[string][]byte

func (k keysOf) Key(_ context.Context, identity string) (Key, error) {
	secret, ok := k[identity]
	if !ok {
		return Key{}, ErrUnknown
	}
	return Key{Binding: model.Binding{Tenant: "acme", TenantID: 1, Device: identity, DeviceID: 7, Credential: 3}, Secret: secret}, nil
}

type rowsOf struct {
	mu           sync.Mutex
	rows         map[int64]Registration
	sessions     map[int64]Session
	observations map[string]Observation
	firmware     map[int64]Firmware
	failing      bool
}

func (r *rowsOf) Restore(_ context.Context, reserve uint64, to Restored) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, row := range r.rows {
		to.Registration(row)
	}
	for _, row := range r.observations {
		to.Observation(row)
	}
	for _, row := range r.firmware {
		to.Firmware(row)
	}
	for id, row := range r.sessions {
		if !to.Session(row) {
			delete(r.sessions, id)
			continue
		}
		row.Bound += reserve
		r.sessions[id] = row
	}
	return nil
}

func (r *rowsOf) Save(_ context.Context, _ bool, c *Changes) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions == nil {
		r.sessions, r.observations = map[int64]Session{}, map[string]Observation{}
	}
	if r.failing {
		return errors.New("the disk is full")
	}
	for _, row := range c.Registrations {
		r.rows[row.Binding.DeviceID] = row
	}
	for range c.Forget {
		clear(r.observations)
	}
	for _, row := range c.Observations {
		r.observations[string(row.Token)] = row
	}
	for _, row := range c.Unobserved {
		delete(r.observations, string(row.Token))
	}
	for _, row := range c.Firmware {
		if r.firmware == nil {
			r.firmware = map[int64]Firmware{}
		}
		r.firmware[row.Binding.DeviceID] = row
	}
	for _, row := range c.FirmwareEnded {
		if r.firmware[row.Binding.DeviceID].Nonce == row.Nonce {
			delete(r.firmware, row.Binding.DeviceID)
		}
	}
	for _, id := range c.Ended {
		delete(r.sessions, id)
	}
	for _, row := range c.Sessions {
		r.sessions[row.Binding.DeviceID] = row
	}
	for _, change := range c.Reserved {
		if row := r.sessions[change.Binding.DeviceID]; row.Name == change.Name {
			row.Bound = change.Bound
			r.sessions[change.Binding.DeviceID] = row
		}
	}
	for _, change := range c.Progress {
		if row := r.sessions[change.Binding.DeviceID]; row.Name == change.Name {
			row.Received, row.Address = change.Received, change.Address
			r.sessions[change.Binding.DeviceID] = row
		}
	}
	return nil
}

// serve runs a server on a loopback socket until the test ends and returns it with its address.
func serve(t *testing.T, in Intake, rows *rowsOf) (*Server, string) {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Settings: Settings{ConnectionIDLength: 8}}, Deps{Listen: func() (net.PacketConn, error) { return socket, nil }, Intake: in, Keys: keysOf{"meter": []byte("0123456789abcdef")},
		Store: rows, Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.Background()) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, socket.LocalAddr().String()
}

// TestADeviceUnderBackpressure: a notification that finds no room is acknowledged, dropped and counted, the next one goes through; a
// registration and its end are taken all the same, and a Send is refused.
func TestADeviceUnderBackpressure(t *testing.T) {
	t.Parallel()
	in, rows := &intakeOf{}, &rowsOf{rows: map[int64]Registration{}}
	s, address := serve(t, in, rows)
	in.set(true)
	c, err := lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: address, Identity: "meter", Key: []byte("0123456789abcdef"), Timeout: time.Minute,
		Handle: func(m *lwm2mpeer.Message) *lwm2mpeer.Message {
			return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(2, 5), Options: []lwm2mpeer.Option{{Number: 12, Value: []byte{110}}}, Payload: []byte(`[{"n":"/3303/0/5700","v":1}]`)}
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	at, err := c.Register(t.Context(), []string{"ep=meter", "lt=300", "lwm2m=1.1"}, "</3303/0>")
	if err != nil {
		t.Fatal(err)
	}
	poll.True(t, "it is observed", func() bool { return c.Observed("/3303/0") })
	notify := func(body string) {
		t.Helper()
		if ack, err := c.Notify(t.Context(), "/3303/0", 110, []byte(body)); err != nil || ack.Type != 2 || ack.Code != 0 {
			t.Fatalf("%+v %v", ack, err)
		}
	}
	notify(`[{"n":"/3303/0/5700","v":2}]`)
	if answer, err := c.Request(t.Context(), 2, "/dp", nil, 110, []byte(`[{"n":"/3303/0/5700","v":3}]`)); err != nil || answer.Code != lwm2mpeer.Code2(5, 3) || answer.Uint(14) != 10 {
		t.Errorf("a Send is answered %+v, %v", answer, err)
	}
	if n := testutil.ToFloat64(s.metrics.notifications.WithLabelValues("dropped")); n < 1 {
		t.Errorf("%v are dropped", n)
	}
	in.set(false)
	notify(`[{"n":"/3303/0/5700","v":4}]`)
	in.mu.Lock()
	// The 1 that answers the observation comes whenever it comes.
	if got := slices.DeleteFunc(slices.Clone(in.readings), func(v float64) bool { return v == 1 }); len(got) != 1 || got[0] != 4 {
		t.Errorf("stored is %v", in.readings)
	}
	in.mu.Unlock()
	conformance.Shown(t, "S2-088")
	in.set(true)
	if answer, err := c.Request(t.Context(), 4, at, nil, -1, nil); err != nil || answer.Code != lwm2mpeer.Code2(2, 2) {
		t.Fatalf("%+v %v", answer, err)
	}
	in.mu.Lock()
	if len(in.presence) != 2 || in.presence[0] != model.Connected || in.presence[1] != model.Disconnected {
		t.Errorf("asserted is %v", in.presence)
	}
	in.mu.Unlock()
	conformance.Shown(t, "S2-089")
}

// TestACredentialThatChangesEndsItsSession and no other.
func TestACredentialThatChangesEndsItsSession(t *testing.T) {
	t.Parallel()
	s, address := serve(t, &intakeOf{}, &rowsOf{rows: map[int64]Registration{}})
	c, err := lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: address, Identity: "meter", Key: []byte("0123456789abcdef"), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Register(t.Context(), []string{"lt=300"}, "</1/0>"); err != nil {
		t.Fatal(err)
	}
	s.Drop(func(b model.Binding) bool { return b.Credential == 4 })
	if n := s.sessionCount(); n != 1 {
		t.Fatalf("%d sessions", n)
	}
	s.Drop(func(b model.Binding) bool { return b.Credential == 3 })
	<-c.Ended()
	poll.True(t, "the session is gone", func() bool { return s.sessionCount() == 0 })
}
