package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"
)

// Listener is a listener of the configuration.
type Listener struct {
	Key     string // of the configuration: listeners.mqtt
	Address string // "" when it is closed
	TLS     bool   // its traffic cannot be read on the network
}

// PortsFree checks, when no instance runs, that every listener could be opened.
func PortsFree(ls []Listener) Check {
	return Check{"ports", func(context.Context) Finding {
		var told, bad []string
		for _, l := range opened(ls) {
			told = append(told, l.Address)
			conn, err := net.Listen("tcp", l.Address)
			if err == nil {
				err = conn.Close()
			}
			if err != nil {
				bad = append(bad, fmt.Sprintf("%s %s: %v", l.Key, l.Address, reason(err)))
			}
		}
		switch {
		case len(told) == 0:
			return Warn("give an address under listeners", "no listener is configured")
		case len(bad) > 0:
			return Fail("stop what has the port (ss -ltnp shows it), or choose another one under listeners", "%s", strings.Join(bad, "; "))
		}
		return Good("%s are free", strings.Join(told, ", "))
	}}
}

// reason is the end of a network error: the message of the system.
func reason(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// PortsAnswer checks that every listener of a running instance accepts connections.
func PortsAnswer(ls []Listener) Check {
	return Check{"ports", func(ctx context.Context) Finding {
		var told, bad []string
		for _, l := range opened(ls) {
			told = append(told, l.Address)
			d := net.Dialer{Timeout: time.Second}
			conn, err := d.DialContext(ctx, "tcp", l.Address)
			if err == nil {
				err = conn.Close()
			}
			if err != nil {
				bad = append(bad, fmt.Sprintf("%s %s: %v", l.Key, l.Address, reason(err)))
			}
		}
		if len(bad) > 0 {
			return Fail("the log has the reason; a restart opens it again", "%s", strings.Join(bad, "; "))
		}
		return Good("%s answer", strings.Join(told, ", "))
	}}
}

// Exposure warns of listeners without TLS that are open on every interface.
func Exposure(ls []Listener) Check {
	return Check{"exposure", func(context.Context) Finding {
		var open []string
		for _, l := range opened(ls) {
			if host, _, err := net.SplitHostPort(l.Address); err == nil && everywhere(host) && !l.TLS {
				open = append(open, l.Key)
			}
		}
		if len(open) > 0 {
			return Warn("what it carries can be read on the network: bind it to one address, or open those that speak TLS in its place (tls.cert_file)",
				"on every interface without TLS: %s", strings.Join(open, ", "))
		}
		return Good("no listener without TLS is open on every interface")
	}}
}

func everywhere(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

func opened(ls []Listener) []Listener {
	var out []Listener
	for _, l := range ls {
		if l.Address != "" {
			out = append(out, l)
		}
	}
	return out
}

// DeviceAuth warns when any client may send in a device's name.
func DeviceAuth(mode string) Check {
	return Check{"device-auth", func(context.Context) Finding {
		if mode == "disabled" {
			return Warn("set auth.device_auth_mode to required", "auth.device_auth_mode is disabled: every client that reaches a listener can send as any device")
		}
		return Good("auth.device_auth_mode is %s", mode)
	}}
}
