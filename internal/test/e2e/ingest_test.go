package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/test/conformance"
	"weir/internal/test/testweir"
)

func httpStatuses(t *testing.T, w *world) {
	tn := w.tenant(t, "http-statuses")
	tn.plain("d")
	good := measured("temp", "1", tn.as("d"))
	resp := tn.post(good)
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusAccepted || len(b) != 0 {
		t.Errorf("%s %q", resp.Status, b)
	}
	tn.arrived(1)
	// Nothing but the body proves who sends, and nothing of TLS is needed.
	if !strings.HasPrefix(w.Ingest, "http://") || resp.Header.Get("WWW-Authenticate") != "" {
		t.Errorf("%s %v", w.Ingest, resp.Header)
	}
	conformance.Shown(t, "S2-013", "S2-023")
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"/weir/http-statuses/events", `{"eventType":`, http.StatusBadRequest},
		{"/weir/http-statuses/events", `nothing of the kind`, http.StatusBadRequest},
		{"/weir/http-statuses/events", ``, http.StatusBadRequest},
		{"/weir/http-statuses/events", `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":[1]}}]}}`, http.StatusBadRequest},
		{"/weir/http.statuses/events", good, http.StatusBadRequest},
		{"/weir/-x/events", good, http.StatusBadRequest},
		{"/weir/a%20b/events", good, http.StatusBadRequest},
		{"/weir/" + strings.Repeat("a", 129) + "/events", good, http.StatusBadRequest},
		{"/other/http-statuses/events", good, http.StatusNotFound},
		{"/Weir/http-statuses/events", good, http.StatusNotFound},
		{"/weir/http-statuses/commands", good, http.StatusNotFound},
		{"/weir/http-statuses", good, http.StatusNotFound},
	} {
		resp := post(t, w.Ingest+c.path, c.body)
		if b, _ := io.ReadAll(resp.Body); resp.StatusCode != c.status || resp.Header.Get("Retry-After") != "" || strings.Count(string(b), "\n") != 1 {
			t.Errorf("%s %s: %s, Retry-After %q, %q, want %d", c.path, c.body, resp.Status, resp.Header.Get("Retry-After"), b, c.status)
		}
	}
	conformance.Shown(t, "S2-015", "S2-016")
	resp, err := http.Get(w.Ingest + "/weir/http-statuses/events")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != http.MethodPost {
		t.Errorf("GET: %s, Allow %q", resp.Status, resp.Header.Get("Allow"))
	}
	tn.applied("d")
	tn.arrived(2)
}

// A credential in the body that is not the device's own is found out in the pipeline: the sender is told nothing, and
// nothing is stored.
func bodyCredentials(t *testing.T, w *world) {
	tn := w.tenant(t, "body-credentials")
	tn.plain("d", "e")
	for _, credential := range []string{
		`"credentialType":"ACCESS_TOKEN","credentialId":"nobody's","device":"d"`,
		tn.as("e") + `,"device":"d"`,
		`"credentialType":"MQTT_BASIC","credentialId":"x","credentialSecret":"y","device":"d"`,
		`"device":"d"`,
	} {
		tn.kept(measured("temp", "1", credential))
	}
	tn.applied("d")
	tn.arrived(1) // the marker
	if l := tn.ledger("http"); l.DeadLetter != 4 || l.Stored != 1 {
		t.Errorf("%+v", l)
	}
	conformance.Shown(t, "S2-008")
	c := tn.connect("d")
	c.send(measured("temp", "1", tn.as("e")))
	c.send(measured("temp", "1", `"credentialType":"ACCESS_TOKEN","credentialId":"nobody's"`))
	c.send(measured("temp", "1", `"device":"e"`))
	c.send(measured("temp", "2", tn.as("d")))
	c.send(measured("temp", "3"))
	if l := tn.ledger("mqtt"); l.DeadLetter != 3 || l.Stored != 2 {
		t.Errorf("%+v", l)
	}
	tn.arrived(3)
	conformance.Shown(t, "S2-026")
}

func retries(t *testing.T, w *world) {
	tn := w.tenant(t, "retries")
	tn.plain("d", "e")
	when := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	same := []string{`"altId":"one"`, at(when)}
	for range 3 {
		tn.kept(measured("temp", "1", append(same, tn.as("d"))...))
	}
	c, e := tn.connect("d"), tn.connect("e")
	c.send(measured("temp", "1", same...))
	c.send(measured("temp", "1", same...))
	tn.applied("d")
	all := tn.arrived(2)
	if all[1].Name != "temp" || !sameTime(&all[1].OccurredTime, when) {
		t.Errorf("%+v", all)
	}
	conformance.Shown(t, "S2-009", "S2-011")
	tn.kept(measured("temp", "2", append(same, tn.as("e"))...))
	tn.arrived(3)
	e.send(measured("temp", "2", same...))                   // e's own, again
	c.send(measured("temp", "3", `"altId":"two"`, at(when))) // another id
	c.send(measured("temp", "4", `"altId":"one"`, at(when.Add(time.Second))))
	tn.applied("d")
	tn.arrived(6)
	conformance.Shown(t, "S2-010")
}

func mqttCredentials(t *testing.T, w *world) {
	tn := w.tenant(t, "mqtt-credentials")
	tn.plain("d", "e")
	tn.devices(`mutation{createDeviceCredential(request:{token:"basic",deviceToken:"d",credentialType:"MQTT_BASIC",credentialId:"user",credentialValue:"right",enabled:true}){id}}`, nil)
	code := func(id, user, password string) byte {
		t.Helper()
		c, code, err := testweir.ConnectMQTT(w.MQTT, id, user, password)
		if err != nil {
			t.Fatal(err)
		}
		if c != nil {
			_ = c.Close()
		}
		return code
	}
	const d = "weir:mqtt-credentials:d"
	for _, c := range []struct {
		id, user, password string
		want               byte
	}{
		{d, "mqtt-credentials:user", "right", 0},
		{d + ":suffix", "mqtt-credentials:user", "right", 0},
		{d, "mqtt-credentials:mqtt-credentials-d", "", 0},
		{d, "mqtt-credentials:user", "wrong", 5},
		{d, "mqtt-credentials:user", "", 5},
		{d, "mqtt-credentials:nobody", "", 5},
		{d, "mqtt-credentials:mqtt-credentials-e", "", 5}, // the credential of another device
		{"weir:mqtt-credentials:e", "mqtt-credentials:user", "right", 5},
		{"weir:first:d", "first:mqtt-credentials-d", "", 5}, // of another tenant
		{d, "first:mqtt-credentials-d", "", 5},              // likewise
		{"other:mqtt-credentials:d", "mqtt-credentials:user", "right", 5},
		{"anything", "mqtt-credentials:user", "right", 0}, // the credential names the device
		{"anything", "mqtt-credentials:user", "wrong", 5},
		{"", "mqtt-credentials:mqtt-credentials-d", "", 0},
		{"", "mqtt-credentials:nobody", "", 5},
		{d, "mqtt-credentials-d", "", 5},
	} {
		if got := code(c.id, c.user, c.password); got != c.want {
			t.Errorf("%s as %s %q: CONNACK %d, want %d", c.id, c.user, c.password, got, c.want)
		}
	}
	tn.devices(`mutation{updateDeviceCredential(token:"basic",request:{enabled:false}){id}}`, nil)
	if got := code(d, "mqtt-credentials:user", "right"); got != 5 {
		t.Errorf("a disabled credential: %d", got)
	}
	conformance.Shown(t, "S2-024")
}

func ownTopics(t *testing.T, w *world) {
	tn := w.tenant(t, "own-topics")
	tn.plain("d", "e")
	for _, topic := range []string{"weir/own-topics/devices/e/events", "weir/first/devices/d/events", "other/own-topics/devices/d/events",
		"weir/own-topics/device-commands/d", "weir/own-topics/devices/d/events/more", "$SYS/x"} {
		c := tn.connect("d")
		if err := c.Publish(topic, 1, false, []byte(measured("temp", "1"))); err != nil {
			t.Fatal(err)
		}
		if id, err := c.Puback(); err == nil {
			t.Errorf("%s is acknowledged (%d)", topic, id)
		}
	}
	c := tn.connect("d")
	for filter, want := range map[string]byte{"weir/own-topics/device-commands/d": 1, "weir/own-topics/device-commands/e": 0x80,
		"weir/first/device-commands/d": 0x80, "weir/own-topics/device-commands/+": 0x80, "#": 0x80, "weir/own-topics/devices/d/events": 0x80, "$SYS/#": 0x80} {
		if got, err := c.Subscribe(filter, 9); err != nil || got != want {
			t.Errorf("subscribing to %s: %#x %v, want %#x", filter, got, err, want)
		}
	}
	c.send(measured("temp", "2")) // the connection lives on, and its own topic works
	if all := tn.arrived(1); all[0].DeviceToken != "d" || all[0].Value != 2 {
		t.Errorf("%+v", all)
	}
	conformance.Shown(t, "S2-025")
}

// Whatever HTTP ingest does not keep, it tells by status: the ledger has as many messages kept, as duplicate or as dead
// letters as there were answers 202, and as many refused as there were others.
func toldOrKept(t *testing.T, w *world) {
	tn := w.tenant(t, "told-or-kept")
	tn.plain("d")
	kept, told := 0, 0
	for _, body := range []string{measured("temp", "1", tn.as("d")), measured("temp", "nan", tn.as("d")), many("temp", 1, 257), measured("temp", "1", `"device":"unknown"`),
		measured("temp", "1", tn.as("d"), `"altId":"a"`, at(time.Now())), "{}", strings.Repeat(" ", 1<<20) + "{}", measured("temp", "5", tn.as("d"), at(time.Unix(0, 0))),
		`{"eventType":"Location","payload":{"entries":[{"latitude":"91","longitude":"1"}]}}`, `{"eventType":"Alert","payload":{"entries":[{"type":"x"}]},` + tn.as("d") + `}`} {
		switch resp := tn.post(body); resp.StatusCode {
		case http.StatusAccepted:
			kept++
		case http.StatusBadRequest:
			told++
		default:
			t.Errorf("%.100s: %s", body, resp.Status)
		}
	}
	if l := tn.ledger("http"); l.Stored+l.Duplicate+l.DeadLetter != kept || l.Refused != told || l.Dropped != 0 || told != 5 {
		t.Errorf("%d were kept, %d told: %+v", kept, told, l)
	}
	conformance.Shown(t, "S2-001")
}

// The same body gives the same through both doors.
func oneBody(t *testing.T, w *world) {
	tn := w.tenant(t, "one-body")
	tn.plain("mqtt", "http")
	tn.devices(`mutation{deleteDeviceCredential(token:"http")}`, nil)
	when := time.Now().Add(-time.Minute).UTC().Truncate(time.Millisecond)
	c := tn.connect("mqtt")
	for _, body := range []string{measured("temp", "21.5", at(when)), measured("temp", "-0.001", at(when.Add(time.Second)))} {
		c.send(strings.TrimSuffix(body, "}") + "," + tn.as("mqtt") + "}")
	}
	first := tn.arrived(2)
	tn.devices(`mutation{createDeviceCredential(request:{token:"http",deviceToken:"http",credentialType:"ACCESS_TOKEN",credentialId:"one-body-http",enabled:true}){id}}`, nil)
	for _, body := range []string{measured("temp", "21.5", at(when)), measured("temp", "-0.001", at(when.Add(time.Second)))} {
		tn.kept(strings.TrimSuffix(body, "}") + "," + tn.as("http") + "}")
	}
	tn.arrived(4)
	second, _ := tn.measurements(map[string]any{"deviceToken": "http"})
	for i := range first {
		a, b := first[i], second[i]
		if a.Name != b.Name || a.Value != b.Value || a.OccurredTime != b.OccurredTime {
			t.Errorf("%+v over MQTT, %+v over HTTP", a, b)
		}
	}
}

// tight is an instance whose tenants may send 256 readings at once and one a second after that.
const tight = `
governance: {ingest_messages_per_second: 1, ingest_burst: 256}
`

func TestTheCeilingIsCountedInReadings(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: tight})
	tn := w.tenant(t, "ceiling")
	tn.plain("d")
	with := func(body string) string { return strings.TrimSuffix(body, "}") + "," + tn.as("d") + "}" }
	tn.kept(with(many("temp", 1, 250))) // one body takes 250 of 256
	resp := tn.post(with(many("temp", 1, 200)))
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("over the ceiling: %s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
	}
	tn.kept(with(measured("temp", "0"))) // one reading still fits
	tn.arrived(251)
	if l := tn.ledger("http"); l.Refused != 1 || l.Stored != 2 || l.Readings != 251 || len(l.Reasons) != 1 || l.Reasons[0].Reason != "ceiling" {
		t.Errorf("%+v", l)
	}
	conformance.Shown(t, "S2-017", "S2-018")

	// The same ceiling over MQTT: the device is acknowledged after half its keep-alive, the event is dropped and counted.
	c, code, err := testweir.ConnectMQTTAlive(w.MQTT, "weir:ceiling:d", "ceiling:ceiling-d", "", 6)
	if err != nil || code != 0 {
		t.Fatal(code, err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Publish("weir/ceiling/devices/d/events", 7, false, []byte(many("temp", 1000, 200))); err != nil {
		t.Fatal(err)
	}
	if id, err := c.Puback(); id != 7 || err != nil {
		t.Fatalf("PUBACK %d %v", id, err)
	}
	if l := tn.ledger("mqtt"); l.Dropped != 1 || l.Stored != 0 || l.Received != 1 {
		t.Errorf("%+v", l)
	}
	if _, total := tn.measurements(nil); total != 251 {
		t.Errorf("%d readings", total)
	}
	conformance.Shown(t, "S2-031")
	// Another tenant's ceiling is its own.
	other := w.tenant(t, "beside")
	other.plain("d")
	other.kept(strings.TrimSuffix(many("temp", 1, 200), "}") + "," + other.as("d") + "}")
}

// Killed right after the answer, nothing is lost that was answered, the counts of the rules are exact and what comes
// again is known.
func TestKilledAfterTheAnswer(t *testing.T) {
	t.Parallel()
	o := testweir.Options{Dir: t.TempDir(), Config: generous}
	w := start(t, o)
	tn := w.tenant(t, "killed")
	tn.profile("p", map[string]string{"hot": above("hot", "temp", 30, "")})
	tn.device("d", "p")
	when := time.Now().Add(-time.Minute).Truncate(time.Second)
	c := tn.connect("d")
	c.send(measured("temp", "31"))
	retried := measured("temp", "5", tn.as("d"), `"altId":"again"`, at(when.Add(2*time.Minute)))
	tn.kept(retried)
	w.Kill()
	w = &world{Proc: testweir.Start(t, o)}
	w.login()
	tn = w.enter(t, "killed")
	if _, total := tn.measurements(nil); total != 2 {
		t.Errorf("%d readings of 2", total)
	}
	conformance.Shown(t, "S2-014", "S2-027")
	tn.kept(retried)
	tn.connect("d").send(measured("temp", "32", at(when.Add(3*time.Minute))))
	tn.applied("d")
	tn.arrived(4) // with the marker
	if h := tn.health("p"); len(h) != 1 || h[0].FireCount != 3 {
		t.Errorf("%+v", h)
	}
	conformance.Shown(t, "S1-054")
}

// A rule whose durations the limits no longer allow is surfaced, and comes back with them.
func TestALoweredLimitIsSeenInRuleHealth(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := start(t, testweir.Options{Dir: dir})
	tn := w.tenant(t, "limits")
	tn.profile("p", map[string]string{"long": above("long", "temp", 30, `,"lateness":"2h"`), "short": above("short", "temp", 30, `,"lateness":"30m"`)})
	status := func() string {
		var out strings.Builder
		for _, h := range tn.health("p") {
			message := ""
			if h.Message != nil {
				message = *h.Message
			}
			out.WriteString(fmt.Sprintf("%s %s %s; ", h.RuleToken, h.Status, message))
		}
		return out.String()
	}
	if got := status(); got != "long ACTIVE ; short ACTIVE ; " {
		t.Fatal(got)
	}
	again := func(config string) {
		w.Kill()
		w = &world{Proc: testweir.Start(t, testweir.Options{Dir: dir, Config: config})}
		w.login()
		tn = w.enter(t, "limits")
	}
	again("detection: {max_rule_duration: 1h}\n")
	if got := status(); !strings.HasPrefix(got, "long COMPILE_ERROR lateness") || !strings.HasSuffix(got, "; short ACTIVE ; ") {
		t.Error(got)
	}
	v, raw := tn.validate(draft{Token: "long", Definition: above("long", "temp", 30, `,"lateness":"2h"`)})
	if v.Valid || !strings.Contains(raw, "maximum rule duration") {
		t.Error(raw)
	}
	conformance.Shown(t, "S1-051", "S1-109")
	again("")
	if got := status(); got != "long ACTIVE ; short ACTIVE ; " {
		t.Error(got)
	}
}
