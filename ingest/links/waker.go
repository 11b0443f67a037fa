package links

import (
	"context"
	"log/slog"
	"time"

	"weir/internal/faults"
)

// Pace of the waker: timers that are due within a step share a record, and a log that refuses is asked again after retry.
const (
	wakerStep  = 50 * time.Millisecond
	wakerRetry = time.Second
)

// Waker has a record appended when a timer is due and nothing else arrives that would fire it. While nothing is due it appends
// none.
type Waker struct {
	Links *Links
	// Due is the listening time of the next timer, as of what is applied; 0 for none.
	Due func() int64
	// Moved has a value when Due may have changed.
	Moved <-chan struct{}
	// Waiting reports whether the log holds records that are not applied: they bring the time.
	Waiting func() bool
	// Append appends a record that says nothing but its time, and returns once it is synced.
	Append func(context.Context) error
	Logger *slog.Logger
}

// Run appends records until ctx ends.
func (w *Waker) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		due := w.Due()
		wait, runs, turn := w.Links.Until(due)
		switch runs = runs && due > 0; {
		case runs && wait == 0:
			w.wake(ctx)
		case runs:
			w.sleep(ctx, time.After(wait), turn)
		default:
			w.sleep(ctx, nil, turn)
		}
	}
	return nil
}

func (w *Waker) sleep(ctx context.Context, reached <-chan time.Time, turn <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-turn:
	case <-w.Moved:
	case <-reached:
	}
}

// wake appends a record, unless one is on its way. What is due within the next step shares it.
func (w *Waker) wake(ctx context.Context) {
	pause := wakerStep
	if !w.Waiting() {
		faults.Point("timer.append")
		err := w.Append(ctx)
		faults.Point("timer.appended")
		if err != nil && ctx.Err() == nil {
			w.Logger.Warn("timers of rules are due and wait for the log", "error", err, "retry", wakerRetry.String())
			pause = wakerRetry
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}
