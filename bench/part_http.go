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

// http measures the HTTP door: connections that are kept, one request in flight on each.
func (b *bench) http(ctx context.Context) error {
	const conns = 64
	for _, events := range []int{1, 100} {
		what := "one event per POST"
		if events > 1 {
			what = fmt.Sprintf("arrays of %d events", events)
		}
		if err := b.httpLoad(ctx, what, conns, events); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

func (b *bench) httpLoad(ctx context.Context, what string, conns, events int) error {
	in, err := b.ready(ctx, "", conns, rulesPerReading)
	if err != nil {
		return err
	}
	defer in.drop()
	if err := b.quiet(ctx); err != nil { // before the connections: silent ones are closed
		return err
	}
	senders := make([]*sender, conns)
	for i := range senders {
		nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", in.ingest)
		if err != nil {
			return err
		}
		senders[i] = &sender{client: &client{Conn: nc, r: bufio.NewReader(nc)}, body: newBody(live, uint64(i)), index: i, of: conns}
		senders[i].body.token = accessToken(i)
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
	b.row(fmt.Sprintf("HTTP ingest, %d connections, %s", conns, what), perSecond(o.rate), "readings, ten rules each; server %.1f µs CPU per reading, %.2f cores; 202 p50 %s, p99 %s%s",
		o.micro, o.cpu, short(o.lat.quantile(0.5)), short(o.lat.quantile(0.99)), o.others())
	return nil
}

// posts sends one POST after the other, each with so many events.
func posts(host string, events int) pattern {
	return func(s *sender, stop *atomic.Bool) error {
		var out, payload []byte
		for !stop.Load() {
			payload = appendEvents(payload[:0], s.body, events)
			s.sent += int64(events)
			out = append(out[:0], "POST /weir/"+tenant+"/events HTTP/1.1\r\nHost: "+host+"\r\nContent-Type: application/json\r\nContent-Length: "...)
			out = append(strconv.AppendInt(out, int64(len(payload)), 10), "\r\n\r\n"...)
			began := time.Now()
			if err := s.SetDeadline(began.Add(grace)); err != nil {
				return err
			}
			if _, err := s.Write(append(out, payload...)); err != nil {
				return err
			}
			if err := s.accepted(); err != nil {
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

// accepted reads an answer, which must be 202.
func (s *sender) accepted() error {
	resp, err := http.ReadResponse(s.r, nil)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}
