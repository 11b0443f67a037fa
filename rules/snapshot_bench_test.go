package rules

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/model"
)

// slow is a rule of a kind that keeps more than a latch.
func slow(kind string) string {
	return fmt.Sprintf(`{"name":"n",%s,"when":{"metric":"temp","op":"gt","threshold":80}}`, kind)
}

// BenchmarkSnapshot is a snapshot of a million keys, all changed, while samples of devices at random arrive: what the two of them
// work for it, what the bytes are, and how long a batch of 100 samples takes at most.
func BenchmarkSnapshot(b *testing.B) {
	const keys = 1_000_000
	for name, rule := range map[string]string{
		"threshold": hot(80),
		"duration":  slow(`"type":"duration","hold":"1h"`),
		"sliding":   `{"name":"n","type":"aggregate","windowMode":"sliding","window":"1h","agg":"avg","metric":"temp","op":"gt","threshold":80}`,
	} {
		b.Run(name, func(b *testing.B) {
			w := newBench(b, Limits{Settings: Settings{MaxKeys: 2 * keys}})
			w.install(1, view("r", rule))
			in := &Input{Position: w.place(0), Profile: plant.ProfileKey, Readings: []model.Reading{{Metric: "temp", Value: 81}}}
			apply := func(id int64, at model.Micros) {
				in.Offset++
				in.Device, in.Occurred, in.Listening = Device{ID: id, Token: "device-000001"}, at, Listening(at)*1000
				w.e.Apply(in, func(model.Edge) {})
			}
			for id := range int64(keys) {
				apply(id, 1e15)
			}
			at, n := model.Micros(1e15), uint64(1)
			for b.Loop() {
				for _, p := range w.e.profiles {
					for i := range p.parts {
						p.parts[i].devicesDirty, p.parts[i].keysDirty = true, true
					}
				}
				var mu sync.Mutex
				began, done := time.Now(), make(chan time.Duration)
				s := w.e.Cut()
				cut, size := time.Since(began), 0
				go func() {
					var worked time.Duration
					for more := true; more; runtime.Gosched() {
						mu.Lock()
						from := time.Now()
						var pages []Page
						pages, more = s.Next()
						worked += time.Since(from)
						mu.Unlock()
						for _, p := range pages {
							size += len(p.Data)
						}
					}
					done <- worked
				}()
				var worked time.Duration
				var batches []time.Duration
				for running := true; running; {
					from := time.Now()
					at += 1e4
					for range 100 {
						n = n*6364136223846793005 + 1442695040888963407
						mu.Lock()
						apply(int64(n>>33)%keys, at)
						mu.Unlock()
					}
					batches = append(batches, time.Since(from))
					select {
					case worked = <-done:
						running = false
					default:
					}
				}
				b.ReportMetric(float64(cut.Microseconds()), "cut-µs")
				b.ReportMetric(float64(worked.Milliseconds()), "work-ms")
				b.ReportMetric(float64(time.Since(began).Milliseconds()), "took-ms")
				b.ReportMetric(float64(slices.Max(batches).Microseconds()), "slowest-batch-µs")
				b.ReportMetric(float64(len(batches)), "batches")
				b.ReportMetric(float64(size)/1e6, "MB")
			}
		})
	}
}
