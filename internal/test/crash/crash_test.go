// Package crash_test ends the program in every way that storage.md, section 9, names, starts it again on what is left, and
// compares with what was acknowledged. A world of devices, tenants, rules and changes keeps its own books (world_test.go,
// source_test.go, churn_test.go); check_test.go holds an instance against them. Rules of every kind run over it (every_test.go), and what
// they find is held against a twin that applies the same log (twin_test.go). What ends it: the power (torn_test.go, with
// package powercut), a kill at a random moment or at a point that a build with the tag faults names (kills_test.go), or a
// place of its own (places_test.go).
package crash_test

import (
	"flag"
	"testing"
)

var (
	kills   = flag.Int("kills", few, "how often the program is killed, and how often its power is cut")
	verbose = flag.Bool("rounds", false, "tell of each round")
)

// few kills show that the tests run. With more, as make crash has them, everything is tried.
const few = 3

// whole leaves a test to make crash.
func whole(t *testing.T) {
	t.Helper()
	if *kills <= few {
		t.Skip("make crash runs it")
	}
}
