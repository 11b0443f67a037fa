package broker

import (
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/ingest"
)

// What follows are traps that brokers have fallen into, each with what the device sees here.

// inflight are the packet identifiers of the commands that a client has not acknowledged.
func (x *bench) inflight(clientID string) (ids []uint16) {
	p := x.broker.devices.pubsub
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.sessions[clientID].inflight {
		ids = append(ids, o.id)
	}
	return ids
}

// allocated is what f allocates in bytes, and whatever else runs meanwhile: its test is not parallel.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

func TestAPublishThatIsNotStoredIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		x.intake.answer = func(*ingest.Arrival) ingest.Answer { return ingest.Answer{Outcome: ingest.Withheld} }
		c := x.connect(v)
		c.send(publishPacket(v, qos1, theEvents, 1, "{}"))
		c.expectEnd(codeServerBusy)
	})
}

func TestQoS2IsRefusedWithAPubrec(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{Settings: Settings{AllowQoS2: true}}, func(t *testing.T, x *bench) {
		x.intake.answer = func(*ingest.Arrival) ingest.Answer {
			return ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonCeiling}
		}
		c := x.connect(mqtt5)
		c.send(publishPacket(mqtt5, qos2, theEvents, 1, "{}"))
		c.expect("refused", []byte{0x50, 3, 0, 1, codeQuotaExceeded})
	})
}

func TestAPublishOverTheMaximumQoSEndsTheConnection(t *testing.T) {
	t.Parallel()
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		c := x.connect(v)
		c.send(publishPacket(v, qos2, theEvents, 1, "{}"))
		c.expectEnd(codeQoSNotSupported)
		x.expectStored()
	})
}

func TestTheIntakeGetsThePacketIdentifier(t *testing.T) {
	t.Parallel()
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		c := x.connect(v)
		c.send(publishPacket(v, qos1, theEvents, 7, "{}"))
		c.expect("its own", puback(7))
		if id := x.intake.seenArrivals()[0].PacketID; id != 7 {
			t.Errorf("the intake gets %d", id)
		}
	})
}

func TestAConnectionWithoutACONNECTIsClosed(t *testing.T) {
	t.Parallel()
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

func TestAnAnnouncedLengthCostsNoMemory(t *testing.T) {
	huge := []byte{0x10, 0xff, 0xff, 0x7f} // a CONNECT of 2 MiB of which nothing follows
	x, err := New(Config{InstanceID: "weir", MaxConnectPacket: 1 << 20, MaxPacket: 1 << 22}, Deps{Intake: &fakeIntake{}, Verifier: knownDevices()})
	if err != nil {
		t.Fatal(err)
	}
	for _, packet := range [][]byte{huge, {0x10, 0xff, 0xff, 0x3f}} { // over the limit and just below it
		if n := allocated(func() { x.handle(&halfConn{Reader: strings.NewReader(string(packet))}, &Listener{}) }); n > 64<<10 {
			t.Errorf("%d bytes for a length that was only announced", n)
		}
	}
}

func TestALongKeepAliveIsCapped(t *testing.T) {
	t.Parallel()
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

func TestTheSendQuotaDoesNotLeak(t *testing.T) {
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
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		c := x.connect(mqtt5, receivesTwo)
		c.send(subscribePacket(mqtt5, 100, theCommands))
		synctest.Wait()
		c.take()
		if n := rounds(c, x.command); n != 60 {
			t.Errorf("%d commands of 60 came", n)
		}
	})
}

func TestASlowSubscriberIsClosedAfterTheWriteTimeout(t *testing.T) {
	t.Parallel()
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		slow := deafen(t, x.ln, v)
		began := time.Now()
		x.command("cmd") // the sender does not wait
		synctest.Wait()
		if time.Since(began) != 0 || x.broker.Connections() != 1 {
			t.Fatal("nothing is being written")
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if x.broker.Connections() != 0 {
			t.Fatal("a client that does not read is still connected")
		}
		if n := counted(t, x.broker.metrics.disconnects.WithLabelValues(causeSlowReader.word)); n != 1 {
			t.Errorf("%v counted as slow readers", n)
		}
		slow.Close()
	})
}

func TestNoCommandWaitsForAClientThatIsAway(t *testing.T) {
	t.Parallel()
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
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

func TestAWillPassesTheSameChecksAsAPublish(t *testing.T) {
	t.Parallel()
	const foreign = "weir/acme/devices/dev2/events"
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		answer := []byte{0x20, 2, 0, 5}
		if v == mqtt5 {
			answer = refusedConnack(codeNotAuthorized)
		}
		x.expectRefused(v, connectPacket(v, func(h *hello) { h.will = []string{foreign, "will"} }), answer...)
		x.connect(v, leaves(v, 0, 0)).conn.Close()
		x.expectStored("will") // by the intake
	})
}

func TestTopicAliasesAreRefused(t *testing.T) {
	t.Parallel()
	setAlias := publishWith(qos1, theEvents, 1, props(prop16(propTopicAlias, 1)), "{}")
	byAlias := publishWith(qos1, "", 2, props(prop16(propTopicAlias, 1)), "{}")
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		for _, p := range [][]byte{setAlias, byAlias} {
			c := x.connect(mqtt5)
			c.send(p)
			c.expectEnd(codeTopicAliasInvalid)
		}
		x.expectStored()
	})
}

func TestASubscriptionToAnyOtherFilterIsRefused(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		c := x.connect(mqtt5)
		c.send(subscribePacket(mqtt5, 1, "secret"))
		c.expect("refused", subackPacket(mqtt5, 1, codeNotAuthorized))
	})
}

func TestAcknowledgementsCarryNoPropertiesOfTheClient(t *testing.T) {
	t.Parallel()
	user := props(propText(propUser, "k", "v"))
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

func TestAnAuthenticationMethodIsRefused(t *testing.T) {
	t.Parallel()
	asks := func(h *hello) { h.props = propText(21, "SCRAM-SHA-256") }
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		x.expectRefused(mqtt5, connectPacket(mqtt5, asks), refusedConnack(codeBadAuthMethod)...)
	})
}

func TestTheProtocolBefore311IsRefused(t *testing.T) {
	t.Parallel()
	old := func(h *hello) { h.name, h.level = "MQIsdp", 3 }
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		x.expectRefused(mqtt311, connectPacket(mqtt311, old), 0x20, 2, 0, 1)
	})
}

func TestARefusalDoesNotOvertakePubacksThatAreDue(t *testing.T) {
	t.Parallel()
	mine, foreign := publishPacket(mqtt5, qos1, theEvents, 1, "{}"), publishPacket(mqtt5, qos1, "foreign", 2, "{}")
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		x.intake.hold = true
		c := x.connect(mqtt5)
		c.send(mine, foreign)
		c.expect("while the first is open")
		x.intake.settle(0, ingest.Answer{})
		c.expect("in order", puback(1), pubackReason(2, codeNotAuthorized, foreignTopic+": it sends events to "+theEvents))
	})
}

func TestAPublishDoesNotEndTheCommandOfItsIdentifier(t *testing.T) {
	t.Parallel()
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		c := x.connect(v)
		c.send(subscribePacket(v, 9, theCommands))
		c.expect("subscribed", subackPacket(v, 9, 1))
		x.command("cmd")
		synctest.Wait()
		c.take()
		id := x.inflight(theClient)[0]
		c.send(publishPacket(v, qos1, theEvents, id, "{}"))
		c.expect("stored", puback(byte(id)))
		c.send(subscribePacket(v, id, theCommands))
		c.expect("a SUBSCRIBE of that identifier", subackPacket(v, id, 1))
		if len(x.inflight(theClient)) != 1 {
			t.Error("the command is gone")
		}
	})
}

func TestADisconnectOfOneByteAsksForTheWill(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		x.connect(mqtt5, leaves(mqtt5, 0, 0)).send([]byte{0xE0, 1, 4})
		x.expectStored("will")
	})
}

func TestACommandGetsNoExpiry(t *testing.T) {
	t.Parallel()
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
