package guard

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxAllowed is the maximum number of entries.
const maxAllowed = 1000

// allowList are destinations that the operator allows although they are not globally reachable.
type allowList []allowance

// allowance is an address, where it is narrowed with a port and a tenant.
type allowance struct {
	addr   netip.Addr
	port   uint16 // 0: every port
	tenant string // "": every tenant, and the instance itself
}

// has reports whether an entry allows a destination. One of this machine needs an entry with its port.
func (l allowList) has(tenant string, to netip.AddrPort, own bool) bool {
	return slices.ContainsFunc(l, func(e allowance) bool {
		return e.addr == to.Addr().Unmap() && (e.port == to.Port() || e.port == 0 && !own) && (e.tenant == "" || e.tenant == tenant)
	})
}

// tenantPattern is what a tenant is called.
var tenantPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// ParseAllowed reads the entries of egress.allowed_destinations. The error names the first entry that is wrong, and what it
// should be.
func ParseAllowed(entries []string) (list allowList, err error) {
	if len(entries) > maxAllowed {
		return nil, fmt.Errorf("%d destinations are more than %d", len(entries), maxAllowed)
	}
	for _, text := range entries {
		e, why := parseAllowance(text)
		if why != "" {
			return nil, fmt.Errorf("%q %s", shortened(text), why)
		}
		list = append(list, e)
	}
	return list, nil
}

// parseAllowance returns what is wrong with an entry, "" for nothing.
func parseAllowance(text string) (e allowance, why string) {
	rest, tenant, narrowed := strings.Cut(text, "@")
	if narrowed && !tenantPattern.MatchString(tenant) {
		return e, "must name a tenant behind the @"
	}
	addr, bits, ok := strings.Cut(rest, "/")
	a, err := netip.ParseAddr(addr)
	if err != nil || a.Zone() != "" {
		return e, "must be a single address such as 10.1.2.3/32 or fd00::1/128, without a name or a zone"
	}
	a = a.Unmap()
	single := strconv.Itoa(a.BitLen())
	bits, port, ported := strings.Cut(bits, ":")
	if !ok || bits != single && strings.Trim(bits, "0123456789") == "" {
		return e, "must be a single address, written " + a.String() + "/" + single
	}
	if bits != single {
		return e, "must be an address, its /" + single + ", and where it is narrowed a port and a tenant: " + a.String() + "/" + single + ":9092@acme"
	}
	e = allowance{addr: a, tenant: tenant}
	if ported {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '0' {
			return e, "must have a port from 1 to 65535 behind the colon"
		}
		e.port = uint16(n)
	}
	switch reason := Judge(a); {
	case reason.never():
		return e, "is " + reason.text() + ", which cannot be allowed"
	case reason == Loopback && e.port == 0:
		return e, "is an address of this machine and needs a port: " + a.String() + "/" + single + ":11434"
	}
	return e, ""
}

// shortened bounds a text that a message shows.
func shortened(text string) string {
	const limit = 80
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
