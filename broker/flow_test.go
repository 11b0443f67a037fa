package broker

import (
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/ingest"
)

// script is a connection that holds every packet a client may send, and what is answered in all, sorted.
func script(v byte) (stream []byte, answers [][]byte) {
	user := propText(propUser, "k", "v")
	hello := connectPacket(v, func(h *hello) {
		h.user, h.password, h.will, h.flags = "acme:user1", "s3cret", []string{theEvents, "will"}, h.flags|8
		if v == mqtt5 {
			h.props, h.willProps = slices.Concat(prop32(propSessionExpiry, 60), prop16(propReceiveMaximum, 10), user), slices.Concat(prop32(propWillDelay, 5), user)
		}
	})
	stream = slices.Concat(hello, subscribePacket(v, 3, theCommands, "#"), publishPacket(v, 0, theEvents, 0, "zero"),
		publishPacket(v, qos1, theEvents, 1, strings.Repeat("one", 50)), publishPacket(v, qos2, theEvents, 2, "two"), []byte{0x62, 2, 0, 2},
		puback(99), unsubscribePacket(v, 4, theCommands), pingreq)
	refused := byte(codeUnspecified)
	if v == mqtt5 {
		stream = slices.Concat(stream, publishWith(qos1, theEvents, 5, props(propText(8, "reply"), propText(9, "c"), user), "five"),
			packet(0xE0, slices.Concat([]byte{0}, props(propText(propReasonString, "bye"), user))...))
		refused = codeWildNotSupported
		answers = append(answers, puback(5))
	} else {
		stream = append(stream, goodbye...)
	}
	answers = append(answers, subackPacket(v, 3, 1, refused), puback(1), []byte{0x50, 2, 0, 2}, []byte{0x70, 2, 0, 2}, unsubackPacket(v, 4, 0), pingresp)
	slices.SortFunc(answers, slices.Compare)
	return stream, answers
}

// check fails unless all of the script was understood.
func (c *client) check(x *bench, what string, answers [][]byte) {
	c.t.Helper()
	synctest.Wait()
	got := c.take()
	if len(got) == 0 || got[0][0] != pktConnack<<4 {
		c.t.Fatalf("%s: received % x", what, got)
	}
	slices.SortFunc(got[1:], slices.Compare) // what the library answers and the acknowledgements have no order between them
	if !slices.EqualFunc(got[1:], answers, slices.Equal) {
		c.t.Fatalf("%s: received % x, want % x", what, got[1:], answers)
	}
	if n := counted(c.t, x.broker.metrics.disconnects.WithLabelValues(causeGoodbye.word)); n != 1 {
		c.t.Fatalf("%s: the goodbye was not heard", what)
	}
	if bodies := x.intake.bodies(); len(bodies) != len(answers)-3 || bodies[0] != "zero" {
		c.t.Fatalf("%s: the intake has %q", what, bodies)
	}
}

func TestEveryPacketSplitAtEveryByte(t *testing.T) {
	t.Parallel()
	for _, v := range bothVersions {
		stream, answers := script(v)
		for cut := range stream {
			inBubble(t, Config{Settings: Settings{AllowQoS2: true}}, func(t *testing.T, x *bench) {
				c := x.dial(v)
				c.send(stream[:cut])
				synctest.Wait()
				c.send(stream[cut:])
				c.check(x, fmt.Sprintf("version %d cut at %d", v, cut), answers)
				c.expectClosed("a DISCONNECT")
			})
		}
	}
}

func TestEveryPacketInFramesSplitAtEveryByte(t *testing.T) {
	t.Parallel()
	for _, v := range bothVersions {
		stream, answers := script(v)
		for name, frames := range cuts(stream) {
			inBubble(t, Config{Settings: Settings{AllowQoS2: true}}, func(t *testing.T, x *bench) {
				c, end := x.overWS(v)
				c.send(frames)
				time.Sleep(2 * lastWordTimeout)
				c.check(x, fmt.Sprintf("version %d %s", v, name), answers)
				end()
			})
		}
	}
}

// A client that ignores what it was told costs no more than the window, and loses nothing that was taken.
func TestAFloodOverTheWindow(t *testing.T) {
	t.Parallel()
	const window, flood = 16, 20_000
	inBubble(t, Config{ReceiveMaximum: window}, func(t *testing.T, x *bench) {
		x.intake.hold = true
		c := x.connect(mqtt5)
		go func() {
			for id := range uint16(flood) {
				c.send(publishPacket(mqtt5, qos1, theEvents, id+1, "{}"))
			}
		}()
		c.expect("nothing is stored yet")
		if n, p := len(x.intake.bodies()), counted(t, x.broker.metrics.pendingAcks); n != window || p != window+1 {
			t.Errorf("%d messages taken, %v acknowledgements pending", n, p)
		}
		var want [][]byte
		for i := range window {
			x.intake.settle(i, ingest.Answer{})
			want = append(want, puback(byte(i+1)))
		}
		c.expect("what was taken, then the end", append(want, disconnect(codeReceiveMaximum))...)
		c.expectClosed("an overrun window")
		if n := len(x.intake.bodies()); n != window {
			t.Errorf("%d messages taken", n)
		}
	})
	inBubble(t, Config{ReceiveMaximum: window}, func(t *testing.T, x *bench) { // 3.1.1 is told no window: it is not read on
		x.intake.hold = true
		c := x.connect(mqtt311)
		p := publishPacket(mqtt311, qos1, theEvents, 1, strings.Repeat("x", 1000))
		var taken atomic.Int64
		go func() {
			for id := range flood {
				p[2+1+2+len(theEvents)], p[2+1+2+len(theEvents)+1] = byte((id+1)>>8), byte(id+1)
				n, err := c.conn.Write(p)
				taken.Add(int64(n))
				if err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		if n := taken.Load(); len(x.intake.bodies()) != window || n > int64((window+2)*len(p)+readBuffer) {
			t.Errorf("%d messages, %d bytes taken", len(x.intake.bodies()), n)
		}
		time.Sleep(91 * time.Second)
		c.expectClosed("a log that does not answer")
	})
}

// countingConn counts the writes of the door.
type countingConn struct {
	net.Conn
	writes atomic.Int64
}

func (c *countingConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// What is settled while a write is under way leaves with the next one, all of it.
func TestPubacksLeaveInFewWrites(t *testing.T) {
	t.Parallel()
	const window = 250
	for _, v := range bothVersions {
		inBubble(t, Config{}, func(t *testing.T, x *bench) {
			x.intake.hold = true
			conn, theirs := net.Pipe()
			server := &countingConn{Conn: theirs}
			x.ln.Offer(server)
			var b [64]byte
			if _, err := conn.Write(connectPacket(v)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Read(b[:]); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			before := server.writes.Load()
			for id := range uint16(window) {
				if _, err := conn.Write(publishPacket(v, qos1, theEvents, id+1, "{}")); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			var want []byte
			for i := range window { // the first write waits for the reader
				x.intake.settle(i, ingest.Answer{})
				want = append(want, puback(byte(i+1))...)
				synctest.Wait()
			}
			got := make([]byte, len(want))
			if _, err := io.ReadFull(conn, got); err != nil || !slices.Equal(got, want) {
				t.Fatalf("received % x, %v", got, err)
			}
			synctest.Wait()
			if n := server.writes.Load() - before; n != 2 {
				t.Errorf("%d PUBACKs left in %d writes", window, n)
			}
			conn.Close()
		})
	}
}

// deafen opens a connection that subscribes and from then on reads nothing.
func deafen(t testing.TB, ln pipes, v byte, options ...func(*hello)) net.Conn {
	t.Helper()
	conn := ln.dial()
	var b [128]byte
	for _, p := range [][]byte{connectPacket(v, options...), subscribePacket(v, 1, theCommands)} {
		if _, err := conn.Write(p); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(b[:]); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Wait()
	return conn
}

func TestASubscriberThatDoesNotReadStallsNoOtherClient(t *testing.T) {
	t.Parallel()
	for _, v := range bothVersions {
		inBubble(t, Config{WriteTimeout: 4 * time.Second}, func(t *testing.T, x *bench) {
			deaf := deafen(t, x.ln, v, func(h *hello) { h.clientID = theClient + ":deaf" })
			other := x.connect(v)
			other.send(subscribePacket(v, 1, theCommands))
			other.expect("subscribed", subackPacket(v, 1, 1))
			began := time.Now()
			x.command("cmd")
			if got := other.received(qos1); !slices.Equal(got, []string{"cmd"}) {
				t.Errorf("received %q", got)
			}
			for id := range byte(100) {
				other.send(publishPacket(v, qos1, theEvents, uint16(id+1), "{}"))
				other.expect("beside it", puback(id+1))
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("it took %v", took)
			}
			time.Sleep(3900 * time.Millisecond)
			synctest.Wait()
			if x.broker.Connections() != 2 {
				t.Error("given up before its time")
			}
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
			if n := counted(t, x.broker.metrics.disconnects.WithLabelValues(causeSlowReader.word)); n != 1 || x.broker.Connections() != 1 {
				t.Errorf("%v slow readers, %d connections", n, x.broker.Connections())
			}
			deaf.Close()
		})
	}
}

// drip sends a byte a second until the other side has had enough, and says how long that took.
func drip(conn net.Conn, stream []byte) time.Duration {
	began := time.Now()
	for _, b := range stream {
		if _, err := conn.Write([]byte{b}); err != nil {
			break
		}
		time.Sleep(time.Second)
	}
	return time.Since(began)
}

func TestASlowCONNECTHasItsTimeInAll(t *testing.T) {
	t.Parallel()
	for _, v := range bothVersions {
		inBubble(t, Config{}, func(t *testing.T, x *bench) {
			if took := drip(x.ln.dial(), connectPacket(v)); took < 10*time.Second || took > 11*time.Second {
				t.Errorf("a CONNECT byte by byte was heard for %v", took)
			}
			w := openWS(t, x.serve(Listener{WebSocket: true}).dial())
			var frames []byte
			for _, b := range connectPacket(v) {
				frames = append(frames, clientFrame(wholeBinary, b)...)
			}
			if took := drip(w, frames); took < 10*time.Second || took > 11*time.Second {
				t.Errorf("a CONNECT in frames was heard for %v", took)
			}
			if n := counted(t, x.broker.metrics.refused.WithLabelValues("no-connect")) + counted(t, x.broker.metrics.refused.WithLabelValues("websocket")); n < 1 {
				t.Errorf("counted %v", n)
			}
		})
	}
}

func TestADrippedPacketHasNoMoreThanItsKeepAlive(t *testing.T) {
	t.Parallel()
	for _, v := range bothVersions {
		inBubble(t, Config{}, func(t *testing.T, x *bench) {
			c := x.connect(v, func(h *hello) { h.keepAlive = 20 })
			if took := drip(c.conn, publishPacket(v, qos1, theEvents, 1, strings.Repeat("x", 1500))); took < 29*time.Second || took > 31*time.Second {
				t.Errorf("heard for %v", took)
			}
			c.expectEnd(codeKeepAliveTimeout)
			x.expectStored()
		})
	}
}

// The slots for large packets are few and common to all: a client that drips takes none and has a bounded time, and one that waited
// for a slot has its whole time then.
func TestADrippedLargePacketDoesNotKeepItsPlace(t *testing.T) {
	t.Parallel()
	for _, v := range bothVersions {
		inBubble(t, Config{MaxLargePackets: 1}, func(t *testing.T, x *bench) {
			big := publishPacket(v, qos1, theEvents, 1, strings.Repeat("x", 100<<10))
			dripping := x.connect(v, func(h *hello) { h.clientID, h.keepAlive = theClient+":slow", math.MaxUint16 })
			dripping.send(big[:10])
			synctest.Wait()
			other := x.connect(v, func(h *hello) { h.keepAlive = 600 })
			go other.send(big)
			other.expect("the next", puback(1))
			time.Sleep(42 * time.Second) // 30, and 100 KiB at 8 KiB a second
			synctest.Wait()
			if dripping.isClosed() {
				t.Fatal("closed too early")
			}
			time.Sleep(time.Second)
			dripping.expectEnd(codeKeepAliveTimeout)

			slow := x.connect(v, func(h *hello) { h.clientID, h.keepAlive = theClient+":steady", 600 })
			long400 := publishPacket(v, qos1, theEvents, 1, strings.Repeat("x", 400<<10))
			slow.send(long400[:70<<10])
			waiting := x.connect(v, func(h *hello) { h.clientID, h.keepAlive = theClient+":waits", 20 })
			go waiting.send(big)
			for rest := range slices.Chunk(long400[70<<10:], 5<<10) {
				synctest.Wait()
				if len(waiting.take()) > 0 || waiting.isClosed() || slow.isClosed() {
					t.Fatal("it did not wait, or one of them was closed")
				}
				slow.send(rest)
				time.Sleep(time.Second / 2)
			}
			slow.expect("the steady one", puback(1))
			waiting.expect("after it", puback(1))
			// The next packet has its own time, also where it has begun already and lies in the buffer behind the large one.
			long := x.connect(v, func(h *hello) { h.keepAlive = 600 })
			next := publishPacket(v, qos1, theEvents, 2, "{}")
			long.send(publishPacket(v, qos1, theEvents, 1, strings.Repeat("x", largePacket+500)), next[:5])
			long.expect("the large one", puback(1))
			time.Sleep(time.Minute)
			long.send(next[5:])
			long.expect("after it", puback(2))
		})
	}
}

// A tenant has a quarter of the slots for large packets, and one that stalls loses its slot to one that waits.
func TestStalledLargePacketsOfATenantDoNotDelayAnother(t *testing.T) {
	t.Parallel()
	for _, v := range bothVersions {
		for _, slots := range []int{1, 5, 32} {
			inBubble(t, Config{MaxLargePackets: slots}, func(t *testing.T, x *bench) {
				big := publishPacket(v, qos1, theEvents, 1, strings.Repeat("x", 100<<10))
				for i := range 2 * slots {
					c := x.connect(v, func(h *hello) { h.clientID, h.keepAlive = fmt.Sprintf("%s:%d", theClient, i), 600 })
					go c.send(big[:70<<10])
					synctest.Wait()
				}
				c := x.connect(v, func(h *hello) { h.clientID, h.user = "weir:globex:dev1", "globex:tok9" })
				go c.send(publishPacket(v, qos1, "weir/globex/devices/dev1/events", 1, strings.Repeat("x", 100<<10)))
				time.Sleep(2 * time.Second)
				c.expect("another tenant's", puback(1))
				if n := counted(t, x.broker.metrics.disconnects.WithLabelValues(causeStalledPacket.word)); slots < 4 && n == 0 {
					t.Errorf("of %d slots: %v were stopped", slots, n)
				}
				if n := x.broker.large.Len(); n > max(slots/4, 1) {
					t.Errorf("of %d slots one tenant has %d", slots, n)
				}
			})
		}
	}
}
