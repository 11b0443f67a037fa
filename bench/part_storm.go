package main

import (
	"context"
	"fmt"
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
	return nil
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
