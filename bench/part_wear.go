package main

import (
	"context"
	"fmt"
)

// wear measures what a flash takes for each reading at three settings of the log, when readings come one by one: bytes that
// the kernel counts as written by the process, and what the acknowledgement costs in time.
func (b *bench) wear(ctx context.Context) error {
	short := *b
	short.seconds = b.seconds / 2
	rates := []float64{100}
	if b.all {
		rates = append(rates, 1000)
	}
	for _, rate := range rates {
		for _, interval := range []string{"0s", "10ms", "100ms"} {
			if err := short.wearAt(ctx, rate, interval); err != nil {
				return fmt.Errorf("spool.commit_interval %s: %w", interval, err)
			}
		}
	}
	return nil
}

func (b *bench) wearAt(ctx context.Context, rate float64, interval string) error {
	const devices = 50
	in, err := b.ready(ctx, setup{config: fmt.Sprintf("spool: {commit_interval: %s}\n", interval), devices: devices})
	if err != nil {
		return err
	}
	defer in.drop()
	var before, after int64
	o, err := b.load(ctx, in, "wear-"+interval, devices, paced(rate), kept{}, func(begins bool) (err error) {
		if begins {
			before, err = written(in.pid())
		} else {
			after, err = written(in.pid())
		}
		return err
	})
	if err != nil {
		return err
	}
	n := o.rate * b.seconds.Seconds()
	perReading := float64(after-before) / n
	b.row(fmt.Sprintf("written per reading at %s from %d devices, spool.commit_interval %s", perSecond(rate), devices, interval),
		fmt.Sprintf("%.0f bytes", perReading), "%.1f GB a day; PUBACK p50 %s, p99 %s%s", perReading*rate*86400/1e9, short(o.lat.quantile(0.5)),
		short(o.lat.quantile(0.99)), o.others())
	return nil
}
