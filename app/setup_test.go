package app_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/app"
	"weir/config"
	"weir/internal/test/fixture"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
	"weir/model"
	"weir/operate"
	"weir/store"
	"weir/store/sqlite"
)

// firstRun is an instance whose output and log the test reads.
type firstRun struct {
	*app.Instance
	cfg      config.Config
	out, log fixture.Buffer
	stop     func()
}

// startFirstRun starts an instance on a directory, at the log level debug.
func startFirstRun(t *testing.T, dir string) *firstRun {
	t.Helper()
	f := &firstRun{cfg: config.Default()}
	f.cfg.DataDir = dir
	f.cfg.Listeners = config.Listeners{API: "127.0.0.1:0", Ingest: "127.0.0.1:0", MQTT: "127.0.0.1:0"}
	f.Instance = app.New(f.cfg, app.Options{Out: &f.out, Logger: slog.New(slog.NewJSONHandler(&f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- f.Run(ctx, func() { close(ready) }, nil) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the stop: %v", err)
		}
	})
	t.Cleanup(f.stop)
	return f
}

// link is the secret of the link that was printed.
func (f *firstRun) link(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^  http://` + regexp.QuoteMeta(f.Listeners().At(operate.APIListener)) + `/setup#(\S{43})$`).FindStringSubmatch(f.out.String())
	if m == nil {
		t.Fatalf("no link was printed:\n%s", &f.out)
	}
	return m[1]
}

// call is what the page asks for; the answer's members are text, or nested.
func (f *firstRun) call(t *testing.T, name string, body any) (int, map[string]any) {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+f.Listeners().At(operate.APIListener)+"/setup/v1/"+name, "application/json", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out := map[string]any{}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatalf("%s: %s: %v", name, resp.Status, err)
	}
	return resp.StatusCode, out
}

// must is a call that is done.
func (f *firstRun) must(t *testing.T, name string, body any) map[string]any {
	t.Helper()
	status, out := f.call(t, name, body)
	if status != http.StatusOK {
		t.Fatalf("%s: %d %v", name, status, out)
	}
	return out
}

// refused is a call that is not done: its status, the input it is about, and a part of what it says.
func (f *firstRun) refused(t *testing.T, name string, body any, status int, field, text string) {
	t.Helper()
	got, out := f.call(t, name, body)
	about, _ := out["field"].(string)
	if said, _ := out["error"].(string); got != status || about != field || !strings.Contains(said, text) {
		t.Errorf("%s %v: %d %v", name, body, got, out)
	}
}

type form map[string]string

const noLonger = "this link is no longer valid; print a new one with: weir admin link"

func (f *firstRun) page(t *testing.T) string {
	t.Helper()
	return f.must(t, "administrator", form{"link": f.link(t), "email": "you@example.org", "password": "correct horse"})["page"].(string)
}

func TestTheSetupPageMakesAdministratorTenantAndDevice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/d"
	f := startFirstRun(t, dir)
	link := f.link(t)
	if left := f.must(t, "open", form{"link": link})["seconds"].(float64); left < 1700 || left > 1800 {
		t.Errorf("the link is good for %v s", left)
	}
	page := f.page(t)
	f.must(t, "tenant", form{"page": page, "token": "acme", "name": "Acme Inc."})
	device := f.must(t, "device", form{"page": page, "token": "boiler-1"})
	readings := func() []any {
		return f.must(t, "reading", form{"page": page, "device": "boiler-1"})["readings"].([]any)
	}
	if got := readings(); len(got) != 0 {
		t.Errorf("before any reading: %v", got)
	}
	secret := regexp.MustCompile(`[0-9a-f]{64}`).FindString(fmt.Sprint(device["snippets"]))
	in := &instance{Instance: f.Instance, token: secret}
	if status, _, err := in.post(); err != nil || status != http.StatusAccepted {
		t.Fatalf("a reading with the token that was shown: %d, %v", status, err)
	}
	got := readings()
	for len(got) == 0 { // acknowledged, and applied a moment later
		got = readings()
	}
	if r := got[0].(map[string]any); r["metric"] != "t" || r["value"] != "1" {
		t.Errorf("the reading: %v", r)
	}
	f.stop()

	// Everything is in the journal, done by "setup"; the link and the page's secret stand nowhere.
	if got := journal(t, dir); !slices.Equal(got, []string{"create devices boiler-1", "create identities you@example.org", "create tenants acme"}) {
		t.Errorf("the journal: %q", got)
	}
	for _, s := range []string{link, page, "correct horse"} {
		if strings.Contains(f.log.String(), s) {
			t.Errorf("a secret is in the log:\n%s", &f.log)
		}
		holdsNowhere(t, dir, s)
	}
}

// journal is what "setup" has done to identities, tenants and devices.
func journal(t *testing.T, dir string) (done []string) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "weir.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Read(t.Context(), func(tx store.Tx) error {
		rows, err := tx.Query(`SELECT operation, table_name, entity_label FROM audit_events WHERE actor = 'setup' AND table_name IN ('identities', 'tenants', 'devices')`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var operation string
			var table, label sql.NullString
			if err := rows.Scan(&operation, &table, &label); err != nil {
				return err
			}
			done = append(done, strings.ToLower(operation)+" "+table.String+" "+label.String)
		}
		return rows.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(done)
	return done
}

// holdsNowhere looks into every file of a directory.
func holdsNowhere(t *testing.T, dir, secret string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(secret)) {
			t.Errorf("a secret is in %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestTheSetupPageGoesOnWhereItStoodAfterARefusal(t *testing.T) {
	t.Parallel()
	f := startFirstRun(t, t.TempDir()+"/d")
	client, err := operate.Dial(t.Context(), f.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := operate.CreateTenant.Ask(t.Context(), client, operate.NewTenant{Token: "globex"}); err != nil {
		t.Fatal(err)
	}
	if _, err := operate.CreateAdmin.Ask(t.Context(), client, operate.NewAdmin{Email: "ops@example.org", Password: "correct horse", Role: "operator"}); err != nil {
		t.Fatal(err)
	}
	link := f.link(t)
	for field, q := range map[string]form{"password": {"link": link, "email": "you@example.org", "password": "short"},
		"email": {"link": link, "email": "ops@example.org", "password": "correct horse"}} {
		f.refused(t, "administrator", q, 400, field, "")
	}
	f.refused(t, "administrator", form{"link": link, "email": "nobody", "password": "correct horse"}, 400, "email", "must be an email address")
	page := f.page(t)
	f.refused(t, "device", form{"page": page, "token": "boiler-1"}, 409, "", "no tenant yet")
	f.refused(t, "reading", form{"page": page, "device": "boiler-1"}, 409, "", "no tenant yet")
	f.refused(t, "tenant", form{"page": page, "token": "globex", "name": ""}, 400, "token", "exists already")
	f.refused(t, "tenant", form{"page": page, "token": "ac.me", "name": ""}, 400, "token", "must match")
	f.must(t, "tenant", form{"page": page, "token": "acme", "name": ""})
	f.must(t, "tenant", form{"page": page, "token": "acme", "name": ""}) // its answer was lost on the way
	f.refused(t, "tenant", form{"page": page, "token": "more", "name": ""}, 409, "", "made the tenant acme already")
	f.must(t, "device", form{"page": page, "token": "boiler-1"})
	f.refused(t, "device", form{"page": page, "token": "boiler-1"}, 400, "token", "exists already")
	f.refused(t, "reading", form{"page": page, "device": "boiler-2"}, 422, "", "does not exist")
}

func TestTheSetupLinkIsGoodOnceAndEndsWithTheProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/d"
	f := startFirstRun(t, dir)
	before := f.link(t)
	f.stop()

	f = startFirstRun(t, dir)
	link := f.link(t)
	again := form{"email": "me@example.org", "password": "correct horse"}
	for _, old := range []string{before, "", "wrong"} {
		again["link"] = old
		f.refused(t, "administrator", again, 403, "", noLonger)
	}
	page := f.page(t)
	again["link"] = link
	f.refused(t, "administrator", again, 403, "", noLonger)
	f.refused(t, "open", form{"link": link}, 403, "", noLonger)
	for _, name := range []string{"tenant", "device", "reading"} {
		q := form{"page": link, "token": "acme", "name": ""}
		if name != "tenant" {
			delete(q, "name")
		}
		if name == "reading" {
			delete(q, "token")
			q["device"] = "d"
		}
		f.refused(t, name, q, 403, "", noLonger)
	}
	for range 2 { // with those above, ten
		f.refused(t, "open", form{"link": "wrong"}, 403, "", noLonger)
	}
	f.refused(t, "open", form{"link": "wrong"}, http.StatusTooManyRequests, "", "too many")
	f.must(t, "tenant", form{"page": page, "token": "acme", "name": ""})
}

func TestTheSetupPageIsClosedOnceAnAdministratorExists(t *testing.T) {
	t.Parallel()
	f := startFirstRun(t, t.TempDir()+"/d")
	client, err := operate.Dial(t.Context(), f.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	shown := func() string {
		resp, err := http.Get("http://" + f.Listeners().At(operate.APIListener) + "/setup")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s, %v", resp.Status, err)
		}
		return string(b)
	}
	if !strings.Contains(shown(), "<form") {
		t.Error("without an administrator there is no form")
	}
	if _, err := operate.CreateAdmin.Ask(t.Context(), client, operate.NewAdmin{Email: "you@example.org", Password: "correct horse"}); err != nil {
		t.Fatal(err)
	}
	if s := shown(); strings.Contains(s, "<form") || !strings.Contains(s, "<h1>Weir is set up</h1>") {
		t.Errorf("with one:\n%s", s)
	}
	f.refused(t, "open", form{"link": f.link(t)}, 403, "", noLonger)
	_, err = operate.MakeSetupLink.Ask(t.Context(), client, operate.None{})
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeConflict || e.Hint == "" {
		t.Errorf("a new link: %v", err)
	}
}

func TestAnInstanceWithoutAPIPrintsNoLink(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.DataDir = t.TempDir() + "/d"
	cfg.Listeners = config.Listeners{}
	var out fixture.Buffer
	in := app.New(cfg, app.Options{Out: &out})
	ctx, stop := context.WithCancel(t.Context())
	err := in.Run(ctx, func() {
		client, err := operate.Dial(ctx, cfg)
		if err != nil {
			t.Error(err)
		} else {
			_, err = operate.MakeSetupLink.Ask(ctx, client, operate.None{})
		}
		if e, ok := errors.AsType[*model.Error](err); !ok || !strings.Contains(e.Hint, "listeners.api") {
			t.Errorf("a link: %v", err)
		}
		stop()
	}, nil)
	if s := out.String(); err != nil || strings.Contains(s, "/setup#") || !strings.Contains(s, "weir admin create") {
		t.Errorf("%v; it printed:\n%s", err, s)
	}
}

func TestANewPasswordEndsAllSessions(t *testing.T) {
	t.Parallel()
	in := runInstance(t, nil)
	client, err := operate.Dial(t.Context(), in.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := operate.CreateAdmin.Ask(t.Context(), client, operate.NewAdmin{Email: "you@example.org", Password: "correct horse"}); err != nil {
		t.Fatal(err)
	}
	ask := func(token, document string) string {
		t.Helper()
		_, b, err := testweir.GraphQL{API: "http://" + in.Listeners().At(operate.APIListener), Area: "user-management", Token: token, Query: document}.Post(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	jwt := regexp.MustCompile(`"(accessToken|refreshToken|identityToken)":"([^"]+)"`)
	tokens := map[string]string{}
	for _, document := range []string{`mutation { login(email: "you@example.org", password: "correct horse") { identityToken } }`,
		`mutation { selectTenant(identityToken: "%s", tenant: "acme") { accessToken refreshToken } }`} {
		if strings.Contains(document, "%s") {
			document = fmt.Sprintf(document, tokens["identityToken"])
		}
		for _, m := range jwt.FindAllStringSubmatch(ask("", document), -1) {
			tokens[m[1]] = m[2]
		}
	}
	if s := ask(tokens["accessToken"], `{ me { email } }`); !strings.Contains(s, "you@example.org") {
		t.Fatalf("signed in: %s", s)
	}
	if set, err := operate.SetPassword.Ask(t.Context(), client, operate.NewPassword{Email: "you@example.org", Password: "battery staple"}); err != nil || !set.Enabled {
		t.Fatal(set, err)
	}
	if s := ask(tokens["accessToken"], `{ me { email } }`); strings.Contains(s, "you@example.org") {
		t.Errorf("the access token is still good: %s", s)
	}
	if s := ask("", fmt.Sprintf(`mutation { refresh(refreshToken: %q) { accessToken } }`, tokens["refreshToken"])); strings.Contains(s, `"accessToken":"`) {
		t.Errorf("the session goes on: %s", s)
	}
	if s := ask("", `mutation { login(email: "you@example.org", password: "battery staple") { identityToken } }`); !strings.Contains(s, `"identityToken":"`) {
		t.Errorf("with the new password: %s", s)
	}
}

// A page that is loaded again goes on where it was: the cookie of the administrator's answer proves it, and nothing else does.
func TestTheSetupPageSurvivesAReloadInEachStep(t *testing.T) {
	t.Parallel()
	f := startFirstRun(t, t.TempDir()+"/d")
	base := "http://" + f.Listeners().At(operate.APIListener)
	body := fmt.Sprintf(`{"link":%q,"email":"you@example.org","password":"correct horse"}`, f.link(t))
	resp, err := http.Post(base+"/setup/v1/administrator", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	cookies := map[string]*http.Cookie{}
	for _, c := range resp.Cookies() {
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.MaxAge <= 0 {
			t.Errorf("%+v", c)
		}
		cookies[c.Name] = c
	}
	if len(cookies) != 2 {
		t.Fatalf("%v", cookies)
	}
	ask := func(method, path string, c *http.Cookie) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if c != nil {
			r.AddCookie(c)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, strings.TrimSpace(string(b))
	}
	page := cookies["weir_setup"].Value
	resumes := func(rest string) {
		t.Helper()
		want := fmt.Sprintf(`{"page":%q,"email":"you@example.org"%s}`, page, rest)
		if status, got := ask("POST", "/setup/v1/resume", cookies["weir_setup"]); status != http.StatusOK || got != want {
			t.Errorf("%d %s, want %s", status, got, want)
		}
	}
	resumes("")
	f.must(t, "tenant", form{"page": page, "token": "acme", "name": ""})
	resumes(`,"tenant":"acme"`)
	f.must(t, "device", form{"page": page, "token": "boiler-1"})
	resumes(`,"tenant":"acme","device":"boiler-1"`)
	for name, c := range map[string]*http.Cookie{"no cookie": nil, "the session": cookies["weir_session"], "a guess": {Name: "weir_setup", Value: "guess"}} {
		if status, got := ask("POST", "/setup/v1/resume", c); status != http.StatusForbidden || strings.Contains(got, page) {
			t.Errorf("%s: %d %s", name, status, got)
		}
	}
	if _, got := ask("GET", "/setup?continue", nil); !strings.Contains(got, "What has arrived") {
		t.Errorf("the page after a reload: %s", got)
	}
	if _, got := ask("GET", "/setup", nil); strings.Contains(got, "<form") {
		t.Errorf("the page of a used link: %s", got)
	}
	// The browser is signed in on the page of /.
	if _, got := ask("GET", "/plain", cookies["weir_session"]); !strings.Contains(got, "<strong>you@example.org</strong>, administrator of this instance") {
		t.Errorf("the page of /: %s", got)
	}
}

// Without any device the page shows the first firing: a test reading, a rule that watches it, another test reading.
func TestTheSetupPageShowsARuleFireWithoutADevice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/d"
	f := startFirstRun(t, dir)
	page := f.page(t)
	f.must(t, "tenant", form{"page": page, "token": "acme", "name": ""})
	f.must(t, "device", form{"page": page, "token": "boiler-1"})
	send := func(value float64) map[string]any {
		return map[string]any{"page": page, "device": "boiler-1", "metric": "temp", "value": value}
	}
	rule := func(threshold float64) map[string]any {
		return map[string]any{"page": page, "device": "boiler-1", "metric": "temp", "op": "gt", "threshold": threshold, "severity": "major"}
	}
	// seen waits until the page is shown as many firings.
	seen := func(firings int) map[string]any {
		for {
			out := f.must(t, "reading", form{"page": page, "device": "boiler-1"})
			if all, _ := out["firings"].([]any); len(all) >= firings && len(out["readings"].([]any)) > 0 {
				return out
			}
		}
	}
	f.must(t, "send", send(21.5))
	if got := seen(0)["readings"].([]any)[0].(map[string]any); got["metric"] != "temp" || got["value"] != "21.5" {
		t.Errorf("the test reading: %v", got)
	}
	made := f.must(t, "rule", rule(24))
	if made["token"] != "temp-gt" || made["threshold"] != 24.0 {
		t.Errorf("the rule: %v", made)
	}
	f.must(t, "rule", rule(24)) // its answer was lost on the way
	f.must(t, "send", send(26))
	first := seen(1)["firings"].([]any)[0].(map[string]any)
	if first["rule"] != "temp-gt" || first["edge"] != "raised" || first["severity"] != "major" || first["value"] != "26" || first["device"] != "boiler-1" {
		t.Errorf("the firing: %v", first)
	}
	// The same metric and operator is the same rule.
	f.must(t, "rule", rule(100))
	f.must(t, "send", send(50))
	f.must(t, "send", send(101))
	poll.True(t, "the rule with another threshold fires", func() bool {
		return seen(1)["firings"].([]any)[0].(map[string]any)["value"] == "101"
	})
	client, err := operate.Dial(t.Context(), f.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	// A range that is added later does not throw the worst reading away.
	metric, err := operate.RunGraphQL.Ask(t.Context(), client, operate.GraphQLRequest{Area: "device-management", Tenant: "acme",
		Query: `{ metricDefinitionsByToken(tokens: ["device-temp"]) { metricKey dataType outOfRange } }`})
	if want := `{"metricDefinitionsByToken":[{"metricKey":"temp","dataType":"DOUBLE","outOfRange":"FLAG"}]}`; err != nil || string(metric.Data) != want {
		t.Errorf("%s, %v", metric.Data, err)
	}
	ledger, err := operate.ShowLedger.Ask(t.Context(), client, operate.LedgerQuery{Tenant: new("acme")})
	if err != nil || len(ledger.Lines) != 1 {
		t.Fatalf("%+v, %v", ledger, err)
	}
	if l := ledger.Lines[0]; l.Transport != "http" || l.Received != 4 || l.Outcomes["stored"] != 4 || l.Missing != 0 {
		t.Errorf("the ledger: %+v", l)
	}
	found, err := operate.ListFirings.Ask(t.Context(), client, operate.FiringQuery{Tenant: "acme", Rule: "temp-gt", Limit: 10})
	if err != nil || found.Total < 2 {
		t.Errorf("weir firings: %+v, %v", found, err)
	}
}

func TestTheSetupPageSaysWhyARuleOrAReadingIsRefused(t *testing.T) {
	t.Parallel()
	f := startFirstRun(t, t.TempDir()+"/d")
	page := f.page(t)
	q := func(change map[string]any) map[string]any {
		all := map[string]any{"page": page, "device": "boiler-1", "metric": "temp", "op": "gt", "threshold": 24, "severity": "major"}
		maps.Copy(all, change)
		return all
	}
	reading := func(change map[string]any) map[string]any {
		all := map[string]any{"page": page, "device": "boiler-1", "metric": "temp", "value": 1}
		maps.Copy(all, change)
		return all
	}
	refused := func(name string, body map[string]any, status int, field, text string) {
		t.Helper()
		got, out := f.call(t, name, body)
		about, _ := out["field"].(string)
		if said, _ := out["error"].(string); got != status || about != field || !strings.Contains(said, text) {
			t.Errorf("%s %v: %d %v", name, body, got, out)
		}
	}
	refused("rule", q(nil), 409, "", "no tenant yet")
	f.must(t, "tenant", form{"page": page, "token": "acme", "name": ""})
	f.must(t, "device", form{"page": page, "token": "boiler-1"})
	refused("rule", q(map[string]any{"page": "guess"}), 403, "", noLonger)
	refused("send", reading(map[string]any{"page": "guess"}), 403, "", noLonger)
	refused("rule", q(map[string]any{"device": "boiler-2"}), 422, "", `device "boiler-2" does not exist`)
	refused("send", reading(map[string]any{"device": "boiler-2"}), 422, "", `device "boiler-2" does not exist`)
	refused("rule", q(map[string]any{"op": "above"}), 400, "definition", "op")
	refused("rule", q(map[string]any{"severity": "urgent"}), 400, "definition", "severity")
	refused("rule", q(map[string]any{"metric": ""}), 400, "metricKey", "")
	refused("send", reading(map[string]any{"metric": strings.Repeat("m", 129)}), 400, "metric", "128")
	refused("send", reading(map[string]any{"metric": ""}), 400, "metric", "")
	// Nothing of a refused rule is left.
	f.must(t, "rule", q(nil))
}

// The page offers the operators and severities that rules know, and no others.
func TestTheSetupPageOffersWhatRulesKnow(t *testing.T) {
	t.Parallel()
	f := startFirstRun(t, t.TempDir()+"/d")
	resp, err := http.Get("http://" + f.Listeners().At(operate.APIListener) + "/setup")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var severities []string
	_, list, _ := strings.Cut(string(b), `id="rule-severity"`)
	for _, m := range regexp.MustCompile(`<option[^>]*>([a-z]+)</option>`).FindAllStringSubmatch(list, -1) {
		severities = append(severities, m[1])
	}
	if want := operate.Severities(); !slices.Equal(severities, want) {
		t.Errorf("severities %q, want %q", severities, want)
	}
}
