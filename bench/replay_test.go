package main

import (
	"testing"
	"time"
)

func TestAFleetSendsEachTenSecondsAndArrivesInTime(t *testing.T) {
	t.Parallel()
	const devices, minutes = 50, 10
	start := time.Unix(1_800_000_000, 0)
	f := newFleet(devices, start)
	last := make([]time.Time, devices)
	readings := 0
	for n := range int(minutes * time.Minute / tick) {
		now := start.Add(time.Duration(n) * tick)
		if m := f.moment(n); m.Before(now) || !m.Before(now.Add(tick)) {
			t.Fatalf("tick %d is received at %v", n, m.Sub(start))
		}
		for _, a := range f.due(n) {
			readings++
			if d := now.Sub(a.at); d < soonest || d+tick > latest {
				t.Fatalf("a reading of %v arrives %v later", a.at.Sub(start), d)
			}
			place := time.Duration(a.device) * every / devices
			if off := (a.at.Sub(start) - jitter - place).Round(every) - (a.at.Sub(start) - jitter - place); off < -jitter || off > jitter {
				t.Fatalf("device %d: a reading lies %v from its place", a.device, off)
			}
			if step := a.at.Sub(last[a.device]); !last[a.device].IsZero() && (step < every-2*jitter || step > every+2*jitter) {
				t.Fatalf("device %d: %v after the one before", a.device, step)
			}
			last[a.device] = a.at
		}
	}
	if want := devices * minutes * 6; readings < want-devices || readings > want {
		t.Errorf("%d readings, %d expected", readings, want)
	}
}

func TestAReadingHasTheTimeThatItIsGiven(t *testing.T) {
	t.Parallel()
	b := newBody(sensor, 1)
	b.at = time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	if _, times, _ := decoded(t, b, 1); !times[0].Equal(b.at) {
		t.Errorf("got %v", times[0])
	}
}
