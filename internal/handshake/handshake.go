// Package handshake makes the TLS handshakes of HTTP listeners, and reports connections that end before the client has said who it is: no
// client is named then, and every address can cause them.
package handshake

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"weir/internal/lograte"
)

// Reason is the reason of a TLS handshake that failed.
const Reason = "tls-handshake"

// Reporter reports such connections: of each reason one a minute, with how many were not. It is safe for concurrent use.
type Reporter struct {
	// Log gets the line Message.
	Log     *slog.Logger
	Message string // such as "a connection ended before a CONNECT"
	// Show shows it to those who watch; nil: it is not shown.
	Show func(reason, text string)

	mu    sync.Mutex
	begun time.Time
	last  map[string]*lograte.Every // by reason, of which there are few
}

// Report reports a connection from an address at the listener of a name.
func (r *Reporter) Report(listener string, from netip.Addr, reason, detail string) {
	held, ok := r.allow(reason)
	if !ok {
		return
	}
	r.Log.Warn(r.Message, "listener", listener, "from", from.String(), "reason", reason, "detail", detail, "others", held)
	if r.Show == nil {
		return
	}
	text := fmt.Sprintf("from %s at listener %s: %s", from, listener, detail)
	if held > 0 {
		text += fmt.Sprintf("; %d more since the last one", held)
	}
	r.Show(reason, text)
}

func (r *Reporter) allow(reason string) (held int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.begun, r.last = time.Now(), map[string]*lograte.Every{}
	}
	if r.last[reason] == nil {
		r.last[reason] = new(lograte.Every)
	}
	return r.last[reason].Allow(time.Since(r.begun))
}

// Text says what was wrong with a TLS handshake, and what to do.
func Text(err error) string {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "the client does not speak TLS, and this listener does nothing else: connect with TLS, or to another port"
	}
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return "the client did not finish the TLS handshake"
	}
	if alert, ok := errors.AsType[*net.OpError](err); ok && alert.Op == "remote error" {
		return fmt.Sprintf("the client refused the certificate of the listener (%v): it must trust its CA and use a name that is in it; see weir doctor", alert.Err)
	}
	return fmt.Sprintf("the TLS handshake failed: %v", err)
}
