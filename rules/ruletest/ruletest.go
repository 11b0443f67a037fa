// Package ruletest is the language in which tests of rules are written, and runs them on the engine that judges live readings.
//
//	rules site.yaml                       # where rules come from: a site file, or the file of one rule
//	test a boiler above 80 °C raises
//	  rule too-hot
//	  at 0s boiler-1 temp=80
//	  expect nothing
//	  at 10s boiler-1 temp=81
//	  expect raised too-hot boiler-1 severity major at 10s value 81
//
// A statement is one line; a rule that stands in the file itself is its JSON, which may take several. Times are periods since the
// begin of the test. Parse reads a file, File.Run runs it: both depend on nothing but their arguments.
package ruletest

import (
	"time"

	"weir/internal/yamldoc"
	"weir/model"
	"weir/rules"
)

// Extension is how the name of a file of tests ends.
const Extension = ".ruletest"

// The bounds of a file.
const (
	MaxFile    = 1 << 20              // bytes
	MaxTests   = 1000                 // in a file
	MaxRules   = 50                   // in a test
	MaxRecords = 50_000               // in a file, repetitions counted
	MaxSteps   = 500_000              // records times rules, in a file; a position counts once more for each 16 positions of the test's geofences
	MaxPeriod  = 400 * 24 * time.Hour // of time since the begin of a test, both ways
	maxSamples = 10_000               // that the rules of a test retain
	maxMetrics = 64                   // in a sample
)

// Begin is when tests begin that do not say it.
var Begin = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// File is a file of tests that was read.
type File struct {
	Name    string
	Sources []Source // the files with rules that it names
	Tests   []Test

	begin    time.Time
	lateness time.Duration
	rules    []ruleUse  // of the tests that name none
	fences   []fenceUse // of all tests
}

// Source is a file with rules, by its path as the file of tests names it.
type Source struct {
	Path  string
	Place yamldoc.Position
}

// Test is one test of a file.
type Test struct {
	Name string
	Line int

	place  yamldoc.Position
	rules  []ruleUse
	fences []fenceUse
	steps  []step
}

// Rule is a rule as a test uses it.
type Rule struct {
	Definition string            // JSON
	Group      string            // its group scope, "" for none
	Stable     string            // {profileToken}/{ruleToken}, "" for that of a rule of the profile "test"
	Fences     map[string]string // geometries of the geofences that its tenant declares, by token
}

// ruleUse names a rule, and defines it where definition is not empty.
type ruleUse struct {
	token      string
	group      string // its group scope, where it is defined
	definition string
	place      yamldoc.Position
}

// verb is what a step does.
type verb uint8

const (
	wait       verb = iota // time passes
	apply                  // a sample
	transition             // of presence
	create                 // the device is in the roster
	remove
	join
	leave
	attribute
	fence // another geometry, or none any more
	restart
	publish
	refuse      // messages of the tenant are turned away
	accept      // they are not any more
	expectEdges // a block of expectations
)

// step is a statement of a test.
type step struct {
	verb     verb
	line     int
	at       times
	device   string
	readings []model.Reading
	where    *model.Location // of a sample with a position
	presence model.PresenceState
	reason   string
	anchor   model.Anchor
	taken    *times        // event times, nil for those of the arrival
	age      time.Duration // of a sample at its arrival
	rule     ruleUse       // of a publish
	fence    fenceUse
	grace    time.Duration // of a restart
	name     string        // of an attribute
	value    *float64      // of an attribute, nil: it has none
	expects  []expectation
}

// records is how many records the step is.
func (s *step) records() int {
	if s.taken != nil {
		return max(s.at.count(), s.taken.count())
	}
	return s.at.count()
}

// times are one time, or several at equal distances.
type times struct{ from, to, every time.Duration }

func (t times) count() int {
	if t.every <= 0 {
		return 1
	}
	return int((t.to-t.from)/t.every) + 1
}

func (t times) at(i int) time.Duration { return t.from + time.Duration(i)*t.every }

// expectation is one line of expect.
type expectation struct {
	line    int
	text    string // as it stands
	figure  string // one of figures: of the rule's health; "": an edge, or nothing
	nothing bool
	signal  model.EdgeSignal
	rule    string
	key     string
	number  int64 // of a figure

	severity string
	at       *time.Duration
	value    *float64
	noValue  bool
	alarms   []string // keys of all alarms that it raises, sorted
	noAlarm  bool
}

// Report is the outcome of a file.
type Report struct {
	File   string   `json:"file"`
	Tests  []Result `json:"tests"`
	Failed int      `json:"failed"`
}

// Result is the outcome of one test.
type Result struct {
	Name    string   `json:"name"`
	Line    int      `json:"line"`
	Passed  bool     `json:"passed"`
	Failure *Failure `json:"failure,omitempty"`
}

// Failure is the first expectation of a test that does not hold.
type Failure struct {
	Line     int      `json:"line"`
	Expected string   `json:"expected"`
	Came     []string `json:"came"` // the edges that came instead and after; empty: none
}

// World is what tests need and do not hold themselves.
type World struct {
	Rule func(token string) (Rule, error)    // the rule that a test names, or why there is none
	Area func(geometry string) (Area, error) // reads the geometry of a geofence; nil: tests have none
}

// Area is what a geofence encloses.
type Area interface {
	Contains(lon, lat float64) bool
	Positions() int // of its rings
}

// Lateness is detection.lateness of the instance that the file is written for, 0 for the default.
func (f *File) Lateness() time.Duration { return f.lateness }

// Limits are those of the compiler for the file.
func (f *File) Limits() rules.Limits {
	return rules.Limits{Actions: rules.Performed(), Settings: rules.Settings{MaxDuration: MaxPeriod, Lateness: f.lateness, MaxSamples: maxSamples}}
}
