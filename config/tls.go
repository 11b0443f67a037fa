package config

import (
	"errors"

	"weir/internal/certs"
)

// tls checks that the certificate can be served, and that no listener waits for one that is not there.
func (l *loader) tls() {
	t := l.config.TLS
	l.with("tls.cert_file", "tls.key_file", t.Cert != "" || t.Key == "")
	l.with("tls.cert_file", "tls.client_ca_file", t.Cert != "" || t.ClientCA == "")
	l.with("tls.key_file", "tls.cert_file", t.Key != "" || t.Cert == "")
	if t.Enabled() {
		l.certificate()
		return
	}
	for path, addr := range l.config.Listeners.Secure() {
		// That of mqtts has a default: it opens when there is a certificate.
		l.check(path, addr == "" || path == "listeners.mqtts", "needs a certificate: set tls.cert_file and tls.key_file")
	}
}

// certificate reads the files as the listeners will. A configuration that was put together from others has been
// read already.
func (l *loader) certificate() {
	if l.src.ReadFile == nil || l.src.Asking || l.bad["tls.cert_file"] || l.bad["tls.key_file"] {
		return
	}
	_, err := certs.Load(l.config.TLS, l.src.ReadFile)
	if e, ok := errors.AsType[*certs.Error](err); ok {
		l.complain(keyOf(e.File), e.Hint, e.Reason)
	}
	l.keyMode()
}

// CertificateKey is the key of the file that an error of internal/certs is about.
func CertificateKey(err error) string {
	e, ok := errors.AsType[*certs.Error](err)
	if !ok {
		return "tls"
	}
	return keyOf(e.File)
}

func keyOf(f certs.File) string {
	return map[certs.File]string{certs.CertFile: "tls.cert_file", certs.KeyFile: "tls.key_file", certs.ClientCAFile: "tls.client_ca_file"}[f]
}

// keyMode warns of a key that every user of the machine can read. A group may: that of the certificates often does.
func (l *loader) keyMode() {
	key := l.config.TLS.Key
	fi, err := l.src.Stat(key)
	if err != nil || fi.Mode().Perm()&0o004 == 0 {
		return
	}
	by := given{}
	if g := l.given["tls.key_file"]; len(g) > 0 {
		by = g[len(g)-1]
	}
	l.warnings = append(l.warnings, by.problem("tls.key_file", false, "chmod o-rwx "+key, "every user of this machine can read the private key"))
}

// mqttsWithoutCertificate reports whether mqtts was asked for and does not open.
func (c *Config) mqttsWithoutCertificate() bool {
	return !c.TLS.Enabled() && c.Listeners.MQTTS != "" && c.from != nil && len(c.from.given["listeners.mqtts"]) > 0
}
