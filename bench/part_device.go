package main

import (
	"context"
	"fmt"
	"time"
)

// device measures what the block device takes for each reading, the file system's own journal included, as the kernel's
// statistics of the disk say; the load of the idle machine is measured before and subtracted.
func (b *bench) device(ctx context.Context) error {
	return b.onOwnDisk(func(b *bench) error { return b.deviceOf(ctx) })
}

func (b *bench) deviceOf(ctx context.Context) error {
	if _, ok, err := sectors(b.work); err != nil || !ok {
		b.row("device bytes per reading", "not measured", "the kernel has no statistics for the device under %s", b.work)
		return err
	}
	if err := b.deviceAt(ctx, atMost(20_000, 8_000, kilo), 10, ""); err != nil {
		return err
	}
	return b.deviceAt(ctx, atMost(700, 400, bytesEach), 10_000, "5ms")
}

func (b *bench) deviceAt(ctx context.Context, g goal, rate float64, interval string) error {
	const clients = 50
	s := setup{devices: clients}
	what := fmt.Sprintf("device bytes per reading at %s", perSecond(rate))
	if interval != "" {
		s.config, what = fmt.Sprintf("spool: {commit_interval: %s}\n", interval), what+", spool.commit_interval "+interval
	}
	base, err := b.baseline(ctx)
	if err != nil {
		return err
	}
	in, err := b.ready(ctx, s)
	if err != nil {
		return err
	}
	defer in.drop()
	long := *b
	long.seconds = b.seconds * 3 / 2
	var device, process [2]int64
	o, err := long.load(ctx, in, fmt.Sprintf("device-%.0f", rate), clients, paced(rate), kept{}, func(begins bool) (err error) {
		i := 1
		if begins {
			i = 0
		}
		if process[i], err = written(in.pid()); err != nil {
			return err
		}
		device[i], _, err = sectors(b.work)
		return err
	})
	if err != nil {
		return err
	}
	n, seconds := o.rate*long.seconds.Seconds(), long.seconds.Seconds()
	total := float64(device[1]-device[0]) * 512
	beside := fmt.Sprintf("%d clients, %s; sectors written to the device, less %s/s that it took before; the process itself has written %s per reading; PUBACK p50 %s, p99 %s%s",
		clients, long.seconds, kilo(base), bytesEach(float64(process[1]-process[0])/n), short(o.lat.quantile(0.5)), short(o.lat.quantile(0.99)), o.others())
	if base*seconds > total/4 {
		b.row(what, "not measured", "other programs use the device; %s", beside)
		return nil
	}
	b.judged(g, what, (total-base*seconds)/n, "%s", beside)
	return nil
}

func kilo(v float64) string { return fmt.Sprintf("%.1f KB", v/1000) }

// baseline is what the device takes per second while the bench does nothing, in bytes.
func (b *bench) baseline(ctx context.Context) (float64, error) {
	before, _, err := sectors(b.work)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := pause(ctx, b.seconds/2); err != nil {
		return 0, err
	}
	after, _, err := sectors(b.work)
	return float64(after-before) * 512 / time.Since(began).Seconds(), err
}
