package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// http measures the HTTP transport: connections that are kept, one request in flight on each.
func (b *bench) http(ctx context.Context) error {
	const conns = 64
	for _, c := range []struct {
		events int
		what   string
		goal   goal
	}{
		{1, "one event per POST", atLeast(15_000, 30_000, perSecond)},
		{100, "arrays of 100 events", atLeast(60_000, 150_000, perSecond)},
	} {
		if err := b.httpLoad(ctx, c.what, conns, c.events, c.goal); err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
	}
	return nil
}

func (b *bench) httpLoad(ctx context.Context, what string, conns, events int, g goal) error {
	in, err := b.ready(ctx, setup{devices: conns, rules: rulesPerReading})
	if err != nil {
		return err
	}
	defer in.drop()
	if err := b.quiet(ctx); err != nil { // before the connections: silent ones are closed
		return err
	}
	senders := make([]*sender, conns)
	for i := range senders {
		if senders[i], err = in.poster(ctx, i); err != nil {
			return err
		}
	}
	defer closeAll(senders)
	defer b.perf(ctx, fmt.Sprintf("http-%d", events), in.pid())()
	o, err := b.drive(ctx, in.pid(), senders, posts(in.ingest, events), nil)
	if err != nil {
		return err
	}
	if err := in.verify(ctx, kept{readings: o.acked, sum: o.sum, edges: o.edges, rules: true}); err != nil {
		return err
	}
	b.judged(g, fmt.Sprintf("HTTP ingest, %d connections, %s", conns, what), o.rate, "readings, ten rules each; server %.1f µs CPU per reading, %.2f cores; 202 p50 %s, p99 %s%s",
		o.micro, o.cpu, short(o.lat.quantile(0.5)), short(o.lat.quantile(0.99)), o.others())
	return nil
}

// poster is a connection on which the i-th device posts.
func (in *instance) poster(ctx context.Context, i int) (*sender, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", in.ingest)
	if err != nil {
		return nil, err
	}
	s := &sender{client: &client{Conn: nc, r: bufio.NewReader(nc)}, body: newBody(live, uint64(i)), index: i}
	s.body.token = accessToken(i)
	return s, nil
}

// posts sends one POST after the other, each with so many events.
func posts(host string, events int) pattern {
	return func(s *sender, stop *atomic.Bool) error {
		var payload []byte
		for !stop.Load() {
			payload = appendEvents(payload[:0], s.body, events)
			s.sent += int64(events)
			began := time.Now()
			if err := s.post(host, payload); err != nil {
				return err
			}
			if s.timed.Load() {
				s.lat.add(time.Since(began), 1)
			}
			s.acked.Add(int64(events))
		}
		return nil
	}
}

func appendEvents(out []byte, b *body, events int) []byte {
	if events == 1 {
		return b.append(out)
	}
	out = append(out, '[')
	for i := range events {
		if i > 0 {
			out = append(out, ',')
		}
		out = b.append(out)
	}
	return append(out, ']')
}

// statusError is an answer that is not 202.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return fmt.Sprintf("%d: %s", e.code, e.text) }

// post sends a body and waits for 202.
func (s *sender) post(host string, payload []byte) error {
	s.out = append(s.out[:0], "POST /weir/"+tenant+"/events HTTP/1.1\r\nHost: "+host+"\r\nContent-Type: application/json\r\nContent-Length: "...)
	s.out = append(strconv.AppendInt(s.out, int64(len(payload)), 10), "\r\n\r\n"...)
	s.out = append(s.out, payload...)
	if err := s.patient(time.Now()); err != nil {
		return err
	}
	if _, err := s.Write(s.out); err != nil {
		return err
	}
	resp, err := http.ReadResponse(s.r, nil)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusAccepted {
		err = &statusError{resp.StatusCode, string(text)}
	}
	return err
}
