// Package origin tells requests that a page of another host makes a browser send from all others.
package origin

import (
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
)

// Foreign reports whether a page of another host has sent the request, as a browser says in one header or the other; on plain http in
// Origin alone. Programs send neither. baseURL is the public URL of the instance, "" for none: its host is accepted, too, since a proxy in
// front may pass another Host.
//
// A name that somebody else may have made to resolve to this machine (DNS rebinding) is another host, too: over plain http only a name of a local network, the
// name of this machine and that of baseURL are its own. With https a page cannot be had under a foreign name, since the certificate does not have it.
func Foreign(r *http.Request, baseURL string) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return true
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return false
	}
	from, err := url.Parse(origins[0])
	if err != nil || len(origins) > 1 || from.Host == "" {
		return true
	}
	if base, err := url.Parse(baseURL); err == nil && base.Host != "" && strings.EqualFold(from.Host, base.Host) {
		return false
	}
	return !strings.EqualFold(from.Host, r.Host) || from.Scheme != "https" && !local(from.Hostname())
}

// localDomains are those that no registrar gives to a stranger: RFC 6761, RFC 6762, RFC 8375, and those that private networks use.
var localDomains = []string{"localhost", "local", "test", "internal", "home.arpa", "lan", "home", "localdomain", "intranet", "corp", "private"}

// thisMachine is the name of this machine, "" where it has none.
var thisMachine = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
})

// local reports whether a name is an address, or one that a stranger cannot make resolve to this machine.
func local(name string) bool {
	name = strings.TrimSuffix(name, ".")
	if _, err := netip.ParseAddr(name); err == nil || !strings.Contains(name, ".") || strings.EqualFold(name, thisMachine()) {
		return true
	}
	lower := strings.ToLower(name)
	return slices.ContainsFunc(localDomains, func(domain string) bool { return strings.HasSuffix(lower, "."+domain) })
}
