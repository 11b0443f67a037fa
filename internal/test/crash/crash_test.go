// Package crash_test ends the program in every way that storage.md, section 9, names, starts it again on what is left, and
// compares with what was acknowledged. A world of devices, tenants, rules and changes keeps its own books (world_test.go,
// source_test.go, churn_test.go); check_test.go holds an instance against them. What ends it: the power (torn_test.go, with
// package powercut), a kill at a random moment or at a point that a build with the tag faults names (kills_test.go), or a
// place of its own (places_test.go).
package crash_test

import (
	"flag"
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	kills   = flag.Int("kills", few, "how often the program is killed, and how often its power is cut")
	seed    = flag.Uint64("seed", 0, "repeat the plan of a run that printed it; 0: a new one")
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

// plan is the chance that a test runs by. It is printed, so that the run can be repeated as far as the machine lets it.
func plan(t *testing.T) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", s)
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(s, h.Sum64()))
}
