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

	"weir/provision"
)

// Provisioner gives devices their credentials.
type Provisioner interface {
	// Throttled counts a request of an address and returns in how many seconds it may be repeated, 0 when it is admitted.
	Throttled(from netip.Addr) (retryAfter int)
	// Provision answers a body.
	Provision(ctx context.Context, body []byte) *provision.Reply
}

// provisions reports whether a path is /{instanceId}/provision.
func (h *handler) provisions(u *url.URL) bool {
	names, ok := h.segmentsOf(u, 1)
	return ok && h.deps.Provision != nil && names[0] == "provision"
}

// provision answers a device that has no credential yet. Nothing of the request is read before its address is admitted. It is no
// message: the ledger does not have it.
func (h *handler) provision(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	reply := h.provisionReply(ctx, w, r)
	h.metrics.requests.WithLabelValues(strconv.Itoa(reply.Status)).Inc()
	if reply.Answer == nil {
		if err := errors.Unwrap(reply); err != nil && reply.Status >= http.StatusInternalServerError {
			h.deps.Logger.Debug("a device was not provisioned", "error", err)
		}
		response{reply.Status, reply.Text, reply.RetryAfter}.write(w)
		return
	}
	_ = writeJSON(w, reply.Body(), "no-store") // the device may have disconnected: it repeats the request
}

func (h *handler) provisionReply(ctx context.Context, w http.ResponseWriter, r *http.Request) *provision.Reply {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return &provision.Reply{Status: http.StatusMethodNotAllowed, Text: "only POST is allowed here"}
	}
	if wait := h.deps.Provision.Throttled(senderOf(r)); wait > 0 {
		return &provision.Reply{Status: http.StatusTooManyRequests, Text: "too many requests", RetryAfter: wait}
	}
	body, err := h.readUpTo(ctx, w, r, provision.MaxBody)
	switch {
	case errors.Is(err, errTooLarge):
		return &provision.Reply{Status: http.StatusBadRequest, Text: fmt.Sprintf("the body is larger than %d bytes", provision.MaxBody)}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		h.metrics.closedBefore.Inc()
		panic(http.ErrAbortHandler)
	case err != nil:
		return &provision.Reply{Status: http.StatusBadRequest, Text: "the body could not be read"}
	}
	return h.deps.Provision.Provision(ctx, body)
}
