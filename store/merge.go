package store

import (
	"errors"
	"fmt"
)

// BlockSeriesBits is how many neighbouring series a block holds at most, as a power of two: a part of a group. What one
// merging reads and writes is a part's blocks of one day.
const BlockSeriesBits = 7

// BlockPart is the part of its group that a series lies in, counted over all groups.
func BlockPart(series int64) int64 { return series >> BlockSeriesBits }

// OpenBlocks says what a part of a group has in blocks of one day that may be merged.
type OpenBlocks struct {
	Part int64
	Day  int64 // UTC days since the epoch
	Rows int64
	Runs int64 // of the row that has most

	Readings int64
}

// ErrMerged is what ReplaceBlocks returns when one of the blocks is not there any more.
var ErrMerged = errors.New("store: a block that was to be merged is gone")

// OpenBlocksByDay returns what may be merged among the rows that generation gen knows.
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

// ReplaceBlocks writes chunks and blocks in the place of other blocks, which hold the same readings. Readers see either. An
// id alone does not say which row it was: once retention has removed the highest, the next head gives its id to another.
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
