package app

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/health"
	"weir/internal/test/testcerts"
	"weir/operate"
	"weir/store"
)

// guarded is an instance with TLS on every listener that can have it.
type guarded struct {
	*reloaded
	ca  *testcerts.CA
	dir string
}

func runGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{dir: t.TempDir()}
	var err error
	if g.ca, err = testcerts.NewCA("test CA"); err != nil {
		t.Fatal(err)
	}
	if err := g.ca.WriteCA(filepath.Join(g.dir, "ca.pem")); err != nil {
		t.Fatal(err)
	}
	g.put(t, time.Now().Add(90*24*time.Hour))
	set := []string{"tls.cert_file=" + g.dir + "/gw.pem", "tls.key_file=" + g.dir + "/gw.key", "tls.client_ca_file=" + g.dir + "/ca.pem"}
	for _, l := range []string{"mqtts", "api_tls", "ingest_tls", "mqtt_ws", "mqtt_wss"} {
		set = append(set, "listeners."+l+"=127.0.0.1:0")
	}
	g.reloaded = runReloaded(t, set...)
	return g
}

// put replaces the pair of the server.
func (g *guarded) put(t *testing.T, until time.Time) testcerts.Pair {
	t.Helper()
	p, err := g.ca.Server(until)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Write(g.dir, "gw"); err != nil {
		t.Fatal(err)
	}
	return p
}

// look has the files looked at as often as it takes: a third tick is taken only after the second was dealt with.
func (g *guarded) look() {
	for range 3 {
		g.ticks <- time.Now()
	}
}

// dial speaks TLS with a listener.
func (g *guarded) dial(addr string, own ...tls.Certificate) *tls.Conn {
	g.t.Helper()
	conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: g.ca.Pool(), ServerName: "localhost", Certificates: own})
	if err != nil {
		g.t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { conn.Close() })
	return conn
}

func (g *guarded) exchange(conn net.Conn, send, want string) {
	g.t.Helper()
	if _, err := io.WriteString(conn, send); err != nil {
		g.t.Fatal(err)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		g.t.Fatalf("received % x, want % x: %v", got, want, err)
	}
}

// helloOf is a CONNECT of MQTT 3.1.1.
func helloOf(client, user string) string {
	text := func(s string) string { return fmt.Sprintf("%c%c%s", len(s)>>8, byte(len(s)), s) }
	body := "\x00\x04MQTT\x04\x82\x00\x3c" + text(client) + text(user)
	return fmt.Sprintf("\x10%c%s", len(body), body)
}

const (
	welcome  = "\x20\x02\x00\x00"
	turned   = "\x20\x02\x00\x05"
	pingreq  = "\xc0\x00"
	pingresp = "\xd0\x00"
)

func (g *guarded) client() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: g.ca.Pool()}, ForceAttemptHTTP2: true}}
}

func (g *guarded) certificateFinding() health.Finding {
	g.t.Helper()
	r, err := operate.RunDoctor.Ask(g.t.Context(), g.operatorClient(), operate.DoctorQuery{})
	if err != nil {
		g.t.Fatal(err)
	}
	for _, f := range r.Findings {
		if f.ID == "certificate" {
			return f
		}
	}
	g.t.Fatal("the doctor does not look at the certificate")
	return health.Finding{}
}

func TestEveryDoorSpeaksTLS(t *testing.T) {
	t.Parallel()
	g := runGuarded(t)
	c := g.client()
	resp, err := c.Get("https://" + g.Listeners().At(operate.APITLSListener) + "/schema/index.json")
	if err != nil {
		t.Fatal(err)
	}
	index, _ := io.ReadAll(resp.Body)
	if resp.Body.Close(); resp.StatusCode != 200 || resp.ProtoMajor != 1 || !strings.Contains(string(index), "https://"+g.Listeners().At(operate.APITLSListener)) {
		t.Errorf("the API: %s, %s, %s", resp.Status, resp.Proto, index)
	}
	body := strings.Replace(anonymousReading, "{", `{"credentialType":"ACCESS_TOKEN","credentialId":"`+g.token+`",`, 1)
	if resp, err = c.Post("https://"+g.Listeners().At(operate.IngestTLSListener)+"/weir/acme/events", "application/json", strings.NewReader(body)); err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusAccepted {
		t.Errorf("HTTP ingest: %s", resp.Status)
	}
	g.exchange(g.dial(g.Listeners().At(operate.MQTTSListener)), helloOf("weir:acme:d1", "acme:"+g.token), welcome)
	s, err := operate.GetStatus.Ask(t.Context(), g.operatorClient(), operate.None{})
	if err != nil {
		t.Fatal(err)
	}
	if c := s.Certificate; c == nil || strings.Join(c.Listeners, " ") != "api_tls ingest_tls mqtts mqtt_wss" || strings.Join(c.Names, " ") != "localhost 127.0.0.1" {
		t.Errorf("the status says %+v", c)
	}
	if n := testutil.CollectAndCount(expiry{g.Instance.certificate}); n != 4 {
		t.Errorf("the expiry of %d listeners is reported", n)
	}
	for _, s := range operate.FirstReading(&operate.DeviceAdded{Entrances: *g.entrances()}, "") {
		trusts := map[string]string{"sh": "--ca", "python": "tls_set("}[s.Language]
		if trusts == "" || !strings.Contains(s.Text, trusts) || !strings.Contains(s.Text, "ca.pem") {
			t.Errorf("the first reading goes by %s", s.Text)
		}
	}
}

func TestACertificateOfTheCAIsACredentialOnceItIsRegistered(t *testing.T) {
	t.Parallel()
	g := runGuarded(t)
	own, err := g.ca.Client("d1")
	if err != nil {
		t.Fatal(err)
	}
	hello := helloOf("weir:acme:d1", "acme:")
	g.exchange(g.dial(g.Listeners().At(operate.MQTTSListener), own.TLS()), hello, turned)
	by, err := g.entities.Within(operate.Local(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.entities.Registry.Credentials.Create(t.Context(), by, store.Patch{"token": "cert", "deviceToken": "d1", "credentialType": "X509_CERTIFICATE",
		"credentialId": own.Hash(), "enabled": true}); err != nil {
		t.Fatal(err)
	}
	conn := g.dial(g.Listeners().At(operate.MQTTSListener), own.TLS())
	g.exchange(conn, hello, welcome)
	g.exchange(g.dial(g.Listeners().At(operate.MQTTSListener)), hello, turned) // the hash alone is no proof
	if _, err := g.entities.Registry.Credentials.Update(t.Context(), by, "cert", store.Patch{"enabled": false}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection outlives its credential")
	}
}

func TestACertificateIsReplacedAndNoConnectionIsLost(t *testing.T) {
	t.Parallel()
	g := runGuarded(t)
	device := g.dial(g.Listeners().At(operate.MQTTSListener))
	g.exchange(device, helloOf("weir:acme:d1", "acme:"+g.token), welcome)
	fresh := g.put(t, time.Now().Add(20*24*time.Hour))
	g.look()
	for _, addr := range []string{g.Listeners().At(operate.MQTTSListener), g.Listeners().At(operate.APITLSListener), g.Listeners().At(operate.IngestTLSListener), g.Listeners().At("mqtt_wss")} {
		if seen := g.dial(addr).ConnectionState().PeerCertificates[0]; !seen.Equal(fresh.Cert) {
			t.Errorf("%s shows the one before", addr)
		}
	}
	g.exchange(device, pingreq, pingresp)
	if f := g.certificateFinding(); f.Result != health.Warning || !strings.Contains(f.Text, "expires in 19 days") {
		t.Errorf("the doctor says %s: %s", f.Result, f.Text)
	}

	// Half a pair: all stays, and the failure is reported.
	key, err := os.ReadFile(g.dir + "/gw.key")
	if err != nil {
		t.Fatal(err)
	}
	g.put(t, time.Now().Add(90*24*time.Hour))
	whole, err := os.ReadFile(g.dir + "/gw.key")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(g.dir+"/gw.key", key, 0o600); err != nil {
		t.Fatal(err)
	}
	g.look()
	if seen := g.dial(g.Listeners().At(operate.MQTTSListener)).ConnectionState().PeerCertificates[0]; !seen.Equal(fresh.Cert) {
		t.Error("half a pair is shown")
	}
	s, err := operate.GetStatus.Ask(t.Context(), g.operatorClient(), operate.None{})
	if err != nil || s.Certificate.Problem != "tls.key_file: is not the key of the certificate" || s.Certificate.Since.IsZero() {
		t.Errorf("the status says %+v, %v", s.Certificate, err)
	}
	if f := g.certificateFinding(); f.Result != health.Failure || !strings.Contains(f.Text, "tls.key_file") {
		t.Errorf("the doctor says %s: %s", f.Result, f.Text)
	}
	if r, err := operate.Reload.Ask(t.Context(), g.operatorClient(), operate.None{}); err != nil || r.Outcome != operate.ReloadFailed || !strings.Contains(r.Problems.Error(), "tls.key_file") {
		t.Errorf("a reload says %+v, %v", r, err)
	}

	// Whole again: a reload takes it at once.
	if err := os.WriteFile(g.dir+"/gw.key", whole, 0o600); err != nil {
		t.Fatal(err)
	}
	g.hangup <- syscall.SIGHUP
	g.look() // the signal was dealt with, or the ticks have done as much
	if f := g.certificateFinding(); f.Result != health.OK {
		t.Errorf("the doctor says %s: %s", f.Result, f.Text)
	}
	g.exchange(device, pingreq, pingresp)
}

func TestAnExpiredCertificateIsServedAndToldUntilItIsRenewed(t *testing.T) {
	t.Parallel()
	g := runGuarded(t)
	g.put(t, time.Now().Add(-time.Hour))
	g.look()
	if _, err := tls.Dial("tcp", g.Listeners().At(operate.MQTTSListener), &tls.Config{RootCAs: g.ca.Pool(), ServerName: "localhost"}); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("a client says %v", err)
	}
	if f := g.certificateFinding(); f.Result != health.Failure || !strings.Contains(f.Text, "has expired") {
		t.Errorf("the doctor says %s: %s", f.Result, f.Text)
	}
	families, err := g.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	listeners := 0
	for _, f := range families {
		if f.GetName() != "weir_tls_certificate_expiry_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			if left := m.GetGauge().GetValue(); left > -3500 || left < -3700 {
				t.Errorf("the metric says %v", left)
			}
			listeners++
		}
	}
	if listeners != 4 {
		t.Errorf("the metric has %d listeners", listeners)
	}
	watch := health.NewWatch(health.Alerts(), g.metrics, slog.New(slog.DiscardHandler))
	firing := func(at time.Time) (names []string) {
		for range 2 {
			watch.Sample(at)
			at = at.Add(time.Hour)
		}
		return slices.DeleteFunc(watch.Firing(), func(name string) bool { return !strings.HasPrefix(name, "Certificate") })
	}
	if got := firing(time.Now()); !slices.Equal(got, []string{"CertificateExpiresSoon", "CertificateExpired"}) {
		t.Errorf("expired, and %v fire", got)
	}
	g.put(t, time.Now().Add(90*24*time.Hour))
	g.look()
	g.exchange(g.dial(g.Listeners().At(operate.MQTTSListener)), helloOf("weir:acme:d1", "acme:"+g.token), welcome)
	if got := firing(time.Now().Add(3 * time.Hour)); len(got) > 0 {
		t.Errorf("renewed, and %v fire", got)
	}
	g.put(t, time.Now().Add(20*24*time.Hour))
	g.look()
	if got := firing(time.Now().Add(6 * time.Hour)); !slices.Equal(got, []string{"CertificateExpiresSoon"}) {
		t.Errorf("20 days before its end %v fire", got)
	}
}
