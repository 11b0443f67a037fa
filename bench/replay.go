package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"
)

// A fleet in its own time: each device has a reading each ten seconds, give or take 50 ms, which arrives 20 to 200 ms
// later. The instance's clock is turned by the bench, tick by tick, and waits until all that arrives in a tick is
// acknowledged, so that the receive times are what they would be, however quick or slow the machine is.
const (
	every   = 10 * time.Second
	jitter  = 50 * time.Millisecond // to each side
	soonest = 20 * time.Millisecond
	latest  = 200 * time.Millisecond
	tick    = 40 * time.Millisecond
	// ahead is how many ticks are planned, more than the longest time between two arrivals of a device.
	ahead = int((every + 2*jitter + latest) / tick * 2)
)

// arrival is a reading that a device is about to send.
type arrival struct {
	device int32
	at     time.Time // event time
}

// fleet says who sends what in each tick.
type fleet struct {
	r     *rand.Rand
	start time.Time
	slots [ahead][]arrival // by the tick of their arrival, around in a circle
	sent  []int64          // per device
	n     int
}

func newFleet(n int, start time.Time) *fleet {
	f := &fleet{r: rand.New(rand.NewPCG(11, uint64(n))), start: start, sent: make([]int64, n), n: n}
	for i := range n {
		f.plan(int32(i))
	}
	return f
}

// plan puts the next reading of a device into the tick in which it arrives.
func (f *fleet) plan(device int32) {
	grid := every/time.Duration(f.n)*time.Duration(device) + every*time.Duration(f.sent[device])
	at := grid + time.Duration(f.r.Int64N(int64(2*jitter/time.Microsecond)))*time.Microsecond
	arrives := at + soonest + time.Duration(f.r.Int64N(int64(latest-2*tick-soonest)))
	f.sent[device]++
	slot := (int(arrives/tick) + 1) % ahead // the one behind: nothing arrives before its time
	f.slots[slot] = append(f.slots[slot], arrival{device, f.start.Add(at)})
}

// due are the arrivals of a tick; their devices' next ones are planned.
func (f *fleet) due(number int) []arrival {
	now := f.slots[number%ahead]
	f.slots[number%ahead] = nil
	for _, a := range now {
		f.plan(a.device)
	}
	return now
}

// moment is the time at which a tick's arrivals are received: anywhere in it.
func (f *fleet) moment(number int) time.Time {
	return f.start.Add(time.Duration(number)*tick + time.Duration(f.r.Int64N(int64(tick))))
}

// shared makes a board for an instance that is about to be started, and returns the lab's flags for it. The time stands until
// the fleet begins, a day ago.
func (b *bench) shared() (*board, []string, time.Time, error) {
	start := time.Now().Truncate(time.Second).Add(-24 * time.Hour)
	file := filepath.Join(b.work, "board")
	shared, err := makeBoard(file, start.Add(-time.Second), start)
	return shared, []string{"-board", file}, start, err
}

// replayed is what a fleet has sent.
type replayed struct {
	kept
	took time.Duration
}

// replay lets a fleet send for so much of its own time. Each reading is a message of its own; those of a tick travel
// in arrays over one connection of HTTP.
func (b *bench) replay(ctx context.Context, in *instance, shared *board, start time.Time, span time.Duration, shape func(*body)) (r replayed, err error) {
	return b.replayIn(ctx, in, shared, start, []time.Duration{span}, shape, func(int, int64) error { return nil })
}

// replayIn is replay in stretches; after calls it with the number of each stretch when it has been sent and applied, and how many
// readings there are then.
func (b *bench) replayIn(ctx context.Context, in *instance, shared *board, start time.Time, spans []time.Duration, shape func(*body),
	after func(stretch int, readings int64) error,
) (r replayed, err error) {
	s, err := in.poster(ctx, 0)
	if err != nil {
		return r, err
	}
	defer s.Close()
	bodies := make([]*body, in.setup.devices)
	for i := range bodies {
		bodies[i] = newBody(sensor, uint64(i))
		bodies[i].token = accessToken(i)
		shape(bodies[i])
	}
	f := newFleet(len(bodies), start)
	began, n, end := time.Now(), 0, time.Duration(0)
	for stretch, span := range spans {
		for end += span; time.Duration(n)*tick < end; n++ {
			now := f.moment(n)
			shared.let(now, now.Add(tick))
			if err := s.arrays(in.ingest, f.due(n), bodies); err != nil {
				return r, fmt.Errorf("after %v of the fleet's time: %w", time.Duration(n)*tick, err)
			}
			if ctx.Err() != nil {
				return r, ctx.Err()
			}
		}
		if err := in.applied(ctx); err != nil {
			return r, err
		}
		r.readings, r.sum = 0, 0
		for _, d := range bodies {
			r.readings += d.number
			r.sum += d.sum
		}
		if err := after(stretch, r.readings); err != nil {
			return r, err
		}
	}
	r.took = time.Since(began)
	return r, in.verify(ctx, r.kept)
}

// most events that an array may hold.
const mostEvents = 1000

// arrays sends the arrivals of a tick and waits until they are acknowledged.
func (s *sender) arrays(host string, as []arrival, bodies []*body) error {
	var payload []byte
	for len(as) > 0 {
		n := min(len(as), mostEvents)
		payload = append(payload[:0], '[')
		for i, a := range as[:n] {
			if i > 0 {
				payload = append(payload, ',')
			}
			bodies[a.device].at = a.at
			payload = bodies[a.device].append(payload)
		}
		if err := s.post(host, append(payload, ']')); err != nil {
			return err
		}
		as = as[n:]
	}
	return nil
}

// delays are how long the newest readings took to arrive, by the times that the instance reports.
func (in *instance) delays(ctx context.Context) (*hist, error) {
	var page struct {
		Events struct {
			Results []struct{ OccurredTime, ProcessedTime time.Time }
		}
	}
	if err := in.query(ctx, "event-management", `{events(criteria:{pageNumber:1,pageSize:1000}){results{occurredTime processedTime}}}`, nil, &page); err != nil {
		return nil, err
	}
	h := &hist{}
	for _, r := range page.Events.Results {
		h.add(r.ProcessedTime.Sub(r.OccurredTime), 1)
	}
	return h, nil
}
