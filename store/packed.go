package store

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"weir/model"
)

// Chunk is a packed run of readings of one series.
type Chunk struct {
	ID          int64
	Gen         uint64
	TenantID    int64
	Series      int64
	Anchors     int64
	Profile     int64
	First, Last model.Micros
	Count       int64
	Sum         float64
	Min, Max    float64
	FirstOffset model.Offset
	LastOffset  model.Offset
	Source      string
	Unit        string
	DataType    string
	Data        []byte
}

const chunkColumns = `gen, tenant_id, series, anchors, profile, first_at, last_at, n, total, low, high, first_offset, last_offset,
	source, unit, data_type, data`

// InsertChunk writes a chunk.
func InsertChunk(tx Tx, c *Chunk) error {
	_, err := tx.Exec(`INSERT INTO series_chunks (`+chunkColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		int64(c.Gen), c.TenantID, c.Series, c.Anchors, c.Profile, int64(c.First), int64(c.Last), c.Count, c.Sum, c.Min, c.Max,
		int64(c.FirstOffset), int64(c.LastOffset), c.Source, c.Unit, c.DataType, c.Data)
	return err
}

// Block is a row of short runs of many series.
type Block struct {
	ID                   int64
	Gen                  uint64
	TenantID             int64
	Group                int64
	MinSeries, MaxSeries int64
	First, Last          model.Micros
	Count                int64 // readings
	Runs                 int64
	FirstOffset          model.Offset
	LastOffset           model.Offset
	Anchored             bool
	Merged               bool // not merged again
	Data                 []byte
}

const blockColumns = `gen, tenant_id, grp, min_series, max_series, first_at, last_at, n, runs, first_offset, last_offset, anchored, data, open`

// InsertBlock writes a block.
func InsertBlock(tx Tx, b *Block) error {
	_, err := tx.Exec(`INSERT INTO series_blocks (`+blockColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		int64(b.Gen), b.TenantID, b.Group, b.MinSeries, b.MaxSeries, int64(b.First), int64(b.Last), b.Count, b.Runs,
		int64(b.FirstOffset), int64(b.LastOffset), flag(b.Anchored), b.Data, flag(!b.Merged))
	return err
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// PackedScope selects chunks and blocks: those of one series or, with Series 0, those of the tenant. LastSeries, of the
// same group, is the last of several series whose blocks are read together, 0 for none.
type PackedScope struct {
	TenantID   int64
	Series     int64
	LastSeries int64
	Gen        uint64
	// From and To bound the event times, both inclusive. A row is selected when one of its readings may be between them.
	From, To model.Micros
}

// microsPerDay is a UTC day: no chunk or block contains more than one.
const microsPerDay = 24 * 60 * 60 * 1_000_000

// lastBound returns the largest last time of a row that begins at or before to.
func lastBound(to model.Micros) int64 {
	day := int64(to) / microsPerDay
	if int64(to)%microsPerDay < 0 {
		day--
	}
	const upper = 1<<63 - 1
	if day >= upper/microsPerDay-1 {
		return upper
	}
	return (day+1)*microsPerDay - 1
}

// where returns the condition for the rows of a scope after a position. The upper bound is a bound of the index and not a
// comparison of rows: otherwise each batch would begin at the newest row again.
func (s PackedScope) where(column string, key int64, after *After) (string, []any) {
	scope, arg, upper := `tenant_id`, s.TenantID, lastBound(s.To)
	if s.Series != 0 {
		scope, arg = column, key
	}
	if after != nil {
		upper = min(upper, int64(after.Last))
	}
	q := scope + ` = ? AND last_at >= ? AND last_at <= ? AND first_at <= ? AND gen <= ?`
	args := []any{arg, int64(s.From), upper, int64(s.To), int64(s.Gen)}
	if after != nil {
		return q + ` AND (last_at < ? OR id < ?)`, append(args, int64(after.Last), after.ID)
	}
	return q, args
}

// Where returns the condition for the rows of the tenant, which those of chunks and of blocks have in common, and its arguments.
func (s PackedScope) Where() (string, []any) {
	s.Series = 0
	return s.where("", 0, nil)
}

func (s PackedScope) chunks(after *After) (string, []any) { return s.where(`series`, s.Series, after) }

func (s PackedScope) blocks(after *After) (string, []any) {
	q, args := s.where(`grp`, SeriesGroup(s.Series), after)
	if s.Series == 0 {
		return q, args
	}
	return q + ` AND min_series <= ? AND max_series >= ?`, append(args, max(s.Series, s.LastSeries), s.Series)
}

// After is a position in a walk from the newest row to the oldest: after the row with this last time and id.
type After struct {
	Last model.Micros
	ID   int64
}

// Chunks returns at most limit chunks of a scope after a position, newest last time first.
func Chunks(tx Tx, s PackedScope, after *After, limit int) ([]Chunk, error) {
	q, args := s.chunks(after)
	return scanChunks(tx, q+` ORDER BY last_at DESC, id DESC LIMIT ?`, append(args, limit)...)
}

// ChunkValues calls f for the chunks of a scope, newest last time first, with the fields that aggregation needs: without
// generation, tenant, profile, offsets, source, unit and data type. The blob is valid until f returns.
func ChunkValues(tx Tx, s PackedScope, f func(*Chunk) error) error {
	q, args := s.chunks(nil)
	rows, err := tx.Query(`SELECT id, series, anchors, first_at, last_at, n, total, low, high, data FROM series_chunks WHERE `+q+
		` ORDER BY last_at DESC, id DESC`, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var c Chunk
		if err := rows.Scan(&c.ID, &c.Series, &c.Anchors, (*int64)(&c.First), (*int64)(&c.Last), &c.Count, &c.Sum, &c.Min, &c.Max, (*sql.RawBytes)(&c.Data)); err != nil {
			return err
		}
		if err := f(&c); err != nil {
			return err
		}
	}
	return rows.Err()
}

// ChunksOverEnds returns the chunks of a scope that CountChunks leaves out: they begin before From or end after
// lastInside.
func ChunksOverEnds(tx Tx, s PackedScope, lastInside model.Micros, after *After, limit int) ([]Chunk, error) {
	q, args := s.chunks(after)
	return scanChunks(tx, q+` AND (first_at < ? OR last_at > ?) ORDER BY last_at DESC, id DESC LIMIT ?`,
		append(args, int64(s.From), int64(lastInside), limit)...)
}

func scanChunks(tx Tx, where string, args ...any) ([]Chunk, error) {
	rows, err := tx.Query(`SELECT id, `+chunkColumns+` FROM series_chunks WHERE `+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Chunk
	for rows.Next() {
		var c Chunk
		var gen, firstOffset, lastOffset int64
		if err := rows.Scan(&c.ID, &gen, &c.TenantID, &c.Series, &c.Anchors, &c.Profile, (*int64)(&c.First), (*int64)(&c.Last),
			&c.Count, &c.Sum, &c.Min, &c.Max, &firstOffset, &lastOffset, &c.Source, &c.Unit, &c.DataType, &c.Data); err != nil {
			return nil, err
		}
		c.Gen, c.FirstOffset, c.LastOffset = uint64(gen), model.Offset(firstOffset), model.Offset(lastOffset)
		out = append(out, c)
	}
	return out, rows.Err()
}

// ChunkSummaries calls f for the chunks of a scope without their blobs, oldest last time first.
func ChunkSummaries(tx Tx, s PackedScope, f func(*Chunk) error) error {
	q, args := s.chunks(nil)
	rows, err := tx.Query(`SELECT id, series, anchors, first_at, last_at, n, total, low, high FROM series_chunks WHERE `+q+
		` ORDER BY last_at, id`, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var c Chunk
		if err := rows.Scan(&c.ID, &c.Series, &c.Anchors, (*int64)(&c.First), (*int64)(&c.Last), &c.Count, &c.Sum, &c.Min, &c.Max); err != nil {
			return err
		}
		if err := f(&c); err != nil {
			return err
		}
	}
	return rows.Err()
}

// ChunksByID calls f for the chunks with the given ids, in no order.
func ChunksByID(tx Tx, ids []int64, f func(*Chunk) error) error {
	for part := range slices.Chunk(ids, idsPerStatement) {
		chunks, err := scanChunks(tx, `id IN `+idMarks, idArgs(part)...)
		if err != nil {
			return err
		}
		for i := range chunks {
			if err := f(&chunks[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// BlocksByID calls f for the blocks with the given ids, in no order.
func BlocksByID(tx Tx, ids []int64, f func(*Block) error) error {
	for part := range slices.Chunk(ids, idsPerStatement) {
		blocks, err := scanBlocks(tx, `id IN `+idMarks, idArgs(part)...)
		if err != nil {
			return err
		}
		for i := range blocks {
			if err := f(&blocks[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Blocks returns at most limit blocks of a scope after a position, newest last time first.
func Blocks(tx Tx, s PackedScope, after *After, limit int) ([]Block, error) {
	q, args := s.blocks(after)
	return scanBlocks(tx, q+` ORDER BY last_at DESC, id DESC LIMIT ?`, append(args, limit)...)
}

// BlocksOverEnds returns the blocks of a scope that CountBlocks leaves out: they begin before From or end after
// lastInside.
func BlocksOverEnds(tx Tx, s PackedScope, lastInside model.Micros, after *After, limit int) ([]Block, error) {
	q, args := s.blocks(after)
	return scanBlocks(tx, q+` AND (first_at < ? OR last_at > ?) ORDER BY last_at DESC, id DESC LIMIT ?`,
		append(args, int64(s.From), int64(lastInside), limit)...)
}

func scanBlocks(tx Tx, where string, args ...any) ([]Block, error) {
	rows, err := tx.Query(`SELECT id, `+blockColumns+` FROM series_blocks WHERE `+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Block
	for rows.Next() {
		var b Block
		var gen, firstOffset, lastOffset, anchored, open int64
		if err := rows.Scan(&b.ID, &gen, &b.TenantID, &b.Group, &b.MinSeries, &b.MaxSeries, (*int64)(&b.First), (*int64)(&b.Last),
			&b.Count, &b.Runs, &firstOffset, &lastOffset, &anchored, &b.Data, &open); err != nil {
			return nil, err
		}
		b.Gen, b.FirstOffset, b.LastOffset = uint64(gen), model.Offset(firstOffset), model.Offset(lastOffset)
		b.Anchored, b.Merged = anchored != 0, open == 0
		out = append(out, b)
	}
	return out, rows.Err()
}

// ChunkSpans calls f with the first and last time of each chunk of a scope and its number of readings, newest last time
// first, until f returns false.
func ChunkSpans(tx Tx, s PackedScope, f func(first, last model.Micros, n int64) bool) error {
	q, args := s.chunks(nil)
	return spans(tx, `series_chunks`, q, args, f)
}

// BlockSpans is ChunkSpans for blocks, with the readings of all their series.
func BlockSpans(tx Tx, s PackedScope, f func(first, last model.Micros, n int64) bool) error {
	q, args := s.blocks(nil)
	return spans(tx, `series_blocks`, q, args, f)
}

func spans(tx Tx, table, where string, args []any, f func(first, last model.Micros, n int64) bool) error {
	rows, err := tx.Query(`SELECT first_at, last_at, n FROM `+table+` WHERE `+where+` ORDER BY last_at DESC`, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var first, last model.Micros
		var n int64
		if err := rows.Scan((*int64)(&first), (*int64)(&last), &n); err != nil {
			return err
		}
		if !f(first, last, n) {
			return nil
		}
	}
	return rows.Err()
}

// CountChunks sums the readings of the chunks of a scope that begin at From or later and end at lastInside or earlier.
func CountChunks(tx Tx, s PackedScope, lastInside model.Micros) (int64, error) {
	if s.wholeTenant(lastInside) {
		return countPacked(tx, `series_chunks`, `tenant_id = ? AND gen <= ?`, []any{s.TenantID, int64(s.Gen)})
	}
	q, args := s.chunks(nil)
	return countPacked(tx, `series_chunks`, q+inside, append(args, int64(s.From), int64(lastInside)))
}

// CountChunkRows counts the chunks of a scope, up to limit.
func CountChunkRows(tx Tx, s PackedScope, limit int) (n int, err error) {
	q, args := s.chunks(nil)
	err = tx.QueryRow(`SELECT COUNT(*) FROM (SELECT 1 FROM series_chunks WHERE `+q+` LIMIT ?) AS some`, append(args, limit)...).Scan(&n)
	return n, err
}

// CountBlocks is CountChunks for blocks, with the readings of all their series.
func CountBlocks(tx Tx, s PackedScope, lastInside model.Micros) (int64, error) {
	q, args := s.blocks(nil)
	return countPacked(tx, `series_blocks`, q+inside, append(args, int64(s.From), int64(lastInside)))
}

// wholeTenant reports whether a scope has every row of its tenant. Comparing times that always match would double the
// cost of counting many rows.
func (s PackedScope) wholeTenant(lastInside model.Micros) bool {
	return s.Series == 0 && s.From == MinMicros && s.To == MaxMicros && lastInside == MaxMicros
}

const inside = ` AND first_at >= ? AND last_at <= ?`

func countPacked(tx Tx, table, where string, args []any) (int64, error) {
	var n sql.NullInt64
	err := tx.QueryRow(`SELECT SUM(n) FROM `+table+` WHERE `+where, args...).Scan(&n)
	return n.Int64, err
}

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
