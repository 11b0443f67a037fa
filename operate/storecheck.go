package operate

import (
	"context"
	"errors"
	"time"

	"weir/health"
	"weir/store"
)

// smallStore is how large a database may be to be read through at a start after an unclean stop.
const smallStore = 256 << 20

// checkLimit bounds a check of the database beside what runs: it holds a snapshot meanwhile.
const checkLimit = time.Minute

// CheckStore reads a database of moderate size through after a stop that was not a clean one: what a power cut has done to
// it is better known now than when somebody needs the page.
func (o *Operator) CheckStore(ctx context.Context) error {
	if o.LastStop.Clean || o.Store.Stats().Bytes > smallStore {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	if err := o.Store.Check(bounded); err != nil && bounded.Err() == nil {
		o.Log.Error("the database is damaged", "error", err, "hint", storeHint(o.Config.DataDir))
	}
	return nil
}

// doubtHint is what to do about a database that cannot be trusted while it is open. After a failed sync there is nothing to
// bring back: the log still holds what the database may have lost, for it is trimmed only behind a sync that succeeded.
func doubtHint(dir string, err error) string {
	if errors.Is(err, store.ErrUnsynced) {
		return "restart weir: the database is opened anew and the log makes up for what it lacks; then look at the disk (dmesg, smartctl): it has refused a sync"
	}
	return storeHint(dir)
}

// doubtText says in a line what is wrong with the database.
func doubtText(err error) string {
	if errors.Is(err, store.ErrUnsynced) {
		return "the database takes nothing until weir is restarted: " + err.Error()
	}
	return "the database is damaged: " + err.Error()
}

// storeFinding is what is wrong with the database, as far as it is known.
func (o *Operator) storeFinding() (health.Finding, bool) {
	if err := o.Store.Stats().Err; err != nil {
		return health.Fail(doubtHint(o.Config.DataDir, err)+"; what is acknowledged meanwhile waits in the log as long as that has room: weir backup create keeps it, where it still can", "%v", err), false
	}
	return health.Finding{}, true
}
