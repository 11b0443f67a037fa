package httpingest

import (
	"context"
	"errors"
	"io"
	"net/http"
)

var errTooLarge = errors.New("body too large")

// largeBody is the size from which on a body needs one of a few slots to be read.
const largeBody = 64 << 10

// readBody reads the whole body, at most MaxBody bytes. The read part is returned with an error, too. Memory grows with
// the received bytes, not with the announced length.
func (h *handler) readBody(ctx context.Context, w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := h.maxBody.Load()
	if r.ContentLength > limit {
		return nil, errTooLarge
	}
	src := http.MaxBytesReader(w, r.Body, limit)
	first := int64(512)
	if r.ContentLength >= 0 {
		first = min(r.ContentLength, 8<<10)
	}
	body, err := readAll(src, make([]byte, 0, first+1), largeBody)
	if err == nil && len(body) >= largeBody {
		select {
		case h.large <- struct{}{}:
		default:
			h.metrics.largeWaits.Inc()
			select {
			case h.large <- struct{}{}:
			case <-ctx.Done():
				return body, ctx.Err()
			}
		}
		defer func() { <-h.large }()
		body, err = readAll(src, body, int(limit)+1)
	}
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return body, errTooLarge
	}
	return body, err
}

// readAll appends the rest of src to body, up to limit bytes in total.
func readAll(src io.Reader, body []byte, limit int) ([]byte, error) {
	for len(body) < limit {
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
		n, err := src.Read(body[len(body):min(cap(body), limit)])
		body = body[:len(body)+n]
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return body, err
		}
	}
	return body, nil
}
