// Package e2e_test shows the statements of the client's documents on the running program, from outside: over HTTP, MQTT,
// WebSocket and the command line. One instance serves most of the tests; each works in a tenant of its own.
package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// generous leaves the ceilings out of the way of tests that are not about them.
const generous = `
governance: {ingest_messages_per_second: 1000000, ingest_burst: 1000000}
`

func TestTheRunningProgram(t *testing.T) {
	t.Parallel()
	w := start(t, testweir.Options{Config: generous + "ai: {enabled: true}\n"})
	for name, test := range map[string]func(*testing.T, *world){
		"processing area": processingArea, "validation": validation, "publish gate": publishGate, "rule health": ruleHealth, "canvases": canvases, "what rules know": whatRulesKnow, "past detections": pastDetections, "previews": previews,
		"detections": detections, "alarms": alarms, "severities": severities, "expressions": expressions, "profiles apart": profilesApart, "kinds": kinds,
		"slow subscriber": slowSubscriber, "shapes of processing": processingShapes,
		"http statuses": httpStatuses, "body credentials": bodyCredentials, "retries": retries, "mqtt credentials": mqttCredentials,
		"device recipes": deviceRecipes, "arduino": arduino, "header credentials": headerCredentials, "device credentials elsewhere": deviceCredentialsElsewhere,
		"own topics": ownTopics, "told or kept": toldOrKept, "one body through both doors": oneBody,
		"out of range": outOfRange, "source names": sourceNames, "event queries": eventQueries, "anchors": anchors, "device reports": deviceReports, "commands over MQTT": commandsOverMQTT, "attributes of a device": attributesOfADevice, "new relationships": newRelationships, "demotions": demotions, "dashboards": dashboards, "commands": commanding, "buckets": buckets, "backfill": backfill, "presence": presence,
		"tokens": tokens, "external ids": externalIDs, "common properties": commonProperties, "concurrent updates": concurrentUpdates,
		"unknown references": unknownReferences, "rename": rename, "active version": activeVersion, "names": names,
		"sign-in": signIn, "introspection off": introspectionOff, "published schemas": publishedSchemas, "tenant ids": tenantIDs, "tenant logo": tenantLogo, "refused whole": refusedWhole,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, w)
		})
	}
}

// world is a running instance with its administrator.
type world struct {
	*testweir.Proc
	identity string
}

func start(t *testing.T, o testweir.Options) *world {
	t.Helper()
	w := &world{Proc: testweir.Start(t, o)}
	w.admin()
	return w
}

// admin makes the administrator of a new instance and signs in.
func (w *world) admin() {
	w.Run("", "tenant", "create", "first")
	w.SignIn("first") // makes the administrator
	w.login()
}

func (w *world) login() {
	var in struct {
		Login struct{ IdentityToken string }
	}
	w.Query("user-management", "", `mutation($p:String!){login(email:"admin@example.org",password:$p){identityToken}}`,
		map[string]any{"p": testweir.Password}, &in)
	w.identity = in.Login.IdentityToken
}

// tenant is a tenant of a test's own, with an administrator's token.
type tenant struct {
	*world
	t     testing.TB
	name  string
	token string
}

func (w *world) tenant(t testing.TB, name string) *tenant {
	t.Helper()
	w.Run("", "tenant", "create", name)
	return w.enter(t, name)
}

func (w *world) enter(t testing.TB, name string) *tenant {
	t.Helper()
	var sel struct{ SelectTenant struct{ AccessToken string } }
	w.must(t, "user-management", "", `mutation($i:String!,$t:String!){selectTenant(identityToken:$i,tenant:$t){accessToken}}`,
		map[string]any{"i": w.identity, "t": name}).into(t, &sel)
	return &tenant{w, t, name, sel.SelectTenant.AccessToken}
}

// answer is what a GraphQL request is answered.
type answer struct {
	status int
	raw    string
	Data   json.RawMessage
	Errors []struct {
		Message    string
		Extensions map[string]any
	}
}

func (a *answer) into(t testing.TB, to any) {
	t.Helper()
	if err := json.Unmarshal(a.Data, to); err != nil {
		t.Fatalf("%v: %s", err, a.raw)
	}
}

// refusal is code and message of the first error, "" when there is none.
func (a *answer) refusal() string {
	if len(a.Errors) == 0 {
		return ""
	}
	code, _ := a.Errors[0].Extensions["code"].(string)
	return code + " " + a.Errors[0].Message
}

// ask sends a GraphQL request.
func (w *world) ask(t testing.TB, area, token, query string, vars map[string]any) *answer {
	t.Helper()
	resp, b, err := testweir.GraphQL{API: w.API, Area: area, Token: token, Query: query, Variables: vars}.Post(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a := &answer{status: resp.StatusCode, raw: string(b)}
	if err := json.Unmarshal(b, a); err != nil {
		t.Fatalf("%s: %s", resp.Status, b)
	}
	return a
}

// must is ask for a request that succeeds.
func (w *world) must(t testing.TB, area, token, query string, vars map[string]any) *answer {
	t.Helper()
	a := w.ask(t, area, token, query, vars)
	if len(a.Errors) > 0 {
		t.Fatalf("%s: %s %v: %s", area, query, vars, a.raw)
	}
	return a
}

// devices, events, states and rules ask an area for something that succeeds.
func (tn *tenant) devices(query string, vars map[string]any) *answer {
	tn.t.Helper()
	return tn.must(tn.t, "device-management", tn.token, query, vars)
}

func (tn *tenant) events(query string, vars map[string]any) *answer {
	tn.t.Helper()
	return tn.must(tn.t, "event-management", tn.token, query, vars)
}

func (tn *tenant) states(query string, vars map[string]any) *answer {
	tn.t.Helper()
	return tn.must(tn.t, "device-state", tn.token, query, vars)
}

func (tn *tenant) rules(query string, vars map[string]any) *answer {
	tn.t.Helper()
	return tn.must(tn.t, "event-processing", tn.token, query, vars)
}

// refused asks device-management for something that it must refuse with the code and a message that holds the text.
func (tn *tenant) refused(query string, vars map[string]any, code, text string) {
	tn.t.Helper()
	a := tn.ask(tn.t, "device-management", tn.token, query, vars)
	if got := a.refusal(); a.status != http.StatusOK || !strings.HasPrefix(got, code+" ") || !strings.Contains(got, text) {
		tn.t.Errorf("%s %v: %d %s, want %s with %q", query, vars, a.status, a.raw, code, text)
	}
}

// profile makes a profile with rules, a device type of the same token, and publishes it.
func (tn *tenant) profile(token string, rules map[string]string) {
	tn.t.Helper()
	tn.devices(fmt.Sprintf(`mutation{createDeviceProfile(request:{token:%q}){id}}`, token), nil)
	for rule, definition := range rules {
		tn.rule(token, rule, definition, true)
	}
	tn.devices(fmt.Sprintf(`mutation{createDeviceType(request:{token:%[1]q,profileToken:%[1]q}){id}}`, token), nil)
	tn.publish(token)
}

func (tn *tenant) rule(profile, token, definition string, enabled bool) {
	tn.t.Helper()
	tn.devices(`mutation($r:DetectionRuleCreateRequest!){createDetectionRule(request:$r){id}}`, map[string]any{"r": map[string]any{
		"token": token, "deviceProfileToken": profile, "definition": definition, "enabled": enabled}})
}

func (tn *tenant) publish(profile string) {
	tn.t.Helper()
	tn.devices(fmt.Sprintf(`mutation{publishDeviceProfile(token:%q){version}}`, profile), nil)
}

// device makes a device with the access token {tenant}-{device}.
func (tn *tenant) device(token, deviceType string) {
	tn.t.Helper()
	tn.devices(fmt.Sprintf(`mutation{a:createDevice(request:{token:%[1]q,deviceTypeToken:%[2]q}){id}
		b:createDeviceCredential(request:{token:%[1]q,deviceToken:%[1]q,credentialType:"ACCESS_TOKEN",credentialId:%[3]q,enabled:true}){id}}`,
		token, deviceType, tn.secret(token)), nil)
}

// plain makes a type without profile and devices of it.
func (tn *tenant) plain(devices ...string) {
	tn.t.Helper()
	tn.devices(`mutation{createDeviceType(request:{token:"plain"}){id}}`, nil)
	for _, d := range devices {
		tn.device(d, "plain")
	}
}

func (tn *tenant) secret(device string) string { return tn.name + "-" + device }

// measured is a measurement event; more are further members, as `"altId":"x"`.
func measured(metric, value string, more ...string) string {
	return fmt.Sprintf(`{"eventType":"Measurement","payload":{"entries":[{"measurements":{%q:%q}}]}%s}`, metric, value,
		strings.Join(append([]string{""}, more...), ","))
}

// many is a measurement event with n entries of one metric, the values counting from first.
func many(metric string, first, n int) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = fmt.Sprintf(`{"measurements":{%q:"%d"}}`, metric, first+i)
	}
	return `{"eventType":"Measurement","payload":{"entries":[` + strings.Join(entries, ",") + `]}}`
}

// as are the members that name the device's own credential.
func (tn *tenant) as(device string) string {
	return fmt.Sprintf(`"credentialType":"ACCESS_TOKEN","credentialId":%q`, tn.secret(device))
}

func at(when time.Time) string {
	return fmt.Sprintf(`"occurredTime":%q`, when.UTC().Format(time.RFC3339Nano))
}

// post sends a body to HTTP ingest.
func (tn *tenant) post(body string) *http.Response {
	tn.t.Helper()
	return post(tn.t, tn.Ingest+"/weir/"+tn.name+"/events", body)
}

func post(t testing.TB, url, body string) *http.Response {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(b))
	return resp
}

// kept posts a body that must be taken.
func (tn *tenant) kept(body string) {
	tn.t.Helper()
	if resp := tn.post(body); resp.StatusCode != http.StatusAccepted {
		b, _ := io.ReadAll(resp.Body)
		tn.t.Fatalf("%s: %s %s", body, resp.Status, b)
	}
}

// client is a device connected to the broker.
type client struct {
	*testweir.MQTT
	tn     *tenant
	device string
	id     uint16
}

func (tn *tenant) connect(device string) *client {
	tn.t.Helper()
	m, err := testweir.DialMQTT(tn.MQTT, "weir", tn.name, device, tn.secret(device))
	if err != nil {
		tn.t.Fatal(err)
	}
	tn.t.Cleanup(func() { _ = m.Close() })
	if err := m.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		tn.t.Fatal(err)
	}
	return &client{MQTT: m, tn: tn, device: device}
}

func (c *client) topic() string { return "weir/" + c.tn.name + "/devices/" + c.device + "/events" }

// send publishes and waits for the acknowledgement.
func (c *client) send(body string) {
	c.tn.t.Helper()
	c.id++
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil { // each message has one, however many there are
		c.tn.t.Fatal(err)
	}
	if err := c.Publish(c.topic(), c.id, false, []byte(body)); err != nil {
		c.tn.t.Fatal(err)
	}
	if got, err := c.Puback(); err != nil || got != c.id {
		c.tn.t.Fatalf("PUBACK %d, %v, want %d", got, err, c.id)
	}
}

// measurement is an item of measurementEvents.
type measurement struct {
	ID, DeviceToken, OccurredTime, Name string
	Value                               float64
	Unit, DataType                      *string
}

// measurements is a page of measurementEvents with its total.
func (tn *tenant) measurements(criteria map[string]any) ([]measurement, int) {
	tn.t.Helper()
	all := map[string]any{"pageNumber": 1, "pageSize": 1000}
	maps.Copy(all, criteria)
	var out struct {
		MeasurementEvents struct {
			Results    []measurement
			Pagination struct{ TotalRecords int }
		}
	}
	tn.events(`query($c:EventSearchCriteria!){measurementEvents(criteria:$c){results{id deviceToken occurredTime name value unit dataType} pagination{totalRecords}}}`,
		map[string]any{"c": all}).into(tn.t, &out)
	return out.MeasurementEvents.Results, out.MeasurementEvents.Pagination.TotalRecords
}

// arrived waits until exactly n readings of the tenant are stored, and returns them, newest first.
func (tn *tenant) arrived(n int) []measurement {
	tn.t.Helper()
	var all []measurement
	poll.Until(tn.t, fmt.Sprintf("%d readings", n), func() error {
		var total int
		if all, total = tn.measurements(nil); total != n {
			return fmt.Errorf("there are %d", total)
		}
		return nil
	})
	return all
}

// ledgerLine is what became of the tenant's messages over one transport.
type ledgerLine struct {
	Transport                                                                    string
	Received, Stored, Duplicate, DeadLetter, Refused, Dropped, Waiting, Readings int
	Reasons                                                                      []struct {
		Outcome, Reason string
		Count           int
	}
}

// ledger sums up the tenant's ledger of a transport once it has settled.
func (tn *tenant) ledger(transport string) ledgerLine {
	tn.t.Helper()
	var sum ledgerLine
	poll.Until(tn.t, "a ledger that has settled", func() error {
		var out struct{ IngestLedger []ledgerLine }
		tn.events(`query($t:String!){ingestLedger(criteria:{transport:$t}){transport received stored duplicate deadLetter refused dropped waiting readings reasons{outcome reason count}}}`,
			map[string]any{"t": transport}).into(tn.t, &out)
		sum = ledgerLine{}
		for _, l := range out.IngestLedger {
			sum.Received += l.Received
			sum.Stored += l.Stored
			sum.Duplicate += l.Duplicate
			sum.DeadLetter += l.DeadLetter
			sum.Refused += l.Refused
			sum.Dropped += l.Dropped
			sum.Waiting += l.Waiting
			sum.Readings += l.Readings
			sum.Reasons = append(sum.Reasons, l.Reasons...)
		}
		if sum.Waiting != 0 || sum.Received != sum.Stored+sum.Duplicate+sum.DeadLetter+sum.Refused+sum.Dropped {
			return fmt.Errorf("%+v", sum)
		}
		return nil
	})
	return sum
}

// applied waits until all that was acknowledged to the tenant so far is applied: a marker that is sent last has arrived.
func (tn *tenant) applied(device string) {
	tn.t.Helper()
	mark := fmt.Sprint(time.Now().UnixNano() % 1_000_000_000)
	tn.kept(measured("mark", mark, tn.as(device)))
	poll.Until(tn.t, "the marker", func() error {
		var out struct {
			LatestMeasurements []struct {
				Name  string
				Value float64
			}
		}
		tn.states(`query($d:String!){latestMeasurements(deviceToken:$d){name value}}`, map[string]any{"d": device}).into(tn.t, &out)
		for _, m := range out.LatestMeasurements {
			if m.Name == "mark" && fmt.Sprintf("%.0f", m.Value) == mark {
				return nil
			}
		}
		return errors.New("it is not there")
	})
}

// get reads a page of the API port.
func (w *world) get(t testing.TB, path string) (*http.Response, string) {
	t.Helper()
	resp, err := http.Get(w.API + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}
