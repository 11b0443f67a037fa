package broker

import (
	"errors"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"weir/ingest"
)

// Each fault of the library that the guard stands before has a test here, in two halves: bare, without a guard, the
// library still has it, so that an upgrade that mends it is noticed and the guard can go; behind the guard it does not show.

// bare is the library alone, everything allowed, with hooks of the test's.
type bare struct {
	t      testing.TB
	server *mqtt.Server
}

func bareMochi(t testing.TB, set func(*mqtt.Capabilities), hooks ...mqtt.Hook) *bare {
	caps := mqtt.NewDefaultServerCapabilities()
	if set != nil {
		set(caps)
	}
	s := mqtt.New(&mqtt.Options{Capabilities: caps, Logger: slog.New(slog.DiscardHandler), InlineClient: true})
	if len(hooks) == 0 {
		hooks = append(hooks, &bareHook{})
	}
	for _, h := range hooks {
		if err := s.AddHook(h, nil); err != nil {
			t.Fatal(err)
		}
	}
	return &bare{t, s}
}

// bareHook lets everybody in and asks the test about the rest; each has an id of its own.
type bareHook struct {
	mqtt.HookBase
	id      string
	acl     func(topic string, write bool) bool
	publish func(cl *mqtt.Client, pk packets.Packet) error
}

func (h *bareHook) ID() string { return "bare" + h.id }

func (h *bareHook) Provides(b byte) bool {
	return b == mqtt.OnConnectAuthenticate || b == mqtt.OnACLCheck || b == mqtt.OnPublish
}

func (h *bareHook) OnConnectAuthenticate(*mqtt.Client, packets.Packet) bool { return true }

func (h *bareHook) OnACLCheck(_ *mqtt.Client, topic string, write bool) bool {
	return h.acl == nil || h.acl(topic, write)
}

func (h *bareHook) OnPublish(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	if h.publish == nil {
		return pk, nil
	}
	return pk, h.publish(cl, pk)
}

// connect opens a connection to the library. A panic of its goroutine is what went wrong with it.
func (b *bare) connect(v byte, options ...func(*hello)) (c *client, panicked <-chan any) {
	b.t.Helper()
	ln, died := newPipeListener(), make(chan any, 1)
	go func() {
		defer func() { died <- recover() }()
		conn, err := ln.Accept()
		if err == nil {
			defer conn.Close()
			_ = b.server.EstablishConnection("bare", conn)
		}
	}()
	c = attach(b.t, ln.dial(), v)
	c.send(connectPacket(v, options...))
	synctest.Wait()
	return c, died
}

// open is connect for a connection that is accepted.
func (b *bare) open(v byte, options ...func(*hello)) *client {
	b.t.Helper()
	c, _ := b.connect(v, options...)
	if got := c.take(); len(got) != 1 || got[0][0] != pktConnack<<4 || got[0][3] != 0 {
		b.t.Fatalf("the library answers % x", got)
	}
	return c
}

// stop ends the connections; the library's own Close waits for listeners that were never started.
func (b *bare) stop(clients ...*client) {
	for _, c := range clients {
		c.conn.Close()
		<-c.read
	}
	for _, cl := range b.server.Clients.GetAll() {
		cl.Stop(nil)
	}
}

func inBareBubble(t *testing.T, test func(*testing.T)) { t.Helper(); synctest.Test(t, test) }

const gone = "the library does not have this fault any more: look whether its guard can go"

func TestMochiFault_AnErrorOfOnPublishIsAcknowledged(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]error{"plain": errors.New("not stored"), "a code": packets.ErrQuotaExceeded} {
		inBareBubble(t, func(t *testing.T) {
			b := bareMochi(t, nil, &bareHook{publish: func(*mqtt.Client, packets.Packet) error { return fault }})
			c := b.open(mqtt311)
			c.send(publishPacket(mqtt311, qos1, theEvents, 1, "{}"))
			synctest.Wait()
			if got := c.take(); len(got) != 1 || got[0][0] != 0x40 {
				t.Errorf("%s: % x: %s", name, got, gone)
			}
			b.stop(c)
		})
	}
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		x.gate.answer = func(*ingest.Arrival) ingest.Answer { return ingest.Answer{Outcome: ingest.Withheld} }
		c := x.connect(v)
		c.send(publishPacket(v, qos1, theEvents, 1, "{}"))
		c.expectEnd(codeServerBusy)
	})
}

func TestMochiFault_QoS2IsRefusedWithAPuback(t *testing.T) {
	t.Parallel()
	inBareBubble(t, func(t *testing.T) {
		b := bareMochi(t, nil, &bareHook{publish: func(*mqtt.Client, packets.Packet) error { return packets.ErrQuotaExceeded }})
		c := b.open(mqtt5)
		c.send(publishPacket(mqtt5, qos2, theEvents, 1, "{}"))
		synctest.Wait()
		if got := c.take(); len(got) != 1 || got[0][0] != 0x40 {
			t.Errorf("% x: %s", got, gone)
		}
		b.stop(c)
	})
	inBubble(t, Config{AllowQoS2: true}, func(t *testing.T, x *bench) {
		x.gate.answer = func(*ingest.Arrival) ingest.Answer {
			return ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonCeiling}
		}
		c := x.connect(mqtt5)
		c.send(publishPacket(mqtt5, qos2, theEvents, 1, "{}"))
		c.expect("refused", []byte{0x50, 3, 0, 1, codeQuotaExceeded})
	})
}

func TestMochiFault_MaximumQoSLowersAPublishInSilence(t *testing.T) {
	t.Parallel()
	inBareBubble(t, func(t *testing.T) {
		b := bareMochi(t, func(c *mqtt.Capabilities) { c.MaximumQos = 1 })
		c := b.open(mqtt5)
		c.send(publishPacket(mqtt5, qos2, theEvents, 1, "{}"))
		synctest.Wait()
		if got := c.take(); len(got) != 1 || got[0][0] != 0x40 {
			t.Errorf("% x: %s", got, gone)
		}
		b.stop(c)
	})
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		c := x.connect(v)
		c.send(publishPacket(v, qos2, theEvents, 1, "{}"))
		c.expectEnd(codeQoSNotSupported)
		x.expectStored()
	})
}

func TestMochiFault_ACopyLosesItsPacketIdentifier(t *testing.T) {
	t.Parallel()
	pk := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: 1}, PacketID: 7}
	if pk.Copy(false).PacketID != 0 {
		t.Error(gone)
	}
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		c := x.connect(v)
		c.send(publishPacket(v, qos1, theEvents, 7, "{}"))
		c.expect("its own", puback(7))
		if id := x.gate.seenArrivals()[0].PacketID; id != 7 {
			t.Errorf("the gate is told %d", id)
		}
	})
}

func TestMochiFault_ASubscribeOfSevenBytesPanics(t *testing.T) {
	t.Parallel()
	seven := []byte{0x82, 5, 0, 1, 0, 0, 0}
	inBareBubble(t, func(t *testing.T) {
		b := bareMochi(t, nil)
		c, panicked := b.connect(mqtt5)
		c.send(seven)
		if <-panicked == nil {
			t.Error(gone)
		}
		b.stop(c)
	})
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		other := x.connect(mqtt5, func(h *hello) { h.clientID = theClient + ":other" })
		c := x.connect(mqtt5)
		c.send(seven)
		c.expectEnd(codeMalformed)
		other.send(pingreq)
		other.expect("whoever else is there", pingresp)
		if counted(t, x.broker.metrics.panics) != 0 {
			t.Error("panicked")
		}
	})
}

func TestMochiFault_NobodyIsToldToSayCONNECT(t *testing.T) {
	t.Parallel()
	inBareBubble(t, func(t *testing.T) {
		b, ln := bareMochi(t, nil), newPipeListener()
		go func() {
			conn, _ := ln.Accept()
			_ = b.server.EstablishConnection("bare", conn)
			conn.Close()
		}()
		c := attach(t, ln.dial(), mqtt5)
		time.Sleep(time.Hour)
		synctest.Wait()
		if c.isClosed() {
			t.Error(gone)
		}
		b.stop(c)
	})
	inBubble(t, Config{ConnectTimeout: 3 * time.Second}, func(t *testing.T, x *bench) {
		c := x.dial(mqtt5)
		time.Sleep(2900 * time.Millisecond)
		synctest.Wait()
		if c.isClosed() {
			t.Error("too early")
		}
		time.Sleep(200 * time.Millisecond)
		c.expectClosed("no CONNECT")
	})
}

// allocated is what f allocates in bytes, and whatever else runs meanwhile: its test is not parallel.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

func TestMochiFault_AStrangersWordForALengthIsBelieved(t *testing.T) {
	huge := []byte{0x10, 0xff, 0xff, 0x7f} // a CONNECT of 2 MiB of which nothing follows
	b := bareMochi(t, nil)
	half := func() *halfConn { return &halfConn{Reader: strings.NewReader(string(huge))} }
	if n := allocated(func() { _ = b.server.EstablishConnection("bare", half()) }); n < 1<<21 {
		t.Errorf("%d bytes: %s", n, gone)
	}
	x, err := New(Config{InstanceID: "weir", MaxConnectPacket: 1 << 20, MaxPacket: 1 << 22}, Deps{Gate: &fakeGate{}, Verifier: knownDevices()})
	if err != nil {
		t.Fatal(err)
	}
	for _, packet := range [][]byte{huge, {0x10, 0xff, 0xff, 0x3f}} { // over the limit and just below it
		if n := allocated(func() { x.handle(&halfConn{Reader: strings.NewReader(string(packet))}, &Listener{}) }); n > 64<<10 {
			t.Errorf("%d bytes for the word of a stranger", n)
		}
	}
}

func TestMochiFault_ALongKeepAliveWraps(t *testing.T) {
	t.Parallel()
	inBareBubble(t, func(t *testing.T) {
		b := bareMochi(t, nil)
		c := b.open(mqtt5, func(h *hello) { h.keepAlive = 50_000 }) // one and a half of it is 75,000; in 16 bits 9,464
		time.Sleep(10_000 * time.Second)
		synctest.Wait()
		if !c.isClosed() {
			t.Error(gone)
		}
		b.stop(c)
	})
	inBubble(t, Config{MaxKeepAlive: 20 * time.Hour, MaxSession: 40 * time.Hour}, func(t *testing.T, x *bench) {
		c, connack := x.connack(mqtt5, func(h *hello) { h.keepAlive = 50_000 })
		if !strings.Contains(string(connack), string(prop16(19, maxKeepAlive))) {
			t.Errorf("told % x, want a keep-alive of %d", connack, maxKeepAlive)
		}
		time.Sleep(maxKeepAlive * 1499 * time.Millisecond)
		synctest.Wait()
		if c.isClosed() {
			t.Error("closed early")
		}
	})
}

func TestMochiFault_TheSendQuotaLeaks(t *testing.T) {
	t.Parallel()
	// rounds has two commands under way, acknowledges whatever comes, and says how many of sixty came.
	rounds := func(c *client, command func(string)) (n int) {
		for range 30 {
			command("one")
			command("two")
			synctest.Wait()
			for range 4 { // an acknowledgement may let the next one go
				for _, p := range c.take() {
					if p[0]>>4 == pktPublish {
						n++
						at := 4 + len(theCommands)
						c.send([]byte{0x40, 2, p[at], p[at+1]})
					}
				}
				synctest.Wait()
			}
		}
		return n
	}
	receivesTwo := func(h *hello) { h.props = prop16(propReceiveMaximum, 2) }
	inBareBubble(t, func(t *testing.T) {
		b := bareMochi(t, nil)
		c := b.open(mqtt5, receivesTwo)
		c.send(subscribePacket(mqtt5, 100, theCommands))
		synctest.Wait()
		c.take()
		// More than the quota at once, which is what a busy topic does; from then on it is short.
		n := 0
		for range 30 {
			n = rounds(c, func(p string) {
				for range 3 {
					_ = b.server.Publish(theCommands, []byte(p), false, 1)
				}
			})
		}
		if n == 180 {
			t.Error(gone)
		}
		b.stop(c)
	})
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		c := x.connect(mqtt5, receivesTwo)
		c.send(subscribePacket(mqtt5, 100, theCommands))
		synctest.Wait()
		c.take()
		if n := rounds(c, x.command); n != 60 {
			t.Errorf("%d commands of 60 came", n)
		}
		// Without a quota it never looks for the next message under a lock that it takes twice, which can block for ever.
		cl, _ := x.broker.server.Clients.Get(theClient)
		for _, field := range []string{"sendQuota", "maximumSendQuota"} {
			if n := reflect.ValueOf(cl.State.Inflight).Elem().FieldByName(field).Int(); n != 0 {
				t.Errorf("%s is %d", field, n)
			}
		}
	})
}

func TestMochiFault_ASlowSubscriberStallsPublishers(t *testing.T) {
	t.Parallel()
	inBareBubble(t, func(t *testing.T) {
		b, ln := bareMochi(t, nil), newPipeListener()
		go func() {
			conn, _ := ln.Accept()
			_ = b.server.EstablishConnection("bare", conn)
			conn.Close()
		}()
		slow := deafen(t, ln, mqtt311)
		_ = b.server.Publish(theCommands, []byte("cmd"), false, 1)
		synctest.Wait() // its writer waits for the reader, with the lock that the next message to it needs
		if cl, _ := b.server.Clients.Get(theClient); cl.TryLock() {
			t.Error(gone)
			cl.Unlock()
		}
		slow.Close()
		synctest.Wait()
		b.stop()
	})
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		slow := deafen(t, x.ln, v)
		cl, _ := x.broker.server.Clients.Get(theClient)
		x.command("cmd")
		synctest.Wait()
		if cl.TryLock() {
			t.Fatal("nothing is being written")
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if !cl.TryLock() {
			t.Fatal("a reader that does not read holds up whoever writes to it")
		}
		cl.Unlock()
		if n := counted(t, x.broker.metrics.disconnects.WithLabelValues(causeSlowReader.word)); n != 1 {
			t.Errorf("%v counted as slow readers", n)
		}
		slow.Close()
	})
}

func TestMochiFault_AnOfflineBacklogComesInAnyOrder(t *testing.T) {
	t.Parallel()
	shuffled := false
	for range 20 {
		backlog := mqtt.NewInflights()
		for id := range uint16(100) {
			backlog.Set(packets.Packet{PacketID: id + 1, Created: 5}) // all of one second
		}
		all := backlog.GetAll(false)
		shuffled = shuffled || !slices.IsSortedFunc(all, func(a, b packets.Packet) int { return int(a.PacketID) - int(b.PacketID) })
	}
	if !shuffled {
		t.Error(gone)
	}
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) { // there is none: the library keeps nothing for who is away
		c := x.connect(v, stays(v))
		c.send(subscribePacket(v, 1, theCommands))
		c.expect("subscribed", subackPacket(v, 1, 1))
		c.conn.Close()
		synctest.Wait()
		for range 10 {
			x.command("cmd")
		}
		c, _ = x.connack(v, stays(v))
		c.expect("nothing waits")
		x.command("live")
		if got := c.received(qos1); !slices.Equal(got, []string{"live"}) {
			t.Errorf("received %q", got)
		}
	})
}

func TestMochiFault_AWillBypassesEverything(t *testing.T) {
	t.Parallel()
	const foreign = "weir/acme/devices/dev2/events"
	inBareBubble(t, func(t *testing.T) {
		asked := 0
		b := bareMochi(t, nil, &bareHook{acl: func(_ string, write bool) bool { return !write },
			publish: func(*mqtt.Client, packets.Packet) error { asked++; return nil }})
		other := b.open(mqtt311, func(h *hello) { h.clientID = "other" })
		other.send(subscribePacket(mqtt311, 1, foreign))
		synctest.Wait()
		other.take()
		c := b.open(mqtt311, func(h *hello) { h.will = []string{foreign, "will"} })
		c.conn.Close()
		synctest.Wait()
		if got := other.take(); asked > 0 || len(got) != 1 || !strings.HasSuffix(string(got[0]), "will") {
			t.Errorf("asked %d times, delivered % x: %s", asked, got, gone)
		}
		b.stop(c, other)
	})
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		answer := []byte{0x20, 2, 0, 5}
		if v == mqtt5 {
			answer = refusedConnack(codeNotAuthorized)
		}
		x.expectRefused(v, connectPacket(v, func(h *hello) { h.will = []string{foreign, "will"} }), answer...)
		x.connect(v, leaves(v, 0, 0)).conn.Close()
		x.expectStored("will") // by the gate
	})
}

func TestMochiFault_AnAliasShowsTheACLNoTopic(t *testing.T) {
	t.Parallel()
	setAlias := publishWith(qos1, theEvents, 1, props(prop16(propTopicAlias, 1)), "{}")
	byAlias := publishWith(qos1, "", 2, props(prop16(propTopicAlias, 1)), "{}")
	inBareBubble(t, func(t *testing.T) {
		var topics []string
		b := bareMochi(t, nil, &bareHook{acl: func(topic string, _ bool) bool { topics = append(topics, topic); return true }})
		c := b.open(mqtt5)
		c.send(setAlias, byAlias)
		synctest.Wait()
		if !slices.Contains(topics, "") {
			t.Errorf("asked about %q: %s", topics, gone)
		}
		b.stop(c)
	})
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		for _, p := range [][]byte{setAlias, byAlias} {
			c := x.connect(mqtt5)
			c.send(p)
			c.expectEnd(codeTopicAliasInvalid)
		}
		x.expectStored()
	})
}

func TestMochiFault_OneHookThatAllowsIsEnough(t *testing.T) {
	t.Parallel()
	inBareBubble(t, func(t *testing.T) {
		deny := func(string, bool) bool { return false }
		b := bareMochi(t, nil, &bareHook{id: "1", acl: deny}, &bareHook{id: "2"})
		c := b.open(mqtt5)
		c.send(subscribePacket(mqtt5, 1, "secret"))
		c.expect("allowed by one of two: "+gone, subackPacket(mqtt5, 1, 1))
		b.stop(c)
	})
	inBubble(t, Config{}, func(t *testing.T, x *bench) { // there is one hook, and it allows one filter
		c := x.connect(mqtt5)
		c.send(subscribePacket(mqtt5, 1, "secret"))
		c.expect("refused", subackPacket(mqtt5, 1, codeNotAuthorized))
	})
}

func TestMochiFault_AcknowledgementsEchoTheClientsProperties(t *testing.T) {
	t.Parallel()
	user := props(propText(propUser, "k", "v"))
	inBareBubble(t, func(t *testing.T) {
		b := bareMochi(t, nil)
		c := b.open(mqtt5)
		c.send(subscribeWith(1, user, "a", 0))
		synctest.Wait()
		if got := c.take(); len(got) != 1 || !strings.Contains(string(got[0]), string(user)) {
			t.Errorf("% x: %s", got, gone)
		}
		b.stop(c)
	})
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		c := x.connect(mqtt5)
		c.send(subscribeWith(1, user, theCommands, 0), publishWith(qos1, theEvents, 2, user, "{}"))
		synctest.Wait()
		got := c.take()
		slices.SortFunc(got, slices.Compare)
		if want := [][]byte{puback(2), subackPacket(mqtt5, 1, 0)}; !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("answered % x", got)
		}
	})
}

func TestMochiFault_AnAuthenticationMethodIsPassedOver(t *testing.T) {
	t.Parallel()
	asks := func(h *hello) { h.props = propText(21, "SCRAM-SHA-256") }
	inBareBubble(t, func(t *testing.T) {
		b := bareMochi(t, nil)
		b.stop(b.open(mqtt5, asks)) // it is let in
	})
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		x.expectRefused(mqtt5, connectPacket(mqtt5, asks), refusedConnack(codeBadAuthMethod)...)
	})
}

func TestMochiFault_TheProtocolBefore311IsSpoken(t *testing.T) {
	t.Parallel()
	old := func(h *hello) { h.name, h.level = "MQIsdp", 3 }
	inBareBubble(t, func(t *testing.T) {
		b := bareMochi(t, nil)
		b.stop(b.open(mqtt311, old))
	})
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		x.expectRefused(mqtt311, connectPacket(mqtt311, old), 0x20, 2, 0, 1)
	})
}

func TestMochiFault_ARefusalOvertakesPubacksThatAreDue(t *testing.T) {
	t.Parallel()
	mine, foreign := publishPacket(mqtt5, qos1, theEvents, 1, "{}"), publishPacket(mqtt5, qos1, "foreign", 2, "{}")
	inBareBubble(t, func(t *testing.T) {
		b := bareMochi(t, nil, &bareHook{acl: func(topic string, _ bool) bool { return topic != "foreign" },
			publish: func(cl *mqtt.Client, pk packets.Packet) error { // stored later, acknowledged then
				time.AfterFunc(time.Second, func() {
					_ = cl.WritePacket(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Puback}, PacketID: pk.PacketID})
				})
				return packets.ErrRejectPacket
			}})
		c := b.open(mqtt5)
		c.send(mine, foreign)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := c.take(); len(got) != 2 || got[0][3] != 2 || got[1][3] != 1 {
			t.Errorf("% x: %s", got, gone)
		}
		b.stop(c)
	})
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		x.gate.hold = true
		c := x.connect(mqtt5)
		c.send(mine, foreign)
		c.expect("while the first is open")
		x.gate.settle(0, ingest.Answer{})
		c.expect("in order", puback(1), pubackReason(2, codeNotAuthorized, reasonText(ingest.ReasonNotAuthorized)))
	})
}

func TestMochiFault_APublishTakesTheCommandOfItsNumberWithIt(t *testing.T) {
	t.Parallel()
	inBareBubble(t, func(t *testing.T) {
		b := bareMochi(t, nil)
		c := b.open(mqtt5)
		c.send(subscribePacket(mqtt5, 9, theCommands))
		synctest.Wait()
		_ = b.server.Publish(theCommands, []byte("cmd"), false, 1)
		synctest.Wait()
		cl, _ := b.server.Clients.Get(theClient)
		id := cl.State.Inflight.GetAll(false)[0].PacketID
		c.send(publishPacket(mqtt5, qos1, theEvents, id, "{}"))
		synctest.Wait()
		if cl.State.Inflight.Len() != 0 {
			t.Error(gone)
		}
		c.send(subscribePacket(mqtt5, 9, theCommands))
		synctest.Wait()
		b.stop(c)
	})
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		c := x.connect(v)
		c.send(subscribePacket(v, 9, theCommands))
		c.expect("subscribed", subackPacket(v, 9, 1))
		x.command("cmd")
		synctest.Wait()
		c.take()
		cl, _ := x.broker.server.Clients.Get(theClient)
		id := cl.State.Inflight.GetAll(false)[0].PacketID
		c.send(publishPacket(v, qos1, theEvents, id, "{}"))
		c.expect("stored", puback(byte(id)))
		c.send(subscribePacket(v, id, theCommands))
		c.expect("and a SUBSCRIBE of that number is not in use", subackPacket(v, id, 1))
		if cl.State.Inflight.Len() != 1 {
			t.Error("the command is gone")
		}
	})
}

func TestMochiFault_ADisconnectOfOneByteKeepsItsReasonToItself(t *testing.T) {
	t.Parallel()
	inBareBubble(t, func(t *testing.T) {
		b := bareMochi(t, nil)
		other := b.open(mqtt311, func(h *hello) { h.clientID = "other" })
		other.send(subscribePacket(mqtt311, 1, theEvents))
		synctest.Wait()
		other.take()
		c := b.open(mqtt5, func(h *hello) { h.will = []string{theEvents, "will"} })
		c.send([]byte{0xE0, 1, 4}) // with will
		synctest.Wait()
		if got := other.take(); len(got) > 0 {
			t.Errorf("% x: %s", got, gone)
		}
		b.stop(c, other)
	})
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		x.connect(mqtt5, leaves(mqtt5, 0, 0)).send([]byte{0xE0, 1, 4})
		x.expectStored("will")
	})
}

func TestMochiFault_EveryMessageGetsAnExpiry(t *testing.T) {
	t.Parallel()
	inBareBubble(t, func(t *testing.T) {
		b := bareMochi(t, nil)
		c := b.open(mqtt5)
		c.send(subscribePacket(mqtt5, 1, theCommands))
		synctest.Wait()
		c.take()
		_ = b.server.Publish(theCommands, []byte("cmd"), false, 0)
		synctest.Wait()
		if got := c.take(); len(got) != 1 || !strings.Contains(string(got[0]), string(props(prop32(2, 86400)))) {
			t.Errorf("% x: %s", got, gone)
		}
		b.stop(c)
	})
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		c := x.connect(mqtt5)
		c.send(subscribePacket(mqtt5, 1, theCommands))
		c.expect("subscribed", subackPacket(mqtt5, 1, 1))
		x.command("cmd")
		if got := c.received(qos1); !slices.Equal(got, []string{"cmd"}) { // which looks for no properties
			t.Errorf("received %q", got)
		}
	})
}

func TestMochiFault_LengthsHaveNoEnd(t *testing.T) {
	t.Parallel()
	endless := slices.Concat([]byte{0xC0}, slices.Repeat([]byte{0x80}, 40), []byte{0})
	inBareBubble(t, func(t *testing.T) {
		b := bareMochi(t, nil)
		c := b.open(mqtt5)
		c.send(endless)
		c.expect("a length of 41 bytes: "+gone, pingresp)
		b.stop(c)
	})
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		c := x.connect(v)
		c.send(endless)
		c.expectEnd(codeMalformed)
	})
}

func TestMochiFault_APropertyReachesPastItsSection(t *testing.T) {
	t.Parallel()
	reaching := publishWith(qos1, theEvents, 1, slices.Concat([]byte{1}, prop32(2, 0x7b7d7b7d)), "rest")
	inBareBubble(t, func(t *testing.T) {
		b := bareMochi(t, nil)
		c := b.open(mqtt5)
		c.send(reaching)
		c.expect("a value in the payload: "+gone, puback(1))
		b.stop(c)
	})
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		c := x.connect(mqtt5)
		c.send(reaching)
		c.expectEnd(codeMalformed)
		x.expectStored()
	})
}

// Its stores commit each event by itself and only log what fails, and its authentication brings a YAML library along:
// the room imports the server and its packets and nothing else of it.
func TestMochiFault_ItsHooksAreNotUsed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			if strings.HasPrefix(path, "github.com/mochi-mqtt/server/v2/hooks") || strings.HasPrefix(path, "github.com/mochi-mqtt/server/v2/config") {
				t.Errorf("%s imports %s", file, path)
			}
		}
	}
}

// halfConn is a connection of which only so many bytes ever come.
type halfConn struct {
	io.Reader
	net.Conn
}

func (c *halfConn) Read(p []byte) (int, error)       { return c.Reader.Read(p) }
func (c *halfConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c *halfConn) Close() error                     { return nil }
func (c *halfConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *halfConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *halfConn) SetDeadline(time.Time) error      { return nil }
func (c *halfConn) SetReadDeadline(time.Time) error  { return nil }
func (c *halfConn) SetWriteDeadline(time.Time) error { return nil }
