package broker

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/command"
	"weir/ingest"
	"weir/internal/test/conformance"
)

// desk has the commands of devices. As the service does, it keeps a lock while it asks the carrier, hands out a command only when the one
// before has an end, and offers a device again when a command waits.
type desk struct {
	mu      sync.Mutex
	carrier command.Carrier
	waiting map[int64][]string // tokens
	out     map[int64]string   // the dispatch that has no end: token/nonce
	nonces  int
	said    []string // what the carrier reported
	claims  []func() // that are held
	hold    bool     // claims
}

// taking is a bench whose devices get commands from a desk.
func takingCommands(t *testing.T, cfg Config, test func(*testing.T, *bench, *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{waiting: map[int64][]string{}, out: map[int64]string{}}
		x := newBenchWith(t, cfg, Deps{Desk: d})
		d.carrier = x.broker.Commands()
		defer x.stop()
		test(t, x, d)
	})
}

func (d *desk) say(format string, args ...any) { d.said = append(d.said, fmt.Sprintf(format, args...)) }

// order makes a command wait for a device.
func (d *desk) order(device int64, tokens ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting[device] = append(d.waiting[device], tokens...)
	d.offer(device)
}

func (d *desk) offer(device int64) {
	if len(d.waiting[device]) > 0 && d.out[device] == "" {
		d.carrier.Offer(device)
	}
}

func (d *desk) Reachable(device int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.say("reachable %d", device)
	d.offer(device)
}

func (d *desk) Claim(device int64, carrier string, done func(command.Dispatch, bool)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	answer := func() {
		d.mu.Lock()
		if len(d.waiting[device]) == 0 || d.out[device] != "" {
			d.mu.Unlock()
			done(command.Dispatch{}, false)
			return
		}
		d.nonces++
		payload := `{"a":1}`
		one := command.Dispatch{TenantID: 1, DeviceID: device, Device: fmt.Sprintf("dev%d", device), Token: d.waiting[device][0], Name: "open", Payload: &payload, Nonce: fmt.Sprintf("n%d", d.nonces)}
		d.waiting[device] = d.waiting[device][1:]
		d.out[device] = one.Token + "/" + one.Nonce
		d.mu.Unlock()
		done(one, true)
	}
	if d.hold {
		d.claims = append(d.claims, answer)
		return
	}
	go answer()
}

var endWords = map[command.End]string{command.Acknowledged: "acknowledged", command.Unconfirmed: "unconfirmed", command.Lost: "lost", command.Unwritten: "unwritten",
	command.Undeliverable: "undeliverable"}

func (d *desk) Progress(command.Progress) {}

func (d *desk) Ended(r command.Receipt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.say("%s %d %s/%s", endWords[r.End], r.DeviceID, r.Token, r.Nonce)
	if d.out[r.DeviceID] != r.Token+"/"+r.Nonce {
		return
	}
	d.out[r.DeviceID] = ""
	if r.End == command.Lost {
		d.waiting[r.DeviceID] = append([]string{r.Token}, d.waiting[r.DeviceID]...)
	}
	d.offer(r.DeviceID)
}

// expect waits until all is quiet and fails unless the carrier has reported just this since the last call.
func (d *desk) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.said, want) {
		t.Fatalf("%s: the carrier reported %q, want %q", what, d.said, want)
	}
	d.said = nil
}

// commandPacket is a command on its way to dev1.
func commandPacket(v byte, flags byte, id uint16, token, nonce string) []byte {
	return publishPacket(v, flags, theCommands, id, `{"token":"`+token+`","deviceToken":"dev1","name":"open","dispatchNonce":"`+nonce+`","payload":{"a":1}}`)
}

// subscribed connects dev1 and subscribes to its commands.
func (x *bench) subscribed(v byte, options ...func(*hello)) *client {
	x.t.Helper()
	c := x.connect(v, options...)
	c.send(subscribePacket(v, 1, theCommands))
	c.expect("SUBACK", subackPacket(v, 1, 1))
	return c
}

func forBothTaking(t *testing.T, test func(*testing.T, *bench, *desk, byte)) {
	for _, v := range bothVersions {
		t.Run(fmt.Sprintf("version %d", v), func(t *testing.T) {
			t.Parallel()
			takingCommands(t, Config{}, func(t *testing.T, x *bench, d *desk) { test(t, x, d, v) })
		})
	}
}

// Commands leave one after the other, each when the one before is acknowledged, and the PUBACK finds its dispatch.
func TestCommandsLeaveInOrderEachAfterItsPuback(t *testing.T) {
	t.Parallel()
	forBothTaking(t, func(t *testing.T, x *bench, d *desk, v byte) {
		c := x.subscribed(v)
		d.expect(t, "subscribed", "reachable 1")
		d.order(1, "c-1", "c-2", "c-3")
		c.expect("the first", commandPacket(v, qos1, 1, "c-1", "n1"))
		d.expect(t, "on its way")
		c.send(puback(1))
		c.expect("the second", commandPacket(v, qos1, 2, "c-2", "n2"))
		d.expect(t, "delivered", "acknowledged 1 c-1/n1")
		c.send(puback(1)) // once more: it is no exchange any more
		d.expect(t, "a second PUBACK")
		c.send(puback(2), puback(7))
		c.expect("the third", commandPacket(v, qos1, 3, "c-3", "n3"))
		c.send(puback(3))
		d.expect(t, "all", "acknowledged 1 c-2/n2", "acknowledged 1 c-3/n3")
		if n := counted(t, x.broker.metrics.listeners); n != 1 {
			t.Errorf("%v listeners", n)
		}
		conformance.Shown(t, "S2-028")
	})
}

// The identifiers of commands and those of the client's own publishes have nothing to do with one another.
func TestCommandsAndPublishesOfTheSameIdentifier(t *testing.T) {
	t.Parallel()
	forBothTaking(t, func(t *testing.T, x *bench, d *desk, v byte) {
		x.intake.hold = true
		c := x.subscribed(v)
		c.send(publishPacket(v, qos1, theEvents, 1, "{}"))
		d.order(1, "c-1", "c-2")
		c.expect("the command", commandPacket(v, qos1, 1, "c-1", "n1"))
		d.expect(t, "the publish is open", "reachable 1")
		c.send(puback(1))
		c.expect("the next", commandPacket(v, qos1, 2, "c-2", "n2"))
		d.expect(t, "its PUBACK", "acknowledged 1 c-1/n1")
		x.intake.settle(0, ingest.Answer{})
		c.expect("that of the publish", puback(1))
		d.expect(t, "says nothing of a command")
	})
}

// With a receive maximum of 1 nothing is claimed before the client has acknowledged what came before; another packet is not held up.
func TestAClientThatDoesNotAcknowledgeIsSentNoMore(t *testing.T) {
	t.Parallel()
	takingCommands(t, Config{}, func(t *testing.T, x *bench, d *desk) {
		c := x.subscribed(mqtt5, func(h *hello) { h.props = prop16(propReceiveMaximum, 1) })
		d.order(1, "c-1", "c-2")
		c.expect("the first", commandPacket(mqtt5, qos1, 1, "c-1", "n1"))
		d.expect(t, "on its way", "reachable 1")
		d.mu.Lock()
		d.out[1] = "" // the desk has given it up, as it does after Traits.Unacknowledged
		d.offer(1)
		d.mu.Unlock()
		c.send(publishPacket(mqtt5, qos1, theEvents, 1, "{}"))
		c.expect("its own publish", puback(1))
		if d.nonces != 1 {
			t.Errorf("%d claims were made", d.nonces)
		}
		c.send(puback(1))
		c.expect("there is room", commandPacket(mqtt5, qos1, 2, "c-2", "n2"))
		d.expect(t, "late", "acknowledged 1 c-1/n1")
		c.conn.Close()
		d.expect(t, "gone", "lost 1 c-2/n2")
	})
}

// A client that leaves no room for a command that waits is disconnected: on its connection it may be sent nothing more, and on the next one it gets both.
func TestAClientThatNeverAcknowledgesIsDisconnected(t *testing.T) {
	t.Parallel()
	takingCommands(t, Config{}, func(t *testing.T, x *bench, d *desk) {
		c := x.subscribed(mqtt5, func(h *hello) { h.props, h.keepAlive = prop16(propReceiveMaximum, 1), 600 })
		d.order(1, "c-1")
		c.expect("the first", commandPacket(mqtt5, qos1, 1, "c-1", "n1"))
		time.Sleep(2 * unacknowledged)
		c.expect("nothing waits behind it")
		d.mu.Lock()
		d.out[1], d.waiting[1] = "", []string{"c-1", "c-2"} // the desk has given it up
		d.offer(1)
		d.mu.Unlock()
		time.Sleep(unacknowledged - time.Second)
		c.expect("in time")
		time.Sleep(time.Second)
		c.expect("too late", disconnectText(causeUnacknowledged.code, causeUnacknowledged.text, 0))
		c.expectClosed("too late")
		if n := counted(t, x.broker.metrics.disconnects.WithLabelValues(causeUnacknowledged.word)); n != 1 {
			t.Errorf("%v connections ended", n)
		}
		c = x.connect(mqtt5, func(h *hello) { h.props, h.keepAlive = prop16(propReceiveMaximum, 1), 600 })
		c.send(subscribePacket(mqtt5, 1, theCommands))
		c.expect("again", subackPacket(mqtt5, 1, 1), commandPacket(mqtt5, qos1, 1, "c-1", "n2"))
		c.conn.Close()
		synctest.Wait()
	})
}

// A connection that ends before the PUBACK gives the command back, and the device that returns gets it under another nonce.
func TestALostPubackGivesTheCommandBack(t *testing.T) {
	t.Parallel()
	forBothTaking(t, func(t *testing.T, x *bench, d *desk, v byte) {
		c := x.subscribed(v)
		d.order(1, "c-1")
		c.expect("sent", commandPacket(v, qos1, 1, "c-1", "n1"))
		c.conn.Close()
		d.expect(t, "lost", "reachable 1", "lost 1 c-1/n1")
		if r := d.carrier.Reach(1); r != command.Unknown {
			t.Errorf("away: %d", r)
		}
		if d.carrier.Offer(1) {
			t.Error("an offer to an absent device is taken")
		}
		conformance.Shown(t, "S2-029")
		again := x.connect(v)
		again.expect("the broker holds nothing")
		if r := d.carrier.Reach(1); r != command.Absent {
			t.Errorf("connected and not subscribed: %d", r)
		}
		again.send(subscribePacket(v, 1, theCommands))
		again.expect("back", subackPacket(v, 1, 1), commandPacket(v, qos1, 1, "c-1", "n2"))
		if r := d.carrier.Reach(1); r != command.Present {
			t.Errorf("subscribed: %d", r)
		}
		again.send(puback(1))
		d.expect(t, "delivered", "reachable 1", "acknowledged 1 c-1/n2")
	})
}

// A session that outlives its connection brings the subscription back: the device is reachable at once.
func TestASubscriptionThatWasKeptIsAWake(t *testing.T) {
	t.Parallel()
	takingCommands(t, Config{}, func(t *testing.T, x *bench, d *desk) {
		keeps := func(h *hello) { h.props, h.flags = prop32(propSessionExpiry, 600), 0 }
		c := x.subscribed(mqtt5, keeps)
		c.conn.Close()
		d.expect(t, "away", "reachable 1")
		d.order(1, "c-1")
		again := x.dial(mqtt5)
		again.send(connectPacket(mqtt5, keeps))
		synctest.Wait()
		if got := again.take(); len(got) != 2 || !slices.Equal(got[1], commandPacket(mqtt5, qos1, 1, "c-1", "n1")) {
			t.Fatalf("received % x", got)
		}
		d.expect(t, "back", "reachable 1")
	})
}

// The connection that takes over gets what the one before did not acknowledge, under the same token.
func TestATakeoverGivesTheCommandToTheNewConnection(t *testing.T) {
	t.Parallel()
	forBothTaking(t, func(t *testing.T, x *bench, d *desk, v byte) {
		c := x.subscribed(v)
		d.order(1, "c-1", "c-2")
		c.expect("sent", commandPacket(v, qos1, 1, "c-1", "n1"))
		next := x.subscribed2(v)
		d.expect(t, "taken over", "reachable 1", "lost 1 c-1/n1", "reachable 1")
		next.expect("again", commandPacket(v, qos1, 1, "c-1", "n2"))
		next.send(puback(1))
		next.expect("the next", commandPacket(v, qos1, 2, "c-2", "n3"))
		c.expectClosed("the old one")
	})
}

// subscribed2 connects and subscribes in one write, and takes the CONNACK and the SUBACK.
func (x *bench) subscribed2(v byte, options ...func(*hello)) *client {
	x.t.Helper()
	c := x.connect(v, options...)
	c.send(subscribePacket(v, 1, theCommands))
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	suback := subackPacket(v, 1, 1)
	if !strings.HasPrefix(string(c.got), string(suback)) {
		x.t.Fatalf("received % x", c.got)
	}
	c.got = c.got[len(suback):]
	return c
}

// Of two sessions of one device one gets a command: with room, that acknowledges, that subscribed last. The other gets the next when that one
// has gone.
func TestTwoSessionsOfOneDevice(t *testing.T) {
	t.Parallel()
	forBothTaking(t, func(t *testing.T, x *bench, d *desk, v byte) {
		first := x.subscribed(v)
		second := x.subscribed(v, func(h *hello) { h.clientID = theClient + ":b" })
		third := x.connect(v, func(h *hello) { h.clientID = theClient + ":c" })
		b := subscribePacket(v, 1, theCommands)
		b[len(b)-1] = 0 // QoS 0
		third.send(b)
		third.expect("SUBACK", subackPacket(v, 1, 0))
		d.expect(t, "subscribed", "reachable 1", "reachable 1", "reachable 1")
		d.order(1, "c-1", "c-2")
		second.expect("the newest that acknowledges", commandPacket(v, qos1, 1, "c-1", "n1"))
		first.expect("the other")
		third.expect("the one at QoS 0")
		second.conn.Close()
		first.expect("again", commandPacket(v, qos1, 1, "c-1", "n2"))
		d.expect(t, "lost", "lost 1 c-1/n1")
		first.send(puback(1))
		first.expect("the next", commandPacket(v, qos1, 2, "c-2", "n3"))
		first.send(unsubscribePacket(v, 5, theCommands), puback(2))
		d.order(1, "c-3")
		third.expect("at QoS 0", commandPacket(v, 0, 0, "c-3", "n4"))
		d.expect(t, "all", "acknowledged 1 c-1/n2", "acknowledged 1 c-2/n3", "unconfirmed 1 c-3/n4")
		if n := counted(t, x.broker.metrics.listeners); n != 1 {
			t.Errorf("%v listeners", n)
		}
	})
}

// An offer to a connection that ends before it claims passes to another one of the device.
func TestAnOfferOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	takingCommands(t, Config{}, func(t *testing.T, x *bench, d *desk) {
		one := func(suffix string) func(*hello) {
			return func(h *hello) { h.props, h.clientID = prop16(propReceiveMaximum, 1), theClient+suffix }
		}
		giveUp := func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.out[1] = ""
			d.offer(1)
		}
		a, b := x.subscribed(mqtt5, one(":a")), x.subscribed(mqtt5, one(":b"))
		d.order(1, "c-1", "c-2", "c-3")
		b.expect("the newest", commandPacket(mqtt5, qos1, 1, "c-1", "n1"))
		giveUp()
		a.expect("the one with room", commandPacket(mqtt5, qos1, 1, "c-2", "n2"))
		giveUp() // neither has room: the offer waits for the newest
		b.conn.Close()
		a.expect("no room")
		d.expect(t, "no claim", "reachable 1", "reachable 1", "lost 1 c-1/n1")
		a.send(puback(1))
		a.expect("passed on", commandPacket(mqtt5, qos1, 2, "c-3", "n3"))
	})
}

// A claim whose connection has gone meanwhile is lost, not forgotten.
func TestAClaimThatComesTooLateIsLost(t *testing.T) {
	t.Parallel()
	forBothTaking(t, func(t *testing.T, x *bench, d *desk, v byte) {
		d.hold = true
		c := x.subscribed(v)
		d.order(1, "c-1")
		d.expect(t, "claimed", "reachable 1")
		c.conn.Close()
		synctest.Wait()
		d.hold = false
		d.claims[0]()
		d.expect(t, "too late", "lost 1 c-1/n1")
	})
}

// A packet that the client does not take ends the command; one that it refuses is to be tried again.
func TestCommandsThatTheClientDoesNotTake(t *testing.T) {
	t.Parallel()
	takingCommands(t, Config{}, func(t *testing.T, x *bench, d *desk) {
		c := x.subscribed(mqtt5, func(h *hello) { h.props = prop32(propMaximumPacketSize, 60) })
		d.order(1, "c-1")
		c.expect("too large")
		d.expect(t, "too large", "reachable 1", "undeliverable 1 c-1/n1")
		c.conn.Close()
		c = x.subscribed(mqtt5)
		d.order(1, "c-2")
		c.expect("sent", commandPacket(mqtt5, qos1, 1, "c-2", "n2"))
		c.send([]byte{0x40, 3, 0, 1, codeQuotaExceeded})
		d.expect(t, "refused", "reachable 1", "unwritten 1 c-2/n2")
	})
}

// A stop reports what was under way: nothing that was sent is without an end.
func TestAStopGivesCommandsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{waiting: map[int64][]string{}, out: map[int64]string{}}
		x := newBenchWith(t, Config{}, Deps{Desk: d})
		d.carrier = x.broker.Commands()
		c := x.subscribed(mqtt5)
		d.order(1, "c-1")
		c.expect("sent", commandPacket(mqtt5, qos1, 1, "c-1", "n1"))
		x.stop()
		if want := []string{"reachable 1", "lost 1 c-1/n1"}; !slices.Equal(d.said, want) {
			t.Errorf("after Close: %q, want %q", d.said, want)
		}
	})
}

// A client that does not read holds up nothing but itself: the claim is made when what came before is written.
func TestNothingIsClaimedWhileTheClientDoesNotRead(t *testing.T) {
	t.Parallel()
	takingCommands(t, Config{WriteTimeout: time.Hour}, func(t *testing.T, x *bench, d *desk) {
		conn := x.ln.dial()
		c := &client{t: t, conn: conn, version: mqtt5, read: make(chan struct{})}
		go c.send(connectPacket(mqtt5), subscribePacket(mqtt5, 1, theCommands)) // and reads nothing
		synctest.Wait()
		d.order(1, "c-1")
		synctest.Wait()
		if d.nonces != 0 {
			t.Error("a command was claimed")
		}
		conn.Close()
	})
}

// give hands a command to the carrier that it has not claimed.
func (d *desk) give(device int64, token string) {
	d.mu.Lock()
	d.nonces++
	payload := `{"a":1}`
	one := command.Dispatch{TenantID: 1, DeviceID: device, Device: fmt.Sprintf("dev%d", device), Token: token, Name: "open", Payload: &payload, Nonce: fmt.Sprintf("n%d", d.nonces)}
	d.out[device] = one.Token + "/" + one.Nonce
	d.mu.Unlock()
	d.carrier.(command.Taker).Take(one)
}

// ready fails unless the carrier says so of device 1.
func (d *desk) ready(t *testing.T, what string, want bool) {
	t.Helper()
	synctest.Wait()
	if got := d.carrier.(command.Taker).Ready(1); got != want {
		t.Errorf("%s: ready: %v", what, got)
	}
}

// A command may come to a connection that has room without being claimed.
func TestACommandThatNobodyClaimed(t *testing.T) {
	t.Parallel()
	forBothTaking(t, func(t *testing.T, x *bench, d *desk, v byte) {
		d.ready(t, "away", false)
		d.give(1, "c-0")
		d.expect(t, "away", "lost 1 c-0/n1")
		d.mu.Lock()
		d.waiting[1] = nil
		d.mu.Unlock()
		c := x.connect(v)
		d.ready(t, "not subscribed", false)
		c.send(subscribePacket(v, 1, theCommands))
		c.expect("SUBACK", subackPacket(v, 1, 1))
		d.ready(t, "subscribed", true)
		d.give(1, "c-1")
		c.expect("sent", commandPacket(v, qos1, 1, "c-1", "n2"))
		c.send(puback(1))
		d.expect(t, "delivered", "reachable 1", "acknowledged 1 c-1/n2")
		d.give(1, "c-2")
		c.expect("sent", commandPacket(v, qos1, 2, "c-2", "n3"))
		c.conn.Close()
		d.expect(t, "gone", "lost 1 c-2/n3")
	})
}

// A connection without room is not ready; what comes to it all the same goes back and comes when there is room.
func TestNoCommandThatNobodyClaimedExceedsTheReceiveMaximum(t *testing.T) {
	t.Parallel()
	takingCommands(t, Config{}, func(t *testing.T, x *bench, d *desk) {
		c := x.subscribed(mqtt5, func(h *hello) { h.props = prop16(propReceiveMaximum, 1) })
		d.give(1, "c-1")
		c.expect("the first", commandPacket(mqtt5, qos1, 1, "c-1", "n1"))
		d.ready(t, "no room", false)
		d.give(1, "c-2")
		d.expect(t, "no room", "reachable 1", "lost 1 c-2/n2")
		c.expect("no room")
		c.send(puback(1))
		c.expect("there is room", commandPacket(mqtt5, qos1, 2, "c-2", "n3"))
	})
}

// While a claim is under way, or a client does not read what is written to it, a connection is not ready.
func TestAConnectionThatIsBusyIsNotReady(t *testing.T) {
	t.Parallel()
	takingCommands(t, Config{WriteTimeout: time.Hour}, func(t *testing.T, x *bench, d *desk) {
		d.hold = true
		c := x.subscribed(mqtt5)
		d.order(1, "c-1")
		d.ready(t, "a claim is under way", false)
		d.hold = false
		d.claims[0]()
		c.expect("sent", commandPacket(mqtt5, qos1, 1, "c-1", "n1"))
		c.send(puback(1))
		d.ready(t, "delivered", true)
		c.conn.Close()
		synctest.Wait()

		conn := x.ln.dial()
		stalled := &client{t: t, conn: conn, version: mqtt5, read: make(chan struct{})}
		go stalled.send(connectPacket(mqtt5), subscribePacket(mqtt5, 1, theCommands))
		take := func() {
			n, err := conn.Read(make([]byte, 1000))
			if n == 0 || err != nil {
				t.Errorf("read %d bytes: %v", n, err)
			}
		}
		take() // the CONNACK
		take() // the SUBACK
		d.ready(t, "it has read all", true)
		go stalled.send([]byte{pktPingreq << 4, 0})
		d.ready(t, "it does not read", false)
		take()
		d.ready(t, "it reads", true)
		conn.Close()
	})
}
