//go:build faults

package faults

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// PlanVariable names the file of the plan: a line for each point, with the pass at which the process ends there, counted from
// when the plan was read. The file may change while the program runs; it is looked at again after planAge. Beside it, in a
// file of the same name with metSuffix, the process says at which point it has ended.
const PlanVariable = "FAULTS_PLAN"

// KeepVariable names a folder beside the data: the files of the log that the program removes stay there, so that a test can apply all
// of the log again.
const KeepVariable = "FAULTS_KEEP"

// WaitsVariable shortens waits: name=duration for each, with commas between them.
const WaitsVariable = "FAULTS_WAITS"

const (
	planAge   = 5 * time.Millisecond
	metSuffix = ".met"
)

var plan struct {
	sync.Mutex
	text string
	read time.Time
	left map[string]int // passes, by point
}

// Point ends the process when the plan says so.
func Point(name string) {
	plan.Lock()
	defer plan.Unlock()
	if time.Since(plan.read) > planAge {
		readPlan()
	}
	if plan.left[name]--; plan.left[name] == 0 {
		end(name)
	}
}

// readPlan takes a plan that has changed. One that cannot be read is none.
func readPlan() {
	plan.read = time.Now()
	b, _ := os.ReadFile(os.Getenv(PlanVariable))
	if plan.left != nil && string(b) == plan.text {
		return
	}
	plan.text, plan.left = string(b), map[string]int{}
	for line := range strings.Lines(plan.text) {
		var point string
		var pass int
		if _, err := fmt.Sscan(line, &point, &pass); err == nil {
			plan.left[point] = pass
		}
	}
}

// Wait returns how long a wait with a name is: what WaitsVariable says, otherwise as long as usual.
func Wait(name string, usual time.Duration) time.Duration {
	for wait := range strings.SplitSeq(os.Getenv(WaitsVariable), ",") {
		if named, text, ok := strings.Cut(wait, "="); ok && named == name {
			if d, err := time.ParseDuration(text); err == nil {
				return d
			}
		}
	}
	return usual
}

// Keep keeps a file that is about to be removed, where the environment says so.
func Keep(path string) {
	dir := os.Getenv(KeepVariable)
	if dir == "" {
		return
	}
	if err := os.Link(path, filepath.Join(dir, filepath.Base(path))); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
		panic(err)
	}
}

// end kills the process at once, as a kill from outside would, and does not return.
func end(name string) {
	err := os.WriteFile(os.Getenv(PlanVariable)+metSuffix, []byte(name), 0o600)
	p, e := os.FindProcess(os.Getpid())
	if e == nil {
		e = p.Kill()
	}
	if err = errors.Join(err, e); err != nil {
		panic(err)
	}
	select {}
}
