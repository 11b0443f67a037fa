package config

import (
	"net"
	"slices"
	"strings"
)

// ports refuses two listeners that would need one port.
func (l *loader) ports() {
	var open []key
	for _, k := range keysOf(l.root) {
		if k.of.Tag.Get("format") == "address" && k.value.String() != "" && !l.bad[k.path] && l.opens(k.path) {
			open = append(open, k)
		}
	}
	for i, k := range open {
		for _, before := range open[:i] {
			if !collide(before.value.String(), k.value.String()) {
				continue
			}
			at, other := k, before
			if len(l.given[at.path]) == 0 { // a default: the other one was chosen
				at, other = other, at
			}
			l.complain(at.path, "give each listener a port of its own", "has the port of "+other.path+", "+other.value.String())
		}
	}
}

// opens reports whether the listener of a key is opened.
func (l *loader) opens(path string) bool {
	c := l.config
	edge := c.Role == RoleEdge
	switch {
	case path == "edge.listen":
		return edge
	case edge && (path == "listeners.mqtt" || path == "broker.open_topics"):
		return false
	case path == "listeners.metrics":
		return c.Metrics.Enabled
	case path == "listeners.lwm2m", path == "listeners.lwm2m_bootstrap": // UDP: no other listener has a port of it
		return false
	case path == "listeners.mqtts" && !c.TLS.Enabled():
		return false
	case strings.HasPrefix(path, "listeners.mqtt") || path == "broker.open_topics":
		return c.Broker.Enabled
	}
	return true
}

// collide reports whether two addresses cannot both be listened on. Port 0 is any free one.
func collide(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || strings.Trim(portA, "0") == "" {
		return false
	}
	loopbacks := []string{"localhost", "127.0.0.1"}
	return hostA == hostB || open(a) || open(b) || slices.Contains(loopbacks, hostA) && slices.Contains(loopbacks, hostB)
}
