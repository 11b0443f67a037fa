package connectors

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/guard"
	"weir/internal/test/domain"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	"weir/store/sqlite"
)

// world are the connectors of an instance with two tenants.
type world struct {
	testing.TB
	*domain.Domain
	c     *Connectors
	db    *sqlite.DB
	guard *guard.Guard
	roots *x509.CertPool
	log   fixture.Buffer
}

const (
	acme   = "acme"
	globex = "globex"
)

func newWorld(t testing.TB, s ConnectorSettings) *world {
	t.Helper()
	w := &world{TB: t, db: fixture.Store(t), roots: x509.NewCertPool()}
	writer := store.Direct{Store: w.db}
	w.Domain = domain.New(t, domain.Config{Store: w.db, Writer: writer})
	var err error
	w.guard, err = guard.New(guard.Config{})
	w.must(err)
	w.c = New(s, Deps{Store: w.db, Writer: writer, Vault: w.Vault, Tenants: w.Govern, Guard: w.guard, MQTTRoots: w.roots,
		Logger: slog.New(slog.NewJSONHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	for _, tenant := range []string{acme, globex} {
		_, err := w.Govern.Tenants.Create(t.Context(), fixture.Operator(), store.Patch{"token": tenant, "tierToken": "gold"})
		w.must(err)
	}
	t.Cleanup(w.c.pool.closeAll)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// by may do everything with connectors in a tenant.
func (w *world) by(tenant string) *model.Principal {
	return fixture.Member("u", tenant, w.id(tenant), model.ConnectorRead, model.ConnectorWrite)
}

func (w *world) id(tenant string) int64 {
	id, _, _ := w.Govern.Lookup(tenant)
	return id
}

// allow allows the ports of this machine, and nothing else of it.
func (w *world) allow(ports ...string) {
	w.Helper()
	var entries []string
	for _, p := range ports {
		entries = append(entries, "127.0.0.1/32:"+p)
	}
	w.must(w.guard.SetAllowed(entries))
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(address, "https://"), "http://"))
	return port
}

// receiver is a server over HTTPS that the calls of the world trust.
func (w *world) receiver(fn http.HandlerFunc) *httptest.Server {
	w.Helper()
	s := httptest.NewUnstartedServer(fn)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.TLS = &tls.Config{}
	s.StartTLS()
	w.Cleanup(s.Close)
	g, err := guard.New(guard.Config{Settings: guard.Settings{CAFile: writePEM(w, s.Certificate().Raw)}})
	w.must(err)
	w.guard, w.c.deps.Guard = g, g
	w.allow(portOf(s.URL))
	return s
}

// call is an order of a rule.
func call(url, secretRef string, headers ...[2]string) *model.Dispatch {
	return &model.Dispatch{Kind: "httpCall", Tenant: acme, Device: "d1", Key: "key-1", Payload: `{"a":1}`, HTTPCall: &model.DispatchCall{URL: url, SecretRef: secretRef, Headers: headers}}
}

func publish(connector, payload string) *model.Dispatch {
	return &model.Dispatch{Kind: "publish", Tenant: acme, Device: "d1", Key: "key-1", Payload: payload, Publish: &model.DispatchPublish{ConnectorRef: connector}}
}

// outcome is what an error of a delivery says.
func outcome(t testing.TB, err error) (Outcome, *Failure) {
	t.Helper()
	if err == nil {
		return Sent, nil
	}
	f, ok := errors.AsType[*Failure](err)
	if !ok {
		t.Fatalf("%v is no Failure", err)
	}
	return f.Outcome, f
}

func object(fields map[string]any) string {
	text, _ := json.Marshal(fields)
	return string(text)
}

// connector makes and publishes a connector to an MQTT broker.
func (w *world) connector(tenant, token string, config map[string]any, secret string) *Connector {
	w.Helper()
	return w.connectorOf("mqtt", tenant, token, config, secret)
}

// connectorOf makes and publishes a connector of a type.
func (w *world) connectorOf(typ, tenant, token string, config map[string]any, secret string) *Connector {
	w.Helper()
	p := store.Patch{"token": token, "type": typ, "config": object(config)}
	if secret != "" {
		p["secret"] = secret
	}
	row, err := w.c.Connectors.Create(w.Context(), w.by(tenant), p)
	w.must(err)
	_, err = w.c.Connectors.Publish(w.Context(), w.by(tenant), token, nil, nil)
	w.must(err)
	return row
}

// refused demands an error with a code.
func (w *world) refused(err error, code model.Code, part string) {
	w.Helper()
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Code != code || !strings.Contains(e.Message, part) {
		w.Errorf("%v, want %s with %q", err, code, part)
	}
}
