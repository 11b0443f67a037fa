// Package delivery says what an attempt to deliver something to another system came to, in the same words for every protocol.
//
//	delivery.go  outcomes and failures, and failures of connections
//	http.go      requests and replies of HTTP
package delivery

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"weir/internal/guard"
)

// Outcome is what a delivery came to.
type Outcome string

// The outcomes.
const (
	Sent        Outcome = "sent"
	Retry       Outcome = "retry"        // the target has refused it, and may take it later
	Unreachable Outcome = "unreachable"  // the target did not answer; nothing is known of what it did
	Invalid     Outcome = "invalid"      // malformed, or what it needs is not there
	Unsupported Outcome = "unsupported"  // nothing delivers to the type of the target
	Blocked     Outcome = "blocked"      // Weir may not connect to the destination, or not send the secret there
	RateLimited Outcome = "rate_limited" // of a test: the tenant is over its ceiling
)

// Outcomes are all of them.
func Outcomes() []Outcome {
	return []Outcome{Sent, Retry, Unreachable, Invalid, Unsupported, Blocked, RateLimited}
}

// Failure is a delivery that failed.
type Failure struct {
	Outcome Outcome
	Text    string        // for the tenant: never what was found at the destination, and no secret
	After   time.Duration // of Retry: when the target wants the next attempt; 0: it does not say
	Tries   int           // of Retry: how often this failure is worth an attempt; 0: as often as any
	Cause   error         // for the operator's log, without secrets; nil: Text says it
	Own     bool          // Cause was made for the log and may be shown whole; others may quote what was read
}

func (f *Failure) Error() string { return f.Text }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Cause }

// Fail makes a failure.
func Fail(o Outcome, format string, args ...any) *Failure {
	return &Failure{Outcome: o, Text: fmt.Sprintf(format, args...)}
}

// FewTries is how often is tried what the target will hardly take later.
const FewTries = 2

// Of makes a failure of any error, nil of nil: an error that is no Failure is one of the connection.
func Of(err error) *Failure {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	return Connection(guard.Outcome(err), err)
}

// Connection is the failure of a connection that ended with an outcome of package guard.
func Connection(outcome string, cause error) *Failure {
	f := &Failure{Outcome: Unreachable, Text: cmp.Or(texts[outcome], texts[guard.OutcomeUnreachable]), Cause: cause}
	if outcome == guard.OutcomeBlocked {
		f.Outcome = Blocked
	}
	return f
}

// texts are what tenants read of connections that failed.
var texts = map[string]string{
	guard.OutcomeBlocked:     "Weir may not connect to the destination",
	guard.OutcomeRefused:     "the connection was refused",
	guard.OutcomeTimeout:     "the target did not answer in time",
	guard.OutcomeTLS:         "no TLS connection: the certificate is not trusted, or the other side does not speak TLS",
	guard.OutcomeReset:       "the connection broke",
	guard.OutcomeUnreachable: "the target could not be reached",
}

// Detail is what the operator may read besides Text, "" for nothing.
func (f *Failure) Detail() string {
	if f.Cause == nil {
		return ""
	}
	if f.Own {
		return f.Cause.Error()
	}
	if refusal, ok := errors.AsType[*guard.Refusal](f.Cause); ok {
		if hint := refusal.Hint(); hint != "" {
			return refusal.Error() + "; " + hint
		}
		return refusal.Error()
	}
	if op, ok := errors.AsType[*net.OpError](f.Cause); ok {
		return op.Error()
	}
	if untrusted, ok := errors.AsType[*tls.CertificateVerificationError](f.Cause); ok {
		return untrusted.Error()
	}
	return ""
}
