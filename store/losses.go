package store

import (
	"encoding/json"
	"fmt"
	"slices"

	"weir/model"
)

// LogLoss is a part of the log that cannot be read any more. Its messages may have been acknowledged.
type LogLoss struct {
	At model.Micros `json:"at"` // when it was found
	// First to Last are the offsets without a readable record. Last is First-1 when their number is unknown: records
	// before First are lost.
	First model.Offset `json:"first"`
	Last  model.Offset `json:"last"`
	Why   string       `json:"why"`
}

// Records is how many offsets are lost.
func (l LogLoss) Records() int64 { return int64(l.Last) - int64(l.First) + 1 }

const (
	metaLogLosses = "log_losses"
	metaLogEpoch  = "log_epoch"
	keptLosses    = 50
)

// LogLosses returns the parts of the log that were lost, oldest first, the newest fifty of them.
func LogLosses(tx Tx) (ls []LogLoss, err error) {
	body, err := Meta(tx, metaLogLosses)
	if err != nil || body == nil {
		return nil, err
	}
	if err := json.Unmarshal(body, &ls); err != nil {
		return nil, fmt.Errorf("%w: meta %s: %w", ErrDamaged, metaLogLosses, err)
	}
	return ls, nil
}

// AddLogLoss records a lost part of the log. Every replay finds it again until a checkpoint lies after it: fresh is false
// when it was recorded before.
func AddLogLoss(tx Tx, l LogLoss) (fresh bool, err error) {
	ls, err := LogLosses(tx)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(ls, func(k LogLoss) bool { return k.First <= l.First && l.Last <= k.Last }) {
		return false, nil
	}
	ls = append(ls, l)
	body, err := json.Marshal(ls[max(len(ls)-keptLosses, 0):])
	if err != nil {
		return false, err
	}
	return true, SetMeta(tx, metaLogLosses, body)
}

// LogEpoch is the newest epoch of the log that this store was paired with, 0 when there was none.
func LogEpoch(tx Tx) (uint32, error) {
	n, _, err := MetaInt(tx, metaLogEpoch)
	return uint32(n), err
}

// SetLogEpoch records the epoch.
func SetLogEpoch(tx Tx, epoch uint32) error { return SetMetaInt(tx, metaLogEpoch, int64(epoch)) }

// HighestOffset is the highest offset in any result: some results are committed at once, ahead of the checkpoint.
func HighestOffset(tx Tx) (highest model.Offset, err error) {
	if highest, _, err = CheckpointState(tx); err != nil {
		return 0, err
	}
	for _, query := range []string{
		`SELECT coalesce(max(log_offset), 0) FROM edge_progress`,
		`SELECT coalesce(max(log_offset), 0) FROM row_events`,
		`SELECT coalesce(max(log_offset), 0) FROM dead_letters WHERE log_offset > 0`,
		// Every change of the view moves this row with it.
		`SELECT coalesce(max(from_offset), 0) FROM view_rows WHERE kind = 'control-sequence' AND key = ''`,
	} {
		var o int64
		if err := tx.QueryRow(query).Scan(&o); err != nil {
			return 0, err
		}
		highest = max(highest, model.Offset(o))
	}
	return highest, nil
}
