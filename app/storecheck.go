package app

import (
	"context"
	"time"

	"weir/health"
)

// checkLimit bounds a check of the database beside what runs: it holds a snapshot meanwhile.
const checkLimit = time.Minute

// checkStore reads a database of moderate size through after a stop that was not a clean one: what a power cut has done to
// it is better known now than when somebody needs the page.
func (in *Instance) checkStore(ctx context.Context) error {
	if in.last.Clean || in.store.Stats().Bytes > smallStore {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	if err := in.store.Check(bounded); err != nil && bounded.Err() == nil {
		in.log.Error("the database is damaged", "error", err, "hint", storeHint(in.cfg.DataDir))
	}
	return nil
}

// storeFinding is what is wrong with the database, as far as it is known.
func (in *Instance) storeFinding() (health.Finding, bool) {
	if err := in.store.Stats().Err; err != nil {
		return health.Fail(storeHint(in.cfg.DataDir)+"; what is acknowledged meanwhile waits in the log as long as that has room: weir backup create keeps it, where it still can", "%v", err), false
	}
	return health.Finding{}, true
}
