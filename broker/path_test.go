package broker

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/mochi-mqtt/server/v2/packets"

	"weir/ingest"
)

func TestPublishTakesThePathThatIsSet(t *testing.T) {
	for _, onHook := range []bool{false, true} {
		forBoth(t, Config{HookPath: onHook}, func(t *testing.T, x *bench, v byte) {
			c := x.connect(v)
			c.send(publishPacket(v, qos1, theEvents, 1, `{"a":1}`), publishPacket(v, 0, theEvents, 0, `{"b":2}`))
			c.expect("QoS 1 and 0", puback(1))
			if got := x.gate.bodies(); !slices.Equal(got, []string{`{"a":1}`, `{"b":2}`}) {
				t.Errorf("the gate got %q", got)
			}
			want := int64(0)
			if x.broker.cfg.HookPath {
				want = 2
			}
			if got := x.broker.server.Info.Clone().MessagesReceived; got != want {
				t.Errorf("mochi decoded %d publishes, want %d", got, want)
			}
			if x.broker.cfg.HookPath != (onHook || onHookPath) {
				t.Error("the wrong path")
			}
		})
	}
}

// The library holds the identifiers of both directions in one table: a publish of the device must not settle a command.
func TestPublishOfTheDeviceLeavesACommandOfTheSameNumberAlone(t *testing.T) {
	forBoth(t, Config{HookPath: true}, func(t *testing.T, x *bench, v byte) {
		x.gate.hold = true
		c := x.connect(v)
		c.send(subscribePacket(v, 9, theCommands))
		c.expect("the subscription", subackPacket(v, 9, 1))
		cl, _ := x.broker.server.Clients.Get(theClient)
		cl.State.Inflight.Set(packets.Packet{PacketID: 1, FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: 1}})
		c.send(publishPacket(v, qos1, theEvents, 1, "{}"))
		synctest.Wait()
		x.gate.settle(0, ingest.Answer{})
		c.expect("the publish", puback(1))
		if _, ok := cl.State.Inflight.Get(1); !ok {
			t.Error("the command is gone")
		}
		c.send([]byte{0x40, 2, 0, 1})
		synctest.Wait()
		if _, ok := cl.State.Inflight.Get(1); ok {
			t.Error("the PUBACK of the command settled nothing")
		}
	})
}

// A large packet is not held by a connection that is idle afterwards.
func TestHookPathHoldsNoLargePacket(t *testing.T) {
	inBubble(t, Config{HookPath: true}, func(t *testing.T, x *bench) {
		c := x.connect(mqtt5)
		c.send(publishPacket(mqtt5, qos1, theEvents, 1, string(make([]byte, 1<<19))))
		c.expect("a large one", puback(1))
		cl, _ := x.broker.server.Clients.Get(theClient)
		if g := cl.Net.Conn.(*guard); cap(g.buf) > readBuffer {
			t.Errorf("%d bytes are held", cap(g.buf))
		}
	})
}
