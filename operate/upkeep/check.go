package upkeep

import (
	"context"
	"time"
)

// smallStore is how large a database may be to be read through at a start after an unclean stop.
const smallStore = 256 << 20

// checkLimit bounds a check of the database during operation: it holds a snapshot meanwhile.
const checkLimit = time.Minute

// CheckStore reads a database of moderate size through after a stop that was not a clean one: what a power cut has done to
// it is better known now than when the page is needed.
func (k *Maintained) CheckStore(ctx context.Context, hint string) error {
	if k.Store.Stats().Bytes > smallStore {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	if err := k.Store.Check(bounded); err != nil && bounded.Err() == nil {
		k.Log.Error("the database is damaged", "error", err, "hint", hint)
	}
	return nil
}
