package seed

import (
	"fmt"
	"testing"
)

// recorder is a test that keeps what it logs.
type recorder struct {
	testing.TB
	name string
	logs []string
}

func (r *recorder) Helper()                    {}
func (r *recorder) Name() string               { return r.name }
func (r *recorder) Logf(f string, args ...any) { r.logs = append(r.logs, fmt.Sprintf(f, args...)) }

func TestAPrintedSeedRepeatsTheRun(t *testing.T) {
	before := *given
	defer func() { *given = before }()
	*given = 0
	first := &recorder{name: "TestA"}
	r := Rand(first)
	want := []uint64{r.Uint64(), Fork(r).Uint64(), r.Uint64()}
	if len(first.logs) != 1 {
		t.Fatalf("logged %q, expected one line", first.logs)
	}
	if _, err := fmt.Sscanf(first.logs[0], "-seed %d", given); err != nil {
		t.Fatal(err)
	}
	r = Rand(&recorder{name: "TestA"})
	if got := []uint64{r.Uint64(), Fork(r).Uint64(), r.Uint64()}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%d with the seed that was printed, %d before", got, want)
	}
	if got := Rand(&recorder{name: "TestB"}).Uint64(); got == want[0] {
		t.Error("two tests draw the same numbers")
	}
}
