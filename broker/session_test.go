package broker

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"weir/ingest"
	"weir/internal/test/conformance"
	"weir/internal/test/fixture"
	"weir/model"
)

func TestConnackSaysWhatIsOffered(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		c := x.dial(mqtt5)
		c.send(connectPacket(mqtt5, func(h *hello) { h.keepAlive = 1200; h.props = []byte{propSessionExpiry, 0xff, 0xff, 0xff, 0xff} }))
		synctest.Wait()
		pk := packets.Packet{ProtocolVersion: 5, FixedHeader: packets.FixedHeader{Type: packets.Connack}}
		got := c.take()[0]
		if err := pk.ConnackDecode(got[2:]); err != nil {
			t.Fatal(err)
		}
		p := pk.Properties
		if pk.ReasonCode != 0 || pk.SessionPresent || p.MaximumQos != 1 || !p.MaximumQosFlag || p.RetainAvailable != 0 || !p.RetainAvailableFlag ||
			p.WildcardSubAvailable != 0 || !p.WildcardSubAvailableFlag || p.SharedSubAvailable != 0 || !p.SharedSubAvailableFlag ||
			p.SubIDAvailable != 0 || !p.SubIDAvailableFlag || p.TopicAliasMaximum != 0 || p.ReceiveMaximum != 256 ||
			p.ServerKeepAlive != 600 || p.MaximumPacketSize != 1<<20 || p.SessionExpiryInterval != 12*3600 {
			t.Errorf("CONNACK %+v", p)
		}
	})
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		c := x.dial(mqtt311)
		c.send(connectPacket(mqtt311))
		c.expect("3.1.1", []byte{0x20, 2, 0, 0})
	})
}

func TestCredentialsThatOpenASession(t *testing.T) {
	for name, option := range map[string]func(*hello){
		"access token":          func(*hello) {},
		"user and password":     func(h *hello) { h.user, h.password = "acme:user1", "s3cret" },
		"colon in the id":       func(h *hello) { h.user = "acme:with:colon" },
		"suffix":                func(h *hello) { h.clientID = theClient + ":phone" },
		"suffix with colons":    func(h *hello) { h.clientID = theClient + ":a:b" },
		"will on its own topic": func(h *hello) { h.will = []string{theEvents, "{}"} },
		"QoS 1 will on reports": func(h *hello) { h.will, h.flags = []string{theReports, "{}"}, h.flags|8 },
		"empty will":            func(h *hello) { h.will = []string{theEvents, ""} },
	} {
		t.Run(name, func(t *testing.T) {
			forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) { x.connect(v, option) })
		})
	}
	// A retained will is an ordinary one in 3.1.1, where it cannot be refused.
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		x.connect(mqtt311, func(h *hello) { h.will, h.flags = []string{theEvents, "{}"}, h.flags|32 })
	})
}

func TestKeepAlive(t *testing.T) {
	for _, tc := range []struct {
		asked uint16
		ends  time.Duration // in MQTT 5, which announces the server's maximum
		ends3 time.Duration // in 3.1.1, where the client's own value holds; 0: never
	}{
		{20, 30 * time.Second, 30 * time.Second}, {1, 1500 * time.Millisecond, 1500 * time.Millisecond}, {600, 900 * time.Second, 900 * time.Second},
		{1200, 900 * time.Second, 1800 * time.Second}, {65535, 900 * time.Second, 65535 * 1500 * time.Millisecond}, {0, 900 * time.Second, 0},
	} {
		forBoth(t, Config{MaxSession: 1000 * time.Hour}, func(t *testing.T, x *bench, v byte) {
			c := x.connect(v, func(h *hello) { h.keepAlive = tc.asked })
			ends := tc.ends
			if v < mqtt5 {
				ends = tc.ends3
			}
			if ends == 0 {
				c.isSilentForDays()
				return
			}
			time.Sleep(ends - time.Millisecond)
			c.send([]byte{0xC0, 0})
			c.expect("in time", []byte{0xD0, 0})
			time.Sleep(ends - time.Millisecond)
			c.send(publishPacket(v, 0, theEvents, 0, "{}")) // a publish counts as well as a ping
			synctest.Wait()
			time.Sleep(ends - time.Millisecond)
			synctest.Wait()
			if c.isClosed() {
				t.Fatal("closed too early")
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if v == mqtt5 {
				c.expect("silence", disconnect(codeKeepAliveTimeout))
			}
			c.expectClosed("silence")
			if got := x.intake.transitions(); got != "CONNECTED connected, DISCONNECTED keep-alive-timeout" {
				t.Error(got)
			}
		})
	}
}

// isSilentForDays is a client of 3.1.1 without a keep-alive: its silence has no end, but a packet that it has begun has.
func (c *client) isSilentForDays() {
	for range 3 {
		time.Sleep(72 * time.Hour)
		c.send([]byte{0xC0, 0})
		c.expect("after three days", []byte{0xD0, 0})
	}
	c.send([]byte{0xC0})
	time.Sleep(899 * time.Second)
	c.send([]byte{0})
	c.expect("a packet that took its time", []byte{0xD0, 0})
	c.send([]byte{0xC0})
	time.Sleep(901 * time.Second)
	synctest.Wait()
	c.expectClosed("a packet that is never whole")
}

// A client that streams without a pause is never timed out, and one that drips a packet byte by byte is.
func TestKeepAliveUnderLoad(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		c := x.connect(mqtt5, func(h *hello) { h.keepAlive = 2 })
		p := publishPacket(mqtt5, 0, theEvents, 0, "{}")
		stream := slices.Concat(p, p[:5])
		for range 40 {
			c.send(stream)
			time.Sleep(500 * time.Millisecond)
			stream = slices.Concat(p[5:], p[:5])
		}
		synctest.Wait()
		if c.isClosed() {
			t.Fatal("timed out while sending")
		}
	})
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		c := x.connect(mqtt5, func(h *hello) { h.keepAlive = 2 })
		for _, b := range publishPacket(mqtt5, 0, theEvents, 0, "{}") {
			c.send([]byte{b})
			time.Sleep(time.Second)
		}
		c.expectClosed("a packet that takes longer than the keep-alive allows")
	})
}

func TestSlowReaderIsClosed(t *testing.T) {
	for _, v := range bothVersions {
		synctest.Test(t, func(t *testing.T) {
			x := newBench(t, Config{}, nil)
			conn := x.ln.dial()
			if _, err := conn.Write(connectPacket(v)); err != nil {
				t.Fatal(err)
			}
			var connack [64]byte
			if _, err := conn.Read(connack[:]); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if _, err := conn.Write(publishPacket(v, qos1, theEvents, 1, "{}")); err != nil { // and never read again
				t.Fatal(err)
			}
			time.Sleep(9 * time.Second)
			synctest.Wait()
			if x.broker.Connections() != 1 {
				t.Fatal("closed before the write timeout")
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if n := counted(t, x.broker.metrics.disconnects.WithLabelValues("slow-reader")); n != 1 || x.broker.Connections() != 0 {
				t.Errorf("%v slow readers, %d connections", n, x.broker.Connections())
			}
			if got := x.intake.transitions(); got != "CONNECTED connected" {
				t.Errorf("a reader that Weir cut off became presence: %s", got)
			}
			x.stop()
		})
	}
}

// A gate that blocks, because the log is full, holds the connection back for as long as its client may be silent.
func TestBlockedGate(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		free := make(chan struct{})
		x.intake.block = func(ctx context.Context) {
			select {
			case <-free:
			case <-ctx.Done():
			}
		}
		c := x.connect(v, func(h *hello) { h.keepAlive = 20 })
		c.send(publishPacket(v, qos1, theEvents, 1, "{}"))
		time.Sleep(29 * time.Second)
		c.expect("while the intake blocks")
		close(free)
		c.expect("after it", puback(1))
		free = make(chan struct{})
		c.send(publishPacket(v, qos1, theEvents, 2, "{}"))
		time.Sleep(31 * time.Second)
		if v == mqtt5 {
			c.expect("longer than that", disconnect(codeServerBusy))
		}
		c.expectClosed("longer than that")
		if got := x.intake.transitions(); got != "CONNECTED connected" {
			t.Errorf("Weir's own trouble became presence: %s", got)
		}
	})
}

func TestTakeover(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		x.intake.hold = true
		first := x.connect(v)
		first.send(publishPacket(v, qos1, theEvents, 1, "{}"))
		synctest.Wait()
		second := x.connect(v)
		if v == mqtt5 {
			first.expect("taken over", disconnect(codeSessionTakenOver))
		}
		first.expectClosed("taken over")
		x.intake.settle(0, ingest.Answer{}) // an answer for the old connection
		second.send(publishPacket(v, qos1, theEvents, 1, "{}"))
		second.expect("the new one hears nothing of the old one's publish")
		x.intake.settle(1, ingest.Answer{})
		second.expect("its own", puback(1))
		if got := x.intake.transitions(); got != "CONNECTED connected, CONNECTED connected" {
			t.Error(got)
		}
		if x.intake.seenPresence()[1].Session <= x.intake.seenPresence()[0].Session {
			t.Error("the session number did not rise")
		}
		if x.broker.Connections() != 1 {
			t.Errorf("%d connections", x.broker.Connections())
		}
		time.Sleep(10 * time.Minute)
		second.expectClosed("silence") // and no grace of the old one is left over
		if got := x.intake.transitions(); got != "CONNECTED connected, CONNECTED connected, DISCONNECTED keep-alive-timeout" {
			t.Error(got)
		}
	})
}

// The library must never see two clients of one id: the new connection waits until nothing of the old one is left. One
// that is taken over while it waits goes without a word, for it has had no CONNACK.
func TestTakeoverWaitsForTheOldConnection(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		x.intake.block = func(context.Context) { time.Sleep(5 * time.Second) } // deaf to its context
		first := x.connect(v)
		first.send(publishPacket(v, qos1, theEvents, 1, "{}"))
		synctest.Wait()
		second := x.dial(v)
		second.send(connectPacket(v))
		time.Sleep(4 * time.Second)
		second.expect("while the old one is busy")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := second.take(); len(got) != 1 || got[0][0] != pktConnack<<4 {
			t.Fatalf("received % x, want a CONNACK", got)
		}

		second.send(publishPacket(v, qos1, theEvents, 1, "{}"))
		synctest.Wait()
		third := x.dial(v)
		third.send(connectPacket(v))
		synctest.Wait()
		fourth := x.dial(v)
		fourth.send(connectPacket(v))
		time.Sleep(6 * time.Second)
		third.expect("taken over before its CONNACK")
		third.expectClosed("taken over before its CONNACK")
		if got := fourth.take(); len(got) != 1 || got[0][0] != pktConnack<<4 {
			t.Fatalf("received % x, want a CONNACK", got)
		}
		if got := x.intake.transitions(); got != "CONNECTED connected, CONNECTED connected, CONNECTED connected" {
			t.Error(got)
		}
	})
}

// A connection is served by its reader alone: a subscription costs no goroutine until a command is to be written.
func TestASubscriptionCostsNoGoroutine(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		c := x.connect(v)
		synctest.Wait()
		before := runtime.NumGoroutine()
		c.send(subscribePacket(v, 2, theCommands))
		c.expect("subscribed", subackPacket(v, 2, 1))
		x.command("cmd")
		if got := c.received(qos1); !slices.Equal(got, []string{"cmd"}) {
			t.Errorf("received %q", got)
		}
		synctest.Wait()
		if n := runtime.NumGoroutine(); n > before {
			t.Errorf("%d goroutines, %d before the subscription", n, before)
		}
	})
}

func TestManyTakeoversAtOnce(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		var all []*client
		for range 20 {
			c := x.dial(mqtt5)
			all = append(all, c)
			go c.send(connectPacket(mqtt5), subscribePacket(mqtt5, 1, theCommands))
		}
		time.Sleep(time.Minute / 2)
		synctest.Wait()
		open := 0
		for _, c := range all {
			if !c.isClosed() {
				open++
			}
		}
		if n := len(x.broker.devices.pubsub.sessions); open != 1 || x.broker.Connections() != 1 || n != 1 {
			t.Errorf("%d open, %d known, %d sessions", open, x.broker.Connections(), n)
		}
	})
}

func TestSessionEnds(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		until := func(c *client, d time.Duration) {
			t.Helper()
			for end := time.Now().Add(d - time.Second); time.Now().Before(end); time.Sleep(min(time.Until(end), 50*time.Second)) {
				c.send([]byte{0xC0, 0})
			}
			synctest.Wait()
			c.take()
			if c.isClosed() {
				t.Fatal("closed too early")
			}
			time.Sleep(2 * time.Second)
			if v == mqtt5 {
				c.expect("its time is over", disconnect(codeMaximumConnectTime))
			}
			c.expectClosed("its time is over")
		}
		until(x.connect(v), 12*time.Hour)
		claim := Claim{Tenant: "acme", Type: AccessToken, ID: "tok1"}
		proof := x.verifier.proofs[claim]
		proof.Expires = model.MicrosOf(time.Now().Add(time.Hour))
		x.verifier.proofs[claim] = proof
		until(x.connect(v), time.Hour)
		if got := x.intake.transitions(); got != "CONNECTED connected, CONNECTED connected" {
			t.Errorf("a session's end became presence: %s", got)
		}
	})
}

func TestDrop(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		x.intake.hold = true
		c := x.connect(v, func(h *hello) {
			h.will, h.flags = []string{theEvents, "will"}, 0
			if v == mqtt5 {
				h.props = []byte{propSessionExpiry, 0, 0, 1, 0}
			}
		})
		other := x.connect(v, func(h *hello) { h.clientID, h.user = "weir:acme:dev2", "acme:tok2" })
		c.send(publishPacket(v, qos1, theEvents, 1, "{}"))
		synctest.Wait()
		if n := x.broker.drop(func(b model.Binding) bool { return b.Credential == 101 }); n != 1 {
			t.Errorf("dropped %d", n)
		}
		c.send(publishPacket(v, 0, theEvents, 0, "after"))
		if v == mqtt5 {
			c.expect("dropped", disconnect(codeNotAuthorized))
		}
		c.expectClosed("dropped")
		synctest.Wait()
		if got := x.intake.bodies(); !slices.Equal(got, []string{"{}"}) {
			t.Errorf("after the credential was gone %q got in", got)
		}
		x.intake.settle(0, ingest.Answer{})
		if other.isClosed() {
			t.Error("another device was dropped too")
		}
		if n := x.broker.devices.pubsub.away.Len(); n != 0 {
			t.Errorf("%d sessions of a credential that is gone are kept", n)
		}
	})
}

// A credential that is removed while its CONNECT is being verified must not leave a connection behind.
func TestDropWhileConnecting(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		x.verifier.hook = func() {
			if x.verifier.calls == 1 { // removed after it was looked up
				go func() {
					x.broker.Drop(func(model.Binding) bool { return true })
				}()
				time.Sleep(time.Second)
				return
			}
			clear(x.verifier.proofs)
		}
		c := x.dial(mqtt5)
		c.send(connectPacket(mqtt5))
		time.Sleep(2 * time.Second)
		c.expect("verified again", []byte{0x20, 3, 0, codeNotAuthorized, 0})
		c.expectClosed("refused")
		if x.verifier.calls != 2 || x.broker.Connections() != 0 {
			t.Errorf("verified %d times, %d connections", x.verifier.calls, x.broker.Connections())
		}
	})
}

func TestWill(t *testing.T) {
	withWill := func(h *hello) { h.will = []string{theEvents, "will"} }
	for _, tc := range []struct {
		name string
		end  func(*bench, *client)
		sent bool
	}{
		{"connection lost", func(_ *bench, c *client) { c.conn.Close() }, true},
		{"protocol error", func(_ *bench, c *client) { c.send([]byte{0xF0, 0}) }, true},
		{"silence", func(*bench, *client) { time.Sleep(91 * time.Second) }, true},
		{"DISCONNECT", func(_ *bench, c *client) { c.send([]byte{0xE0, 0}) }, false},
		{"takeover", func(x *bench, c *client) { x.connect(c.version) }, true},
		{"credential gone", func(x *bench, _ *client) { x.broker.Drop(everybody) }, false},
		{"Weir stops", func(x *bench, _ *client) { x.stop() }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
				c := x.connect(v, withWill)
				tc.end(x, c)
				synctest.Wait()
				var want []string
				if tc.sent {
					want = []string{"will"}
				}
				if got := x.intake.bodies(); !slices.Equal(got, want) {
					t.Errorf("the intake got %q", got)
				}
			})
		})
	}
	t.Run("DISCONNECT that asks for it", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, x *bench) {
			c := x.connect(mqtt5, withWill)
			c.send([]byte{0xE0, 1, 4})
			synctest.Wait()
			if a := x.intake.seenArrivals(); len(a) != 1 || !a[0].CannotRefuse || a[0].PacketID != 0 || a[0].Topic != "dev1" || a[0].Conn.DeviceID != 1 {
				t.Errorf("the intake got %+v", a)
			}
		})
	})
	t.Run("that answers a command", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, x *bench) {
			c := x.connect(mqtt5, func(h *hello) { h.will = []string{theResponses, "will"} })
			c.conn.Close()
			synctest.Wait()
			if a := x.intake.seenArrivals(); len(a) != 1 || !a[0].Answers || !a[0].CannotRefuse {
				t.Errorf("the intake got %+v", a)
			}
		})
	})
}

func TestDelayedWill(t *testing.T) {
	delayed := func(h *hello) {
		h.will, h.willProps = []string{theEvents, "will"}, []byte{propWillDelay, 0, 0, 0, 60}
		h.props = []byte{propSessionExpiry, 0, 0, 1, 0}
		h.flags = 0 // clean start off
	}
	lose := func(t *testing.T, x *bench) {
		t.Helper()
		c := x.connect(mqtt5, delayed)
		c.conn.Close()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if len(x.intake.bodies()) != 0 {
			t.Fatal("before its delay has passed")
		}
	}
	t.Run("after its delay", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, x *bench) {
			lose(t, x)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if got := x.intake.bodies(); !slices.Equal(got, []string{"will"}) {
				t.Errorf("the intake got %q", got)
			}
		})
	})
	t.Run("called off by the client's return", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, x *bench) {
			lose(t, x)
			c := x.connect(mqtt5, delayed)
			c.send([]byte{0xE0, 0})
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if got := x.intake.bodies(); len(got) != 0 {
				t.Errorf("the intake got %q", got)
			}
		})
	})
	t.Run("due at once when the client starts clean", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, x *bench) {
			lose(t, x)
			x.connect(mqtt5)
			if got := x.intake.bodies(); !slices.Equal(got, []string{"will"}) {
				t.Errorf("the intake got %q", got)
			}
		})
	})
	t.Run("no longer than the session", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, x *bench) {
			c := x.connect(mqtt5, delayed, func(h *hello) { h.props = nil })
			c.conn.Close()
			synctest.Wait()
			if got := x.intake.bodies(); !slices.Equal(got, []string{"will"}) {
				t.Errorf("the intake got %q", got)
			}
		})
	})
	t.Run("due at once when its session must make room", func(t *testing.T) {
		inBubble(t, Config{MaxKeptSessions: 1}, func(t *testing.T, x *bench) {
			lose(t, x)
			c := x.connect(mqtt5, delayed, func(h *hello) { h.clientID, h.user, h.will = "weir:acme:dev2", "acme:tok2", nil })
			c.conn.Close()
			synctest.Wait()
			if got := x.intake.bodies(); !slices.Equal(got, []string{"will"}) {
				t.Errorf("the intake got %q", got)
			}
		})
	})
}

// command publishes to the device as the platform will.
func (x *bench) command(payload string) {
	if why := x.broker.devices.pubsub.publish(&message{topic: theCommands, payload: []byte(payload), qos: 1}); why != "" {
		x.t.Error(why)
	}
}

func TestSubscriptionOutlivesTheConnection(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		stay := func(h *hello) {
			h.flags = 0
			if v == mqtt5 {
				h.props = []byte{propSessionExpiry, 0, 0, 1, 0} // 256 s
			}
		}
		c := x.connect(v, stay)
		c.send(subscribePacket(v, 3, theCommands))
		synctest.Wait()
		c.conn.Close()
		synctest.Wait()
		x.command("nobody is there")
		time.Sleep(4 * time.Minute)

		c = x.dial(v)
		c.send(connectPacket(v, stay))
		synctest.Wait()
		connack := c.take()
		if len(connack) != 1 || connack[0][2]&1+connack[0][3]&1 == 0 {
			t.Fatalf("CONNACK % x says no session", connack)
		}
		x.command("hello")
		synctest.Wait()
		got := c.take()
		if len(got) != 1 || got[0][0] != 0x32 || !bytes.HasSuffix(got[0], []byte("hello")) {
			t.Fatalf("received % x, want one command", got)
		}
		c.send([]byte{0xE0, 0})
		synctest.Wait()

		c = x.connect(v) // a clean start
		x.command("nobody listens")
		c.expect("not subscribed")
		c.send([]byte{0xE0, 0})
		synctest.Wait()
		if n := x.broker.devices.pubsub.away.Len(); n != 0 {
			t.Errorf("%d sessions kept after a clean one", n)
		}

		c = x.connect(v, stay)
		c.send(subscribePacket(v, 3, theCommands))
		synctest.Wait()
		c.send(packet(pktUnsubscribe<<4|2, slices.Concat([]byte{0, 9}, make([]byte, v-4), str(theCommands))...))
		synctest.Wait()
		c.conn.Close()
		time.Sleep(5 * time.Minute)
		if v == mqtt5 {
			c = x.dial(v)
			c.send(connectPacket(v, stay))
			synctest.Wait()
			if got := c.take()[0]; got[2]&1 != 0 {
				t.Error("a session that has expired was resumed")
			}
		}
	})
}

// MQTT 5 lets a client change its mind about its session when it leaves.
func TestDisconnectMayChangeTheSessionsLife(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  []byte
		kept int
	}{
		{"as it was", []byte{0xE0, 0}, 1},
		{"not at all", []byte{0xE0, 7, 0, 5, propSessionExpiry, 0, 0, 0, 0}, 0},
		{"longer", []byte{0xE0, 7, 0, 5, propSessionExpiry, 0xff, 0xff, 0xff, 0xff}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, x *bench) {
				c := x.connect(mqtt5, func(h *hello) { h.props = []byte{propSessionExpiry, 0, 0, 0, 10} })
				c.send(tc.end)
				c.expect("a goodbye")
				if n := x.broker.devices.pubsub.away.Len(); n != tc.kept {
					t.Errorf("%d sessions kept", n)
				}
				if got := x.intake.transitions(); got != "CONNECTED connected, DISCONNECTED disconnected" {
					t.Error(got)
				}
			})
		})
	}
}

func TestKeptSessionsAreBounded(t *testing.T) {
	inBubble(t, Config{MaxKeptSessions: 2}, func(t *testing.T, x *bench) {
		stay := func(h *hello) { h.flags = 0 }
		for i := range 5 {
			dev := fmt.Sprintf("d%d", i)
			x.verifier.proofs[Claim{Tenant: "acme", Type: AccessToken, ID: dev}] = Proof{Binding: model.Binding{Tenant: "acme", Device: dev, DeviceID: int64(50 + i)}}
			c := x.connect(mqtt311, stay, func(h *hello) { h.clientID, h.user = "weir:acme:"+dev, "acme:"+dev })
			c.send([]byte{0xE0, 0})
			synctest.Wait()
		}
		for i := range 3 { // any number of suffixes, no session
			c := x.connect(mqtt311, stay, func(h *hello) { h.clientID = fmt.Sprintf("%s:%d", theClient, i) })
			c.send([]byte{0xE0, 0})
			synctest.Wait()
		}
		if n := x.broker.devices.pubsub.away.Len(); n != 2 || counted(t, x.broker.metrics.keptEvicted) != 3 {
			t.Errorf("%d sessions kept, %v evicted", n, counted(t, x.broker.metrics.keptEvicted))
		}
	})
}

// With a receive maximum of 1 and commands under way, publishes and subscriptions of the same identifiers must not notice.
func TestBothDirectionsHaveTheirOwnIdentifiers(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		c := x.connect(v, func(h *hello) {
			if v == mqtt5 {
				h.props = []byte{propReceiveMaximum, 0, 1}
			}
		})
		c.send(subscribePacket(v, 1, theCommands))
		synctest.Wait()
		c.take()
		x.command("one")
		synctest.Wait()
		if got := c.take(); len(got) != 1 || !bytes.HasSuffix(got[0], []byte("one")) {
			t.Fatalf("received % x", got)
		}
		if !slices.Equal(x.inflight(theClient), []uint16{1}) {
			t.Fatal("the command has another number than this test expects")
		}
		c.send(publishPacket(v, qos1, theEvents, 1, "{}"))
		c.expect("a publish with the number of the command", puback(1))
		if !slices.Equal(x.inflight(theClient), []uint16{1}) {
			t.Error("the publish took the command with it")
		}
		c.send(subscribePacket(v, 1, theCommands))
		want := []byte{0, 1, 1}
		if v == mqtt5 {
			want = []byte{0, 1, 0, 1}
		}
		c.expect("a SUBSCRIBE with the number of the command", packet(0x90, want...))
		c.send(puback(1))
		synctest.Wait()
		if len(x.inflight(theClient)) != 0 {
			t.Error("the device's PUBACK did not end the command")
		}
		for i := range 20 { // more than the receive maximum
			x.command("next")
			synctest.Wait()
			if got := c.take(); len(got) != 1 {
				t.Fatalf("command %d: received % x", i, got)
			} else {
				at := 2 + 2 + len(theCommands)
				c.send([]byte{0x40, 2, got[0][at], got[0][at+1]})
			}
		}
	})
}

func TestRepliesDoNotEchoUserProperties(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		user := slices.Concat([]byte{propUser}, str("k"), str("v"))
		c := x.connect(mqtt5)
		c.send(packet(0x32, slices.Concat(str(theEvents), []byte{0, 1, byte(len(user))}, user, []byte("{}"))...))
		c.expect("PUBACK", puback(1))
		c.send(packet(0x32, slices.Concat(str("x"), []byte{0, 2, byte(len(user))}, user, []byte("{}"))...))
		c.expect("refusal", pubackReason(2, codeNotAuthorized, "not the topic of this connection's device: it sends events to "+theEvents))
		c.send(packet(0x82, slices.Concat([]byte{0, 3, byte(len(user))}, user, str(theCommands), []byte{0})...))
		c.expect("SUBACK", packet(0x90, 0, 3, 0, 0))
	})
}

func TestReasonsRespectTheClientsWishes(t *testing.T) {
	refuse := func(*ingest.Arrival) ingest.Answer {
		return ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonUndecodable, Text: "because of what it says"}
	}
	for name, props := range map[string][]byte{"no problem information": {propRequestProblemInfo, 0}, "small packets": {propMaximumPacketSize, 0, 0, 0, 12}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, x *bench) {
				x.intake.answer = refuse
				var c *client
				if name == "small packets" { // smaller than a CONNACK: the session is set up as if it had been larger
					c = x.connect(mqtt5, func(h *hello) { h.props = []byte{propMaximumPacketSize, 0, 0, 0, 60} })
					x.broker.devices.pubsub.live()[0].maxPacket = 12
				} else {
					c = x.connect(mqtt5, func(h *hello) { h.props = props })
				}
				c.send(publishPacket(mqtt5, qos1, theEvents, 1, "x"))
				c.expect("refused", []byte{0x40, 3, 0, 1, codePayloadInvalid})
			})
		})
	}
}

// Nothing of a connection may stay behind: sessions, subscriptions, goroutines (the bubble would not end).
func TestNothingIsLeftOfAConnection(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		for range 10 {
			c := x.connect(v)
			c.send(subscribePacket(v, 1, theCommands), publishPacket(v, qos1, theEvents, 2, "{}"))
			synctest.Wait()
			c.conn.Close()
			synctest.Wait()
		}
		if n, m := x.broker.Connections(), len(x.broker.devices.pubsub.sessions); n != 0 || m != 0 {
			t.Errorf("%d connections, %d sessions", n, m)
		}
		if p := counted(t, x.broker.metrics.pendingAcks); p != 0 {
			t.Errorf("%v acknowledgements pending", p)
		}
		if p := x.broker.devices.pubsub; p.subscriptions != 0 || p.tree.nodes != 0 {
			t.Errorf("%d subscriptions, %d nodes", p.subscriptions, p.tree.nodes)
		}
	})
}

func TestServeEndsWithItsContextAndConnectionsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBench(t, Config{}, nil)
		c := x.connect(mqtt5)
		second, ctx := pipes{fixture.NewPipes(0)}, context.Background()
		ctx, cancel := context.WithCancel(ctx)
		served := make(chan error)
		go func() { served <- x.broker.Serve(ctx, second) }()
		synctest.Wait()
		d := attach(t, second.dial(), mqtt311)
		d.send(connectPacket(mqtt311, func(h *hello) { h.clientID, h.user = "weir:acme:dev2", "acme:tok2" }))
		d.expect("on the second listener", []byte{0x20, 2, 0, 0})
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if c.isClosed() || d.isClosed() {
			t.Error("connections went with the listener")
		}
		x.stop()
		c.expectClosed("Close")
		d.expectClosed("Close")
		if err := x.broker.Serve(context.Background(), pipes{fixture.NewPipes(0)}); err == nil {
			t.Error("a closed broker serves")
		}
	})
}

func TestConnectDuringCloseIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBench(t, Config{}, nil)
		x.verifier.hook = func() { time.Sleep(time.Second) }
		c := x.dial(mqtt5)
		c.send(connectPacket(mqtt5))
		synctest.Wait()
		x.stop()
		c.expect("while it was verified", []byte{0x20, 3, 0, codeShuttingDown, 0})
		c.expectClosed("Close")
	})
}

// On a real socket the last word arrives although the client has sent more than was read.
func TestLastWordArrivesOverTCP(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(Config{InstanceID: "weir"}, Deps{Intake: &fakeIntake{}, Verifier: knownDevices()})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = b.Serve(context.Background(), ln) }()
	defer func() { _ = b.Close(context.Background()) }()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = conn.Write(slices.Concat(connectPacket(mqtt5), publishPacket(mqtt5, qos1, theEvents, 1, "{}"),
		publishPacket(mqtt5, qos2, theEvents, 2, "{}"), make([]byte, 16<<10)))
	var got bytes.Buffer
	_, err = got.ReadFrom(conn)
	want := hex.EncodeToString(slices.Concat(puback(1), disconnect(codeQoSNotSupported)))
	if err != nil || got.Len() < 8 || hex.EncodeToString(got.Bytes()[got.Len()-7:]) != want {
		t.Errorf("received % x, %v", got.Bytes(), err)
	}
	conformance.Shown(t, "S2-024")
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	deps := Deps{Intake: &fakeIntake{}, Verifier: knownDevices()}
	if _, err := New(Config{InstanceID: "we ir"}, deps); err == nil {
		t.Error("an instance id that is no token")
	}
	if _, err := New(Config{InstanceID: "weir"}, Deps{Intake: deps.Intake}); err == nil {
		t.Error("no verifier")
	}
}
