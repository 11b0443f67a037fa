package httpingest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"weir/ingest"
	"weir/model"
)

// Reasons of the ledger that only this transport has.
const (
	// ReasonBadTenant: the tenant does not match the token pattern.
	ReasonBadTenant ingest.Reason = "bad-tenant"
	// ReasonBadDevice: the device in the path does not match the token pattern.
	ReasonBadDevice ingest.Reason = "bad-device"
	// ReasonUnreadable: the body could not be read completely.
	ReasonUnreadable ingest.Reason = "unreadable"
)

// response is the answer to a request. text is one line; 202 has none.
type response struct {
	status     int
	text       string
	retryAfter int // seconds, 0 for none
}

// ServeHTTP checks in this order: path, the tenant's ceiling, body, and then the intake, which charges the readings to
// the ceiling before it checks backpressure, so that 429 takes precedence over 503.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began(r)
	now := time.Now()
	ctx := &timeout{Context: r.Context(), ends: now.Add(h.cfg.RequestTimeout)}
	defer ctx.stop()
	if h.provisions(r.URL) {
		h.provision(ctx, w, r)
		return
	}
	if tenant, ok := h.polled(r.URL); ok {
		h.poll(ctx, w, r, tenant)
		return
	}
	if tenant, device, ok := h.attributesOf(r.URL); ok {
		h.readAttributes(ctx, w, r, tenant, device)
		return
	}
	h.received.Add(1)
	answer := h.serve(ctx, w, r)
	if answer.status == http.StatusAccepted {
		h.metrics.accepted.Inc()
		h.last.Store(now.UnixNano())
	} else {
		h.refused.Add(1)
		h.metrics.requests.WithLabelValues(strconv.Itoa(answer.status)).Inc()
	}
	answer.write(w)
}

func (h *handler) serve(ctx context.Context, w http.ResponseWriter, r *http.Request) response {
	to, ok := h.addressOf(r.URL)
	tenant := to.tenant
	switch {
	case !ok:
		return response{status: http.StatusNotFound, text: "no such path"}
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		return response{status: http.StatusMethodNotAllowed, text: "only POST is allowed here"}
	case !model.ValidToken(tenant):
		return h.refuse("", int(max(r.ContentLength, 0)), ReasonBadTenant, response{http.StatusBadRequest, "the tenant is not a valid tenant id", 0})
	case to.ofDevice() && !model.ValidToken(to.device):
		return h.refuse(tenant, int(max(r.ContentLength, 0)), ReasonBadDevice, response{http.StatusBadRequest, "the device is not a valid device token", 0})
	case h.deps.Intake.TenantFull(tenant):
		return h.refuse(tenant, int(max(r.ContentLength, 0)), ingest.ReasonCeiling, overCeiling)
	}
	body, err := h.readBody(ctx, w, r)
	if err != nil {
		return h.bodyFailed(tenant, len(body), err)
	}
	if to.ofDevice() {
		return h.one(ctx, h.fromDevice(r, to, body))
	}
	if to.answers {
		a := h.arrival(senderOf(r), tenant, body)
		a.Answers = true
		return h.one(ctx, a)
	}
	events, err := ingest.SplitArray(body, h.cfg.MaxEvents)
	switch {
	case err == nil && events == nil:
		return h.one(ctx, h.event(r, tenant, body))
	case err != nil:
		return h.refuse(tenant, len(body), ingest.ReasonUndecodable, response{http.StatusBadRequest, err.Error(), 0})
	}
	return h.all(ctx, r, tenant, events)
}

// address is what a path names.
type address struct {
	tenant, device string
	flat           bool // the body is flat, and of the device
	reports        bool // the body is a report of the device
	answers        bool // the body is the answer of a device to a command
}

// ofDevice reports whether the path names the device.
func (a *address) ofDevice() bool { return a.flat || a.reports }

// addressOf returns what /{instanceId}/{tenant}/events, /{instanceId}/{tenant}/devices/{device}/telemetry,
// /{instanceId}/{tenant}/device-reports/{device} or, where commands can be fetched, /{instanceId}/{tenant}/command-responses names. The path is split before it is unescaped: an escaped slash is part of a name
// and never separates segments.
func (h *handler) addressOf(u *url.URL) (a address, ok bool) {
	path := u.Path
	if u.RawPath != "" { // the path contains escapes that matter
		path = u.EscapedPath()
	}
	parts := strings.Split(path, "/")
	switch {
	case len(parts) == 4 && parts[3] == "events":
	case len(parts) == 6 && parts[3] == "devices" && parts[5] == "telemetry":
		a.device, a.flat = parts[4], true
	case len(parts) == 5 && parts[3] == "device-reports":
		a.device, a.reports = parts[4], true
	case len(parts) == 4 && parts[3] == "command-responses" && h.polls != nil:
		a.answers = true
	default:
		return a, false
	}
	instance := parts[1]
	a.tenant = parts[2]
	if u.RawPath != "" {
		var err error
		for _, name := range []*string{&instance, &a.tenant, &a.device} {
			if *name, err = url.PathUnescape(*name); err != nil {
				return a, false
			}
		}
	}
	return a, parts[0] == "" && instance == h.cfg.InstanceID
}

// segmentsOf returns the n segments of a path behind /{instanceId}/, unescaped: an escaped slash is part of a name and never
// separates segments. It is not ok for a path of another number of segments, or of another instance.
func (h *handler) segmentsOf(u *url.URL, n int) (segments []string, ok bool) {
	segments = strings.Split(u.EscapedPath(), "/")
	if len(segments) != n+2 {
		return nil, false
	}
	for i := range segments {
		var err error
		if segments[i], err = url.PathUnescape(segments[i]); err != nil {
			return nil, false
		}
	}
	return segments[2:], segments[0] == "" && segments[1] == h.cfg.InstanceID
}

// writeJSON answers 200 with a document. caching is the Cache-Control of the answer.
func writeJSON(w http.ResponseWriter, document []byte, caching string) error {
	body := append(document, '\n')
	head := w.Header()
	head.Set("Content-Type", "application/json")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Cache-Control", caching)
	head.Set("Content-Length", strconv.Itoa(len(body)))
	_, err := w.Write(body)
	return err
}

// refuse counts a message that does not become an arrival.
func (h *handler) refuse(tenant string, bytes int, reason ingest.Reason, answer response) response {
	h.deps.Intake.Refuse(h.deps.Intake.Received(ingest.TransportHTTP, h.cfg.Source, tenant, bytes), reason)
	return answer
}

// bodyFailed answers a request with an incomplete body. After the request timeout it closes the connection without an
// answer and counts it.
func (h *handler) bodyFailed(tenant string, read int, err error) response {
	switch {
	case errors.Is(err, errTooLarge):
		return h.refuse(tenant, read, ingest.ReasonTooLarge,
			response{http.StatusBadRequest, fmt.Sprintf("the body is larger than %d bytes", h.maxBody.Load()), 0})
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		h.metrics.closedBefore.Inc()
		h.refuse(tenant, read, ReasonUnreadable, response{})
		panic(http.ErrAbortHandler)
	}
	return h.refuse(tenant, read, ReasonUnreadable, response{http.StatusBadRequest, "the body could not be read", 0})
}

func (h *handler) arrival(from netip.Addr, tenant string, body []byte) *ingest.Arrival {
	return &ingest.Arrival{Transport: ingest.TransportHTTP, Source: h.cfg.Source, Tenant: tenant, From: from, Body: body}
}

// event is the arrival of an event.
func (h *handler) event(r *http.Request, tenant string, body []byte) *ingest.Arrival {
	a := h.arrival(senderOf(r), tenant, body)
	if h.cfg.Basic {
		a.Credential, a.Fault = credentialOf(r.Header)
	}
	return a
}

// senderOf is the address of the sender; the zero Addr on a listener that has no such addresses.
func senderOf(r *http.Request) netip.Addr {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	return from.Addr()
}

// fromDevice is the arrival of a flat body or a device report: the path names the device, and the header holds its credential.
func (h *handler) fromDevice(r *http.Request, to address, body []byte) *ingest.Arrival {
	a := h.arrival(senderOf(r), to.tenant, body)
	a.Topic, a.Flat, a.Reports = to.device, to.flat, to.reports
	a.Credential, a.Fault = credentialOf(r.Header)
	return a
}

func (h *handler) one(ctx context.Context, a *ingest.Arrival) response {
	answered := make(chan ingest.Answer, 1)
	h.deps.Intake.Accept(ctx, a, func(a ingest.Answer) { answered <- a })
	return responseTo(<-answered)
}

func (h *handler) all(ctx context.Context, r *http.Request, tenant string, events [][]byte) response {
	arrivals := make([]*ingest.Arrival, len(events))
	for i, e := range events {
		arrivals[i] = h.event(r, tenant, e)
	}
	type about struct {
		ingest.Answer
		index int
	}
	answered := make(chan about, 1)
	h.deps.Intake.AcceptAll(ctx, arrivals, func(a ingest.Answer, index int) { answered <- about{a, index} })
	a := <-answered
	answer := responseTo(a.Answer)
	if answer.status != http.StatusAccepted && a.index >= 0 {
		answer.text = fmt.Sprintf("event %d: %s", a.index, answer.text)
	}
	return answer
}

const (
	ceilingRetry      = 1 // seconds
	backpressureRetry = 10
)

var overCeiling = response{http.StatusTooManyRequests, "the tenant is over its ingest ceiling", ceilingRetry}

// responseTo converts an answer of the intake. An outcome without a status of its own is 503 without Retry-After.
func responseTo(a ingest.Answer) response {
	if a.Outcome == ingest.Stored {
		return response{status: http.StatusAccepted}
	}
	answer := response{http.StatusServiceUnavailable, "the event could not be stored", 0}
	if a.Outcome == ingest.Refused {
		switch a.Reason {
		case ingest.ReasonUndecodable, ingest.ReasonTooManyReadings, ingest.ReasonTooLarge, ingest.ReasonNotAuthorized:
			answer = response{http.StatusBadRequest, "the event was refused: " + string(a.Reason), 0}
		case ingest.ReasonCeiling:
			answer = overCeiling
		case ingest.ReasonUnauthenticated:
			answer = response{http.StatusTooManyRequests, "too many requests", ceilingRetry}
		case ingest.ReasonThrottled:
			answer = response{http.StatusTooManyRequests, "too many wrong passwords", max(a.RetryAfter, ceilingRetry)}
		case ingest.ReasonBusy:
			answer = response{http.StatusServiceUnavailable, "too many credentials are being checked", ceilingRetry}
		case ingest.ReasonBackpressure:
			answer = response{http.StatusServiceUnavailable, "the platform is behind, nothing was stored", backpressureRetry}
		}
	}
	if a.Text != "" {
		answer.text = a.Text
	}
	return answer
}

// write writes the response: 202 with an empty body, any other status with one line of plain text.
func (a response) write(w http.ResponseWriter) {
	head := w.Header()
	if a.retryAfter > 0 {
		head.Set("Retry-After", strconv.Itoa(a.retryAfter))
	}
	if a.status == http.StatusAccepted {
		head.Set("Content-Length", "0")
		w.WriteHeader(a.status)
		return
	}
	line := oneLine(a.text) + "\n"
	head.Set("Content-Type", "text/plain; charset=utf-8")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Content-Length", strconv.Itoa(len(line)))
	w.WriteHeader(a.status)
	_, _ = w.Write([]byte(line)) // the client may have disconnected
}

const maxLine = 500

// oneLine limits a text to one short line of printable characters, because it may quote the sender.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return ' '
		}
		return r
	}, s)
	if len(s) > maxLine {
		s = strings.ToValidUTF8(s[:maxLine], "")
	}
	return s
}
