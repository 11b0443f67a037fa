// Package window holds what a rule remembers of a key whose samples it judges in the order of their event times: the key's
// own clock, the samples that wait for it or lie in a window, and the start or value that its kind carries on. A Line is 80
// bytes, a sample 16. Everything is a function of the calls; package rules decides what the calls mean.
package window

import (
	"math"
	"slices"

	"weir/model"
)

// Listening is listening time in nanoseconds, as package rules defines it.
type Listening int64

// Never is an event time that no sample has.
const Never model.Micros = math.MinInt64

// Sample is a sample as it is retained: its event time and what its own place in the log made of it.
type Sample struct {
	tag   int64 // event time << flagBits | flags
	Value float64
}

// Flags are what the condition said of a sample.
type Flags uint8

// The flags of a sample.
const (
	Holds   Flags = 1 << iota // the sample satisfies the condition
	Stays                     // it does not release what is raised: it satisfies the condition, or the one with clear
	Valued                    // it has a value
	written                   // it lies in a segment (segment.go); no part of what the sample is

	flagBits  = 4
	flagsMask = written - 1
)

// NewSample returns a sample. The value is 0 unless flags has Valued.
func NewSample(at model.Micros, flags Flags, value float64) Sample {
	if flags&Valued == 0 {
		value = 0
	}
	return Sample{int64(at)<<flagBits | int64(flags), value}
}

// At is the event time.
func (s Sample) At() model.Micros { return model.Micros(s.tag >> flagBits) }

// Is reports whether the sample has a flag.
func (s Sample) Is(f Flags) bool { return Flags(s.tag)&f != 0 }

// Bare returns the sample without its value.
func (s Sample) Bare() Sample { return Sample{tag: s.tag &^ int64(Valued|written)} }

// Line is the timeline of a key. The zero value belongs to no key; New returns one that nothing has reached.
type Line struct {
	Newest model.Micros // largest event time
	Heard  Listening    // at the last arrival
	Judged model.Micros // event time of the last sample judged, Never before the first
	Mark   model.Micros // the kind's own: start of a hold or session, end of the last closed window; Never for none
	Value  float64      // the kind's own: the previous value, or what a window adds up to
	N      int32        // the kind's own: samples that Value adds up
	done   int32        // samples[:done] were judged and lie in the window; the others wait
	run    *run         // late arrivals in a row, nil for none
	buffer []Sample     // by event time, those of equal time in the order of the log
}

// New returns a line that nothing has reached.
func New() *Line { return &Line{Newest: Never, Judged: Never, Mark: Never} }

// Reset removes what the line holds and lets it begin again at an event time.
func (l *Line) Reset(at model.Micros, now Listening) {
	*l = Line{Newest: at, Heard: now, Judged: Never, Mark: Never}
}

// Arrival is how an arriving sample lies to the newest.
type Arrival uint8

// The arrivals.
const (
	OnTime  Arrival = iota
	Late            // before newest − lateness
	SetBack         // the clock of the device was set back; the line begins again at this sample
)

// Arrive moves the clock of the line to a sample that arrives now.
func (l *Line) Arrive(at model.Micros, now Listening, lateness model.Micros) Arrival {
	if l.Newest == Never || at >= l.Newest-lateness {
		l.Newest, l.Heard, l.run = max(l.Newest, at), now, nil
		return OnTime
	}
	l.Heard = now
	if l.run = l.run.add(at, now); l.run.setBack() {
		l.Reset(at, now)
		return SetBack
	}
	return Late
}

// Clock is the time of the key: newest plus the listening time since the last arrival, less the lateness.
func (l *Line) Clock(now Listening, lateness model.Micros) model.Micros {
	return l.Newest + model.Micros(max(0, now-l.Heard)/1000) - lateness
}

// Reaches is the listening time at which the clock reaches an event time.
func (l *Line) Reaches(at, lateness model.Micros) Listening {
	return l.Heard + Listening(max(0, at+lateness-l.Newest))*1000
}

// Retained is the number of samples that the line holds.
func (l *Line) Retained() int { return len(l.buffer) }

// Waiting are the samples that were not judged, by event time. The slice is valid until the line changes.
func (l *Line) Waiting() []Sample { return l.buffer[l.done:] }

// Kept are the samples that were judged and lie in the window, by event time. The slice is valid until the line changes.
func (l *Line) Kept() []Sample { return l.buffer[:l.done] }

// Hold adds a sample to those that wait.
func (l *Line) Hold(s Sample) {
	at := len(l.buffer)
	for at > int(l.done) && l.buffer[at-1].At() > s.At() {
		at--
	}
	l.insert(at, s)
}

// Keep adds a judged sample to the window.
func (l *Line) Keep(s Sample) {
	s.tag &^= int64(written)
	at := int(l.done)
	for at > 0 && l.buffer[at-1].At() > s.At() {
		at--
	}
	l.insert(at, s)
	l.done++
}

// Lend gives memory for a sample to a line that has none, and returns what it did not need. Most samples are judged at once, so lines
// that retain nothing can have it in turn.
func (l *Line) Lend(spare []Sample) []Sample {
	if l.buffer != nil {
		return spare
	}
	l.buffer = spare
	return nil
}

// TakeBack takes memory for a sample from a line that retains none, and returns what there is to lend.
func (l *Line) TakeBack(spare []Sample) []Sample {
	if len(l.buffer) == 0 && cap(l.buffer) == 1 {
		spare, l.buffer = l.buffer, nil
	}
	return spare
}

// insert lets the buffer grow by a quarter, so that a sample takes no more than 20 bytes in a long one.
func (l *Line) insert(at int, s Sample) {
	if n := len(l.buffer); n == cap(l.buffer) {
		grown := make([]Sample, n, n+1+n/4)
		copy(grown, l.buffer)
		l.buffer = grown
	}
	l.buffer = slices.Insert(l.buffer, at, s)
}

// Pop removes the first sample that waits, if its time is not after through.
func (l *Line) Pop(through model.Micros) (Sample, bool) {
	if int(l.done) == len(l.buffer) || l.buffer[l.done].At() > through {
		return Sample{}, false
	}
	s := l.buffer[l.done]
	if l.done == 0 {
		l.cut(1)
	} else {
		l.buffer = slices.Delete(l.buffer, int(l.done), int(l.done)+1)
	}
	return s, true
}

// Evict removes the samples of the window whose time is not after through.
func (l *Line) Evict(through model.Micros) {
	n := 0
	for n < int(l.done) && l.buffer[n].At() <= through {
		n++
	}
	l.Drop(n)
}

// Drop removes the first n samples of the window.
func (l *Line) Drop(n int) {
	l.cut(n)
	l.done -= int32(n)
}

// short is the length up to which removing the first samples moves the others, which keeps the memory of the buffer.
const short = 64

func (l *Line) cut(n int) {
	switch {
	case n == 0:
	case n == len(l.buffer) && n > short:
		l.buffer = nil
	case len(l.buffer) <= short:
		l.buffer = slices.Delete(l.buffer, 0, n)
	case n > len(l.buffer)/2: // the memory before the slice would stay
		l.buffer = slices.Clone(l.buffer[n:])
	default:
		l.buffer = l.buffer[n:]
	}
}

// run is a run of late arrivals without one that is on time between them.
type run struct {
	count int32
	first model.Micros
	last  model.Micros
	since Listening
	until Listening
}

// The run that shows that a clock was set back.
const (
	runLength = 8
	runSpan   = Listening(60e9)
)

func (r *run) add(at model.Micros, now Listening) *run {
	if r == nil || r.complete() {
		r = &run{first: at, since: now}
	}
	r.count, r.last, r.until = r.count+1, at, now
	return r
}

// complete reports whether the run is long enough to be judged. One that shows no clock is followed by another.
func (r *run) complete() bool { return r.count >= runLength && r.until-r.since >= runSpan }

// setBack reports whether the run advances between half and twice as fast as listening time. A backlog advances faster.
func (r *run) setBack() bool {
	if !r.complete() {
		return false
	}
	event, listening := int64(r.last-r.first), int64(r.until-r.since)/1000
	return event >= listening/2 && event <= listening*2
}
