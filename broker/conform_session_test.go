package broker

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestSessionConforms(t *testing.T) { conforms(t, sessionCases) }

// sessionPresent opens a session, says whether it was resumed, and ends the connection with end.
func (x *bench) sessionPresent(v byte, end []byte, options ...func(*hello)) bool {
	x.t.Helper()
	c, connack := x.connack(v, options...)
	if end != nil {
		c.send(end)
		synctest.Wait()
	}
	if connack[2] > 1 {
		x.t.Errorf("reserved bits in CONNACK % x", connack)
	}
	return connack[2] == 1
}

var sessionCases = []conformCase{
	{"3.1.2-4 3.1.2-5 3.1.2-6 3.1.2-23 3.1.4-4 3.2.2-2 3.2.2-3 v3:3.1.2-4 v3:3.1.2-6 v3:3.2.2-1 v3:3.2.2-2 v3:3.2.2-3", "Session Present", 0, Config{}, func(x *bench, v byte) {
		keep, end := stays(v), goodbye
		clean := func(*hello) {}
		for i, tc := range []struct {
			hello func(*hello)
			want  bool
		}{{keep, false}, {keep, true}, {keep, true}, {clean, false}, {keep, false}, {keep, true}} {
			if got := x.sessionPresent(v, end, tc.hello); got != tc.want {
				x.t.Errorf("connection %d: session present %v", i, got)
			}
		}
	}},
	{"4.1.0-1 4.1.0-2", "a session ends after its expiry interval, and not while connected", 0, Config{}, func(x *bench, v byte) {
		life := 256 * time.Second
		if v == mqtt311 {
			life = 12 * time.Hour // the longest there is: 3.1.1 cannot ask for less
		}
		x.sessionPresent(v, goodbye, stays(v))
		time.Sleep(life - time.Second)
		if !x.sessionPresent(v, goodbye, stays(v)) {
			x.t.Error("over too early")
		}
		time.Sleep(life + time.Second)
		c, connack := x.connack(v, stays(v))
		if connack[2] != 0 {
			x.t.Error("kept too long")
		}
		for range 10 { // longer than its expiry interval
			time.Sleep(time.Minute)
			c.send(pingreq)
		}
		synctest.Wait()
		c.conn.Close()
		synctest.Wait()
		if !x.sessionPresent(v, goodbye, stays(v)) {
			x.t.Error("forgotten while connected")
		}
	}},
	{"3.1.2-23", "the granted session expiry", mqtt5, Config{}, func(x *bench, v byte) {
		const most = 12 * 3600
		for _, tc := range []struct {
			asked uint32
			told  []byte
		}{{0, nil}, {1, nil}, {most, nil}, {most + 1, prop32(propSessionExpiry, most)}, {math.MaxUint32, prop32(propSessionExpiry, most)}} {
			if _, got := x.connack(v, func(h *hello) { h.props = prop32(propSessionExpiry, tc.asked) }); !slices.Equal(got, connackFor(v, 0, tc.told...)) {
				x.t.Errorf("asked for %d: % x", tc.asked, got)
			}
		}
		_, got := x.connack(v, func(h *hello) { h.clientID, h.props = theClient+":a", prop32(propSessionExpiry, 60) })
		if !slices.Equal(got, connackFor(v, 0, prop32(propSessionExpiry, 0)...)) {
			x.t.Errorf("a second connection of the device: % x", got)
		}
	}},
	{"3.1.4-3 v3:3.1.4-2", "a client id that is already connected", 0, Config{}, func(x *bench, v byte) {
		first := x.connect(v)
		x.connect(v)
		first.expectEnd(codeSessionTakenOver)
	}},
	{"3.1.4-3 3.1.2-5", "a session is taken over with its subscription", 0, Config{}, func(x *bench, v byte) {
		first := x.connect(v, stays(v))
		first.send(subscribePacket(v, 1, theCommands))
		first.expect("subscribed", subackPacket(v, 1, 1))
		second, connack := x.connack(v, stays(v))
		if connack[2] != 1 {
			x.t.Error("no session")
		}
		x.command("cmd")
		if got := second.received(qos1); !slices.Equal(got, []string{"cmd"}) {
			x.t.Errorf("received %q", got)
		}
	}},
	{"3.14.1-1", "reserved flags of a DISCONNECT", 0, Config{}, func(x *bench, v byte) {
		for _, flags := range []byte{1, 2, 4, 8, 15} {
			c := x.connect(v)
			c.send([]byte{0xE0 | flags, 0})
			c.expectEnd(codeMalformed)
		}
	}},
	{"3.14.4-1 3.14.4-2", "packets after a DISCONNECT have no effect", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		c.send(publishPacket(v, 0, theEvents, 0, "before"), goodbye, publishPacket(v, 0, theEvents, 0, "after"), pingreq)
		c.expect("nothing")
		c.expectClosed("a DISCONNECT")
		x.expectStored("before")
	}},
	{"3.14.2-1", "forms of a DISCONNECT", mqtt5, Config{}, func(x *bench, v byte) {
		for _, p := range [][]byte{{0xE0, 0}, {0xE0, 1, 0}, {0xE0, 2, 0, 0}, packet(0xE0, slices.Concat([]byte{0}, props(propText(propReasonString, "bye"), propText(propUser, "k", "v")))...)} {
			c := x.connect(v)
			c.send(p)
			c.expect("sound")
			c.expectClosed("a DISCONNECT")
		}
		if n := counted(x.t, x.broker.metrics.disconnects.WithLabelValues(causeGoodbye.word)); n != 4 {
			x.t.Errorf("%v of 4 counted as goodbyes", n)
		}
		for _, p := range [][]byte{{0xE0, 3, 0, 0, 0}, {0xE0, 2, 0, 1}, packet(0xE0, slices.Concat([]byte{0}, props(prop16(19, 1)))...), packet(0xE0, slices.Concat([]byte{0}, props(propText(28, "elsewhere")))...)} {
			c := x.connect(v)
			c.send(p)
			c.expectEnd(codeMalformed)
		}
	}},
	{"3.14.2-2", "a session expiry raised in the DISCONNECT", mqtt5, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		c.send([]byte{0xE0, 7, 0, 5, propSessionExpiry, 0, 0, 0, 1})
		c.expectEnd(codeProtocolError)
		if x.sessionPresent(v, []byte{0xE0, 7, 0, 5, propSessionExpiry, 0, 0, 0, 0}, stays(v)) || x.sessionPresent(v, goodbye, stays(v)) {
			x.t.Error("a session that was ended by its DISCONNECT is there")
		}
	}},
	{"3.14.0-1", "no DISCONNECT before the CONNACK", mqtt5, Config{}, func(x *bench, v byte) {
		x.verifier.hook = func() { time.Sleep(time.Second) }
		c := x.dial(v)
		c.send(connectPacket(v))
		synctest.Wait()
		x.stop()
		c.expect("Weir stops while it is verified", refusedConnack(codeShuttingDown))
		c.expectClosed("Weir stops")
	}},
	{"3.14.2-1 4.13.2-1", "Weir stops", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		x.stop()
		c.expectEnd(codeShuttingDown)
	}},
	{"4.12.1-2", "a revoked credential", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		x.broker.Drop(everybody)
		c.expectEnd(codeNotAuthorized)
	}},
	{"4.4.0-1", "a message that was not acknowledged before a connection ended is new on the next connection", 0, Config{}, func(x *bench, v byte) {
		x.intake.hold = true
		c := x.connect(v, stays(v))
		c.send(publishPacket(v, qos1, theEvents, 3, "M"))
		synctest.Wait()
		c.conn.Close()
		synctest.Wait()
		x.intake.hold = false
		c = x.dial(v)
		c.send(connectPacket(v, stays(v)), publishPacket(v, qos1|dup, theEvents, 3, "M"))
		c.expect("sent again", connackFor(v, 1), puback(3))
		if a := x.intake.seenArrivals(); len(a) != 2 || !a[1].Dup || a[1].PacketID != a[0].PacketID || a[1].ClientID != a[0].ClientID {
			x.t.Errorf("the intake cannot see that it is the same: %+v", a)
		}
	}},
}
