package httpingest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"weir/command"
	"weir/ingest"
	answers "weir/ingest/response"
	"weir/internal/jsonscan"
	"weir/model"
)

// Bounds of a request for commands.
const (
	maxPollBody = 64 << 10
	maxReceived = 1000
	maxPollWait = 60 // seconds
)

// asking is the body of a request for commands.
type asking struct {
	answers.Sender
	received []string
	wait     time.Duration
}

// decodeAsking reads {"received"?: [command token, …], "wait"?: seconds} with the members of the sender in it. Unknown members are
// ignored; a known one may be given once. The text of an error is one line, fit to be sent to the device.
func decodeAsking(body []byte) (a asking, err error) {
	s := jsonscan.New(body)
	var received, wait bool
	once := func(given *bool, name string) {
		if *given {
			s.Fail("member %q is given twice", name)
		}
		*given = true
	}
	s.Object(func(name []byte) {
		switch string(name) {
		case "received":
			if once(&received, "received"); s.Null() {
				return
			}
			s.Array(func(i int) {
				token := s.String("a command token")
				switch {
				case s.Err() != nil:
				case i >= maxReceived:
					s.Fail("received may hold at most %d command tokens", maxReceived)
				case !model.ValidToken(token):
					s.Fail("received holds something that is not the token of a command")
				default:
					a.received = append(a.received, token)
				}
			})
		case "wait":
			if once(&wait, "wait"); s.Null() {
				return
			}
			seconds, err := strconv.Atoi(s.Number("wait"))
			if s.Err() == nil && (err != nil || seconds < 0 || seconds > maxPollWait) {
				s.Fail("wait must be a whole number of seconds in 0..%d", maxPollWait)
			}
			a.wait = time.Duration(seconds) * time.Second
		default:
			if !a.Member(&s, name) {
				s.Skip()
			}
		}
	})
	if err := s.End(); err != nil {
		return asking{}, err
	}
	return a, nil
}

// polled returns the tenant of a path /{instanceId}/{tenant}/commands, where commands can be fetched.
func (h *handler) polled(u *url.URL) (tenant string, ok bool) {
	names, ok := h.segmentsOf(u, 2)
	if !ok || h.polls == nil || names[1] != "commands" {
		return "", false
	}
	return names[0], true
}

// poll answers a device that asks for its commands: with one, or with 204 when there is none within the time that it waits. It is no
// message: the ledger does not have it.
func (h *handler) poll(ctx *timeout, w http.ResponseWriter, r *http.Request, tenant string) {
	d, answer := h.fetch(ctx, w, r, tenant)
	if d == nil {
		h.metrics.requests.WithLabelValues(strconv.Itoa(answer.status)).Inc()
		if answer.status == http.StatusNoContent {
			w.WriteHeader(answer.status)
			return
		}
		answer.write(w)
		return
	}
	h.metrics.requests.WithLabelValues(strconv.Itoa(http.StatusOK)).Inc()
	if err := writeJSON(w, d.Body(), "no-store"); err != nil {
		h.polls.lost(*d)
	}
}

// fetch returns the command of the device that asks, or the answer where there is none.
func (h *handler) fetch(ctx *timeout, w http.ResponseWriter, r *http.Request, tenant string) (*command.Dispatch, response) {
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		return nil, response{status: http.StatusMethodNotAllowed, text: "only POST is allowed here"}
	case !model.ValidToken(tenant):
		return nil, response{status: http.StatusBadRequest, text: "the tenant is not a valid tenant id"}
	case h.deps.Intake.TenantFull(tenant):
		return nil, overCeiling
	}
	body, err := h.readUpTo(ctx, w, r, maxPollBody)
	switch {
	case errors.Is(err, errTooLarge):
		return nil, response{status: http.StatusBadRequest, text: fmt.Sprintf("the body is larger than %d bytes", maxPollBody)}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		h.metrics.closedBefore.Inc()
		panic(http.ErrAbortHandler)
	case err != nil:
		return nil, response{status: http.StatusBadRequest, text: "the body could not be read"}
	}
	a, err := decodeAsking(body)
	if err != nil {
		return nil, response{status: http.StatusBadRequest, text: err.Error()}
	}
	proof, refused := h.deps.Intake.Identify(ctx, tenant, ingest.Credential(a.Credential), senderOf(r))
	switch {
	case refused != nil && refused.Reason == ingest.ReasonBadCredential, refused == nil && a.Device != "" && a.Device != proof.Device:
		return nil, response{status: http.StatusForbidden, text: "the credential is not that of the device"}
	case refused != nil:
		return nil, responseTo(*refused)
	}
	return h.await(ctx, w, r, proof.DeviceID, &a)
}

// await waits for a command of a device.
func (h *handler) await(ctx *timeout, w http.ResponseWriter, r *http.Request, device int64, a *asking) (*command.Dispatch, response) {
	one, err := h.polls.begin(device, slices.Compact(a.received))
	switch {
	case errors.Is(err, errTooManyPolls):
		return nil, response{status: http.StatusTooManyRequests, text: "too many requests for commands wait", retryAfter: ceilingRetry}
	case err != nil:
		return nil, response{status: http.StatusServiceUnavailable, text: "the instance is stopping"}
	}
	// The time that the device waits is not counted.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(a.wait + h.cfg.RequestTimeout))
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(a.wait + h.cfg.RequestTimeout))
	none, longest := one.none, h.cfg.RequestTimeout
	if a.wait > 0 {
		none, longest = nil, a.wait // what is ordered meanwhile is offered
	}
	over := time.NewTimer(longest)
	defer over.Stop()
	select {
	case d := <-one.got:
		h.polls.end(one)
		return &d, response{}
	case <-none:
	case <-over.C:
	case <-one.ended:
	case <-r.Context().Done():
	}
	d, ok := h.polls.end(one)
	switch {
	case !ok:
		return nil, response{status: http.StatusNoContent}
	case r.Context().Err() != nil:
		h.polls.lost(d)
		return nil, response{status: http.StatusNoContent}
	}
	return &d, response{}
}
