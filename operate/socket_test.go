package operate

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

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
)

// What has begun goes on: a user who presses Ctrl-C must not believe that nothing was done.
func TestAnInterruptedCommandSaysThatItMayBeDone(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	c := &Client{&http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		interrupt()
		<-ctx.Done()
		return nil, ctx.Err()
	}}}}
	_, err := ListTenants.Ask(ctx, c, None{})
	e, ok := errors.AsType[*model.Error](err)
	if !ok || !errors.Is(err, context.Canceled) || !strings.Contains(e.Hint, "look before you do it again") {
		t.Errorf("got %v", err)
	}
}

func TestAPanicInACommandIsToldAndTheInstanceGoesOn(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	v := Verb[None, None]{Name: "any", running: func(*Operator, context.Context, None) (None, error) { panic("a hole") }}
	s := NewServer(&Operator{deps: Deps{Log: slog.New(slog.NewTextHandler(&log, nil)), Metrics: prometheus.NewRegistry()}}, 1<<20)
	server := httptest.NewServer(s.unharmed(v.handler(s)))
	t.Cleanup(server.Close)
	c := &Client{&http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}}}}
	t.Cleanup(func() { _ = c.Close() })
	for range 2 {
		if _, err := v.Ask(t.Context(), c, None{}); err == nil || !strings.Contains(err.Error(), "the log of the instance says where") {
			t.Errorf("got %v", err)
		}
	}
	if !strings.Contains(log.String(), "a hole") || !strings.Contains(log.String(), "socket_test.go") {
		t.Errorf("the log: %s", log.String())
	}
}
