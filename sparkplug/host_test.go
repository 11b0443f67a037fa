package sparkplug

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/ingest"
	"weir/ingest/links"
	"weir/internal/test/conformance"
	"weir/internal/test/mqttpeer"
	"weir/internal/test/poll"
	"weir/model"
	"weir/presence"
	"weir/registry"

	"net"
)

// fullIntake drops every message for lack of room in the log while it is full, and takes presence.
type fullIntake struct {
	mu       sync.Mutex
	full     bool
	dropped  int
	stored   []string
	presence []string
}

func (f *fullIntake) Accept(_ context.Context, a *ingest.Arrival, done func(ingest.Answer)) {
	f.mu.Lock()
	answer := ingest.Answer{Outcome: ingest.Stored}
	switch {
	case f.full:
		f.dropped++
		answer = ingest.Answer{Outcome: ingest.Dropped, Reason: ingest.ReasonBackpressure}
	case a.Message != nil:
		for _, r := range a.Message.Measurements {
			f.stored = append(f.stored, fmt.Sprintf("%s %s=%v", a.Topic, r.Metric, r.Value))
		}
	}
	f.mu.Unlock()
	done(answer)
}

func (f *fullIntake) Presence(_ context.Context, _, _ string, b model.Binding, p model.Presence, done func(ingest.Answer)) {
	f.mu.Lock()
	f.presence = append(f.presence, fmt.Sprintf("%s %s %s", b.Device, p.State, p.Reason))
	f.mu.Unlock()
	done(ingest.Answer{Outcome: ingest.Stored})
}

func (f *fullIntake) Received(string, string, string, int) ingest.Packet { return ingest.Packet{} }
func (f *fullIntake) Drop(ingest.Packet, ingest.Reason)                  {}
func (f *fullIntake) TenantFull(string) bool                             { return false }

func (f *fullIntake) room(full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = full
}

func (f *fullIntake) accepting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.full
}

// has waits until the intake has what is expected.
func (f *fullIntake) has(t *testing.T, what string, ok func() bool) {
	t.Helper()
	poll.Until(t, what, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if !ok() {
			return fmt.Errorf("%d dropped, stored %q, presence %q", f.dropped, f.stored, f.presence)
		}
		return nil
	})
}

// TestAFullLog: readings are dropped and counted, births and deaths move presence nevertheless, and once there is room the node is asked for its
// births.
func TestAFullLog(t *testing.T) {
	t.Parallel()
	var b *mqttpeer.Broker
	b = &mqttpeer.Broker{OnPublish: func(m mqttpeer.Message) (byte, bool) {
		if strings.Contains(m.Topic, "/STATE/") {
			go b.Deliver(mqttpeer.Delivery{Topic: m.Topic, Payload: m.Payload})
		}
		return 0, true
	}}
	mqttpeer.Start(t, b, nil, false)
	in := &fullIntake{full: true}
	ids := map[string]int64{}
	var mu sync.Mutex
	tr := New(Config{InstanceID: "weir", Node: "1", Timing: presence.Timing{Grace: time.Hour, Check: time.Hour},
		Settings: Settings{Sources: []Source{{Tenant: "acme", HostID: "weir", Broker: Broker{URL: "tcp://127.0.0.1:" + b.Port()}, AutoRegister: true, RebirthsPerSecond: 10}}}},
		Deps{Intake: in, Tenant: func(string) (int64, bool, bool) { return 1, true, true }, Accepting: in.accepting,
			Adopt: func(_ context.Context, a registry.Adoption) (model.Binding, bool, error) {
				mu.Lock()
				defer mu.Unlock()
				made := ids[a.ExternalID] == 0
				if made {
					ids[a.ExternalID] = int64(len(ids) + 1)
				}
				return model.Binding{Tenant: "acme", TenantID: 1, Device: a.ExternalID, DeviceID: ids[a.ExternalID]}, made, nil
			},
			Link: func(source string) links.Link { return links.New(func() time.Duration { return 0 }).Link(source) },
			Dial: (&net.Dialer{}).DialContext})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- tr.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	poll.Until(t, "the source", func() error {
		if s := tr.Sources()[0]; s.State != ingest.SourceUp {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	e := newEdge()
	send := func(s sent) {
		topic := "spBv1.0/" + s.Group + "/" + s.Kind.String() + "/" + s.Node
		if s.Device != "" {
			topic += "/" + s.Device
		}
		b.Deliver(mqttpeer.Delivery{Topic: topic, Payload: string(s.body)})
	}
	send(e.birth(1, 2))
	send(e.data("", "temp", 3))
	in.has(t, "two messages dropped", func() bool { return in.dropped == 2 })
	if s := tr.Sources()[0]; s.Dropped["backpressure"] != 2 {
		t.Errorf("%+v", s)
	}
	conformance.Shown(t, "S2-065")
	send(e.deviceBirth("d", 1))
	send(e.deviceDeath("d"))
	want := []string{"g/n CONNECTED nbirth", "g/n/d CONNECTED dbirth", "g/n/d DISCONNECTED ddeath"}
	in.has(t, "presence", func() bool { return slices.Equal(in.presence, want) })
	conformance.Shown(t, "S2-066")

	in.room(false)
	poll.Until(t, "a request for a rebirth", func() error {
		for _, m := range b.Messages() {
			if m.Topic == "spBv1.0/g/NCMD/n" {
				return nil
			}
		}
		return fmt.Errorf("%d messages", len(b.Messages()))
	})
	send(e.birth(4, 5))
	in.has(t, "the values of the birth", func() bool {
		return slices.Equal(in.stored, []string{"g/n level=5", "g/n temp=4"}) || slices.Equal(in.stored, []string{"g/n temp=4", "g/n level=5"})
	})
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := b.Messages()
	if last := all[len(all)-1]; last.Topic != "spBv1.0/STATE/weir" || !strings.Contains(last.Payload, `"online":false`) {
		t.Errorf("%+v", last)
	}
}
