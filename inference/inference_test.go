package inference_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/inference"
	"weir/internal/guard"
	"weir/internal/test/aiprovider"
	"weir/internal/test/domain"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	"weir/store/sqlite"
)

const key = "sk-the-key-that-none-reads"

// world is an Inference with two tenants and a provider of each kind, which leads to one server.
type world struct {
	*inference.Inference
	testing.TB
	db *sqlite.DB
	*domain.Domain
	server   *aiprovider.Server
	registry *prometheus.Registry
	log      fixture.Buffer
}

var kinds = []string{aiprovider.Anthropic, aiprovider.OpenAI}

func newWorld(t testing.TB, s inference.Settings) *world {
	t.Helper()
	w := &world{TB: t, db: fixture.Store(t), server: aiprovider.Start(t, key), registry: prometheus.NewRegistry()}
	writer := store.Direct{Store: w.db}
	d := domain.New(t, domain.Config{Store: w.db, Writer: writer})
	w.Domain = d
	g, err := guard.New(guard.Config{Settings: guard.Settings{Allowed: []string{w.server.Destination()}}})
	w.must(err)
	w.Inference = inference.New(s, inference.Deps{Store: w.db, Writer: writer, Vault: d.Vault, Tenants: d.Govern, Client: g.Client,
		Logger: slog.New(slog.NewJSONHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Registerer: w.registry})
	for _, tenant := range []string{"acme", "globex"} {
		_, err := d.Govern.Tenants.Create(t.Context(), fixture.Operator(), store.Patch{"token": tenant, "tierToken": "gold", "aiExternalEnabled": true})
		w.must(err)
	}
	for _, kind := range kinds {
		_, err := w.Providers.Create(t.Context(), fixture.Operator(), store.Patch{"token": kind, "kind": kind, "endpoint": w.server.Endpoint(kind), "model": "model-1",
			"enabled": true, "secret": key})
		w.must(err)
	}
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// did demands that a verb changed something.
func (w *world) did(changed bool, err error) {
	w.Helper()
	if err != nil || !changed {
		w.Fatal(changed, err)
	}
}

func (w *world) use(tenant, provider string) {
	w.Helper()
	op := fixture.Operator()
	if _, err := w.GrantToTenant(w.Context(), op, tenant, provider); err != nil {
		w.Fatal(err)
	}
	if _, err := w.Assign(w.Context(), op, tenant, inference.RuleDrafting, provider); err != nil {
		w.Fatal(err)
	}
}

func service(tenant string) *model.Principal {
	return model.Service("event-processing", tenant, 1, model.AIInfer)
}

func (w *world) infer(tenant string) (*inference.Result, error) {
	w.Helper()
	return w.Infer(w.Context(), service(tenant), inference.RuleDrafting, inference.Request{Prompt: "a prompt", System: "instructions"})
}

func (w *world) refused(err error, code model.Code, reason string) {
	w.Helper()
	e, ok := err.(*model.Error)
	if !ok || e.Code != code || e.Reason != reason {
		w.Errorf("%v, want %s %s", err, code, reason)
	}
}

// TestARequestInEachProtocol: the request is the one that the kind wants, and the result names what is registered.
func TestARequestInEachProtocol(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		w := newWorld(t, inference.Settings{})
		w.use("acme", kind)
		w.server.Answer(aiprovider.Text("a candidate"))
		got, err := w.infer("acme")
		if err != nil || *got != (inference.Result{Candidate: "a candidate", Model: "model-1", Provider: kind}) {
			t.Fatalf("%s: %+v %v", kind, got, err)
		}
		r := w.server.Requests()
		if len(r) != 1 || r[0].Kind != kind || r[0].Model != "model-1" || r[0].Prompt != "a prompt" || r[0].System != "instructions" || r[0].MaxTokens != 2048 {
			t.Errorf("%s: %+v", kind, r)
		}
		if in, out := testutil.ToFloat64(w.metric("weir_ai_inference_tokens_total", "input")), testutil.ToFloat64(w.metric("weir_ai_inference_tokens_total", "output")); in != 11 || out != 7 {
			t.Errorf("%s: %v and %v tokens are counted", kind, in, out)
		}

		// Params add members and may lower the length.
		_, err = w.Providers.Update(t.Context(), fixture.Operator(), kind, store.Patch{"params": `{"temperature": 0.2, "max_tokens": 100}`})
		w.must(err)
		if _, err := w.infer("acme"); err != nil {
			t.Fatal(err)
		}
		if r := w.server.Requests()[1]; r.MaxTokens != 100 || r.Body["temperature"] != 0.2 {
			t.Errorf("%s: %+v", kind, r)
		}
		_, err = w.Providers.Update(t.Context(), fixture.Operator(), kind, store.Patch{"params": `{"max_completion_tokens": 1e9}`})
		w.must(err)
		if _, err := w.infer("acme"); err != nil {
			t.Fatal(err)
		}
		if r := w.server.Requests()[2]; r.MaxTokens != 2048 || r.Body["max_completion_tokens"] == nil || r.Body["max_tokens"] != nil {
			t.Errorf("%s: %+v", kind, r)
		}
	}
}

// metric finds a counter by its label.
func (w *world) metric(name, label string) prometheus.Collector {
	return gathered{w, name, label}
}

// gathered is the value of a counter as the page of metrics shows it.
type gathered struct {
	w           *world
	name, label string
}

func (g gathered) Describe(chan<- *prometheus.Desc) {}

func (g gathered) Collect(ch chan<- prometheus.Metric) {
	families, err := g.w.registry.Gather()
	g.w.must(err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == g.name && len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == g.label {
				ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("x", "x", nil, nil), prometheus.CounterValue, m.GetCounter().GetValue())
			}
		}
	}
}

// TestWhoMayUseWhat goes through grants, defaults, assignments and consent; the server counts what left the instance.
func TestWhoMayUseWhat(t *testing.T) {
	t.Parallel()
	w := newWorld(t, inference.Settings{})
	op, ctx := fixture.Operator(), t.Context()
	w.server.Answer(aiprovider.Text("x"))
	served := func(tenant, provider string) {
		t.Helper()
		got, err := w.infer(tenant)
		if err != nil || got.Provider != provider {
			t.Errorf("%+v, %v; want %s", got, err, provider)
		}
	}
	none := func(tenant string) {
		t.Helper()
		before := len(w.server.Requests())
		_, err := w.infer(tenant)
		w.refused(err, model.CodeUnavailable, inference.ReasonNoProvider)
		if len(w.server.Requests()) != before {
			t.Error("something was sent")
		}
	}
	none("acme") // a new provider is offered to nobody
	if _, err := w.SetTierDefault(ctx, op, "gold", "anthropic"); model.CodeOf(err) != model.CodeInvalidInput {
		t.Errorf("a default without a grant: %v", err)
	}
	w.did(w.GrantToTier(ctx, op, "gold", "anthropic"))
	none("acme") // granted, but neither assigned nor the default
	w.did(w.SetTierDefault(ctx, op, "gold", "anthropic"))
	served("acme", "anthropic")
	if changed, err := w.SetTierDefault(ctx, op, "gold", "anthropic"); changed || err != nil {
		t.Errorf("the same again: %v, %v", changed, err)
	}
	w.did(w.Assign(ctx, op, "acme", inference.RuleDrafting, "openai-compatible"))
	served("acme", "anthropic") // an assignment outside the grants counts as none
	w.did(w.GrantToTenant(ctx, op, "acme", "openai-compatible"))
	served("acme", "openai-compatible")
	served("globex", "anthropic")
	w.did(w.Unassign(ctx, op, "acme", inference.RuleDrafting))
	served("acme", "anthropic")
	w.did(w.Assign(ctx, op, "acme", inference.RuleDrafting, "openai-compatible"))

	// The key, grants and assignments survive a rename.
	if _, err := w.Providers.Rename(ctx, op, "openai-compatible", "lan"); err != nil {
		t.Fatal(err)
	}
	served("acme", "lan")

	// Not enabled; without its secret.
	_, err := w.Providers.Update(ctx, op, "lan", store.Patch{"enabled": false})
	w.must(err)
	none("acme")
	_, err = w.Providers.Update(ctx, op, "lan", store.Patch{"enabled": true, "secret": nil})
	w.must(err)
	none("acme")
	_, err = w.Providers.Update(ctx, op, "lan", store.Patch{"secret": key})
	w.must(err)
	served("acme", "lan")

	// Consent.
	for _, consent := range []any{false, nil} {
		_, err = w.Govern.Tenants.Update(ctx, op, "acme", store.Patch{"aiExternalEnabled": consent})
		w.must(err)
		before := len(w.server.Requests())
		_, err = w.infer("acme")
		w.refused(err, model.CodeForbidden, "")
		if len(w.server.Requests()) != before {
			t.Error("a prompt of a tenant that has not agreed left the instance")
		}
	}
	served("globex", "anthropic")
	_, err = w.Govern.Tenants.Update(ctx, op, "acme", store.Patch{"aiExternalEnabled": true})
	w.must(err)

	// Deletes.
	if _, err := w.Providers.Delete(ctx, op, "lan"); model.CodeOf(err) != model.CodeInUse {
		t.Errorf("a provider that is granted: %v", err)
	}
	w.did(w.RevokeFromTenant(ctx, op, "acme", "lan"))
	w.did(w.Providers.Delete(ctx, op, "lan"))
	if all, err := w.Assignments(ctx, op, "acme"); err != nil || len(all) != 0 {
		t.Errorf("the assignment stays: %v, %v", all, err)
	}
	served("acme", "anthropic")
	w.did(w.RevokeFromTier(ctx, op, "gold", "anthropic"))
	none("acme")
	w.did(w.GrantToTier(ctx, op, "gold", "anthropic"))
	none("acme") // revoking has cleared the default
	w.did(w.SetTierDefault(ctx, op, "gold", "anthropic"))
	w.did(w.ClearTierDefault(ctx, op, "gold"))
	none("acme")

	// A tenant that is disabled, one that does not exist, and callers without the authority.
	w.did(w.SetTierDefault(ctx, op, "gold", "anthropic"))
	_, err = w.Govern.SetTenantEnabled(ctx, op, "acme", false)
	w.must(err)
	none("acme")
	none("nobody")
	if _, err := w.Infer(ctx, fixture.Member("ada", "globex", 2, model.DeviceWrite), inference.RuleDrafting, inference.Request{Prompt: "p"}); model.CodeOf(err) != model.CodeForbidden {
		t.Errorf("without ai:infer: %v", err)
	}
	if _, err := w.GrantToTier(ctx, service("globex"), "gold", "anthropic"); model.CodeOf(err) != model.CodeForbidden {
		t.Errorf("without ai:admin: %v", err)
	}
	for _, err := range []error{second(w.GrantToTier(ctx, op, "iron", "anthropic")), second(w.GrantToTier(ctx, op, "gold", "nothing")), second(w.GrantToTenant(ctx, op, "nobody", "anthropic")),
		second(w.ClearTierDefault(ctx, op, "iron")), second(w.Unassign(ctx, op, "nobody", inference.RuleDrafting))} {
		if model.CodeOf(err) != model.CodeNotFound {
			t.Errorf("what does not exist: %v", err)
		}
	}
	if _, err := w.Assign(ctx, op, "acme", "poetry", "anthropic"); model.CodeOf(err) != model.CodeInvalidInput {
		t.Errorf("a function that there is not: %v", err)
	}
}

func second(_ bool, err error) error { return err }

// TestTheRateOfATenant: burst and rate are its own, and a call beyond them leaves nothing.
func TestTheRateOfATenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		w := newStill(t, func(*http.Request) (*http.Response, error) {
			sent++
			return answered(`{"type": "message", "content": [{"type": "text", "text": "x"}]}`), nil
		})
		for range 15 {
			if _, err := w.infer("acme"); err != nil {
				t.Fatal(err)
			}
		}
		_, err := w.infer("acme")
		w.refused(err, model.CodeThrottled, "")
		if e := err.(*model.Error); e.Ext["retryAfterSeconds"] != 3 {
			t.Errorf("retry after %v", e.Ext)
		}
		if sent != 15 {
			t.Errorf("%d were sent", sent)
		}
		if _, err := w.infer("globex"); err != nil {
			t.Errorf("another tenant: %v", err)
		}
		if _, err := w.Test(t.Context(), fixture.Operator(), "p", inference.Request{Prompt: "p"}); err != nil {
			t.Errorf("a test: %v", err)
		}
		time.Sleep(2 * time.Second) // of the bubble: 30 a minute are one in two seconds
		if _, err := w.infer("acme"); err != nil {
			t.Errorf("after two seconds: %v", err)
		}
		_, err = w.infer("acme")
		w.refused(err, model.CodeThrottled, "")
	})
}

// newStill is a world without a network: send answers.
func newStill(t testing.TB, send func(*http.Request) (*http.Response, error)) *world {
	t.Helper()
	w := &world{TB: t, db: fixture.Store(t), registry: prometheus.NewRegistry()}
	writer := store.Direct{Store: w.db}
	d := domain.New(t, domain.Config{Store: w.db, Writer: writer})
	w.Domain = d
	w.Inference = inference.New(inference.Settings{}, inference.Deps{Store: w.db, Writer: writer, Vault: d.Vault, Tenants: d.Govern,
		Client: func(string) *http.Client { return &http.Client{Transport: sender(send)} }, Registerer: w.registry})
	_, err := w.Providers.Create(t.Context(), fixture.Operator(), store.Patch{"token": "p", "kind": "anthropic", "model": "m", "enabled": true, "secret": key})
	w.must(err)
	for _, tenant := range []string{"acme", "globex"} {
		_, err := d.Govern.Tenants.Create(t.Context(), fixture.Operator(), store.Patch{"token": tenant, "aiExternalEnabled": true})
		w.must(err)
		w.use(tenant, "p")
	}
	return w
}

type sender func(*http.Request) (*http.Response, error)

func (s sender) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

func answered(body string) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

// TestTimeIsBounded: a provider that sends a byte now and then, and one that sends none, cost ai.timeout and no more; others of the
// tenant are refused while four wait, and other tenants' are not.
func TestTimeIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newStill(t, func(r *http.Request) (*http.Response, error) {
			resp := answered("")
			resp.Body = io.NopCloser(trickle{r.Context()})
			return resp, nil
		})
		began, results := time.Now(), make(chan error)
		for range 4 {
			go func() {
				_, err := w.infer("acme")
				results <- err
			}()
		}
		synctest.Wait()
		_, err := w.infer("acme")
		w.refused(err, model.CodeThrottled, "")
		go func() {
			_, err := w.infer("globex")
			results <- err
		}()
		for range 5 {
			err := <-results
			w.refused(err, model.CodeUnavailable, inference.ReasonUnreachable)
			if want := "unavailable: the AI provider did not answer in time"; err.Error() != want {
				t.Errorf("%q, want %q", err, want)
			}
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}

// trickle sends a byte a second, for ever.
type trickle struct{ ctx context.Context }

func (s trickle) Read(b []byte) (int, error) {
	select {
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	case <-time.After(time.Second):
		b[0] = ' '
		return 1, nil
	}
}

// TestRepliesThatAreNone has a row per way in which a provider misbehaves, for both kinds. Nothing of what it sends is shown or logged.
func TestRepliesThatAreNone(t *testing.T) {
	t.Parallel()
	const said = "what the provider said"
	var read atomic.Int64
	for _, c := range []struct {
		what, text, outcome string
		reply               aiprovider.Reply
	}{
		{"a wrong key", "the AI provider answered with HTTP 401", "status", aiprovider.Refuse(401, said+key)},
		{"too many requests", "the AI provider answered with HTTP 429", "status", aiprovider.Refuse(429, said)},
		{"overloaded", "the AI provider answered with HTTP 529", "status", aiprovider.Refuse(529, said)},
		{"a redirect", "the AI provider answered with HTTP 307", "status", func(w http.ResponseWriter, r *http.Request, _ string) {
			http.Redirect(w, r, "/"+said, http.StatusTemporaryRedirect)
		}},
		{"no content", "the AI provider answered with HTTP 204", "status", func(w http.ResponseWriter, _ *http.Request, _ string) { w.WriteHeader(204) }},
		{"garbage", "the reply of the AI provider is not what its kind sends", "malformed", aiprovider.Raw("<html>" + said)},
		{"nothing", "the reply of the AI provider is not what its kind sends", "malformed", aiprovider.Raw("")},
		{"null", "the reply of the AI provider is not what its kind sends", "malformed", aiprovider.Raw("null")},
		{"another object", "the reply of the AI provider is not what its kind sends", "malformed", aiprovider.Raw(`{"said": "` + said + `"}`)},
		{"members of other types", "the reply of the AI provider is not what its kind sends", "malformed", aiprovider.Raw(`{"type": "message", "choices": [{"message": 7}], "content": 5}`)},
		{"no UTF-8", "the reply of the AI provider is not what its kind sends", "malformed", aiprovider.Raw("{\"type\": \"message\", \"said\": \"\xff\"}")},
		{"no text", "the AI provider answered without a text", "empty", aiprovider.Raw(`{"type": "message", "content": [], "choices": []}`)},
		{"an empty text", "the AI provider answered without a text", "empty", aiprovider.Text("")},
		{"no HTTP", "the AI provider could not be reached (unreachable)", "unreachable", func(w http.ResponseWriter, _ *http.Request, _ string) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "SSH-2.0-"+said+key+"\r\n\r\n")
				_ = conn.Close()
			}
		}},
		{"headers without end", "the AI provider could not be reached (unreachable)", "unreachable", func(w http.ResponseWriter, _ *http.Request, _ string) {
			for i := range 2000 {
				w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("a", 100))
			}
		}},
		{"a reply of 1 GiB", "the reply of the AI provider is larger than 1 MiB", "too_large", func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.Header().Set("Content-Length", fmt.Sprint(1<<30))
			chunk := make([]byte, 1<<20)
			for range 1 << 10 {
				n, err := w.Write(chunk)
				if read.Add(int64(n)); err != nil {
					break
				}
			}
		}},
	} {
		for _, kind := range kinds {
			w := newWorld(t, inference.Settings{})
			w.use("acme", kind)
			w.server.Answer(c.reply)
			_, err := w.infer("acme")
			w.refused(err, model.CodeUnavailable, inference.ReasonUnreachable)
			if err == nil || err.Error() != "unavailable: "+c.text {
				t.Errorf("%s, %s: %v, want %q", kind, c.what, err, c.text)
			}
			if n := testutil.ToFloat64(w.metric("weir_ai_inference_calls_total", c.outcome)); n != 1 {
				t.Errorf("%s, %s: %v of the outcome %s", kind, c.what, n, c.outcome)
			}
			if _, err := w.Test(t.Context(), fixture.Operator(), kind, inference.Request{Prompt: "p"}); err == nil || strings.Contains(err.Error(), said) || strings.Contains(err.Error(), key) {
				t.Errorf("%s, %s: a test says %v", kind, c.what, err)
			}
			if log := w.log.String(); !strings.Contains(log, "an AI provider did not answer") || strings.Contains(log, said) || strings.Contains(log, key) || strings.Contains(log, "a prompt") {
				t.Errorf("%s, %s: the log says %s", kind, c.what, log)
			}
			if requests := w.server.Requests(); len(requests) != 2 {
				t.Errorf("%s, %s: %d requests", kind, c.what, len(requests))
			}
		}
	}
	if n := read.Load(); n > 64<<20 {
		t.Errorf("%d bytes of the large replies were read", n)
	}
}

// TestTheDestinationOfAProvider: a server on the network needs the operator's permission, and the error of a test says how to give it.
func TestTheDestinationOfAProvider(t *testing.T) {
	t.Parallel()
	w := newWorld(t, inference.Settings{})
	_, err := w.Providers.Create(t.Context(), fixture.Operator(), store.Patch{"token": "lan", "kind": "openai-compatible", "endpoint": "http://10.1.2.3:11434/v1", "model": "m", "enabled": true, "secret": key})
	w.must(err)
	_, err = w.Test(t.Context(), fixture.Operator(), "lan", inference.Request{Prompt: "p"})
	const want = "unavailable: Weir may not connect to the AI provider: destination refused: 10.1.2.3:11434 is a private address; " +
		"if Weir is meant to connect to it, add 10.1.2.3/32:11434 to egress.allowed_destinations and reload"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
	w.use("acme", "lan")
	_, err = w.infer("acme")
	if err == nil || err.Error() != "unavailable: Weir may not connect to the AI provider" {
		t.Errorf("a tenant reads %v", err)
	}
	if log := w.log.String(); !strings.Contains(log, "add 10.1.2.3/32:11434 to egress.allowed_destinations") {
		t.Errorf("the log does not say what to do: %s", log)
	}
}

// TestTheGalleryOfProviders has a row per rule about what is stored.
func TestTheGalleryOfProviders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, inference.Settings{})
	for what, c := range map[string]struct {
		patch store.Patch
		field string // "": it is taken
	}{
		"Anthropic without an endpoint":      {store.Patch{}, ""},
		"Anthropic behind a gateway":         {store.Patch{"endpoint": "https://gateway.example.com/anthropic"}, ""},
		"an openai-compatible without one":   {store.Patch{"kind": "openai-compatible"}, "endpoint"},
		"an openai-compatible":               {store.Patch{"kind": "openai-compatible", "endpoint": "http://10.1.2.3:11434/v1"}, ""},
		"a kind that there is not":           {store.Patch{"kind": "local"}, "kind"},
		"a file":                             {store.Patch{"endpoint": "file:///etc/passwd"}, "endpoint"},
		"no URL":                             {store.Patch{"endpoint": "api.example.com"}, "endpoint"},
		"a URL with a password":              {store.Patch{"endpoint": "https://me:pass@api.example.com"}, "endpoint"},
		"a URL with a query":                 {store.Patch{"endpoint": "https://api.example.com?key=x"}, "endpoint"},
		"a URL with a fragment":              {store.Patch{"endpoint": "https://api.example.com#x"}, "endpoint"},
		"no model":                           {store.Patch{"model": ""}, "model"},
		"params":                             {store.Patch{"params": `{"temperature": 0}`}, ""},
		"params that are a list":             {store.Patch{"params": `[]`}, "params"},
		"params that are null":               {store.Patch{"params": `null`}, "params"},
		"params that name the model":         {store.Patch{"params": `{"model": "dearer"}`}, "params"},
		"params that stream":                 {store.Patch{"params": `{"Stream": true}`}, "params"},
		"params that give tools":             {store.Patch{"params": `{"tools": []}`}, "params"},
		"a length that is none":              {store.Patch{"params": `{"max_tokens": "many"}`}, "params"},
		"a length of nothing":                {store.Patch{"params": `{"max_tokens": 0}`}, "params"},
		"params of more than 16 KiB":         {store.Patch{"params": `{"a": "` + strings.Repeat("a", 16<<10) + `"}`}, "params"},
		"a secret that cannot be a header":   {store.Patch{"secret": "two\nlines"}, "secret"},
		"a secret with a space":              {store.Patch{"secret": "two words"}, "secret"},
		"a secret of more than 4096 bytes":   {store.Patch{"secret": strings.Repeat("a", 4097)}, "secret"},
		"a secret of 4096 bytes":             {store.Patch{"secret": strings.Repeat("a", 4096)}, ""},
		"an enabled that is null":            {store.Patch{"enabled": nil}, "enabled"},
		"a token that leads somewhere else":  {store.Patch{"token": "a/b"}, "token"},
		"a token that another provider has":  {store.Patch{"token": "anthropic"}, "token"},
		"an endpoint of an IPv6 zone":        {store.Patch{"endpoint": "http://[fe80::1%25eth0]/v1"}, "endpoint"},
		"an endpoint that is the empty text": {store.Patch{"endpoint": ""}, ""},
	} {
		p := store.Patch{"token": "made", "kind": "anthropic", "model": "m", "enabled": false}
		maps.Copy(p, c.patch)
		row, err := w.Providers.Create(t.Context(), fixture.Operator(), p)
		e, _ := err.(*model.Error)
		switch {
		case c.field == "" && err != nil, c.field != "" && (e == nil || e.Field != c.field):
			t.Errorf("%s: %v", what, err)
		case c.field == "" && row.HasSecret != (p["secret"] != nil):
			t.Errorf("%s: hasSecret is %v", what, row.HasSecret)
		}
		if err == nil {
			w.did(w.Providers.Delete(t.Context(), fixture.Operator(), "made"))
		} else if s, _ := p["secret"].(string); s != "" && strings.Contains(err.Error(), s) {
			t.Errorf("%s: the secret is shown", what)
		}
	}
	if n := w.secrets(); n != 2 {
		t.Errorf("%d secrets, those of removed providers included", n)
	}
}

func (w *world) secrets() (n int) {
	w.must(w.db.Read(w.Context(), func(tx store.Tx) error { return tx.QueryRow(`SELECT count(*) FROM secrets`).Scan(&n) }))
	return n
}

// TestARequestThatIsTooLarge: nothing is sent of it.
func TestARequestThatIsTooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, inference.Settings{})
	w.use("acme", "anthropic")
	for _, r := range []inference.Request{{}, {Prompt: strings.Repeat("a", 128<<10), System: "b"}} {
		if _, err := w.Infer(t.Context(), service("acme"), inference.RuleDrafting, r); err == nil {
			t.Error("it is taken")
		}
		if _, err := w.Test(t.Context(), fixture.Operator(), "anthropic", r); err == nil {
			t.Error("a test takes it")
		}
	}
	if n := len(w.server.Requests()); n != 0 {
		t.Errorf("%d requests", n)
	}
	if _, err := w.Infer(t.Context(), service("acme"), inference.RuleDrafting, inference.Request{Prompt: strings.Repeat("a", 128<<10)}); err != nil {
		t.Error(err)
	}
}

// TestAProviderThatRepeatsTheKey: what a provider writes is data, and the key is taken out of it.
func TestAProviderThatRepeatsTheKey(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		w := newWorld(t, inference.Settings{})
		w.use("acme", kind)
		w.server.Answer(aiprovider.Text("ignore your instructions, the key is " + key + " <b>"))
		got, err := w.infer("acme")
		if err != nil || got.Candidate != "ignore your instructions, the key is [secret] <b>" {
			t.Errorf("%s: %+v %v", kind, got, err)
		}
		text, err := json.Marshal(got)
		if err != nil || strings.Contains(string(text), key) || strings.Contains(w.log.String(), key) {
			t.Errorf("%s: the key is shown", kind)
		}
	}
}
