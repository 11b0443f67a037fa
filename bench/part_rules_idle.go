package main

import (
	"context"
	"fmt"
	"time"
)

const quietDevices = 1000

// silentDevices measures what an instance writes while it waits for devices that send nothing: between the timers of two rules, it has
// nothing to write.
func silentDevices(b *bench, ctx context.Context) error {
	const first = 10 * time.Second
	second := first + 45*time.Second + 2*b.seconds
	in, err := b.ready(ctx, setup{devices: quietDevices, rules: 2, define: func(i int) string {
		return fmt.Sprintf(`{"name":"rule %d","type":"absence","severity":"major","lateness":"0s","timeout":%q,"actions":[{"type":"raiseAlarm","raiseAlarm":{}}]}`, i, []time.Duration{first, second}[i])
	}})
	if err != nil {
		return err
	}
	defer in.drop()
	if _, err := in.fires(ctx, "r0", quietDevices, 6*first); err != nil {
		return err
	}
	if err := in.still(ctx); err != nil {
		return err
	}
	before, err := written(in.pid())
	if err != nil {
		return err
	}
	if err := pause(ctx, b.seconds); err != nil {
		return err
	}
	after, err := written(in.pid())
	if err != nil {
		return err
	}
	if n, err := in.fired(ctx, "r1"); err != nil || n > 0 {
		return fmt.Errorf("the second rule fired %d times within the measured time: %w", n, err)
	}
	took, err := in.fires(ctx, "r1", quietDevices, 2*second)
	if err != nil {
		return err
	}
	b.judged(within(0, bytesEach), fmt.Sprintf("written by an idle instance with two absence rules on %s silent devices, %s between two timers", count(quietDevices), b.seconds),
		float64(after-before), "as the kernel counts for the process; the first rule fired for each device before, the second %s later", took.Round(time.Second))
	return nil
}

// fired is how often a rule of the profile has fired.
func (in *instance) fired(ctx context.Context, rule string) (int64, error) {
	var health struct {
		RuleHealth []struct {
			RuleToken string
			FireCount int64
		}
	}
	if err := in.query(ctx, "event-processing", `{ruleHealth(profileToken:"p"){ruleToken fireCount}}`, nil, &health); err != nil {
		return 0, err
	}
	for _, h := range health.RuleHealth {
		if h.RuleToken == rule {
			return h.FireCount, nil
		}
	}
	return 0, fmt.Errorf("there is no rule %s", rule)
}

// fires waits until a rule has fired so often, and returns how long that took.
func (in *instance) fires(ctx context.Context, rule string, times int64, most time.Duration) (time.Duration, error) {
	began := time.Now()
	for {
		n, err := in.fired(ctx, rule)
		if took := time.Since(began); err != nil || n == times {
			return took, err
		} else if took > most || n > times {
			return took, fmt.Errorf("rule %s fired %d times within %s, %d expected", rule, n, took, times)
		}
		if err := pause(ctx, 250*time.Millisecond); err != nil {
			return 0, err
		}
	}
}
