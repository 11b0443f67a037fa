package httpingest

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"weir/ingest"
)

// TestTelemetry: a flat body becomes an arrival of the path's device, with the credential of the header.
func TestTelemetry(t *testing.T) {
	token := ingest.Credential{Type: "ACCESS_TOKEN", ID: "9f2c"}
	basic := ingest.Credential{Type: "MQTT_BASIC", ID: "boiler", Secret: "s3:cret"}
	for _, tc := range []struct {
		name, path string
		headers    []string
		status     int
		device     string
		credential ingest.Credential
		fault      string
		counted    ingest.Reason
	}{
		{name: "bearer", headers: []string{"Bearer 9f2c"}, status: 202, device: "d1", credential: token},
		{name: "bearer in another case", headers: []string{"bearer  9f2c "}, status: 202, device: "d1", credential: token},
		{name: "basic", headers: []string{"Basic Ym9pbGVyOnMzOmNyZXQ="}, status: 202, device: "d1", credential: basic},
		{name: "no header", status: 202, device: "d1"},
		{name: "device in escapes", path: "/weir/acme/devices/%641/telemetry", headers: []string{"Bearer 9f2c"}, status: 202, device: "d1", credential: token},
		{name: "device that is called events", path: "/weir/acme/devices/events/telemetry", status: 202, device: "events"},
		{name: "another scheme", headers: []string{"Digest 9f2c"}, status: 202, device: "d1", fault: wrongAuthorization},
		{name: "token alone", headers: []string{"9f2c"}, status: 202, device: "d1", fault: wrongAuthorization},
		{name: "empty bearer", headers: []string{"Bearer "}, status: 202, device: "d1", fault: wrongAuthorization},
		{name: "basic that is no base64", headers: []string{"Basic !"}, status: 202, device: "d1", fault: wrongAuthorization},
		{name: "two headers", headers: []string{"Bearer 9f2c", "Bearer 9f2c"}, status: 202, device: "d1", fault: wrongAuthorization},
		{name: "endless token", headers: []string{"Bearer " + strings.Repeat("x", 1025)}, status: 202, device: "d1", fault: wrongAuthorization},
		{name: "device with a dot", path: "/weir/acme/devices/a.b/telemetry", status: 400, counted: ReasonBadDevice},
		{name: "device with a slash", path: "/weir/acme/devices/a%2Fb/telemetry", status: 400, counted: ReasonBadDevice},
		{name: "no device", path: "/weir/acme/devices//telemetry", status: 400, counted: ReasonBadDevice},
		{name: "tenant with a dot", path: "/weir/a.b/devices/d1/telemetry", status: 400, counted: ReasonBadTenant},
		{name: "another instance", path: "/other/acme/devices/d1/telemetry", status: 404},
		{name: "no device segment", path: "/weir/acme/telemetry", status: 404},
		{name: "trailing slash", path: "/weir/acme/devices/d1/telemetry/", status: 404},
		{name: "events of a device", path: "/weir/acme/devices/d1/events", status: 404},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := open(t, Config{})
			path := tc.path
			if path == "" {
				path = "/weir/acme/devices/d1/telemetry"
			}
			const body = `{"temp":21.5}`
			req, err := http.NewRequest("POST", d.url+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header["Authorization"] = tc.headers
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			text, _ := io.ReadAll(res.Body)
			if res.StatusCode != tc.status {
				t.Fatalf("answered %d %s", res.StatusCode, text)
			}
			if tc.status != 202 {
				if len(d.intake.arrivals) != 0 || (tc.counted != "") != (len(d.intake.refused) == 1) || tc.counted != "" && d.intake.refused[0] != tc.counted {
					t.Errorf("%d arrivals, counted %v", len(d.intake.arrivals), d.intake.refused)
				}
				return
			}
			a := d.intake.arrivals[0]
			if a.Transport != ingest.TransportHTTP || a.Tenant != "acme" || a.Topic != tc.device || !a.Flat || a.Conn != nil || a.CannotRefuse ||
				string(a.Body) != body || a.Credential != tc.credential || a.Fault != tc.fault {
				t.Errorf("%+v", a)
			}
		})
	}
}

// A flat body is one event: an array is for the decoder to refuse, not to be split.
func TestTelemetryIsNoArray(t *testing.T) {
	d := open(t, Config{})
	d.do(t, "POST", "/weir/acme/devices/d1/telemetry", `[{"temp":1},{"temp":2}]`)
	if len(d.intake.arrivals) != 1 || !d.intake.arrivals[0].Flat {
		t.Errorf("%+v", d.intake.arrivals)
	}
}
