package app

import (
	"context"
	"time"

	"weir/config"
)

// watchEvery is how often the files of a watched configuration are looked at.
const watchEvery = 2 * time.Second

func (r *reload) run(ctx context.Context) error {
	// Tests bring their own ticks.
	ticks := r.opt.Ticks
	if ticks == nil {
		t := time.NewTicker(watchEvery)
		defer t.Stop()
		ticks = t.C
	}
	w := watcher{r: r}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.opt.Hangup:
			r.Reload("SIGHUP")
		case <-ticks:
			w.look()
			_ = r.in.certificate.checkFiles(false) // it has reported
		}
	}
}

// watcher looks for files that have changed. What it sees must stay the same until it looks again: a file that is being
// written may be half there, or empty, and mean something else.
type watcher struct {
	r       *reload
	pending config.Fingerprint
}

func (w *watcher) look() {
	if !w.r.effective().Files.Watch {
		return
	}
	// A reload may be under way.
	w.r.one.Lock()
	seen := w.r.seen
	w.r.one.Unlock()
	// Reload when the files differ from the last reload and look the same twice in a row.
	switch now := config.Read(*w.r.opt.Source).Fingerprint; now {
	case seen:
		w.pending = config.Fingerprint{}
	case w.pending:
		w.r.Reload("watch")
	default:
		w.pending = now
	}
}
