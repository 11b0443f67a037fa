package guard

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/test/loopback"
	"weir/internal/test/nameserver"
)

// TestTheGalleryOfAddresses has a row per clause of what is judged, with the addresses at the edges of each block.
func TestTheGalleryOfAddresses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		clause string
		want   Reason
		addrs  string
	}{
		{"globally reachable", global, "8.8.8.8 1.1.1.1 9.255.255.255 11.0.0.0 223.255.255.255 2606:4700::1111 2a00:1450::1 3ffe::1"},
		{"this network", Unspecified, "0.0.0.0 0.255.255.255 ::"},
		{"private", Private, "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.1 192.168.255.255 fc00:: fdff:ffff::1 fec0::1"},
		{"next to private", global, "172.15.255.255 172.32.0.0 192.167.255.255 192.169.0.0"},
		{"shared by a carrier", Private, "100.64.0.0 100.127.255.255"},
		{"next to it", global, "100.63.255.255 100.128.0.0"},
		{"loopback", Loopback, "127.0.0.1 127.255.255.255 ::1"},
		{"link-local", LinkLocal, "169.254.0.1 169.254.255.255 fe80::1 febf::1"},
		{"metadata", Metadata, "169.254.169.254 169.254.170.2 169.254.170.23 100.100.100.200 192.0.0.192 168.63.129.16 fd00:ec2::254 fd20:ce::254"},
		{"protocol assignments", Reserved, "192.0.0.1 192.0.0.8 192.0.0.170 2001:100::1 2001:1ff::1 2001:10::1"},
		{"assignments that are reachable", global, "192.0.0.9 192.0.0.10 192.31.196.1 192.52.193.1 192.175.48.1 2001:1::1 2001:3::1 2001:4:112::1 2001:20::1 2001:200::1"},
		{"documentation", Documentation, "192.0.2.1 198.51.100.1 203.0.113.255 2001:db8::1 3fff:fff::1"},
		{"benchmarks", Documentation, "198.18.0.0 198.19.255.255 2001:2::1"},
		{"relays of 6to4", Reserved, "192.88.99.1"},
		{"multicast", Multicast, "224.0.0.1 239.255.255.255 ff02::1 ff0e::1"},
		{"broadcast", Multicast, "255.255.255.255"},
		{"future use", Reserved, "240.0.0.1 255.255.255.254"},
		{"not allocated", Reserved, "100::1 100:0:0:1::1 5f00::1 1fff::1 4000::1 64:ff9b:2::1 ::ffff:0:808:808 e000::1"},
		{"zones", Zone, "fe80::1%eth0 2606:4700::1111%eth0 ::ffff:8.8.8.8%eth0"},

		{"IPv4-mapped", global, "::ffff:8.8.8.8"},
		{"IPv4-mapped, private", Private, "::ffff:10.1.2.3"},
		{"IPv4-mapped, loopback", Loopback, "::ffff:127.0.0.1"},
		{"IPv4-mapped, metadata", Metadata, "::ffff:169.254.169.254"},
		{"IPv4-compatible", global, "::8.8.8.8"},
		{"IPv4-compatible, private", Private, "::192.168.1.1"},
		{"IPv4-compatible, hardly", Unspecified, "::2"},
		{"NAT64", global, "64:ff9b::8.8.8.8"},
		{"NAT64, private", Private, "64:ff9b::10.0.0.1"},
		{"NAT64, metadata", Metadata, "64:ff9b::169.254.169.254"},
		{"local NAT64", global, "64:ff9b:1::8.8.8.8"},
		{"local NAT64, private", Private, "64:ff9b:1::10.0.0.1"},
		{"local NAT64 of another form", Reserved, "64:ff9b:1:a00:1::808:808 64:ff9b:1:0:a:1:808:808 64:ff9b:1:0:0:100:808:808"},
		{"6to4", global, "2002:808:808::1"},
		{"6to4, private", Private, "2002:a00:1::1 2002:c0a8:101::"},
		{"6to4, metadata", Metadata, "2002:a9fe:a9fe::1"},
		{"Teredo", global, "2001:0:808:808:0:ffff:f7f7:f7f7"},
		{"Teredo, private client", Private, "2001:0:808:808:0:ffff:f5ff:fffe"},
		{"Teredo, private server", Private, "2001:0:a00:1:0:ffff:f7f7:f7f7"},
	} {
		for addr := range strings.FieldsSeq(c.addrs) {
			if got := Judge(netip.MustParseAddr(addr)); got != c.want {
				t.Errorf("%s: %s is %q, want %q", c.clause, addr, got, c.want)
			}
		}
	}
}

// TestTheGalleryOfAllowedDestinations has a row per form of an entry.
func TestTheGalleryOfAllowedDestinations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ entry, wrong string }{
		{"10.1.2.3/32", ""},
		{"10.1.2.3/32:9092", ""},
		{"10.1.2.3/32:9092@acme", ""},
		{"10.1.2.3/32@acme", ""},
		{"fd00::1/128", ""},
		{"fd00::1/128:9092@acme", ""},
		{"8.8.8.8/32", ""},
		{"127.0.0.1/32:11434", ""},
		{"::1/128:11434", ""},
		{"169.254.1.1/32", ""},
		{"10.1.2.3", `"10.1.2.3" must be a single address, written 10.1.2.3/32`},
		{"10.0.0.0/8", `"10.0.0.0/8" must be a single address, written 10.0.0.0/32`},
		{"fd00::/64:9092", `"fd00::/64:9092" must be a single address, written fd00::/128`},
		{"broker.lan/32", `"broker.lan/32" must be a single address such as 10.1.2.3/32 or fd00::1/128, without a name or a zone`},
		{"fe80::1%eth0/128", `"fe80::1%eth0/128" must be a single address such as 10.1.2.3/32 or fd00::1/128, without a name or a zone`},
		{"10.1.2.3:9092", `"10.1.2.3:9092" must be a single address such as 10.1.2.3/32 or fd00::1/128, without a name or a zone`},
		{"", `"" must be a single address such as 10.1.2.3/32 or fd00::1/128, without a name or a zone`},
		{"10.1.2.3/32/32", `"10.1.2.3/32/32" must be an address, its /32, and where it is narrowed a port and a tenant: 10.1.2.3/32:9092@acme`},
		{"10.1.2.3/32:0", `"10.1.2.3/32:0" must have a port from 1 to 65535 behind the colon`},
		{"10.1.2.3/32:", `"10.1.2.3/32:" must have a port from 1 to 65535 behind the colon`},
		{"10.1.2.3/32:65536", `"10.1.2.3/32:65536" must have a port from 1 to 65535 behind the colon`},
		{"10.1.2.3/32:09", `"10.1.2.3/32:09" must have a port from 1 to 65535 behind the colon`},
		{"10.1.2.3/32@", `"10.1.2.3/32@" must name a tenant behind the @`},
		{"10.1.2.3/32@a.b", `"10.1.2.3/32@a.b" must name a tenant behind the @`},
		{"127.0.0.1/32", `"127.0.0.1/32" is an address of this machine and needs a port: 127.0.0.1/32:11434`},
		{"169.254.169.254/32:80", `"169.254.169.254/32:80" is the address of a cloud's metadata service, which cannot be allowed`},
		{"64:ff9b::a9fe:a9fe/128", `"64:ff9b::a9fe:a9fe/128" is the address of a cloud's metadata service, which cannot be allowed`},
		{"0.0.0.0/32:80", `"0.0.0.0/32:80" is an unspecified address, which cannot be allowed`},
		{"239.1.1.1/32", `"239.1.1.1/32" is a multicast or broadcast address, which cannot be allowed`},
	} {
		_, err := ParseAllowed([]string{"10.9.9.9/32", c.entry})
		if text := errorText(err); text != c.wrong {
			t.Errorf("%q: %q, want %q", c.entry, text, c.wrong)
		}
	}
	if _, err := ParseAllowed(slices.Repeat([]string{"10.1.2.3/32"}, maxAllowed+1)); err == nil {
		t.Error("a list without a bound")
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestWhatAnEntryAllows: an entry is for its address, port and tenant alone, and one of this machine for its port.
func TestWhatAnEntryAllows(t *testing.T) {
	t.Parallel()
	g := newGuard(t, Config{Own: func() ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("8.8.4.4")}, nil
	}},
		"10.1.2.3/32", "10.1.2.4/32:9092", "10.1.2.5/32:9092@acme", "10.0.0.5/32", "127.0.0.1/32:11434", "fd00::1/128:80", "64:ff9b::10.7.7.7/128")
	for _, c := range []struct {
		tenant, to string
		want       Reason
	}{
		{"acme", "10.1.2.3:1", ""},
		{"acme", "[::ffff:10.1.2.3]:1", ""},
		{"acme", "[64:ff9b::10.1.2.3]:1", Private}, // the gateway of NAT64 is another way to it
		{"acme", "[64:ff9b::10.7.7.7]:1", ""},
		{"acme", "10.7.7.7:1", Private},
		{"acme", "10.1.2.4:9092", ""},
		{"acme", "10.1.2.4:9093", Private},
		{"acme", "10.1.2.5:9092", ""},
		{"other", "10.1.2.5:9092", Private},
		{"", "10.1.2.5:9092", Private},
		{"acme", "10.0.0.5:80", Private}, // of this machine: without a port the entry does not count
		{"acme", "8.8.4.4:80", Own},
		{"acme", "8.8.8.8:80", ""},
		{"acme", "[64:ff9b::8.8.4.4]:80", Own},
		{"acme", "127.0.0.1:11434", ""},
		{"acme", "127.0.0.1:8080", Loopback},
		{"acme", "127.0.0.2:11434", Loopback},
		{"acme", "[fd00::1]:80", ""},
		{"acme", "[fd00::1%eth0]:80", Zone},
	} {
		if got := g.judge(c.tenant, netip.MustParseAddrPort(c.to)); got != c.want {
			t.Errorf("%s for %q: %q, want %q", c.to, c.tenant, got, c.want)
		}
	}
	g.own = func() ([]netip.Addr, error) { return nil, errors.New("no interfaces") }
	if got := g.judge("acme", netip.MustParseAddrPort("8.8.8.8:80")); got != Own {
		t.Errorf("with interfaces that cannot be asked: %q", got)
	}
}

func newGuard(t *testing.T, cfg Config, allowed ...string) *Guard {
	t.Helper()
	cfg.Allowed = allowed
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestTheAddressThatWasJudgedIsTheOneDialled: a DNS server answers each look-up with another address. No connection is made to
// the one that is not allowed, whichever look-up has it.
func TestTheAddressThatWasJudgedIsTheOneDialled(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	victim := serve(t, func(w http.ResponseWriter, _ *http.Request) { reached.Add(1) })
	port := portOf(t, victim)
	names := nameserver.New(t)
	registry := prometheus.NewRegistry()
	g := newGuard(t, Config{Resolver: names.Resolver(), Registerer: registry}, "127.0.0.2/32:"+port)

	names.Answer("rebind.example", "127.0.0.2", "127.0.0.1") // allowed at first, then not
	for i := range 6 {
		before := reached.Load()
		resp, err := g.Client("acme").Get("http://rebind.example:" + port + "/")
		switch r, refused := errors.AsType[*Refusal](err); {
		case err == nil:
			_ = resp.Body.Close()
			t.Fatalf("request %d: served by %v", i, resp.Status)
		case refused && (r.Reason != Loopback || r.Host != "rebind.example" || reached.Load() != before):
			t.Fatalf("request %d: %v", i, r)
		}
	}
	if reached.Load() != 0 {
		t.Errorf("%d requests reached what is not allowed", reached.Load())
	}
	if n := names.Asked("rebind.example"); n < 6 {
		t.Errorf("the name was resolved %d times for 6 requests: a request was not judged", n)
	}

	// With both in one answer the allowed one is dialled, whatever its place, and the other never.
	names.Answer("both.example", "127.0.0.1 127.0.0.2")
	if _, err := g.Client("acme").Get("http://both.example:" + port + "/"); err == nil || reached.Load() != 0 {
		t.Errorf("an answer with both: %v, %d requests reached what is not allowed", err, reached.Load())
	}

	names.Answer("inside.example", "127.0.0.1")
	_, err := g.Client("acme").Get("http://inside.example:" + port + "/")
	r, ok := errors.AsType[*Refusal](err)
	if !ok || Outcome(err) != OutcomeBlocked {
		t.Fatalf("a name of the machine itself: %v", err)
	}
	if want := "destination refused: 127.0.0.1:" + port + ", to which inside.example resolves, is a loopback address"; r.Error() != want {
		t.Errorf("%q, want %q", r, want)
	}
	if want := "if Weir is meant to connect to it, add 127.0.0.1/32:" + port + " to egress.allowed_destinations and reload"; r.Hint() != want {
		t.Errorf("%q, want %q", r.Hint(), want)
	}
	if n := testutil.ToFloat64(g.refused.WithLabelValues(string(Loopback))); n < 2 {
		t.Errorf("%v refusals are counted", n)
	}

	if err := g.SetAllowed([]string{"127.0.0.1/32:" + port}); err != nil {
		t.Fatal(err)
	}
	resp, err := g.Client("acme").Get("http://inside.example:" + port + "/")
	if err != nil || reached.Load() != 1 {
		t.Fatalf("once it is allowed: %v", err)
	}
	_ = resp.Body.Close()
}

// TestRedirectsAndProxies: neither is followed.
func TestRedirectsAndProxies(t *testing.T) {
	var reached atomic.Int64
	target := serve(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, target.URL)
	}
	redirect := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target.URL, http.StatusTemporaryRedirect)
	})
	g := newGuard(t, Config{}, "127.0.0.1/32:"+portOf(t, redirect), "127.0.0.1/32:"+portOf(t, target))
	resp, err := g.Client("").Post(redirect.URL, "text/plain", strings.NewReader("secret"))
	if err != nil || resp.StatusCode != http.StatusTemporaryRedirect || reached.Load() != 0 {
		t.Fatalf("%v, %v: a redirect was followed (%d)", resp, err, reached.Load())
	}
	_ = resp.Body.Close()
}

// TestOtherNetworks: neither a socket of the machine nor UDP is dialled.
func TestOtherNetworks(t *testing.T) {
	t.Parallel()
	g := newGuard(t, Config{}, "127.0.0.1/32:53")
	for _, network := range []string{"unix", "unixgram", "udp", "udp4", "ip4:icmp", ""} {
		conn, err := g.Dial("acme")(t.Context(), network, "127.0.0.1:53")
		if r, ok := errors.AsType[*Refusal](err); !ok || r.Reason != Network || r.Hint() != "" {
			t.Errorf("%q: %v, %v", network, conn, err)
		}
	}
}

// TestTLS: versions before 1.2 are refused, and names are verified against the roots of the CA file.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	allowed := "127.0.0.1/32:" + portOf(t, server)
	_, err := newGuard(t, Config{}, allowed).Client("").Get(server.URL)
	if Outcome(err) != OutcomeTLS {
		t.Errorf("an authority that nobody trusts: %v", err)
	}
	trusting := newGuard(t, Config{Settings: Settings{CAFile: file}}, allowed)
	if _, err := trusting.Client("").Get(server.URL); err != nil {
		t.Errorf("the authority of the CA file: %v", err)
	}

	names := nameserver.New(t)
	names.Answer("other.invalid", "127.0.0.1")
	trusting.resolver = names.Resolver()
	if _, err := trusting.Client("").Get(strings.Replace(server.URL, "127.0.0.1", "other.invalid", 1)); Outcome(err) != OutcomeTLS {
		t.Errorf("another name: %v", err)
	}

	old := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	old.StartTLS()
	t.Cleanup(old.Close)
	if err := trusting.SetAllowed([]string{"127.0.0.1/32:" + portOf(t, old)}); err != nil {
		t.Fatal(err)
	}
	if _, err := trusting.Client("").Get(old.URL); Outcome(err) != OutcomeTLS {
		t.Errorf("TLS 1.1: %v", err)
	}

	for name, content := range map[string]string{"none.pem": "", "text.pem": "no certificate"} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := New(Config{Settings: Settings{CAFile: file}}); err == nil || !strings.Contains(err.Error(), "egress.ca_file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Config{Settings: Settings{CAFile: "/no/such/file"}}); err == nil {
		t.Error("a CA file that does not exist")
	}
}

// TestOutcomes: what users see of an error does not say what is there.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	closed := loopback.Refusing(t)
	cutting := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	})
	slow := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	g := newGuard(t, Config{Resolver: nameserver.New(t).Resolver()}, "127.0.0.1/32:"+closed[strings.LastIndex(closed, ":")+1:], "127.0.0.1/32:"+portOf(t, cutting), "127.0.0.1/32:"+portOf(t, slow))
	for url, want := range map[string]string{"http://" + closed: OutcomeRefused, cutting.URL: OutcomeReset, slow.URL: OutcomeTimeout,
		"http://192.168.1.1/": OutcomeBlocked, "http://nowhere.invalid/": OutcomeUnreachable} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = g.Client("").Do(req)
		cancel()
		if got := Outcome(err); got != want && !(want == OutcomeReset && errors.Is(err, io.EOF)) {
			t.Errorf("%s: %s (%v), want %s", url, got, err, want)
		}
	}
}

// TestTheGalleryOfURLs has a row per clause about the form of a URL.
func TestTheGalleryOfURLs(t *testing.T) {
	t.Parallel()
	const host = "must name a host: letters, digits and hyphens between points, or an address"
	for _, c := range []struct{ url, wrong string }{
		{"https://api.example.com/v1", ""},
		{"https://api.example.com./v1?x=y", ""},
		{"http://10.1.2.3:11434", ""},
		{"http://[fd00::1]:11434/v1", ""},
		{"HTTPS://API.EXAMPLE.COM", ""},
		{"ftp://example.com/", "must be an absolute URL that begins with http:// or https://"},
		{"file:///etc/passwd", "must be an absolute URL that begins with http:// or https://"},
		{"//example.com/", "must be an absolute URL that begins with http:// or https://"},
		{"http:example.com", "must be an absolute URL that begins with http:// or https://"},
		{"example.com", "must be an absolute URL that begins with http:// or https://"},
		{"", "must be an absolute URL that begins with http:// or https://"},
		{"http://user@example.com/", "must not hold a user name or password"},
		{"http://user:pass@example.com/", "must not hold a user name or password"},
		{"http://@example.com/", "must not hold a user name or password"},
		{"http://example.com/#part", "must not have a fragment"},
		{"http://example.com/#", "must not have a fragment"},
		{"http://", host},
		{"http:///path", host},
		{"http://exa_mple-1.com/", ""},
		{"http://a..b/", host},
		{"http://exam%70le.com/", "must be a URL, with characters other than those of ASCII in their encoded form"},
		{"http://ex%41%2fmple.com/", "must be a URL, with characters other than those of ASCII in their encoded form"},
		{"http://bücher.example/", "must be a URL, with characters other than those of ASCII in their encoded form"},
		{"http://exa mple.com/", "must be a URL, with characters other than those of ASCII in their encoded form"},
		{"http://example.com/\r\nHost: other", "must be a URL, with characters other than those of ASCII in their encoded form"},
		{"http://example.com\\@other/", "must be a URL, with characters other than those of ASCII in their encoded form"},
		{"http://example.com:0/", "must have a port from 1 to 65535 behind the colon, or none"},
		{"http://example.com:65536/", "must have a port from 1 to 65535 behind the colon, or none"},
		{"http://example.com:/", "must have a port from 1 to 65535 behind the colon, or none"},
		{"http://[fe80::1%25eth0]/", "must not name an address with a zone"},
		{"http://" + strings.Repeat("a", 64) + ".com/", host},
		{"http://" + strings.Repeat("a.", 130) + "com/", "must name a host of at most 254 bytes"},
		{"http://example.com/" + strings.Repeat("a", 2048), "must have at most 2048 bytes"},
	} {
		if _, err := CheckURL(c.url, "http", "https"); errorText(err) != c.wrong {
			t.Errorf("%.80q: %q, want %q", c.url, errorText(err), c.wrong)
		}
	}
	for _, good := range []string{"broker.example.com:9092", "10.1.2.3:1", "[fd00::1]:65535"} {
		if host, port, err := CheckHostPort(good); err != nil || net.JoinHostPort(host, strconv.Itoa(int(port))) != good {
			t.Errorf("%s: %s %d %v", good, host, port, err)
		}
	}
	for _, bad := range []string{"", "broker", "broker:", "broker:0", "broker:99999", "broker:1/path", "user@broker:1", "tcp://broker:1", "broker:1#x", "broker:1?x", "[fe80::1%eth0]:1"} {
		if host, port, err := CheckHostPort(bad); err == nil {
			t.Errorf("%q is read as %s %d", bad, host, port)
		}
	}
}

func FuzzCheckURL(f *testing.F) {
	for _, s := range []string{"https://api.example.com/v1", "http://[fd00::1]:11434/v1", "http://user:pass@h/", "http://example.com:0/", "http://h/#", "http://a..b", "http://[::ffff:127.0.0.1]:80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := CheckURL(s, "http", "https")
		if err != nil {
			if len(s) > 12 && strings.Contains(err.Error(), s) {
				t.Fatalf("%q is repeated in %q", s, err)
			}
			return
		}
		again, err := CheckURL(u.String(), "http", "https")
		if err != nil || again.Host != u.Host || u.User != nil || u.Fragment != "" || u.Hostname() == "" {
			t.Fatalf("%q: %v, %v", s, again, err)
		}
	})
}

func FuzzParseAllowed(f *testing.F) {
	for _, s := range []string{"10.1.2.3/32", "10.1.2.3/32:9092@acme", "fd00::1/128:80", "127.0.0.1/32:1", "fe80::1%eth0/128", "::ffff:10.1.2.3/32"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := ParseAllowed([]string{s})
		if err != nil {
			return
		}
		if e := list[0]; Judge(e.addr).never() || e.addr.Zone() != "" || e.addr.Is4In6() || e.addr.IsLoopback() && e.port == 0 {
			t.Fatalf("%q allows %+v", s, e)
		}
	})
}

// FuzzJudge: an address that is allowed leads to no IPv4 address that is not, however it is wrapped.
func FuzzJudge(f *testing.F) {
	for _, b := range blocks {
		f.Add(b.prefix.Addr().AsSlice())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		if Judge(a) == "" && (a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified()) {
			t.Fatalf("%s is allowed", a)
		}
		for _, inner := range carried(a) {
			if Judge(a) == "" && Judge(inner) != "" {
				t.Fatalf("%s is allowed and leads to %s", a, inner)
			}
		}
	})
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func portOf(t *testing.T, s *httptest.Server) string {
	t.Helper()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
