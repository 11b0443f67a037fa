package broker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weir/model"
	"weir/presence"
)

func TestASmallerRoomKeepsThoseInsideAndARoomierOneLetsOthersIn(t *testing.T) {
	inBubble(t, Config{Settings: Settings{MaxConnections: 2}}, func(t *testing.T, x *bench) {
		first := x.connect(mqtt5, func(h *hello) { h.clientID += ":1" })
		x.broker.Set(Settings{MaxConnections: 1}, presence.Timing{})
		c := x.dial(mqtt5)
		c.send(connectPacket(mqtt5, func(h *hello) { h.clientID += ":2" }))
		synctest.Wait()
		if got := c.take(); len(got) != 1 || got[0][3] < 0x80 {
			t.Errorf("one too many: % x", got)
		}
		first.send([]byte{0xC0, 0})
		first.expect("who was inside", []byte{0xD0, 0})
		x.broker.Set(Settings{MaxConnections: 2}, presence.Timing{})
		x.connect(mqtt5, func(h *hello) { h.clientID += ":2" })
	})
}

func TestQoS2ThatIsAllowedLaterHoldsForNewConnections(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		before := x.connect(mqtt5, func(h *hello) { h.clientID += ":1" })
		x.broker.Set(Settings{AllowQoS2: true}, presence.Timing{})
		after := x.dial(mqtt5)
		after.send(connectPacket(mqtt5, func(h *hello) { h.clientID += ":2" }))
		synctest.Wait()
		if slices.Contains(after.take()[0][5:], 36) {
			t.Error("a maximum QoS is announced")
		}
		after.send(publishPacket(mqtt5, qos2, theEvents, 1, "{}"))
		after.expect("allowed", []byte{0x50, 2, 0, 1})
		x.broker.Set(Settings{}, presence.Timing{})
		after.send([]byte{0x62, 2, 0, 1}, publishPacket(mqtt5, qos2, theEvents, 2, "{}"))
		after.expect("it keeps what it was told", []byte{0x70, 2, 0, 1}, []byte{0x50, 2, 0, 2})
		before.send(publishPacket(mqtt5, qos2, theEvents, 1, "{}"))
		before.expectClosed("who was told that QoS 1 is the most")
	})
}

func TestAGraceThatIsChangedCountsAtOnce(t *testing.T) {
	withStore(t, Config{Timing: presence.Timing{Check: time.Hour}}, &fakeStore{}, func(t *testing.T, x *bench) {
		time.Sleep(200 * time.Second) // the grace of the start is over
		x.connect(mqtt5)
		x.broker.Drop(func(model.Binding) bool { return true })
		time.Sleep(30 * time.Second)
		x.broker.Set(Settings{}, presence.Timing{Grace: 40 * time.Second, Check: time.Hour})
		time.Sleep(5 * time.Second)
		if got := x.intake.transitions(); got != "CONNECTED connected" {
			t.Errorf("within the grace: %s", got)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got := x.intake.transitions(); got != "CONNECTED connected, DISCONNECTED restart-timeout" {
			t.Error(got)
		}
	})
}

func TestACheckThatIsAskedForMoreOftenComesMoreOften(t *testing.T) {
	store := &fakeStore{}
	withStore(t, Config{Timing: presence.Timing{Check: 24 * time.Hour}}, store, func(t *testing.T, x *bench) {
		time.Sleep(160 * time.Second)
		store.set(stored(7, 5, true)) // somebody is stored who is not here
		x.broker.Set(Settings{}, presence.Timing{Check: time.Minute})
		time.Sleep(121 * time.Second) // it must be found twice
		synctest.Wait()
		if got := x.intake.transitions(); got != "DISCONNECTED restart-timeout" {
			t.Error(got)
		}
	})
}
