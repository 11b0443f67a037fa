package crash_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/seed"
	"weir/internal/test/testweir"
)

// Killed at a random moment, or at a point that the sources name, and started again: each round holds the instance against
// the books. Every point is met at least once when there are kills enough.
func TestKills(t *testing.T) {
	t.Parallel()
	r := seed.Rand(t)
	k := &killer{t: t, file: filepath.Join(t.TempDir(), "plan"), pass: pointsOf(t), missed: map[string]int{}, met: map[string]int{}}
	w := furnish(t, testweir.Options{Dir: t.TempDir(), Binary: testweir.Tagged(t, "faults"), Env: []string{"FAULTS_PLAN=" + k.file}}, r)
	began, random, starting := time.Now(), 0, 0
	for round := range *kills {
		point := ""
		if left := *kills - round; r.IntN(2) == 0 || left <= 2*k.unmet() {
			point = k.next()
		}
		k.plan(point, round)
		end, sent := w.load(point)
		wait := 3 * time.Second
		if point == "" {
			wait = time.Duration(20+r.IntN(300)) * time.Millisecond
		}
		select {
		case <-w.p.Ended():
		case <-time.After(wait):
		case <-sent:
			select { // they may have ended because it has
			case <-w.p.Ended():
			case <-time.After(100 * time.Millisecond):
			}
		}
		w.p.Kill()
		end()
		met := k.took()
		// Now and then the start is ended as well, where the point lies on its way.
		if met == "" && point != "" && r.IntN(2) == 0 {
			write(t, k.file, point+" 1\n")
		}
		p, err := testweir.TryStart(t, w.opt)
		if err != nil && !strings.Contains(err.Error(), "signal: killed") {
			t.Fatalf("round %d: %v", round, err)
		}
		write(t, k.file, "")
		time.Sleep(planAge)
		if err != nil || p.Over() {
			starting++
			met = k.took()
			p = testweir.Start(t, w.opt)
		}
		w.p = p
		if k.count(point, met, r); met == "" {
			random++
		}
		if *verbose {
			t.Logf("round %d, planned %q, killed at %q; %s", round, point, met, w.total())
		}
		if w.check(); round%20 == 19 {
			w.recount()
		}
		if t.Failed() {
			t.Fatalf("round %d, planned %q, killed at %q", round, point, met)
		}
	}
	w.checkWhole()
	t.Logf("%d kills in %v, %d of them at random moments and %d during the start; %s", *kills, time.Since(began).Round(time.Second), random, starting, w.total())
	k.table(*kills >= 4*len(k.pass))
}

// killer plans at which points the program kills itself.
type killer struct {
	t      *testing.T
	file   string         // of the plan
	pass   map[string]int // at which of its passes a point is tried next
	missed map[string]int // how often a point was planned and not met
	met    map[string]int
}

// next is the point that was met least and planned least.
func (k *killer) next() string {
	tried := func(p string) int { return 100*k.met[p] + k.missed[p] }
	return slices.MinFunc(slices.Sorted(maps.Keys(k.pass)), func(a, b string) int { return tried(a) - tried(b) })
}

// plan writes the plan of a round. What is seldom passed stands in each until it is met.
func (k *killer) plan(point string, round int) {
	var b strings.Builder
	for p, missed := range k.missed {
		if missed > 1 && k.met[p] == 0 && p != point {
			fmt.Fprintf(&b, "%s 1\n", p)
		}
	}
	if point != "" {
		fmt.Fprintf(&b, "%s %d\n", point, k.pass[point])
	}
	fmt.Fprintf(&b, "round %d\n", round+1000)
	write(k.t, k.file, b.String())
}

// took returns the point at which the program has ended, "" when it was killed from outside, and empties the plan.
func (k *killer) took() string {
	write(k.t, k.file, "")
	b, err := os.ReadFile(k.file + ".met")
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err = errors.Join(err, os.Remove(k.file+".met")); err != nil {
		k.t.Fatal(err)
	}
	return string(b)
}

// count takes the outcome of a round: a point that was met is tried later the next time, one that was not earlier.
func (k *killer) count(point, met string, r *rand.Rand) {
	if met != "" {
		k.met[met]++
	}
	switch {
	case point == "":
	case met == point:
		k.pass[point] = 1 + r.IntN(2*k.pass[point]+2)
	default:
		k.missed[point]++
		k.pass[point] = max(1, k.pass[point]/4)
	}
}

func (k *killer) unmet() (n int) {
	for p := range k.pass {
		if k.met[p] == 0 {
			n++
		}
	}
	return n
}

// table shows the points with how often the program was killed there. all: each must have been met.
func (k *killer) table(all bool) {
	var b strings.Builder
	for _, p := range slices.Sorted(maps.Keys(k.pass)) {
		fmt.Fprintf(&b, "\n%6d  %s", k.met[p], p)
		if all && k.met[p] == 0 {
			k.t.Errorf("the point %s was never met", p)
		}
	}
	k.t.Log("killed at" + b.String())
}

// planAge is after what time a change of the plan holds, and more.
const planAge = 20 * time.Millisecond

// pointsOf finds the points in the sources, with the pass at which each is tried first.
func pointsOf(t *testing.T) map[string]int {
	t.Helper()
	call := regexp.MustCompile(`faults\.Point\("([a-z.]+)"\)`)
	out := map[string]int{}
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules" || d.Name() == "tools" || d.Name() == ".git"):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) { // somebody tidies up
			return nil
		}
		for _, m := range call.FindAllStringSubmatch(string(b), -1) {
			if _, twice := out[m[1]]; twice {
				t.Errorf("two points are named %s", m[1])
			}
			out[m[1]] = 4
		}
		return err
	})
	if err != nil || len(out) < 20 {
		t.Fatalf("%d points, %v", len(out), err)
	}
	return out
}

// write replaces a small file.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
