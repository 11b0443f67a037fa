package app

import (
	"context"
	"time"

	"weir/config"
)

// watchEvery is how often the files of a watched configuration are looked at.
const watchEvery = 2 * time.Second

func (in *Instance) runReload(ctx context.Context) error {
	ticks := in.opt.Ticks
	if ticks == nil {
		t := time.NewTicker(watchEvery)
		defer t.Stop()
		ticks = t.C
	}
	w := watcher{in: in}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-in.opt.Hangup:
			in.reload("SIGHUP")
		case <-ticks:
			w.look()
			_ = in.lookAtCertificate(false) // it has told
		}
	}
}

// watcher looks for files that have changed. What it sees must stay the same until it looks again: a file that is being
// written may be half there, or empty, and mean something else.
type watcher struct {
	in      *Instance
	pending config.Fingerprint
}

func (w *watcher) look() {
	if !w.in.obeyed().Files.Watch {
		return
	}
	w.in.reloads.one.Lock()
	seen := w.in.reloads.seen
	w.in.reloads.one.Unlock()
	switch now := config.Read(*w.in.opt.Source).Fingerprint; now {
	case seen:
		w.pending = config.Fingerprint{}
	case w.pending:
		w.in.reload("watch")
	default:
		w.pending = now
	}
}
