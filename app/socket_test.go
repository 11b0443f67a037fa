package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/model"
)

// What has begun goes on: somebody who presses Ctrl-C must not believe that nothing was done.
func TestAnInterruptedCommandSaysThatItMayBeDone(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	c := &Client{&http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		interrupt()
		<-ctx.Done()
		return nil, ctx.Err()
	}}}}
	_, err := c.Tenants(ctx)
	e, ok := errors.AsType[*model.Error](err)
	if !ok || !errors.Is(err, context.Canceled) || !strings.Contains(e.Hint, "look before you do it again") {
		t.Errorf("got %v", err)
	}
}

func TestAPanicInACommandIsToldAndTheInstanceGoesOn(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	in := &Instance{budget: NewBudget(LeastMemory), log: slog.New(slog.NewTextHandler(&log, nil))}
	server := httptest.NewServer(in.unharmed(verb(in, func(context.Context, struct{}) (*struct{}, error) { panic("a hole") })))
	t.Cleanup(server.Close)
	c := &Client{&http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}}}}
	t.Cleanup(func() { _ = c.Close() })
	for range 2 {
		if _, err := call[struct{}](t.Context(), c, "any", struct{}{}); err == nil || !strings.Contains(err.Error(), "the log of the instance says where") {
			t.Errorf("got %v", err)
		}
	}
	if !strings.Contains(log.String(), "a hole") || !strings.Contains(log.String(), "socket_test.go") {
		t.Errorf("the log: %s", log.String())
	}
}
