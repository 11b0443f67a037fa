package e2e_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/test/conformance"
	"weir/internal/test/mqttpeer"
	"weir/internal/test/poll"
	"weir/internal/test/testcerts"
	"weir/internal/test/testweir"
)

// TestARuleReachesOtherSystems: a rule that fires calls a URL and publishes to a broker, each with a key. After the connector was renamed the rule,
// which names the old token, ends in a dead letter until it is changed. A broker over TLS whose authority the system does not trust gets nothing.
func TestARuleReachesOtherSystems(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var calls []*http.Request
	var bodies []string
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		calls, bodies = append(calls, r), append(bodies, string(body))
	}))
	t.Cleanup(hook.Close)
	ca, err := testcerts.NewCA("own")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server(time.Now().Add(24 * time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	plain := mqttpeer.Start(t, &mqttpeer.Broker{}, nil, false)
	secured := mqttpeer.Start(t, &mqttpeer.Broker{}, &tls.Config{Certificates: []tls.Certificate{pair.TLS()}}, false)
	caFile := t.TempDir() + "/ca.pem"
	if err := ca.WriteCA(caFile); err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(hook.URL, "http://"), ":")
	w := start(t, testweir.Options{Config: generous + fmt.Sprintf("egress: {ca_file: %s, allowed_destinations: [\"127.0.0.1/32:%s\", \"127.0.0.1/32:%s\", \"127.0.0.1/32:%s\"]}\n",
		caFile, port, plain.Port(), secured.Port())})
	tn := w.tenant(t, "reaching")
	out := func(query string, vars map[string]any) *answer {
		t.Helper()
		return tn.must(t, "outbound-connectors", tn.token, query, vars)
	}
	for token, url := range map[string]string{"plant": "mqtt://127.0.0.1:" + plain.Port(), "secured": "mqtts://127.0.0.1:" + secured.Port()} {
		config, _ := json.Marshal(map[string]any{"urls": []string{url}, "topic": "plant/alerts"})
		out(`mutation($r:ConnectorCreateRequest!){createConnector(request:$r){id}}`, map[string]any{"r": map[string]any{"token": token, "type": "mqtt", "config": string(config)}})
		out(`mutation($t:String!){publishConnector(token:$t){version}}`, map[string]any{"t": token})
	}
	const hot = `{"name":"hot","type":"threshold","when":{"metric":"temp","op":"gt","threshold":80},"actions":[%s]}`
	callOf := func(method string) string {
		return fmt.Sprintf(hot, fmt.Sprintf(`{"type":"httpCall","httpCall":{"url":"%s/hook"%s}}`, hook.URL, method))
	}
	for _, method := range []string{"GET", "PUT", "PATCH", "DELETE", "post", "HEAD"} {
		if verdict, raw := tn.validate(draft{Token: "hot", Definition: callOf(`,"method":"` + method + `"`)}); verdict.Valid || !strings.Contains(raw, "method") {
			t.Errorf("%s: %s", method, raw)
		}
	}
	conformance.Shown(t, "S2-105")
	tn.profile("default", map[string]string{"call": callOf(`,"method":"POST"`), "publish": fmt.Sprintf(hot, `{"type":"publish","publish":{"connectorRef":"plant"}},{"type":"publish","publish":{"connectorRef":"secured"}}`)})
	tn.device("d1", "default")
	tn.device("d2", "default")
	send := func(device string) {
		t.Helper()
		tn.kept(measured("temp", "99", tn.as(device)))
	}
	send("d1")
	poll.Until(t, "a call and a message", func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(calls) == 0 || len(plain.Messages()) == 0 {
			return fmt.Errorf("%d calls, %d messages", len(calls), len(plain.Messages()))
		}
		return nil
	})
	mu.Lock()
	if r := calls[0]; r.Method != http.MethodPost || r.URL.Path != "/hook" || r.Header.Get("X-Weir-Idempotency-Key") == "" || !strings.Contains(bodies[0], `"series":"d1"`) {
		t.Errorf("%s %s %v: %s", r.Method, r.URL, r.Header, bodies[0])
	}
	mu.Unlock()
	conformance.Shown(t, "S2-104")
	if m := plain.Messages()[0]; m.Topic != "plant/alerts" || m.Key == "" || !strings.Contains(m.Payload, `"series":"d1"`) {
		t.Errorf("%+v", m)
	}
	conformance.Shown(t, "S2-121")
	if raw := out(`mutation{testConnector(token:"secured"){ok outcome detail}}`, nil).raw; !strings.Contains(raw, `"ok":false`) || !strings.Contains(raw, "the certificate is not trusted") {
		t.Error(raw)
	}
	if n := len(secured.Messages()); n != 0 {
		t.Errorf("%d messages to a broker that is not trusted", n)
	}
	conformance.Shown(t, "S2-110")

	out(`mutation{renameConnector(token:"plant",newToken:"hall"){token}}`, nil)
	send("d2")
	poll.Until(t, "a dead letter", func() error {
		raw := out(`{deadLetters(criteria:{pageNumber:1,pageSize:10}){results{kind reason summary subject}}}`, nil).raw
		if !strings.Contains(raw, `"kind":"connector-dispatch","reason":"unprocessable"`) || !strings.Contains(raw, `"subject":"d2"`) {
			return fmt.Errorf("%s", raw)
		}
		return nil
	})
	if n := len(plain.Messages()); n != 1 {
		t.Errorf("%d messages", n)
	}
	conformance.Shown(t, "S3-091")
}
