package e2e_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/test/conformance"
	"weir/internal/test/mqttpeer"
	"weir/internal/test/poll"
	"weir/internal/test/relay"
	"weir/internal/test/seed"
	"weir/internal/test/testweir"
)

// edgeConfig is that of an edge below a broker.
func edgeConfig(broker string) string {
	return "role: edge\nedge: {listen: \"127.0.0.1:0\", uplink: {broker_url: \"tcp://" + broker + "\", backoff_min: 20ms, backoff_max: 200ms, keep_alive: 1s}}\n"
}

// brokerAbove is what arrived at a broker above an edge.
type brokerAbove struct{ *mqttpeer.Broker }

func (a brokerAbove) address() string { return "127.0.0.1:" + a.Port() }

// messages returns what was acknowledged above, each altId once: a repeat must be the same message on the same topic.
func (a brokerAbove) messages(t *testing.T) map[string]mqttpeer.Message {
	t.Helper()
	out := map[string]mqttpeer.Message{}
	for _, m := range a.Messages() {
		var event struct{ AltID, OccurredTime string }
		if err := json.Unmarshal([]byte(m.Payload), &event); err != nil || event.AltID == "" || event.OccurredTime == "" {
			t.Errorf("%s %s: no altId and occurredTime (%v)", m.Topic, m.Payload, err)
			continue
		}
		if before, again := out[event.AltID]; again && before != m {
			t.Errorf("%s was %v and is %v", event.AltID, before, m)
		}
		out[event.AltID] = m
	}
	return out
}

func numbered(n int) []byte {
	return fmt.Appendf(nil, `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"n":"%d"}}]}}`, n)
}

// TestAnEdgeForwardsOnTheSameTopics: what devices send over MQTT and HTTP arrives at a plain broker above, on the topics of the devices.
func TestAnEdgeForwardsOnTheSameTopics(t *testing.T) {
	t.Parallel()
	up := brokerAbove{mqttpeer.Start(t, &mqttpeer.Broker{}, nil, false)}
	p := testweir.Start(t, testweir.Options{Config: edgeConfig(up.address())})
	c, err := testweir.DialMQTT(p.MQTT, "weir", "acme", "pump", "any")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	topics := []string{"weir/acme/devices/pump/events", "weir/acme/command-responses/pump", "weir/acme/device-reports/pump", "weir/acme/devices/fan/events"}
	for i, topic := range topics {
		if err := c.Publish(topic, uint16(i+1), false, numbered(i)); err != nil {
			t.Fatal(err)
		}
		if id, err := c.Puback(); err != nil || id != uint16(i+1) {
			t.Fatal(id, err)
		}
	}
	garbage := "garbage {"
	if err := c.Publish(topics[0], 9, false, []byte(garbage)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Puback(); err != nil {
		t.Fatal(err)
	}
	if err := c.Publish("other/acme/devices/pump/events", 10, false, numbered(10)); err != nil { // another instance id: dropped and counted
		t.Fatal(err)
	}
	if _, err := c.Puback(); err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]int{
		`{"device":"lamp","eventType":"Measurement","altId":"own","payload":{"entries":[{"measurements":{"n":"11"}}]}}`: http.StatusAccepted,
		`{"eventType":"Measurement","payload":{"entries":[{"measurements":{"n":"12"}}]}}`:                               http.StatusBadRequest,
		`no JSON`: http.StatusBadRequest,
	} {
		resp, err := http.Post(p.Ingest+"/weir/acme/events", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", body, resp.Status, want)
		}
	}
	poll.True(t, "all is above", func() bool { return len(up.Messages()) == 6 })
	got := map[string]int{}
	for _, m := range up.Messages() {
		got[m.Topic]++
		switch {
		case m.Payload == garbage, strings.Contains(m.Topic, "command-responses"), strings.Contains(m.Topic, "device-reports"): // unchanged
		case strings.Contains(m.Payload, `"altId":"own"`) && strings.Contains(m.Payload, `"occurredTime":"`):
		case strings.Contains(m.Payload, `"altId":"edge:`) && strings.Contains(m.Payload, `"occurredTime":"`):
		default:
			t.Errorf("%s: %s", m.Topic, m.Payload)
		}
	}
	for topic, n := range map[string]int{topics[0]: 2, topics[1]: 1, topics[2]: 1, topics[3]: 1, "weir/acme/devices/lamp/events": 1} {
		if got[topic] != n {
			t.Errorf("%s: %d messages, want %d", topic, got[topic], n)
		}
	}
	poll.True(t, "the ledger says stored", func() bool {
		l := edgeLedger(t, p)
		return l.Received == 9 && l.Outcomes["stored"] == 6 && l.Outcomes["refused"] == 3 && l.Missing == 0
	})
	conformance.Shown(t, "S2-006")
}

// ledgerSum are the lines of an edge's ledger together.
type ledgerSum struct {
	Received, Missing int64
	Outcomes          map[string]int64
}

func edgeLedger(t *testing.T, p *testweir.Proc) ledgerSum {
	t.Helper()
	var r struct {
		Hours []ledgerSum
	}
	if err := json.Unmarshal([]byte(p.Run("", "ledger", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	sum := ledgerSum{Outcomes: map[string]int64{}}
	for _, l := range r.Hours {
		sum.Received += l.Received
		sum.Missing += l.Missing
		for o, n := range l.Outcomes {
			sum.Outcomes[o] += n
		}
	}
	return sum
}

// edgeDevice is a device at an edge that sends 1, 2, 3, … and never gives up on a message.
type edgeDevice struct {
	name   string
	acked  atomic.Int64
	next   int
	secret string // "": any will do
}

// run sends until the connection is lost. The message that was not acknowledged is sent again first, marked as a repeat.
func (d *edgeDevice) run(address, tenant string, stop <-chan struct{}) {
	c, err := testweir.DialMQTT(address, "weir", tenant, d.name, cmp.Or(d.secret, "any"))
	if err != nil {
		return
	}
	defer c.Close()
	again := d.next > int(d.acked.Load())
	for {
		select {
		case <-stop:
			return
		default:
		}
		if !again {
			d.next++
		}
		if c.Publish("weir/"+tenant+"/devices/"+d.name+"/events", uint16(d.next%60000+1), again, numbered(d.next)) != nil {
			return
		}
		if _, err := c.Puback(); err != nil {
			return
		}
		again = false
		d.acked.Store(int64(d.next))
	}
}

// TestAnEdgeKeepsWhatItAcknowledgedOverACutLinkAndKills: the process is killed again and again while devices send and the link to the broker
// above is cut; everything that was acknowledged is above exactly once, and the ledger says so.
func TestAnEdgeKeepsWhatItAcknowledgedOverACutLinkAndKills(t *testing.T) {
	t.Parallel()
	rng := seed.Rand(t)
	answers := seed.Fork(rng)
	lossy := atomic.Bool{}
	var mu sync.Mutex
	up := brokerAbove{mqttpeer.Start(t, &mqttpeer.Broker{OnPublish: func(mqttpeer.Message) (byte, bool) {
		mu.Lock()
		defer mu.Unlock()
		return 0, !lossy.Load() || answers.IntN(50) > 0 // now and then the broker takes a message and its PUBACK is lost
	}}, nil, false)}
	link := relay.Start(t, up.address())
	dir := t.TempDir()
	start := func() *testweir.Proc {
		return testweir.Start(t, testweir.Options{Dir: dir, Config: edgeConfig(link.Address())})
	}
	devices := []*edgeDevice{{name: "a"}, {name: "b"}, {name: "c"}}
	rounds := 12
	lossy.Store(true)
	for round := range rounds {
		p := start()
		stop := make(chan struct{})
		var sending sync.WaitGroup
		for _, d := range devices {
			sending.Go(func() { d.run(p.MQTT, "acme", stop) })
		}
		for range 1 + rng.IntN(4) {
			time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
			switch rng.IntN(4) {
			case 0:
				link.Cut()
			case 1:
				link.Down(true)
			case 2:
				link.Down(false)
			case 3:
				link.Stall(true)
				time.Sleep(10 * time.Millisecond)
				link.Stall(false)
				link.Cut()
			}
		}
		if round%3 == 2 {
			if err := p.Stop(); err != nil {
				t.Fatalf("a clean stop: %v\n%s", err, p.Stderr())
			}
		} else {
			p.Kill()
		}
		close(stop)
		sending.Wait()
	}
	lossy.Store(false)
	link.Down(false)
	p := start()
	for _, d := range devices { // what is unacknowledged is sent to the end
		stop := make(chan struct{})
		if d.next > int(d.acked.Load()) {
			want := d.next
			go func() {
				poll.True(t, "the last message is acknowledged", func() bool { return d.acked.Load() >= int64(want) })
				close(stop)
			}()
			d.run(p.MQTT, "acme", stop)
		}
	}
	drained(t, p)
	total := int64(0)
	byTopic := map[string]map[string]int{}
	for _, m := range up.messages(t) {
		if byTopic[m.Topic] == nil {
			byTopic[m.Topic] = map[string]int{}
		}
		at := strings.Index(m.Payload, `"n":"`)
		n, _, _ := strings.Cut(m.Payload[at+5:], `"`)
		byTopic[m.Topic][n]++
	}
	for _, d := range devices {
		got := byTopic["weir/acme/devices/"+d.name+"/events"]
		acked := int(d.acked.Load())
		total += int64(len(got))
		for n := 1; n <= acked; n++ {
			if got[fmt.Sprint(n)] != 1 {
				t.Errorf("device %s: message %d is above %d times", d.name, n, got[fmt.Sprint(n)])
			}
		}
		if len(got) < acked || acked == 0 {
			t.Errorf("device %s: %d messages above, %d acknowledged", d.name, len(got), acked)
		}
		t.Logf("device %s: %d acknowledged", d.name, acked)
	}
	if l := edgeLedger(t, p); l.Outcomes["stored"] != total || l.Missing != 0 || l.Outcomes["waiting"] != 0 {
		t.Errorf("the ledger says %+v, above are %d", l, total)
	}
	conformance.Shown(t, "S2-007")
}
