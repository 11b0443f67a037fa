package app

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/broker"
	"weir/config"
	"weir/ingest"
	"weir/internal/guard"
	"weir/internal/setting"
	"weir/internal/test/testweir"
	"weir/model"
	"weir/operate"
	"weir/presence"
	"weir/registry"
	"weir/store"
)

// reloaded is an instance whose configuration file the test writes.
type reloaded struct {
	*Instance
	t      *testing.T
	file   string
	hangup chan os.Signal
	ticks  chan time.Time
	level  *slog.LevelVar
	token  string // of the device acme/d1
	tokens int    // that fresh has given
}

const reloadPassword = "correct horse battery"

func runReloaded(t *testing.T, set ...string) *reloaded {
	t.Helper()
	dir := t.TempDir()
	r := &reloaded{t: t, file: filepath.Join(dir, "weir.yaml"), hangup: make(chan os.Signal, 1), ticks: make(chan time.Time), level: new(slog.LevelVar)}
	r.write("")
	src := config.Source{File: r.file, DataDir: filepath.Join(dir, "data"), Set: append(set, "listeners.api=127.0.0.1:0", "listeners.ingest=127.0.0.1:0",
		"listeners.mqtt=127.0.0.1:0", "listeners.metrics=")}
	cfg, err := config.Load(src)
	if err != nil {
		t.Fatal(err)
	}
	r.Instance = New(*cfg, Options{Source: &src, Level: r.level, Hangup: r.hangup, Ticks: r.ticks})
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- r.Run(ctx, func() { close(ready) }, nil) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the stop: %v", err)
		}
	})
	r.furnish()
	return r
}

// furnish makes a tenant, an administrator and a device.
func (r *reloaded) furnish() {
	r.t.Helper()
	if _, err := r.entities.CreateTenant(r.t.Context(), operate.Local(), operate.NewTenant{Token: "acme"}); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.entities.CreateAdmin(r.t.Context(), operate.Local(), operate.NewAdmin{Email: "you@example.org", Password: reloadPassword}); err != nil {
		r.t.Fatal(err)
	}
	d, err := r.entities.AddDevice(r.t.Context(), operate.Local(), operate.NewDevice{Tenant: "acme", Token: "d1"})
	if err != nil {
		r.t.Fatal(err)
	}
	r.token = d.Secret
}

// write replaces the file whole, as an editor or a tool does.
func (r *reloaded) write(text string) {
	r.t.Helper()
	if err := os.WriteFile(r.file+".new", []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(r.file+".new", r.file); err != nil {
		r.t.Fatal(err)
	}
}

// set writes a file with one key.
func (r *reloaded) set(key, value string) {
	text := value
	for _, name := range slices.Backward(strings.Split(key, ".")) {
		text = "{" + name + ": " + text + "}"
	}
	r.write(text + "\n")
}

// ask asks the instance and returns the body and the status.
func (r *reloaded) ask(method, url string, header map[string]string, body string) (string, int) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b), resp.StatusCode
}

func (r *reloaded) get(path string) string {
	b, _ := r.ask(http.MethodGet, "http://"+r.Listeners().At(operate.APIListener)+path, nil, "")
	return b
}

// post sends a body to HTTP ingest.
func (r *reloaded) post(body string) int {
	_, status := r.ask(http.MethodPost, "http://"+r.Listeners().At(operate.IngestListener)+"/weir/acme/events", map[string]string{"Content-Type": "application/json"}, body)
	return status
}

// lives returns for how long newly issued tokens are good.
func (r *reloaded) lives() (access, refresh time.Duration, token string) {
	r.t.Helper()
	in, err := r.entities.Auth.Login(r.t.Context(), "you@example.org", reloadPassword, netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		r.t.Fatal(err)
	}
	pair, err := r.entities.Auth.SelectTenant(r.t.Context(), in.Token, "acme")
	if err != nil {
		r.t.Fatal(err)
	}
	return r.life(pair.Access), r.life(pair.Refresh), pair.Access
}

func (r *reloaded) life(token string) time.Duration {
	r.t.Helper()
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		r.t.Fatal(err)
	}
	var c struct{ Nbf, Exp int64 }
	if err := json.Unmarshal(claims, &c); err != nil {
		r.t.Fatal(err)
	}
	return time.Duration(c.Exp-c.Nbf) * time.Second
}

// letters is how many dead letters acme has once everything is applied.
func (r *reloaded) letters() int {
	r.t.Helper()
	for _, last := r.spool.log.Bounds(); r.applier.ingest.Applied() < last; {
		time.Sleep(time.Millisecond)
	}
	ds, err := operate.ListDeadLetters.Ask(r.t.Context(), r.operatorClient(), operate.DeadLetterQuery{Limit: 100})
	if err != nil {
		r.t.Fatal(err)
	}
	return len(ds)
}

const anonymousReading = `{"device":"d1","eventType":"Measurement","payload":{"entries":[{"measurements":{"t":"1"}}]}}`

// effect is a value of a key, and how one sees from outside that it applies.
type effect struct {
	value   string
	applies func(*reloaded) bool
}

// reported are the sections of which a component reports the settings that it applies: their keys need no row in effects. What follows
// from a value is seen elsewhere, on a clock of its own: of commands in command, of presence in presence and broker, of backups in the
// test of those that the instance makes by itself, and of config in the test of the watch.
var reported = map[string]func(*reloaded) any{
	"backup":   func(r *reloaded) any { return r.effective().Backup },
	"commands": func(r *reloaded) any { return r.entities.Commands.Settings() },
	"config":   func(r *reloaded) any { return r.effective().Files },
	"presence": func(r *reloaded) any { return r.presenceTiming() },
}

// effectOf returns the effect of a key that can be reloaded: its row, or that the component of its section reports another value.
func (r *reloaded) effectOf(key string) effect {
	r.t.Helper()
	if e, ok := effects[key]; ok {
		return e
	}
	section, name, _ := strings.Cut(key, ".")
	if reported[section] == nil {
		r.t.Fatalf("%s can be reloaded: add how one sees that it applies to effects", key)
	}
	field := func() (reflect.StructField, reflect.Value) {
		for sf, v := range setting.Keys(reflect.ValueOf(reported[section](r))) {
			if sf.Tag.Get("yaml") == name {
				return sf, v
			}
		}
		r.t.Fatalf("%s can be reloaded, and what reports the section %s does not have it: add it to effects", key, section)
		return reflect.StructField{}, reflect.Value{}
	}
	sf, now := field()
	value := cmp.Or(sf.Tag.Get("max"), sf.Tag.Get("min"), "2h") // what is bounded neither way is a duration
	if now.Kind() == reflect.Bool {
		value = fmt.Sprint(!now.Bool())
	}
	want := reflect.New(sf.Type).Elem()
	if err := setting.Parse(want, value); err != nil {
		r.t.Fatalf("%s: %v: add it to effects", key, err)
	}
	return effect{value, func(*reloaded) bool {
		_, got := field()
		return got.Interface() == want.Interface()
	}}
}

// effects are those that one sees otherwise than by what a component reports.
var effects = map[string]effect{
	"logging.level": {"debug", func(r *reloaded) bool { return r.level.Level() == slog.LevelDebug }},
	"base_url": {"https://weir.example.org", func(r *reloaded) bool {
		return strings.Contains(r.get("/schema/index.json"), "https://weir.example.org/api")
	}},
	"backup.directory": {"kept", func(r *reloaded) bool { return filepath.Base(operate.BackupDirectory(*r.effective())) == "kept" }},
	"docs_url": {"https://docs.example.org", func(r *reloaded) bool {
		return strings.Contains(r.get("/schema/index.json"), "https://docs.example.org/schema")
	}},
	"auth.access_token_ttl": {"3m", func(r *reloaded) bool {
		access, _, _ := r.lives()
		return access == 3*time.Minute
	}},
	"auth.refresh_token_ttl": {"2h", func(r *reloaded) bool {
		_, refresh, _ := r.lives()
		return refresh == 2*time.Hour
	}},
	"auth.signing_key_max_age": {"1h", func(r *reloaded) bool { // what follows from it is seen in auth, on a clock of its own
		return authConfig(*r.effective()).SigningKeyMaxAge == time.Hour
	}},
	"auth.service_secret": {"a-service-secret-of-32-bytes-or-more", func(r *reloaded) bool {
		_, status := r.ask(http.MethodPost, "http://"+r.Listeners().At(operate.APIListener)+serviceTokenPath, map[string]string{"X-Weir-Service-Secret": "a-service-secret-of-32-bytes-or-more"},
			`{"subject": "rules", "authorities": ["ai:infer"]}`)
		return status == http.StatusOK
	}},
	"auth.device_auth_mode": {"optional", func(r *reloaded) bool {
		before := r.letters()
		return r.post(anonymousReading) == http.StatusAccepted && r.letters() == before
	}},
	"broker.fail_closed": {"true", func(r *reloaded) bool { return r.intake.into.Config().FailClosed }}, // what follows is seen in ingest
	"broker.allow_qos2": {"true", func(r *reloaded) bool {
		m, code, err := testweir.ConnectMQTT(r.Listeners().At(operate.MQTTListener), "weir:acme:d1", "acme:"+r.token, "")
		if err != nil || code != 0 {
			return false
		}
		defer m.Close()
		topic := "weir/acme/devices/d1/events"
		body := append([]byte{0, byte(len(topic))}, topic...)
		body = append(append(body, 0, 7), `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"t":"1"}}]}}`...)
		if _, err := m.Write(append([]byte{0x34, byte(len(body))}, body...)); err != nil {
			return false
		}
		pubrec := make([]byte, 4)
		_, err = io.ReadFull(m, pubrec)
		return err == nil && bytes.Equal(pubrec, []byte{0x50, 2, 0, 7})
	}},
	"broker.max_connections": {"1", func(r *reloaded) bool {
		first, code, err := testweir.ConnectMQTT(r.Listeners().At(operate.MQTTListener), "weir:acme:d1:a", "acme:"+r.token, "")
		for ; err == nil && code == 3; time.Sleep(time.Millisecond) { // the connection of the key before may still be closing
			first, code, err = testweir.ConnectMQTT(r.Listeners().At(operate.MQTTListener), "weir:acme:d1:a", "acme:"+r.token, "")
		}
		if err != nil || code != 0 {
			return false
		}
		defer first.Close()
		_, code, err = testweir.ConnectMQTT(r.Listeners().At(operate.MQTTListener), "weir:acme:d1:b", "acme:"+r.token, "")
		return err == nil && code == 3
	}},
	"presence.source_backstop": {"11s", func(r *reloaded) bool { return r.transports.backstop.After() == 11*time.Second }},
	"presence.inactivity_timeout": {"77s", func(r *reloaded) bool {
		_, _, token := r.lives()
		b, _ := r.ask(http.MethodPost, "http://"+r.Listeners().At(operate.APIListener)+"/api/device-state/graphql", map[string]string{"Authorization": "Bearer " + token, "Content-Type": "application/json"},
			`{"query": "{deviceStatesByDeviceToken(deviceTokens: [\"d1\"]) {inactivityTimeout}}"}`)
		return strings.Contains(b, `"inactivityTimeout":77`)
	}},
	"ingest.max_body": {"1KiB", func(r *reloaded) bool {
		return r.post(anonymousReading+strings.Repeat(" ", 1024)) == http.StatusBadRequest
	}},
	"governance.ingest_messages_per_second": {"12.5", func(r *reloaded) bool { return *r.entities.Govern.Limits("nobody").IngestMessagesPerSecond == 12.5 }},
	"governance.ingest_burst":               {"300", func(r *reloaded) bool { return *r.entities.Govern.Limits("nobody").IngestBurst == 300 }},
	"governance.shed_priority":              {"77", func(r *reloaded) bool { return *r.entities.Govern.Limits("nobody").ShedPriority == 77 }},
	"governance.manual_floor":               {"3", func(r *reloaded) bool { return !r.entities.Govern.Take("nobody-else", 1) }},
	"limits.devices_per_tenant": {"1", func(r *reloaded) bool {
		_, err := r.entities.AddDevice(r.t.Context(), operate.Local(), operate.NewDevice{Tenant: "acme", Token: "d2"})
		return model.CodeOf(err) == model.CodeLimitExceeded
	}},
	"limits.device_types_per_tenant": {"1", func(r *reloaded) bool {
		_, err := r.entities.Registry.Types.Create(r.t.Context(), r.acme(), store.Patch{"token": "more"})
		return model.CodeOf(err) == model.CodeLimitExceeded
	}},
	"limits.assets_per_tenant":    {"1", oneMore("asset", "assets")},
	"limits.customers_per_tenant": {"1", oneMore("customer", "customers")},
	"limits.areas_per_tenant":     {"1", oneMore("area", "areas")},
	"limits.entity_types_per_tenant": {"1", func(r *reloaded) bool {
		_, err := r.entities.Registry.Kinds.Of("customer_types").Create(r.t.Context(), r.acme(), store.Patch{"token": "more"})
		return model.CodeOf(err) == model.CodeLimitExceeded
	}},
	"limits.facet_keys_per_tenant": {"1", func(r *reloaded) bool {
		_, err := r.entities.Registry.FacetKeys.Set(r.t.Context(), r.acme(), store.Patch{"memberType": "device", "key": time.Now().String(), "valueType": "LONG"})
		return model.CodeOf(err) == model.CodeLimitExceeded
	}},
	"limits.groups_per_tenant": {"1", func(r *reloaded) bool {
		_, err := r.entities.Registry.Groups.Create(r.t.Context(), r.acme(), store.Patch{"token": "more", "memberType": "device"})
		return model.CodeOf(err) == model.CodeLimitExceeded
	}},
	"limits.selectors_per_tenant": {"1", func(r *reloaded) bool {
		groups, token := r.entities.Registry.Groups, r.fresh()
		if _, err := groups.Create(r.t.Context(), r.acme(), store.Patch{"token": token, "memberType": "device", "membershipMode": "dynamic", "selector": `"k" in attr`}); err != nil {
			r.t.Error(err)
		}
		_, err := groups.Publish(r.t.Context(), r.acme(), token, nil, nil)
		return model.CodeOf(err) == model.CodeLimitExceeded
	}},
	"limits.relationships_per_device":         {"1", func(r *reloaded) bool { return r.relatesNoMore("member") }},
	"limits.tracked_relationships_per_device": {"1", func(r *reloaded) bool { return r.relatesNoMore("assigned") }},
	"limits.attributes_per_entity": {"1", func(r *reloaded) bool {
		set := func(key string) error {
			_, err := r.entities.Registry.Attributes.Set(r.t.Context(), r.acme(), registry.AttributeSet{Type: registry.ValueLong,
				AttributeRef: registry.AttributeRef{EntityType: "device", Entity: "d1", Scope: registry.ScopeServer, Key: key}})
			return err
		}
		return set("first") == nil && model.CodeOf(set(fmt.Sprint(time.Now().UnixNano()))) == model.CodeLimitExceeded
	}},
	"limits.dashboards_per_tenant": {"1", func(r *reloaded) bool {
		dashboards := r.entities.Catalog.Of("dashboards")
		_, err := dashboards.Create(r.t.Context(), r.acme(), store.Patch{"token": "more", "definition": "{}"})
		return model.CodeOf(err) == model.CodeLimitExceeded
	}},
	"limits.provisioning_profiles_per_tenant": {"1", func(r *reloaded) bool {
		for range 2 {
			if _, err := r.entities.Provision.Profiles.Create(r.t.Context(), r.acme(), store.Patch{"token": fmt.Sprint(time.Now().UnixNano()), "provisionSecret": "a secret",
				"strategy": "ALLOW_NEW", "deviceTypeToken": "device", "enabled": true}); err != nil {
				return model.CodeOf(err) == model.CodeLimitExceeded
			}
		}
		return false
	}},
	"limits.oauth_clients": {"1", func(r *reloaded) bool {
		for range 2 {
			if _, err := r.entities.Auth.Clients.Create(r.t.Context(), operate.Local(), store.Patch{"clientId": fmt.Sprint("c", time.Now().UnixNano()),
				"redirectUris": []string{"https://example.org/"}, "scopes": []string{"read-only"}}); err != nil {
				return model.CodeOf(err) == model.CodeLimitExceeded
			}
		}
		return false
	}},
	"limits.alarms_per_tenant": {"1", func(r *reloaded) bool {
		errUndo, raised := errors.New("undo"), 0
		err := r.entities.Store.Write(r.t.Context(), store.Results, func(tx store.Tx) error {
			folding := projections(r.brought)[0].(interface {
				Fold(tx store.Tx, cs []model.Contribution) ([]model.AlarmEvent, error)
			})
			events, err := folding.Fold(tx, []model.Contribution{{Kind: model.ContributeRaise, TenantID: 1, DeviceID: 1, Device: "d1", Rule: "p/r", Severity: "MAJOR",
				Keys: []model.AlarmKey{{Key: "a"}, {Key: "b"}}}})
			raised = len(events)
			return cmp.Or(err, errUndo)
		})
		if !errors.Is(err, errUndo) {
			r.t.Fatal(err)
		}
		return raised == 1
	}},
	"limits.device_profiles_per_tenant": {"1", func(r *reloaded) bool {
		_, err := r.entities.Registry.Profiles.Create(r.t.Context(), r.acme(), store.Patch{"token": "more"})
		return model.CodeOf(err) == model.CodeLimitExceeded
	}},
	"governance.ai_inference_requests_per_minute": {"4.5", func(r *reloaded) bool {
		perMinute, _, _ := r.entities.Govern.Inference("nobody")
		return perMinute == 4.5
	}},
	"governance.ai_inference_burst": {"3", func(r *reloaded) bool {
		_, burst, _ := r.entities.Govern.Inference("nobody")
		return burst == 3
	}},
	"governance.geofence_ceiling":          {"5", func(r *reloaded) bool { return *r.entities.Govern.Limits("nobody").GeoFenceCeiling == 5 }},
	"governance.geofence_position_ceiling": {"6", func(r *reloaded) bool { return *r.entities.Govern.Limits("nobody").GeoFencePositionCeiling == 6 }},
	"governance.geofence_position_budget":  {"7", func(r *reloaded) bool { return *r.entities.Govern.Limits("nobody").GeoFencePositionBudget == 7 }},
	"governance.registry_bytes":            {"1KiB", func(r *reloaded) bool { return *r.entities.Govern.Limits("nobody").RegistryBytes == 1024 }},
	"egress.allowed_destinations": {`["127.0.0.1/32:1"]`, func(r *reloaded) bool {
		_, err := r.entities.guard.Dial("acme")(r.t.Context(), "tcp", "127.0.0.1:1")
		return guard.Outcome(err) == guard.OutcomeRefused // by the machine: nothing listens
	}},
	"governance.held_command_ceiling": {"100", func(r *reloaded) bool { return *r.entities.Govern.Limits("nobody").HeldCommandCeiling == 100 }},
	"history.dead_letter_retention": {"1ns", func(r *reloaded) bool {
		for late := time.Now().Add(20 * time.Second); time.Now().Before(late); time.Sleep(5 * time.Millisecond) {
			if r.letters() == 0 {
				return true
			}
		}
		return false
	}},
}

// oneMore makes one more row of a kind, of a type that it makes first, and reports whether the ceiling refuses it.
func oneMore(kind, table string) func(*reloaded) bool {
	return func(r *reloaded) bool {
		kinds := r.entities.Registry.Kinds
		if _, err := kinds.Of(kind+"_types").Create(r.t.Context(), r.acme(), store.Patch{"token": "of"}); err != nil && model.CodeOf(err) != model.CodeConflict {
			r.t.Fatal(err)
		}
		_, err := kinds.Of(table).Create(r.t.Context(), r.acme(), store.Patch{"token": "more", kind + "TypeToken": "of"})
		return model.CodeOf(err) == model.CodeLimitExceeded
	}
}

// fresh is a token that nothing has.
func (r *reloaded) fresh() string {
	r.tokens++
	return fmt.Sprint("fresh-", r.tokens)
}

// relatesNoMore reports whether the device may have no further relationship of a type; else it has one more.
func (r *reloaded) relatesNoMore(relationshipType string) bool {
	_, err := r.entities.Registry.Relationships.Create(r.t.Context(), r.acme(), store.Patch{"token": r.fresh(), "sourceType": "device", "source": "d1",
		"targetType": "device", "target": "d1", "relationshipType": relationshipType})
	return model.CodeOf(err) == model.CodeLimitExceeded
}

// acme is the operator in the tenant acme.
func (r *reloaded) acme() *model.Principal {
	by, err := r.entities.Within(operate.Local(), "acme")
	if err != nil {
		r.t.Fatal(err)
	}
	return by
}

func TestEachReloadableKeyIsObeyedAfterAReload(t *testing.T) {
	t.Parallel()
	reloadable := slices.Sorted(slices.Values(config.Reloadable()))
	for key := range effects {
		if !slices.Contains(reloadable, key) {
			t.Errorf("%s has a row and cannot be reloaded", key)
		}
	}
	r := runReloaded(t)
	shown := map[string]effect{}
	for _, key := range reloadable {
		shown[key] = r.effectOf(key)
	}
	// The state that two of the keys are seen by: a device that has spoken, and a dead letter.
	if r.post(strings.Replace(anonymousReading, `{`, `{"credentialType":"ACCESS_TOKEN","credentialId":"`+r.token+`",`, 1)) != http.StatusAccepted ||
		r.post(anonymousReading) != http.StatusAccepted || r.letters() != 1 {
		t.Fatal("the device or its dead letter is not there")
	}
	for _, key := range reloadable {
		o := shown[key]
		if key != "history.dead_letter_retention" && key != "broker.allow_qos2" && o.applies(r) {
			t.Errorf("%s: it seems to apply before", key)
		}
	}
	for _, key := range reloadable {
		o := shown[key]
		r.set(key, o.value)
		got := r.Instance.reload.Reload("test")
		if got.Outcome != operate.ReloadTaken || !slices.ContainsFunc(got.Taken, func(c config.Change) bool { return c.Path == key }) || len(got.Waiting) != 0 {
			t.Errorf("%s: the reload says %+v", key, got)
			continue
		}
		if !o.applies(r) {
			t.Errorf("%s: it does not apply", key)
		}
	}
	r.write("")
	if got := r.Instance.reload.Reload("test"); got.Outcome != operate.ReloadTaken || r.intake.into.Config() != (ingest.IntakeConfig{AuthSettings: ingest.AuthSettings{DeviceAuth: ingest.AuthRequired}}) {
		t.Errorf("back to the defaults: %+v, %+v", got, r.intake.into.Config())
	}
}

func TestABadReloadKeepsTheWholeOfWhatWas(t *testing.T) {
	t.Parallel()
	r := runReloaded(t)
	before := *r.effective()
	r.write("logging: {level: debug}\ngovernance: {ingest_burst: 300}\nbroker: {enabled: maybe}\nauth: {service_secret_env: NO_SUCH}\n")
	got := r.Instance.reload.Reload("test")
	if got.Outcome != operate.ReloadFailed || len(got.Problems) != 2 || len(config.Diff(&before, r.effective())) > 0 || r.level.Level() != slog.LevelInfo {
		t.Errorf("got %+v", got)
	}
	if s, err := operate.GetStatus.Ask(t.Context(), r.operatorClient(), operate.None{}); err != nil || s.Reload == nil || s.Reload.Outcome != operate.ReloadFailed || len(s.Reload.Problems) != 2 {
		t.Errorf("the status says %+v, %v", s.Reload, err)
	}
	if err := os.Remove(r.file); err != nil {
		t.Fatal(err)
	}
	if got := r.Instance.reload.Reload("test"); got.Outcome != operate.ReloadFailed || len(config.Diff(&before, r.effective())) > 0 {
		t.Errorf("without its file: %+v", got)
	}
	r.write("logging: {level: debug}\n")
	if got := r.Instance.reload.Reload("test"); got.Outcome != operate.ReloadTaken || r.level.Level() != slog.LevelDebug {
		t.Errorf("mended: %+v", got)
	}
}

func TestWhatNeedsARestartWaitsUntilThere(t *testing.T) {
	t.Parallel()
	r := runReloaded(t, "limits.series_per_device=300")
	r.write("listeners: {api: ':1'}\nlimits: {series_per_device: 7}\nspool: {head_age: 2h}\nlogging: {level: warn}\n")
	for range 2 {
		got := r.Instance.reload.Reload("test")
		var waiting []string
		for _, c := range got.Waiting {
			waiting = append(waiting, c.Path)
		}
		// The flags of the process stand above the file.
		if !slices.Equal(waiting, []string{"spool.head_age"}) || r.effective().Spool.HeadAge != time.Hour || r.effective().Limits.SeriesPerDevice != 300 {
			t.Errorf("%v waits; %+v", waiting, got)
		}
		if want := config.Keys() - len(got.Taken) - 1; got.Unchanged != want {
			t.Errorf("%d unchanged, not %d", got.Unchanged, want)
		}
	}
}

func TestAPlanChangesNothing(t *testing.T) {
	t.Parallel()
	r := runReloaded(t)
	r.write("logging: {level: debug}\n")
	got, err := operate.PlanReload.Ask(t.Context(), r.operatorClient(), operate.None{})
	if err != nil || got.Outcome != operate.ReloadTaken || r.level.Level() != slog.LevelInfo || r.Instance.reload.last.Load() != nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAHangUpReloads(t *testing.T) {
	t.Parallel()
	r := runReloaded(t)
	r.write("logging: {level: debug}\n")
	r.hangup <- syscall.SIGHUP
	r.await("SIGHUP")
	if r.level.Level() != slog.LevelDebug {
		t.Error("it does not apply")
	}
}

// await waits for a reload with this cause.
func (r *reloaded) await(by string) *operate.ReloadReport {
	r.t.Helper()
	for late := time.Now().Add(20 * time.Second); time.Now().Before(late); time.Sleep(time.Millisecond) {
		if last := r.Instance.reload.last.Load(); last != nil && last.By == by {
			return last
		}
	}
	r.t.Fatalf("no reload by %s: %+v", by, r.Instance.reload.last.Load())
	return nil
}

// tick has the watch look, and returns when it has.
func (r *reloaded) tick() {
	r.ticks <- time.Time{}
	r.ticks <- time.Time{}
}

func TestAWatchedFileIsTakenOnceItRests(t *testing.T) {
	t.Parallel()
	r := runReloaded(t)
	look := watcher{r: r.Instance.reload}
	r.write("logging: {level: debug}\n")
	for range 3 {
		look.look()
	}
	if r.Instance.reload.last.Load() != nil {
		t.Fatal("a file is taken that is not watched")
	}
	r.write("config: {watch: true}\n")
	r.Instance.reload.Reload("test")
	look.look()
	const half = "config: {watch: true}\n"
	for i := range 5 { // it is being written, and what is there is valid each time
		r.write(half + strings.Repeat("# half\n", i+1))
		look.look()
		if last := r.Instance.reload.last.Load(); last.By != "test" {
			t.Fatalf("a file was taken while it was written: %+v", last)
		}
	}
	r.write(half + "logging: {level: warn}\n")
	look.look()
	look.look()
	if last := r.Instance.reload.last.Load(); last.By != "watch" || r.level.Level() != slog.LevelWarn {
		t.Errorf("it rests and is not taken: %+v", last)
	}
	first := r.Instance.reload.last.Load()
	r.write(half + "logging: {level: warn}\n") // touched
	look.look()
	look.look()
	if r.Instance.reload.last.Load() != first {
		t.Error("a file that was only touched is taken")
	}
	r.write("logging: {level: loud}\n")
	for range 4 {
		look.look()
	}
	failed := r.Instance.reload.last.Load()
	if failed.Outcome != operate.ReloadFailed || failed.By != "watch" {
		t.Errorf("a bad file: %+v", failed)
	}
	look.look()
	look.look()
	if r.Instance.reload.last.Load() != failed {
		t.Error("a bad file is tried again and again")
	}
}

func TestTheWatchFollowsItsClock(t *testing.T) {
	t.Parallel()
	r := runReloaded(t)
	r.write("config: {watch: true}\n")
	r.Instance.reload.Reload("test")
	r.write("config: {watch: true}\nlogging: {level: error}\n")
	r.tick()
	r.await("watch")
}

func TestReloadsAreOneAtATime(t *testing.T) {
	t.Parallel()
	r := runReloaded(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			r.Instance.reload.Reload(fmt.Sprint(i))
			_, _ = operate.PlanReload.Ask(t.Context(), r.operatorClient(), operate.None{}) // concurrently
			_, _ = operate.GetStatus.Ask(t.Context(), r.operatorClient(), operate.None{})
		})
	}
	all.Wait()
	if got := r.Instance.reload.Reload("last"); got.Outcome != operate.ReloadUnchanged {
		t.Errorf("got %+v", got)
	}
}

func TestAnInstanceWithoutASourceStaysAsItIs(t *testing.T) {
	t.Parallel()
	in := New(config.Default(), Options{})
	if err := in.reload.Possible(); model.CodeOf(err) != model.CodeUnsupported {
		t.Errorf("got %v", err)
	}
	in = New(config.Default(), Options{Source: &config.Source{}})
	if err := in.reload.Possible(); model.CodeOf(err) != model.CodeUnavailable {
		t.Errorf("before it is ready: %v", err)
	}
}

// operatorClient is the other end of the instance's socket.
func (in *Instance) operatorClient() operate.Target {
	c, err := operate.Dial(context.Background(), in.cfg)
	if err != nil {
		panic(err)
	}
	return c
}

func (in *Instance) presenceTiming() presence.Timing {
	return in.transports.all()[0].Transport.(*broker.Broker).Timing()
}

func (in *Instance) entrances() *operate.Entrances {
	at, err := operate.GetEntrances.Ask(context.Background(), in.operatorClient(), operate.None{})
	if err != nil {
		panic(err)
	}
	return at
}
