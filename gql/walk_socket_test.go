package gql_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"weir/alarm"
	"weir/command"
	"weir/gql"
	"weir/gql/delivery"
	"weir/ingest"
	"weir/internal/hub"
	"weir/internal/test/conformance"
	"weir/internal/test/testweir"
	"weir/model"
	"weir/provision"
	"weir/series"
)

// closedUnauthorized is the close code of a connection whose token is refused.
const closedUnauthorized = 4401

// subscriptions opens every subscription as everybody.
func (w *walk) subscriptions(t *testing.T) {
	for _, area := range slices.Sorted(maps.Keys(w.schemas)) {
		for _, op := range walkTable[area] {
			if op.kind != "subscription" {
				continue
			}
			w.refusedSockets(t, area, op)
			r := w.ask(t, area, caller{token: w.own}, w.document(area, op), nil)
			if len(r.Errors) != 1 || !strings.Contains(r.message(), "WebSocket") || !r.empty() {
				t.Errorf("%s over plain HTTP: %s", op.name, r.raw)
			}
		}
	}
	w.streamsKeepTenantsApart(t)
}

func (w *walk) refusedSockets(t *testing.T, area string, op walkOp) {
	t.Helper()
	for name, token := range map[string]string{"an expired token": w.expired, "an identity token": w.identity, "a refresh token": w.refresh,
		"a service token": w.service(t, string(op.needs))} {
		s, err := w.Dial(area, token)
		if err == nil || testweir.CloseCode(err) != closedUnauthorized {
			t.Errorf("%s with %s: %v, want close code %d", op.name, name, err, closedUnauthorized)
		}
		if s != nil {
			s.Close()
		}
	}
	s, err := w.Dial(area, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Subscribe("1", w.document(area, op), nil); err != nil {
		t.Fatal(err)
	}
	m, err := s.Next(10 * time.Second)
	if err != nil || m.Type != "error" || m.ID != "1" || !strings.Contains(string(m.Payload), "UNAUTHENTICATED") ||
		!strings.Contains(string(m.Payload), "unauthenticated: a token is required") {
		t.Errorf("%s without a token: %+v %s %v", op.name, m, m.Payload, err)
	}
}

// streamsKeepTenantsApart: both tenants listen to what looks alike, acme's device d and profile p; what the stranger
// hears first is his own.
func (w *walk) streamsKeepTenantsApart(t *testing.T) {
	for _, q := range seedRequests {
		w.Query("device-management", w.other, strings.ReplaceAll(q, "a-secret", "eves-secret"), map[string]any{"rule": hotRule}, nil)
	}
	w.Query("device-management", w.other, `mutation { publishDeviceProfile(token: "p") { version } }`, nil, nil)
	for _, q := range []string{
		`mutation { a: createDeviceProfile(request: {token: "s"}) { id } b: createDeviceType(request: {token: "s", profileToken: "s"}) { id } }`,
		`mutation ($rule: String!) { a: createDetectionRule(request: {token: "s", deviceProfileToken: "s", definition: $rule, enabled: true}) { id }
			b: createDevice(request: {token: "s", deviceTypeToken: "s"}) { id }
			c: createDeviceCredential(request: {token: "s", deviceToken: "s", credentialType: "ACCESS_TOKEN", credentialId: "adas-secret", enabled: true}) { id }
			d: publishDeviceProfile(token: "s") { version } }`,
	} {
		for _, token := range []string{w.own, w.other} {
			vars := map[string]any{}
			if strings.Contains(q, "$rule") {
				vars["rule"] = strings.Replace(hotRule, `"when"`, `"severity":"major","actions":[{"type":"raiseAlarm","raiseAlarm":{}}],"when"`, 1)
			}
			w.Query("device-management", token, q, vars, nil)
		}
	}
	own, stranger := w.device(t, walkTenant), w.device(t, walkOther)
	for area, query := range map[string]string{
		"event-management": `subscription { x: measurementStream(deviceToken: "s", name: "temp") { value: value } }`,
		"event-processing": `subscription { x: detectionStream(profileToken: "s") { value: value edge ruleId } }`,
		// what clears says what it was raised with
		"device-management": `subscription { x: alarmStream(originatorType: "device", originator: "s") { value: lastValue edge: eventType alarmKey } }`,
	} {
		listen := func(token string) *testweir.Socket {
			s, err := w.Dial(area, token)
			if err == nil {
				err = s.Subscribe("1", query, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		ours, theirs := listen(w.own), listen(w.other)
		if m := heard(t, ours, own, 131); !strings.Contains(m, "131") && !strings.Contains(m, "resolved") && !strings.Contains(m, `"value":5`) {
			t.Errorf("%s: the owner hears %s", area, m)
		}
		own.send(t, 131)
		own.send(t, 5)
		if m := heard(t, theirs, stranger, 31); strings.Contains(m, "131") || strings.Contains(m, walkTenant) {
			t.Errorf("%s: the stranger hears %s", area, m)
		}
		ours.Close()
		theirs.Close()
	}
	conformance.Shown(t, "S1-099")
}

type streamDevice struct {
	*testweir.MQTT
	tenant string
}

func (w *walk) device(t *testing.T, tenant string) *streamDevice {
	t.Helper()
	c, err := testweir.DialMQTT(w.MQTT, "weir", tenant, "s", "adas-secret")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &streamDevice{c, tenant}
}

func (d *streamDevice) send(t *testing.T, temp int) {
	t.Helper()
	body := fmt.Sprintf(`{"eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"%d"}}]}}`, temp)
	if err := d.Publish("weir/"+d.tenant+"/devices/s/events", 1, false, []byte(body)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Puback(); err != nil {
		t.Fatal(err)
	}
}

// heard sends readings that raise and resolve until the first of them is heard, and returns that.
func heard(t *testing.T, s *testweir.Socket, d *streamDevice, high int) string {
	t.Helper()
	for range 100 {
		d.send(t, high)
		d.send(t, 5)
		m, err := s.Next(100 * time.Millisecond)
		switch {
		case err == nil && m.Type == "next":
			return string(m.Payload)
		case err == nil:
			t.Fatalf("%+v %s", m, m.Payload)
		case !errors.Is(err, testweir.ErrQuiet):
			t.Fatal(err)
		}
	}
	t.Fatal("nothing is heard")
	return ""
}

// Every member of a tenant holds what the present subscriptions ask for, so that no token of the running program lacks
// it: the areas, as they are registered, are asked by a caller who does.
func TestSubscriptionsAskForTheirAuthority(t *testing.T) {
	t.Parallel()
	s := gql.New(gql.Config{})
	gql.RegisterEvents(s.Area("event-management", gql.TenantPlane), gql.EventDeps{Readings: hub.New[series.Point]("m", nil), Messages: gql.MessageDeps{Tap: ingest.NewTap(nil, nil), MaxSkew: func() time.Duration { return 0 }}})
	gql.RegisterProcessing(s.Area("event-processing", gql.TenantPlane), gql.ProcessingDeps{Edges: hub.New[model.Edge]("d", nil)})
	devices := s.Area("device-management", gql.TenantPlane)
	r, p := provision.Describe()
	gql.RegisterRegistry(devices, r, p)
	gql.RegisterAlarms(devices, alarm.New(alarm.TenantSettings{}, alarm.Deps{}), r)
	gql.RegisterSnippets(devices, r, nil)
	gql.RegisterTestEvents(devices, gql.MessageDeps{}, nil)
	gql.RegisterLwm2m(devices, r, nil)
	gql.RegisterArtifacts(devices, nil)
	delivery.Register(s.Area(delivery.Area, gql.TenantPlane), command.New(command.Settings{}, command.Deps{}))
	if err := s.Build(); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for area, ops := range walkTable {
		for _, op := range ops {
			if op.kind != "subscription" {
				continue
			}
			seen++
			var others []model.Authority
			for _, a := range allBut(model.TierTenant, op.needs) {
				others = append(others, model.Authority(a))
			}
			query := "subscription { " + op.name + op.args + " { __typename } }"
			want := "forbidden: " + string(op.needs) + " is required"
			if got := firstMessage(t, s.Handler(area, as(member("acme", 1, others...))), query); !strings.Contains(got, "FORBIDDEN") || !strings.Contains(got, want) {
				t.Errorf("%s with all authorities but one: %s", op.name, got)
			}
			if got := firstMessage(t, s.Handler(area, as(member("", 0, op.needs))), query); !strings.Contains(got, "UNAUTHENTICATED") || !strings.Contains(got, "no tenant") {
				t.Errorf("%s without a tenant: %s", op.name, got)
			}
		}
	}
	if seen != 5 {
		t.Errorf("%d subscriptions; register the area of the new one here", seen)
	}
	conformance.Shown(t, "S1-012")
}

func as(p *model.Principal) gql.Authenticate {
	return func(context.Context, gql.Credentials) (gql.Session, error) { return gql.Session{Principal: p}, nil }
}

// firstMessage subscribes over a real WebSocket and returns what comes first.
func firstMessage(t *testing.T, h http.Handler, query string) string {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	conn, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), &websocket.DialOptions{Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	text := ""
	for _, send := range []string{`{"type":"connection_init"}`, fmt.Sprintf(`{"type":"subscribe","id":"1","payload":{"query":%q}}`, query)} {
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(send)); err != nil {
			t.Fatal(err)
		}
		_, b, err := conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	return text
}
