package broker

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/provision"
)

// grants admits every provision key but "unknown", and gives every device the same credential.
type grants struct{}

func (grants) Throttled(netip.Addr) int { return 0 }

func (grants) Admit(_ context.Context, key, _ string) (*provision.Grant, error) {
	if key == "unknown" {
		return nil, &provision.Reply{Status: 403}
	}
	return &provision.Grant{Tenant: "acme"}, nil
}

func (grants) Enroll(_ context.Context, _ *provision.Grant, body []byte) *provision.Reply {
	if q, err := provision.ParseRequest(body); err == nil {
		return &provision.Reply{Status: 200, Answer: &provision.Answer{Tenant: "acme", Device: q.Device, CredentialID: "made"}}
	}
	return &provision.Reply{Status: 400}
}

// inProvisioning is inBubble with a broker that gives devices their credentials.
func inProvisioning(t *testing.T, test func(*testing.T, *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := newBenchWith(t, Config{}, Deps{Provision: grants{}})
		defer x.stop()
		test(t, x)
	})
}

// provisions makes a CONNECT one of a provisioning connection.
func provisions(key, client string) func(*hello) {
	return func(h *hello) { h.user, h.password, h.clientID = ":"+key, "secret", client }
}

const (
	theRequests = "weir/provision"
	theAnswers  = "weir/provision/board-0"
)

// refusedBusy sends a CONNECT that is one too many, and wants the answer of its version, the end, and that it is counted.
func (x *bench) refusedBusy(version byte, options ...func(*hello)) {
	x.t.Helper()
	before := counted(x.t, x.broker.metrics.refused.WithLabelValues("busy"))
	c := x.dial(version)
	c.send(connectPacket(version, options...))
	synctest.Wait()
	got, want := c.take(), map[byte]byte{mqtt311: 3, mqtt5: 0x89}[version]
	if len(got) != 1 || got[0][0] != pktConnack<<4 || got[0][3] != want {
		x.t.Errorf("version %d, one too many: % x, want code %#x", version, got, want)
	}
	c.expectClosed("one too many")
	if n := counted(x.t, x.broker.metrics.refused.WithLabelValues("busy")) - before; n != 1 {
		x.t.Errorf("version %d: counted %v times", version, n)
	}
}

// holds wants so many provisioning connections, by the broker and by its metric.
func (x *bench) holds(what string, want int) {
	x.t.Helper()
	synctest.Wait()
	if n, m := x.broker.provisioning.pubsub.connections(), counted(x.t, x.broker.metrics.provisioning); n != want || m != float64(want) {
		x.t.Errorf("%s: %d provisioning connections, the metric says %v, want %d", what, n, m, want)
	}
}

// At most 100 devices get their credential at one time. One more is refused as busy and counted; devices are not kept out, and one
// that leaves makes room.
func TestProvisioningConnectionsAreBounded(t *testing.T) {
	inProvisioning(t, func(t *testing.T, x *bench) {
		var open []*client
		for i := range maxProvisioning {
			open = append(open, x.connect(bothVersions[i%2], provisions("k", fmt.Sprint("board-", i))))
		}
		x.holds("full", 100)
		for _, v := range bothVersions {
			x.refusedBusy(v, provisions("k", "board-100"))
			x.refusedBusy(v, provisions("another", "board-0")) // which is another connection than that of k
		}
		x.connect(mqtt311) // a device
		again := x.connect(mqtt5, provisions("k", "board-0"))
		open[0].expectClosed("its client connected again")
		x.holds("taken over", 100)
		open[1].conn.Close()
		x.holds("one has left", 99)
		x.connect(mqtt311, provisions("another", "board-0"))
		x.holds("full again", 100)
		if again.isClosed() {
			t.Error("a connection with another key has taken over a client id")
		}
		x.refusedBusy(mqtt5, provisions("k", "board-100"))
	})
}

// A provisioning connection ends after 60 seconds, whatever it does meanwhile; its client may connect again.
func TestAProvisioningConnectionEndsAfterAMinute(t *testing.T) {
	inProvisioning(t, func(t *testing.T, x *bench) {
		device := x.connect(mqtt311)
		idle, busy := x.connect(mqtt311, provisions("k", "board-1")), x.connect(mqtt5, provisions("k", "board-0"))
		busy.send(subscribePacket(mqtt5, 1, theAnswers))
		busy.expect("subscribed", []byte{0x90, 4, 0, 1, 0, 1})
		for range 5 {
			time.Sleep(10 * time.Second)
			busy.send(publishPacket(mqtt5, 0, theRequests, 0, `{"deviceToken":"d"}`))
			synctest.Wait()
			if got := busy.take(); len(got) != 1 || !bytes.Contains(got[0], []byte(`"credentialId":"made"`)) {
				t.Fatalf("%q", got)
			}
			idle.send([]byte{0xC0, 0})
			idle.expect("it is alive", []byte{0xD0, 0})
		}
		time.Sleep(10*time.Second - time.Millisecond)
		x.holds("just before the end", 2)
		time.Sleep(time.Millisecond)
		idle.expectClosed("idle for a minute")
		busy.expectClosed("busy for a minute")
		x.holds("after a minute", 0)
		device.send([]byte{0xC0, 0})
		device.expect("a device stays", []byte{0xD0, 0})
		x.connect(mqtt5, provisions("k", "board-0"))
		x.holds("connected again", 1)
	})
}

// FuzzProvisioningStream feeds whatever comes after a good CONNECT with a provision key through the whole broker: nothing panics,
// nothing reaches the intake, nothing is sent on another topic than the client's own, and nothing of the connection is left.
func FuzzProvisioningStream(f *testing.F) {
	for _, tc := range hostilePackets {
		f.Add(tc.version == mqtt5, tc.packet, 1)
	}
	for _, v := range bothVersions {
		f.Add(v == mqtt5, slices.Concat(subscribePacket(v, 1, theAnswers), publishPacket(v, qos1, theRequests, 1, `{"deviceToken":"d","name":"Pump","metadata":{"a":1}}`)), 9)
		f.Add(v == mqtt5, slices.Concat(subscribePacket(v, 1, theAnswers), publishPacket(v, 0, theRequests, 0, `{"deviceToken":1}`), []byte{0xC0, 0, 0xE0, 0}), 40)
		f.Add(v == mqtt5, publishPacket(v, qos1|dup, theEvents, 1, "{}"), 3)
		f.Add(v == mqtt5, subscribePacket(v, 1, theAnswers, "weir/provision/+", "#"), 3)
	}
	f.Fuzz(func(t *testing.T, new bool, stream []byte, cut int) {
		version := byte(mqtt311)
		if new {
			version = mqtt5
		}
		cut = max(0, min(cut, len(stream)))
		inProvisioning(t, func(t *testing.T, x *bench) {
			other := x.connect(version, provisions("k", "board-9"))
			c := x.connect(version, provisions("k", "board-0"))
			c.send(stream[:cut])
			synctest.Wait()
			c.send(stream[cut:])
			synctest.Wait()
			if counted(t, x.broker.metrics.panics) != 0 {
				t.Error("panicked")
			}
			if got := x.intake.seenArrivals(); len(got) != 0 {
				t.Errorf("reached the intake: %+v", got)
			}
			for _, p := range c.take() {
				if p[0]>>4 == pktPublish && !strings.Contains(string(p), theAnswers) {
					t.Errorf("sent %q", p)
				}
			}
			if got := other.take(); len(got) != 0 || other.isClosed() {
				t.Errorf("another connection got % x", got)
			}
			c.conn.Close()
			other.conn.Close()
			x.holds("closed", 0)
			if n := len(x.broker.provisioning.pubsub.sessions); n != 0 {
				t.Errorf("%d sessions are left", n)
			}
		})
	})
}
