package upkeep

import (
	"context"
	"time"
)

const (
	spaceEvery = 10 * time.Second
	// spaceStep is what one transaction gives back; spacePause is what others have of the store's writer in between.
	spaceStep  = 1 << 20
	spacePause = 20 * time.Millisecond
)

// Space gives free pages of the database back to the file system while little of the disk is free, until ctx ends: what retention has
// removed then is free for the log, too, and messages are accepted again. While more is free the pages stay for new rows, because
// giving them back moves others.
func (k *Maintained) Space(ctx context.Context) error {
	t := time.NewTicker(spaceEvery)
	defer t.Stop()
	failed := false
	for {
		given, err := k.giveBack(ctx)
		switch {
		case err != nil && ctx.Err() == nil && !failed:
			k.Log.Warn("free pages of the database could not be given back to the disk; it is tried again", "error", err)
		case given > 0:
			k.Log.Info("the disk is nearly full: free pages of the database were given back to it", "bytes", given)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// giveBack gives pages back when less than three halves of the disk reserve are free, until twice the reserve is.
func (k *Maintained) giveBack(ctx context.Context) (given int64, err error) {
	free, reserve, err := k.Disk()
	if err != nil || free >= reserve+reserve/2 {
		return 0, nil // a disk that fails is reported by the database, when it cannot write
	}
	for free < 2*reserve {
		n, err := k.Store.GiveBack(ctx, min(spaceStep, 2*reserve-free))
		if given += n; err != nil || n == 0 {
			return given, err
		}
		select {
		case <-ctx.Done():
			return given, ctx.Err()
		case <-time.After(spacePause):
		}
		if free, reserve, err = k.Disk(); err != nil {
			return given, nil
		}
	}
	return given, nil
}
