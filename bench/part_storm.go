package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// stormy lets one tenant have as many detections as its readings bring about.
const stormy = "detection: {max_edges_per_second: 1000000000}\n"

// storm measures readings all over the thresholds of their rules, beside the same readings with rules that never fire: what is
// stored and judged while the log does not grow, and what an edge costs.
func (b *bench) storm(ctx context.Context) error {
	long := *b
	long.seconds = 3 * b.seconds
	calm, err := long.stormOf(ctx, "storm-calm", false)
	if err != nil {
		return fmt.Errorf("without edges: %w", err)
	}
	s, err := long.stormOf(ctx, "storm", true)
	if err != nil {
		return fmt.Errorf("with edges: %w", err)
	}
	what := fmt.Sprintf("%.1f edges a reading, 50 clients × 20 in flight, %s", s.edges, long.seconds)
	b.judged(atLeast(100_000, 250_000, perSecond), what+": stored and judged", s.rate-s.grown, "acknowledged %s; %s; without edges %s", perSecond(s.rate), &s.wholeWay,
		perSecond(calm.rate-calm.grown))
	b.judged(atMost(1, 0.3, micros), what+": CPU of the server per edge", (s.micro-calm.micro)/s.edges, "%.1f µs per reading, without edges %.1f µs", s.micro, calm.micro)
	b.judged(atMost(20, 8, bytesEach), what+": disk per edge", (s.disk-calm.disk)/s.edges, "the store takes %s per reading, without edges %s", bytesEach(s.disk), bytesEach(calm.disk))
	return flapping(b, ctx)
}

func micros(v float64) string { return fmt.Sprintf("%.2f µs", v) }

// stormLoad is a load of readings with rules that fire, or might.
type stormLoad struct {
	wholeWay
	edges float64 // per reading
	disk  float64 // bytes of the store per reading
}

func (b *bench) stormOf(ctx context.Context, name string, fires bool) (*stormLoad, error) {
	const conns = 50
	s := setup{config: stormy, devices: conns, rules: rulesPerReading, limit: stormLimit}
	if !fires {
		s.limit = func(i int) float64 { return stormLimit(i) + 1000 }
	}
	in, err := b.ready(ctx, s)
	if err != nil {
		return nil, err
	}
	defer in.drop()
	if err := b.quiet(ctx); err != nil {
		return nil, err
	}
	before, err := written(in.pid())
	if err != nil {
		return nil, err
	}
	senders, err := in.connect(ctx, conns, swing)
	if err != nil {
		return nil, err
	}
	defer closeAll(senders)
	defer b.perf(ctx, name, in.pid())()
	w := &watchBacklog{in: in, ctx: ctx}
	o, err := b.drive(ctx, in.pid(), senders, closedLoop(20, false), w.watch)
	if err != nil {
		return nil, err
	}
	after, err := written(in.pid())
	if err != nil {
		return nil, err
	}
	if err := in.verify(ctx, kept{readings: o.acked, sum: o.sum}); err != nil {
		return nil, err
	}
	edges := o.edges
	if !fires {
		edges = 0
	}
	if err := in.verifyFires(ctx, edges); err != nil {
		return nil, err
	}
	if err := in.stop(); err != nil {
		return nil, err
	}
	used, err := in.bytes()
	if err != nil {
		return nil, err
	}
	return &stormLoad{wholeWay: wholeWay{outcome: o, backlog: w, grown: max(float64(w.last-w.first)/w.finished.Sub(w.began).Seconds(), 0),
		each: float64(after-before) / float64(o.acked)}, edges: float64(edges) / float64(o.acked), disk: float64(used.store) / float64(o.acked)}, nil
}

// verifyFires compares the fires of all rules with what the values must have brought about, and the list of detections with them.
func (in *instance) verifyFires(ctx context.Context, want int64) error {
	var got struct {
		RuleHealth []struct{ FireCount int64 }
		Detections struct{ Pagination struct{ TotalRecords int64 } }
	}
	if err := in.query(ctx, "event-processing", `{ruleHealth(profileToken:"p"){fireCount} detections(criteria:{pageNumber:1,pageSize:1}){pagination{totalRecords}}}`, nil, &got); err != nil {
		return err
	}
	fires := int64(0)
	for _, r := range got.RuleHealth {
		fires += r.FireCount
	}
	if listed := got.Detections.Pagination.TotalRecords; fires != want || listed != want {
		return fmt.Errorf("the rules fired %d times and %d detections are listed, %d expected", fires, listed, want)
	}
	return nil
}

const (
	flappingDevices = 10_000
	waveEvery       = time.Second
	// edgesSaved is for how long a tenant may save up what its rules do not fire.
	edgesSaved = 2 * time.Minute
)

// flapping measures a tenant all of whose devices cross their threshold at once, each second, many times as often as its ceiling for
// detections allows: what another tenant has of it, beside the same devices that stay below the threshold; how many edges are kept; and
// that the alarms are right after it.
func flapping(b *bench, ctx context.Context) error {
	devices := flappingDevices
	if !b.all {
		devices /= 10
	}
	long, ceiling := *b, devices/20
	long.seconds = 3 * b.seconds
	in, err := b.ready(ctx, setup{devices: devices, rules: 1, config: fmt.Sprintf("detection: {max_edges_per_second: %d}\n", ceiling),
		define: func(int) string { return hotRule(0) }})
	if err != nil {
		return err
	}
	defer in.drop()
	began := time.Now()
	quiet, err := in.makeNeighbour(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = quiet.Close() }()
	below, above := newCrowded(devices, sensor), newCrowded(devices, flap)
	for i, d := range above.bodies {
		d.level = int64(i % 2) // half of them are above at the end
	}
	calm, _, err := long.waves(ctx, in, below, quiet)
	if err != nil {
		return fmt.Errorf("without edges: %w", err)
	}
	storm, o, err := long.waves(ctx, in, above, quiet)
	if err != nil {
		return fmt.Errorf("with edges: %w", err)
	}
	settled, err := in.alarmsSettle(ctx, above)
	if err != nil {
		return err
	}
	elapsed := time.Since(began)
	want, raised := above.kept()
	first, _ := below.kept()
	if err := in.verify(ctx, kept{readings: want.readings + first.readings, sum: want.sum + first.sum}); err != nil {
		return err
	}
	listed, err := in.listed(ctx)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("all of %s devices flap at once, each second for %s", count(float64(devices)), long.seconds+b.warmup)
	ackedCalm, ackedStorm := calm.acked.quantile(0.99), storm.acked.quantile(0.99)
	seenCalm, seenStorm := calm.visible.quantile(0.99), storm.visible.quantile(0.99)
	b.judged(within(2, times), what+": another tenant's p99 over that beside the same readings without edges", max(ratio(ackedStorm, ackedCalm), ratio(seenStorm, seenCalm)),
		"the larger of two: until the PUBACK %s, without edges %s; from there until a query returns the reading %s, without edges %s; %d and %d readings; server %.2f cores%s",
		short(ackedStorm), short(ackedCalm), short(seenStorm), short(seenCalm), storm.acked.n, calm.acked.n, o.cpu, o.others())
	allowed := float64(ceiling) * (edgesSaved + elapsed).Seconds() * 1.001 // the share of its own that a rule has besides
	b.judged(within(1, times), what+": detections kept over what the ceiling allows", float64(listed)/allowed,
		"%s kept of %s; the ceiling is %d a second, and what was saved up in %s", count(float64(listed)), count(float64(want.edges)), ceiling, edgesSaved)
	b.row(what+": until each alarm is what its device is", short(settled), "%s devices have ended above the threshold, and an active alarm; no other has", count(float64(raised)))
	return nil
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(max(b, time.Microsecond)) }

// waves lets all devices post at once, each second, beside a neighbour.
func (b *bench) waves(ctx context.Context, in *instance, c *crowded, neighbour *sender) (*watchNeighbour, *outcome, error) {
	w := &watchNeighbour{in: in, ctx: ctx, sender: neighbour, every: 25 * time.Millisecond}
	if err := w.first(); err != nil {
		return nil, nil, err
	}
	senders, err := in.posters(ctx, mixedPosters)
	if err != nil {
		return nil, nil, err
	}
	defer closeAll(senders)
	defer b.perf(ctx, "waves", in.pid())()
	o, err := b.drive(ctx, in.pid(), senders, c.waves(in.ingest), w.watch)
	if err != nil {
		return nil, nil, err
	}
	return w, o, in.applied(ctx)
}

// waves posts the readings of a share at once, and the next ones a second later, or as soon as the ones before are acknowledged.
func (c *crowded) waves(host string) pattern {
	return func(s *sender, stop *atomic.Bool) error {
		var payload []byte
		for next := time.Now(); !stop.Load(); next = next.Add(waveEvery) {
			time.Sleep(time.Until(next))
			mine := c.share(s)
			for len(mine) > 0 {
				n := min(len(mine), mixedEvents)
				payload = append(payload[:0], '[')
				for i, d := range mine[:n] {
					if i > 0 {
						payload = append(payload, ',')
					}
					payload = d.append(payload)
				}
				if err := c.post(s, host, append(payload, ']')); err != nil {
					return err
				}
				s.acked.Add(int64(n))
				mine = mine[n:]
			}
		}
		return nil
	}
}

// alarmsSettle waits until each device whose last reading is above the threshold has an active alarm, and no other.
func (in *instance) alarmsSettle(ctx context.Context, c *crowded) (time.Duration, error) {
	began := time.Now()
	_, raised := c.kept()
	for {
		n, err := in.activeAlarms(ctx, hotAlarm)
		if err != nil {
			return 0, err
		}
		if n == raised {
			if n, err = in.raisedAmong(ctx, c); err != nil || n == raised {
				return time.Since(began), err
			}
		}
		if time.Since(began) > 3*grace {
			return 0, fmt.Errorf("%d alarms are active %s after the storm, %d expected, of the devices that are above", n, 3*grace, raised)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// raisedAmong is how many of the devices whose last reading is above the threshold have an active alarm.
func (in *instance) raisedAmong(ctx context.Context, c *crowded) (n int64, err error) {
	above := map[string]bool{}
	for i, d := range c.bodies {
		above[deviceToken(i)] = d.over > 0
	}
	for page := 1; ; page++ {
		var got struct {
			Alarms struct {
				Results []struct{ OriginatorToken string }
			}
		}
		if err := in.query(ctx, "device-management", `query($c:AlarmSearchCriteria!){alarms(criteria:$c){results{originatorToken}}}`,
			map[string]any{"c": map[string]any{"pageNumber": page, "pageSize": 1000, "state": "ACTIVE", "alarmKey": hotAlarm}}, &got); err != nil || len(got.Alarms.Results) == 0 {
			return n, err
		}
		for _, a := range got.Alarms.Results {
			if above[a.OriginatorToken] {
				n++
			}
		}
	}
}

// listed is how many detections there are.
func (in *instance) listed(ctx context.Context) (int64, error) {
	var got struct {
		Detections struct{ Pagination struct{ TotalRecords int64 } }
	}
	err := in.query(ctx, "event-processing", `{detections(criteria:{pageNumber:1,pageSize:1}){pagination{totalRecords}}}`, nil, &got)
	return got.Detections.Pagination.TotalRecords, err
}
