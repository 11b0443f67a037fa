package delivery

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"weir/internal/guard"
)

// TestWhatAnErrorOfAConnectionMeans: one that is not a failure yet is one of the connection, in words that say nothing of what was found at the
// destination.
func TestWhatAnErrorOfAConnectionMeans(t *testing.T) {
	t.Parallel()
	refusal := &guard.Refusal{Host: "hooks.example.com", Address: netip.MustParseAddrPort("10.1.2.3:443")}
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		err     error
		outcome Outcome
		text    string
		detail  string
	}{
		{fmt.Errorf("call: %w", refusal), Blocked, "may not connect", refusal.Error()},
		{fmt.Errorf("call: %w", dial), Unreachable, "the connection was refused", dial.Error()},
		{context.DeadlineExceeded, Unreachable, "did not answer in time", ""},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, Unreachable, "the connection broke", "read"},
		{tls.RecordHeaderError{Msg: "HTTP, not TLS: s3cret"}, Unreachable, "no TLS connection", ""},
		{errors.New("what was read: s3cret"), Unreachable, "could not be reached", ""},
	} {
		f := Of(c.err)
		if f.Outcome != c.outcome || !strings.Contains(f.Text, c.text) || strings.Contains(f.Detail(), "s3cret") || !strings.Contains(f.Detail(), c.detail) || c.detail == "" && f.Detail() != "" {
			t.Errorf("%v: %s %q, detail %q", c.err, f.Outcome, f.Text, f.Detail())
		}
		if !errors.Is(f, c.err) && !errors.Is(c.err, f.Unwrap()) {
			t.Errorf("%v: the cause is lost", c.err)
		}
	}
	if f := Of(nil); f != nil {
		t.Error(f)
	}
	was := Fail(Invalid, "%d is odd", 3)
	if f := Of(fmt.Errorf("again: %w", was)); f != was || f.Text != "3 is odd" || f.Detail() != "" {
		t.Errorf("%+v", f)
	}
	if f := Connection("what no one knows", nil); f.Text != texts[guard.OutcomeUnreachable] || f.Outcome != Unreachable {
		t.Errorf("%+v", f)
	}
	if f := (&Failure{Text: "a", Cause: errors.New("made for the log"), Own: true}); f.Detail() != "made for the log" {
		t.Error(f.Detail())
	}
}

func TestOutcomesAreListed(t *testing.T) {
	t.Parallel()
	for _, o := range []Outcome{Sent, Retry, Unreachable, Invalid, Unsupported, Blocked, RateLimited} {
		if !slices.Contains(Outcomes(), o) {
			t.Error(o)
		}
	}
}
