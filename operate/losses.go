package operate

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weir/health"
	"weir/model"
	"weir/store"
)

// How long a loss of the log is worth an alert, and a finding.
const (
	lossAlert   = 24 * time.Hour
	lossFinding = 7 * 24 * time.Hour
)

// Loss is a part of the log that cannot be read any more.
type Loss struct {
	At    time.Time    `json:"at"`
	First model.Offset `json:"first"`
	// Last is First-1 when only this is known: whatever followed before First is gone.
	Last model.Offset `json:"last"`
	Why  string       `json:"why"`
}

// String says it in one line.
func (l Loss) String() string {
	what := fmt.Sprintf("records %d to %d", l.First, l.Last)
	switch {
	case l.Last < l.First:
		what = fmt.Sprintf("whatever followed record %d", l.Last)
	case l.Last == l.First:
		what = fmt.Sprintf("record %d", l.First)
	}
	return fmt.Sprintf("%s (%s, found %s)", what, l.Why, l.At.UTC().Format(time.RFC3339))
}

// reader is what losses are read from.
type reader interface {
	Read(context.Context, func(store.Tx) error) error
}

func losses(ctx context.Context, st reader) (out []Loss, err error) {
	err = st.Read(ctx, func(tx store.Tx) error {
		ls, err := store.LogLosses(tx)
		out = nil
		for _, l := range ls {
			out = append(out, Loss{At: l.At.Time(), First: l.First, Last: l.Last, Why: l.Why})
		}
		return err
	})
	return out, err
}

// since leaves out what was found before.
func since(ls []Loss, at time.Time) []Loss {
	return slices.DeleteFunc(slices.Clone(ls), func(l Loss) bool { return l.At.Before(at) })
}

// lossFindingOf reports what of the log was lost, and what was set aside instead of being lost.
func lossFindingOf(ctx context.Context, st reader, dir string, now time.Time) health.Finding {
	all, err := losses(ctx, st)
	if err != nil {
		return health.Skip("it cannot be read: %v", err)
	}
	var parts []string
	for _, l := range since(all, now.Add(-lossFinding)) {
		parts = append(parts, l.String())
	}
	hint := "look at the disk (dmesg, smartctl); devices that keep what they send may send it again; a change of the registry made just then may not be effective: save or publish it again"
	if aside, _ := filepath.Glob(SpoolPath(dir) + ".foreign-*"); len(aside) > 0 {
		parts = append(parts, "set aside: "+strings.Join(aside, ", "))
		hint = "a log that was set aside belongs to another database: put it back beside that one, or remove it; " + hint
	}
	if len(parts) > 0 {
		return health.Warn(hint, "%s", strings.Join(parts, "; "))
	}
	return health.Good("nothing of the log was lost in the last week")
}
