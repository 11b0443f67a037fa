package store

import (
	"errors"
	"fmt"
)

// BlockSeriesBits is the maximum number of neighbouring series in a block, as a power of two: a part of a group. One
// merge reads and writes a part's blocks of one day.
const BlockSeriesBits = 7

// BlockPart returns the part of a series, counted over all groups.
func BlockPart(series int64) int64 { return series >> BlockSeriesBits }

// OpenBlocks counts the blocks of one day of a part that may be merged.
type OpenBlocks struct {
	Part int64
	Day  int64 // UTC days since the epoch
	Rows int64
	Runs int64 // maximum of a row

	Readings int64
}

// ErrMerged is returned by ReplaceBlocks when one of the blocks does not exist any more.
var ErrMerged = errors.New("store: a block that was to be merged is gone")

// OpenBlocksByDay returns the blocks that may be merged as of generation gen.
func OpenBlocksByDay(tx Tx, gen uint64) ([]OpenBlocks, error) {
	day := fmt.Sprintf(`(first_at - ((first_at %% %d) + %d) %% %d) / %d`, int64(microsPerDay), int64(microsPerDay), int64(microsPerDay), int64(microsPerDay))
	rows, err := tx.Query(fmt.Sprintf(`SELECT min_series / %d, `, 1<<BlockSeriesBits)+day+`, COUNT(*), MAX(runs), SUM(n) FROM series_blocks
		WHERE open <> 0 AND gen <= ? GROUP BY 1, 2 ORDER BY 1, 2`, int64(gen))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []OpenBlocks
	for rows.Next() {
		var o OpenBlocks
		if err := rows.Scan(&o.Part, &o.Day, &o.Rows, &o.Runs, &o.Readings); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, rows.Err()
}

// BlocksToMerge returns at most limit of the blocks that o counts, oldest first.
func BlocksToMerge(tx Tx, o OpenBlocks, gen uint64, limit int) ([]Block, error) {
	series, day := o.Part<<BlockSeriesBits, o.Day*microsPerDay
	return scanBlocks(tx, `grp = ? AND last_at >= ? AND last_at < ? AND min_series >= ? AND min_series < ? AND open <> 0 AND gen <= ?
		ORDER BY last_at, id LIMIT ?`, SeriesGroup(series), day, day+microsPerDay, series, series+1<<BlockSeriesBits, int64(gen), limit)
}

// ReplaceBlocks writes chunks and blocks instead of other blocks with the same readings. Readers see either the old or
// the new rows. An id alone does not identify a row: after retention has removed the highest, the next checkpoint uses
// its id again.
func ReplaceBlocks(tx Tx, gone []Block, chunks []*Chunk, blocks []*Block) error {
	for i := range gone {
		b := &gone[i]
		n, err := tx.Exec(`DELETE FROM series_blocks WHERE id = ? AND gen = ? AND min_series = ? AND n = ? AND first_offset = ? AND last_offset = ?`,
			b.ID, int64(b.Gen), b.MinSeries, b.Count, int64(b.FirstOffset), int64(b.LastOffset))
		if err != nil {
			return err
		}
		if n != 1 {
			return ErrMerged
		}
	}
	for _, c := range chunks {
		if err := InsertChunk(tx, c); err != nil {
			return err
		}
	}
	for _, b := range blocks {
		if err := InsertBlock(tx, b); err != nil {
			return err
		}
	}
	return nil
}
