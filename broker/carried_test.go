package broker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"weir/ingest"
	"weir/internal/carry"
	"weir/model"
)

// counterIntake takes what answer says.
type counterIntake struct {
	Intake
	got    []*ingest.Arrival
	answer func(n int, a *ingest.Arrival) ingest.Answer
}

func (c *counterIntake) Accept(_ context.Context, a *ingest.Arrival, done func(ingest.Answer)) {
	c.got = append(c.got, a)
	done(c.answer(len(c.got), a))
}

// TestWhatWasCarriedByHandIsHandedOverAsRelayed: under its numbers, each message with an end, and what is not taken at once is tried again.
func TestWhatWasCarriedByHandIsHandedOverAsRelayed(t *testing.T) {
	const install = "00112233445566778899aabbccddeeff"
	synctest.Test(t, func(t *testing.T) {
		in := &counterIntake{answer: func(n int, _ *ingest.Arrival) ingest.Answer {
			if n == 2 || n == 3 {
				return ingest.Answer{Outcome: ingest.Dropped, Reason: ingest.ReasonCeiling}
			}
			return ingest.Answer{Outcome: ingest.Stored}
		}}
		c := &Carried{InstanceID: "weir", Source: "mqtt1", Intake: in, Edges: edgesOfDev1{}}
		edge := model.Binding{Tenant: "acme", TenantID: 1, Device: "dev1", DeviceID: 1}
		m := func(number uint64, topic string) carry.Message {
			return carry.Message{Epoch: 2, Number: number, Topic: topic, Payload: []byte("{}")}
		}
		err := c.Take(t.Context(), edge, install, []carry.Message{m(5, "weir/acme/devices/dev2/events"), m(6, "weir/acme/devices/by-external-id/telemetry"),
			m(7, "weir/acme/devices/other/events"), m(8, "weir/globex/devices/dev2/events"), m(9, "?")})
		if err != nil {
			t.Fatal(err)
		}
		var numbers []uint64
		for _, a := range in.got {
			numbers = append(numbers, a.Number)
			if a.Link != "edge:"+install+":2" || a.Transport != ingest.TransportUplink || a.Tenant != "acme" || !a.CannotRefuse || a.Conn == nil {
				t.Errorf("%+v", a)
			}
		}
		if want := []uint64{5, 6, 7, 8, 9, 6, 7}; !slices.Equal(numbers, want) {
			t.Errorf("%v, want %v", numbers, want)
		}
		if a := in.got[1]; a.Topic != "dev3" || !a.Flat || a.Fault != "" {
			t.Errorf("%+v", a)
		}
		for _, i := range []int{2, 3, 4} {
			if a := in.got[i]; a.Fault == "" || a.FaultReason != ingest.ReasonNotAuthorized {
				t.Errorf("%+v", a)
			}
		}
		if err := c.Take(t.Context(), edge, install, []carry.Message{m(10, "weir/acme/devices/broken/events")}); err == nil || errors.Is(err, ErrNotTaken) {
			t.Errorf("a fault of the store: %v", err)
		}
		in.answer = func(int, *ingest.Arrival) ingest.Answer {
			return ingest.Answer{Outcome: ingest.Withheld, Reason: ingest.ReasonUnavailable}
		}
		if err := c.Take(t.Context(), edge, install, []carry.Message{m(11, "weir/acme/devices/dev2/events")}); !errors.Is(err, ErrNotTaken) || !strings.Contains(err.Error(), string(ingest.ReasonUnavailable)) {
			t.Errorf("an instance that takes nothing: %v", err)
		}
	})
}
