package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"weir/operate"
)

// The demo's world.
const (
	demoTenant    = "demo"
	demoEmail     = "demo@example.org"
	demoProfile   = "boiler"
	demoRule      = "too-hot"
	demoThreshold = 80.0 // °C
)

// setUp makes the tenant and its administrator as an operator would, and all else as a client of the API would.
func (d *demo) setUp(ctx context.Context, op *operate.Client) error {
	if _, err := operate.CreateTenant.Ask(ctx, op, operate.NewTenant{Token: demoTenant, Name: "Demo"}); err != nil {
		return err
	}
	d.api = &demoAPI{base: "http://" + d.at.At(operate.APIListener), password: demoPassword(), client: &http.Client{Timeout: 30 * time.Second}}
	if _, err := operate.CreateAdmin.Ask(ctx, op, operate.NewAdmin{Email: demoEmail, Password: d.api.password, Tenant: demoTenant}); err != nil {
		return err
	}
	if err := d.api.signIn(ctx); err != nil {
		return err
	}
	if err := d.makeProfile(ctx); err != nil {
		return err
	}
	for i := range d.devices {
		device, err := d.addDevice(ctx, op, fmt.Sprintf("boiler-%d", i+1))
		if err != nil {
			return err
		}
		device.wave = demoWave{lag: float64(i) / float64(d.devices)}
		d.cast = append(d.cast, device)
	}
	var err error
	d.byHand, err = d.addDevice(ctx, op, "by-hand")
	return err
}

// demoPassword is a password to read from the screen: 80 random bits.
func demoPassword() string {
	t := strings.ToLower(rand.Text())
	return strings.Join([]string{t[:4], t[4:8], t[8:12], t[12:16]}, "-")
}

func (d *demo) makeProfile(ctx context.Context) error {
	rule := fmt.Sprintf(`{"name":"Too hot","type":"threshold","severity":"major","when":{"metric":"temp","op":"gt","threshold":%g}}`, demoThreshold)
	const profile = `mutation($rule: String!) {
		createDeviceProfile(request: {token: "boiler", name: "Boiler"}) { token }
		temp: createMetricDefinition(request: {token: "boiler-temp", deviceProfileToken: "boiler", metricKey: "temp", dataType: "DOUBLE", unit: "Cel", outOfRange: "FLAG"}) { token }
		pressure: createMetricDefinition(request: {token: "boiler-pressure", deviceProfileToken: "boiler", metricKey: "pressure", dataType: "DOUBLE", unit: "bar", outOfRange: "FLAG"}) { token }
		createDetectionRule(request: {token: "too-hot", deviceProfileToken: "boiler", definition: $rule, enabled: true}) { token }
	}`
	if err := d.api.query(ctx, "device-management", profile, map[string]any{"rule": rule}, nil); err != nil {
		return err
	}
	const publish = `mutation {
		publishDeviceProfile(token: "boiler") { version }
		createDeviceType(request: {token: "boiler-type", name: "Boiler", profileToken: "boiler"}) { token }
	}`
	return d.api.query(ctx, "device-management", publish, nil, nil)
}

func (d *demo) addDevice(ctx context.Context, op *operate.Client, token string) (*demoDevice, error) {
	made, err := operate.AddDevice.Ask(ctx, op, operate.NewDevice{Tenant: demoTenant, Token: token, Type: "boiler-type"})
	if err != nil {
		return nil, err
	}
	return &demoDevice{token: token, secret: made.Secret, instance: made.Instance, addr: d.at.At(operate.MQTTListener)}, nil
}

// fireCount is how many edges the rule has had, as ruleHealth says.
func (d *demo) fireCount(ctx context.Context) (int64, error) {
	var health struct {
		RuleHealth []struct{ FireCount int64 }
	}
	err := d.api.query(ctx, "event-processing", `query($p: String!) { ruleHealth(profileToken: $p) { fireCount } }`,
		map[string]any{"p": demoProfile}, &health)
	var n int64
	for _, r := range health.RuleHealth {
		n += r.FireCount
	}
	return n, err
}

// demoAPI is a client of the demo's API.
type demoAPI struct {
	base     string
	password string
	client   *http.Client

	mu      sync.Mutex // held while a token is fetched, so that one caller does it
	access  string
	refresh string
	since   time.Time // of access
}

// fresh is an access token with at least half its life before it.
func (a *demoAPI) fresh(ctx context.Context) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.since) < demoRenewEvery {
		return a.access, nil
	}
	var out struct {
		Refresh struct{ AccessToken, RefreshToken string }
	}
	if err := a.send(ctx, "user-management", "", `mutation($r: String!) { refresh(refreshToken: $r) { accessToken refreshToken } }`,
		map[string]any{"r": a.refresh}, &out); err != nil {
		return "", err
	}
	a.access, a.refresh, a.since = out.Refresh.AccessToken, out.Refresh.RefreshToken, time.Now()
	return a.access, nil
}

// signIn goes from the password to an access token of the tenant.
func (a *demoAPI) signIn(ctx context.Context) error {
	var login struct {
		Login struct{ IdentityToken string }
	}
	if err := a.send(ctx, "user-management", "", `mutation($e: String!, $p: String!) { login(email: $e, password: $p) { identityToken } }`,
		map[string]any{"e": demoEmail, "p": a.password}, &login); err != nil {
		return err
	}
	var in struct {
		SelectTenant struct{ AccessToken, RefreshToken string }
	}
	err := a.send(ctx, "user-management", "",
		`mutation($i: String!, $t: String!) { selectTenant(identityToken: $i, tenant: $t) { accessToken refreshToken } }`,
		map[string]any{"i": login.Login.IdentityToken, "t": demoTenant}, &in)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.access, a.refresh, a.since = in.SelectTenant.AccessToken, in.SelectTenant.RefreshToken, time.Now()
	return err
}

// query runs a document as the administrator and decodes its data into what into points at, if anything.
func (a *demoAPI) query(ctx context.Context, area, document string, vars map[string]any, into any) error {
	token, err := a.fresh(ctx)
	if err != nil {
		return err
	}
	return a.send(ctx, area, token, document, vars, into)
}

func (a *demoAPI) send(ctx context.Context, area, token, document string, vars map[string]any, into any) error {
	body, err := json.Marshal(map[string]any{"query": document, "variables": vars})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+"/api/"+area+"/graphql", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var out struct {
		Data   json.RawMessage
		Errors []struct{ Message string }
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&out); err != nil {
		return fmt.Errorf("%s answered %s: %w", area, resp.Status, err)
	}
	if len(out.Errors) > 0 {
		return fmt.Errorf("%s refused: %s", area, out.Errors[0].Message)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(out.Data, into)
}
