package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// perDevice is how many readings each device of the queried store has, 10 s apart: a day and a bit.
const perDevice = 10_000

// queries fills a store and asks it what a dashboard asks.
func (b *bench) queries(ctx context.Context) error {
	devices := max(b.readings/perDevice, 1)
	in, err := b.ready(ctx, setup{devices: devices})
	if err != nil {
		return err
	}
	defer in.drop()
	day := time.Now().UTC().Truncate(24 * time.Hour).Add(-72 * time.Hour)
	want, took, err := b.fill(ctx, in, devices, func(d *body) { d.kind, d.base, d.step, d.perMsg = sensor, day, 10*time.Second, 250 }, perDevice/250)
	if err != nil {
		return err
	}
	b.say.Printf("  %s readings of %d devices stored in %s", count(float64(want.readings)), devices, short(took))
	if err := in.settle(ctx); err != nil {
		return err
	}
	if err := in.verify(ctx, want); err != nil {
		return err
	}
	return b.ask(ctx, in, devices, day, want.readings)
}

// fill sends so many messages per device and verifies them.
func (b *bench) fill(ctx context.Context, in *instance, devices int, shape func(*body), messages int64) (kept, time.Duration, error) {
	senders, err := in.connect(ctx, devices, sensor)
	if err != nil {
		return kept{}, 0, err
	}
	defer closeAll(senders)
	for _, s := range senders {
		shape(s.body)
	}
	began := time.Now()
	filler := *b
	filler.warmup, filler.seconds = 0, 24*time.Hour // until all is sent
	o, err := filler.drive(ctx, in.pid(), senders, upTo(messages, 8), nil)
	if err != nil {
		return kept{}, 0, err
	}
	k := kept{sum: o.sum, edges: o.edges}
	for _, s := range senders {
		k.readings += s.body.number
	}
	if err := in.applied(ctx); err != nil {
		return k, 0, err
	}
	return k, time.Since(began), in.verify(ctx, k)
}

// settle stops the instance, which writes a checkpoint, and starts it again: the readings are in their final form.
func (in *instance) settle(ctx context.Context) error {
	if err := in.restart(ctx); err != nil {
		return err
	}
	n, err := in.metric(ctx, "weir_series_head_readings")
	if err == nil && n > 0 {
		err = fmt.Errorf("%.0f readings were not written by the stop", n)
	}
	return err
}

// question is a query with variables that change for each call.
type question struct {
	name  string
	doc   string
	vars  func(r *rand.Rand) map[string]any
	times int
	goal  goal
	check func(data json.RawMessage) error
}

func (b *bench) ask(ctx context.Context, in *instance, devices int, day time.Time, readings int64) error {
	page := func(number int, more map[string]any) func(*rand.Rand) map[string]any {
		return func(r *rand.Rand) map[string]any {
			c := map[string]any{"pageNumber": number, "pageSize": 100}
			if more != nil {
				c["deviceToken"] = deviceToken(r.IntN(devices))
			}
			return map[string]any{"c": c}
		}
	}
	one := map[string]any{}
	const events = `query($c:EventSearchCriteria!){measurementEvents(criteria:$c){results{id deviceToken name value occurredTime} pagination{totalRecords}}}`
	const buckets = `query($c:MeasurementAggregationCriteria!){bucketedMeasurements(criteria:$c){bucketStart name avg min max count}}`
	from, to := day.Format(time.RFC3339), day.Add(24*time.Hour-time.Microsecond).Format(time.RFC3339Nano)
	const often = 200
	questions := []question{
		{"bucketedMeasurements, one device, one day at 5 min", buckets, func(r *rand.Rand) map[string]any {
			return map[string]any{"c": map[string]any{"deviceToken": deviceToken(r.IntN(devices)), "name": "temp", "startTime": from, "endTime": to, "intervalSeconds": 300}}
		}, often, atMost(5, 1, millis), holds(`"bucketStart"`, 288)},
		{"bucketedMeasurements, all devices, all, at 1 h", buckets, func(*rand.Rand) map[string]any {
			return map[string]any{"c": map[string]any{"name": "temp", "endTime": day.Add(48 * time.Hour).Format(time.RFC3339), "intervalSeconds": 3600}}
		}, 10, atMost(400, 150, millis), holds(`"bucketStart"`, 28)},
		{"measurementEvents, newest page of 100, one device", events, page(1, one), often, atMost(5, 1, millis), holds(`"id"`, 100)},
		{"measurementEvents, newest page of 100, whole tenant", events, page(1, nil), often, atMost(20, 5, millis), holds(`"id"`, 100)},
	}
	if readings >= 1_000_000 {
		questions = append(questions, question{"measurementEvents, page 10,000 of the tenant", events, page(10_000, nil), 5, atMost(300, 100, millis), nil})
	}
	for _, q := range questions {
		if err := b.time(ctx, in, q, readings); err != nil {
			return fmt.Errorf("%s: %w", q.name, err)
		}
	}
	return nil
}

// holds expects so many of a member in an answer.
func holds(member string, n int) func(json.RawMessage) error {
	return func(data json.RawMessage) error {
		if got := strings.Count(string(data), member); got != n {
			return fmt.Errorf("%d results, %d expected", got, n)
		}
		return nil
	}
}

// refused is a question that is beyond a limit: allowed when the refusal says what to do.
func (b *bench) refused(q question, err error) error {
	if !strings.Contains(err.Error(), "narrow") {
		return fmt.Errorf("refused without the hint to narrow the time: %w", err)
	}
	b.add(row{what: q.name, figure: "LIMIT_EXCEEDED", must: "answer or hint", verdict: mustMet, beside: "refused with the hint to narrow the time"})
	return nil
}

// time asks one after the other over one connection; the first answers after a start are counted separately.
func (b *bench) time(ctx context.Context, in *instance, q question, readings int64) error {
	var h hist
	var first time.Duration
	r := rand.New(rand.NewPCG(3, 4))
	for i := range q.times {
		var data json.RawMessage
		began := time.Now()
		if err := in.query(ctx, "event-management", q.doc, q.vars(r), &data); err != nil {
			if strings.Contains(err.Error(), "LIMIT_EXCEEDED") {
				return b.refused(q, err)
			}
			return err
		}
		took := time.Since(began)
		if i == 0 {
			first = took
		}
		h.add(took, 1)
		if q.check != nil {
			if err := q.check(data); err != nil {
				return err
			}
		}
	}
	b.judged(q.goal, q.name, inMillis(h.quantile(0.5)), "p50 of %d over HTTP, p99 %s, the first %s; %s readings in the store", q.times, short(h.quantile(0.99)), short(first), count(float64(readings)))
	return nil
}
