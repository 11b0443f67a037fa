package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
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

// pubacks measures how fast readings are acknowledged, Weir after they are on the disk, mosquitto at once.
func (b *bench) pubacks(ctx context.Context) error {
	shapes := []shape{{conns: 50, window: 20}, {conns: 500, window: 20}}
	if b.all {
		shapes = append(shapes, shape{conns: 50, window: 20, split: true})
	}
	for _, s := range shapes {
		if err := b.puback(ctx, s); err != nil {
			return fmt.Errorf("%v: %w", s, err)
		}
	}
	return nil
}

func (b *bench) puback(ctx context.Context, s shape) error {
	in, err := b.ready(ctx, "", s.conns, 0)
	if err != nil {
		return err
	}
	defer in.drop()
	ours, err := b.load(ctx, in, fmt.Sprintf("pubacks-%d", s.conns), s.conns, closedLoop(s.window, s.split), kept{}, nil)
	if err != nil {
		return err
	}
	in.drop()
	theirs, err := b.mosquitto(ctx, s)
	if err != nil {
		return err
	}
	ratio := "mosquitto is not installed, no ratio"
	if theirs != nil {
		ratio = fmt.Sprintf("%.2f × mosquitto, which keeps nothing (%s, %.1f µs%s)", ours.rate/theirs.rate, perSecond(theirs.rate), theirs.micro, theirs.others())
	}
	b.row("durable QoS 1 PUBACKs, "+s.String(), perSecond(ours.rate), "%s; server %.1f µs CPU per message, %.2f cores; PUBACK p50 %s, p99 %s%s", ratio,
		ours.micro, ours.cpu, short(ours.lat.quantile(0.5)), short(ours.lat.quantile(0.99)), ours.others())
	return nil
}

// load runs a pattern against an instance and verifies what it has acknowledged.
func (b *bench) load(ctx context.Context, in *instance, name string, conns int, p pattern, want kept, watch func(bool) error) (*outcome, error) {
	if err := b.quiet(ctx); err != nil {
		return nil, err
	}
	senders, err := in.connect(ctx, conns, live)
	if err != nil {
		return nil, err
	}
	defer closeAll(senders)
	defer b.perf(ctx, name, in.pid())()
	o, err := b.drive(ctx, in.pid(), senders, p, watch)
	if err != nil {
		return nil, err
	}
	want.readings += o.acked
	want.sum += o.sum
	want.edges += o.edges
	return o, in.verify(ctx, want)
}

// perf records a profile of the process over the length of a load when one is wanted.
func (b *bench) perf(ctx context.Context, name string, pid int) (stop func()) {
	if b.profile == "" {
		return func() {}
	}
	cmd := exec.CommandContext(ctx, "perf", "record", "-q", "-F", "499", "-g", "-p", fmt.Sprint(pid), "-o", filepath.Join(b.profile, name+".perf"),
		"--", "sleep", fmt.Sprint(int(b.seconds.Seconds())))
	if err := cmd.Start(); err != nil {
		b.say.Printf("no profile: %v", err)
		return func() {}
	}
	return func() {
		if err := cmd.Wait(); err != nil {
			b.say.Printf("profile %s: %v", name, err)
		}
	}
}

// mosquitto drives the same load into mosquitto, nil when it is not installed.
func (b *bench) mosquitto(ctx context.Context, s shape) (*outcome, error) {
	program, err := exec.LookPath("mosquitto")
	if err != nil {
		if program = "/usr/sbin/mosquitto"; !exists(program) {
			return nil, nil
		}
	}
	addr, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(b.work, "mosquitto.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, "listener %s 127.0.0.1\nallow_anonymous true\npersistence false\n", addr.port), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "-c", file)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = cmd.Process.Kill() // it keeps nothing
		_ = cmd.Wait()
	}()
	if err := b.quiet(ctx); err != nil {
		return nil, err
	}
	senders, err := connectPlain(ctx, addr.String(), s.conns)
	if err != nil {
		return nil, err
	}
	defer closeAll(senders)
	return b.drive(ctx, cmd.Process.Pid, senders, closedLoop(s.window, s.split), nil)
}

func connectPlain(ctx context.Context, addr string, n int) ([]*sender, error) {
	var senders []*sender
	for i := range n {
		d := deviceToken(i)
		c, err := dialMQTT(ctx, addr, "weir:"+tenant+":"+d, "", "weir/"+tenant+"/devices/"+d+"/events")
		for tries := 0; err != nil && i == 0 && tries < 100; tries++ { // it is still starting
			if err := pause(ctx, 50*time.Millisecond); err != nil {
				return nil, err
			}
			c, err = dialMQTT(ctx, addr, "weir:"+tenant+":"+d, "", "weir/"+tenant+"/devices/"+d+"/events")
		}
		if err != nil {
			return senders, err
		}
		senders = append(senders, &sender{client: c, body: newBody(live, uint64(i)), index: i, of: n})
	}
	return senders, nil
}
