package certs

import (
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestAKeyOfAnotherCertificateIsNotTakenForNoKey: the two mistakes are mended in other ways.
func TestAKeyOfAnotherCertificateIsNotTakenForNoKey(t *testing.T) {
	t.Parallel()
	files := keep(t, false).Files()
	onRSA, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	onCurve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := x509.MarshalECPrivateKey(onCurve)
	if err != nil {
		t.Fatal(err)
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	exchange, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8 := func(key crypto.PrivateKey) []byte {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	const another, none = "not the key of the certificate", "holds no private key"
	for _, c := range []struct {
		name, block string
		der         []byte
		want        string
	}{
		{"RSA in PKCS 8", "PRIVATE KEY", pkcs8(onRSA), another},
		{"RSA in PKCS 1", "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(onRSA), another},
		{"a curve in PKCS 8", "PRIVATE KEY", pkcs8(onCurve), another},
		{"a curve in SEC 1", "EC PRIVATE KEY", sec1, another},
		{"Ed25519", "PRIVATE KEY", pkcs8(edwards), another},
		{"a key that signs nothing", "PRIVATE KEY", pkcs8(exchange), none},
		{"an encrypted key", "ENCRYPTED PRIVATE KEY", []byte("sealed"), none},
		{"a certificate request", "CERTIFICATE REQUEST", pkcs8(onCurve), none},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text := pem.EncodeToMemory(&pem.Block{Type: c.block, Bytes: c.der})
			_, err := Load(files, func(name string) ([]byte, error) {
				if name == files.Key {
					return text, nil
				}
				return readPlain(name)
			})
			e, ok := errors.AsType[*Error](err)
			if !ok || e.File != KeyFile || !strings.Contains(e.Reason, c.want) {
				t.Errorf("got %+v, want %s", err, c.want)
			}
		})
	}
}

func TestASelfSignedCertificateIsForItsNamesAndNoCA(t *testing.T) {
	t.Parallel()
	now := time.Now()
	made, err := NewSelfSigned([]string{"gateway.lan", "10.0.0.7"}, now, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Load(Files{Cert: "cert", Key: "key"}, func(name string) ([]byte, error) {
		return map[string][]byte{"cert": made.Cert, "key": made.Key}[name], nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !p.Covers("gateway.lan") || !p.Covers("10.0.0.7") || p.Covers("other.lan") || !p.Rooted() || p.Public() || p.chain[0].IsCA {
		t.Errorf("names %v, rooted %v, public %v, CA %v", p.Names(), p.Rooted(), p.Public(), p.chain[0].IsCA)
	}
	if p.Begins().After(now) || !p.Expires().Equal(made.NotAfter) || made.Fingerprint != Fingerprint(p.chain[0].Raw) || len(made.Fingerprint) != 95 {
		t.Errorf("%s to %s, %s", p.Begins(), p.Expires(), made.Fingerprint)
	}
}
