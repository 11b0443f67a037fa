package guard

import (
	"bytes"
	"net/netip"
	"slices"
)

// Reason is why a destination is refused.
type Reason string

// The reasons, as the metric counts them.
const (
	Private       Reason = "private"       // RFC 1918, RFC 4193, shared address space of carriers (RFC 6598)
	Loopback      Reason = "loopback"      //
	Own           Reason = "own"           // of an interface of this machine
	LinkLocal     Reason = "link_local"    // without the zone that it would need
	Metadata      Reason = "metadata"      // of a cloud's metadata service
	Multicast     Reason = "multicast"     // and broadcast
	Unspecified   Reason = "unspecified"   // 0.0.0.0/8 and ::
	Documentation Reason = "documentation" // for examples and benchmarks
	Reserved      Reason = "reserved"      // all else that is not globally reachable
	Zone          Reason = "zone"          // an address with a zone id
	Network       Reason = "network"       // neither TCP over IPv4 nor over IPv6
)

// Reasons are all of them.
func Reasons() []Reason {
	return []Reason{Private, Loopback, Own, LinkLocal, Metadata, Multicast, Unspecified, Documentation, Reserved, Zone, Network}
}

// never reports whether no entry of the operator's list helps.
func (r Reason) never() bool {
	return slices.Contains([]Reason{Metadata, Multicast, Unspecified, Zone, Network}, r)
}

// text describes a destination that is refused for the reason.
func (r Reason) text() string {
	return map[Reason]string{
		Private: "a private address", Loopback: "a loopback address", Own: "an address of this machine", LinkLocal: "a link-local address",
		Metadata: "the address of a cloud's metadata service", Multicast: "a multicast or broadcast address", Unspecified: "an unspecified address",
		Documentation: "an address for documentation or benchmarks", Reserved: "an address that is not globally reachable",
		Zone: "an address with a zone", Network: "no destination of TCP",
	}[r]
}

// block is a part of the address space. Of several that hold an address the one with the longest prefix decides.
type block struct {
	prefix netip.Prefix
	reason Reason // "": globally reachable
}

const global = Reason("")

// blocks are the IANA registries of special-purpose addresses (RFC 6890 and its updates), and the assignments that they do not
// list: multicast, and the one part of IPv6 from which unicast addresses are allocated.
var blocks = []block{
	at("0.0.0.0/0", global),
	at("0.0.0.0/8", Unspecified),
	at("10.0.0.0/8", Private),
	at("100.64.0.0/10", Private),
	at("127.0.0.0/8", Loopback),
	at("169.254.0.0/16", LinkLocal),
	at("172.16.0.0/12", Private),
	at("192.0.0.0/24", Reserved), // IETF protocol assignments
	at("192.0.0.9/32", global),   // Port Control Protocol anycast
	at("192.0.0.10/32", global),  // TURN anycast
	at("192.0.2.0/24", Documentation),
	at("192.88.99.0/24", Reserved), // 6to4 relay anycast, deprecated
	at("192.168.0.0/16", Private),
	at("198.18.0.0/15", Documentation), // benchmarks
	at("198.51.100.0/24", Documentation),
	at("203.0.113.0/24", Documentation),
	at("224.0.0.0/4", Multicast),
	at("240.0.0.0/4", Reserved),
	at("255.255.255.255/32", Multicast),

	at("::/0", Reserved), // not allocated
	at("::/128", Unspecified),
	at("::1/128", Loopback),
	at("2000::/3", global),
	at("2001::/23", Reserved), // IETF protocol assignments
	at("2001:1::1/128", global),
	at("2001:1::2/128", global),
	at("2001:1::3/128", global),
	at("2001:2::/48", Documentation), // benchmarks
	at("2001:3::/32", global),
	at("2001:4:112::/48", global),
	at("2001:20::/28", global),
	at("2001:30::/28", global),
	at("2001:db8::/32", Documentation),
	at("3fff::/20", Documentation),
	at("fc00::/7", Private),
	at("fe80::/10", LinkLocal),
	at("fec0::/10", Private), // site-local, deprecated
	at("ff00::/8", Multicast),
}

func at(prefix string, r Reason) block { return block{netip.MustParsePrefix(prefix), r} }

// metadata are addresses at which clouds answer questions about the machine, its credentials among them.
var metadata = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), // AWS, Azure, Google, DigitalOcean, OpenStack and others
	netip.MustParseAddr("169.254.170.2"),   // AWS, containers
	netip.MustParseAddr("169.254.170.23"),  // AWS, pods
	netip.MustParseAddr("169.254.169.123"), // AWS, time
	netip.MustParseAddr("169.254.169.253"), // AWS, names
	netip.MustParseAddr("169.254.0.23"),    // Tencent
	netip.MustParseAddr("169.254.42.42"),   // Scaleway
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("192.0.0.192"),     // Oracle
	netip.MustParseAddr("168.63.129.16"),   // Azure, a public address
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd00:ec2::23"),    // AWS, pods
	netip.MustParseAddr("fd20:ce::254"),    // Google
	netip.MustParseAddr("fd00:42::42"),     // Scaleway
}

// Judge returns why an address is refused unless the operator allows it, "" for one that is globally reachable. An address that
// carries IPv4 addresses is as reachable as these.
func Judge(a netip.Addr) Reason {
	if a.Zone() != "" {
		return Zone
	}
	inner := carried(a)
	if inner == nil {
		return judgeOne(a)
	}
	for _, a := range inner {
		if r := judgeOne(a); r != "" {
			return r
		}
	}
	return ""
}

func judgeOne(a netip.Addr) Reason {
	if !a.IsValid() {
		return Reserved
	}
	if slices.Contains(metadata, a) {
		return Metadata
	}
	best := block{reason: Reserved}
	for _, b := range blocks {
		if b.prefix.Contains(a) && (!best.prefix.IsValid() || b.prefix.Bits() > best.prefix.Bits()) {
			best = b
		}
	}
	return best.reason
}

// Prefixes of IPv6 addresses that lead to IPv4 addresses.
var (
	compatible = netip.MustParsePrefix("::/96")          // RFC 4291, deprecated
	nat64      = netip.MustParsePrefix("64:ff9b::/96")   // RFC 6052
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48") // RFC 8215
	sixToFour  = netip.MustParsePrefix("2002::/16")      // RFC 3056
	teredo     = netip.MustParsePrefix("2001::/32")      // RFC 4380
)

// carried returns the IPv4 addresses to which an IPv6 address leads, nil for an address that leads to itself.
func carried(a netip.Addr) []netip.Addr {
	if a.Is4In6() {
		return []netip.Addr{a.Unmap().WithZone("")}
	}
	if !a.Is6() || a.IsUnspecified() || a.IsLoopback() {
		return nil
	}
	b := a.As16()
	a = netip.AddrFrom16(b) // without its zone
	v4 := func(b []byte) netip.Addr { return netip.AddrFrom4([4]byte(b)) }
	switch {
	case compatible.Contains(a), nat64.Contains(a):
		return []netip.Addr{v4(b[12:])}
	case localNAT64.Contains(a):
		// Where the IPv4 address is depends on the prefix that the network has chosen of these (RFC 6052, section 2.2). With
		// zeros in between it can only be the last four bytes; anything else is not followed, and not globally reachable.
		if bytes.Equal(b[6:12], make([]byte, 6)) {
			return []netip.Addr{v4(b[12:])}
		}
	case sixToFour.Contains(a):
		return []netip.Addr{v4(b[2:6])}
	case teredo.Contains(a):
		return []netip.Addr{v4(b[4:8]), v4([]byte{^b[12], ^b[13], ^b[14], ^b[15]})} // the server, and the client behind its NAT
	}
	return nil
}
