package upkeep

import (
	"context"
	"time"

	"weir/model"
)

const (
	// mergeLook is how often it is looked whether a checkpoint was written since, after which there may be something to merge;
	// days that are over are looked for every hour.
	mergeLook  = 15 * time.Second
	mergeEvery = time.Hour
	// mergePause is what others have of the store's writer between two steps.
	mergePause = 20 * time.Millisecond
)

// Merge merges blocks into chunks until ctx ends.
func (k *Maintained) Merge(ctx context.Context) error {
	t := time.NewTicker(mergeLook)
	defer t.Stop()
	gen, last, reported := k.Series.Generation(), time.Duration(-1), ""
	pause := func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(mergePause):
			return nil
		}
	}
	for {
		wall, mono := k.Look()
		if now := k.Series.Generation(); last < 0 || now != gen || mono-last >= mergeEvery {
			gen, last = now, mono
			if _, err := k.Series.Merge(ctx, model.MicrosOf(wall), pause); err != nil && ctx.Err() == nil && err.Error() != reported {
				reported = err.Error() // once, and not every few seconds: the rows stay as they are
				k.Log.Warn("some blocks of readings could not be merged; they stay as they are. weir ledger verify says what is damaged", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}
