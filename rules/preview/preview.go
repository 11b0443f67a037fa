// Package preview is what a replay preview asks and answers: which edges a draft of a rule would have fired in a window of the past. It runs
// nothing itself: an engine of its own is given the stored history (ingest/replay), and its edges are collected here.
//
//	preview.go  the window, the bounds, and the edges that are gathered
//	request.go  what is asked, checked
//	trace.go    what the nodes of a canvas did at each edge
package preview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/model"
)

// Window is the event times between which edges are asked for, both inclusive.
type Window struct{ From, To model.Micros }

// Holds reports whether a time lies in the window.
func (w Window) Holds(at model.Micros) bool { return at >= w.From && at <= w.To }

// MaxWindow is the longest window. Of a longer one the end counts.
const MaxWindow = 24 * time.Hour

// Bounds are what a preview may cost. A zero one is not limited.
type Bounds struct {
	Events  int64         // samples in the scope of the draft that are judged
	Scanned int64         // stored events that are looked at
	Firings int           // edges that are kept
	Time    time.Duration // of the whole
}

// MaxFirings is the maximum number of edges of an answer, MaxSteps that of the steps of all their traces together, MaxTime how long a preview
// may take.
const (
	MaxFirings = 10_000
	MaxSteps   = 100_000
	MaxTime    = 60 * time.Second
)

// Firing is an edge that the draft would have fired.
type Firing struct {
	Occurred model.Micros
	Received model.Nanos // of the record that caused it
	Series   string      // token of the device, or of the anchor
	Signal   model.EdgeSignal
	Value    float64
	HasValue bool
	Timer    bool // a timer caused it, no sample
}

// Edge is the firing as guards and templates read it.
func (f *Firing) Edge() model.Edge {
	return model.Edge{Occurred: f.Occurred, Received: f.Received, Series: f.Series, Signal: f.Signal, Value: f.Value, HasValue: f.HasValue, Timer: f.Timer}
}

// Stats say what was read for an answer.
type Stats struct {
	Events     int64 // samples in the scope of the draft that were judged
	Scanned    int64 // stored events that were looked at
	EvalErrors int64 // samples of these whose evaluation failed
	Late       int64 // samples and edges that were set aside for their age
}

// Reads is what a preview reads, as it is known before. The rows hold events of other devices, too.
type Reads struct {
	From     model.Micros // receive time
	Devices  int          // that had the profile at one time or another
	Rows     int
	Readings int64
}

// Result is what a draft would have fired.
type Result struct {
	Firings []Firing // by time, series, and raised before resolved
	Stats
	Reads    *Reads   // nil: nothing was read
	Degraded []string // why it may not be everything
}

// Why is the reasons why the result may not be everything in one line, "" when it is.
func (r *Result) Why() string { return strings.Join(r.Degraded, "; ") }

// Degrade adds a reason, once.
func (r *Result) Degrade(format string, args ...any) {
	if why := fmt.Sprintf(format, args...); !slices.Contains(r.Degraded, why) {
		r.Degraded = append(r.Degraded, why)
	}
}

// Collector gathers the edges of an engine that lie in a window.
type Collector struct {
	Window Window
	Max    int // of the edges; 0: no limit
	Result Result
	Full   bool // an edge had no room
}

// Emit takes an edge in. It is a rules.Emit.
func (c *Collector) Emit(e model.Edge) {
	switch {
	case !c.Window.Holds(e.Occurred):
	case c.Max > 0 && len(c.Result.Firings) >= c.Max:
		c.Full = true
	default:
		c.Result.Firings = append(c.Result.Firings, Firing{Occurred: e.Occurred, Received: e.Received, Series: e.Series, Signal: e.Signal, Value: e.Value,
			HasValue: e.HasValue, Timer: e.Timer})
	}
}

// Sort puts the edges into the order of the answer: edges at one time of one series with the same signal stay in the order in which they fired.
func (c *Collector) Sort() {
	slices.SortStableFunc(c.Result.Firings, func(a, b Firing) int {
		return cmp.Or(cmp.Compare(a.Occurred, b.Occurred), strings.Compare(a.Series, b.Series), cmp.Compare(a.Signal, b.Signal))
	})
}
