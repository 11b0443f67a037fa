package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	previewedReadings = 50    // of each device, 10 s apart
	previewRate       = 2_000 // live readings a second meanwhile
	previewMemory     = 256   // MiB that the process may take
)

var previewConfig = fmt.Sprintf("limits: {memory: %dMiB}\n", previewMemory)

// previews measures previews of a rule over many devices and over a day of one, and what live readings wait beside two of them at a time.
func (b *bench) previews(ctx context.Context) error {
	devices := 10_000
	if !b.all {
		devices /= 10
	}
	day := time.Now().UTC().Truncate(24 * time.Hour).Add(-48 * time.Hour)
	if err := previewOfOne(b, ctx, day); err != nil {
		return err
	}
	in, err := b.ready(ctx, setup{devices: devices, rules: 1})
	if err != nil {
		return err
	}
	defer in.drop()
	want, _, err := b.fill(ctx, in, devices, func(d *body) { d.kind, d.base, d.step, d.perMsg = sensor, day, 10*time.Second, previewedReadings }, 1)
	if err != nil {
		return err
	}
	if err := in.settle(ctx); err != nil {
		return err
	}
	in.config = previewConfig // from here on: so many connections as the fleet has take more
	if err := in.restart(ctx); err != nil {
		return err
	}
	first, err := in.preview(ctx, day) // the pages of the store are read
	if err != nil {
		return err
	}
	var warm hist
	for range 9 {
		r, err := in.preview(ctx, day)
		if err != nil {
			return err
		}
		if r.Events != want.readings {
			return fmt.Errorf("%d events judged, %d expected", r.Events, want.readings)
		}
		warm.add(r.took, 1)
	}
	b.judged(atLeast(1e6, 5e6, perSecond), fmt.Sprintf("preview of a rule over %s devices", count(float64(devices))), float64(want.readings)/warm.quantile(0.5).Seconds(),
		"%s events in %s over HTTP, once warm, median of 9, the longest %s; the first took %s", count(float64(want.readings)), short(warm.quantile(0.5)), short(warm.quantile(1)), short(first.took))
	alone, err := b.load(ctx, in, "live", min(50, devices), paced(previewRate), want, nil)
	if err != nil {
		return err
	}
	want.readings, want.sum, want.edges = want.readings+alone.acked, want.sum+alone.sum, want.edges+alone.edges
	p := &previewLoad{in: in, ctx: ctx, day: day}
	beside, err := b.load(ctx, in, "previews", min(50, devices), paced(previewRate), want, p.watch)
	if err != nil {
		return err
	}
	a, z := alone.lat.quantile(0.99), beside.lat.quantile(0.99)
	b.judged(atMost(2, 1.5, times), "PUBACK p99 beside two previews at a time, of that without", float64(z)/float64(max(a, time.Microsecond)),
		"%s and %s at %s; %d previews, p50 %s; server %.2f cores%s", short(z), short(a), perSecond(beside.rate), p.ran.n,
		short(p.ran.quantile(0.5)), beside.cpu, beside.others())
	b.judged(within(previewMemory, mebibytes), fmt.Sprintf("anonymous memory of a process with limits.memory %d MiB, the most after a preview", previewMemory),
		float64(p.most)/(1<<20), "%s before the previews", mebi(p.before))
	return nil
}

// previewOfOne measures a day of one device.
func previewOfOne(b *bench, ctx context.Context, day time.Time) error {
	const readings = 24 * 360
	in, err := b.ready(ctx, setup{devices: 1, rules: 1})
	if err != nil {
		return err
	}
	defer in.drop()
	if _, _, err := b.fill(ctx, in, 1, func(d *body) { d.kind, d.base, d.step, d.perMsg = sensor, day, 10*time.Second, 240 }, readings/240); err != nil {
		return err
	}
	if err := in.settle(ctx); err != nil {
		return err
	}
	var all hist
	for range 20 {
		r, err := in.preview(ctx, day)
		if err != nil {
			return err
		}
		if r.Events != readings {
			return fmt.Errorf("%d events judged, %d expected", r.Events, readings)
		}
		all.add(r.took, 1)
	}
	b.judged(within(50, millis), "preview of a rule over a day of one device", inMillis(all.quantile(0.5)), "%s events over HTTP, median of 20, the longest %s", count(readings), short(all.quantile(1)))
	return nil
}

// previewed is what a preview was.
type previewed struct {
	Events int64
	took   time.Duration
}

// preview runs a draft over a day.
func (in *instance) preview(ctx context.Context, day time.Time) (r previewed, err error) {
	const doc = `query($i:PreviewRuleInput!){previewRule(input:$i){ok stats{eventsScanned} degraded}}`
	var got struct {
		PreviewRule struct {
			OK       bool
			Stats    struct{ EventsScanned int64 }
			Degraded *string
		}
	}
	began := time.Now()
	err = in.query(ctx, "event-processing", doc, map[string]any{"i": map[string]any{"profileToken": "p", "start": day.Format(time.RFC3339), "end": day.Add(24 * time.Hour).Format(time.RFC3339),
		"ruleDefinition": `{"name":"n","type":"threshold","when":{"metric":"temp","op":"gt","threshold":1000}}`}}, &got)
	r = previewed{got.PreviewRule.Stats.EventsScanned, time.Since(began)}
	if err == nil && !got.PreviewRule.OK {
		err = errors.New("the preview was refused")
	}
	return r, err
}

// previewLoad is two previews at a time, without a pause, and what is measured of them.
type previewLoad struct {
	in           *instance
	ctx          context.Context
	day          time.Time
	stop         atomic.Bool
	ended        chan error
	each         chan previewSample
	ran          hist
	before, most int64 // anonymous memory of the process: before, and the most after a preview
}

// previewSample is what is known after a preview.
type previewSample struct {
	took   time.Duration
	memory int64
}

func (p *previewLoad) watch(begins bool) (err error) {
	if begins {
		p.ended, p.each = make(chan error, 2), make(chan previewSample, 1<<16)
		for range cap(p.ended) {
			go func() { p.ended <- p.runs() }()
		}
		p.before, err = anonymous(p.in.pid())
		return err
	}
	p.stop.Store(true)
	for range cap(p.ended) {
		err = errors.Join(err, <-p.ended)
	}
	close(p.each)
	for s := range p.each {
		p.ran.add(s.took, 1)
		p.most = max(p.most, s.memory)
	}
	return err
}

func (p *previewLoad) runs() error {
	for !p.stop.Load() {
		r, err := p.in.preview(p.ctx, p.day)
		if err != nil {
			return err
		}
		memory, err := anonymous(p.in.pid())
		if err != nil {
			return err
		}
		select {
		case p.each <- previewSample{r.took, memory}:
		default: // enough are measured
		}
	}
	return nil
}
