package operate

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/model"
)

// counter is a source that counts with each tick.
type counter struct {
	n      int
	tick   chan struct{}
	closed chan struct{}
}

type counted struct {
	N    int
	Text string
}

func (c *counter) Next(ctx context.Context) (counted, error) {
	select {
	case <-c.tick:
		c.n++
		return counted{N: c.n}, nil
	case <-ctx.Done():
		return counted{}, ctx.Err()
	}
}

func (c *counter) Close() { close(c.closed) }

type from struct{ From int }

var count = StreamVerb[any, counted]{Name: "count"}

// streaming serves a streaming verb; stop is the stop of the instance.
func streaming(t *testing.T, open func(context.Context, from) (source[counted], error)) (c *Client, stop func()) {
	t.Helper()
	s := &Server{o: &Operator{deps: Deps{Log: slog.New(slog.DiscardHandler)}}}
	s.streaming, s.endStreams = context.WithCancel(context.Background())
	v := StreamVerb[from, counted]{open: func(_ *Operator, ctx context.Context, q from) (source[counted], error) { return open(ctx, q) }}
	server := httptest.NewServer(v.handler(s))
	t.Cleanup(server.Close) // waits for what runs
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}
	c = &Client{&http.Client{Transport: &http.Transport{DialContext: dial}}}
	t.Cleanup(func() { _ = c.Close() })
	return c, s.endStreams
}

func TestAStreamShowsEachValueAsItComesUntilThePeerGoes(t *testing.T) {
	t.Parallel()
	src := &counter{tick: make(chan struct{}), closed: make(chan struct{})}
	c, _ := streaming(t, func(_ context.Context, q from) (source[counted], error) {
		src.n = q.From
		return src, nil
	})
	ctx, leave := context.WithCancel(t.Context())
	s, err := count.Follow(ctx, c, map[string]int{"From": 40})
	if err != nil {
		t.Fatal(err)
	}
	for want := 41; want < 44; want++ {
		src.tick <- struct{}{}
		if v, err := s.Next(ctx); err != nil || v.N != want {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	leave()
	if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-src.closed
}

func TestAStreamThatIsRefusedIsARefusal(t *testing.T) {
	t.Parallel()
	c, _ := streaming(t, func(context.Context, from) (source[counted], error) {
		return nil, &model.Error{Code: model.CodeLimitExceeded, Message: "too many", Hint: "come later"}
	})
	_, err := count.Follow(t.Context(), c, struct{}{})
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeLimitExceeded || e.Hint != "come later" {
		t.Error(err)
	}
	if _, err := count.Follow(t.Context(), c, map[string]int{"Frm": 1}); model.CodeOf(err) != model.CodeInvalidInput {
		t.Error(err)
	}
	resp, err := c.http.Get("http://weir/v1/count")
	if err != nil {
		t.Fatal(err)
	}
	if _ = resp.Body.Close(); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Error(resp.Status)
	}
}

func TestAStopEndsAStreamThatWaits(t *testing.T) {
	t.Parallel()
	src := &counter{tick: make(chan struct{}), closed: make(chan struct{})}
	c, stop := streaming(t, func(context.Context, from) (source[counted], error) { return src, nil })
	s, err := count.Follow(t.Context(), c, struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if _, err := s.Next(t.Context()); !errors.Is(err, ErrStreamEnded) {
		t.Error(err)
	}
	<-src.closed
}

// flood is a source of values that no socket takes at once.
type flood struct{ began, closed chan struct{} }

func (f *flood) Next(context.Context) (counted, error) {
	close(f.began)
	return counted{1, strings.Repeat("x", 64<<20)}, nil
}

func (f *flood) Close() { close(f.closed) }

// A terminal that stands still holds its stream up, and neither the instance nor its stop.
func TestAStopEndsAStreamWhosePeerReadsNothing(t *testing.T) {
	t.Parallel()
	src := &flood{began: make(chan struct{}), closed: make(chan struct{})}
	c, stop := streaming(t, func(context.Context, from) (source[counted], error) { return src, nil })
	s, err := count.Follow(t.Context(), c, struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	<-src.began
	stop()
	select {
	case <-src.closed:
	case <-time.After(20 * time.Second):
		t.Error("the stream holds the stop up")
	}
}
