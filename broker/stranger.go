package broker

import (
	"bufio"
	"fmt"
	"net/netip"

	"weir/internal/handshake"
)

// silentReason is a connection that closes without a byte: that is how load balancers and monitors look whether a port is open.
const silentReason = "closed-before-connect"

// newUnnamed reports connections that end before a CONNECT.
func (b *Broker) newUnnamed() *handshake.Reporter {
	r := &handshake.Reporter{Log: b.log, Message: "a connection ended before a CONNECT"}
	if b.deps.Refused != nil {
		r.Show = func(why, text string) { b.deps.Refused("", "", why, text) }
	}
	return r
}

// reportStranger shows a connection that ended before a CONNECT in the log and to those who watch.
func (b *Broker) reportStranger(listener string, from netip.Addr, why, detail string) {
	if why == silentReason {
		return
	}
	if detail == "" {
		detail = "no CONNECT arrived"
	}
	b.strangers.Report(listener, from, why, detail)
}

// strangerText says what a client speaks instead of MQTT, by its first byte.
func strangerText(in *bufio.Reader, secure bool) string {
	first, err := in.Peek(1)
	if err != nil {
		return ""
	}
	switch c := first[0]; {
	case c == 0x16 && !secure: // a record of the TLS handshake, RFC 8446 section 5.1
		return "the client speaks TLS, and this listener does not: connect without TLS, or to the port of mqtts"
	case c >= 'A' && c <= 'Z':
		return "the client speaks HTTP, and this listener MQTT: the ports of HTTP are other ones, see weir status"
	}
	return fmt.Sprintf("the client does not begin with a CONNECT: the first byte is 0x%02x", first[0])
}
