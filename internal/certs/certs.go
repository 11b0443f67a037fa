// Package certs holds the certificate that listeners serve and replaces it at run time: open connections keep
// the one they began with, new connections get the newest valid pair. An invalid pair, half of one for
// example, changes nothing but State.
package certs

import (
	"crypto/tls"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/smallfile"
)

// maxFile is far above the size of a bundle of CAs.
const maxFile = 1 << 20

func readPlain(name string) ([]byte, error) { return smallfile.Read(name, maxFile) }

// Reloader serves the certificate of some files. It is safe for concurrent use.
type Reloader struct {
	files Files
	pair  atomic.Pointer[Pair]

	mu      sync.Mutex
	seen    stamps  // of the files at the last attempt
	pending *stamps // seen once and different from seen
	failed  error   // of the last attempt
	since   time.Time
}

// State is the state of a Reloader.
type State struct {
	Pair *Pair
	// Failed is the reason why the present files are not served, nil when they are; Since is the time of that failure.
	Failed error
	Since  time.Time
}

// New loads the files.
func New(f Files) (*Reloader, error) {
	k := &Reloader{files: f, seen: stampsOf(f)}
	p, err := Load(f, readPlain)
	if err != nil {
		return nil, err
	}
	k.pair.Store(p)
	return k, nil
}

// Files are the served files.
func (k *Reloader) Files() Files { return k.files }

// State says what is served.
func (k *Reloader) State() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	return State{k.pair.Load(), k.failed, k.since}
}

// Reload reads the files now. It reports whether another certificate, key or CA is served afterwards; an error changes
// nothing.
func (k *Reloader) Reload() (changed bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reload(stampsOf(k.files))
}

// Look reads the files when they have changed, and not while they change: it must find the same stamps twice.
func (k *Reloader) Look() (changed bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := stampsOf(k.files)
	switch {
	case now.same(k.seen):
		k.pending = nil
	case k.pending != nil && now.same(*k.pending):
		return k.reload(now)
	default:
		k.pending = &now
	}
	return false, nil
}

func (k *Reloader) reload(now stamps) (changed bool, err error) {
	k.seen, k.pending = now, nil
	p, err := Load(k.files, readPlain)
	if err != nil {
		if k.failed == nil {
			k.since = time.Now()
		}
		k.failed = err
		return false, err
	}
	k.failed = nil
	old := k.pair.Load()
	k.pair.Store(p)
	return !p.same(old), nil
}

func (p *Pair) same(q *Pair) bool {
	if (p.clients == nil) != (q.clients == nil) || p.clients != nil && !p.clients.Equal(q.clients) {
		return false
	}
	return slices.EqualFunc(p.cert.Certificate, q.cert.Certificate, slices.Equal)
}

// Server is the TLS configuration of a listener: at least 1.2, with Go's default ciphers and curves. With clients
// a client may present a certificate, which one of the CAs must have signed; sessions are not resumed then, so that each
// connection is checked against the present CAs.
func (k *Reloader) Server(clients bool) *tls.Config {
	base := func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }
	c := base()
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &k.pair.Load().cert, nil }
	if !clients || k.files.ClientCA == "" {
		return c
	}
	c.SessionTicketsDisabled = true
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		p := k.pair.Load()
		one := base()
		one.Certificates = []tls.Certificate{p.cert}
		one.ClientCAs, one.ClientAuth, one.SessionTicketsDisabled = p.clients, tls.VerifyClientCertIfGiven, true
		return one, nil
	}
	return c
}

// stamps detect, without reading, that files have changed or were replaced; nil is a missing file.
type stamps [3]fs.FileInfo

func stampsOf(f Files) (s stamps) {
	for i, name := range []string{f.Cert, f.Key, f.ClientCA} {
		if name == "" {
			continue
		}
		if fi, err := os.Stat(name); err == nil { // of what a link leads to
			s[i] = fi
		}
	}
	return s
}

func (s stamps) same(t stamps) bool {
	for i, a := range s {
		b := t[i]
		if (a == nil) != (b == nil) || a != nil && (!os.SameFile(a, b) || !a.ModTime().Equal(b.ModTime()) || a.Size() != b.Size()) {
			return false
		}
	}
	return true
}
