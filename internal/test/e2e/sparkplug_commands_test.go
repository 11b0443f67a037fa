package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/test/conformance"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// commandsOnly holds that a broker has seen nothing of Weir but STATE and requests for a rebirth, as the specification wants them.
func (b *sparkplugBroker) commandsOnly(t *testing.T) {
	t.Helper()
	for _, m := range b.Messages() {
		switch {
		case m.Topic == "spBv1.0/STATE/weir":
		case strings.HasPrefix(m.Topic, "spBv1.0/g/NCMD/") && m.QoS == 0 && !m.Retain && strings.Contains(m.Payload, "Node Control/Rebirth") && strings.Count(m.Payload, "Node Control/") == 1:
		default:
			t.Errorf("published: %+v", m)
		}
	}
}

// awaitHost waits until the host has said at the broker that it is online: by then it has subscribed.
func (b *sparkplugBroker) awaitHost(t testing.TB) {
	t.Helper()
	poll.Until(t, "STATE", func() error {
		if len(b.states(t)) == 0 {
			return fmt.Errorf("none")
		}
		return nil
	})
}

// withNode makes a tenant's node n with a device d behind it known, present at the broker.
func (c *commander) withNode(b *sparkplugBroker) (node, device string) {
	c.t.Helper()
	b.awaitHost(c.t)
	b.send("g/NBIRTH/n", nodeSays(0).bytes(2, bdSeq(1)).metric("temp", 1, double(20)))
	b.send("g/DBIRTH/n/d", nodeSays(1).metric("speed", 9, double(5)))
	c.tenant.asserted("g/n", true)
	c.tenant.asserted("g/n/d", true)
	n, _ := c.tenant.presenceOf("g/n")
	d, _ := c.tenant.presenceOf("g/n/d")
	return n.DeviceToken, d.DeviceToken
}

// TestCommandsForSparkplugDevices: no command reaches a node or a device, and what becomes of one says so. With the presence gate it is FAILED,
// at once where it is the only queued one of its device and otherwise with the next sweep, also for a device that is asserted absent, whose
// commands would else be HELD for ever. Without the gate it is SENT to where nobody listens, and ends as TIMEOUT; the log says at the start that the
// gate is off.
func TestCommandsForSparkplugDevices(t *testing.T) {
	t.Parallel()
	const source = "sparkplug:\n  sources:\n    - {tenant: plant, broker: {url: \"tcp://127.0.0.1:%s\"}, device_type_token: node, auto_register: true}\n"
	open := func(t *testing.T, b *sparkplugBroker, commands string) (*commander, string, string) {
		dir := t.TempDir()
		config := generous + fmt.Sprintf(source, b.Port())
		w := start(t, testweir.Options{Dir: dir, Config: config + "commands: {" + commands + "}\n"})
		c := &commander{tenant: w.tenant(t, "plant"), t: t}
		c.tenant.devices(`mutation{createDeviceType(request:{token:"node"}){token}}`, nil)
		return c, dir, config
	}
	t.Run("gate on", func(t *testing.T) {
		t.Parallel()
		b := startSparkplugBroker(t, false)
		c, dir, config := open(t, b, "sweep_interval: 300s, hold_check_interval: 5s")
		c.tenant.devices(`mutation{createDevice(request:{token:"early",deviceTypeToken:"node",externalId:"g/early"}){id}}`, nil)
		c.order("e1", "early") // made before the node is heard: a device of nobody yet
		c.order("e2", "early")
		c.becomes("e1", "HELD")
		c.becomes("e2", "HELD")
		node, device := c.withNode(b)
		for command, to := range map[string]string{"c1": node, "c2": device} {
			c.order(command, to)
			if row := c.becomes(command, "FAILED"); row.Error == nil || !strings.Contains(*row.Error, "undeliverable") || row.SentTime != nil {
				t.Errorf("%+v", row)
			}
		}
		b.send("g/DDEATH/n/d", nodeSays(2))
		c.tenant.asserted("g/n/d", false)
		c.order("c3", device)
		c.becomes("c3", "FAILED")

		// The commands of a device that several wait for are released once it is heard, and stay QUEUED until the sweep.
		b.send("g/NBIRTH/early", nodeSays(0).bytes(2, bdSeq(1)).metric("temp", 1, double(20)))
		c.tenant.asserted("g/early", true)
		c.becomes("e1", "QUEUED")
		c.becomes("e2", "QUEUED")
		b.send("g/NDATA/n", nodeSays(9).metric("", 1, double(1))) // a gap, so that there is a request for a rebirth
		poll.Until(t, "a request for a rebirth", func() error {
			if b.rebirths("n") == 0 {
				return fmt.Errorf("none")
			}
			return nil
		})
		b.commandsOnly(t)
		if err := c.tenant.Stop(); err != nil {
			t.Fatal(err)
		}
		w := &world{Proc: testweir.Start(t, testweir.Options{Dir: dir, Config: config + "commands: {sweep_interval: 5s, hold_check_interval: 5s}\n"})}
		w.login()
		c.tenant = w.enter(t, "plant")
		c.becomes("e1", "FAILED")
		c.becomes("e2", "FAILED")
		b.commandsOnly(t)
		conformance.Shown(t, "S2-005", "S2-096")
	})
	t.Run("gate off", func(t *testing.T) {
		t.Parallel()
		b := startSparkplugBroker(t, false)
		c, _, _ := open(t, b, "presence_gate: false, sweep_interval: 5s")
		if log := c.tenant.Stderr(); !strings.Contains(log, "commands.presence_gate") || !strings.Contains(log, "is off: commands for absent devices are SENT") {
			t.Errorf("the log does not say that the gate is off: %s", log)
		}
		node, _ := c.withNode(b)
		soon := time.Now().Add(65 * time.Second).UTC().Format(time.RFC3339)
		c.must(fmt.Sprintf(`mutation{createCommand(request:{token:"c1",deviceToken:%q,name:"open",expiresAt:%q}){command{token}}}`, node, soon))
		c.becomes("c1", "SENT")
		if row := c.becomes("c1", "TIMEOUT"); row.SentTime == nil || row.Error == nil {
			t.Errorf("%+v", row)
		}
		b.commandsOnly(t)
		conformance.Shown(t, "S2-098")
	})
}

// TestANodeAtTwoBrokersIsOneDevice: two sources of a tenant, each at a broker of its own. What the node says at either is stored for one device,
// and each broker is asked for what is missing there.
func TestANodeAtTwoBrokersIsOneDevice(t *testing.T) {
	t.Parallel()
	one, two := startSparkplugBroker(t, false), startSparkplugBroker(t, false)
	const source = "    - {tenant: plant, broker: {url: \"tcp://127.0.0.1:%s\"}, device_type_token: node, auto_register: true}\n"
	w := start(t, testweir.Options{Config: generous + "sparkplug:\n  sources:\n" + fmt.Sprintf(source+source, one.Port(), two.Port())})
	plant := w.tenant(t, "plant")
	plant.devices(`mutation{createDeviceType(request:{token:"node"}){token}}`, nil)
	one.awaitHost(t)
	two.awaitHost(t)
	one.send("g/NBIRTH/n", nodeSays(0).bytes(2, bdSeq(1)).metric("temp", 1, double(1)))
	plant.asserted("g/n", true)
	two.send("g/NBIRTH/n", nodeSays(0).bytes(2, bdSeq(1)).metric("temp", 7, double(2)))
	one.send("g/NDATA/n", nodeSays(1).metric("", 1, proto{}.double(13, 3)))
	two.send("g/NDATA/n", nodeSays(1).metric("", 7, proto{}.double(13, 4)))
	plant.holds("temp=1", "temp=2", "temp=3", "temp=4")
	var all struct {
		Devices struct {
			Results []struct{ Token, ExternalID string }
		}
	}
	plant.devices(`{devices(criteria:{pageNumber:1,pageSize:9}){results{token externalId}}}`, nil).into(t, &all)
	if len(all.Devices.Results) != 1 || all.Devices.Results[0].ExternalID != "g/n" {
		t.Errorf("%+v, want one device", all.Devices.Results)
	}
	two.send("g/NDATA/n", nodeSays(9).metric("", 7, proto{}.double(13, 5)))
	poll.Until(t, "a request for a rebirth at the broker with the gap", func() error {
		if two.rebirths("n") == 0 {
			return fmt.Errorf("none")
		}
		return nil
	})
	if n := one.rebirths("n"); n != 0 {
		t.Errorf("the other broker has %d requests", n)
	}
	poll.Until(t, "a metric of the source", func() error {
		m, err := w.Scrape(t.Context())
		if err != nil || m[`weir_source_connected{source="sparkplug:weir"}`] != 1 {
			return fmt.Errorf("connected: %v, %v", m[`weir_source_connected{source="sparkplug:weir"}`], err)
		}
		return nil
	})
}
