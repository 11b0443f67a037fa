package main

import (
	"context"
	"fmt"
	"strings"
)

// shape is a load of QoS 1 in a closed loop.
type shape struct {
	conns, window int
	split         bool // one PUBLISH per write
}

func (s shape) String() string {
	text := fmt.Sprintf("%d clients × %d in flight", s.conns, s.window)
	if s.split {
		text += ", one PUBLISH per write"
	}
	return text
}

// pubacks measures how fast readings are acknowledged: Weir after they are on the disk, mosquitto at once, NATS on the disk
// as well. The lower ratio of both ways to write counts.
func (b *bench) pubacks(ctx context.Context) error {
	for _, c := range []struct {
		conns           int
		mosquitto, nats goal
	}{
		{50, atLeast(1.2, 3, times), atLeast(20, 60, times)},
		{500, atLeast(1.5, 4, times), atLeast(20, 60, times)},
	} {
		least := map[string]float64{}
		for _, split := range []bool{false, true} {
			s := shape{c.conns, 20, split}
			ratios, err := b.puback(ctx, s)
			if err != nil {
				return fmt.Errorf("%v: %w", s, err)
			}
			for name, r := range ratios {
				if before, ok := least[name]; !ok || r < before {
					least[name] = r
				}
			}
		}
		b.ratio(c.mosquitto, least, "mosquitto", "which keeps nothing", c.conns)
		b.ratio(c.nats, least, "NATS", "with JetStream and a sync for each acknowledgement", c.conns)
	}
	return nil
}

func (b *bench) ratio(g goal, least map[string]float64, name, about string, conns int) {
	what := fmt.Sprintf("PUBACKs over those of %s, %d clients × 20", name, conns)
	if r, ok := least[name]; ok {
		b.judged(g, what, r, "%s; the lower ratio of the two ways to write", about)
		return
	}
	b.row(what, "not measured", "%s cannot be had or broke off", name)
}

// puback drives one shape into all servers in turn, and again, and returns the ratios to the others by their names.
func (b *bench) puback(ctx context.Context, s shape) (map[string]float64, error) {
	servers, err := b.servers(ctx, s.conns)
	defer func() {
		for _, srv := range servers {
			srv.stop()
		}
	}()
	if err != nil {
		return nil, err
	}
	rounds := 3
	if !b.all {
		rounds = 1
	}
	turn := *b
	turn.seconds, turn.warmup = b.seconds/4, b.warmup/2
	loads := make([][]*outcome, len(servers))
	for range rounds {
		for i, srv := range servers {
			if srv.broken != nil {
				continue
			}
			o, err := turn.one(ctx, srv, s)
			switch {
			case err == nil:
				loads[i] = append(loads[i], o)
			case i == 0 || ctx.Err() != nil:
				return nil, err
			default:
				srv.broken = err
				b.say.Printf("  %s: %v", srv.name, err)
			}
		}
	}
	return b.compare(s, servers, loads), nil
}

// servers starts Weir and the others that can be had, Weir first.
func (b *bench) servers(ctx context.Context, conns int) (out []*server, err error) {
	in, err := b.ready(ctx, setup{devices: conns})
	if err != nil {
		return nil, err
	}
	var k kept
	out = append(out, &server{name: "Weir", pid: in.pid(), stop: in.drop,
		connect: func(ctx context.Context, n int) ([]*sender, error) { return in.connect(ctx, n, live) },
		check: func(ctx context.Context, o *outcome) error {
			k.readings, k.sum = k.readings+o.acked, k.sum+o.sum
			return in.verify(ctx, k)
		}})
	for _, start := range []func(context.Context) (*server, error){b.mosquitto, b.nats} {
		s, err := start(ctx)
		if err != nil {
			return out, err
		}
		if s != nil {
			out = append(out, s)
		}
	}
	return out, nil
}

// one is a turn of one server.
func (b *bench) one(ctx context.Context, srv *server, s shape) (*outcome, error) {
	if err := b.quiet(ctx); err != nil {
		return nil, err
	}
	senders, err := srv.connect(ctx, s.conns)
	if err != nil {
		return nil, err
	}
	defer closeAll(senders)
	defer b.perf(ctx, fmt.Sprintf("pubacks-%d-%t-%s", s.conns, s.split, srv.name), srv.pid)()
	o, err := b.drive(ctx, srv.pid, senders, closedLoop(s.window, s.split), nil)
	if err != nil || srv.check == nil {
		return o, err
	}
	return o, srv.check(ctx, o)
}

// compare adds the row of a shape; the first of the servers is Weir.
func (b *bench) compare(s shape, servers []*server, loads [][]*outcome) map[string]float64 {
	ours, ratios := middle(loads[0]), map[string]float64{}
	var beside []string
	for i, srv := range servers[1:] {
		if srv.broken != nil {
			beside = append(beside, srv.name+" broke off, no ratio")
			continue
		}
		theirs := middle(loads[i+1])
		if theirs.rate == 0 {
			beside = append(beside, srv.name+" acknowledged nothing, no ratio")
			continue
		}
		ratios[srv.name] = ours.rate / theirs.rate
		beside = append(beside, fmt.Sprintf("%.2f × %s (%s, %.1f µs%s)", ratios[srv.name], srv.name, perSecond(theirs.rate), theirs.micro, theirs.others()))
	}
	beside = append(beside, fmt.Sprintf("server %.1f µs CPU per message, %.2f cores; PUBACK p50 %s, p99 %s%s; the middle of %d turns",
		ours.micro, ours.cpu, short(ours.lat.quantile(0.5)), short(ours.lat.quantile(0.99)), ours.others(), len(loads[0])))
	b.row("durable QoS 1 PUBACKs, "+s.String(), perSecond(ours.rate), "%s", strings.Join(beside, "; "))
	return ratios
}
