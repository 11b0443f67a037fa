package inference

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/guard"
	"weir/model"
)

// maxReply is the largest reply that is read.
const maxReply = 1 << 20

// minRemoved is the shortest secret that is taken out of texts: a shorter one is no secret and would take words apart.
const minRemoved = 8

// ask asks a provider, for a tenant or for the operator (""). What the provider says about a failure is neither returned nor logged.
func (i *Inference) ask(ctx context.Context, tenant string, p *Provider, secret string, r Request) (*Result, error) {
	release, why := i.places.enter(tenant)
	if why != nil {
		i.m.calls.WithLabelValues(outcomeBusy).Inc()
		return nil, why
	}
	defer release()
	i.m.inFlight.Inc()
	defer i.m.inFlight.Dec()
	began := i.deps.Clock()
	a, err := i.exchange(ctx, tenant, p, secret, r)
	i.m.tokens.WithLabelValues("input").Add(float64(a.input))
	i.m.tokens.WithLabelValues("output").Add(float64(a.output))
	if err != nil {
		f := newFailure(err)
		i.m.calls.WithLabelValues(f.outcome).Inc()
		i.log.Warn("an AI provider did not answer", "provider", p.Token, "tenant", tenant, "outcome", f.outcome, "status", f.status,
			"error", withoutSecret(f.detail(), secret), "took", i.deps.Clock().Sub(began).Round(time.Millisecond).String())
		return nil, f.shown(tenant, secret)
	}
	i.m.calls.WithLabelValues(outcomeAnswered).Inc()
	return &Result{Candidate: withoutSecret(a.text, secret), Model: p.Model, Provider: p.Token}, nil
}

// exchange sends a request and reads its reply.
func (i *Inference) exchange(ctx context.Context, tenant string, p *Provider, secret string, r Request) (a answer, err error) {
	protocol := protocolOf(p.Kind)
	if protocol == nil {
		return a, fmt.Errorf("inference: a provider of the kind %q, which this Weir does not have", p.Kind)
	}
	body, err := encode(protocol, p, r, i.settings.MaxOutputTokens)
	if err != nil {
		return a, err
	}
	base := protocol.base()
	if p.Endpoint != nil {
		base = *p.Endpoint
	}
	to, err := url.JoinPath(base, protocol.path())
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, i.settings.Timeout) // of the reply's body, too
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "weir")
	protocol.sign(req.Header, secret)
	resp, err := i.deps.Client(tenant).Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return a, statusError(resp.StatusCode)
	}
	reply, err := io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	switch {
	case err != nil:
		return a, err
	case len(reply) > maxReply:
		return a, errTooLarge
	case !utf8.Valid(reply):
		return a, errMalformed
	}
	return protocol.read(reply)
}

// statusError is a reply with a status other than 200.
type statusError int

func (s statusError) Error() string { return fmt.Sprintf("HTTP %d", int(s)) }

var errTooLarge = fmt.Errorf("inference: the reply has more than %d bytes", maxReply)

// failure is a request that brought no text.
type failure struct {
	outcome string // of the metrics
	status  int    // of the reply, 0 for none
	err     error
}

func newFailure(err error) *failure {
	f := &failure{err: err}
	if s, ok := errors.AsType[statusError](err); ok {
		f.outcome, f.status = outcomeStatus, int(s)
		return f
	}
	switch {
	case errors.Is(err, errTooLarge):
		f.outcome = outcomeTooLarge
	case errors.Is(err, errMalformed):
		f.outcome = outcomeMalformed
	case errors.Is(err, errEmpty):
		f.outcome = outcomeEmpty
	case errors.Is(err, context.Canceled):
		f.outcome = outcomeCanceled
	default:
		f.outcome = guard.Outcome(err)
	}
	return f
}

// text is what everybody may read of a failure.
func (f *failure) text() string {
	if f.status != 0 {
		return fmt.Sprintf("the AI provider answered with HTTP %d", f.status)
	}
	return cmp.Or(map[string]string{
		outcomeTooLarge:      "the reply of the AI provider is larger than 1 MiB",
		outcomeMalformed:     "the reply of the AI provider is not what its kind sends",
		outcomeEmpty:         "the AI provider answered without a text",
		outcomeCanceled:      "the request was canceled",
		guard.OutcomeBlocked: "Weir may not connect to the AI provider",
		guard.OutcomeTimeout: "the AI provider did not answer in time",
	}[f.outcome], "the AI provider could not be reached ("+f.outcome+")")
}

// detail is what the operator may read besides: nothing that the provider sent.
func (f *failure) detail() string {
	refusal, refused := errors.AsType[*guard.Refusal](f.err)
	switch {
	case refused && refusal.Hint() != "":
		return refusal.Error() + "; " + refusal.Hint()
	case refused:
		return refusal.Error()
	}
	// Others may quote what was read.
	if op, ok := errors.AsType[*net.OpError](f.err); ok {
		return op.Error()
	}
	if untrusted, ok := errors.AsType[*tls.CertificateVerificationError](f.err); ok {
		return untrusted.Error()
	}
	return ""
}

// shown is the error of a request: a tenant reads no more than text, the operator the detail, too.
func (f *failure) shown(tenant, secret string) error {
	e := &model.Error{Code: model.CodeUnavailable, Reason: ReasonUnreachable, Message: "unavailable: " + f.text()}
	if detail := f.detail(); tenant == "" && detail != "" {
		e.Message += ": " + withoutSecret(detail, secret)
	}
	return e
}

// withoutSecret takes a secret out of a text that the provider, or a library, wrote.
func withoutSecret(text, secret string) string {
	if len(secret) < minRemoved {
		return text
	}
	return strings.ReplaceAll(text, secret, "[secret]")
}
