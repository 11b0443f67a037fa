package command

import (
	"fmt"
	"testing"

	"weir/store"
)

// BenchmarkRoundTrip is a command for each of 128 devices: made, claimed, acknowledged and answered, each in one transaction for all of them.
func BenchmarkRoundTrip(b *testing.B) {
	for _, step := range []string{"all", "create", "claim", "acknowledge", "answer"} {
		b.Run(step, func(b *testing.B) {
			w := newWorld(b)
			w.ceiling = 1 << 40
			tokens := make([]string, group)
			for i := range tokens {
				tokens[i] = fmt.Sprint("d", i)
				w.carrier.live[w.device(tokens[i], "mqtt1")] = true
			}
			b.ReportAllocs()
			timed := func(name string, do func()) {
				if step == name {
					b.StartTimer()
				}
				do()
				if step == name {
					b.StopTimer()
				}
			}
			b.ResetTimer()
			if step != "all" {
				b.StopTimer()
			}
			n := 0
			for n < b.N {
				timed("create", func() {
					w.tx(func(tx store.Tx) error {
						for i := range tokens {
							if _, refused, err := w.Create(tx, Order{TenantID: tenant, Token: fmt.Sprint("c", n+i), Device: tokens[i], Name: "open"}); err != nil || refused != nil {
								return fmt.Errorf("%v %w", refused, err)
							}
						}
						return nil
					})
				})
				timed("claim", w.settle)
				flying := w.carrier.flying
				w.carrier.flying = nil
				timed("acknowledge", func() {
					for _, d := range flying {
						w.carrier.end(d, Acknowledged)
					}
					w.settle()
				})
				timed("answer", func() {
					w.tx(func(tx store.Tx) error {
						for _, d := range flying {
							if done, err := w.Answer(tx, Response{TenantID: tenant, DeviceID: d.DeviceID, Token: d.Token, Nonce: d.Nonce, Success: true, At: 1}); err != nil || done != Moved {
								return fmt.Errorf("%v %w", done, err)
							}
						}
						return nil
					})
				})
				n += len(flying)
			}
		})
	}
}

// BenchmarkIdlePolls is a poll of each of 128 devices for which nothing waits.
func BenchmarkIdlePolls(b *testing.B) {
	w := newWorld(b)
	b.ReportAllocs()
	for n := 0; n < b.N; n += group {
		for d := range int64(group) {
			w.Ended(Receipt{DeviceID: d, Carrier: "mqtt", End: Lost})
			w.Reachable(d)
			w.Claim(d, "mqtt", func(Dispatch, bool) {})
		}
		w.settle()
	}
}
