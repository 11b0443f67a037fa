package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"
)

// SelfSigned is a certificate that its own key has signed.
type SelfSigned struct {
	Cert, Key   []byte // PEM
	Fingerprint string // SHA-256 of the certificate, as browsers and openssl show it
	NotAfter    time.Time
}

// clockTolerance is how far the clock of a device may be slow.
const clockTolerance = 24 * time.Hour

// NewSelfSigned makes a certificate for names and addresses. It is no CA: a device that trusts it trusts this server, and
// nothing that its key might sign.
func NewSelfSigned(names []string, now time.Time, life time.Duration) (*SelfSigned, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	c := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: names[0], Organization: []string{"Weir, self-signed"}},
		NotBefore: now.Add(-clockTolerance), NotAfter: now.Add(life).Truncate(time.Second), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &SelfSigned{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		Fingerprint: Fingerprint(der), NotAfter: c.NotAfter}, nil
}

// Fingerprint is the SHA-256 of a certificate in pairs of hex digits.
func Fingerprint(der []byte) string {
	var pairs []string
	for _, b := range sha256.Sum256(der) {
		pairs = append(pairs, fmt.Sprintf("%02X", b))
	}
	return strings.Join(pairs, ":")
}
