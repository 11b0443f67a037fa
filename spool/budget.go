package spool

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/setting"
)

// BudgetSettings are the keys of the write budget, in the section spool.
type BudgetSettings struct {
	WriteBudget       setting.Size  `yaml:"write_budget" doc:"Maximum bytes that go to the disk per day, to spare flash: what this process writes, and a third of that for the journal of the file system. To keep within it, commits of commit_interval auto wait longer, up to commit_interval_max. 0: no budget."`
	CommitIntervalMax time.Duration `yaml:"commit_interval_max" default:"250ms" zero:"no" doc:"The longest that a commit waits for the sake of write_budget: an acknowledgement is delayed by as much."`
}

const (
	day = 24 * time.Hour
	// spareShare of a day's budget may be used at once; the rest comes in evenly over the day, so that no day ends above its budget.
	spareShare = 24
	// journalShare is the part of what the process writes that the journal of a file system adds: measured on ext4 it is a fifth
	// where commits wait long, and less where each writes whole pages for a few bytes.
	journalShare = 3
	// commitEstimate is what a commit writes where the system does not say: the pages of the log and of the journal under it.
	commitEstimate = 16 << 10
	// budgetGain is how much longer than needed commits wait once the spare is used up, so that it fills again.
	budgetGain = 1.25
)

// Budget keeps the bytes that go to the disk per day within a bound, by making commits wait: what a commit writes costs the same
// for one message as for many. Sample measures, Interval is the effect. It is safe for concurrent use.
type Budget struct {
	cfg      BudgetSettings
	interval atomic.Int64 // nanoseconds

	mu                   sync.Mutex
	at                   time.Time // of the newest sample, zero before the first
	written              int64     // as of then
	commits              uint64
	spare                float64 // bytes that may be written beyond what comes in
	cost                 float64 // bytes per commit, moving mean
	begun                time.Time
	today                int64
	estimated, exhausted bool
}

// BudgetState is where a budget stands.
type BudgetState struct {
	PerDay int64 `json:"perDay"` // bytes
	// Today is what was written since Since, with the journal of the file system: the day's beginning in UTC, or the start of the process when that was later.
	Today int64     `json:"today"`
	Since time.Time `json:"since"`
	// CommitIntervalMillis is how long commits wait now to keep the budget: acknowledgements come later by up to as much.
	CommitIntervalMillis float64 `json:"commitIntervalMillis"`
	// Exhausted says that the budget is exceeded although commits wait as long as they may.
	Exhausted bool `json:"exhausted"`
	// Estimated says that the system does not report written bytes: they are estimated from the number of commits.
	Estimated bool `json:"estimated"`
}

// NewBudget returns a budget. With a WriteBudget of 0 it measures and delays nothing.
func NewBudget(cfg BudgetSettings) *Budget {
	return &Budget{cfg: cfg, spare: float64(cfg.WriteBudget) / spareShare}
}

// Interval is how long commits wait now for the sake of the budget, 0 for no longer than they would.
func (b *Budget) Interval() time.Duration { return time.Duration(b.interval.Load()) }

// Sample takes in what the process has written since its start, and how many commits the log has made. written is negative where
// the system does not say.
func (b *Budget) Sample(now time.Time, written int64, commits uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.estimated = written < 0; b.estimated {
		written = int64(commits) * commitEstimate
	} else {
		written += written / journalShare
	}
	if b.at.IsZero() {
		b.at, b.begun, b.written, b.commits, b.today = now, now, written, commits, written
		return
	}
	bytes, made := max(0, written-b.written), commits-b.commits
	span := max(0, now.Sub(b.at))
	if midnight := now.UTC().Truncate(day); b.begun.Before(midnight) {
		b.begun, b.today = midnight, 0
	}
	b.at, b.written, b.commits = now, written, commits
	b.today += bytes
	if b.cfg.WriteBudget <= 0 {
		return
	}
	if made > 0 {
		if each := float64(bytes) / float64(made); b.cost == 0 {
			b.cost = each
		} else {
			b.cost += (each - b.cost) / 8
		}
	}
	perDay := float64(b.cfg.WriteBudget)
	most := perDay / spareShare
	rate := (perDay - most) / day.Seconds()
	b.spare = max(-perDay, min(most, b.spare+rate*span.Seconds()-float64(bytes)))
	b.stretch(most, rate)
}

// stretch sets the interval: none while half of the spare is left, and from there on longer, until commits at that interval would
// write less than comes in. It needs the lock.
func (b *Budget) stretch(most, rate float64) {
	short := min(2, 1-b.spare/(most/2)) // 0 at half of the spare, 1 where it is used up
	interval := time.Duration(0)
	if short > 0 {
		interval = time.Duration(b.cost / rate * budgetGain * short * float64(time.Second))
	}
	longest := b.cfg.CommitIntervalMax
	b.exhausted = interval >= longest && b.spare < 0
	b.interval.Store(int64(min(interval, longest)))
}

// State is where the budget stands.
func (b *Budget) State() BudgetState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return BudgetState{PerDay: int64(b.cfg.WriteBudget), Today: b.today, Since: b.begun.UTC(),
		CommitIntervalMillis: float64(b.Interval()) / float64(time.Millisecond), Exhausted: b.exhausted, Estimated: b.estimated}
}

// String describes it in one line, for people. size formats bytes.
func (s BudgetState) String(size func(int64) string) string {
	text := fmt.Sprintf("%s of %s today", size(s.Today), size(s.PerDay))
	if s.CommitIntervalMillis > 0 {
		text += fmt.Sprintf("; commits wait %.0f ms for it", s.CommitIntervalMillis)
	}
	if s.Exhausted {
		text += ", which is not enough"
	}
	return text
}
