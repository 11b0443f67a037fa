package app_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"weir/internal/test/fixture"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
	"weir/store"
	"weir/store/erase"
)

// mark is in every text that the deleted tenant has.
const mark = "zebra"

// resident is a tenant with something in each part of the instance.
type resident struct {
	p      *testweir.Proc
	tenant string
	mark   string
	token  string // access token of a superuser in it
	device string // ACCESS_TOKEN of the device mark-1
}

// inhabit makes a tenant with rows in every table that a tenant can have rows in, as far as a request makes them.
func inhabit(t *testing.T, p *testweir.Proc, tenant, mark string) *resident {
	t.Helper()
	p.Run("", "tenant", "create", tenant, "--name", "The "+mark+" company")
	r := &resident{p: p, tenant: tenant, mark: mark, token: p.SignIn(tenant)}
	r.ask("device-management", `
		createDeviceProfile(request: {token: "M-profile", name: "M profile"}) { id }
		createMetricDefinition(request: {token: "M-metric", deviceProfileToken: "M-profile", metricKey: "M_metric", dataType: "DOUBLE", unit: "M-unit", minValue: 0, maxValue: 1000}) { id }
		createCommandDefinition(request: {token: "M-command", deviceProfileToken: "M-profile", commandKey: "M-key", name: "M command"}) { id }
		createDetectionRule(request: {token: "M-rule", deviceProfileToken: "M-profile", enabled: true, definition: "{\"name\":\"M rule\",\"type\":\"threshold\",\"severity\":\"major\",\"when\":{\"metric\":\"M_metric\",\"op\":\"gt\",\"threshold\":50}}"}) { id }
		createDeviceType(request: {token: "M-type", name: "M type", profileToken: "M-profile"}) { id }
		publishDeviceProfile(token: "M-profile") { version }
	`)
	r.ask("device-management", `
		createAssetType(request: {token: "M-at", name: "M at"}) { id }
		createAsset(request: {token: "M-asset", name: "M asset", assetTypeToken: "M-at"}) { id }
		createCustomerType(request: {token: "M-ct", name: "M ct"}) { id }
		createCustomer(request: {token: "M-customer", name: "M customer", customerTypeToken: "M-ct"}) { id }
		createAreaType(request: {token: "M-rt", name: "M rt"}) { id }
		createArea(request: {token: "M-area", name: "M area", areaTypeToken: "M-rt"}) { id }
		createEntityRelationshipType(request: {token: "M-rel", name: "M rel", tracked: true}) { id }
		createGeoFence(request: {token: "M-fence", name: "M fence", geometry: "{\"kind\":\"POLYGON_2D\",\"geometry\":{\"type\":\"Polygon\",\"coordinates\":[[[0,0],[1,0],[1,1],[0,0]]]}}"}) { id }
	`)
	for _, device := range []string{mark + "-1", mark + "-2", mark + "-gone"} {
		var made struct{ AccessToken string }
		p.RunJSON(&made, "device", "add", tenant, device, "--type", mark+"-type")
		if r.device == "" {
			r.device = made.AccessToken
		}
	}
	r.ask("device-management", `
		createEntityRelationship(request: {token: "M-r1", sourceType: "device", source: "M-1", targetType: "area", target: "M-area", relationshipType: "M-rel", metadata: "{\"m\":\"M\"}"}) { id }
		createEntityGroup(request: {token: "M-group", name: "M group", memberType: "device", membershipMode: "dynamic", selector: "attr[\"M\"] == \"M-value\""}) { id }
		publishEntityGroup(token: "M-group", label: "M label") { version }
		setEntityAttribute(request: {entityType: "device", entity: "M-1", scope: "SHARED", attrKey: "M", valueType: "STRING", value: "M-value"}) { id }
		setEntityAttribute(request: {entityType: "device", entity: "M-2", scope: "SERVER", attrKey: "M", valueType: "LONG", value: "4711"}) { id }
		deleteDevice(token: "M-gone")
	`)
	r.ask("command-delivery", `
		createCommand(request: {token: "M-c", deviceToken: "M-1", name: "M-key", payload: "{\"M\":\"M\"}", metadata: "{\"m\":\"M\"}"}) { rejection { code } }
		createCommandBatch(request: {token: "M-b", deviceTokens: ["M-1", "M-none"], name: "M-key", payload: "{\"M\":1}", allowPartial: true}) { rejection { code } }
	`)
	r.ask("dashboard-management", `
		createDashboard(request: {token: "M-dashboard", name: "M dashboard", definition: "{\"title\":\"M\"}"}) { id }
		publishDashboard(token: "M-dashboard", label: "M label") { version }
	`)
	r.ask("outbound-connectors", `
		createConnector(request: {token: "M-connector", name: "M connector", type: "mqtt", config: "{\"urls\":[\"mqtt://127.0.0.1:1\"],\"topic\":\"M\"}", secret: "M"}) { id }
		publishConnector(token: "M-connector", label: "M label") { version }
		setHttpSecret(token: "M-hook", value: "M", hosts: ["M.example.com"]) { token }
	`)
	r.ask("notification-management", `
		createNotificationChannel(request: {token: "M-channel", name: "M channel", channelType: "webhook", enabled: true, config: "{\"url\":\"http://127.0.0.1:1/M\"}", secret: "M"}) { id }
		createNotificationPolicy(request: {token: "M-policy", name: "M policy", enabled: true, rules: [{severity: "*", channelToken: "M-channel", recipients: "[\"M\"]"}]}) { id }
		createNotificationMute(request: {token: "M-mute", alarmKey: "M", reason: "M", until: "2100-01-01T00:00:00Z"}) { id }
	`)
	r.ask("user-management", `setTenantBranding(input: {title: "M title"}) { token }`)
	r.logo(t)
	return r
}

// logoMark is in what is stored of the logo: its image is kept in base64, and begins in it after nine bytes.
var logoMark = base64.StdEncoding.EncodeToString([]byte(mark + " " + mark + "s"))

// logo sends an image as the logo of the tenant.
func (r *resident) logo(t *testing.T) {
	t.Helper()
	image := "\x89PNG\r\n\x1a\n\x00" + r.mark + " " + r.mark + "s"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.p.API+"/api/user-management/branding/logo", strings.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Fatalf("the logo is answered %s", resp.Status)
	}
}

// ask runs mutations, one a line, in which M stands for the mark.
func (r *resident) ask(area, mutations string) {
	mutations = strings.NewReplacer(`"M`, `"`+r.mark, `\"M`, `\"`+r.mark).Replace(mutations)
	for line := range strings.Lines(mutations) {
		if line = strings.TrimSpace(line); line != "" {
			r.p.Query(area, r.token, "mutation {"+line+"}", nil, nil)
		}
	}
}

// post sends an event of the device mark-1 over HTTP and returns the status.
func (r *resident) post(t *testing.T, credential, event string) int {
	t.Helper()
	body := strings.ReplaceAll(fmt.Sprintf(`{"device":"@-1",%s,"credentialType":"ACCESS_TOKEN","credentialId":%q}`, event, credential), "@", r.mark)
	resp, err := http.Post(r.p.Ingest+"/weir/"+r.tenant+"/events", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// live has the devices send one of everything.
func (r *resident) live(t *testing.T) {
	t.Helper()
	for i, event := range []string{
		`"eventType":"Measurement","altId":"@-alt-1","payload":{"entries":[{"measurements":{"@_metric":"10","@_other":"1.5"}}]}`,
		`"eventType":"Measurement","altId":"@-alt-2","payload":{"entries":[{"measurements":{"@_metric":"90"}}]}`,
		`"eventType":"Location","altId":"@-alt-3","payload":{"entries":[{"latitude":"47.1","longitude":"8.2"}]}`,
		`"eventType":"Alert","altId":"@-alt-4","payload":{"entries":[{"type":"@.alert","level":1,"message":"@ is too hot","source":"@-source"}]}`,
		`"eventType":"Measurement","altId":"@-alt-5","payload":{"entries":[{"measurements":{"@_metric":"5000"}}]}`, // refused by its range: a dead letter
	} {
		if code := r.post(t, r.device, event); code != http.StatusAccepted {
			t.Fatalf("event %d: %d", i, code)
		}
	}
	r.post(t, "wrong", `"eventType":"Measurement","altId":"@-alt-6","payload":{"entries":[{"measurements":{"@_metric":"10"}}]}`)
	m, err := testweir.DialMQTT(r.p.MQTT, "weir", r.tenant, r.mark+"-1", r.device)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if err := m.Publish("weir/"+r.tenant+"/devices/"+r.mark+"-1/events", 7, false,
		[]byte(strings.ReplaceAll(`{"eventType":"Measurement","payload":{"entries":[{"measurements":{"@_metric":"20"}}]}}`, "@_", r.mark+"_"))); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Puback(); err != nil {
		t.Fatal(err)
	}
}

type deletion struct {
	Awaiting   string
	RowsErased int
	BlockedBy  []string
	Stores     []struct {
		Store, LastError string
		Complete         bool
		RowsErased       int
	}
}

// deletionOf asks how far the erase of a tenant is.
func deletionOf(p *testweir.Proc, identity, tenant string) (d deletion) {
	var got struct{ TenantDeletion deletion }
	p.Query("user-management/admin", identity, `{tenantDeletion(token:"`+tenant+`"){awaiting rowsErased blockedBy stores{store complete rowsErased lastError}}}`, nil, &got)
	return got.TenantDeletion
}

// erased waits until nothing of the tenant is left.
func erased(t *testing.T, p *testweir.Proc, tenant string) deletion {
	t.Helper()
	identity := p.Identity()
	var d deletion
	poll.True(t, "all stores are complete", func() bool {
		d = deletionOf(p, identity, tenant)
		return d.Awaiting != "STORES"
	})
	return d
}

// holding returns the files below a directory that hold a text.
func holding(t *testing.T, dir, text string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if n := bytes.Count(b, []byte(text)); n > 0 {
			at := bytes.Index(b, []byte(text))
			files = append(files, fmt.Sprintf("%s: %d times, at %d: %q", path, n, at, b[max(0, at-60):min(len(b), at+60)]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestADeletedTenantLeavesNothingInTheFilesNorInABackup: while a neighbour sends as fast as it is answered, a tenant with rows
// everywhere is deleted. Neither the database, its write-ahead log, the log of messages nor a backup made then has a text of it.
func TestADeletedTenantLeavesNothingInTheFilesNorInABackup(t *testing.T) {
	t.Parallel()
	p := testweir.Start(t, testweir.Options{Dir: t.TempDir(), Config: killConfig})
	senders := furnish(t, p)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, s := range senders {
		wg.Go(func() { s.run(p, stop) })
	}
	r := inhabit(t, p, "victim", mark)
	r.live(t)
	data := filepath.Join(p.Dir, "data")
	before := filepath.Join(t.TempDir(), "before.backup")
	p.Run("", "backup", "create", before)
	for what, at := range map[string]string{"the database": data, "a backup": filepath.Dir(before)} {
		if len(holding(t, at, logoMark)) == 0 {
			t.Errorf("%s has not the logo: the test shows nothing", what)
		}
	}
	poll.True(t, "the tenant is in the database", func() bool {
		files := strings.Join(holding(t, data, mark), "\n")
		return strings.Contains(files, "weir.db") && strings.Contains(files, ".span")
	})
	p.Run("", "tenant", "delete", "victim", "--yes")
	d := erased(t, p, "victim")
	t.Logf("%+v", d)
	for _, s := range d.Stores {
		if s.RowsErased == 0 && s.Store != "state" && s.Store != "log" && s.Store != "blobs" { // the applier has removed the state with the devices
			t.Errorf("nothing was erased of %s: the test shows nothing", s.Store)
		}
	}
	file := filepath.Join(t.TempDir(), "weir.backup")
	p.Run("", "backup", "create", file)
	close(stop)
	wg.Wait()
	check(t, p, senders)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	restored := filepath.Join(t.TempDir(), "restored")
	p.Run("", "backup", "restore", file, "--data", restored, "--root-key-file", filepath.Join(data, "root.key"))
	for _, dir := range []string{data, restored} {
		for _, text := range []string{mark, logoMark} {
			if files := holding(t, dir, text); len(files) > 0 {
				t.Errorf("%d files hold %q of the tenant:\n%s", len(files), text, strings.Join(files, "\n"))
			}
		}
		noRows(t, dir, "victim")
	}
}

// noRows fails when a table has a row of the tenant.
func noRows(t *testing.T, dir, tenant string) {
	t.Helper()
	db := fixture.StoreIn(t, dir)
	var left map[string]int
	if err := db.Read(context.Background(), func(tx store.Tx) error {
		found, _, err := erase.List(tx, store.Page{}, erase.Filter{Token: tenant})
		if err != nil || len(found) != 1 {
			return fmt.Errorf("%d deletions, %w", len(found), err)
		}
		left, err = erase.Left(tx, found[0].Tenant)
		return err
	}); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}
