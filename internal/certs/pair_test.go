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
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
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

// TestDoubtsAreWhatClientsMayRefuse: the dates of all these certificates are good.
func TestDoubtsAreWhatClientsMayRefuse(t *testing.T) {
	t.Parallel()
	root, between := authority(t, "Root", nil), (*signer)(nil)
	between = authority(t, "Between", root)
	server := func(c *x509.Certificate) *signer {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		c.KeyUsage = x509.KeyUsageDigitalSignature
		return between.sign(t, c)
	}
	good := server(&x509.Certificate{DNSNames: []string{"gw.lan"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	nameless := server(&x509.Certificate{})
	client := server(&x509.Certificate{DNSNames: []string{"gw.lan"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	for _, c := range []struct {
		name  string
		chain []*signer
		bom   string
		want  string // doubts, or the refusal
	}{
		{"whole", []*signer{good, between, root}, "", ""},
		{"with a byte order mark", []*signer{good, between, root}, "\ufeff", ""},
		{"without the root", []*signer{good, between}, "", `the file does not hold the certificate of "Root", which has signed the last one and which neither this machine nor client_ca_file knows`},
		{"without the intermediate", []*signer{good}, "", `the file does not hold the certificate of "Between", which has signed the last one and which neither this machine nor client_ca_file knows`},
		{"with a gap", []*signer{good, root}, "", `certificate 1 of the file is not signed by the one after it`},
		{"no name", []*signer{nameless, between, root}, "", `it names no host (subjectAltName), and clients look at no other name`},
		{"of a client", []*signer{client, between, root}, "", `its extended key usage does not say that it is for servers`},
		{"reversed", []*signer{root, between, good}, "", "has the certificate of the key in place 3"},
	} {
		leaf := c.chain[0]
		if c.name == "reversed" {
			leaf = c.chain[2]
		}
		der, err := x509.MarshalPKCS8PrivateKey(leaf.key)
		if err != nil {
			t.Fatal(err)
		}
		files := map[string]string{"cert": c.bom, "key": c.bom + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))}
		for _, s := range c.chain {
			files["cert"] += string(pemOf(s.cert))
		}
		p, err := Load(Files{Cert: "cert", Key: "key"}, func(name string) ([]byte, error) { return []byte(files[name]), nil })
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = strings.Join(p.Doubts(), "; ")
		}
		if got != c.want {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
	}
}

// signer is a certificate with its key.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func authority(t *testing.T, name string, by *signer) *signer {
	t.Helper()
	c := &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	return by.sign(t, c)
}

// sign signs a certificate, a nil signer with the certificate's own key.
func (s *signer) sign(t *testing.T, c *x509.Certificate) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	parent, signs := c, key
	if s != nil {
		parent, signs = s.cert, s.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signs)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{cert, key}
}
