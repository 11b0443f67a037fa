package broker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestFormConforms(t *testing.T)      { conforms(t, formCases) }
func TestWebSocketConforms(t *testing.T) { conforms(t, webSocketCases) }

var formCases = []conformCase{
	{"1.5.5-1", "a remaining length in more bytes than needed, or in more than 4", 0, Config{}, func(x *bench, v byte) {
		for _, p := range [][]byte{{0xC0, 0x80, 0}, {0xC0, 0x80, 0x80, 0x80, 0}, {0xC0, 0x80, 0x80, 0x80, 0x80, 0}, {0x30, 0xff, 0xff, 0xff, 0xff, 1}} {
			c := x.connect(v)
			c.send(p)
			c.expectEnd(codeMalformed)
		}
	}},
	{"1.5.4-1 1.5.4-2 1.5.7-1", "strings in properties that are not UTF-8", mqtt5, Config{}, func(x *bench, v byte) {
		for _, bad := range []string{"\xff", "\xed\xa0\x80", "a\x00"} {
			for _, section := range [][]byte{props(propText(propUser, bad, "v")), props(propText(propUser, "k", bad)), props(propText(3, bad))} {
				c := x.connect(v)
				c.send(publishWith(qos1, theEvents, 1, section, ""))
				c.expectEnd(codeMalformed)
			}
			c := x.connect(v)
			c.send(packet(0xE0, slices.Concat([]byte{0}, props(propText(propReasonString, bad)))...))
			c.expectEnd(codeMalformed)
			c = x.connect(v)
			c.send(packet(0x40, slices.Concat([]byte{0, 1, 0}, props(propText(propReasonString, bad)))...))
			c.expectEnd(codeMalformed)
		}
	}},
	{"4.13.1-1 v3:4.8.0-1", "packets that only a server may send", 0, Config{}, func(x *bench, v byte) {
		for _, p := range [][]byte{{0x20, 2, 0, 0}, subackPacket(v, 1, 0), unsubackPacket(v, 1, 0), pingresp} {
			c := x.connect(v)
			c.send(p)
			c.expectEnd(codeProtocolError)
		}
	}},
	{"4.13.1-1", "packets of QoS 2 if it is not offered", 0, Config{}, func(x *bench, v byte) {
		for _, p := range [][]byte{{0x50, 2, 0, 1}, {0x62, 2, 0, 1}, {0x70, 2, 0, 1}} {
			c := x.connect(v)
			c.send(p)
			c.expectEnd(codeProtocolError)
		}
	}},
	{"4.13.1-1", "packets with missing or surplus bytes", 0, Config{}, func(x *bench, v byte) {
		bad := [][]byte{{0x40, 0}, {0x40, 1, 0}, {0xC0, 1, 0}, {0x82, 1, 0}, {0xA2, 1, 0}, {0x30, 0}, {0x30, 1, 0}, {0x32, 3, 0, 1, 'a'}}
		if v == mqtt311 {
			bad = append(bad, []byte{0x40, 3, 0, 1, 0}, []byte{0xE0, 1, 0})
		} else {
			bad = append(bad, []byte{0x40, 5, 0, 1, 0, 0, 0}, []byte{0x40, 4, 0, 1, 0, 1})
		}
		for _, p := range bad {
			c := x.connect(v)
			c.send(p)
			c.expectEnd(codeMalformed)
		}
	}},
	{"4.2.0-1", "a stream split at any size", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		stream := slices.Concat(publishPacket(v, qos1, theEvents, 1, "one"), pingreq, publishPacket(v, qos1, theEvents, 2, "two"))
		for _, b := range stream {
			c.send([]byte{b})
			synctest.Wait()
		}
		c.expect("answered", puback(1), pingresp, puback(2))
		x.expectStored("one", "two")
	}},
}

// overWS is a client over WebSocket whose every write is what frames makes of it.
func (x *bench) overWS(v byte) (*client, func()) {
	synctest.Wait() // everything is being served before something may end
	w := openWS(x.t, x.serve(Listener{WebSocket: true}).dial())
	c := attach(x.t, w, v)
	return c, func() { w.Close(); <-c.read }
}

var webSocketCases = []conformCase{
	{"6.0.0-1", "a text frame", 0, Config{}, func(x *bench, v byte) {
		c, end := x.overWS(v)
		defer end()
		c.send(clientFrame(wholeBinary, connectPacket(v)...), clientFrame(frameFin|frameText, pingreq...))
		time.Sleep(2 * lastWordTimeout)
		want := [][]byte{connackFor(v, 0)}
		if v == mqtt5 {
			want = append(want, disconnect(codeMalformed))
		}
		c.expect("a text frame", want...)
		c.expectClosed("a text frame")
	}},
	{"6.0.0-2", "packet and frame boundaries are independent", 0, Config{}, func(x *bench, v byte) {
		c, end := x.overWS(v)
		defer end()
		stream := slices.Concat(connectPacket(v), publishPacket(v, qos1, theEvents, 1, "{}"), pingreq)
		c.send(clientFrame(frameBinary, stream[:3]...), clientFrame(frameContinuation, stream[3:11]...), clientFrame(frameFin|frameContinuation),
			clientFrame(wholeBinary, stream[11:len(stream)-1]...), clientFrame(wholeBinary, stream[len(stream)-1]))
		synctest.Wait()
		got := c.take()
		if len(got) != 3 || !slices.Equal(got[0], connackFor(v, 0)) {
			x.t.Errorf("received % x", got)
		}
		x.expectStored("{}")
	}},
	{"6.0.0-3 6.0.0-4", "the subprotocol is mqtt", 0, Config{}, func(x *bench, v byte) {
		_, end := x.overWS(v) // which offers two and checks what is selected
		end()
	}},
}
