package httpingest

import (
	"net/http"
	"strings"
	"testing"

	"weir/ingest"
)

// TestDeviceReport: a report becomes an arrival of the path's device, with the credential of the header.
func TestDeviceReport(t *testing.T) {
	for path, want := range map[string]struct {
		status  int
		device  string
		counted ingest.Reason
	}{
		"/weir/acme/device-reports/d1":     {status: 202, device: "d1"},
		"/weir/acme/device-reports/%641":   {status: 202, device: "d1"},
		"/weir/acme/device-reports/a%2Fb":  {status: 400, counted: ReasonBadDevice},
		"/weir/acme/device-reports/":       {status: 400, counted: ReasonBadDevice},
		"/weir/a.b/device-reports/d1":      {status: 400, counted: ReasonBadTenant},
		"/other/acme/device-reports/d1":    {status: 404},
		"/weir/acme/device-reports/d1/":    {status: 404},
		"/weir/acme/device-reports":        {status: 404},
		"/weir/acme/device-reports/d1/all": {status: 404},
	} {
		d := open(t, Config{})
		req, err := http.NewRequest("POST", d.url+path, strings.NewReader(`{"attributes":{}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer 9f2c")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want.status {
			t.Errorf("%s: answered %d", path, res.StatusCode)
		}
		if want.device == "" {
			if len(d.intake.arrivals) != 0 || (want.counted != "") != (len(d.intake.refused) == 1) || want.counted != "" && d.intake.refused[0] != want.counted {
				t.Errorf("%s: %d arrivals, counted %v", path, len(d.intake.arrivals), d.intake.refused)
			}
			continue
		}
		if len(d.intake.arrivals) != 1 {
			t.Fatalf("%s: %d arrivals", path, len(d.intake.arrivals))
		}
		if a := d.intake.arrivals[0]; a.Topic != want.device || !a.Reports || a.Flat || a.Credential != (ingest.Credential{Type: "ACCESS_TOKEN", ID: "9f2c"}) {
			t.Errorf("%s: %+v", path, a)
		}
	}
}
