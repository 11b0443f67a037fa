package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"weir/internal/test/poll"
	"weir/internal/test/relay"
	"weir/internal/test/seed"
	"weir/internal/test/testcerts"
	"weir/internal/test/testweir"
)

// below is the configuration of an edge that signs in as a device of a tenant.
func (tn *tenant) below(device, address string) string {
	return fmt.Sprintf("role: edge\nedge: {agent_id: %s, listen: \"127.0.0.1:0\", uplink: {broker_url: \"tcp://%s\", username: \"%s:%s\", password: \"\", backoff_min: 20ms, backoff_max: 200ms, keep_alive: 1s}}\n",
		device, address, tn.name, tn.secret(device))
}

// drained waits until an edge has handed over everything.
func drained(t *testing.T, p *testweir.Proc) {
	t.Helper()
	poll.Until(t, "nothing waits at the edge", func() error {
		if s := p.Run("", "edge", "status", "--json"); !strings.Contains(s, `"waiting": 0`) && !strings.Contains(s, `"waiting":0`) {
			return fmt.Errorf("%s", s)
		}
		return nil
	})
}

// TestAnEdgeBelowAWeir: what devices send at a site is above once, whatever is killed and cut, and both ledgers agree.
func TestAnEdgeBelowAWeir(t *testing.T) {
	t.Parallel()
	rng := seed.Rand(t)
	aboveDir, edgeDir := t.TempDir(), t.TempDir()
	w := start(t, testweir.Options{Dir: aboveDir, Config: generous})
	tn := w.tenant(t, "site")
	tn.plain("gw", "a", "b", "c")
	tn.devices(`mutation{createEdge(request:{token:"north",deviceToken:"gw",enabled:true}){token}}`, nil)
	link := relay.Start(t, w.MQTT)
	devices := []*edgeDevice{{name: "a"}, {name: "b"}, {name: "c"}}
	startEdge := func() *testweir.Proc {
		return testweir.Start(t, testweir.Options{Dir: edgeDir, Config: tn.below("gw", link.Address())})
	}
	const rounds = 8
	for round := range rounds {
		p := startEdge()
		stop := make(chan struct{})
		var sending sync.WaitGroup
		for _, d := range devices {
			sending.Go(func() { d.run(p.MQTT, tn.name, stop) })
		}
		for range 1 + rng.IntN(3) {
			time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
			switch rng.IntN(3) {
			case 0:
				link.Cut()
			case 1:
				link.Down(rng.IntN(2) == 0)
			case 2:
				link.Stall(true)
				time.Sleep(10 * time.Millisecond)
				link.Stall(false)
				link.Cut()
			}
		}
		link.Down(false)
		if round%2 == 1 { // the other side
			poll.True(t, "messages are acknowledged", func() bool { return devices[0].acked.Load()+devices[1].acked.Load() > int64(round) })
			w.Kill()
			w = &world{Proc: testweir.Start(t, testweir.Options{Dir: aboveDir, Config: generous})}
			w.login()
			tn = w.enter(t, "site")
			link.To(w.MQTT)
		}
		p.Kill()
		close(stop)
		sending.Wait()
	}
	p := startEdge()
	for _, d := range devices { // what is unacknowledged is sent to the end
		if want := int64(d.next); want > d.acked.Load() {
			stop, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				d.run(p.MQTT, tn.name, stop)
			}()
			poll.True(t, "the last message is acknowledged", func() bool { return d.acked.Load() >= want })
			close(stop)
			<-ended
		}
	}
	drained(t, p)
	total := 0
	for _, d := range devices {
		total += int(d.acked.Load())
	}
	tn.arrived(total)
	for _, d := range devices {
		got := map[float64]int{}
		page := 1
		for {
			ms, n := tn.measurements(map[string]any{"deviceToken": d.name, "pageNumber": page, "pageSize": 1000})
			for _, m := range ms {
				got[m.Value]++
			}
			if page++; (page-1)*1000 >= n {
				break
			}
		}
		acked := int(d.acked.Load())
		if len(got) != acked || acked == 0 {
			t.Errorf("device %s: %d readings above, %d messages acknowledged", d.name, len(got), acked)
		}
		for v, n := range got {
			if n != 1 {
				t.Errorf("device %s: reading %v is there %d times", d.name, v, n)
			}
		}
	}
	if l := tn.ledger("uplink"); l.Stored != total || l.Received != l.Stored+l.Duplicate+l.Refused { // what came while all was stopping was refused and sent again
		t.Errorf("the ledger says %+v, %d were acknowledged", l, total)
	}
	t.Logf("%d messages, %+v", total, tn.ledger("uplink"))
}

// TestForWhomAnEdgeSpeaks: an edge publishes for the devices in its scope; devices that there are not are made where that is wanted.
func TestForWhomAnEdgeSpeaks(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: generous})
	tn := w.tenant(t, "site")
	tn.plain("gw", "in", "out")
	tn.devices(`mutation{setEntityAttribute(request:{entityType:"device",entity:"in",scope:"SHARED",attrKey:"site",valueType:"STRING",value:"here"}){id}
		createEntityGroup(request:{token:"ours",memberType:"device",membershipMode:"dynamic",selector:"attr[\"site\"] == \"here\""}){token}
		createEdge(request:{token:"north",deviceToken:"gw",groupToken:"ours",enabled:true}){token}}`, nil)
	p := testweir.Start(t, testweir.Options{Config: tn.below("gw", w.MQTT)})
	send := func(device string) {
		t.Helper()
		d := &edgeDevice{name: device}
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			d.run(p.MQTT, tn.name, stop)
		}()
		poll.True(t, "a message is acknowledged", func() bool { return d.acked.Load() > 0 })
		close(stop)
		<-ended
		drained(t, p)
	}
	letters := func(want string) {
		t.Helper()
		poll.Until(t, "the edge has a dead letter", func() error {
			if s := p.Run("", "edge", "dead-letters", "--json"); !strings.Contains(s, want) {
				return fmt.Errorf("%s", s)
			}
			return nil
		})
	}
	readings := func(device string) int {
		_, n := tn.measurements(map[string]any{"deviceToken": device, "pageSize": 1})
		return n
	}
	send("in")
	poll.True(t, "a member of the group is heard", func() bool { return readings("in") > 0 })
	send("out")
	letters("devices/out/events")
	if n := readings("out"); n != 0 {
		t.Errorf("%d readings of a device out of scope", n)
	}
	send("nobody")
	letters("devices/nobody/events")
	tn.devices(`mutation{updateEdge(token:"north",request:{groupToken:null}){token}}`, nil)
	// The name of a topic is the token before it is an external id.
	tn.devices(`mutation{updateDevice(token:"in",request:{externalId:"out"}){token}}`, nil)
	send("out")
	poll.True(t, "all devices are in scope", func() bool { return readings("out") > 0 })
	send("nobody") // becomes a dead letter above
	poll.True(t, "a device that there is not is a dead letter", func() bool { return tn.ledger("uplink").DeadLetter > 0 })
	tn.devices(`mutation{createDeviceType(request:{token:"made"}){token} updateEdge(token:"north",request:{autoRegisterTypeToken:"made"}){token}}`, nil)
	send("newcomer")
	poll.True(t, "a device is made", func() bool { return readings("newcomer") > 0 })
	tn.devices(`mutation{updateEdge(token:"north",request:{enabled:false}){token}}`, nil)
	before := readings("in")
	send("in")
	letters("devices/in/events")
	if n := readings("in"); n != before {
		t.Errorf("%d readings, there were %d before the edge was disabled", n, before)
	}
}

// TestCommandsBehindAnEdge: a command for a device at a site is HELD while the device takes none or the uplink is cut, reaches it through its edge, and
// its answer ends it.
func TestCommandsBehindAnEdge(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: generous})
	tn := w.tenant(t, "site")
	tn.plain("gw", "d")
	tn.devices(`mutation{createEdge(request:{token:"north",deviceToken:"gw",enabled:true}){token}}`, nil)
	link := relay.Start(t, w.MQTT)
	p := testweir.Start(t, testweir.Options{Config: tn.below("gw", link.Address())})
	becomes := func(token, want string) {
		t.Helper()
		poll.Until(t, token, func() error {
			got := string(tn.must(t, "command-delivery", tn.token, fmt.Sprintf(`{commandsByToken(tokens:[%q]){status responsePayload}}`, token), nil).Data)
			if got != `{"commandsByToken":[`+want+`]}` {
				return fmt.Errorf("%s, want %s", got, want)
			}
			return nil
		})
	}
	order := func(token string) {
		t.Helper()
		tn.must(t, "command-delivery", tn.token, fmt.Sprintf(`mutation{createCommand(request:{token:%q,deviceToken:"d",name:"read"}){command{token} rejection{code}}}`, token), nil)
	}
	order("c-1")
	becomes("c-1", `{"status":"HELD","responsePayload":null}`)
	c, came, stop := tn.listeningAt(p.MQTT, "d")
	defer stop()
	answered := func(token string) {
		t.Helper()
		var d downlink
		select {
		case d = <-came:
		case <-time.After(time.Minute):
			t.Fatalf("%s does not come", token)
		}
		if d.Token != token || d.DeviceToken != "d" || d.Name != "read" || d.DispatchNonce == "" {
			t.Fatalf("%+v", d)
		}
		poll.Until(t, "the command is delivered", func() error {
			if got := string(tn.must(t, "command-delivery", tn.token, fmt.Sprintf(`{commandsByToken(tokens:[%q]){deliveredTime}}`, token), nil).Data); strings.Contains(got, "null") {
				return fmt.Errorf("%s", got)
			}
			return nil
		})
		answer := fmt.Sprintf(`{"commandToken":%q,"dispatchNonce":%q,"success":true,"payload":21.5}`, d.Token, d.DispatchNonce)
		if _, err := c.Publish(t.Context(), &paho.Publish{Topic: "weir/site/command-responses/d", QoS: 1, Payload: []byte(answer)}); err != nil {
			t.Fatal(err)
		}
		becomes(token, `{"status":"SUCCESSFUL","responsePayload":"21.5"}`)
	}
	answered("c-1")
	order("c-2")
	answered("c-2")
	link.Down(true)
	link.Cut()
	poll.True(t, "the cut is noticed", func() bool {
		return strings.Contains(p.Run("", "edge", "status", "--json"), `"connected": false`)
	})
	order("c-3")
	becomes("c-3", `{"status":"HELD","responsePayload":null}`)
	link.Down(false)
	answered("c-3")
	stop()
	order("c-4")
	becomes("c-4", `{"status":"HELD","responsePayload":null}`)
}

// TestACopyOfAnEdge: two edges from one image do not take each other's numbers: everything of both is above, and the Weir above says that there is a copy.
func TestACopyOfAnEdge(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: generous})
	tn := w.tenant(t, "site")
	tn.plain("gw", "a", "b")
	tn.devices(`mutation{createEdge(request:{token:"north",deviceToken:"gw",enabled:true}){token}}`, nil)
	dir, image := t.TempDir(), t.TempDir()
	sends := func(dir string, d *edgeDevice, n int64) {
		t.Helper()
		p := testweir.Start(t, testweir.Options{Dir: dir, Config: tn.below("gw", w.MQTT)})
		stop, ended := make(chan struct{}), make(chan struct{})
		want := d.acked.Load() + n
		go func() {
			defer close(ended)
			d.run(p.MQTT, tn.name, stop)
		}()
		poll.True(t, "messages are acknowledged", func() bool { return d.acked.Load() >= want })
		close(stop)
		<-ended
		drained(t, p)
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	a, b := &edgeDevice{name: "a"}, &edgeDevice{name: "b"}
	sends(dir, a, 5)
	for _, part := range []string{"spool", "edge"} {
		if err := os.CopyFS(filepath.Join(image, "data", part), os.DirFS(filepath.Join(dir, "data", part))); err != nil {
			t.Fatal(err)
		}
	}
	sends(dir, a, 500)
	sends(image, b, 5)
	sends(dir, a, 5)
	for _, d := range []*edgeDevice{a, b} {
		poll.Until(t, "all of both are above, once", func() error {
			if _, n := tn.measurements(map[string]any{"deviceToken": d.name, "pageSize": 1}); n != int(d.acked.Load()) {
				return fmt.Errorf("%s: %d readings, %d were acknowledged", d.name, n, d.acked.Load())
			}
			return nil
		})
	}
	got := string(tn.must(t, "device-management", tn.token, `{edgesByToken(tokens:["north"]){state{findings gaps{first last}}}}`, nil).Data)
	if got != `{"edgesByToken":[{"state":{"findings":["EdgeCloned"],"gaps":[]}}]}` {
		t.Error(got)
	}
}

// TestDevicesSignInAtAnEdgeWithTheirOwnCredentials: also while the Weir above is away; one that is disabled there ends at the edge.
func TestDevicesSignInAtAnEdgeWithTheirOwnCredentials(t *testing.T) {
	t.Parallel()
	certs := t.TempDir()
	if err := testcerts.WriteSet(certs); err != nil {
		t.Fatal(err)
	}
	aboveDir := t.TempDir()
	w := start(t, testweir.Options{Dir: aboveDir, Config: generous + fmt.Sprintf("tls: {cert_file: %q, key_file: %q}\n", filepath.Join(certs, "gw.pem"), filepath.Join(certs, "gw.key")), Env: []string{"WEIR_LISTENERS_MQTTS=127.0.0.1:0"}})
	tn := w.tenant(t, "site")
	tn.plain("gw", "a", "b")
	for i := range 120 { // more than a packet of 16 KiB says
		tn.device(fmt.Sprintf("more-%03d", i), "plain")
	}
	tn.devices(`mutation{createEdge(request:{token:"north",deviceToken:"gw",enabled:true}){token}}`, nil)
	secure := ""
	for line := range strings.Lines(w.Stdout()) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "mqtts" {
			secure = f[1]
		}
	}
	link := relay.Start(t, secure)
	dir := t.TempDir()
	config := fmt.Sprintf("role: edge\nedge: {agent_id: gw, auth: synced, listen: \"127.0.0.1:0\", uplink: {broker_url: \"tls://%s\", username: \"site:%s\", password: \"\", backoff_min: 20ms, backoff_max: 200ms, keep_alive: 1s, tls: {ca_file: %q}}}\n",
		link.Address(), tn.secret("gw"), filepath.Join(certs, "ca.pem"))
	p := testweir.Start(t, testweir.Options{Dir: dir, Config: config})
	may := func(device, token string) error {
		c, err := testweir.DialMQTT(p.MQTT, "weir", tn.name, device, token)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.Publish("weir/"+tn.name+"/devices/"+device+"/events", 1, false, numbered(1)); err != nil {
			return err
		}
		_, err = c.Puback()
		return err
	}
	poll.Until(t, "a device signs in", func() error { return may("a", tn.secret("a")) })
	if may("a", "wrong") == nil || may("b", tn.secret("a")) == nil {
		t.Error("a wrong credential, or one of another device, lets in")
	}
	link.Down(true)
	link.Cut()
	p.Kill()
	p = testweir.Start(t, testweir.Options{Dir: dir, Config: config}) // the Weir above is away
	if err := may("b", tn.secret("b")); err != nil {
		t.Errorf("while the Weir above is away: %v", err)
	}
	held, err := testweir.DialMQTT(p.MQTT, "weir", tn.name, "b", tn.secret("b"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	tn.devices(`mutation{updateDeviceCredential(token:"b",request:{enabled:false}){id}}`, nil)
	link.Down(false)
	if _, _, err := held.Packet(); err == nil {
		t.Error("a packet came where the session was to end")
	}
	poll.True(t, "a disabled credential lets nothing in", func() bool { return may("b", tn.secret("b")) != nil })
	if err := may("a", tn.secret("a")); err != nil {
		t.Error(err)
	}
	tn.device("c", "plain")
	poll.Until(t, "a device that was made now signs in", func() error { return may("c", tn.secret("c")) })
	drained(t, p)
	for device, want := range map[string]int{"a": 2, "b": 1, "c": 1} {
		poll.Until(t, "its messages are above", func() error {
			if _, n := tn.measurements(map[string]any{"deviceToken": device, "pageSize": 1}); n < want {
				return fmt.Errorf("%s: %d readings, want at least %d", device, n, want)
			}
			return nil
		})
	}
}
