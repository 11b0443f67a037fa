package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/ingest"
	"weir/model"
)

// as connects with a client id of any form.
func as(id string) func(*hello) { return func(h *hello) { h.clientID = id } }

// TestAnyClientIDIsTheDeviceOfItsCredential: it publishes as that device on its topics, and on no others.
func TestAnyClientIDIsTheDeviceOfItsCredential(t *testing.T) {
	for _, id := range []string{"esp32", "DVES_3F2A1C", "AA:BB:CC:DD:EE:FF", "a:b:c:d", "weir", "ESP8266Client-4f2a", "mosq-Tn3lX/é", strings.Repeat("x", 128), ""} {
		t.Run(id, func(t *testing.T) {
			forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
				c := x.connect(v, as(id), func(h *hello) {
					h.user, h.password, h.will = "acme:user1", "s3cret", []string{theTelemetry, `{"online":0}`}
				})
				c.send(publishPacket(v, qos1, theTelemetry, 1, "{}"))
				c.expect("its own topic", puback(1))
				if a := x.intake.arrivals[0]; a.Topic != "dev1" || a.Conn.DeviceID != 1 || !strings.HasPrefix(a.ClientID, "weir:acme:dev1/"+id) {
					t.Errorf("%+v", a)
				}
				c.send(publishPacket(v, qos1, "weir/acme/devices/dev2/events", 2, "{}"))
				synctest.Wait()
				if len(x.intake.arrivals) > 2 || !slices.Equal(x.intake.refused, []ingest.Reason{ingest.ReasonNotAuthorized}) {
					t.Errorf("%d arrivals, refused %v", len(x.intake.arrivals), x.intake.refused)
				}
			})
		})
	}
}

// Two devices may have one client id: each has its session, and their repeats are apart.
func TestAFreeClientIDCountsPerDevice(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		one := x.connect(v, as("esp32"))
		two := x.connect(v, as("esp32"), func(h *hello) { h.user = "acme:tok2" })
		one.send(publishPacket(v, qos1, theEvents, 1, "{}"))
		two.send(publishPacket(v, qos1, "weir/acme/devices/dev2/events", 1, "{}"))
		synctest.Wait()
		if one.isClosed() || two.isClosed() || x.broker.Connections() != 2 {
			t.Fatal("one took over the other")
		}
		if a := x.intake.arrivals; len(a) != 2 || a[0].ClientID == a[1].ClientID || a[0].Conn.DeviceID == a[1].Conn.DeviceID {
			t.Errorf("%+v", a)
		}
	})
}

// The same device and client id is a takeover; another client id is another session, also the one that names the device.
func TestAFreeClientIDIsASession(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		named := x.connect(v)
		suffixed := x.connect(v, as(theClient+":esp32"))
		other := x.connect(v, as("other"))
		first := x.connect(v, as("esp32"))
		second := x.connect(v, as("esp32"))
		synctest.Wait()
		if !first.isClosed() || second.isClosed() || other.isClosed() || named.isClosed() || suffixed.isClosed() {
			t.Error("the wrong session was taken over")
		}
	})
}

// It leaves no session: a device may have any number of client ids.
func TestAFreeClientIDLeavesNoSession(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		for range 2 {
			c, got := x.connack(v, as("esp32"), stays(v))
			if got[2] != 0 {
				t.Errorf("a session was present: % x", got)
			}
			c.conn.Close()
			synctest.Wait()
		}
		if n := x.broker.devices.pubsub.away.Len(); n != 0 {
			t.Errorf("%d sessions are kept", n)
		}
	})
}

func TestFreeClientIDsOfADeviceAreBounded(t *testing.T) {
	inBubble(t, Config{MaxPerDevice: 2}, func(t *testing.T, x *bench) {
		for i := range 2 {
			x.connect(mqtt5, as(fmt.Sprint("esp", i)))
		}
		c := x.dial(mqtt5)
		c.send(connectPacket(mqtt5, as("esp2")))
		c.expect("one more", refusedConnack(codeServerBusy))
		x.connect(mqtt5, as("esp2"), func(h *hello) { h.user = "acme:tok2" })
	})
}

func TestAChangedCredentialEndsItsFreeClients(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		mine, other := x.connect(mqtt5, as("esp32")), x.connect(mqtt5, as("esp32"), func(h *hello) { h.user = "acme:tok2" })
		x.broker.Drop(func(b model.Binding) bool { return b.DeviceID == 1 })
		mine.expectEnd(codeNotAuthorized)
		if other.isClosed() {
			t.Error("the other device's connection ended")
		}
	})
}

// A device is connected as long as one of its connections is that counts: with a new client id each time, it is back before the
// old connection ends.
func TestPresenceCountsTheConnectionsOfADevice(t *testing.T) {
	withStore(t, Config{}, &fakeStore{}, func(t *testing.T, x *bench) {
		old := x.connect(mqtt311, as("esp-1"))
		time.Sleep(time.Second)
		back := x.connect(mqtt311, as("esp-2"))
		time.Sleep(time.Second)
		old.conn.Close()
		synctest.Wait()
		const connected = "CONNECTED connected, CONNECTED connected"
		if got := x.intake.transitions(); got != connected {
			t.Fatal(got)
		}
		third := x.connect(mqtt311, as("esp-3"))
		third.send([]byte{0xE0, 0}) // the later connection ends before the earlier one
		synctest.Wait()
		if got := x.intake.transitions(); got != connected+", CONNECTED connected" {
			t.Fatal(got)
		}
		back.send([]byte{0xE0, 0})
		synctest.Wait()
		if got := x.intake.transitions(); got != connected+", CONNECTED connected, DISCONNECTED disconnected" {
			t.Error(got)
		}
		if n := x.intake.sessions(); n[3] != n[2] {
			t.Errorf("the end bears the number %d, the last connection is %d", n[3], n[2])
		}
	})
}

// What is wrong with a refused CONNECT is reported where only the operator sees it.
func TestARefusedWillTopicIsReported(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		var got []string
		x.broker.deps.Refused = func(tenant, device, why, mistake string) { got = append(got, tenant+"/"+device+" "+why+": "+mistake) }
		c := x.dial(mqtt311)
		c.send(connectPacket(mqtt311, as("DVES_3F2A1C"), func(h *hello) { h.will = []string{"tele/tasmota_3F2A1C/LWT", "Offline"} }))
		c.expectClosed("a will on a foreign topic")
		if want := []string{`acme/ not-authorized: the will's topic "tele/tasmota_3F2A1C/LWT" is none of the device's topics`}; !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	})
}
