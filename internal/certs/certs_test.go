package certs

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/test/testcerts"
)

// kept is a keeper on files of a test.
type kept struct {
	*Reloader
	ca  *testcerts.CA
	dir string
	t   *testing.T
}

func keep(t *testing.T, clients bool) *kept {
	t.Helper()
	k := &kept{dir: t.TempDir(), t: t}
	var err error
	if k.ca, err = testcerts.NewCA("test CA"); err != nil {
		t.Fatal(err)
	}
	f := Files{Cert: filepath.Join(k.dir, "s.pem"), Key: filepath.Join(k.dir, "s.key")}
	if clients {
		f.ClientCA = filepath.Join(k.dir, "ca.pem")
		if err := k.ca.WriteCA(f.ClientCA); err != nil {
			t.Fatal(err)
		}
	}
	k.write(time.Now().Add(time.Hour))
	if k.Reloader, err = New(f); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *kept) write(until time.Time) testcerts.Pair {
	k.t.Helper()
	p, err := k.ca.Server(until)
	if err != nil {
		k.t.Fatal(err)
	}
	if _, _, err := p.Write(k.dir, "s"); err != nil {
		k.t.Fatal(err)
	}
	return p
}

// shake has a client shake hands with what is served and returns both ends' views.
func (k *kept) shake(client *tls.Config) (tls.ConnectionState, tls.ConnectionState, error) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	client.RootCAs, client.ServerName = k.ca.Pool(), "localhost"
	s, c := tls.Server(theirs, k.Server(true)), tls.Client(ours, client)
	done := make(chan error, 1)
	go func() {
		err := s.Handshake()
		if err != nil {
			theirs.Close()
		}
		done <- err
	}()
	err := c.Handshake()
	if err != nil {
		ours.Close()
	}
	return c.ConnectionState(), s.ConnectionState(), errors.Join(err, <-done)
}

func TestAReplacedPairIsServedToThoseWhoComeOnceItStandsStill(t *testing.T) {
	t.Parallel()
	k := keep(t, false)
	fresh := k.write(time.Now().Add(48 * time.Hour))
	if changed, err := k.Look(); changed || err != nil {
		t.Fatalf("taken at the first look: %v, %v", changed, err)
	}
	if changed, err := k.Look(); !changed || err != nil {
		t.Fatalf("not taken at the second look: %v, %v", changed, err)
	}
	seen, _, err := k.shake(&tls.Config{})
	if err != nil || !seen.PeerCertificates[0].Equal(fresh.Cert) {
		t.Fatalf("the new one is not served: %v", err)
	}
	if changed, err := k.Look(); changed || err != nil {
		t.Fatalf("taken again: %v, %v", changed, err)
	}
}

func TestHalfAPairChangesNothingAndIsReported(t *testing.T) {
	t.Parallel()
	k := keep(t, false)
	old := k.State().Pair
	key, err := os.ReadFile(filepath.Join(k.dir, "s.key"))
	if err != nil {
		t.Fatal(err)
	}
	k.write(time.Now().Add(48 * time.Hour))
	if err := os.WriteFile(filepath.Join(k.dir, "s.key"), key, 0o600); err != nil {
		t.Fatal(err)
	}
	if changed, err := k.Reload(); changed || err == nil || err.Error() != "is not the key of the certificate" {
		t.Fatalf("got %v, %v", changed, err)
	}
	if s := k.State(); s.Pair != old || s.Failed == nil || s.Since.IsZero() {
		t.Fatalf("the state is %+v", s)
	}
	if _, _, err := k.shake(&tls.Config{}); err != nil {
		t.Fatalf("the old one is not served: %v", err)
	}
	k.write(time.Now().Add(48 * time.Hour))
	if changed, err := k.Reload(); !changed || err != nil || k.State().Failed != nil {
		t.Fatalf("mended: %v, %v, %v", changed, err, k.State().Failed)
	}
}

func TestFilesThatCannotBeServedSayWhichAndWhy(t *testing.T) {
	t.Parallel()
	k := keep(t, true)
	good := k.Files()
	junk := filepath.Join(k.dir, "junk")
	if err := os.WriteFile(junk, []byte("secret words\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		files Files
		file  File
		want  string
	}{
		{"no certificate there", Files{Cert: "nowhere", Key: good.Key}, CertFile, "cannot be read"},
		{"no key there", Files{Cert: good.Cert, Key: "nowhere"}, KeyFile, "cannot be read"},
		{"no certificate in it", Files{Cert: junk, Key: good.Key}, CertFile, "holds no certificate"},
		{"a key for a certificate", Files{Cert: good.Key, Key: good.Key}, CertFile, "holds no certificate"},
		{"no key in it", Files{Cert: good.Cert, Key: junk}, KeyFile, "holds no private key"},
		{"no plain file", Files{Cert: "/dev/zero", Key: good.Key}, CertFile, "is no plain file"},
		{"another's key", Files{Cert: good.ClientCA, Key: good.Key}, KeyFile, "not the key of the certificate"},
		{"no CA in it", Files{Cert: good.Cert, Key: good.Key, ClientCA: junk}, ClientCAFile, "holds no certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := New(c.files)
			e, ok := errors.AsType[*Error](err)
			if !ok || e.File != c.file || !strings.Contains(e.Reason, c.want) || strings.Contains(e.Reason, "secret") {
				t.Errorf("got %+v", err)
			}
		})
	}
}

func TestAClientMayShowACertificateOfTheCAAndNoOther(t *testing.T) {
	t.Parallel()
	k := keep(t, true)
	stranger, err := testcerts.NewCA("another CA")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		ca   *testcerts.CA // nil: none is shown
		fine bool
	}{{"none", nil, true}, {"of the CA", k.ca, true}, {"of another CA", stranger, false}} {
		conf := &tls.Config{MaxVersion: tls.VersionTLS12} // whose client is told within the handshake
		if c.ca != nil {
			p, err := c.ca.Client("d1")
			if err != nil {
				t.Fatal(err)
			}
			one := p.TLS()
			conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &one, nil }
		}
		_, seen, err := k.shake(conf)
		if (err == nil) != c.fine || c.fine && (len(seen.VerifiedChains) > 0) != (c.ca != nil) {
			t.Errorf("%s: %v, %d chains", c.name, err, len(seen.VerifiedChains))
		}
	}
}

func TestTLSBefore12IsRefused(t *testing.T) {
	t.Parallel()
	if _, _, err := keep(t, false).shake(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Fatal("TLS 1.1 was spoken")
	}
}

func TestAnExpiredCertificateLoadsAndSaysSo(t *testing.T) {
	t.Parallel()
	k := keep(t, false)
	k.write(time.Now().Add(-time.Hour))
	if _, err := k.Reload(); err != nil || time.Until(k.State().Pair.Expires()) > 0 {
		t.Fatalf("%v, expires %v", err, k.State().Pair.Expires())
	}
}
