package main

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheClockStaysInsideTheSpanItIsGiven(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := time.Unix(1_800_000_000, 0)
		file := filepath.Join(t.TempDir(), "board")
		hands, err := makeBoard(file, at, at.Add(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		c, err := openBoard(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			let       bool
			from, to  time.Duration
			pass, see time.Duration
		}{
			{see: 0},
			{pass: 10 * time.Millisecond, see: 200 * time.Millisecond},
			{pass: time.Hour, see: time.Second},
			{let: true, from: 2 * time.Second, to: 3 * time.Second, see: 2 * time.Second},
			{pass: 25 * time.Millisecond, see: 2500 * time.Millisecond},
			{let: true, from: 2600 * time.Millisecond, to: 2700 * time.Millisecond, pass: time.Minute, see: 2700 * time.Millisecond},
			{let: true, from: time.Second, to: 2 * time.Second, see: 2700 * time.Millisecond}, // never back
		} {
			if step.let {
				hands.let(at.Add(step.from), at.Add(step.to))
			}
			time.Sleep(step.pass)
			wall, mono := c.now()
			if got := wall.Sub(at); got != step.see || mono != step.see {
				t.Errorf("%+v: the clock stands at %v, %v since it was opened", step, got, mono)
			}
		}
		c.log(5)
		c.log(7)
		if n := hands.writtenByLog(); n != 12 {
			t.Errorf("%d bytes of the log", n)
		}
	})
}
