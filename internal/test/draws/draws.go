// Package draws says how many random draws a test makes. The plain run makes all of them. Where the same tests run a second time to show
// something else (the race detector, ints of 32 bits), each draw costs several times as much, and the fiftieth shows no more of that than the
// fifth: these parts of the gate set DRAWS=few, and a fifth of the draws is made, as RAPID_CHECKS says it to rapid. The night run makes
// all of them everywhere.
package draws

import (
	"iter"
	"os"
	"testing"
)

// share is the part of the draws that is made when there are to be few.
const share = 5

// All reports whether all draws are made. What a test asserts about all of them together holds only then.
func All() bool { return os.Getenv("DRAWS") != "few" }

// Of returns how many of so many draws are made: all of them, or a fifth, rounded up.
func Of(all int) int {
	if All() {
		return all
	}
	return (all + share - 1) / share
}

// Seeds are the seeds of so many draws from 0 on: all of them, or every fifth, so that what depends on the remainder of a seed varies.
func Seeds(all int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		step := 1
		if !All() {
			step = share
		}
		for seed := 0; seed < all && yield(uint64(seed)); seed += step {
		}
	}
}

// NeedsAll leaves a test to the runs that make all draws: one that is a single large draw of what others draw as well, or a long row of
// cases that one goroutine goes through.
func NeedsAll(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skip("long, and one after the other; this run, with DRAWS=few, leaves that to the plain one")
	}
}
