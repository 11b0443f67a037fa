package rules

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"weir/internal/test/draws"
	"weir/model"
)

// TestTimersKeepTheirOrder: whatever becomes due earlier, later or never, the next timer is the one that a search through all of them finds.
func TestTimersKeepTheirOrder(t *testing.T) {
	t.Parallel()
	for seed := range draws.Seeds(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := &profile{key: plant.ProfileKey, tenant: &tenant{}}
		var h timers
		all := make([]*extra, 60)
		for i := range all {
			all[i] = newExtra(&device{id: int64(i / 3), profile: p}, int32(i%3), "")
		}
		in := map[*extra]bool{}
		for step := range 2000 {
			x := all[r.IntN(len(all))]
			switch due := Listening(1 + step/10 + r.IntN(40)); {
			case !in[x]:
				x.due, in[x] = due, true
				h.add(x)
			case r.IntN(4) == 0:
				delete(in, x)
				h.remove(x)
			default:
				x.due = due
				h.moved(x)
			}
			if until := Listening(step / 10); r.IntN(2) == 0 { // asked by records, of which most are before the next timer
				first, at := h.next(until)
				if first != nil && (at != first.due || at > until) || first == nil && slices.ContainsFunc(slices.Collect(maps.Keys(in)), func(x *extra) bool { return x.due <= until }) {
					t.Fatalf("seed %d, step %d: %v is due at %d, asked until %d", seed, step, waitsFor(first), at, until)
				}
				continue
			}
			first, at := h.next(never)
			var want *extra
			for o := range in {
				if want == nil || (timer{o.due, o}).before(timer{want.due, want}) {
					want = o
				}
			}
			if first != want || want != nil && at != want.due || len(h) != len(in) {
				t.Fatalf("seed %d, step %d: %v is next, want %v, of %d", seed, step, waitsFor(first), waitsFor(want), len(in))
			}
			for i := range h {
				if int(h[i].slot) != i+1 {
					t.Fatalf("seed %d, step %d: the key at %d says that it is at %d", seed, step, i, h[i].slot-1)
				}
			}
		}
	}
}

func waitsFor(x *extra) string {
	if x == nil {
		return "none"
	}
	return fmt.Sprintf("rule %d of device %d at %d", x.rule, x.device.id, x.due)
}

// BenchmarkTimers is a reading of a device at random, each of which leaves a sliding window later: at about every reading a timer fires, and
// is set again.
func BenchmarkTimers(b *testing.B) {
	const devices = 20_000
	w := newBench(b, Limits{Settings: Settings{MaxKeys: 8 * devices}})
	w.install(1, view("s", `{"name":"s","type":"aggregate","windowMode":"sliding","window":"1m","agg":"avg","metric":"temp","op":"gt","threshold":80}`))
	in := &Input{Position: w.place(0), Profile: plant.ProfileKey, Readings: readings("temp", 20.0)}
	n := uint64(1)
	apply := func() {
		n = n*6364136223846793005 + 1442695040888963407
		in.Offset++
		in.Occurred += 300
		in.Listening = Listening(in.Occurred) * 1000
		in.Device = Device{ID: int64(n>>33) % devices, Token: "device"}
		w.e.Advance(in.Position, func(model.Edge) {})
		w.e.Apply(in, func(model.Edge) {})
	}
	for range 10 * devices {
		apply()
	}
	b.ReportAllocs()
	for b.Loop() {
		apply()
	}
}
