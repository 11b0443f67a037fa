package ingest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"weir/store"
)

// shown is what the transports' side of the ledger shows in all lines.
func (d *TransportCounts) shown() map[store.Outcome]store.LedgerCount {
	out := map[store.Outcome]store.LedgerCount{}
	d.live(func(k store.LedgerKey, c store.LedgerCount) {
		have := out[k.Outcome]
		have.Add(c)
		out[k.Outcome] = have
	})
	return out
}

// slowCeiling has nothing until the sender's time is over.
type slowCeiling struct{ *testCeiling }

func (c slowCeiling) Wait(ctx context.Context, _ string, _ int, timeout time.Duration) bool {
	select {
	case <-time.After(timeout):
	case <-ctx.Done():
	}
	return false
}

// What waits at the intake, for the ceiling, for the disk or for space in the log, is waiting in the ledger: it balances at
// every instant, and afterwards the message has another outcome.
func TestWhatWaitsAtTheIntakeIsWaitingInTheLedger(t *testing.T) {
	t.Parallel()
	for _, why := range []string{"ceiling", "disk", "log"} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				in, log, d, ceiling := paperIntake(false)
				a := senders[4].arrival()
				a.HoldFor = holdTime
				switch why {
				case "ceiling":
					ceiling.left, a.CeilingWait = 0, holdTime
					in.deps.Ceiling = slowCeiling{ceiling}
				case "disk":
					d.turn(true, true)
				case "log":
					log.full = true
				}
				go in.Accept(t.Context(), a, func(Answer) {})
				synctest.Wait()
				one := store.LedgerCount{Messages: 1}
				if got := in.deps.Counts.shown(); got[store.OutcomeReceived] != one || got[store.OutcomeWaiting] != one || len(got) != 2 {
					t.Errorf("while it waits: %v", got)
				}
				time.Sleep(holdTime)
				synctest.Wait()
				got := in.deps.Counts.shown()
				ended := got[store.OutcomeRefused].Messages + got[store.OutcomeDropped].Messages
				if got[store.OutcomeReceived] != one || ended != 1 || got[store.OutcomeWaiting] != (store.LedgerCount{}) {
					t.Errorf("afterwards: %v", got)
				}
			})
		})
	}
}

// An imbalance that lasts is one; one that is gone at the next read was a message on its way.
func TestAnImbalanceIsWhatLasts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.applier.Ledger()
	k := line{tenant: "acme", transport: TransportMQTT, source: "mqtt1", hour: 1}.key(store.OutcomeReceived, ReasonNone)
	l.memory.add(k, store.LedgerCount{Messages: 3})
	wrong, all, err := l.Imbalances(t.Context())
	if err != nil || all != 1 || len(wrong) != 1 || wrong[0].Missing() != 3 {
		t.Errorf("%+v of %d, %v", wrong, all, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := l.Imbalances(ended); err == nil {
		t.Error("it goes on after the end of its context")
	}
}
