package connlimit

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
)

// HeaderSlack is what net/http adds to http.Server.MaxHeaderBytes before it refuses a request.
const HeaderSlack = 4 << 10

// Guard has the server report to the limit what its connections do. It wraps the server's handler and hooks, and must be called
// once, after they are set and before the server serves.
func (l *Limit) Guard(s *http.Server) {
	s.Handler = guarded(s.Handler)
	connContext, connState := s.ConnContext, s.ConnState
	s.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		if connContext != nil {
			ctx = connContext(ctx, nc)
		}
		return context.WithValue(ctx, connKey{}, connOf(nc))
	}
	s.ConnState = func(nc net.Conn, state http.ConnState) {
		if c := connOf(nc); c != nil {
			c.reached(state)
		}
		if connState != nil {
			connState(nc, state)
		}
	}
}

// Keep marks the connection of a request's context as busy until it closes: a WebSocket whose client has signed in.
func Keep(ctx context.Context) {
	if c := connFrom(ctx); c != nil {
		c.keep()
	}
}

type connKey struct{}

func connFrom(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// connOf returns the connection below TLS, nil when it is none of a limit.
func connOf(nc net.Conn) *conn {
	if secure, ok := nc.(*tls.Conn); ok {
		nc = secure.NetConn()
	}
	c, _ := nc.(*conn)
	return c
}

// reached notes a state that the server reports.
func (c *conn) reached(state http.ConnState) {
	c.idle.Store(state == http.StateIdle)
	switch state {
	case http.StateIdle:
		c.endBody()
		c.rest()
	case http.StateHijacked: // busy only once Keep says so
		c.rest()
	}
}

func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := connFrom(r.Context()); c != nil {
			if r.Body == http.NoBody {
				c.work()
			} else {
				c.beginBody()
				own := r.Body
				r.Body = &body{own, c}
				// The server asks its own body whether all of it was read: where not, it gives the client time to read the
				// answer before it closes the connection.
				defer func() { r.Body = own }()
			}
		}
		next.ServeHTTP(w, r)
	})
}

// body notes when a request has arrived completely.
type body struct {
	io.ReadCloser
	conn *conn
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF { //nolint:errorlint // a reader returns it as it is
		b.conn.endBody()
		b.conn.work()
	}
	return n, err
}
