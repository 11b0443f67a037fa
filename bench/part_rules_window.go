package main

import (
	"context"
	"fmt"
	"time"
)

// slidingWindow is the window of each device of the fleet.
const slidingWindow = 10 * time.Minute

// windowedFleet measures what is written for a fleet of slow devices, each of which has a sliding window: once the windows are full, for as
// long again.
func (b *bench) windowedFleet(ctx context.Context) error {
	devices, window := b.series/2, slidingWindow
	if !b.all {
		window /= 5
	}
	shared, lab, start, err := b.shared()
	if err != nil {
		return err
	}
	in, err := b.ready(ctx, setup{devices: devices, rules: 1, lab: lab, define: func(int) string {
		return fmt.Sprintf(`{"name":"n","type":"aggregate","windowMode":"sliding","window":%q,"agg":"avg","metric":"temp","op":"gt","threshold":1000}`, window)
	}})
	if err != nil {
		return err
	}
	defer in.drop()
	b.say.Printf("  %s devices are made", count(float64(devices)))
	var full, readings, before, logged int64
	r, err := b.replayIn(ctx, in, shared, start, []time.Duration{window, window}, func(d *body) { d.kind = sensor }, func(stretch int, n int64) (err error) {
		if readings = n; stretch == 0 {
			full, logged = n, shared.writtenByLog()
			before, err = written(in.pid())
		}
		return err
	})
	if err != nil {
		return err
	}
	samples, err := in.metric(ctx, "weir_eventprocessing_detect_live_keys")
	if err != nil {
		return err
	}
	if int(samples) != devices {
		return fmt.Errorf("%.0f keys, %d expected", samples, devices)
	}
	log := shared.writtenByLog() - logged
	if err := in.stop(); err != nil { // the last snapshot is written
		return err
	}
	n := float64(readings - full)
	b.judged(atMost(250, 150, bytesEach), fmt.Sprintf("written per reading for a sliding window of %s on each of %s devices", window, count(float64(devices))), float64(in.wrote-before-log)/n,
		"a reading each 10 s; for the store, from when the windows are full until the process has stopped, as the kernel counts; %s readings in %s of a clock that the bench advances, which took %s; the log takes %.0f more",
		count(n), window, short(r.took), float64(log)/n)
	return nil
}
