package memory

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The pacing of the garbage collector.
const (
	usualPercent = 100 // Go's default: the heap doubles between two collections
	maxPercent   = 400
	percentStep  = 50
	busyCycles   = 4 // collections in a second, at the default pace, from which on a slower pace is worthwhile
	maxSpare     = 64 << 20
)

// Pacer lets more garbage gather while much of it is made: with a small heap the collector would otherwise take a quarter of
// the processor time. It uses an eighth of the limit for that, at most 64 MiB, and releases it in the first second
// in which little is made, so that an idle instance stays small. The pace applies to the process, and the memory limit of
// the runtime has precedence.
type Pacer struct {
	spare   int64
	percent int
	cycles  uint64
	set     func(percent int)
	release func()
	look    func() (cycles uint64, live int64)
}

// NewPacer returns a pacer for a process that may take limit bytes.
func NewPacer(limit int64) *Pacer {
	p := &Pacer{spare: min(limit/8, maxSpare), percent: usualPercent, set: pace, look: lookAtHeap, release: debug.FreeOSMemory}
	p.cycles, _ = p.look()
	return p
}

// settled is how many seconds after its begin a process has started: what the start needed is given back then. An idle process might not
// collect for minutes, and migrations and keys of a first start are as much again as what it holds.
const settled = 5

// Run paces until ctx ends.
func (p *Pacer) Run(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for seconds := 1; ; seconds++ {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			p.step()
			if seconds == settled {
				p.release()
			}
		}
	}
}

// step evaluates the last second.
func (p *Pacer) step() {
	cycles, live := p.look()
	made := int64(cycles-p.cycles) * int64(p.percent) // collections there would have been at one percent
	p.cycles = cycles
	next := usualPercent
	if made >= busyCycles*usualPercent {
		next = int(min(max(p.spare*100/max(live, 1), usualPercent), maxPercent)) / percentStep * percentStep
	}
	if next != p.percent {
		p.percent = next
		p.set(next)
	}
}

// pace sets the runtime's percentage. Back at the default, garbage is collected at once: an idle process might not collect for minutes.
func pace(percent int) {
	debug.SetGCPercent(percent)
	if percent == usualPercent {
		runtime.GC()
	}
}

// lookAtHeap returns the number of collections, and the live heap after the last one.
func lookAtHeap() (cycles uint64, live int64) {
	s := []metrics.Sample{{Name: "/gc/cycles/automatic:gc-cycles"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64(), int64(s[1].Value.Uint64())
}
