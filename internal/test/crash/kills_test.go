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
	points := pointsOf(t)
	maps.DeleteFunc(points, func(p string, _ int) bool { return ofActing(p) })
	k := &killer{t: t, file: filepath.Join(t.TempDir(), "plan"), pass: points, missed: map[string]int{}, met: map[string]int{}}
	w := furnishTwin(t, settings, []string{"FAULTS_PLAN=" + k.file, shortWaits}, r)
	w.passing = newPassing(w.p)
	began, random, starting, stops := time.Now(), 0, 0, 0
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
		stopped := point == "" && r.IntN(2) == 0 && !w.p.Over()
		var failed error
		if stopped {
			failed = w.p.Stop()
		}
		w.p.Kill()
		end()
		met := k.took()
		if stopped = stopped && met == ""; stopped {
			if stops++; failed != nil {
				t.Errorf("round %d: a stop: %v\n%s", round, failed, w.p.Stderr())
			}
		}
		if stopped || round%looks == 0 {
			w.rested(stopped)
		}
		// Now and then the start is ended as well, where the point lies on its way.
		if met == "" && point != "" && r.IntN(2) == 0 {
			write(t, k.file, point+" 1\n")
		}
		if (point == "" || met != "") && r.IntN(6) == 0 {
			stops++
			w.stopAtStart(time.Duration(r.IntN(200)) * time.Millisecond)
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
	w.passing.checkErased(w, true) // it has stopped then
	w.rested(true)
	if w.twin.edges == 0 || w.twin.orders == 0 {
		t.Error("no rule has fired, or none has ordered anything: the test shows less than it should")
	}
	t.Logf("%d kills in %v, %d of them at random moments and %d during the start, and %d stops; %v were spent on what was at rest; %s", *kills, time.Since(began).Round(time.Second), random, starting, stops, w.looked.Round(time.Second), w.total())
	k.table(*kills >= 4*len(k.pass))
}

// A stop at any moment of a start, above all while what the log holds is applied: what is committed may be in the last checkpoint and
// nothing else, so that a record is applied once in the end.
func TestStopsDuringTheReplay(t *testing.T) {
	t.Parallel()
	r := seed.Rand(t)
	w := furnishTwin(t, seldom, nil, r)
	began, stops := time.Now(), 0
	for range max(1, *kills/50) {
		for range 3 {
			end, sent := w.load("")
			<-sent
			end()
		}
		w.p.Kill()
		w.rested(false)
		for i := range 4 {
			stops++
			if i%2 == 0 {
				w.stopServing(time.Duration(r.IntN(20)) * time.Millisecond)
			} else {
				w.stopAtStart(time.Duration(r.Int64N(int64(w.took) * 5 / 4)))
			}
		}
		w.rested(false)
		begins := time.Now()
		w.p = testweir.Start(t, w.opt)
		w.took = time.Since(begins)
		w.check()
		if t.Failed() {
			return
		}
	}
	w.checkWhole()
	if err := w.p.Stop(); err != nil {
		t.Error(err)
	}
	w.rested(true)
	t.Logf("%d stops in %v; %s", stops, time.Since(began).Round(time.Second), w.total())
}

// furnishTwin is furnish with a twin. env is more environment of the build with the points.
func furnishTwin(t *testing.T, config string, env []string, r *rand.Rand) *world {
	t.Helper()
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	if err := os.Mkdir(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	w := furnishWith(t, testweir.Options{Dir: dir, Binary: testweir.Tagged(t, "faults"), Env: append(env, "FAULTS_KEEP="+kept)}, config, r)
	w.twin = newTwin(t, filepath.Join(dir, "data"), kept, w.p.Config)
	return w
}

// looks is at how many ends what is at rest is looked at once. What is wrong stays so, so that a later look finds it.
const looks = 4

// stopAtStart starts the instance and asks it to stop, at some moment of its start or after it.
func (w *world) stopAtStart(after time.Duration) {
	w.t.Helper()
	var p *testweir.Proc
	o, stopped := w.opt, make(chan error, 1)
	o.Begun = func(begun *testweir.Proc) {
		p = begun
		time.AfterFunc(after, func() { stopped <- p.Stop() })
	}
	_, _ = testweir.TryStart(w.t, o)                                         // it may not have come up
	if err := <-stopped; err != nil && err.Error() != "signal: terminated" { // it was not listening for signals yet
		w.t.Errorf("a stop %v after the start: %v\n%s", after, err, p.Stderr())
	}
}

// stopServing starts the instance and asks it to stop once devices are served, while what the log holds may still be applied.
func (w *world) stopServing(after time.Duration) {
	w.t.Helper()
	o := w.opt
	o.Serving = true
	p := testweir.Start(w.t, o)
	time.Sleep(after)
	if err := p.Stop(); err != nil {
		w.t.Errorf("a stop %v after devices are served: %v\n%s", after, err, p.Stderr())
	}
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
