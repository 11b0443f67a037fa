package broker

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// onHookPath says which way publishes take in the brokers of the tests. Only TestMain changes it.
var onHookPath bool

// TestMain runs every test on both paths: what holds for one holds for the other. A fuzz target runs once: FuzzStream
// chooses the path for itself, and the other targets take none.
func TestMain(m *testing.M) {
	flag.Parse()
	for _, once := range []string{"test.fuzz", "test.list"} {
		if flag.Lookup(once).Value.String() != "" {
			os.Exit(m.Run())
		}
	}
	worst := 0
	for _, onHookPath = range []bool{false, true} {
		if onHookPath {
			fmt.Println("once more on the hook path")
		}
		worst = max(worst, m.Run())
	}
	os.Exit(worst)
}
