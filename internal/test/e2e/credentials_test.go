package e2e_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"weir/internal/test/conformance"
)

// What proves a device opens an MQTT connection, and vouches for the messages that carry it; for a person or a program it is
// worth what any other text is. Every other listener answers the same with it, with nonsense and with the other kind.
func deviceCredentialsElsewhere(t *testing.T, w *world) {
	tn := w.tenant(t, "elsewhere")
	tn.plain("d")
	tn.devices(`mutation{createDeviceCredential(request:{token:"basic",deviceToken:"d",credentialType:"MQTT_BASIC",credentialId:"boiler",credentialValue:"a-password",enabled:true}){id}}`, nil)
	tn.connect("d").send(measured("temp", "1")) // it is a good one

	const nonsense = "nonsense"
	secrets := []string{tn.secret("d"), "boiler:a-password", "a-password"}
	for _, a := range w.index(t).Areas {
		if a.Schema == "" {
			continue
		}
		refused := w.ask(t, a.Area, nonsense, `{__typename}`, nil)
		if !strings.HasPrefix(refused.refusal(), "UNAUTHENTICATED ") {
			t.Errorf("%s with nonsense: %s", a.Area, refused.raw)
		}
		for _, secret := range secrets {
			if got := w.ask(t, a.Area, secret, `{__typename}`, nil); got.status != refused.status || got.raw != refused.raw {
				t.Errorf("%s: %d %s, with nonsense %d %s", a.Area, got.status, got.raw, refused.status, refused.raw)
			}
			if s, err := w.Dial(a.Area, secret); err == nil {
				s.Close()
				t.Errorf("%s: a WebSocket is opened with a device's credential", a.Area)
			}
		}
	}
	for _, as := range [][2]string{{"boiler", "a-password"}, {"d", tn.secret("d")}, {"admin@example.org", tn.secret("d")}} {
		a := w.ask(t, "user-management", "", `mutation($e:String!,$p:String!){login(email:$e,password:$p){identityToken}}`, map[string]any{"e": as[0], "p": as[1]})
		if a.refusal() != "INVALID_INPUT invalid credentials" {
			t.Errorf("sign-in as %s: %s", as[0], a.raw)
		}
	}
	// Pages, the setup, the minting of service tokens, the metrics: the same with a device's credential as with nonsense.
	for _, c := range []struct{ method, url string }{
		{"GET", w.API + "/"}, {"GET", w.API + "/setup"}, {"POST", w.API + "/setup/v1/administrator"}, {"POST", w.API + "/auth/service-token"},
		{"GET", w.API + "/schema/index.json"}, {"GET", w.Metrics + "/"}, {"POST", w.Metrics + "/metrics"},
	} {
		want := w.with(t, c.method, c.url, "Bearer "+nonsense)
		for _, secret := range secrets {
			if got := w.with(t, c.method, c.url, "Bearer "+secret); got != want {
				t.Errorf("%s %s: %s, with nonsense %s", c.method, c.url, got, want)
			}
		}
	}
	conformance.Shown(t, "S2-004")
}

// with sends a request with an Authorization header, and returns status and body of the answer.
func (w *world) with(t *testing.T, method, url, authorization string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", authorization)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status + " " + string(b)
}
