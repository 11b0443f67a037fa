package spool

import (
	"math"
	"testing"
	"time"

	"weir/internal/setting"
)

// box is a machine whose devices send single readings at an even rate: each commit writes a page set and what it holds.
type box struct {
	budget  *Budget
	written float64
	commits float64
	now     time.Time
}

const (
	pageSet   = 16_000
	perRecord = 300
)

// run lets it stand for a while, and returns the bytes written and the longest interval.
func (b *box) run(span time.Duration, perSecond float64) (bytes float64, longest time.Duration) {
	before := b.written
	const step = 10 * time.Second
	for range int(span / step) {
		interval := b.budget.Interval()
		longest = max(longest, interval)
		commits := perSecond * step.Seconds()
		if interval > 0 {
			commits = math.Min(commits, step.Seconds()/interval.Seconds())
		}
		b.commits += commits
		b.written += commits*pageSet + perSecond*step.Seconds()*perRecord
		b.now = b.now.Add(step)
		b.budget.Sample(b.now, int64(b.written), uint64(b.commits))
	}
	return b.written - before, longest
}

func newBox(perDay setting.Size) *box {
	b := &box{budget: NewBudget(BudgetSettings{WriteBudget: perDay, CommitIntervalMax: 250 * time.Millisecond}),
		now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
	b.budget.Sample(b.now, 0, 0)
	return b
}

func TestADayEndsWithinItsBudget(t *testing.T) {
	t.Parallel()
	const perDay = 20 << 30
	for _, perSecond := range []float64{1, 5, 10, 50, 100, 200} {
		b := newBox(perDay)
		for n := range 3 {
			bytes, longest := b.run(day, perSecond)
			if bytes > perDay {
				t.Errorf("%v/s: day %d ends with %.1f GiB", perSecond, n, bytes/(1<<30))
			}
			if free := perSecond * day.Seconds() * (pageSet + perRecord); free < perDay*0.9 && longest > 0 {
				t.Errorf("%v/s: commits wait %v, though all of them fit", perSecond, longest)
			}
			if s := b.budget.State(); s.Exhausted {
				t.Errorf("%v/s: %+v", perSecond, s)
			}
		}
	}
}

// A burst is not slowed down: the budget is that of a day.
func TestABurstHasTheSpare(t *testing.T) {
	t.Parallel()
	b := newBox(20 << 30)
	if _, longest := b.run(4*time.Minute, 100); longest != 0 {
		t.Errorf("commits of a burst wait %v", longest)
	}
	b.run(time.Hour, 100)
	if b.budget.Interval() == 0 {
		t.Error("they do not wait after an hour of it")
	}
	b.run(3*time.Hour, 1)
	if i := b.budget.Interval(); i != 0 {
		t.Errorf("they wait %v after quiet hours", i)
	}
}

func TestABudgetThatCannotBeKeptIsReported(t *testing.T) {
	t.Parallel()
	b := newBox(1 << 30)
	if _, longest := b.run(day-time.Minute, 100); longest != 250*time.Millisecond {
		t.Errorf("the interval goes to %v", longest)
	}
	if s := b.budget.State(); !s.Exhausted || s.Today <= 1<<30 {
		t.Errorf("%+v", s)
	}
}

func TestADayBeginsAtMidnight(t *testing.T) {
	t.Parallel()
	b := newBox(0)
	b.run(day, 10)
	if s := b.budget.State(); s.Today > 10*10*(pageSet+perRecord)*(journalShare+1)/journalShare+1 || !s.Since.Equal(b.now) || b.budget.Interval() != 0 {
		t.Errorf("%+v", s)
	}
}

func TestWhereTheSystemDoesNotSayCommitsAreCounted(t *testing.T) {
	t.Parallel()
	b := NewBudget(BudgetSettings{WriteBudget: 1 << 30, CommitIntervalMax: time.Second})
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	b.Sample(at, -1, 0)
	b.Sample(at.Add(10*time.Second), -1, 100_000)
	if s := b.State(); !s.Estimated || s.Today != 100_000*commitEstimate || b.Interval() == 0 {
		t.Errorf("%+v", s)
	}
}
