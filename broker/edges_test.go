package broker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

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
		c.expect("out of scope", pubackReason(6, codeNotAuthorized, "this edge may not publish for the device"), pubackReason(7, codeNotAuthorized, foreignTopic))
		if r := x.intake.reasons(); !slices.Equal(r, []ingest.Reason{ingest.ReasonNotAuthorized, ingest.ReasonNotAuthorized}) {
			t.Errorf("%q", r)
		}
		c.send(numberedPacket(topic("broken"), 8, install+":1:9"))
		c.expectClosed("what cannot be found out is sent again")
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
