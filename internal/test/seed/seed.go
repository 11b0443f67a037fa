// Package seed gives a test its random numbers. The seed is printed with what the test reports, and -seed gives it again, so that
// a failure can be repeated as far as the machine lets it:
//
//	go test ./app -run TestKilled -seed 1763794697
package seed

import (
	"flag"
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"time"
)

var given = flag.Uint64("seed", 0, "repeat a run that printed this seed; 0: a new one")

// Rand returns the random numbers of a test: each test has its own, whatever else runs. They are for one goroutine; Fork makes
// those of another.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	s := *given
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", s)
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(s, h.Sum64()))
}

// Fork returns random numbers for another goroutine. It draws from r, so the order of calls decides what each gets.
func Fork(r *rand.Rand) *rand.Rand { return rand.New(rand.NewPCG(r.Uint64(), r.Uint64())) }
