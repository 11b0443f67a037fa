// Package guard decides which destinations Weir connects to on behalf of users: webhooks, connectors, mail, AI endpoints. A
// user who can name a destination must not reach through Weir what only the machine can reach: the network around it, the
// machine itself, the metadata service of its cloud.
//
//	address.go   which addresses are globally reachable, and what an address carries in another one
//	allow.go     the operator's list of destinations that are allowed all the same
//	url.go       the form of URLs, hosts and ports in a configuration
//	refusal.go   why a connection was refused, and what may be shown of an error
//
// An address is judged when the connection is made, after its name was resolved, and it is the judged address that is
// dialled: an answer of the DNS that changes between two look-ups gains nothing. Every address of an answer is judged before it
// is dialled. Proxies of the environment are ignored, redirects are not followed, TLS is 1.2 or later with names verified.
package guard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Settings are the keys of the section egress.
type Settings struct {
	//limit:what destinations that the operator allows
	//limit:chapter The API and the operator
	//limit:bound 1,000
	//limit:met weir_egress_refused_total{reason="private"}
	//limit:then the configuration is refused
	Allowed []string `yaml:"allowed_destinations" doc:"Destinations that are not globally reachable and that connectors, webhooks, mail and AI endpoints may connect to all the same: 10.1.2.3/32, 10.1.2.3/32:9092 for one port, 10.1.2.3/32:9092@acme for one tenant; fd00::1/128 likewise. Addresses of this machine need a port." reload:"yes"`
	CAFile  string   `yaml:"ca_file" doc:"PEM file of certificate authorities that are trusted besides those of the system."`
}

// Config configures a Guard.
type Config struct {
	Settings
	// Own returns the addresses of the machine's interfaces; nil: it is asked.
	Own func() ([]netip.Addr, error)
	// Resolver resolves names; nil: that of the system.
	Resolver *net.Resolver
	// Registerer receives the metrics; nil: they are not registered.
	Registerer prometheus.Registerer
}

// Guard makes connections to permitted destinations. It is safe for concurrent use.
type Guard struct {
	allowed  atomic.Pointer[allowList]
	own      func() ([]netip.Addr, error)
	resolver *net.Resolver
	roots    *x509.CertPool // nil: those of the system
	refused  *prometheus.CounterVec
}

// New returns a guard. Errors: those of ParseAllowed, and of a CA file that cannot be used.
func New(cfg Config) (*Guard, error) {
	g := &Guard{own: cfg.Own, resolver: cfg.Resolver, refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_egress_refused_total",
		Help: "Connections that were not made because of the destination's address, by reason."}, []string{"reason"})}
	if g.own == nil {
		g.own = interfaceAddresses
	}
	for _, r := range Reasons() {
		g.refused.WithLabelValues(string(r))
	}
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(g.refused)
	}
	if err := g.SetAllowed(cfg.Allowed); err != nil {
		return nil, err
	}
	var err error
	g.roots, err = loadRoots(cfg.CAFile)
	return g, err
}

// SetAllowed replaces the list of allowed destinations. Connections that were made stay.
func (g *Guard) SetAllowed(entries []string) error {
	list, err := ParseAllowed(entries)
	if err == nil {
		g.allowed.Store(&list)
	}
	return err
}

func loadRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("egress.ca_file: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil { // a system without certificates: those of the file are all
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("egress.ca_file: %s has no certificate in PEM form", file)
	}
	return roots, nil
}

func interfaceAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	var out []netip.Addr
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap().WithZone(""))
		}
	}
	return out, err
}

// dialTimeout bounds a connection where the context does not.
const dialTimeout = 30 * time.Second

// Dial connects for a tenant, "" for the instance itself. It has the form that clients of all protocols take. The network must
// be tcp, tcp4 or tcp6. The error of a refused destination is a *Refusal.
func (g *Guard) Dial(tenant string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if network != "tcp" && network != "tcp4" && network != "tcp6" {
			return nil, g.refuse(&Refusal{Reason: Network, Host: address})
		}
		d := net.Dialer{Timeout: dialTimeout, Resolver: g.resolver, Control: func(_, numeric string, _ syscall.RawConn) error { return g.check(tenant, numeric) }}
		conn, err := d.DialContext(ctx, network, address)
		if r, ok := errors.AsType[*Refusal](err); ok {
			r.Host, _, _ = net.SplitHostPort(address)
			return nil, r
		}
		return conn, err
	}
}

// check judges the address that is about to be dialled.
func (g *Guard) check(tenant, numeric string) error {
	to, err := netip.ParseAddrPort(numeric)
	if err != nil {
		return g.refuse(&Refusal{Reason: Reserved, Host: numeric})
	}
	if reason := g.judge(tenant, to); reason != "" {
		return g.refuse(&Refusal{Reason: reason, Address: netip.AddrPortFrom(to.Addr().Unmap(), to.Port())})
	}
	return nil
}

func (g *Guard) refuse(r *Refusal) error {
	g.refused.WithLabelValues(string(r.Reason)).Inc()
	return r
}

// judge returns why a tenant may not connect to an address, "" when it may.
func (g *Guard) judge(tenant string, to netip.AddrPort) Reason {
	reason := Judge(to.Addr())
	if reason == "" || !reason.never() {
		own, err := g.isOwn(to.Addr())
		if err != nil {
			return Own // it cannot be told
		}
		if own && reason == "" {
			reason = Own
		}
		if reason != "" && g.allowed.Load().has(tenant, to, own) {
			return ""
		}
	}
	return reason
}

// isOwn reports whether an address, or one that it carries, is of this machine.
func (g *Guard) isOwn(a netip.Addr) (bool, error) {
	own, err := g.own()
	if err != nil {
		return false, err
	}
	for _, a := range append(carried(a), a.Unmap()) {
		if a.IsLoopback() {
			return true, nil
		}
		if slices.Contains(own, a) {
			return true, nil
		}
	}
	return false, nil
}

// TLS returns the configuration of a client: TLS 1.2 or later, names verified against the roots of the system and of
// egress.ca_file.
func (g *Guard) TLS() *tls.Config { return ClientTLS(g.roots) }

// ClientTLS returns the configuration of a client: TLS 1.2 or later, names verified against the roots; nil: those of the system.
func ClientTLS(roots *x509.CertPool) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
}

// maxHeaders bounds the headers of a reply.
const maxHeaders = 64 << 10

// Transport returns a transport of HTTP/1.1 for a tenant, "" for the instance itself. It keeps no connections, so that each
// request is judged; a transport that is changed to keep them must not be shared by tenants.
func (g *Guard) Transport(tenant string) *http.Transport {
	return TransportOver(g.Dial(tenant), g.TLS())
}

// TransportOver returns a transport as Transport does, over connections that dial makes: that of a Guard.
func TransportOver(dial func(ctx context.Context, network, address string) (net.Conn, error), security *tls.Config) *http.Transport {
	return &http.Transport{DialContext: dial, TLSClientConfig: security, TLSHandshakeTimeout: dialTimeout, DisableKeepAlives: true,
		DisableCompression: true, MaxResponseHeaderBytes: maxHeaders}
}

// Client returns a client over Transport. It follows no redirect: the reply with the redirect is the reply.
func (g *Guard) Client(tenant string) *http.Client {
	return &http.Client{Transport: g.Transport(tenant), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
