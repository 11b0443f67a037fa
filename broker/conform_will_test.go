package broker

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weir/ingest"
	"weir/model"
)

func TestWillConforms(t *testing.T) { conforms(t, willCases) }

func everybody(model.Binding) bool { return true }

// leaves has a will at QoS 1, which MQTT 5 has delayed and its session kept for so many seconds.
func leaves(v byte, delay, expiry uint32) func(*hello) {
	return func(h *hello) {
		h.will, h.flags = []string{theEvents, "will"}, h.flags|8
		if v == mqtt5 && delay > 0 {
			h.willProps = prop32(propWillDelay, delay)
		}
		if expiry > 0 {
			h.flags &^= flagClean
			h.props = prop32(propSessionExpiry, expiry)
		}
	}
}

var willCases = []conformCase{
	{"3.1.2-7 3.1.2-8 3.1.2-14", "a will is published when the connection ends without a DISCONNECT", 0, Config{}, func(x *bench, v byte) {
		for _, end := range []func(*client){
			func(c *client) { c.conn.Close() },
			func(*client) { time.Sleep(91 * time.Second) },
			func(c *client) { c.send([]byte{0xC1, 0}) },
			func(c *client) { c.send(connectPacket(v)) },
			func(c *client) { c.send([]byte{0x30, 0xff, 0xff, 0xff, 0xff, 0xff}) },
			func(c *client) { x.connect(v).send(goodbye) },
		} {
			before := len(x.intake.bodies())
			c := x.connect(v, leaves(v, 0, 0))
			end(c)
			synctest.Wait()
			c.expectClosed("the end")
			if got := x.intake.bodies()[before:]; !slices.Equal(got, []string{"will"}) {
				x.t.Errorf("the intake got %q", got)
			}
		}
	}},
	{"3.14.4-3 3.1.2-10 v3:3.1.2-12", "a DISCONNECT removes the will", 0, Config{}, func(x *bench, v byte) {
		x.connect(v, leaves(v, 0, 0)).send(goodbye)
		synctest.Wait()
		x.connect(v).conn.Close() // and one that has none leaves none
		time.Sleep(time.Hour)
		x.expectStored()
	}},
	{"3.14.2-1 3.1.2-8", "a DISCONNECT with another reason keeps the will", mqtt5, Config{}, func(x *bench, v byte) {
		for n, code := range []byte{0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99} {
			c := x.connect(v, leaves(v, 0, 0))
			c.send([]byte{0xE0, 1, code})
			c.expect("nothing is said")
			c.expectClosed("a DISCONNECT")
			if got := x.intake.bodies(); len(got) != n+1 {
				x.t.Errorf("code %#x: %d wills", code, len(got))
			}
		}
	}},
	{"3.1.3-9", "a delayed will", mqtt5, Config{}, func(x *bench, v byte) {
		x.connect(v, leaves(v, 30, 60)).conn.Close()
		time.Sleep(29 * time.Second)
		x.expectStored()
		time.Sleep(2 * time.Second)
		x.expectStored("will")
		time.Sleep(time.Hour)
		x.expectStored("will")
	}},
	{"3.1.3-9 4.1.0-2", "a session that ends before its will's delay publishes the will", mqtt5, Config{}, func(x *bench, v byte) {
		x.connect(v, leaves(v, 60, 30)).conn.Close()
		time.Sleep(29 * time.Second)
		x.expectStored()
		time.Sleep(2 * time.Second)
		x.expectStored("will")
		x.connect(v, leaves(v, math.MaxUint32, 0)).conn.Close() // at once when it ends with the connection
		x.expectStored("will", "will")
	}},
	{"3.1.3-9", "a client that resumes its session in time cancels its will; a clean start does not", mqtt5, Config{}, func(x *bench, v byte) {
		x.connect(v, leaves(v, 30, 60)).conn.Close()
		time.Sleep(29 * time.Second)
		c := x.connect(v, stays(v))
		time.Sleep(time.Minute)
		x.expectStored()
		c.send(goodbye)
		synctest.Wait()
		x.connect(v, leaves(v, 30, 60)).conn.Close()
		synctest.Wait()
		x.connect(v)
		x.expectStored("will")
	}},
	{"3.1.3-9", "a DISCONNECT that requests the will keeps its delay", mqtt5, Config{}, func(x *bench, v byte) {
		c := x.connect(v, leaves(v, 30, 60))
		c.send([]byte{0xE0, 1, 4})
		c.expectClosed("a DISCONNECT")
		time.Sleep(29 * time.Second)
		x.expectStored()
		time.Sleep(2 * time.Second)
		x.expectStored("will")
		c = x.connect(v, leaves(v, 30, 60)) // and one that ends the session none
		c.send([]byte{0xE0, 7, 4, 5, propSessionExpiry, 0, 0, 0, 0})
		x.expectStored("will", "will")
	}},
	{"3.1.3-9 3.1.4-3", "a will at a takeover", mqtt5, Config{}, func(x *bench, v byte) {
		for _, tc := range []struct {
			what          string
			delay, expiry uint32
			next          func(*hello)
			wills         int
		}{
			{"the session is resumed and the will has a delay", 30, 60, stays(v), 0},
			{"the will has no delay", 0, 60, stays(v), 1},
			{"the next connection starts clean", 30, 60, func(*hello) {}, 1},
			{"the session ends with its connection", 30, 0, stays(v), 1},
		} {
			before := len(x.intake.bodies())
			x.connect(v, leaves(v, tc.delay, tc.expiry))
			next := x.connect(v, tc.next)
			for range 40 {
				time.Sleep(time.Second)
				next.send(pingreq)
			}
			synctest.Wait()
			if n := len(x.intake.bodies()) - before; n != tc.wills {
				x.t.Errorf("%s: %d wills", tc.what, n)
			}
			next.send(packet(0xE0, slices.Concat([]byte{0}, props(prop32(propSessionExpiry, 0)))...))
			synctest.Wait()
		}
	}},
	{"3.1.2-8", "a will is published when Weir ends the connection", 0, Config{MaxSession: time.Minute}, func(x *bench, v byte) {
		for _, end := range []*cause{causeWithheld, causeStalled, causeSlowReader, causeExpired, causePanic, causeRefused} {
			before := len(x.intake.bodies())
			c := x.connect(v, leaves(v, 0, 0))
			if end == causeExpired {
				time.Sleep(time.Minute)
			} else {
				x.broker.devices.pubsub.live()[0].end(end)
			}
			synctest.Wait()
			c.expectClosed(end.word)
			if got := x.intake.bodies()[before:]; !slices.Equal(got, []string{"will"}) {
				x.t.Errorf("%s: the intake got %q", end.word, got)
			}
		}
	}},
	{"3.1.2-8 3.1.3-9", "when Weir stops, its sessions end and wills are published, including delayed ones", 0, Config{}, func(x *bench, v byte) {
		x.connect(v, leaves(v, 30, 60)).conn.Close()
		synctest.Wait()
		x.connect(v, leaves(v, 30, 60), func(h *hello) {
			h.clientID, h.user, h.will = "weir:acme:dev2", "acme:tok2", []string{"weir/acme/devices/dev2/events", "another"}
		})
		before := len(x.intake.bodies())
		x.stop()
		got := x.intake.bodies()
		if v == mqtt5 && before != 0 || len(got) != 2 {
			x.t.Errorf("the intake got %q, %d of them before the stop", got, before)
		}
		time.Sleep(time.Hour)
		if n := len(x.intake.bodies()); n != 2 {
			x.t.Errorf("%d wills in the end", n)
		}
	}},
	{"3.1.2-8", "the will of a revoked credential is refused and counted, also if delayed", 0, Config{}, func(x *bench, v byte) {
		x.connect(v, leaves(v, 0, 0))
		x.broker.Drop(everybody)
		want := []ingest.Reason{ingest.ReasonNotAuthorized}
		if v == mqtt5 {
			x.connect(v, leaves(v, 30, 60)).conn.Close()
			synctest.Wait()
			x.broker.Drop(everybody)
			want = append(want, ingest.ReasonNotAuthorized)
		}
		time.Sleep(time.Hour)
		x.expectStored()
		if got := x.intake.reasons(); !slices.Equal(got, want) || x.intake.counted() != len(want) {
			x.t.Errorf("refused %v, received %d", got, x.intake.counted())
		}
	}},
	{"3.1.2-14 3.1.2-15 3.1.3-10", "a will is handled like every message, with CannotRefuse and its device's binding", 0, Config{}, func(x *bench, v byte) {
		x.connect(v, leaves(v, 0, 0), func(h *hello) {
			if v == mqtt5 {
				h.willProps = slices.Concat(prop8(1, 1), prop32(2, 60), propText(3, "application/json"), propText(8, "a"), propText(9, "c"), propText(propUser, "k", "v"))
			}
		}).conn.Close()
		x.expectStored("will")
		if a := x.intake.seenArrivals()[0]; !a.CannotRefuse || a.Tenant != "acme" || a.Topic != "dev1" || a.Conn.DeviceID != 1 || a.ClientID != theClient {
			x.t.Errorf("%+v", a)
		}
	}},
	{"3.1.2-8", "a will on a topic that is not the device's", 0, Config{}, func(x *bench, v byte) {
		answer := []byte{0x20, 2, 0, 5}
		if v == mqtt5 {
			answer = refusedConnack(codeNotAuthorized)
		}
		for _, topic := range []string{"weir/acme/devices/dev2/events", "weir/globex/devices/dev1/events", theCommands, "#", ""} {
			x.expectRefused(v, connectPacket(v, func(h *hello) { h.will = []string{topic, "x"} }), answer...)
		}
	}},
}
