package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/test/conformance"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// metric is the value of a metric, with its labels as they are written.
func (w *world) metric(t testing.TB, name string) float64 {
	t.Helper()
	resp, err := http.Get(w.Metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// fill publishes until the log is nine tenths full, from eight on in small steps, so that this is seen before it is full. HTTP
// could be refused before that: on a slow machine for the runway. The page of metrics costs as much as many messages, and is
// looked at after some of them.
func (tn *tenant) fill(device, body string) {
	tn.t.Helper()
	c := tn.connect(device)
	most := tn.metric(tn.t, "weir_spool_max_bytes")
	for tn.metric(tn.t, "weir_spool_bytes") < 0.8*most {
		for range 8 { // the fiftieth part of the log
			c.send(body)
		}
	}
	for tn.metric(tn.t, `weir_ingest_backpressure_cause{cause="bytes"}`) == 0 {
		for range 64 { // the five hundredth
			c.send(measured("temp", "0"))
		}
	}
}

// five connects the device with MQTT 5.0.
func (tn *tenant) five(device string) *testweir.MQTT {
	tn.t.Helper()
	m, err := testweir.ConnectMQTT5(tn.MQTT, "weir:"+tn.name+":"+device, tn.name+":"+tn.secret(device))
	if err != nil {
		tn.t.Fatal(err)
	}
	tn.t.Cleanup(func() { _ = m.Close() })
	return m
}

const (
	soon  = 3 * time.Minute
	quiet = 700 * time.Millisecond // in which an acknowledgement would have come
)

// TestFailClosed holds the doors against a log that is nearly full, and full: with fail-closed off, switched on by a reload,
// and off again. A tenant over its ceiling hears of that first.
func TestFailClosed(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: small})
	rich, poor := w.tenant(t, "rich"), w.tenant(t, "poor")
	rich.plain("d", "e")
	poor.plain("d", "e", "f", "g", "h")
	release := holdDatabase(t, w)
	large := strings.Trim(rich.bulk(1), "[]")
	bare := strings.Replace(large, ","+rich.as("d"), "", 1) // where the connection says who it is
	rich.fill("d", bare)
	for i := 0; ; i++ { // what the ceiling still holds
		if resp := rich.post(large); resp.StatusCode == http.StatusTooManyRequests {
			break
		}
		if i > 2000 {
			t.Fatal("the ceiling has no end")
		}
	}

	// body of poor's device, numbered so that each can be counted.
	n := 0
	body := func() []byte { n++; return []byte(measured("temp", strconv.Itoa(n))) }
	three, five := poor.connect("d"), poor.five("e")
	topic5 := "weir/poor/devices/e/events"
	answered := func(what string, m *testweir.MQTT, within time.Duration, read func() error) bool {
		t.Helper()
		if err := m.SetReadDeadline(time.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		err := read()
		if err != nil && !os.IsTimeout(err) {
			t.Fatalf("%s: %v", what, err)
		}
		return err == nil
	}
	ack3 := func() error { _, err := three.Puback(); return err }
	ack5 := func() error {
		_, code, err := five.Puback5()
		if err == nil && code != 0 {
			err = fmt.Errorf("code %#x", code)
		}
		return err
	}
	var last []byte     // of the 3.1.1 connection
	publish := func() { // one on each connection
		t.Helper()
		three.id++
		last = body()
		if err := three.Publish(three.topic(), three.id, false, last); err != nil {
			t.Fatal(err)
		}
		if err := five.Publish(topic5, three.id, false, append([]byte{0}, body()...)); err != nil {
			t.Fatal(err)
		}
	}
	// whatever the setting
	always := func(when string) {
		t.Helper()
		resp := poor.post(measured("temp", "1", poor.as("d")))
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "10" {
			t.Errorf("%s: HTTP %s, Retry-After %q", when, resp.Status, resp.Header.Get("Retry-After"))
		}
		resp = rich.post(large)
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1" {
			t.Errorf("%s, over the ceiling: HTTP %s, Retry-After %q", when, resp.Status, resp.Header.Get("Retry-After"))
		}
		over5 := rich.five("e")
		if err := over5.Publish("weir/rich/devices/e/events", 1, false, append([]byte{0}, bare...)); err != nil {
			t.Fatal(err)
		}
		if err := over5.SetReadDeadline(time.Now().Add(soon)); err != nil {
			t.Fatal(err)
		}
		if _, code, err := over5.Puback5(); err != nil || code != 0x97 {
			t.Errorf("%s, over the ceiling: MQTT 5 %#x, %v", when, code, err)
		}
		over3, _, err := testweir.ConnectMQTTAlive(w.MQTT, "weir:rich:d", "rich:"+rich.secret("d"), "", 4)
		if err != nil || over3 == nil {
			t.Fatalf("%v", err)
		}
		defer over3.Close()
		began := time.Now()
		if err := over3.Publish("weir/rich/devices/d/events", 1, false, []byte(bare)); err != nil {
			t.Fatal(err)
		}
		if _, err := over3.Puback(); err != nil || time.Since(began) < 1500*time.Millisecond {
			t.Errorf("%s, over the ceiling: MQTT 3.1.1 %v after %v, want an acknowledgement after half of the keep-alive", when, err, time.Since(began))
		}
		zero := poor.connect("f")
		if err := zero.PublishQoS0("weir/poor/devices/f/events", body()); err != nil {
			t.Fatal(err)
		}
		_ = zero.Close()
	}

	publish()
	if !answered("3.1.1", three.MQTT, soon, ack3) || !answered("5.0", five, soon, ack5) {
		t.Fatal("fail-closed off: no acknowledgement at nine tenths")
	}
	always("fail-closed off")
	w.set(t, "broker: {fail_closed: true}")
	publish()
	if answered("3.1.1", three.MQTT, quiet, ack3) || answered("5.0", five, quiet, ack5) {
		t.Fatal("fail-closed on: acknowledged at nine tenths")
	}
	always("fail-closed on")
	again := poor.connect("d") // a client that gets no answer connects again and repeats its message
	again.id = three.id
	if three = again; three.Publish(three.topic(), three.id, true, last) != nil || answered("3.1.1, repeated", three.MQTT, quiet, ack3) {
		t.Fatal("fail-closed on: the repeat is acknowledged at nine tenths")
	}
	w.set(t, "broker: {fail_closed: false}")
	if !answered("3.1.1", three.MQTT, soon, ack3) || !answered("5.0", five, soon, ack5) {
		t.Fatal("fail-closed off again: no acknowledgement")
	}

	// At ten tenths nobody is taken.
	stuffed := poor.connect("g")
	sent := 0
	for id := uint16(1); answeredOne(t, stuffed, id, []byte(bare)); id++ {
		if sent++; sent > 200 {
			t.Fatal("the log has no end")
		}
	}
	crumbs := poor.connect("h") // what is left has room for small ones
	for id, i := uint16(1), 0; answeredOne(t, crumbs, id, body()); id++ {
		if i++; i > 1000 {
			t.Fatal("the log has no end")
		}
	}
	publish()
	if answered("3.1.1", three.MQTT, quiet, ack3) || answered("5.0", five, quiet, ack5) {
		t.Fatal("acknowledged although the log is full")
	}
	release()
	if !answered("3.1.1", three.MQTT, soon, ack3) || !answered("5.0", five, soon, ack5) {
		t.Fatal("no acknowledgement although there is room again")
	}
	if err := stuffed.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	if _, err := stuffed.Puback(); err != nil {
		t.Error(err)
	}
	if err := crumbs.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	if _, err := crumbs.Puback(); err != nil {
		t.Error(err)
	}
	poll.Until(t, "everything acknowledged, and what was sent at QoS 0, is stored once", func() error {
		if _, total := poor.measurements(map[string]any{"pageSize": 1}); total != n+(sent+1)*256 {
			return fmt.Errorf("%d of %d", total, n+(sent+1)*256)
		}
		return nil
	})
	// Of rich only what filled the log and the ceiling is stored; what came over the ceiling was dropped behind its PUBACK.
	mqtt, http := rich.ledger("mqtt"), rich.ledger("http")
	dropped := 0
	for _, r := range mqtt.Reasons {
		if r.Outcome == "dropped" && r.Reason == "ceiling" {
			dropped += r.Count
		}
	}
	if dropped != 2 || mqtt.Dropped != 2 {
		t.Errorf("the ledger says %+v, want two messages dropped at the ceiling", mqtt)
	}
	if _, total := rich.measurements(map[string]any{"pageSize": 1}); total != mqtt.Readings+http.Readings {
		t.Errorf("%d readings are stored, the ledger says %d and %d", total, mqtt.Readings, http.Readings)
	}
	w.Run("", "ledger", "verify")
	conformance.Shown(t, "S2-033", "S2-039")
}

// TestFailClosedHoldsUntilThereIsRoom: with the setting on, devices of both versions get no PUBACK for an event, a report and an answer to a
// command, connect again and repeat them, get none either, and are acknowledged once the log has room; each event is stored once. What was
// acknowledged in this state survives a kill.
func TestFailClosedHoldsUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	o := testweir.Options{Dir: t.TempDir(), Config: small}
	w := start(t, o)
	tn := w.tenant(t, "closed")
	tn.plain("d", "e", "f")
	release := holdDatabase(t, w)
	tn.fill("f", strings.Replace(strings.Trim(tn.bulk(1), "[]"), ","+tn.as("d"), "", 1))
	w.set(t, "broker: {fail_closed: true}")
	const topic5 = "weir/closed/devices/e/events"
	held := measured("held", "1")
	const answer, report = `{"commandToken":"none","success":true}`, `{"attributes":{"fw":"1"}}`
	publish := func(three *client, five *testweir.MQTT, again bool) {
		t.Helper()
		for i, m := range []struct{ three, five, body string }{{three.topic(), topic5, held},
			{"weir/closed/command-responses/d", "weir/closed/command-responses/e", answer}, {"weir/closed/device-reports/d", "weir/closed/device-reports/e", report}} {
			id := uint16(7 + i)
			if err := three.Publish(m.three, id, again, []byte(m.body)); err != nil {
				t.Fatal(err)
			}
			if err := five.Publish(m.five, id, again, append([]byte{0}, m.body...)); err != nil {
				t.Fatal(err)
			}
		}
		for what, m := range map[string]*testweir.MQTT{"3.1.1": three.MQTT, "5.0": five} {
			if err := m.SetReadDeadline(time.Now().Add(quiet)); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Puback(); !os.IsTimeout(err) {
				t.Fatalf("%s, again %t: answered (%v) although the log is nearly full", what, again, err)
			}
		}
	}
	three, five := tn.connect("d"), tn.five("e")
	publish(three, five, false)
	_, _ = three.Close(), five.Close()
	three, five = tn.connect("d"), tn.five("e")
	publish(three, five, true)
	release()
	if err := three.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	for want := uint16(7); want < 10; want++ {
		if id, err := three.Puback(); err != nil || id != want {
			t.Errorf("3.1.1: PUBACK %d, %v, although there is room for %d", id, err, want)
		}
	}
	if err := five.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	for want := uint16(7); want < 10; want++ {
		if id, code, err := five.Puback5(); err != nil || id != want || code != 0 {
			t.Errorf("5.0: PUBACK %d, %#x, %v, although there is room for %d", id, code, err, want)
		}
	}
	w.Kill()
	w = &world{Proc: testweir.Start(t, o)}
	w.login()
	tn = w.enter(t, "closed")
	for _, device := range []string{"d", "e"} {
		poll.Until(t, "the message of "+device+", once", func() error {
			if got, total := tn.measurements(map[string]any{"deviceToken": device}); total != 1 {
				return fmt.Errorf("%d: %v", total, got)
			}
			return nil
		})
		poll.Until(t, "the answer and the report of "+device, func() error {
			answers := string(tn.events(fmt.Sprintf(`{events(criteria:{pageNumber:1,pageSize:1,deviceToken:%q,eventTypes:[6]}){pagination{totalRecords}}}`, device), nil).Data)
			reported := string(tn.devices(fmt.Sprintf(`{entityAttributes(criteria:{pageNumber:1,pageSize:10,entityType:"device",entity:%q}){results{scope attrKey value}}}`, device), nil).Data)
			if !strings.Contains(answers, `"totalRecords":1`) || !strings.Contains(reported, `{"scope":"CLIENT","attrKey":"fw","value":"1"}`) {
				return fmt.Errorf("%s, %s", answers, reported)
			}
			return nil
		})
	}
	w.Run("", "ledger", "verify")
	conformance.Shown(t, "S2-037", "S2-038", "S2-040")
}

// answeredOne publishes and says whether an acknowledgement came soon.
func answeredOne(t *testing.T, c *client, id uint16, body []byte) bool {
	t.Helper()
	if err := c.Publish(c.topic(), id, false, body); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err := c.Puback()
	if err != nil && !os.IsTimeout(err) {
		t.Fatal(err)
	}
	return err == nil
}

// set appends to the configuration and has it reloaded.
func (w *world) set(t testing.TB, yaml string) {
	t.Helper()
	b, err := os.ReadFile(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(b), "\n# changed\n")
	if err := os.WriteFile(w.Config, []byte(text+"\n# changed\n"+yaml+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Run("", "reload")
}
