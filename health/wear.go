package health

import (
	"context"
	"fmt"
	"sync"
	"time"

	"weir/spool"
)

// Writing is the amount that a process writes to its disk, which wears flash.
type Writing struct {
	Bytes    int64 `json:"bytes"`    // since the start
	Readings int64 `json:"readings"` // stored since the start
	// PerReading is bytes written per reading, 0 as long as none was stored.
	PerReading float64 `json:"bytesPerReading"`
	// PerDay is the projection for a day, from the measured span of at most the last hour.
	PerDay float64       `json:"bytesPerDay"`
	Span   time.Duration `json:"-"`
}

// String formats it in one line.
func (w *Writing) String() string {
	told := fmt.Sprintf("%s since the start", Bytes(w.Bytes))
	if w.Readings >= fewestReadings {
		told += fmt.Sprintf(", %s a reading", Bytes(int64(w.PerReading)))
	}
	if w.Span >= leastSpan {
		told += fmt.Sprintf("; %s a day, going by the last %s", Bytes(int64(w.PerDay)), w.Span.Round(time.Minute))
	}
	return told
}

const (
	fewestReadings = 1000 // below that the start dominates what is written for each
	longestSpan    = time.Hour
	leastSpan      = 5 * time.Minute // below that a start or a checkpoint dominates
)

// Meter records the writes of the last hour.
type Meter struct {
	mu   sync.Mutex
	past []looked // oldest first
	kept int64
}

type looked struct {
	at    time.Time
	bytes int64
}

// Sample records how many bytes were written and how many readings stored since the start, as of now. It is safe for
// concurrent use.
func (m *Meter) Sample(now time.Time, bytes, readings int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.past) > 1 && now.Sub(m.past[1].at) >= longestSpan {
		m.past = m.past[1:]
	}
	m.past, m.kept = append(m.past, looked{now, bytes}), readings
}

// Writing is the present result, nil before the first sample.
func (m *Meter) Writing() *Writing {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.past) == 0 {
		return nil
	}
	first, last := m.past[0], m.past[len(m.past)-1]
	w := &Writing{Bytes: last.bytes, Readings: m.kept, Span: last.at.Sub(first.at)}
	if w.Readings > 0 {
		w.PerReading = float64(w.Bytes) / float64(w.Readings)
	}
	if w.Span > 0 {
		w.PerDay = float64(last.bytes-first.bytes) * float64(24*time.Hour) / float64(w.Span)
	}
	return w
}

// wornPerDay wears out a card of 32 GB with a rating of 30 TB within two years.
const wornPerDay = 40 << 30

// Wear checks how much a process writes to its disk. w is nil when the system does not report it, b without a write budget.
func Wear(w *Writing, b *spool.BudgetState) Check {
	return Check{"disk-wear", func(context.Context) Finding {
		switch {
		case b != nil && b.Exhausted:
			return Warn("let devices send several readings at once, raise spool.commit_interval_max (acknowledgements come later by that), or "+
				"raise spool.write_budget", "the write budget cannot be kept: %s", b.String(Bytes))
		case b != nil:
			return Good("write budget: %s", b.String(Bytes))
		case w == nil:
			return Skip("the system does not report the bytes that this process writes")
		case w.Span >= leastSpan && w.PerDay > wornPerDay:
			return Warn("on flash, set spool.write_budget, such as 20GiB a day (commits then wait longer where they must, and acknowledgements with them), "+
				"let devices send several readings at once, or raise spool.head_age", "%s", w)
		}
		return Good("%s", w)
	}}
}
