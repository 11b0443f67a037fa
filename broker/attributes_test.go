package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/model"
	"weir/registry/shared"
)

// sets has what devices may read of themselves. It tells the broker of changes as the registry does.
type sets struct {
	mu     sync.Mutex
	broker *Broker
	of     map[int64]map[string]string
	reads  int
	err    error
	hold   chan struct{} // held while a read is to wait; nil: none does
}

func (s *sets) SharedSets(ctx context.Context, devices ...model.Binding) (all []shared.Set, err error) {
	s.mu.Lock()
	s.reads++
	hold := s.hold
	s.mu.Unlock()
	if hold != nil {
		<-hold
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range devices {
		all = append(all, s.set(d.DeviceID))
	}
	return all, s.err
}

func (s *sets) set(device int64) shared.Set {
	var of []shared.Attribute
	for key, value := range s.of[device] {
		of = append(of, shared.Attribute{Key: key, Text: &value})
	}
	return shared.SetOf(of)
}

// change sets an attribute of a device, or deletes it where value is "".
func (s *sets) change(device int64, key, value string) {
	s.mu.Lock()
	if s.of[device] == nil {
		s.of[device] = map[string]string{}
	}
	if s.of[device][key] = value; value == "" {
		delete(s.of[device], key)
	}
	s.mu.Unlock()
	s.broker.SharedChanged(device)
}

// expectReads fails unless the sets were read so often since the last call.
func (s *sets) expectReads(t *testing.T, what string, n int) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reads != n {
		t.Errorf("%s: sets were read %d times, want %d", what, s.reads, n)
	}
	s.reads = 0
}

// readingAttributes is a bench whose devices may read attributes, and get commands.
func readingAttributes(t *testing.T, cfg Config, test func(*testing.T, *bench, *sets, *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, d := &sets{of: map[int64]map[string]string{}}, &desk{waiting: map[int64][]string{}, out: map[int64]string{}}
		x := newBenchWith(t, cfg, Deps{Attributes: s, Desk: d})
		s.broker, d.carrier = x.broker, x.broker.Commands()
		defer x.stop()
		test(t, x, s, d)
	})
}

func forBothReading(t *testing.T, test func(*testing.T, *bench, *sets, byte)) {
	for _, v := range bothVersions {
		t.Run(fmt.Sprintf("version %d", v), func(t *testing.T) {
			t.Parallel()
			readingAttributes(t, Config{}, func(t *testing.T, x *bench, s *sets, _ *desk) { test(t, x, s, v) })
		})
	}
}

// setPacket is a set on its way to dev1: keys and values by turns.
func setPacket(v byte, flags byte, id uint16, pairs ...string) []byte {
	all := map[string]string{}
	for pair := range slices.Chunk(pairs, 2) {
		all[pair[0]] = pair[1]
	}
	set := (&sets{of: map[int64]map[string]string{1: all}}).set(1)
	return publishPacket(v, flags, theAttributes, id, string(set.Body))
}

// readsAttributes connects dev1 and subscribes to its attributes; it expects the set.
func (x *bench) readsAttributes(v byte, set []byte, options ...func(*hello)) *client {
	x.t.Helper()
	c := x.connect(v, options...)
	c.send(subscribePacket(v, 1, theAttributes))
	c.expect("SUBACK and the set", subackPacket(v, 1, 1), set)
	return c
}

func TestADeviceGetsItsAttributesWhenItSubscribesAndAfterEachChange(t *testing.T) {
	t.Parallel()
	forBothReading(t, func(t *testing.T, x *bench, s *sets, v byte) {
		s.change(1, "a", "1")
		s.change(2, "a", "other")
		c := x.readsAttributes(v, setPacket(v, qos1, 1, "a", "1"))
		c.send(puback(1))
		s.change(1, "b", "2")
		c.expect("a second attribute", setPacket(v, qos1, 2, "a", "1", "b", "2"))
		c.send(puback(2))
		s.change(1, "a", "")
		c.expect("one is deleted", setPacket(v, qos1, 3, "b", "2"))
		c.send(puback(3))
		s.change(1, "b", "")
		c.expect("none is left", setPacket(v, qos1, 4))
		c.send(puback(4))
		s.change(2, "a", "2")
		c.expect("another device")
		c.send(subscribePacket(v, 9, theAttributes))
		c.expect("subscribed once more", subackPacket(v, 9, 1), setPacket(v, qos1, 5))
		c.send(unsubscribePacket(v, 10, theAttributes), puback(5))
		s.change(1, "b", "3")
		synctest.Wait()
		for _, p := range c.take() {
			if p[0]>>4 == pktPublish {
				t.Errorf("unsubscribed, and got % x", p)
			}
		}
		if n := counted(t, x.broker.metrics.readers); n != 0 {
			t.Errorf("%v listeners", n)
		}
	})
}

func TestAnEmptySetIsSentToo(t *testing.T) {
	t.Parallel()
	forBothReading(t, func(_ *testing.T, x *bench, _ *sets, v byte) { x.readsAttributes(v, setPacket(v, qos1, 1)) })
}

// Changes that come while a device has not acknowledged a set are one: it gets the newest. What was changed back is nothing new.
func TestASlowDeviceGetsTheNewestSetAndNoQueue(t *testing.T) {
	t.Parallel()
	forBothReading(t, func(t *testing.T, x *bench, s *sets, v byte) {
		s.change(1, "a", "0")
		c := x.readsAttributes(v, setPacket(v, qos1, 1, "a", "0"))
		s.expectReads(t, "subscribed", 1)
		for i := range 100 {
			s.change(1, "a", fmt.Sprint(i))
		}
		c.expect("nothing before the PUBACK")
		s.expectReads(t, "while a set is on its way", 0)
		c.send(puback(1))
		c.expect("the newest", setPacket(v, qos1, 2, "a", "99"))
		s.expectReads(t, "the newest", 1)
		s.change(1, "a", "x")
		s.change(1, "a", "99")
		c.send(puback(2))
		c.expect("changed back")
		s.expectReads(t, "changed back", 1)
	})
}

func TestASetAtQoS0(t *testing.T) {
	t.Parallel()
	forBothReading(t, func(_ *testing.T, x *bench, s *sets, v byte) {
		c := x.connect(v)
		b := subscribePacket(v, 1, theAttributes)
		b[len(b)-1] = 0
		c.send(b)
		c.expect("SUBACK and the set", subackPacket(v, 1, 0), setPacket(v, 0, 0))
		s.change(1, "a", "1")
		c.expect("a change", setPacket(v, 0, 0, "a", "1"))
		s.change(1, "a", "2")
		c.expect("the next", setPacket(v, 0, 0, "a", "2"))
	})
}

// A kept session brings its subscription back, and with it the whole set, also where nothing has changed: the device may have lost it.
func TestAKeptSessionGetsTheWholeSetAgain(t *testing.T) {
	t.Parallel()
	readingAttributes(t, Config{}, func(t *testing.T, x *bench, s *sets, _ *desk) {
		keeps := func(h *hello) { h.props, h.flags = prop32(propSessionExpiry, 600), 0 }
		s.change(1, "a", "1")
		c := x.readsAttributes(mqtt5, setPacket(mqtt5, qos1, 1, "a", "1"), keeps)
		c.conn.Close()
		synctest.Wait()
		for _, change := range []string{"", "2"} {
			if change != "" {
				s.change(1, "a", change)
			}
			again := x.dial(mqtt5)
			again.send(connectPacket(mqtt5, keeps))
			synctest.Wait()
			packets := again.take()
			if len(packets) != 2 || packets[1][0]>>4 != pktPublish || !strings.HasSuffix(string(packets[1]), `"a":"`+max(change, "1")+`"}}`) {
				t.Fatalf("received % x", packets)
			}
			again.conn.Close()
			synctest.Wait()
		}
	})
}

func TestTheConnectionThatTakesOverGetsTheSet(t *testing.T) {
	t.Parallel()
	forBothReading(t, func(_ *testing.T, x *bench, s *sets, v byte) {
		s.change(1, "a", "1")
		first := x.readsAttributes(v, setPacket(v, qos1, 1, "a", "1"))
		s.change(1, "a", "2") // it waits for the PUBACK of the first
		next := x.readsAttributes(v, setPacket(v, qos1, 1, "a", "2"))
		first.expectClosed("taken over")
		next.send(puback(1))
		s.change(1, "a", "3")
		next.expect("a change", setPacket(v, qos1, 2, "a", "3"))
	})
}

// Both sessions of a device are its own: each gets every set, and neither waits for the other.
func TestTwoSessionsOfADeviceBothGetItsAttributes(t *testing.T) {
	t.Parallel()
	forBothReading(t, func(t *testing.T, x *bench, s *sets, v byte) {
		a := x.readsAttributes(v, setPacket(v, qos1, 1))
		b := x.readsAttributes(v, setPacket(v, qos1, 1), func(h *hello) { h.clientID = theClient + ":b" })
		b.send(puback(1))
		s.change(1, "a", "1")
		b.expect("the one that acknowledged", setPacket(v, qos1, 2, "a", "1"))
		a.expect("the one that did not")
		a.send(puback(1))
		a.expect("now it has", setPacket(v, qos1, 2, "a", "1"))
		a.conn.Close()
		synctest.Wait()
		if n := counted(t, x.broker.metrics.readers); n != 1 {
			t.Errorf("%v listeners", n)
		}
	})
}

// A set over the bound, or over what the client takes, is named instead of sent: the device knows that it lacks one.
func TestASetThatIsTooLargeForAPacket(t *testing.T) {
	t.Parallel()
	readingAttributes(t, Config{}, func(t *testing.T, x *bench, s *sets, _ *desk) {
		note := func(id uint16) []byte {
			set := s.set(1)
			return publishPacket(mqtt5, qos1, theAttributes, id, string(set.Note()))
		}
		s.change(1, "big", strings.Repeat("x", shared.MaxBytes))
		c := x.readsAttributes(mqtt5, note(1))
		c.send(puback(1))
		s.change(1, "big", "x")
		c.expect("smaller", setPacket(mqtt5, qos1, 2, "big", "x"))
		c.conn.Close()
		s.change(1, "big", strings.Repeat("x", 200))
		c = x.readsAttributes(mqtt5, note(1), func(h *hello) { h.props = prop32(propMaximumPacketSize, 200) })
		c.send(puback(1))
		s.change(1, "big", "x")
		c.expect("it fits", setPacket(mqtt5, qos1, 2, "big", "x"))
		if n := counted(t, x.broker.metrics.setsTooLarge); n != 2 {
			t.Errorf("%v sets were too large", n)
		}
	})
}

func TestOnlyTheDeviceReadsItsAttributesAndNobodyWritesThem(t *testing.T) {
	t.Parallel()
	readingAttributes(t, Config{}, func(t *testing.T, x *bench, _ *sets, _ *desk) {
		c := x.connect(mqtt5)
		c.send(subscribePacket(mqtt5, 1, theAttributes, "weir/acme/device-attributes/dev2", "weir/globex/device-attributes/dev1", "weir/acme/device-attributes/+",
			"$share/g/"+theAttributes))
		c.expect("SUBACK", subackPacket(mqtt5, 1, 1, codeNotAuthorized, codeNotAuthorized, codeWildNotSupported, codeSharedNotSupported), setPacket(mqtt5, qos1, 1))
		c.send(publishPacket(mqtt5, qos1, theAttributes, 2, "{}"))
		synctest.Wait()
		if got := c.take(); len(got) != 1 || got[0][0] != pktPuback<<4 || !slices.Contains(got[0], codeNotAuthorized) {
			t.Errorf("a publish is answered % x", got)
		}
		if len(x.intake.bodies()) != 0 {
			t.Error("a publish on the attributes is stored")
		}
		old := x.connect(mqtt311)
		old.send(publishPacket(mqtt311, qos1, theAttributes, 2, "{}"))
		old.expectClosed("3.1.1 has no reason to tell")
	})
	takingCommands(t, Config{}, func(_ *testing.T, x *bench, _ *desk) {
		c := x.connect(mqtt5)
		c.send(subscribePacket(mqtt5, 1, theAttributes))
		c.expect("no attributes are read here", subackPacket(mqtt5, 1, codeNotAuthorized))
	})
}

// A failing store is asked again after a while, not at once; the device gets what is right then.
func TestAttributesThatCannotBeReadAreReadAgain(t *testing.T) {
	t.Parallel()
	readingAttributes(t, Config{}, func(t *testing.T, x *bench, s *sets, _ *desk) {
		s.err = errors.New("broken")
		c := x.connect(mqtt5)
		c.send(subscribePacket(mqtt5, 1, theAttributes))
		c.expect("SUBACK", subackPacket(mqtt5, 1, 1))
		s.change(1, "a", "1")
		c.send(publishPacket(mqtt5, qos1, theEvents, 1, "{}"))
		c.expect("its own publish", puback(1))
		s.expectReads(t, "nobody asks meanwhile", 1)
		time.Sleep(setsReadRetry)
		s.expectReads(t, "after a while", 1)
		s.mu.Lock()
		s.err = nil
		s.mu.Unlock()
		time.Sleep(setsReadRetry)
		c.expect("the set", setPacket(mqtt5, qos1, 1, "a", "1"))
		if n := counted(t, x.broker.metrics.setsUnread); n != 2 {
			t.Errorf("%v failures", n)
		}
	})
}

// Commands and sets take turns where a client takes one packet at a time; neither waits for the other for ever, and no command is claimed
// while a set is about to leave.
func TestCommandsAndAttributesTakeTurns(t *testing.T) {
	t.Parallel()
	readingAttributes(t, Config{}, func(t *testing.T, x *bench, s *sets, d *desk) {
		c := x.connect(mqtt5, func(h *hello) { h.props = prop16(propReceiveMaximum, 1) })
		c.send(subscribePacket(mqtt5, 1, theCommands, theAttributes))
		c.expect("SUBACK and the set", subackPacket(mqtt5, 1, 1, 1), setPacket(mqtt5, qos1, 1))
		d.order(1, "c-1", "c-2")
		s.change(1, "a", "1")
		c.expect("neither before the PUBACK")
		if d.nonces != 0 {
			t.Error("a command was claimed that cannot leave")
		}
		c.send(puback(1))
		c.expect("a command", commandPacket(mqtt5, qos1, 2, "c-1", "n1"))
		c.send(puback(2))
		c.expect("the set", setPacket(mqtt5, qos1, 3, "a", "1"))
		s.change(1, "a", "2")
		c.send(puback(3))
		c.expect("a command", commandPacket(mqtt5, qos1, 4, "c-2", "n2"))
		c.send(puback(4))
		c.expect("the newest set", setPacket(mqtt5, qos1, 5, "a", "2"))
	})
}

// A connection that ends while its set is read leaves nothing behind, and a stop waits for the read.
func TestAConnectionThatEndsWhileItsSetIsRead(t *testing.T) {
	t.Parallel()
	readingAttributes(t, Config{}, func(t *testing.T, x *bench, s *sets, _ *desk) {
		s.hold = make(chan struct{})
		c := x.connect(mqtt5)
		c.send(subscribePacket(mqtt5, 1, theAttributes))
		synctest.Wait()
		c.conn.Close()
		synctest.Wait()
		close(s.hold)
		synctest.Wait()
		if p := x.broker.devices.pubsub; p.queued != 0 || p.queuedBytes != 0 || len(x.broker.devices.attributes.listeners) != 0 {
			t.Errorf("%d messages and %d bytes are queued for %v", p.queued, p.queuedBytes, x.broker.devices.attributes.listeners)
		}
	})
}

// What is written is not kept: a device that never acknowledges holds no set in memory.
func TestASetThatIsWrittenIsNotHeld(t *testing.T) {
	t.Parallel()
	readingAttributes(t, Config{}, func(t *testing.T, x *bench, s *sets, _ *desk) {
		s.change(1, "a", strings.Repeat("x", 50_000))
		x.readsAttributes(mqtt5, setPacket(mqtt5, qos1, 1, slices.Collect(maps.Keys(s.of[1]))[0], s.of[1]["a"]))
		p := x.broker.devices.pubsub
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.queued != 1 || p.queuedBytes > 1000 {
			t.Errorf("%d messages, %d bytes are held", p.queued, p.queuedBytes)
		}
	})
}

// A change that reaches many devices at once is read in parts, once for each device that listens, and by one reader.
func TestAChangeOfManyDevicesIsReadInParts(t *testing.T) {
	t.Parallel()
	readingAttributes(t, Config{}, func(t *testing.T, x *bench, s *sets, _ *desk) {
		const sessions = 2*setsTogether + 1
		all := make([]*client, sessions)
		for i := range all {
			all[i] = x.readsAttributes(mqtt5, setPacket(mqtt5, qos1, 1), func(h *hello) { h.clientID = fmt.Sprintf("%s:%d", theClient, i) })
			all[i].send(puback(1))
		}
		synctest.Wait()
		s.expectReads(t, "subscribed", sessions)
		s.hold = make(chan struct{})
		s.change(1, "a", "0")
		synctest.Wait() // all of them wait for a read
		for i := range 1000 {
			s.change(1, "a", fmt.Sprint(i))
			s.change(int64(100+i), "a", "nobody listens")
		}
		close(s.hold)
		for _, c := range all {
			c.expect("the newest", setPacket(mqtt5, qos1, 2, "a", "999"))
			c.send(puback(2))
		}
		synctest.Wait()
		// All of them once, in parts; those of the first part, which was under way, once more: one by one if they acknowledge so.
		if most := 1 + sessions/setsTogether + setsTogether; s.reads > most {
			t.Errorf("%d reads, want at most %d", s.reads, most)
		}
	})
}
