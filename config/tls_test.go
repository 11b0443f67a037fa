package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/test/testcerts"
)

// pairs writes the certificates of a test and returns their directory.
func pairs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ca, err := testcerts.NewCA("test CA")
	if err != nil {
		t.Fatal(err)
	}
	for name, until := range map[string]time.Duration{"gw": time.Hour, "other": time.Hour, "old": -time.Hour} {
		p, err := ca.Server(time.Now().Add(until))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.Write(dir, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := ca.WriteCA(filepath.Join(dir, "ca.pem")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "junk"), []byte("hush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// loadIn reads a configuration of several lines in dir; DIR stands for it.
func loadIn(t *testing.T, dir, yaml string) (*Config, error) {
	t.Helper()
	file := filepath.Join(dir, "weir.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(yaml, "DIR", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(Source{File: file})
}

const goodPair = "tls:\n  cert_file: DIR/gw.pem\n  key_file: DIR/gw.key\n"

func TestACertificateThatCannotBeServedIsToldWithItsLine(t *testing.T) {
	t.Parallel()
	dir := pairs(t)
	for _, c := range []struct{ name, yaml, want string }{
		{"absent", "tls:\n  cert_file: DIR/none.pem\n  key_file: DIR/gw.key\n", "weir.yaml:2:3: tls.cert_file: the file cannot be read: no such file or directory"},
		{"absent key", "tls:\n  cert_file: DIR/gw.pem\n  key_file: DIR/none.key\n", "weir.yaml:3:3: tls.key_file: the file cannot be read: no such file or directory"},
		{"another's key", "tls:\n  cert_file: DIR/gw.pem\n  key_file: DIR/other.key\n", "weir.yaml:3:3: tls.key_file: is not the key of the certificate (one of the two was replaced without the other)"},
		{"no key in it", "tls:\n  cert_file: DIR/gw.pem\n  key_file: DIR/junk\n", "weir.yaml:3:3: tls.key_file: holds no private key that can be used"},
		{"no key given", "tls:\n  cert_file: DIR/gw.pem\n", "tls.key_file: must be given with tls.cert_file"},
		{"a key alone", "tls:\n  key_file: DIR/gw.key\n", "tls.cert_file: must be given with"},
		{"no CA in it", goodPair + "  client_ca_file: DIR/junk\n", "weir.yaml:4:3: tls.client_ca_file: holds no certificate"},
		{"a CA alone", "tls:\n  client_ca_file: DIR/ca.pem\n", "tls.cert_file: must be given with"},
		{"a listener without one", "listeners:\n  api_tls: \":8443\"\n", "weir.yaml:2:3: listeners.api_tls: needs a certificate: set tls.cert_file and tls.key_file"},
		{"a WebSocket without one", "listeners:\n  mqtt_wss: \":8084\"\n", "weir.yaml:2:3: listeners.mqtt_wss: needs a certificate"},
		{"no address", goodPair + "listeners:\n  mqtts: here\n", "listeners.mqtts: must be host:port"},
	} {
		_, err := loadIn(t, dir, c.yaml)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got %v\nwant %s", c.name, err, c.want)
		}
	}
}

func TestACertificateThatCanBeServed(t *testing.T) {
	t.Parallel()
	dir := pairs(t)
	for _, yaml := range []string{goodPair, goodPair + "  client_ca_file: DIR/ca.pem\nlisteners: {api_tls: \":8443\", ingest_tls: \":8444\", mqtt_ws: \":8083\", mqtt_wss: \":8084\"}\n",
		strings.ReplaceAll(goodPair, "gw.", "old.")} { // the doctor speaks of its age
		if c, err := loadIn(t, dir, yaml); err != nil || !c.TLS.Enabled() {
			t.Errorf("%s: %v", yaml, err)
		}
	}
}

func TestWarningsOfListenersWithTLS(t *testing.T) {
	t.Parallel()
	dir := pairs(t)
	warned := func(yaml string) (all string) {
		c, err := loadIn(t, dir, yaml)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range c.Warnings() {
			all += fmt.Sprintf("%s: %s\n", w.Path, w.Reason)
		}
		return all
	}
	if got := warned("listeners: {mqtts: \":8883\"}\n"); !strings.Contains(got, "listeners.mqtts: is not opened: there is no certificate") {
		t.Errorf("mqtts without a certificate: %s", got)
	}
	if got := warned(goodPair); strings.Contains(got, "listeners.mqtts") {
		t.Errorf("mqtts with one: %s", got)
	}
	open := goodPair + "listeners: {ingest: \"\", ingest_tls: \":8444\"}\n"
	if got := warned(open); strings.Contains(got, "listeners.ingest") {
		t.Errorf("ingest over TLS alone: %s", got)
	}
	if got := warned(open + "auth: {device_auth_mode: disabled}\n"); !strings.Contains(got, "listeners.ingest_tls: is open on every interface and auth") || strings.Contains(got, "without TLS") {
		t.Errorf("ingest over TLS for all: %s", got)
	}
	if err := os.Chmod(filepath.Join(dir, "gw.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := warned(goodPair); !strings.Contains(got, "tls.key_file: every user of this machine can read the private key") {
		t.Errorf("a key for all: %s", got)
	}
}
