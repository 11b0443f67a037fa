package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// Files are the files of a certificate, its key and the CA of client certificates, all PEM: the keys of the section tls.
type Files struct {
	Cert     string `yaml:"cert_file" doc:"Certificate in PEM, followed by its intermediate certificates; read again when the file changes."`
	Key      string `yaml:"key_file" doc:"Private key of cert_file in PEM, unencrypted; read again when the file changes."`
	ClientCA string `yaml:"client_ca_file" doc:"CAs in PEM that sign the certificates of devices (X509_CERTIFICATE), for listeners.mqtts; empty: no client certificate is requested."`
}

// Enabled reports whether there is a certificate, so that listeners can use TLS.
func (f Files) Enabled() bool { return f.Cert != "" }

// File says which of the files something is about.
type File int

const (
	CertFile File = iota
	KeyFile
	ClientCAFile
)

// Error is why files cannot be served.
type Error struct {
	File   File
	Reason string // without the name of the file
	Hint   string
}

func (e *Error) Error() string { return e.Reason }

// Pair is a certificate with its key and the CAs of the clients that it trusts.
type Pair struct {
	cert    tls.Certificate
	clients *x509.CertPool // nil: no client certificate is asked for
	chain   []*x509.Certificate
}

// Load reads and checks the files. The error is of type *Error. A certificate that has expired loads; its server warns.
func Load(f Files, read func(string) ([]byte, error)) (*Pair, error) {
	certPEM, err := read(f.Cert)
	if err != nil {
		return nil, unreadable(CertFile, err)
	}
	keyPEM, err := read(f.Key)
	if err != nil {
		return nil, unreadable(KeyFile, err)
	}
	certPEM, keyPEM = withoutMark(certPEM), withoutMark(keyPEM)
	p := &Pair{}
	if p.chain = parseAll(certPEM); len(p.chain) == 0 {
		return nil, &Error{CertFile, "holds no certificate", "PEM is wanted: the certificate first, then those between it and its CA"}
	}
	if p.cert, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		return nil, notAPair(p.chain, keyPEM)
	}
	p.cert.Leaf = p.chain[0]
	if f.ClientCA == "" {
		return p, nil
	}
	caPEM, err := read(f.ClientCA)
	if err != nil {
		return nil, unreadable(ClientCAFile, err)
	}
	p.clients = x509.NewCertPool()
	if !p.clients.AppendCertsFromPEM(withoutMark(caPEM)) {
		return nil, &Error{ClientCAFile, "holds no certificate", "PEM is wanted: the certificates of the CAs that sign those of devices"}
	}
	return p, nil
}

// withoutMark takes off the byte order mark that editors put before a text: the first block of a file would be overlooked.
func withoutMark(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) }

func unreadable(which File, err error) *Error {
	hint := ""
	if errors.Is(err, fs.ErrPermission) {
		hint = "the user that runs the instance must be able to read it"
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return &Error{which, fmt.Sprintf("the file cannot be read: %v", err), hint}
}

// notAPair returns why a certificate that parses and what its key file holds are no pair. It never quotes the file.
func notAPair(chain []*x509.Certificate, keyPEM []byte) *Error {
	leaf := chain[0]
	for at := range chain[1:] {
		if pair, err := tls.X509KeyPair(pemOf(chain[at+1]), keyPEM); err == nil && pair.PrivateKey != nil {
			return &Error{CertFile, fmt.Sprintf("has the certificate of the key in place %d", at+2), "put it first, then those between it and its CA"}
		}
	}
	if leaf.PublicKeyAlgorithm != x509.UnknownPublicKeyAlgorithm && holdsKey(keyPEM) {
		return &Error{KeyFile, "is not the key of the certificate", "one of the two was replaced without the other"}
	}
	return &Error{KeyFile, "holds no private key that can be used", "an unencrypted key in PEM is wanted: PKCS #8, PKCS #1 or SEC 1"}
}

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// holdsKey reports whether the first private key of a file is one that TLS can use.
func holdsKey(text []byte) bool {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return false
		}
		if block.Type == "PRIVATE KEY" || strings.HasSuffix(block.Type, " PRIVATE KEY") {
			return usableKey(block.Bytes)
		}
	}
}

func usableKey(der []byte) bool {
	if key, err := x509.ParsePKCS8PrivateKey(der); err == nil {
		switch key.(type) {
		case *rsa.PrivateKey, *ecdsa.PrivateKey, ed25519.PrivateKey:
			return true
		}
		return false
	}
	_, rsaErr := x509.ParsePKCS1PrivateKey(der)
	_, ecErr := x509.ParseECPrivateKey(der)
	return rsaErr == nil || ecErr == nil
}

func parseAll(text []byte) (all []*x509.Certificate) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil
		}
		all = append(all, c)
	}
}

// Certificate is the certificate with its key, as TLS and DTLS servers take it. It is not to be changed.
func (p *Pair) Certificate() *tls.Certificate { return &p.cert }

// Expires is when the first certificate of the chain does: those between it and the CA count, too.
func (p *Pair) Expires() time.Time {
	return slices.MinFunc(p.chain, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter
}

// Begins is from when on the certificate is good.
func (p *Pair) Begins() time.Time { return p.chain[0].NotBefore }

// Names are the names and addresses that the certificate is for.
func (p *Pair) Names() []string {
	out := slices.Clone(p.chain[0].DNSNames)
	for _, ip := range p.chain[0].IPAddresses {
		out = append(out, ip.String())
	}
	return out
}

// Covers reports whether the certificate is for a host.
func (p *Pair) Covers(host string) bool { return p.chain[0].VerifyHostname(host) == nil }

// Rooted reports whether the file of the certificate ends with one that is signed by its own key, a CA or a self-signed
// certificate, so that a client may be given the file itself as what to trust.
func (p *Pair) Rooted() bool {
	last := p.chain[len(p.chain)-1]
	return last.CheckSignature(last.SignatureAlgorithm, last.RawTBSCertificate, last.Signature) == nil
}

// Doubts are the reasons why clients that check a certificate may refuse this one, apart from its dates.
func (p *Pair) Doubts() (all []string) {
	leaf := p.chain[0]
	if len(leaf.DNSNames)+len(leaf.IPAddresses)+len(leaf.URIs)+len(leaf.EmailAddresses) == 0 {
		all = append(all, "it names no host (subjectAltName), and clients look at no other name")
	}
	if len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) > 0 && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny) {
		all = append(all, "its extended key usage does not say that it is for servers")
	}
	for i, c := range p.chain[:len(p.chain)-1] {
		if c.CheckSignatureFrom(p.chain[i+1]) != nil {
			return append(all, fmt.Sprintf("certificate %d of the file is not signed by the one after it", i+1))
		}
	}
	if last := p.chain[len(p.chain)-1]; !p.Rooted() && !p.Public() && !p.verifies(p.clients) {
		all = append(all, fmt.Sprintf("the file does not hold the certificate of %q, which has signed the last one and which neither this machine nor client_ca_file knows", last.Issuer.CommonName))
	}
	return all
}

// Public reports whether this machine's root certificates vouch for the certificate: other machines probably trust it, too.
func (p *Pair) Public() bool { return p.verifies(nil) }

// verifies reports whether these roots, nil for the machine's, vouch for the certificate.
func (p *Pair) verifies(roots *x509.CertPool) bool {
	between := x509.NewCertPool()
	for _, c := range p.chain[1:] {
		between.AddCert(c)
	}
	_, err := p.chain[0].Verify(x509.VerifyOptions{Intermediates: between, Roots: roots})
	return err == nil
}
