package broker

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"unicode/utf8"
)

// FuzzConnect feeds the decoder of the first packet, which anybody may send.
func FuzzConnect(f *testing.F) {
	for _, tc := range hostileConnects {
		f.Add(tc.packet)
	}
	for _, v := range bothVersions {
		f.Add(connectPacket(v, func(h *hello) { h.will, h.user, h.password = []string{theEvents, "{}"}, "acme:user1", "s3cret" }))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 2 {
			data = data[2:] // the seeds have a fixed header
		}
		p, r := decodeConnect(data)
		if r != nil {
			if r.why == "" || r.code == 0 && r.v3 == 0 && r != refuseName {
				t.Fatalf("refusal %+v says nothing", r)
			}
			return
		}
		if p.version != mqtt311 && p.version != mqtt5 {
			t.Fatalf("version %d accepted", p.version)
		}
		if !utf8.ValidString(p.clientID) || !utf8.ValidString(p.user) || p.will != nil && (p.will.qos > 2 || !utf8.ValidString(p.will.topic)) {
			t.Fatalf("accepted %+v", p)
		}
		if id, mistake := p.identify("weir"); mistake == "" && (id.claim.ID == "" || id.claim.Tenant != id.tenant || id.device == "") {
			t.Fatalf("identified %+v", id)
		}
	})
}

// FuzzPublish feeds the decoder of publishes.
func FuzzPublish(f *testing.F) {
	for _, tc := range hostilePackets {
		if tc.packet[0]>>4 == pktPublish {
			f.Add(tc.packet[0], tc.version, tc.packet[min(2, len(tc.packet)):])
		}
	}
	f.Add(byte(0x32), byte(5), publishPacket(5, qos1, theEvents, 1, "{}")[2:])
	f.Fuzz(func(t *testing.T, header, version byte, body []byte) {
		p, ends := decodePublish(version, header&15|pktPublish<<4, body, theEvents)
		if ends != nil {
			return
		}
		if p.topic == "" || !utf8.ValidString(p.topic) || bytes.ContainsAny([]byte(p.topic), "+#\x00") || (p.qos > 0) != (p.id != 0) {
			t.Fatalf("accepted %+v", p)
		}
		if !bytes.HasSuffix(body, p.payload) {
			t.Fatal("the payload is not the end of the packet")
		}
	})
}

// FuzzForm compares checkForm with the library: what passes must not panic its decoder, or be refused by it as malformed.
func FuzzForm(f *testing.F) {
	for _, tc := range hostilePackets {
		f.Add(tc.packet[0], tc.version, tc.packet[min(2, len(tc.packet)):])
	}
	for _, v := range bothVersions {
		f.Add(byte(0x82), v, subscribePacket(v, 1, theCommands, "#")[2:])
		f.Add(byte(0xA2), v, slices.Concat([]byte{0, 1}, make([]byte, v-4), str("a")))
		f.Add(byte(0x40), v, []byte{0, 1})
	}
	f.Fuzz(func(t *testing.T, header, version byte, body []byte) {
		if version != mqtt311 {
			version = mqtt5
		}
		kind := header >> 4
		if kind != pktPuback && kind != pktSubscribe && kind != pktUnsubscribe {
			return
		}
		if checkForm(version, kind, body) != nil {
			return
		}
		if err := mochiDecodes(version, kind, body); err != nil {
			t.Fatalf("the library refuses what passes checkForm: %v", err)
		}
	})
}

// FuzzStream feeds whatever comes after a good CONNECT through the whole broker: nothing panics, nothing
// but publishes on the device's own topic reaches the intake, and the connection ends cleanly.
func FuzzStream(f *testing.F) {
	for _, tc := range hostilePackets {
		f.Add(tc.version == mqtt5, tc.packet, 1)
	}
	f.Add(true, slices.Concat(subscribePacket(mqtt5, 1, theCommands), publishPacket(mqtt5, qos1, theEvents, 1, "{}"), []byte{0xC0, 0, 0xE0, 0}), 20)
	f.Add(false, slices.Concat(publishPacket(mqtt311, qos1|dup, theEvents, 1, "{}"), publishPacket(mqtt311, 0, theEvents, 0, "{}")), 5)
	f.Fuzz(func(t *testing.T, new bool, stream []byte, cut int) {
		version := byte(mqtt311)
		if new {
			version = mqtt5
		}
		cut = max(0, min(cut, len(stream)))
		synctest.Test(t, func(t *testing.T) {
			x := newBench(t, Config{Settings: Settings{AllowQoS2: cut%2 == 1}}, nil)
			defer x.stop()
			c := x.connect(version)
			c.send(stream[:cut])
			synctest.Wait()
			c.send(stream[cut:])
			synctest.Wait()
			if counted(t, x.broker.metrics.panics) != 0 {
				t.Error("panicked")
			}
			for _, a := range x.intake.seenArrivals() {
				if a.Topic != "dev1" || a.Tenant != "acme" || !bytes.Contains(stream, []byte(theEvents)) {
					t.Errorf("reached the intake: %+v", a)
				}
			}
			c.conn.Close()
			synctest.Wait()
			if n := x.broker.Connections() + len(x.broker.devices.pubsub.sessions); n != 0 {
				t.Errorf("%d left", n)
			}
			if n := counted(t, x.broker.metrics.pendingAcks); n != 0 {
				t.Errorf("%v acknowledgements pending", n)
			}
		})
	})
}
