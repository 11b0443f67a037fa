package guard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
)

// Refusal is the error of a connection that the guard did not make. Its text is for the operator: users are shown Outcome.
type Refusal struct {
	Reason  Reason
	Host    string         // as it was asked for: a name or an address
	Address netip.AddrPort // that would have been dialled; zero when there was none
}

func (r *Refusal) Error() string {
	if !r.Address.IsValid() {
		return fmt.Sprintf("destination refused: %s is %s", r.Host, r.Reason.text())
	}
	named := ""
	if r.Host != "" && r.Host != r.Address.Addr().String() {
		named = ", to which " + shortened(r.Host) + " resolves,"
	}
	return fmt.Sprintf("destination refused: %s%s is %s", r.Address, named, r.Reason.text())
}

// Hint says what the operator can do about it, "" when there is nothing.
func (r *Refusal) Hint() string {
	if r.Reason.never() || !r.Address.IsValid() {
		return ""
	}
	a := r.Address.Addr()
	return fmt.Sprintf("if Weir is meant to connect to it, add %s/%d:%d to egress.allowed_destinations and reload", a, a.BitLen(), r.Address.Port())
}

// Outcomes of a connection that failed, as users may see them: they say nothing about what is there.
const (
	OutcomeBlocked     = "blocked"     // by the guard
	OutcomeRefused     = "refused"     // nothing listens
	OutcomeTimeout     = "timeout"     //
	OutcomeTLS         = "tls"         // no agreement, or a certificate that is not trusted
	OutcomeReset       = "reset"       // the connection broke
	OutcomeUnreachable = "unreachable" // no such name, no route, anything else
)

// Outcome returns what users may see of an error of a connection.
func Outcome(err error) string {
	if _, ok := errors.AsType[*Refusal](err); ok {
		return OutcomeBlocked
	}
	if timeout, ok := errors.AsType[net.Error](err); errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || ok && timeout.Timeout() {
		return OutcomeTimeout
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return OutcomeRefused
	case ofTLS(err):
		return OutcomeTLS
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return OutcomeReset
	}
	return OutcomeUnreachable
}

func ofTLS(err error) bool {
	_, record := errors.AsType[tls.RecordHeaderError](err)
	op, _ := errors.AsType[*net.OpError](err)
	alert := op != nil && (op.Op == "remote error" || op.Op == "local error") // how crypto/tls names its alerts
	_, verification := errors.AsType[*tls.CertificateVerificationError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	return record || alert || verification || authority || host
}
