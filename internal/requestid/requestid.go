// Package requestid gives every HTTP request a name that its answer, its log lines and the caller share.
package requestid

import (
	"context"
	"crypto/rand"
	"net/http"
)

// Header carries the id in both directions.
const Header = "X-Weir-Request-Id"

const maxLen = 64

type key struct{}

// From returns the id of the request that ctx belongs to, "" outside of one.
func From(ctx context.Context) string {
	id, _ := ctx.Value(key{}).(string)
	return id
}

// With returns a context that carries id.
func With(ctx context.Context, id string) context.Context { return context.WithValue(ctx, key{}, id) }

// New returns an id that was not used before.
func New() string { return rand.Text() }

// Valid reports whether s may be echoed: [A-Za-z0-9._-]{1,64}. Anything else could break a log line or a header.
func Valid(s string) bool {
	if len(s) == 0 || len(s) > maxLen {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// Ensure returns the request with an id in its context and writes the id to the answer's headers: the one it already
// has, else the caller's if valid, else a new one.
func Ensure(w http.ResponseWriter, r *http.Request) *http.Request {
	if From(r.Context()) != "" {
		return r
	}
	id := r.Header.Get(Header)
	if !Valid(id) {
		id = New()
	}
	w.Header().Set(Header, id)
	return r.WithContext(With(r.Context(), id))
}

// Handler gives every request that reaches next an id.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, Ensure(w, r)) })
}
