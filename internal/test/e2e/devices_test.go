package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// payload is one that a page of docs/devices shows, and what the refusal begins with, "" for one that is stored.
type payload struct{ page, body, refused string }

var (
	shownPayload = regexp.MustCompile("(?ms)^```json (telemetry|refused)\n(.*?)^```\n(?:\n```text\n(.*?)\n```\n)?")
	shownTime    = regexp.MustCompile(`"ts": *\d+`)
)

// devicePayloads reads the payloads of docs/devices.
func devicePayloads(t *testing.T) (all []payload) {
	t.Helper()
	pages, err := filepath.Glob("../../../docs/devices/*.md")
	if err != nil || len(pages) < 7 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		found := shownPayload.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s shows no payload", page)
		}
		for _, m := range found {
			if (m[1] == "refused") != (m[3] != "") {
				t.Errorf("%s: a refused payload and its reason belong together: %s", page, m[2])
			}
			body := shownTime.ReplaceAllString(strings.TrimSpace(m[2]), fmt.Sprintf(`"ts": %d`, time.Now().Unix()))
			all = append(all, payload{filepath.Base(page), body, m[3]})
		}
	}
	return all
}

const tempRule = `{"name":"Warm","type":"threshold","severity":"minor","when":{"metric":"temp","op":"gt","threshold":20}}`

// fires waits until the rule has fired on the device.
func (tn *tenant) fires(rule, device string) {
	tn.t.Helper()
	poll.Until(tn.t, "a firing of "+rule, func() error {
		var out struct {
			Detections struct {
				Results []struct{ RuleToken, DeviceToken, Edge string }
			}
		}
		tn.rules(`{detections(criteria:{pageNumber:1,pageSize:100}){results{ruleToken deviceToken edge}}}`, nil).into(tn.t, &out)
		for _, d := range out.Detections.Results {
			if d.RuleToken == rule && d.DeviceToken == device {
				return nil
			}
		}
		return fmt.Errorf("%+v", out)
	})
}

// telemetry posts a flat body with a token in the header.
func (tn *tenant) telemetry(device, token, body string) (status int, text string) {
	tn.t.Helper()
	return tn.postAs("devices/"+device+"/telemetry", token, body)
}

// postAs posts to a path of the tenant with a token in the header.
func (tn *tenant) postAs(path, token, body string) (status int, text string) {
	tn.t.Helper()
	req, err := http.NewRequest(http.MethodPost, tn.Ingest+"/weir/"+tn.name+"/"+path, strings.NewReader(body))
	if err != nil {
		tn.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		tn.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		tn.t.Fatal(err)
	}
	return res.StatusCode, strings.TrimSpace(string(b))
}

// deviceRecipes sends every payload of docs/devices over both transports: as its device would, over MQTT at QoS 0 and with a
// client id of its own. It is stored and judged, or refused with what the page says; the ledger counts each.
func deviceRecipes(t *testing.T, w *world) {
	tn := w.tenant(t, "recipes")
	tn.profile("boiler", map[string]string{"warm": tempRule})
	tn.device("boiler-1", "boiler")
	m, code, err := testweir.ConnectMQTT(w.MQTT, "DVES_3F2A1C", "recipes:"+tn.secret("boiler-1"), "")
	if err != nil || code != 0 {
		t.Fatalf("CONNACK %d, %v", code, err)
	}
	t.Cleanup(func() { _ = m.Close() })
	stored, refused := 0, 0
	for _, p := range devicePayloads(t) {
		status, text := tn.telemetry("boiler-1", tn.secret("boiler-1"), p.body)
		switch {
		case p.refused == "" && status != http.StatusAccepted:
			t.Errorf("%s: %s: %d %s", p.page, p.body, status, text)
		case p.refused != "" && (status != http.StatusBadRequest || !strings.HasPrefix(text, p.refused+":")):
			t.Errorf("%s: %s: %d %s", p.page, p.body, status, text)
		}
		if err := m.PublishQoS0("weir/recipes/devices/boiler-1/telemetry", []byte(p.body)); err != nil {
			t.Fatal(err)
		}
		if p.refused == "" {
			stored++
		} else {
			refused++
		}
	}
	if err := m.Publish("weir/recipes/devices/boiler-1/telemetry", 1, false, []byte(`{"temp":25}`)); err != nil { // the last
		t.Fatal(err)
	}
	if id, err := m.Puback(); err != nil || id != 1 {
		t.Fatalf("PUBACK %d, %v", id, err)
	}
	if l := tn.ledger("http"); l.Stored != stored || l.Refused != refused || l.Received != stored+refused {
		t.Errorf("over HTTP %d are stored and %d refused: %+v", stored, refused, l)
	}
	if l := tn.ledger("mqtt"); l.Stored != stored+1 || l.DeadLetter != refused {
		t.Errorf("over MQTT %d are stored and %d dead letters: %+v", stored+1, refused, l)
	}
	if out := w.Run("", "ledger", "dead-letters", "--tenant", "recipes"); !strings.Contains(out, `"DS18B20" is an object`) {
		t.Errorf("the dead letters do not show what is wrong:\n%s", out)
	}
	tn.fires("warm", "boiler-1")
}

// pubSubClient are the packets that PubSubClient 2.8 sends for connect("ESP8266Client-4f2a", "arduino:arduino-esp32", NULL) with
// its keep-alive of 15 s, publish at QoS 0, a ping and disconnect.
var pubSubClient = [][]byte{
	append([]byte("\x10\x35\x00\x04MQTT\x04\x82\x00\x0f\x00\x12ESP8266Client-4f2a\x00\x15"), "arduino:arduino-esp32"...),
	append([]byte("\x30\x3f\x00\x24"), "weir/arduino/devices/esp32/telemetry"+`{"temp":21.50,"rpm":1400}`...),
	[]byte("\xc0\x00"),
	[]byte("\xe0\x00"),
}

// arduino speaks byte by byte as PubSubClient does; what it sends is stored and judged.
func arduino(t *testing.T, w *world) {
	tn := w.tenant(t, "arduino")
	tn.profile("boiler", map[string]string{"warm": tempRule})
	tn.device("esp32", "boiler")
	c, err := net.Dial("tcp", w.MQTT)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for _, p := range pubSubClient {
		if int(p[1]) != len(p)-2 {
			t.Fatalf("the packet announces %d bytes and has %d", p[1], len(p)-2)
		}
		if _, err := c.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	got, err := io.ReadAll(c)
	if want := []byte("\x20\x02\x00\x00\xd0\x00"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("answered % x, %v; want % x", got, err, want)
	}
	for _, m := range tn.arrived(2) {
		if m.DeviceToken != "esp32" || m.Name == "temp" && m.Value != 21.5 || m.Name == "rpm" && m.Value != 1400 {
			t.Errorf("%+v", m)
		}
	}
	if l := tn.ledger("mqtt"); l.Stored != 1 || l.Received != 1 {
		t.Errorf("%+v", l)
	}
	tn.fires("warm", "esp32")
}

// headerCredentials: what a header proves decides, and the answer reveals nothing.
func headerCredentials(t *testing.T, w *world) {
	tn := w.tenant(t, "header-credentials")
	tn.plain("d", "e")
	for _, token := range []string{tn.secret("d"), "guessed", tn.secret("e")} {
		if status, text := tn.telemetry("d", token, `{"temp":1}`); status != http.StatusAccepted || text != "" {
			t.Errorf("%s: %d %s", token, status, text)
		}
	}
	tn.arrived(1)
	if l := tn.ledger("http"); l.Stored != 1 || l.DeadLetter != 2 {
		t.Errorf("%+v", l)
	}
}
