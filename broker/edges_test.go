package broker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/command"
	"weir/ingest"
	"weir/internal/edgewire"
	"weir/model"
)

// edgesOf dev1 speak for dev2, and for names that there are not.
type edgesOfDev1 struct{}

func (edgesOfDev1) IsEdge(_ context.Context, b model.Binding) (bool, error) {
	return b.Device == "dev1", nil
}

func (edgesOfDev1) Behind(_ context.Context, edge model.Binding, device string) (model.Binding, error) {
	switch device {
	case "by-external-id":
		return model.Binding{Tenant: edge.Tenant, Device: "dev3", DeviceID: 3}, nil
	case "other":
		return model.Binding{}, ErrNotBehind
	case "broken":
		return model.Binding{}, errors.New("the store is away")
	}
	return model.Binding{Tenant: edge.Tenant, Device: device, DeviceID: 2}, nil
}

func (edgesOfDev1) Devices(_ context.Context, _ model.Binding, after string) ([]edgewire.Device, string, error) {
	if after == "" {
		return []edgewire.Device{{ID: 2, Token: "dev2"}}, "dev2", nil
	}
	return nil, "", nil
}

func (edgesOfDev1) Site(context.Context, model.Binding) (*edgewire.SiteDocument, error) {
	return edgewire.DivideSite([]byte(`{"lists":{}}`))
}

func (edgesOfDev1) Said(_ context.Context, _ model.Binding, h *edgewire.Hello) (*edgewire.Welcome, error) {
	if h.Kind == edgewire.KindState {
		return nil, nil
	}
	return &edgewire.Welcome{Kind: edgewire.KindWelcome, Nonce: h.Nonce, Partitions: 1, Complete: true}, nil
}

// numberedPacket is a PUBLISH at QoS 1 with the number of an edge; "": without one.
func numberedPacket(topic string, id uint16, number string) []byte {
	var props []byte
	if number != "" {
		props = slices.Concat([]byte{propUser}, str(edgewire.PropertyNumber), str(number))
	}
	return packet(pktPublish<<4|qos1, slices.Concat(str(topic), []byte{byte(id >> 8), byte(id), byte(len(props))}, props, []byte("{}"))...)
}

func TestAnEdgePublishesForOthers(t *testing.T) {
	const install = "00112233445566778899aabbccddeeff"
	synctest.Test(t, func(t *testing.T) {
		x := newBenchWith(t, Config{}, Deps{Edges: edgesOfDev1{}})
		defer x.stop()
		c := x.dial(mqtt5)
		c.send(connectPacket(mqtt5))
		synctest.Wait()
		connack := string(slices.Concat(c.take()...))
		if !strings.Contains(connack, edgewire.PropertyTime) || !strings.Contains(connack, string([]byte{propReceiveMaximum, 0x10, 0})) {
			t.Errorf("the CONNACK is %q", connack)
		}
		topic := func(device string) string { return "weir/acme/devices/" + device + "/events" }
		c.send(numberedPacket(topic("dev2"), 1, install+":1:7"), numberedPacket(topic("dev2"), 2, ""), numberedPacket(topic("dev1"), 3, install+":1:8"),
			numberedPacket(topic("dev1"), 4, ""), numberedPacket(topic("dev2"), 5, "x"),
			numberedPacket(topic("by-external-id"), 6, install+":1:9"))
		c.expect("they are handed over", puback(1), puback(2), puback(3), puback(4), puback(5), puback(6))
		got := x.intake.seenArrivals()
		for i, want := range []struct {
			transport, device, link string
			number                  uint64
			fault                   bool
		}{{"uplink", "dev2", "edge:" + install + ":1", 7, false}, {"uplink", "dev2", "", 0, false}, {"uplink", "dev1", "edge:" + install + ":1", 8, false}, {"mqtt", "dev1", "", 0, false},
			{"uplink", "dev2", "", 0, true}, {"uplink", "dev3", "edge:" + install + ":1", 9, false}} {
			if a := got[i]; a.Transport != want.transport || a.Topic != want.device || a.Conn.Device != want.device || a.Link != want.link || a.Number != want.number || (a.Fault != "") != want.fault {
				t.Errorf("%d: %+v", i, a)
			}
		}
		c.send(numberedPacket(topic("other"), 6, install+":1:9"), numberedPacket("weir/globex/devices/dev2/events", 7, install+":1:9"))
		c.expect("out of scope", pubackReason(6, codeNotAuthorized, "this edge may not publish for the device"), pubackReason(7, codeNotAuthorized, foreignTopic+": it sends events to "+topic("dev1")))
		if r := x.intake.reasons(); !slices.Equal(r, []ingest.Reason{ingest.ReasonNotAuthorized, ingest.ReasonNotAuthorized}) {
			t.Errorf("%q", r)
		}
		c.send(numberedPacket(topic("broken"), 8, install+":1:9"))
		c.expectClosed("what cannot be found out is sent again")
	})
}

// TestAnEdgeSpeaksToWeir: it may publish about itself and subscribe to the answers; another device may do neither.
func TestAnEdgeSpeaksToWeir(t *testing.T) {
	const install = "00112233445566778899aabbccddeeff"
	hello := func(id byte, kind string) []byte {
		body := `{"kind":"` + kind + `","installId":"` + install + `","epoch":1,"boot":"b","nonce":"n1","version":"1","first":1,"newest":2,"position":1,"oldest":1}`
		return packet(pktPublish<<4|qos1, slices.Concat(str("weir/acme/edges/dev1/up"), []byte{0, id, 0}, []byte(body))...)
	}
	synctest.Test(t, func(t *testing.T) {
		x := newBenchWith(t, Config{}, Deps{Edges: edgesOfDev1{}})
		defer x.stop()
		c := x.dial(mqtt5)
		c.send(connectPacket(mqtt5))
		synctest.Wait()
		c.take()
		c.send(subscribePacket(mqtt5, 1, "weir/acme/edges/dev1/down"), subscribePacket(mqtt5, 2, "weir/acme/edges/dev2/down"))
		synctest.Wait()
		if got := slices.Concat(c.take()...); !slices.Equal(got, []byte{pktSuback << 4, 4, 0, 1, 0, 1, pktSuback << 4, 4, 0, 2, 0, codeNotAuthorized}) {
			t.Errorf("the SUBACKs are %v", got)
		}
		c.send(hello(3, "hello"))
		synctest.Wait()
		got := string(slices.Concat(c.take()...))
		if !strings.Contains(got, string(puback(3))) || !strings.Contains(got, `"kind":"welcome","nonce":"n1"`) || !strings.Contains(got, "weir/acme/edges/dev1/down") {
			t.Errorf("the answer is %q", got)
		}
		c.send(hello(4, "state"))
		c.expect("it is taken and not answered", puback(4))
		c.send(hello(5, "other"))
		c.expect("it is refused", pubackReason(5, codePayloadInvalid, unknownTopic))
		for id := byte(6); id < 12; id++ {
			c.send(hello(id, "state"))
			c.expect("it is taken", puback(id))
		}
		c.send(hello(12, "state"))
		c.expect("too many", pubackReason(12, codeQuotaExceeded, talkRefusal))
		time.Sleep(talkEvery)
		c.send(hello(13, "state"))
		c.expect("one a second", puback(13))
		if n := len(x.intake.seenArrivals()); n != 0 {
			t.Errorf("%d messages", n)
		}
	})
}

// upPacket is a document that dev1 publishes about itself.
func upPacket(id byte, body string) []byte {
	return packet(pktPublish<<4|qos1, slices.Concat(str("weir/acme/edges/dev1/up"), []byte{0, id, 0}, []byte(body))...)
}

// TestCommandsThroughAnEdge: an edge gets the commands of the devices that it says take some, and says how they ended; with its connection they are lost.
func TestCommandsThroughAnEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{waiting: map[int64][]string{}, out: map[int64]string{}}
		x := newBenchWith(t, Config{}, Deps{Desk: d, Edges: edgesOfDev1{}})
		d.carrier = x.broker.EdgeCommands()
		defer x.stop()
		c := x.connect(mqtt5)
		c.send(subscribePacket(mqtt5, 1, "weir/acme/edges/dev1/down"))
		c.expect("SUBACK", subackPacket(mqtt5, 1, 1))
		if r := d.carrier.Reach(2); r != command.Unknown || d.carrier.Offer(2) {
			t.Errorf("before the edge has said that it takes commands it is %v", r)
		}
		c.send(upPacket(2, `{"kind":"listening","all":true,"begin":["dev2","other"]}`))
		c.expect("it is taken", puback(2))
		d.expect(t, "of the device that the edge speaks for", "reachable 2")
		d.order(2, "c1", "c2")
		synctest.Wait()
		got := string(slices.Concat(c.take()...))
		if !strings.Contains(got, `{"kind":"command","device":"dev2","nonce":"n1","body":{"token":"c1","deviceToken":"dev2","name":"open","dispatchNonce":"n1","payload":{"a":1}}}`) {
			t.Fatalf("the command is %q", got)
		}
		c.send(upPacket(3, `{"kind":"delivered","nonce":"none","end":"acknowledged"}`), upPacket(4, `{"kind":"delivered","nonce":"n1","end":"acknowledged"}`), upPacket(5, `{"kind":"delivered","nonce":"n1","end":"acknowledged"}`))
		d.expect(t, "once", "acknowledged 2 c1/n1")
		if got := string(slices.Concat(c.take()...)); !strings.Contains(got, `"nonce":"n2"`) {
			t.Fatalf("the next command is %q", got)
		}
		c.send(upPacket(6, `{"kind":"listening","end":["dev2"]}`), upPacket(7, `{"kind":"delivered","nonce":"n2","end":"absent"}`))
		d.expect(t, "it has gone", "lost 2 c2/n2")
		if r := d.carrier.Reach(2); r != command.Unknown {
			t.Errorf("a device that takes none is %v", r)
		}
		c.take()
		c.send(upPacket(8, `{"kind":"listening","begin":["dev2"]}`))
		d.expect(t, "it is back", "reachable 2")
		_ = c.conn.Close()
		d.expect(t, "with the connection", "lost 2 c2/n3")
		if r := d.carrier.Reach(2); r != command.Unknown {
			t.Errorf("behind an edge that is gone it is %v", r)
		}
	})
}

// TestTheDevicesOfAnEdge: credentials go over TLS only, and an edge that has asked for them is notified of a change once.
func TestTheDevicesOfAnEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBenchWith(t, Config{}, Deps{Edges: edgesOfDev1{}})
		defer x.stop()
		c := x.connect(mqtt5)
		c.send(subscribePacket(mqtt5, 1, "weir/acme/edges/dev1/down"))
		c.expect("SUBACK", subackPacket(mqtt5, 1, 1))
		c.send(upPacket(2, `{"kind":"sync","nonce":"x"}`))
		synctest.Wait()
		if got := string(slices.Concat(c.take()...)); !strings.Contains(got, notSecure) || strings.Contains(got, "dev2") {
			t.Errorf("without TLS: %q", got)
		}
		time.Sleep(pageRest)
		x.broker.EdgesChanged(x.broker.devices.pubsub.live()[0].binding.TenantID)
		synctest.Wait()
		if got := c.take(); len(got) != 0 {
			t.Errorf("one that has not got any is notified: %q", got)
		}
		x.broker.devices.pubsub.live()[0].secure = true
		c.send(upPacket(3, `{"kind":"sync","nonce":"y"}`))
		synctest.Wait()
		if got := string(slices.Concat(c.take()...)); !strings.Contains(got, `"nonce":"y","devices":[{"id":2,"token":"dev2"}],"next":"dev2"`) {
			t.Errorf("over TLS: %q", got)
		}
		x.broker.EdgesChanged(77)
		for range 2 {
			x.broker.EdgesChanged(x.broker.devices.pubsub.live()[0].binding.TenantID)
		}
		synctest.Wait()
		if got := string(slices.Concat(c.take()...)); strings.Count(got, `{"kind":"changed"}`) != 1 {
			t.Errorf("after two changes: %q", got)
		}
	})
}

func FuzzRelayedNumber(f *testing.F) {
	property := func(name, value string) []byte {
		one := []byte{propUser, 0, byte(len(name))}
		one = append(one, name...)
		one = append(append(one, 0, byte(len(value))), value...)
		return append([]byte{byte(len(one))}, one...)
	}
	const install = "00112233445566778899aabbccddeeff"
	f.Add(property(edgewire.PropertyNumber, install+":7:42"))
	f.Add(property("other", "x"))
	f.Add([]byte{0})
	f.Add([]byte{3, propPayloadFormat, 1})
	f.Fuzz(func(t *testing.T, props []byte) {
		r, named := relayedNumber(props)
		if r != nil && (!named || r.number == 0 || len(r.link) > 64) {
			t.Errorf("%+v", r)
		}
	})
}

func TestNumbersThatAnEdgeGives(t *testing.T) {
	const install = "00112233445566778899aabbccddeeff"
	if r := parseRelayed(install + ":7:42"); r == nil || r.link != "edge:"+install+":7" || r.number != 42 {
		t.Errorf("%+v", r)
	}
	for _, text := range []string{"", ":", "::", install, install + ":7", install + ":7:", install + ":7:0", install + ":07:1", install + ":7:01", install + ":-1:1",
		install + ":4294967296:1", install + ":7:18446744073709551616", install[1:] + ":7:1", "0" + install + ":7:1", "AA" + install[2:] + ":7:1", install + ":7:1:1"} {
		if r := parseRelayed(text); r != nil {
			t.Errorf("%q is %+v", text, r)
		}
	}
}
