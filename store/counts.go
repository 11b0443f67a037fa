package store

import (
	"errors"

	"weir/model"
)

// What the database holds, counted: the totals, and the reads of a recount, which are the packed rows of all tenants, and
// the row events and dead letters by the hour of their receipt.

// ChunksAfter returns at most limit chunks of generation gen or earlier with an id above after, by id.
func ChunksAfter(tx Tx, gen uint64, after int64, limit int) ([]Chunk, error) {
	return scanChunks(tx, `id > ? AND gen <= ? ORDER BY id LIMIT ?`, after, int64(gen), limit)
}

// BlocksAfter is ChunksAfter for blocks.
func BlocksAfter(tx Tx, gen uint64, after int64, limit int) ([]Block, error) {
	return scanBlocks(tx, `id > ? AND gen <= ? ORDER BY id LIMIT ?`, after, int64(gen), limit)
}

// PackedRows returns the number of chunks and blocks, including those of an unfinished checkpoint.
func PackedRows(tx Tx) (chunks, blocks int64, err error) {
	err = tx.QueryRow(`SELECT (SELECT COUNT(*) FROM series_chunks), (SELECT COUNT(*) FROM series_blocks)`).Scan(&chunks, &blocks)
	return chunks, blocks, err
}

// RowTally counts the row events of a tenant from an event source in one hour.
type RowTally struct {
	TenantID int64
	Source   string
	Hour     int64 // since the epoch
	LedgerCount
}

const microsPerHour int64 = 60 * 60 * 1_000_000

// TallyRowEvents calls f with the counts of locations, alerts, new relationships and answers to commands up to an offset; the last two carry
// no reading. State changes are not in the ledger.
func TallyRowEvents(tx Tx, upto model.Offset, f func(RowTally) error) error {
	rows, err := tx.Query(`SELECT tenant_id, source, received_at / ?, SUM(CASE WHEN idx = 0 THEN 1 ELSE 0 END), SUM(CASE WHEN type IN (?, ?) THEN 0 ELSE 1 END) FROM row_events
		WHERE type IN (?, ?, ?, ?) AND log_offset <= ? GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`,
		microsPerHour, int64(model.NewRelationship), int64(model.CommandResponse), int64(model.LocationEvent), int64(model.AlertEvent),
		int64(model.NewRelationship), int64(model.CommandResponse), int64(upto))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var t RowTally
		if err := rows.Scan(&t.TenantID, &t.Source, &t.Hour, &t.Messages, &t.Readings); err != nil {
			return err
		}
		if err := f(t); err != nil {
			return err
		}
	}
	return rows.Err()
}

// DeadTally counts the dead letters of a tenant from an event source in one hour for one reason.
type DeadTally struct {
	Tenant, Source, Reason string
	Hour                   int64
	Count                  int64
}

// TallyDeadLetters calls f with the counts of the dead letters of messages up to an offset. Copies of refused messages
// never entered the log and are left out.
func TallyDeadLetters(tx Tx, upto model.Offset, f func(DeadTally) error) error {
	rows, err := tx.Query(`SELECT tenant, source, reason, occurred / ?, COUNT(*) FROM dead_letters
		WHERE kind = ? AND log_offset > 0 AND log_offset <= ? GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4`,
		microsPerHour, DeadLetterIngest, int64(upto))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var t DeadTally
		if err := rows.Scan(&t.Tenant, &t.Source, &t.Reason, &t.Hour, &t.Count); err != nil {
			return err
		}
		if err := f(t); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Holdings are the counts of a database's content.
type Holdings struct {
	Tenants, Devices int64
	// Messages are those that the ledger has as stored, Readings those in them.
	Messages, Readings int64
}

// ReadHoldings counts what the database holds.
func ReadHoldings(tx Tx) (h Holdings, err error) {
	err = errors.Join(
		tx.QueryRow(`SELECT count(*) FROM tenants`).Scan(&h.Tenants),
		tx.QueryRow(`SELECT count(*) FROM devices`).Scan(&h.Devices),
		tx.QueryRow(`SELECT coalesce(sum(messages), 0), coalesce(sum(readings), 0) FROM ledger WHERE heading = ?`, string(OutcomeStored)).Scan(&h.Messages, &h.Readings))
	return h, err
}
