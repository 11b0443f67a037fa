package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/test/fixture"
	"weir/model"
)

// inOpen runs test with open topics under a clock of its own; whoever comes is let in unless cfg names a tenant.
func inOpen(t *testing.T, cfg OpenConfig, test func(*testing.T, *bench)) {
	t.Helper()
	inOpenOf(t, Config{Open: &cfg}, test)
}

func inOpenOf(t *testing.T, cfg Config, test func(*testing.T, *bench)) {
	t.Helper()
	cfg.Open.OpenTopicsAnonymous = cfg.Open.OpenTopicsTenant == ""
	synctest.Test(t, func(t *testing.T) {
		x := newBench(t, cfg, nil)
		defer x.stop()
		synctest.Wait() // the listener for devices is served
		x.ln = pipes{fixture.NewPipes(0)}
		go func() {
			if err := x.broker.ServeListener(context.Background(), x.ln, Listener{Name: "open_topics", Open: true}); err != nil {
				t.Errorf("ServeDoor: %v", err)
			}
		}()
		test(t, x)
	})
}

func forBothOpen(t *testing.T, cfg OpenConfig, test func(*testing.T, *bench, byte)) {
	for _, v := range bothVersions {
		t.Run(map[byte]string{mqtt311: "3.1.1", mqtt5: "5.0"}[v], func(t *testing.T) {
			inOpen(t, cfg, func(t *testing.T, x *bench) { test(t, x, v) })
		})
	}
}

// open opens a connection and returns it with whether there was a session.
func (x *bench) open(version byte, id string, options ...func(*hello)) (c *client, present bool) {
	x.t.Helper()
	c = x.dial(version)
	c.send(connectPacket(version, append([]func(*hello){func(h *hello) { h.clientID, h.user, h.noUser = id, "", true }}, options...)...))
	synctest.Wait()
	got := c.takeFirst()
	if len(got) < 4 || got[0] != pktConnack<<4 || got[3] != 0 {
		x.t.Fatalf("CONNACK is % x", got)
	}
	return c, got[2] == 1
}

// TestAPartOfTheProgramAtTheOpenTopics needs no socket and no credential, and gets what others publish.
func TestAPartOfTheProgramAtTheOpenTopics(t *testing.T) {
	inOpen(t, OpenConfig{OpenSettings: OpenSettings{OpenTopicsTenant: "acme"}}, func(t *testing.T, x *bench) {
		join := func(id string) *client {
			conn, err := x.broker.DialOpen()
			if err != nil {
				t.Fatal(err)
			}
			c := attach(t, conn, mqtt5)
			c.send(connectPacket(mqtt5, func(h *hello) { h.clientID, h.user, h.noUser = id, "", true }))
			synctest.Wait()
			if got := c.takeFirst(); len(got) < 4 || got[0] != pktConnack<<4 || got[3] != 0 {
				t.Fatalf("CONNACK is % x", got)
			}
			return c
		}
		reader, writer := join("reader"), join("writer")
		reader.send(subscribePacket(mqtt5, 1, "a/#"))
		synctest.Wait()
		reader.take()
		writer.send(publishPacket(mqtt5, 2, "a/b", 7, "hello"))
		synctest.Wait()
		if got := reader.take(); len(got) != 1 || !bytes.Contains(got[0], []byte("a/b")) || !bytes.HasSuffix(got[0], []byte("hello")) {
			t.Errorf("% x", got)
		}
		outside := x.dial(mqtt5) // for others the credential stays
		outside.send(connectPacket(mqtt5, func(h *hello) { h.clientID, h.user, h.noUser = "outside", "", true }))
		synctest.Wait()
		if got := outside.takeFirst(); len(got) < 4 || got[0] != pktConnack<<4 || got[3] == 0 {
			t.Errorf("CONNACK is % x", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		x := newBench(t, Config{}, nil)
		defer x.stop()
		if _, err := x.broker.DialOpen(); !errors.Is(err, ErrNoOpenTopics) {
			t.Errorf("without open topics: %v", err)
		}
	})
}

// takeFirst returns the first packet received since the last call and leaves the others.
func (c *client) takeFirst() []byte {
	all := c.take()
	if len(all) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(slices.Concat(all[1:]...), c.got...)
	return all[0]
}

func resumable(h *hello) {
	h.flags = 0
	if h.level == mqtt5 {
		h.props = append(h.props, propSessionExpiry, 0, 0, 3, 0xE8) // 1000 s
	}
}

// sub is a SUBSCRIBE of one filter with its options.
func sub(version byte, id byte, filter string, options byte, props ...byte) []byte {
	b := []byte{0, id}
	if version == mqtt5 {
		b = append(append(b, byte(len(props))), props...)
	}
	return packet(pktSubscribe<<4|2, append(append(b, str(filter)...), options)...)
}

// pub is a PUBLISH with properties, which 3.1.1 has none of.
func pub(version, flags byte, topic string, id uint16, payload string, props ...byte) []byte {
	b := str(topic)
	if flags&6 != 0 {
		b = binary.BigEndian.AppendUint16(b, id)
	}
	if version == mqtt5 {
		b = append(appendVarint(b, len(props)), props...)
	}
	return packet(pktPublish<<4|flags, append(b, payload...)...)
}

// subscribed subscribes and takes the SUBACK.
func (c *client) subscribed(filter string, options byte, props ...byte) {
	c.t.Helper()
	c.send(sub(c.version, 99, filter, options, props...))
	c.expect("SUBACK of "+filter, subackPacket(c.version, 99, options&3))
}

const retain = 1

func ack(kind byte, id byte) []byte { return []byte{kind<<4 | reservedFlags(kind), 2, 0, id} }

func TestOpenTopicsServeEveryQoS(t *testing.T) {
	for _, from := range bothVersions {
		forBothOpen(t, OpenConfig{}, func(t *testing.T, x *bench, v byte) {
			reader, _ := x.open(v, "reader")
			reader.subscribed("a/+/c", 2)
			writer, _ := x.open(from, "writer")
			writer.send(pub(from, 0, "a/b/c", 0, "zero"), pub(from, qos1, "a/b/c", 1, "one"), pub(from, qos2, "a/b/c", 2, "two"), pub(from, 0, "a/b", 0, "no"))
			writer.expect("the writer", ack(pktPuback, 1), ack(pktPubrec, 2))
			reader.expect("the reader", pub(v, 0, "a/b/c", 0, "zero"), pub(v, qos1, "a/b/c", 1, "one"), pub(v, qos2, "a/b/c", 2, "two"))
			writer.send(pub(from, qos2|dup, "a/b/c", 2, "two"))
			writer.expect("a repeat is answered", ack(pktPubrec, 2))
			reader.expect("and not handed out again (MQTT-4.3.3-10)")
			writer.send(ack(pktPubrel, 2))
			writer.expect("PUBREL", ack(pktPubcomp, 2))
			reader.send(ack(pktPuback, 1), ack(pktPubrec, 2))
			reader.expect("PUBREC", ack(pktPubrel, 2))
			reader.send(ack(pktPubcomp, 2))
			synctest.Wait()
			if m := x.broker.general.metrics; counted(t, m.queued) != 0 || counted(t, m.queuedBytes) != 0 {
				t.Errorf("%v messages of %v bytes are left", counted(t, m.queued), counted(t, m.queuedBytes))
			}
			if len(x.intake.seenArrivals()) > 0 || x.intake.counted() > 0 || len(x.intake.seenPresence()) > 0 {
				t.Error("something went to the intake")
			}
		})
	}
}

// The QoS of a delivery is the lower one of the publish and the subscription (MQTT-3.8.4-8).
func TestOpenTopicsLowerTheQoS(t *testing.T) {
	forBothOpen(t, OpenConfig{}, func(t *testing.T, x *bench, v byte) {
		for q := range byte(3) {
			r, _ := x.open(v, fmt.Sprint("r", q))
			r.subscribed("t", q)
			w, _ := x.open(v, "w")
			for p := range byte(3) {
				w.send(pub(v, p<<1, "t", uint16(p)+1, "x"))
				synctest.Wait()
				id := uint16(0)
				if got := r.take(); len(got) != 1 || got[0][0]>>1&3 != min(p, q) {
					t.Errorf("published at %d, subscribed at %d: % x, %d", p, q, got, id)
				}
			}
		}
	})
}

func TestOpenTopicsMatch(t *testing.T) {
	for filter, topics := range map[string]struct{ yes, no string }{
		"a/b":         {"a/b", "a a/b/c b /a/b A/b"},
		"a/+":         {"a/b a/ a/$x", "a a/b/c"},
		"+/b":         {"a/b /b", "$a/b b a/b/"},
		"+":           {"a", "/a $a a/"},
		"#":           {"a a/b / /a", "$a $a/b"},
		"a/#":         {"a a/b a/b/c a/", "b ab"},
		"+/+":         {"a/b /a /", "a $a/b a/b/c"},
		"/+":          {"/a", "a"},
		"$a/#":        {"$a $a/b", "a"},
		"$a/+":        {"$a/b", "a/b"},
		"a/+/c/#":     {"a/b/c a/b/c/d", "a/b a/b/d"},
		"+/monitor/+": {"x/monitor/y", "$SYS/monitor/y"},
	} {
		inOpen(t, OpenConfig{}, func(t *testing.T, x *bench) {
			r, _ := x.open(mqtt5, "r")
			r.subscribed(filter, 0)
			w, _ := x.open(mqtt311, "w")
			for topic := range strings.FieldsSeq(topics.yes) {
				w.send(pub(mqtt311, retain, topic, 0, "x"))
				r.expect(filter+" matches "+topic, pub(mqtt5, 0, topic, 0, "x"))
			}
			for topic := range strings.FieldsSeq(topics.no) {
				if !strings.HasPrefix(topic, "$SYS") {
					w.send(pub(mqtt311, retain, topic, 0, "x"))
				}
				r.expect(filter + " does not match " + topic)
			}
			// The same again for what is retained.
			again, _ := x.open(mqtt5, "again")
			again.subscribed("none/"+filter, 0) // a level that is only there for a filter
			late, _ := x.open(mqtt311, "late")
			late.send(sub(mqtt311, 1, filter, 0))
			synctest.Wait()
			var got []string
			for _, p := range late.take()[1:] {
				got = append(got, string(p[4:4+p[3]]))
			}
			slices.Sort(got)
			want := strings.Fields(topics.yes)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s: retained on %q, want %q", filter, got, want)
			}
		})
	}
}

func TestOpenTopicsRefuseFiltersOfBadForm(t *testing.T) {
	forBothOpen(t, OpenConfig{}, func(t *testing.T, x *bench, v byte) {
		c, _ := x.open(v, "c")
		code := byte(codeTopicFilterInvalid)
		if v == mqtt311 {
			code = codeUnspecified
		}
		for _, filter := range []string{"a#", "a/#/b", "#/", "a+", "+a/b", "a/b+", "$share/g", "$share//a", "$share/g/", "$share/+/a", "$share/g/a#"} {
			c.send(sub(v, 1, filter, 1))
			c.expect(filter, subackPacket(v, 1, code))
		}
		if counted(t, x.broker.general.metrics.subscriptions) != 0 || counted(t, x.broker.general.metrics.nodes) != 0 {
			t.Error("something is left of them")
		}
	})
}

func TestOpenTopicsRetain(t *testing.T) {
	forBothOpen(t, OpenConfig{}, func(t *testing.T, x *bench, v byte) {
		w, _ := x.open(v, "w")
		w.send(pub(v, retain|qos1, "r/1", 1, "old"), pub(v, retain|qos1, "r/1", 2, "new"), pub(v, 0, "r/1", 0, "not kept"))
		w.expect("the writer", puback(1), puback(2))
		r, _ := x.open(v, "r")
		r.send(sub(v, 1, "r/#", 1))
		r.expect("the last one, as retained", subackPacket(v, 1, 1), pub(v, retain|qos1, "r/1", 1, "new"))
		w.send(pub(v, retain, "r/1", 0, "live"))
		r.expect("who is subscribed is not told that it is (MQTT-3.3.1-9, -12)", pub(v, 0, "r/1", 0, "live"))
		w.send(pub(v, retain, "r/1", 0, ""))
		r.expect("an empty one goes out as any other", pub(v, 0, "r/1", 0, ""))
		late, _ := x.open(v, "late")
		late.subscribed("r/#", 1) // and the retained one is gone (MQTT-3.3.1-6)
		if m := x.broker.general.metrics; counted(t, m.retained) != 0 || counted(t, m.retainedBytes) != 0 {
			t.Error("something is retained")
		}
	})
}

func TestOpenTopicsHandleRetainedAsTheSubscriptionSays(t *testing.T) {
	inOpen(t, OpenConfig{}, func(t *testing.T, x *bench) {
		w, _ := x.open(mqtt5, "w")
		w.send(pub(mqtt5, retain, "t", 0, "kept"))
		r, _ := x.open(mqtt5, "r")
		kept := pub(mqtt5, retain, "t", 0, "kept")
		r.send(sub(mqtt5, 1, "t", 0x20))
		r.expect("handling 2: never (MQTT-3.3.1-11)", subackPacket(mqtt5, 1, 0))
		r.send(sub(mqtt5, 2, "t", 0x10))
		r.expect("handling 1: not when it was there (MQTT-3.3.1-10)", subackPacket(mqtt5, 2, 0))
		r.send(sub(mqtt5, 3, "t", 0))
		r.expect("handling 0: always (MQTT-3.3.1-9)", subackPacket(mqtt5, 3, 0), kept)
		r.send(packet(0xA2, slices.Concat([]byte{0, 4, 0}, str("t"), str("no"))...))
		r.expect("UNSUBACK", packet(0xB0, 0, 4, 0, 0, codeNoSubscription))
		r.send(sub(mqtt5, 5, "t", 0x18))
		r.expect("handling 1 on a new one", subackPacket(mqtt5, 5, 0), kept)
		w.send(pub(mqtt5, retain, "t", 0, "next"))
		r.expect("retain as published (MQTT-3.3.1-13)", pub(mqtt5, retain, "t", 0, "next"))
		r.subscribed("$share/g/t", 0) // a shared one begins without
	})
}

func TestOpenTopicsNumberSubscriptionsAndLeaveOutTheOwn(t *testing.T) {
	inOpen(t, OpenConfig{}, func(t *testing.T, x *bench) {
		c, _ := x.open(mqtt5, "c")
		c.subscribed("a/+", 1, propSubscriptionID, 7)
		c.subscribed("a/b", 0, propSubscriptionID, 0x80, 1)
		c.subscribed("a/#", 4) // no local
		c.send(pub(mqtt5, qos1, "a/b", 1, "own"))
		synctest.Wait()
		got := c.take()
		one, other := pub(mqtt5, qos1, "a/b", 1, "own", propSubscriptionID, 7, propSubscriptionID, 0x80, 1),
			pub(mqtt5, qos1, "a/b", 1, "own", propSubscriptionID, 0x80, 1, propSubscriptionID, 7)
		if len(got) != 2 || !slices.ContainsFunc(got, func(p []byte) bool { return bytes.Equal(p, one) || bytes.Equal(p, other) }) {
			t.Errorf("one copy at the highest QoS with both identifiers (MQTT-3.3.4-2, -4): % x", got)
		}
		c.send(pub(mqtt5, 0, "a/x/y", 0, "own"), []byte{0xC0, 0})
		c.expect("nothing of its own by that one (MQTT-3.8.3-3)", []byte{0xD0, 0})
		d, _ := x.open(mqtt5, "d")
		d.send(sub(mqtt5, 1, "$share/g/a", 4))
		d.expect("no local on a shared one (MQTT-3.8.3-4)", disconnect(codeProtocolError))
	})
}

// A bridge of 3.1.1 sets the highest bit of the version: what it sends does not come back, and what is retained stays so.
func TestOpenTopicsKnowABridge(t *testing.T) {
	inOpen(t, OpenConfig{}, func(t *testing.T, x *bench) {
		c, _ := x.open(mqtt311, "bridge", func(h *hello) { h.level, h.will = h.level|bridgeBit, []string{bridgeStates + "bridge/state", "0"} })
		c.subscribed("#", 1)
		c.send(pub(mqtt311, qos1, "own", 1, "x"))
		c.expect("its own", puback(1))
		w, _ := x.open(mqtt5, "w")
		w.send(pub(mqtt5, retain, "t", 0, "x"))
		c.expect("retained stays retained", pub(mqtt311, retain, "t", 0, "x"))
	})
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		c := x.dial(mqtt311)
		c.send(connectPacket(mqtt311, func(h *hello) { h.level |= bridgeBit }))
		c.expect("no device is a bridge", []byte{0x20, 2, 0, connackUnsupported})
	})
}

func TestOpenTopicsShare(t *testing.T) {
	forBothOpen(t, OpenConfig{}, func(t *testing.T, x *bench, v byte) {
		a, _ := x.open(v, "a")
		b, _ := x.open(v, "b", resumable)
		a.subscribed("$share/g/s/#", 1)
		b.subscribed("$share/g/s/#", 1)
		w, _ := x.open(v, "w")
		for i := range byte(10) {
			w.send(pub(v, 0, "s/x", 0, string('0'+i)))
		}
		synctest.Wait()
		if n, m := len(a.take()), len(b.take()); n != 5 || m != 5 {
			t.Errorf("%d and %d", n, m)
		}
		b.conn.Close()
		synctest.Wait()
		w.send(pub(v, qos1, "s/x", 1, "1"), pub(v, qos1, "s/x", 2, "2"))
		a.expect("who is here gets all", pub(v, qos1, "s/x", 1, "1"), pub(v, qos1, "s/x", 2, "2"))
		a.conn.Close()
		synctest.Wait()
		w.send(pub(v, qos1, "s/x", 3, "3"))
		synctest.Wait()
		again, present := x.open(v, "b", resumable)
		again.expect("it waits for who is away", pub(v, qos1, "s/x", 1, "3"))
		if !present {
			t.Error("no session")
		}
	})
}

// What waits for a client comes in its order, as often as the connection ends, and never more than it takes at once.
func TestOpenTopicsKeepTheOrderOfWhatWaits(t *testing.T) {
	forBothOpen(t, OpenConfig{}, func(t *testing.T, x *bench, v byte) {
		few := func(h *hello) {
			resumable(h)
			if v == mqtt5 {
				h.props = append(h.props, propReceiveMaximum, 0, 3)
			}
		}
		r, _ := x.open(v, "r", few)
		r.subscribed("o", 2)
		r.conn.Close()
		synctest.Wait()
		w, _ := x.open(v, "w")
		const n = 200
		for i := range n {
			w.send(pub(v, byte(i%3)<<1, "o", uint16(i+1), fmt.Sprint(i)))
			if i%3 == 2 {
				w.send(packet(0x62, byte((i+1)>>8), byte(i+1)))
			}
		}
		synctest.Wait()
		var got []string
		seen := map[string]bool{}
		for round := 0; len(got) < n*2/3 && round < 500; round++ {
			r, present := x.open(v, "r", few)
			if !present {
				t.Fatal("the session is gone")
			}
			for range 5 {
				synctest.Wait()
				all := r.take()
				unanswered := 0
				for _, p := range all {
					switch p[0] >> 4 {
					case pktPubrel:
						r.send(ack(pktPubcomp, p[3]))
						continue
					case pktPublish:
						unanswered++
					}
					at := 2 + 2 + 1 + 2
					if v == mqtt5 {
						at++
					}
					if body := string(p[at:]); !seen[body] {
						seen[body] = true
						got = append(got, body)
					}
					if p[0]>>1&3 == 1 {
						r.send([]byte{0x40, 2, p[5], p[6]})
					} else {
						r.send([]byte{0x50, 2, p[5], p[6]})
					}
				}
				if v == mqtt5 && unanswered > 3 {
					t.Fatalf("%d at once for a receive maximum of 3", unanswered)
				}
			}
			r.conn.Close()
			synctest.Wait()
		}
		var want []string
		for i := range n {
			if i%3 > 0 {
				want = append(want, fmt.Sprint(i))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v", got)
		}
		if m := x.broker.general.metrics; counted(t, m.queued) > 3 {
			t.Errorf("%v are left", counted(t, m.queued))
		}
	})
}

// What was not acknowledged is repeated on the next connection with DUP, and nothing else is (MQTT-4.4.0-1).
func TestOpenTopicsRepeat(t *testing.T) {
	forBothOpen(t, OpenConfig{}, func(t *testing.T, x *bench, v byte) {
		r, _ := x.open(v, "r", resumable)
		r.subscribed("o", 2)
		w, _ := x.open(v, "w")
		w.send(pub(v, qos1, "o", 1, "1"), pub(v, qos2, "o", 2, "2"), pub(v, qos2, "o", 3, "3"), pub(v, qos1, "o", 4, "4"))
		synctest.Wait()
		r.take()
		r.send(ack(pktPuback, 4), ack(pktPubrec, 2))
		r.expect("PUBREL", ack(pktPubrel, 2))
		r.conn.Close()
		synctest.Wait()
		r, _ = x.open(v, "r", resumable)
		r.expect("again", pub(v, qos1|dup, "o", 1, "1"), ack(pktPubrel, 2), pub(v, qos2|dup, "o", 3, "3"))
		clean, present := x.open(v, "r")
		r.expectClosed("taken over")
		clean.expect("a clean start has nothing")
		if present {
			t.Error("there was a session")
		}
		if m := x.broker.general.metrics; counted(t, m.queued) != 0 || counted(t, m.subscriptions) != 0 || counted(t, m.nodes) != 0 {
			t.Error("something is left of the session before")
		}
	})
}

func TestOpenTopicsEndSessionsInTime(t *testing.T) {
	inOpen(t, OpenConfig{MaxSessions: 2}, func(t *testing.T, x *bench) {
		c, _ := x.open(mqtt5, "c", resumable)
		c.subscribed("t", 1)
		c.conn.Close()
		time.Sleep(999 * time.Second)
		c, present := x.open(mqtt5, "c", resumable)
		if !present {
			t.Error("ended before its time")
		}
		c.send([]byte{0xE0, 7, 0, 5, propSessionExpiry, 0, 0, 0, 5}) // the goodbye shortens it
		c.expectClosed("DISCONNECT")
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if m := x.broker.general.metrics; counted(t, m.kept) != 0 || counted(t, m.subscriptions) != 0 {
			t.Error("it is kept beyond its time")
		}
		for i := range 4 {
			d, _ := x.open(mqtt5, fmt.Sprint("d", i), resumable)
			d.conn.Close()
			synctest.Wait()
		}
		if m := x.broker.general.metrics; counted(t, m.kept) != 2 || counted(t, m.evicted) != 2 {
			t.Errorf("%v kept, %v went", counted(t, m.kept), counted(t, m.evicted))
		}
		if _, present := x.open(mqtt5, "d0", resumable); present {
			t.Error("the oldest is still there")
		}
		if _, present := x.open(mqtt5, "d3", resumable); !present {
			t.Error("the latest went")
		}
	})
}

func TestOpenTopicsPublishWills(t *testing.T) {
	forBothOpen(t, OpenConfig{}, func(t *testing.T, x *bench, v byte) {
		r, _ := x.open(v, "r")
		r.subscribed("w/#", 1)
		will := func(h *hello) { h.will, h.flags = []string{"w/1", "gone"}, h.flags|1<<3|flagWillRetain }
		if v == mqtt5 {
			plain := will
			will = func(h *hello) {
				plain(h)
				h.willProps = slices.Concat([]byte{propContentType}, str("text"), []byte{propUser}, str("a"), str("b"))
			}
		}
		a, _ := x.open(v, "a", will)
		a.send([]byte{0xE0, 0})
		r.expect("none after a goodbye (MQTT-3.14.4-3)")
		a, _ = x.open(v, "a", will)
		a.conn.Close()
		synctest.Wait()
		var props []byte
		if v == mqtt5 {
			props = slices.Concat([]byte{propContentType}, str("text"), []byte{propUser}, str("a"), str("b"))
		}
		r.expect("after a lost connection, whole", pub(v, qos1, "w/1", 1, "gone", props...))
		late, _ := x.open(v, "late")
		late.send(sub(v, 1, "w/1", 0))
		late.expect("it is retained", subackPacket(v, 1, 0), pub(v, retain, "w/1", 0, "gone", props...))
	})
}

func TestOpenTopicsDelayWills(t *testing.T) {
	inOpen(t, OpenConfig{}, func(t *testing.T, x *bench) {
		r, _ := x.open(mqtt5, "r", func(h *hello) { h.keepAlive = 600 })
		r.subscribed("w", 0)
		delayed := func(seconds byte) func(*hello) {
			return func(h *hello) {
				resumable(h)
				h.will, h.willProps = []string{"w", "gone"}, []byte{propWillDelay, 0, 0, 0, seconds, propMessageExpiry, 0, 0, 0, 60}
			}
		}
		gone := pub(mqtt5, 0, "w", 0, "gone", propMessageExpiry, 0, 0, 0, 60)
		a, _ := x.open(mqtt5, "a", delayed(30))
		a.conn.Close()
		time.Sleep(29 * time.Second)
		r.expect("before the delay is over")
		a, _ = x.open(mqtt5, "a", delayed(30))
		time.Sleep(30 * time.Second)
		r.expect("it came back in time (MQTT-3.1.3-9)")
		a.conn.Close()
		time.Sleep(31 * time.Second)
		r.expect("after the delay", gone)
		a, _ = x.open(mqtt5, "a", delayed(30))
		a.conn.Close()
		synctest.Wait()
		clean, _ := x.open(mqtt5, "a") // a clean start ends the session, and the delay with it
		r.expect("with the end of the session", gone)
		clean.conn.Close()
		a, _ = x.open(mqtt5, "b", delayed(30))
		x.open(mqtt5, "b", resumable)
		a.expectClosed("taken over")
		time.Sleep(31 * time.Second)
		r.expect("a takeover is a return in time")
	})
}

func TestOpenTopicsEndMessagesInTime(t *testing.T) {
	inOpen(t, OpenConfig{}, func(t *testing.T, x *bench) {
		r, _ := x.open(mqtt5, "r", resumable)
		r.subscribed("e", 1)
		r.conn.Close()
		synctest.Wait()
		w, _ := x.open(mqtt5, "w", func(h *hello) { h.keepAlive = 600 })
		w.send(pub(mqtt5, qos1, "e", 1, "short", propMessageExpiry, 0, 0, 0, 10), pub(mqtt5, qos1|retain, "e", 2, "long", propMessageExpiry, 0, 0, 0, 100))
		time.Sleep(40 * time.Second)
		r, _ = x.open(mqtt5, "r", resumable)
		r.expect("what is left, with what is left of its time (MQTT-3.3.2-5, -6)", pub(mqtt5, qos1, "e", 1, "long", propMessageExpiry, 0, 0, 0, 60))
		if counted(t, x.broker.general.metrics.dropped.WithLabelValues(openExpired)) != 1 {
			t.Error("not counted")
		}
		time.Sleep(61 * time.Second)
		late, _ := x.open(mqtt5, "late")
		late.subscribed("e", 1) // nothing retained comes
	})
}

func TestOpenTopicsHandOnWhatBelongsToTheMessage(t *testing.T) {
	inOpen(t, OpenConfig{}, func(t *testing.T, x *bench) {
		r, _ := x.open(mqtt5, "r")
		r.subscribed("q", 0)
		old, _ := x.open(mqtt311, "old")
		old.subscribed("q", 0)
		w, _ := x.open(mqtt5, "w")
		props := slices.Concat([]byte{propUser}, str("k"), str("1"), []byte{propPayloadFormat, 1, propResponseTopic}, str("answers"),
			[]byte{propCorrelation}, str("\x00\xff"), []byte{propUser}, str("k"), str("2"), []byte{propContentType}, str("text/plain"))
		w.send(pub(mqtt5, 0, "q", 0, "?", props...))
		r.expect("request and response, user properties in their order (MQTT-3.3.2-18)", pub(mqtt5, 0, "q", 0, "?", props...))
		old.expect("3.1.1 has none", pub(mqtt311, 0, "q", 0, "?"))
		w.send(pub(mqtt5, 0, "q", 0, "?", slices.Concat([]byte{propResponseTopic}, str("a/#"))...))
		w.expect("a wildcard in the response topic (MQTT-3.3.2-14)", disconnect(codeProtocolError))
	})
}

func TestOpenTopicsTakeAndGiveAliases(t *testing.T) {
	inOpen(t, OpenConfig{}, func(t *testing.T, x *bench) {
		r, _ := x.open(mqtt5, "r", func(h *hello) { h.props = []byte{propTopicAliasMaximum, 0, 1} })
		r.subscribed("#", 0)
		w, _ := x.open(mqtt5, "w")
		w.send(pub(mqtt5, 0, "x", 0, "1", propTopicAlias, 0, 16), pub(mqtt5, 0, "", 0, "2", propTopicAlias, 0, 16), pub(mqtt5, 0, "y", 0, "3", propTopicAlias, 0, 16),
			pub(mqtt5, 0, "", 0, "4", propTopicAlias, 0, 16))
		r.expect("by its own alias", pub(mqtt5, 0, "x", 0, "1", propTopicAlias, 0, 1), pub(mqtt5, 0, "", 0, "2", propTopicAlias, 0, 1), pub(mqtt5, 0, "y", 0, "3"), pub(mqtt5, 0, "y", 0, "4"))
		for alias, code := range map[byte]byte{0: codeTopicAliasInvalid, 17: codeTopicAliasInvalid, 3: codeProtocolError} {
			w, _ := x.open(mqtt5, "w")
			w.send(pub(mqtt5, 0, "", 0, "2", propTopicAlias, 0, alias))
			w.expect(fmt.Sprint("alias ", alias), disconnect(code))
		}
	})
}

func TestOpenTopicsSayWhatTheyOffer(t *testing.T) {
	inOpen(t, OpenConfig{}, func(t *testing.T, x *bench) {
		c := x.dial(mqtt5)
		c.send(connectPacket(mqtt5, func(h *hello) { h.clientID, h.noUser, h.keepAlive = "", true, 0 }))
		synctest.Wait()
		got := c.take()[0]
		props := got[5:]
		if !bytes.Contains(props, slices.Concat([]byte{propAssignedClientID, 0, 31}, []byte(autoName))) {
			t.Errorf("no client id assigned (MQTT-3.2.2-16): % x", props)
		}
		for _, want := range [][]byte{{propReceiveMaximum, 1, 0}, {propMaximumPacketSize, 0, 0x10, 0, 0}, {propTopicAliasMaximum, 0, openAliases}, {propServerKeepAlive, 2, 0x58}} {
			if !bytes.Contains(props, want) {
				t.Errorf("% x is not in % x", want, props)
			}
		}
		old := x.dial(mqtt311)
		old.send(connectPacket(mqtt311, func(h *hello) { h.clientID, h.noUser, h.flags = "", true, 0 }))
		old.expect("no client id and a session (MQTT-3.1.3-8)", []byte{0x20, 2, 0, connackIdentifier})
	})
}

// A topic of a device is served by the broker for devices: a PUBACK here would be taken for a promise.
func TestOpenTopicsRefuseTopicsOfDevices(t *testing.T) {
	for _, topic := range []string{theEvents, theTelemetry, "weir/other/devices/x/events", theReports, theCommands, "weir/acme/command-responses/dev1", theAttributes} {
		forBothOpen(t, OpenConfig{}, func(t *testing.T, x *bench, v byte) {
			r, _ := x.open(v, "r")
			r.subscribed("#", 1)
			for q := range byte(3) {
				c, _ := x.open(v, "c")
				c.send(pub(v, q<<1, topic, 7, "{}"))
				text := causeOpenDevice.text
				switch {
				case v == mqtt311:
					c.expectClosed("3.1.1")
				case q == 0:
					c.expect("at QoS 0", disconnectText(codeNotAuthorized, text, 0))
				case q == 1:
					c.expect("at QoS 1", pubackReason(7, codeNotAuthorized, text))
				default:
					want := pubackReason(7, codeNotAuthorized, text)
					want[0] = 0x50
					c.expect("at QoS 2", want)
				}
				if len(c.take()) > 0 {
					t.Error("it was told more")
				}
			}
			r.expect("nobody gets it")
			if n := counted(t, x.broker.general.metrics.refused.WithLabelValues(openDeviceTopic)); n != 3 {
				t.Errorf("%v refused", n)
			}
			c := x.dial(v)
			c.send(connectPacket(v, func(h *hello) { h.noUser, h.will = true, []string{topic, "{}"} }))
			want := []byte{0x20, 2, 0, connackNotAuthorized}
			if v == mqtt5 {
				want = []byte{0x20, 3, 0, codeNotAuthorized, 0}
			}
			c.expect("a will there", want)
		})
	}
}

func TestOpenTopicsOfATenantAskForItsCredential(t *testing.T) {
	inOpen(t, OpenConfig{OpenSettings: OpenSettings{OpenTopicsTenant: "acme"}}, func(t *testing.T, x *bench) {
		as := func(user, password string) func(*hello) {
			return func(h *hello) { h.noUser, h.user, h.password = user == "", user, password }
		}
		c, _ := x.open(mqtt5, "any name", as("acme:tok1", ""))
		x.open(mqtt5, "any name too", as("acme:user1", "s3cret"))
		for _, who := range [][2]string{{"", ""}, {"acme:nobody", ""}, {"globex:tok9", ""}, {"acme:user1", "wrong"}, {"acme:", ""}, {"acme", ""}, {"acme:tok-of-another-tenant", ""}} {
			d := x.dial(mqtt5)
			d.send(connectPacket(mqtt5, as(who[0], who[1])))
			d.expect("as "+who[0], []byte{0x20, 3, 0, codeNotAuthorized, 0})
		}
		if n := x.broker.drop(func(b model.Binding) bool { return b.Credential == 101 && b.Device == "dev1" }); n != 2 {
			t.Errorf("%d dropped", n)
		}
		c.expect("the credential is gone", disconnect(codeNotAuthorized))
		c.expectClosed("the credential is gone")
	})
	synctest.Test(t, func(t *testing.T) { // without a tenant nobody is let in
		x := newBench(t, Config{Open: &OpenConfig{}}, nil)
		defer x.stop()
		synctest.Wait() // the listener for devices is served
		x.ln = pipes{fixture.NewPipes(0)}
		go func() { _ = x.broker.ServeListener(context.Background(), x.ln, Listener{Open: true}) }()
		for _, user := range []string{"acme:tok1", ":tok1", ""} {
			d := x.dial(mqtt5)
			d.send(connectPacket(mqtt5, func(h *hello) { h.user = user }))
			d.expect("as "+user, []byte{0x20, 3, 0, codeNotAuthorized, 0})
		}
	})
}

func TestOpenTopicsAndDevicesNeverMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBench(t, Config{Open: &OpenConfig{OpenSettings: OpenSettings{OpenTopicsAnonymous: true}}}, nil)
		defer x.stop()
		device := x.connect(mqtt5)
		device.send(subscribePacket(mqtt5, 1, theCommands))
		device.expect("SUBACK", subackPacket(mqtt5, 1, 1))
		synctest.Wait() // the listener for devices is served
		x.ln = pipes{fixture.NewPipes(0)}
		go func() { _ = x.broker.ServeListener(context.Background(), x.ln, Listener{Open: true}) }()
		same, _ := x.open(mqtt5, theClient) // with the device's client id
		same.subscribed("#", 1)
		device.send(publishPacket(mqtt5, qos1, theEvents, 1, "{}"))
		device.expect("the device", puback(1))
		same.expect("sees nothing of it")
		if device.isClosed() || x.broker.Connections() != 1 {
			t.Error("one has touched the other")
		}
	})
}

func TestOpenTopicsAreBounded(t *testing.T) {
	t.Run("retained", func(t *testing.T) {
		forBothOpen(t, OpenConfig{MaxRetained: 2}, func(t *testing.T, x *bench, v byte) {
			c, _ := x.open(v, "c")
			c.send(pub(v, qos1|retain, "1", 1, "x"), pub(v, qos1|retain, "2", 2, "x"), pub(v, qos1|retain, "1", 3, "y"), pub(v, qos1|retain, "3", 4, "x"))
			if v == mqtt311 {
				c.expect("two and one in the place of another", puback(1), puback(2), puback(3))
				c.expectClosed("one too many")
				return
			}
			c.expect("one too many", puback(1), puback(2), puback(3), pubackReason(4, codeQuotaExceeded, causeOpenQuota.text))
			c.send(pub(v, retain, "2", 0, ""), pub(v, qos1|retain, "3", 5, "x", propMessageExpiry, 0, 0, 0, 1))
			c.expect("one was forgotten", puback(5))
			time.Sleep(2 * time.Second)
			c.send(pub(v, qos1|retain, "4", 6, "x"))
			c.expect("the time of one is over", puback(6))
			if counted(t, x.broker.general.metrics.retained) != 2 {
				t.Error("the count is wrong")
			}
		})
	})
	t.Run("bytes of retained", func(t *testing.T) {
		inOpen(t, OpenConfig{MaxRetainedBytes: 1000}, func(t *testing.T, x *bench) {
			c, _ := x.open(mqtt5, "c")
			c.send(pub(mqtt5, qos1|retain, "1", 1, strings.Repeat("x", 800)), pub(mqtt5, qos1|retain, "1", 2, strings.Repeat("x", 900)))
			c.expect("too many bytes", puback(1), pubackReason(2, codeQuotaExceeded, causeOpenQuota.text))
		})
	})
	t.Run("subscriptions", func(t *testing.T) {
		inOpen(t, OpenConfig{MaxSubscriptions: 2}, func(t *testing.T, x *bench) {
			c, _ := x.open(mqtt5, "c")
			c.send(subscribePacket(mqtt5, 1, "a", "b", "c", "a"))
			c.expect("one too many", subackPacket(mqtt5, 1, 1, 1, codeQuotaExceeded, 1))
			c.send(sub(mqtt5, 2, strings.Repeat("/", maxLevels), 0))
			c.expect("too many levels", subackPacket(mqtt5, 2, codeQuotaExceeded))
		})
	})
	t.Run("levels of all", func(t *testing.T) {
		inOpen(t, OpenConfig{MaxNodes: 5}, func(t *testing.T, x *bench) {
			c, _ := x.open(mqtt5, "c")
			c.send(subscribePacket(mqtt5, 1, "a/b/c", "d/e/f", "g/h"), pub(mqtt5, qos1|retain, "x", 1, "x"))
			c.expect("one too many", subackPacket(mqtt5, 1, 1, codeQuotaExceeded, 1), pubackReason(1, codeQuotaExceeded, causeOpenQuota.text))
		})
	})
	t.Run("queue", func(t *testing.T) {
		inOpen(t, OpenConfig{MaxQueued: 3}, func(t *testing.T, x *bench) {
			r, _ := x.open(mqtt5, "r", resumable)
			r.subscribed("q", 1)
			r.conn.Close()
			synctest.Wait()
			w, _ := x.open(mqtt5, "w")
			for i := range byte(5) {
				w.send(pub(mqtt5, qos1, "q", uint16(i)+1, string('0'+i)))
			}
			synctest.Wait()
			r, _ = x.open(mqtt5, "r", resumable)
			r.expect("the first three", pub(mqtt5, qos1, "q", 1, "0"), pub(mqtt5, qos1, "q", 2, "1"), pub(mqtt5, qos1, "q", 3, "2"))
			if n := counted(t, x.broker.general.metrics.dropped.WithLabelValues(openQueueFull)); n != 2 {
				t.Errorf("%v dropped", n)
			}
			for i := range byte(4) {
				w.send(pub(mqtt5, retain, "all/"+string('0'+i), 0, "x"))
			}
			s, _ := x.open(mqtt5, "s")
			s.send(sub(mqtt5, 1, "all/#", 0))
			s.expect("more is retained than fits", subackPacket(mqtt5, 1, codeQuotaExceeded))
		})
	})
	t.Run("connections", func(t *testing.T) {
		inOpen(t, OpenConfig{MaxConnections: 1}, func(t *testing.T, x *bench) {
			first, _ := x.open(mqtt5, "1")
			d := x.dial(mqtt5)
			d.send(connectPacket(mqtt5, func(h *hello) { h.clientID, h.noUser = "2", true }))
			d.expect("one too many", []byte{0x20, 3, 0, codeServerBusy, 0})
			x.open(mqtt5, "1")
			first.expect("a takeover", disconnect(codeSessionTakenOver))
		})
	})
	t.Run("packets for a client", func(t *testing.T) {
		inOpen(t, OpenConfig{}, func(t *testing.T, x *bench) {
			r, _ := x.open(mqtt5, "r", func(h *hello) { h.props = []byte{propMaximumPacketSize, 0, 0, 0, 40} })
			r.subscribed("q", 1)
			w, _ := x.open(mqtt5, "w")
			w.send(pub(mqtt5, qos1, "q", 1, strings.Repeat("x", 40)), pub(mqtt5, qos1, "q", 2, "small"))
			r.expect("only what it takes (MQTT-3.1.2-24)", pub(mqtt5, qos1, "q", 2, "small"))
			if counted(t, x.broker.general.metrics.dropped.WithLabelValues(openTooLarge)) != 1 || counted(t, x.broker.general.metrics.queued) != 1 {
				t.Error("not counted")
			}
		})
	})
	t.Run("unreleased", func(t *testing.T) {
		inOpenOf(t, Config{ReceiveMaximum: 2, Open: &OpenConfig{}}, func(t *testing.T, x *bench) {
			c, _ := x.open(mqtt5, "c")
			c.send(pub(mqtt5, qos2, "a", 1, ""), pub(mqtt5, qos2, "a", 2, ""), pub(mqtt5, qos2, "a", 3, ""))
			c.expect("over the receive maximum (MQTT-3.3.4-7)", ack(pktPubrec, 1), ack(pktPubrec, 2), disconnect(codeReceiveMaximum))
		})
	})
}

// A client that does not read ends; those that publish are never held up by it.
func TestOpenTopicsDoNotWaitForASlowReader(t *testing.T) {
	inOpen(t, OpenConfig{MaxQueued: 100}, func(t *testing.T, x *bench) {
		slow := x.ln.dial()
		defer slow.Close()
		go func() {
			_, _ = slow.Write(slices.Concat(connectPacket(mqtt5, func(h *hello) { h.clientID, h.noUser = "slow", true }), sub(mqtt5, 1, "#", 1)))
		}()
		synctest.Wait()
		_, _ = slow.Read(make([]byte, 1)) // and no more
		synctest.Wait()
		w, _ := x.open(mqtt5, "w")
		for i := range 300 {
			w.send(pub(mqtt5, qos1, "t", uint16(i)+1, "x"))
		}
		synctest.Wait()
		if got := w.take(); len(got) != 300 {
			t.Fatalf("%d of 300 acknowledged", len(got))
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if n := counted(t, x.broker.metrics.disconnects.WithLabelValues(causeSlowReader.word)); n != 1 {
			t.Errorf("%v slow readers were sent away", n)
		}
	})
}

func TestOpenTopicsAreNotifiedThatWeirStops(t *testing.T) {
	inOpen(t, OpenConfig{}, func(t *testing.T, x *bench) {
		r, _ := x.open(mqtt5, "r")
		r.subscribed("w", 0)
		c, _ := x.open(mqtt5, "c", resumable, func(h *hello) { h.will = []string{"w", "gone"} })
		x.stop()
		c.expect("the last word", disconnect(codeShuttingDown))
		r.expect("the last word", disconnect(codeShuttingDown))
		if counted(t, x.broker.general.metrics.wills) != 0 {
			t.Error("a will for Weir's own stop")
		}
	})
}

func TestOpenTopicsEndHostileConnections(t *testing.T) {
	for _, tc := range []struct {
		name   string
		packet []byte
		code   byte
	}{
		{"second CONNECT", connectPacket(5), codeProtocolError},
		{"SUBSCRIBE of seven bytes", []byte{0x82, 5, 0, 1, 0, 0, 0}, codeMalformed},
		{"PUBLISH over 1 MiB", []byte{0x32, 0x80, 0x80, 0x80, 1}, codePacketTooLarge},
		{"PUBLISH with a wildcard", pub(5, 0, "a/#", 0, ""), codeTopicNameInvalid},
		{"PUBLISH at QoS 3", pub(5, 6, "a", 1, ""), codeMalformed},
		{"PUBLISH without identifier", pub(5, qos1, "a", 0, ""), codeProtocolError},
		{"PUBLISH with a subscription identifier", pub(5, 0, "a", 0, "", propSubscriptionID, 1), codeProtocolError},
		{"PUBLISH of 129 levels", pub(5, 0, strings.Repeat("/", 128), 0, ""), codeTopicNameInvalid},
		{"PUBLISH to $SYS", pub(5, 0, "$SYS/x", 0, ""), codeTopicNameInvalid},
		{"AUTH", []byte{0xF0, 0}, codeProtocolError},
		{"PUBREL with wrong flags", []byte{0x60, 2, 0, 1}, codeMalformed},
		{"PUBREC cut short", []byte{0x50, 1, 0}, codeMalformed},
		{"SUBSCRIBE at QoS 3", sub(5, 1, "a", 3), codeMalformed},
		{"PINGREQ with a body", []byte{0xC0, 1, 0}, codeMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inOpen(t, OpenConfig{}, func(t *testing.T, x *bench) {
				c, _ := x.open(mqtt5, "c")
				c.send(tc.packet)
				synctest.Wait()
				got := c.take()
				if len(got) != 1 || got[0][0] != pktDisconnect<<4 || got[0][2] != tc.code {
					t.Errorf("answered % x, want 0x%x", got, tc.code)
				}
				c.expectClosed(tc.name)
				if counted(t, x.broker.metrics.panics) != 0 {
					t.Error("panicked")
				}
			})
		})
	}
}

// FuzzOpenStream feeds whatever comes after a good CONNECT: nothing panics, and nothing is left when all have gone.
func FuzzOpenStream(f *testing.F) {
	for _, tc := range hostilePackets {
		f.Add(tc.version == mqtt5, tc.packet, 1)
	}
	f.Add(true, slices.Concat(sub(5, 1, "a/+", 2), pub(5, qos2|retain, "a/b", 1, "x"), ack(pktPubrel, 1), ack(pktPubrec, 1), ack(pktPubcomp, 1), pub(5, retain, "a/b", 0, "")), 9)
	f.Add(false, slices.Concat(sub(4, 1, "$share/g/#", 1), pub(4, qos1, "a", 1, "x"), ack(pktPuback, 1), []byte{0xE0, 0}), 5)
	f.Fuzz(func(t *testing.T, new bool, stream []byte, cut int) {
		version := byte(mqtt311)
		if new {
			version = mqtt5
		}
		cut = max(0, min(cut, len(stream)))
		inOpen(t, OpenConfig{}, func(t *testing.T, x *bench) {
			c, _ := x.open(version, "c")
			c.send(stream[:cut])
			synctest.Wait()
			c.send(stream[cut:])
			synctest.Wait()
			if counted(t, x.broker.metrics.panics) != 0 {
				t.Error("panicked")
			}
			c.conn.Close()
			synctest.Wait()
			time.Sleep(13 * time.Hour)
			synctest.Wait()
			m := x.broker.general.metrics
			if counted(t, m.connections)+counted(t, m.kept)+counted(t, m.queued)+counted(t, m.queuedBytes)+counted(t, m.subscriptions) != 0 {
				t.Error("something is left")
			}
			if (counted(t, m.retained) == 0) != (counted(t, m.nodes) == 0 && counted(t, m.retainedBytes) == 0) {
				t.Errorf("%v retained of %v bytes on %v levels", counted(t, m.retained), counted(t, m.retainedBytes), counted(t, m.nodes))
			}
		})
	})
}

func TestOpenTopicsRemoveAWillThatIsNoLongerWanted(t *testing.T) {
	inOpen(t, OpenConfig{}, func(t *testing.T, x *bench) {
		r, _ := x.open(mqtt5, "r", func(h *hello) { h.keepAlive = 600 })
		r.subscribed("w", 0)
		a, _ := x.open(mqtt5, "a", resumable, func(h *hello) { h.will, h.willProps = []string{"w", "gone"}, []byte{propWillDelay, 0, 0, 0, 30} })
		a.conn.Close()
		synctest.Wait()
		a, _ = x.open(mqtt5, "a", resumable) // in time, without a will
		a.send([]byte{0xE0, 0})
		synctest.Wait()
		x.open(mqtt5, "a") // and the session ends
		time.Sleep(40 * time.Second)
		r.expect("no will")
	})
}

func TestOpenTopicsKeepNothingAtQoS0(t *testing.T) {
	forBothOpen(t, OpenConfig{MaxInflight: 1}, func(t *testing.T, x *bench, v byte) {
		r, _ := x.open(v, "r", resumable)
		r.subscribed("t", 1)
		w, _ := x.open(v, "w")
		w.send(pub(v, qos1, "t", 1, "1"), pub(v, qos1, "t", 2, "2"), pub(v, 0, "t", 0, "3"), pub(v, qos1, "t", 4, "4"))
		r.expect("one at a time", pub(v, qos1, "t", 1, "1"))
		r.conn.Close()
		synctest.Wait()
		r, _ = x.open(v, "r", resumable)
		r.expect("again", pub(v, qos1|dup, "t", 1, "1"))
		r.send(puback(1))
		r.expect("the next", pub(v, qos1, "t", 2, "2"))
		r.send(puback(2))
		r.expect("none at QoS 0 between", pub(v, qos1, "t", 3, "4"))
		r.send(puback(3))
		synctest.Wait()
		if m := x.broker.general.metrics; counted(t, m.queued) != 0 || counted(t, m.queuedBytes) != 0 {
			t.Error("the account is wrong")
		}
	})
}

// A client that comes back with a smaller receive maximum is sent no more at once, repeats included (section 4.9).
func TestOpenTopicsRepeatNoMoreThanTheClientTakes(t *testing.T) {
	inOpen(t, OpenConfig{}, func(t *testing.T, x *bench) {
		large := strings.Repeat("x", 40)
		r, _ := x.open(mqtt5, "r", resumable)
		r.subscribed("t", 1)
		w, _ := x.open(mqtt5, "w")
		for i := range uint16(4) {
			w.send(pub(mqtt5, qos1, "t", i+1, large))
		}
		synctest.Wait()
		r.conn.Close()
		synctest.Wait()
		r, _ = x.open(mqtt5, "r", resumable, func(h *hello) { h.props = append(h.props, propReceiveMaximum, 0, 2) })
		r.expect("two", pub(mqtt5, qos1|dup, "t", 1, large), pub(mqtt5, qos1|dup, "t", 2, large))
		r.send(puback(1))
		r.expect("one more", pub(mqtt5, qos1|dup, "t", 3, large))
		r.conn.Close()
		synctest.Wait()
		r, _ = x.open(mqtt5, "r", resumable, func(h *hello) { h.props = append(h.props, propMaximumPacketSize, 0, 0, 0, 40) })
		r.expect("nothing that it does not take")
		if m := x.broker.general.metrics; counted(t, m.queued) != 0 || counted(t, m.dropped.WithLabelValues(openTooLarge)) != 3 {
			t.Errorf("%v left, %v dropped", counted(t, m.queued), counted(t, m.dropped.WithLabelValues(openTooLarge)))
		}
	})
}

func TestOpenTopicsShareFairlyAfterASecondSubscribe(t *testing.T) {
	forBothOpen(t, OpenConfig{}, func(t *testing.T, x *bench, v byte) {
		a, _ := x.open(v, "a")
		b, _ := x.open(v, "b")
		a.subscribed("$share/g/t", 0)
		b.subscribed("$share/g/t", 1)
		b.subscribed("$share/g/t", 0)
		w, _ := x.open(v, "w")
		for range 6 {
			w.send(pub(v, qos1, "t", 1, "x"))
		}
		synctest.Wait()
		if n, m := len(a.take()), len(b.take()); n != 3 || m != 3 {
			t.Errorf("%d and %d", n, m)
		}
		b.conn.Close()
		synctest.Wait()
		w.send(pub(v, 0, "t", 0, "y"))
		a.expect("who is left", pub(v, 0, "t", 0, "y"))
	})
}

func TestOpenTopicsAreShownInTheMetrics(t *testing.T) {
	inOpen(t, OpenConfig{}, func(t *testing.T, x *bench) {
		if counted(t, x.broker.metrics.open) != 1 {
			t.Error("the gauge says that there are none")
		}
		c, _ := x.open(mqtt5, "c")
		c.subscribed("a/b", 0)
		c.send(pub(mqtt5, retain, "a/b", 0, "x"))
		synctest.Wait()
		m := x.broker.general.metrics
		for what, got := range map[string]float64{"connections": counted(t, m.connections), "subscriptions": counted(t, m.subscriptions),
			"retained": counted(t, m.retained), "received": counted(t, m.received), "delivered": counted(t, m.delivered),
			"by listener": counted(t, x.broker.metrics.byListener.WithLabelValues("open_topics"))} {
			if got != 1 {
				t.Errorf("%s: %v", what, got)
			}
		}
	})
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		synctest.Wait() // the other listener is served
		if counted(t, x.broker.metrics.open) != 0 {
			t.Error("the gauge says that there are some")
		}
		if err := x.broker.ServeListener(t.Context(), pipes{fixture.NewPipes(0)}, Listener{Open: true}); err == nil {
			t.Error("served what there is not")
		}
	})
}
