package lwm2m

import (
	"context"
	"slices"
	"testing"

	"weir/ingest"
	"weir/internal/test/lwm2mpeer"
	"weir/internal/test/poll"
)

// heldIntake does not end the readings of one value before it is let.
type heldIntake struct {
	intakeOf
	value float64
	ends  chan func() // what ends them
}

func (in *heldIntake) Accept(ctx context.Context, a *ingest.Arrival, done func(ingest.Answer)) {
	if a.Message != nil && len(a.Message.Measurements) > 0 && a.Message.Measurements[0].Value == in.value {
		in.ends <- func() { in.intakeOf.Accept(ctx, a, done) }
		return
	}
	in.intakeOf.Accept(ctx, a, done)
}

// has reports whether a value is stored.
func (in *intakeOf) has(value float64) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Contains(in.readings, value)
}

// TestANotificationThatOvertakesItsAnswer is acknowledged once it is stored, as any other is.
func TestANotificationThatOvertakesItsAnswer(t *testing.T) {
	t.Parallel()
	in := &heldIntake{value: 9, ends: make(chan func(), 1)}
	_, address := serve(t, in, &rowsOf{rows: map[int64]Registration{}})
	var c *lwm2mpeer.Client
	connected := make(chan struct{})
	type end struct {
		ack *lwm2mpeer.Message
		err error
	}
	acknowledged, end1 := make(chan end, 1), make(chan func(), 1)
	handle := func(m *lwm2mpeer.Message) *lwm2mpeer.Message {
		<-connected
		if m.Uint(6) == 0 && m.Path(11) == "/3303/0" {
			go func() {
				ack, err := c.Ask(t.Context(), &lwm2mpeer.Message{Code: lwm2mpeer.Code2(2, 5), Token: m.Token,
					Options: []lwm2mpeer.Option{{Number: 6, Value: []byte{2}}, {Number: 12, Value: []byte{110}}}, Payload: []byte(`[{"n":"/3303/0/5700","v":9}]`)})
				acknowledged <- end{ack, err}
			}()
			end1 <- <-in.ends // the server has it before it has the answer
		}
		return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(2, 5), Options: []lwm2mpeer.Option{{Number: 12, Value: []byte{110}}}, Payload: []byte(`[{"n":"/3303/0/5700","v":1}]`)}
	}
	c, err := lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: address, Identity: "meter", Key: []byte("0123456789abcdef"), Handle: handle})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	close(connected)
	at, err := c.Register(t.Context(), []string{"lt=300", "lwm2m=1.1"}, "</3303/0>")
	if err != nil {
		t.Fatal(err)
	}
	store := <-end1
	if answer, err := c.Request(t.Context(), 2, at, nil, -1, nil); err != nil || answer.Code != lwm2mpeer.Code2(2, 4) { // what was acknowledged before came before it
		t.Fatalf("%+v %v", answer, err)
	}
	select {
	case got := <-acknowledged:
		t.Errorf("it is answered %+v, %v before it is stored", got.ack, got.err)
		store()
	default:
		store()
		if got := <-acknowledged; got.err != nil || got.ack.Type != 2 {
			t.Errorf("%+v %v", got.ack, got.err)
		}
	}
	if !in.has(9) {
		t.Error("it is not stored")
	}
}

// TestANotificationFromBeforeARestart that was not acknowledged is stored, although the device has answered with a higher number since: it is asked again
// where the row of its agreement was not written.
func TestANotificationFromBeforeARestart(t *testing.T) {
	t.Parallel()
	in, rows := &intakeOf{}, &rowsOf{rows: map[int64]Registration{}}
	first := live(t, in, rows, Settings{})
	relay, err := lwm2mpeer.NewRelay(first.address)
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	c := meterOf(t, relay, lwm2mpeer.Options{})
	at, err := c.Register(t.Context(), []string{"lt=300", "lwm2m=1.1"}, "</3303/0>")
	if err != nil {
		t.Fatal(err)
	}
	poll.True(t, "it is observed", func() bool { return c.Observed("/3303/0") })
	notifies(t, c, 4)
	poll.True(t, "its session is stored", func() bool {
		rows.mu.Lock()
		defer rows.mu.Unlock()
		return len(rows.sessions) == 1
	})
	crashed := rows.copyOf()
	for token, row := range crashed.observations {
		row.Session = ""
		crashed.observations[token] = row
	}
	first.stop()
	waits := c.Notification("/3303/0", 110, []byte(`[{"n":"/3303/0/5700","v":5}]`)) // nobody was there to acknowledge it
	for len(c.Seen) > 0 {
		<-c.Seen
	}
	next := live(t, in, crashed, Settings{})
	if err := relay.Target(next.address); err != nil {
		t.Fatal(err)
	}
	if answer, err := c.Request(t.Context(), 2, at, nil, -1, nil); err != nil || answer.Code != lwm2mpeer.Code2(2, 4) {
		t.Fatalf("%+v %v", answer, err)
	}
	for m := range c.Seen {
		if m.Uint(6) == 0 {
			break
		}
	}
	poll.True(t, "it has agreed again", func() bool {
		next.mu.Lock()
		defer next.mu.Unlock()
		for _, o := range next.byDevice[7].observed {
			return o.session != ""
		}
		return false
	})
	if ack, err := c.Ask(t.Context(), waits); err != nil || ack.Type != 2 {
		t.Fatalf("%+v %v", ack, err)
	}
	if !in.has(5) {
		t.Error("it is acknowledged and not stored")
	}
}
