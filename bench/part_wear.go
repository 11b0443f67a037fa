package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/config"
	"weir/internal/test/loopdisk"
)

// ownDisk is how large the disk of a measurement of its own is.
const ownDisk = 8 << 30

// onOwnDisk runs a measurement on an ext4 with a journal that nothing else writes to. Without root it runs where the rest of the
// bench does, and says so.
func (b *bench) onOwnDisk(run func(*bench) error) (err error) {
	disk, err := loopdisk.Make(b.work, ownDisk)
	if err != nil {
		b.say.Printf("  no disk of its own, so other programs are counted, too: %v", err)
		return run(b)
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	own := *b
	own.work = disk.Dir
	return run(&own)
}

// wear measures what a flash takes for each reading when readings come one by one: under each profile that differs in it, and at three
// settings of the log.
func (b *bench) wear(ctx context.Context) error {
	return b.onOwnDisk(func(b *bench) error { return b.wearOf(ctx) })
}

func (b *bench) wearOf(ctx context.Context) error {
	rates := []float64{10, 100, 1000}
	for _, name := range []string{"site", "gateway"} {
		p, _ := config.ProfileNamed(name)
		c := p.Config()
		w := wearing{under: "the profile " + name, budget: int64(c.Spool.WriteBudget),
			config: fmt.Sprintf("spool: {head_age: %s, write_budget: %d}\n", c.Spool.HeadAge, c.Spool.WriteBudget)}
		for _, rate := range rates {
			if err := b.wearAt(ctx, rate, w); err != nil {
				return fmt.Errorf("profile %s: %w", name, err)
			}
		}
	}
	if !b.all {
		return nil
	}
	for _, rate := range rates[1:] {
		for _, interval := range []string{"0s", "10ms", "100ms"} {
			w := wearing{under: "spool.commit_interval " + interval, config: fmt.Sprintf("spool: {commit_interval: %s}\n", interval)}
			if err := b.wearAt(ctx, rate, w); err != nil {
				return fmt.Errorf("spool.commit_interval %s: %w", interval, err)
			}
		}
	}
	return nil
}

// settling is how long a budget takes to know again what a commit writes.
const settling = 90 * time.Second

// wearing is a configuration whose wear is measured.
type wearing struct {
	under, config string
	budget        int64 // bytes a day, 0 for none
}

func (b *bench) wearAt(ctx context.Context, rate float64, w wearing) error {
	const devices = 50
	in, err := b.ready(ctx, setup{config: w.config, devices: devices})
	if err != nil {
		return err
	}
	defer in.drop()
	long := *b
	if w.budget > 0 && rate > 10 { // at ten a second it is not met
		if err := b.spend(ctx, in, w.budget); err != nil {
			return err
		}
		long.warmup = settling // large messages are no measure of what a commit costs
	}
	idle, err := b.baseline(ctx)
	if err != nil {
		return err
	}
	var device, process [2]int64
	i := 0
	o, err := long.load(ctx, in, "wear", devices, paced(rate), kept{refusals: w.budget > 0}, func(bool) (err error) {
		if process[i], err = written(in.pid()); err == nil {
			device[i], _, err = sectors(b.work)
		}
		i++
		return err
	})
	if err != nil {
		return err
	}
	waits, err := in.metric(ctx, "weir_spool_stretched_commit_interval_seconds")
	if err != nil {
		return err
	}
	seconds := b.seconds.Seconds()
	n := o.rate * seconds
	taken := float64(device[1]-device[0])*512 - idle*seconds
	perDay := taken / seconds * (24 * time.Hour).Seconds()
	what := fmt.Sprintf("from %d devices, %s", devices, w.under)
	b.row(fmt.Sprintf("device bytes per reading at %s %s", perSecond(rate), what), bytesEach(taken/n),
		"%s a day; the process itself has written %s per reading; PUBACK p50 %s, p99 %s; commits wait %s for the budget at the end%s", gigabytes(perDay),
		bytesEach(float64(process[1]-process[0])/n), short(o.lat.quantile(0.5)), short(o.lat.quantile(0.99)), millis(waits*1000), o.others())
	if w.budget > 0 && rate == 100 {
		b.judged(within(20e9, gigabytes), fmt.Sprintf("device bytes a day at %s %s", perSecond(rate), what), perDay, "of the same load, with the share of the budget used up that a burst may have")
	}
	return nil
}

func gigabytes(v float64) string { return fmt.Sprintf("%.1f GB", v/1e9) }

// spend lets the instance write what its budget allows a burst, so that the load after it is that of a long day. What is sent is no event:
// it is acknowledged and becomes a dead letter.
func (b *bench) spend(ctx context.Context, in *instance, budget int64) error {
	// A twenty-fourth of a day's budget is the burst's; at nine tenths of that commits wait about as long as they do all day.
	spent := func() (bool, error) {
		n, err := written(in.pid())
		return n >= budget/24*6/10, err
	}
	if done, err := spent(); done || err != nil {
		return err
	}
	senders, err := in.connect(ctx, 1, live)
	if err != nil {
		return err
	}
	defer closeAll(senders)
	s, garbage := senders[0], make([]byte, 900<<10)
	for {
		if done, err := spent(); done || err != nil {
			return errors.Join(err, in.applied(ctx))
		}
		if err := s.patient(time.Now()); err != nil {
			return err
		}
		s.out = appendPublish(s.out[:0], s.topic, s.sent, garbage)
		if _, err := s.Write(s.out); err != nil {
			return err
		}
		if _, err := s.acks(s.sent); err != nil {
			return err
		}
		s.sent++
	}
}
