package lwm2m

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/pion/dtls/v3"

	"weir/model"
)

// Certificates are what handshakes by X.509 take (LwM2M Core 1.1 section 5.2.9.2), on the socket on which pre-shared keys are taken. The certificate of a device is
// one that is registered as its credential: who signed it does not matter, so it may be self-signed.
type Certificates interface {
	// Own returns the certificate of the server with its key.
	Own(ctx context.Context) (*tls.Certificate, error)
	// Of finds the device of a certificate by its SHA-256, in lower-case hex. The key has no secret. ErrUnknown says that there is none; any other
	// error that it could not be looked up.
	Of(ctx context.Context, fingerprint string) (Key, error)
}

// Why a handshake by certificate is refused. The device is told bad_certificate for all of them.
var (
	errCertificate = errors.New("the certificate of the device does not count now, or is none")
	errNotProven   = errors.New("the handshake has proven something else than its cipher suite asks for")
)

// CipherSuites are the names of the cipher suites that can be offered, the best first.
func CipherSuites() (names []string) {
	for i := range allSuites {
		names = append(names, dtls.CipherSuiteName(allSuites[i].id))
	}
	return names
}

// CheckCipherSuites says what is wrong with a list of cipher suites: each is one of CipherSuites, and devices with a pre-shared key find one.
func CheckCipherSuites(names []string) error {
	all, keyed := CipherSuites(), len(names) == 0
	for _, name := range names {
		i := slices.Index(all, name)
		if i < 0 {
			return fmt.Errorf("%.60q is none that is offered: %v are", name, all)
		}
		keyed = keyed || !allSuites[i].certificate
	}
	if !keyed {
		return errors.New("must have one for pre-shared keys, such as TLS_PSK_WITH_AES_128_CCM_8")
	}
	return nil
}

// suites are the cipher suites that are offered, the best first: those with certificates where there are such.
func (s *Server) suites() (ids []dtls.CipherSuiteID) {
	only := s.settings.Load().CipherSuites
	for i := range allSuites {
		of := &allSuites[i]
		if (!of.certificate || s.deps.Certificates != nil) && (len(only) == 0 || slices.Contains(only, dtls.CipherSuiteName(of.id))) {
			ids = append(ids, of.id)
		}
	}
	return ids
}

// certificateOptions are the options of a handshake by which a device may show a certificate.
func (s *Server) certificateOptions(ctx context.Context, who *proof) []dtls.ServerOption {
	if s.deps.Certificates == nil {
		return nil
	}
	return []dtls.ServerOption{
		dtls.WithGetCertificate(func(*dtls.ClientHelloInfo) (*tls.Certificate, error) {
			own, err := s.deps.Certificates.Own(ctx)
			if err != nil {
				who.failed = err
			}
			return own, err
		}),
		dtls.WithClientAuth(dtls.RequireAnyClientCert),
		dtls.WithVerifyPeerCertificate(func(chain [][]byte, _ [][]*x509.Certificate) error { return s.certified(ctx, who, chain) }),
	}
}

// certified finds the device of a certificate. The library has verified that the device has its key.
func (s *Server) certified(ctx context.Context, into *proof, chain [][]byte) error {
	*into = proof{certificate: true}
	if len(chain) == 0 {
		return errCertificate
	}
	sum := sha256.Sum256(chain[0])
	into.identity = hex.EncodeToString(sum[:])
	c, err := x509.ParseCertificate(chain[0])
	if now := s.now(); err != nil || now.Before(c.NotBefore) || now.After(c.NotAfter) {
		return errCertificate
	}
	into.ends = model.MicrosOf(c.NotAfter)
	k, err := s.deps.Certificates.Of(ctx, into.identity)
	switch {
	case errors.Is(err, ErrUnknown):
		return errCertificate
	case err != nil:
		into.failed = err
		return err
	}
	into.key, into.known = k, true
	into.key.Expires = earlier(k.Expires, into.ends)
	return nil
}

// earlier is the first of two times, of which 0 is never.
func earlier(a, b model.Micros) model.Micros {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// fits reports whether a handshake has proven what its cipher suite asks for: a certificate that somebody shows beside the key of
// another device proves nothing.
func (p *proof) fits(conn *dtls.Conn) bool {
	state, ok := conn.ConnectionState()
	if !ok {
		return false
	}
	of := suiteOf(state.CipherSuiteID)
	return of != nil && p.known && of.certificate == p.certificate
}

// lookUp finds what a session was proven by, as it is now.
func (s *Server) lookUp(ctx context.Context, by proven) (Key, error) {
	switch {
	case !by.Certificate:
		return s.deps.Keys.Key(ctx, by.Identity)
	case s.deps.Certificates == nil:
		return Key{}, ErrUnknown
	}
	k, err := s.deps.Certificates.Of(ctx, by.Identity)
	if err == nil && by.Ends != 0 && model.MicrosOf(s.now()) >= by.Ends {
		return Key{}, ErrUnknown
	}
	k.Expires = earlier(k.Expires, by.Ends)
	return k, err
}
