package app

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"weir/config"
	"weir/operate"
)

// The running program serves the console once an administrator exists, says so in /console.json, and shows the lines of a device by the
// listeners that are open.
func TestTheRunningProgramServesTheConsole(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.DataDir = t.TempDir() + "/d"
	cfg.Listeners = config.Listeners{API: "127.0.0.1:0", MQTT: "127.0.0.1:0", Ingest: "127.0.0.1:0"}
	in := New(cfg, Options{Version: "1.2.3"})
	ctx, stop := context.WithCancel(t.Context())
	get := func(path string) (int, string) {
		client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		resp, err := client.Get("http://" + in.listeners.list().At(operate.APIListener) + path)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return resp.StatusCode, resp.Header.Get("Location") + string(b)
	}
	err := in.Run(ctx, func() {
		defer stop()
		if status, text := get("/"); status != 303 || text != "setup" {
			t.Errorf("before there is an administrator: %d %s", status, text)
		}
		if _, text := get("/console.json"); text != `{"instanceId":"weir","version":"1.2.3","setup":true,"devTools":false}` {
			t.Error(text)
		}
		steps := setupSteps{in.entities, in.applier, in.intake}
		if _, err := steps.MakeAdministrator(ctx, "ada@example.org", "correct horse"); err != nil {
			t.Error(err)
			return
		}
		if status, text := get("/"); status != 200 || !strings.Contains(text, "/console.js") {
			t.Errorf("once there is one: %d %s", status, text)
		}
		if status, text := get("/plain"); status != 200 || !strings.Contains(text, "Weir runs and is ready.") {
			t.Errorf("the page without a script: %d %s", status, text)
		}
		if _, err := steps.MakeTenant(ctx, "acme", ""); err != nil {
			t.Error(err)
			return
		}
		if _, err := steps.MakeDevice(ctx, "acme", "d1", ""); err != nil {
			t.Error(err)
			return
		}
		snippetsOfD1(t, ctx, cfg)
	}, nil)
	if err != nil {
		t.Error(err)
	}
}

func snippetsOfD1(t *testing.T, ctx context.Context, cfg config.Config) {
	t.Helper()
	client, err := operate.Dial(ctx, cfg)
	if err != nil {
		t.Error(err)
		return
	}
	defer client.Close()
	ask := func(query string, into any) {
		t.Helper()
		got, err := operate.RunGraphQL.Ask(ctx, client, operate.GraphQLRequest{Area: "device-management", Tenant: "acme", Query: query})
		if err == nil && len(got.Errors) > 0 {
			t.Errorf("%+v", got.Errors)
		}
		if err == nil {
			err = json.Unmarshal(got.Data, into)
		}
		if err != nil {
			t.Error(err)
		}
	}
	var issued struct {
		IssueAccessToken struct {
			AccessToken string
			Credential  struct{ Token string }
		}
	}
	ask(`mutation { issueAccessToken(request: {deviceToken: "d1"}) { accessToken credential { token } } }`, &issued)
	var shown struct {
		DeviceSnippets []struct{ Title, Language, Text string }
	}
	ask(`{ deviceSnippets(deviceToken: "d1", credentialToken: "`+issued.IssueAccessToken.Credential.Token+`", host: "a; rm -rf") { title language text } }`, &shown)
	var titles []string
	for _, s := range shown.DeviceSnippets {
		titles = append(titles, s.Title)
		if !strings.Contains(s.Text, issued.IssueAccessToken.AccessToken) || strings.Contains(s.Text, "rm -rf") {
			t.Errorf("%s: %s", s.Title, s.Text)
		}
	}
	if got := strings.Join(titles, " "); got != "mosquitto_pub curl Python Go" {
		t.Errorf("snippets: %s", got)
	}
}
