// Package testcerts makes certificates for tests: a CA, what servers and clients show, all with keys that live as long as
// the test's directory.
package testcerts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// CA signs certificates.
type CA struct{ pair Pair }

// Pair is a certificate with its key.
type Pair struct {
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
}

// NewCA makes a CA.
func NewCA(name string) (*CA, error) {
	p, err := sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour)}, nil)
	if err != nil {
		return nil, err
	}
	return &CA{p}, nil
}

// Server makes the certificate of localhost and 127.0.0.1, good until then.
func (ca *CA) Server(until time.Time) (Pair, error) {
	return sign(&x509.Certificate{Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until}, &ca.pair)
}

// Client makes the certificate of a client, good for a day.
func (ca *CA) Client(name string) (Pair, error) {
	return sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}, &ca.pair)
}

// Cert is the CA's own certificate.
func (ca *CA) Cert() *x509.Certificate { return ca.pair.Cert }

// Pool trusts the CA.
func (ca *CA) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca.pair.Cert)
	return p
}

// WriteCA writes the certificate of the CA.
func (ca *CA) WriteCA(path string) error { return writePEM(path, "CERTIFICATE", ca.pair.Cert.Raw) }

// sign makes a certificate, which signs itself without a parent.
func sign(c *x509.Certificate, by *Pair) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return Pair{}, err
	}
	if by == nil {
		by = &Pair{c, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by.Cert, &key.PublicKey, by.Key)
	if err != nil {
		return Pair{}, err
	}
	cert, err := x509.ParseCertificate(der)
	return Pair{cert, key}, err
}

// TLS is the pair as crypto/tls wants it.
func (p Pair) TLS() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{p.Cert.Raw}, PrivateKey: p.Key, Leaf: p.Cert}
}

// Hash is the lower-case hex SHA-256 of the certificate.
func (p Pair) Hash() string {
	h := sha256.Sum256(p.Cert.Raw)
	return hex.EncodeToString(h[:])
}

// Write puts the pair into a directory as NAME.pem and NAME.key, each whole with a rename.
func (p Pair) Write(dir, name string) (cert, key string, err error) {
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	der, err := x509.MarshalPKCS8PrivateKey(p.Key)
	if err != nil {
		return "", "", err
	}
	if err := writePEM(cert, "CERTIFICATE", p.Cert.Raw); err != nil {
		return "", "", err
	}
	return cert, key, writePEM(key, "PRIVATE KEY", der)
}

// WriteSet writes what a script needs into a directory: ca.pem; the server's gw.pem and gw.key, good for 90 days, and other.pem
// and other.key like them; device.pem and device.key of the same CA with the hash in device.id; stranger.pem and
// stranger.key of another CA.
func WriteSet(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	ca, err := NewCA("interop CA")
	if err != nil {
		return err
	}
	other, err := NewCA("another CA")
	if err != nil {
		return err
	}
	server, err := ca.Server(time.Now().Add(90 * 24 * time.Hour))
	if err != nil {
		return err
	}
	second, err := ca.Server(time.Now().Add(90 * 24 * time.Hour))
	if err != nil {
		return err
	}
	device, err := ca.Client("boiler-1")
	if err != nil {
		return err
	}
	stranger, err := other.Client("boiler-1")
	if err != nil {
		return err
	}
	for name, p := range map[string]Pair{"gw": server, "other": second, "device": device, "stranger": stranger} {
		if _, _, err := p.Write(dir, name); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "device.id"), []byte(device.Hash()), 0o600); err != nil {
		return err
	}
	return ca.WriteCA(filepath.Join(dir, "ca.pem"))
}

func writePEM(path, kind string, der []byte) error {
	if err := os.WriteFile(path+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
