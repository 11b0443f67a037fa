package httpingest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"time"

	"weir/internal/connlimit"
)

var errTooLarge = errors.New("body too large")

// largeBody is the size from which on a body needs one of a few slots to be read.
const largeBody = 64 << 10

// readBody reads the whole body, at most MaxBody bytes. The read part is returned with an error, too. Memory grows with
// the received bytes, not with the announced length.
func (h *handler) readBody(ctx context.Context, w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return h.readUpTo(ctx, w, r, h.maxBody.Load())
}

// readUpTo is readBody with a maximum of its own.
func (h *handler) readUpTo(ctx context.Context, w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, errTooLarge
	}
	src := http.MaxBytesReader(w, r.Body, limit)
	first := int64(512)
	if r.ContentLength >= 0 {
		first = min(r.ContentLength, 8<<10)
	}
	body, err := readAll(src, make([]byte, 0, first+1), largeBody, nil)
	if err == nil && len(body) >= largeBody {
		body, err = h.readLarge(ctx, w, r, src, body, int(limit)+1)
	}
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return body, errTooLarge
	}
	return body, err
}

// readLarge reads the rest of a large body, in a slot of its source address.
func (h *handler) readLarge(ctx context.Context, w http.ResponseWriter, r *http.Request, src io.Reader, body []byte, limit int) ([]byte, error) {
	owner := sourceOf(r)
	stop := func() {
		h.metrics.largeStopped.Inc()
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // a closed connection needs none
	}
	slot := h.large.TryEnter(owner, stop)
	if slot == nil {
		h.metrics.largeWaits.Inc()
		if slot = h.large.Enter(ctx, owner, stop); slot == nil {
			return body, ctx.Err()
		}
	}
	defer slot.Leave()
	body, err := readAll(src, body, limit, slot.Arrived)
	if !slot.Complete() {
		return body, os.ErrDeadlineExceeded
	}
	return body, err
}

// sourceOf is the source address of a request: until its body is read, no more is known about its sender.
func sourceOf(r *http.Request) string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return connlimit.SourceOf(from.Addr()).String()
}

// readAll appends the rest of src to body, up to limit bytes in total. arrived, if any, is called with the size of each part.
func readAll(src io.Reader, body []byte, limit int, arrived func(int)) ([]byte, error) {
	for len(body) < limit {
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
		n, err := src.Read(body[len(body):min(cap(body), limit)])
		body = body[:len(body)+n]
		if arrived != nil {
			arrived(n)
		}
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return body, err
		}
	}
	return body, nil
}
