// Package caused keeps how the changes of the registry ended that records of the log have caused since the checkpoint. The row is
// written in the transaction of the change: a replay that finds it repeats nothing and comes to the same outcome.
package caused

import (
	"database/sql"
	"errors"

	"weir/model"
	"weir/store"
)

// Ending is how a change ended.
type Ending struct {
	Reason string // why it was refused; "": it was not
	Why    string // the same as a sentence
	// Views is what it changed of the metadata view, from the offset of its record on.
	Views []model.ViewChange
}

// Known returns the ending of the change that the record at an offset has caused, nil when there is none yet.
func Known(tx store.Tx, at model.Offset) (*Ending, error) {
	var e Ending
	var views []byte
	err := tx.QueryRow(`SELECT reason, why, views FROM caused_changes WHERE log_offset = ?`, int64(at)).Scan(&e.Reason, &e.Why, &views)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil || views == nil:
		return &e, err
	}
	e.Views, err = store.DecodeViewChanges(views)
	return &e, err
}

// Note notes the ending of a change.
func Note(tx store.Tx, at model.Offset, e *Ending) error {
	var views []byte
	if len(e.Views) > 0 {
		var err error
		if views, err = store.EncodeViewChanges(e.Views); err != nil {
			return err
		}
	}
	_, err := tx.Exec(`INSERT INTO caused_changes (log_offset, reason, why, views) VALUES (?, ?, ?, ?)`, int64(at), e.Reason, e.Why, views)
	return err
}

// Remove removes what is noted of records up to an offset, which no replay meets again.
func Remove(tx store.Tx, upto model.Offset) error {
	_, err := tx.Exec(`DELETE FROM caused_changes WHERE log_offset <= ?`, int64(upto))
	return err
}
