package store

import (
	"database/sql"
	"errors"
	"slices"
	"strings"

	"weir/model"
)

// SeriesGroupBits is the size of a group of series ids, as a power of two: a group belongs to one tenant.
const SeriesGroupBits = 9

// SeriesGroup returns the group of a series id.
func SeriesGroup(series int64) int64 { return series >> SeriesGroupBits }

// CheckpointState returns the offset up to which readings are in chunks and blocks, and the generation of the newest rows
// that readers may see. Both are 0 in a new store.
func CheckpointState(tx Tx) (offset model.Offset, gen uint64, err error) {
	var o, g int64
	err = tx.QueryRow(`SELECT head_offset, generation FROM series_head WHERE id = 1`).Scan(&o, &g)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, 0, nil
	}
	return model.Offset(o), uint64(g), err
}

// SetCheckpointState moves offset and generation: from its commit on, readers see rows up to gen, and readings do not
// need the log before offset any more.
func SetCheckpointState(tx Tx, offset model.Offset, gen uint64) error {
	_, err := tx.Exec(`INSERT INTO series_head (id, head_offset, generation) VALUES (1, ?, ?)
		ON CONFLICT (id) DO UPDATE SET head_offset = excluded.head_offset, generation = excluded.generation`, int64(offset), int64(gen))
	return err
}

// SeriesRow is the identity of a series.
type SeriesRow struct {
	ID          int64
	Gen         uint64
	TenantID    int64
	Device      int64
	DeviceToken string
	Metric      string
	Created     model.Micros
	Gone        bool
}

// InsertSeries writes a new series.
func InsertSeries(tx Tx, r *SeriesRow) error {
	_, err := tx.Exec(`INSERT INTO series (id, gen, tenant_id, device_id, device_token, metric, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		r.ID, int64(r.Gen), r.TenantID, r.Device, r.DeviceToken, r.Metric, int64(r.Created))
	return err
}

// EndSeries marks the series of a device as ended from generation gen on and removes their latest values.
func EndSeries(tx Tx, device int64, gen uint64) error {
	if _, err := tx.Exec(`UPDATE series SET gone = ? WHERE device_id = ? AND gone = 0`, int64(gen), device); err != nil {
		return err
	}
	return DeleteLatest(tx, device)
}

func scanSeries(tx Tx, gen uint64, where string, args ...any) ([]SeriesRow, error) {
	rows, err := tx.Query(`SELECT id, gen, tenant_id, device_id, device_token, metric, created_at, gone FROM series WHERE `+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []SeriesRow
	for rows.Next() {
		var r SeriesRow
		var g, gone int64
		if err := rows.Scan(&r.ID, &g, &r.TenantID, &r.Device, &r.DeviceToken, &r.Metric, (*int64)(&r.Created), &gone); err != nil {
			return nil, err
		}
		r.Gen, r.Gone = uint64(g), gone != 0 && uint64(gone) <= gen
		out = append(out, r)
	}
	return out, rows.Err()
}

// SeriesOfDevice returns the series of a device as of generation gen, by metric.
func SeriesOfDevice(tx Tx, gen uint64, device int64) ([]SeriesRow, error) {
	return scanSeries(tx, gen, `device_id = ? AND gen <= ? ORDER BY metric`, device, int64(gen))
}

// SeriesOfMetric returns the series of a tenant with a metric, by id.
func SeriesOfMetric(tx Tx, gen uint64, tenantID int64, metric string) ([]SeriesRow, error) {
	return scanSeries(tx, gen, `tenant_id = ? AND metric = ? AND gen <= ? ORDER BY id`, tenantID, metric, int64(gen))
}

// SeriesOfTenant returns all series of a tenant, by id.
func SeriesOfTenant(tx Tx, gen uint64, tenantID int64) ([]SeriesRow, error) {
	return scanSeries(tx, gen, `tenant_id = ? AND gen <= ? ORDER BY id`, tenantID, int64(gen))
}

// idsPerStatement is how many ids one statement takes; shorter lists repeat their last id, so that there are few
// statements.
const idsPerStatement = 64

var idMarks = "(" + strings.Repeat("?, ", idsPerStatement-1) + "?)"

// SeriesByID returns the series with the given ids, in no order; unknown ids are left out.
func SeriesByID(tx Tx, gen uint64, ids []int64) ([]SeriesRow, error) {
	var out []SeriesRow
	for part := range slices.Chunk(ids, idsPerStatement) {
		rows, err := scanSeries(tx, gen, `id IN `+idMarks+` AND gen <= ?`, append(idArgs(part), int64(gen))...)
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
	}
	return out, nil
}

func idArgs(ids []int64) []any {
	args := make([]any, idsPerStatement)
	for i := range args {
		args[i] = ids[min(i, len(ids)-1)]
	}
	return args
}

// SeriesCount is the number of series of a tenant.
type SeriesCount struct {
	TenantID int64
	Count    int64 // without those of deleted devices
	MaxID    int64
}

// SeriesCounts returns the counts of every tenant that has series.
func SeriesCounts(tx Tx, gen uint64) ([]SeriesCount, error) {
	rows, err := tx.Query(`SELECT tenant_id, SUM(CASE WHEN gone <> 0 AND gone <= ? THEN 0 ELSE 1 END), MAX(id) FROM series WHERE gen <= ?
		GROUP BY tenant_id ORDER BY tenant_id`, int64(gen), int64(gen))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []SeriesCount
	for rows.Next() {
		var c SeriesCount
		if err := rows.Scan(&c.TenantID, &c.Count, &c.MaxID); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, rows.Err()
}

// DropUnpublished removes at most limit rows of each kind that an unfinished checkpoint left: those of a generation above
// gen. It returns the number of removed rows; 0 means that none are left.
func DropUnpublished(tx Tx, gen uint64, limit int) (int64, error) {
	var all int64
	for _, q := range [...]string{
		`DELETE FROM series_chunks WHERE id IN (SELECT id FROM series_chunks WHERE gen > ? ORDER BY gen LIMIT ?)`,
		`DELETE FROM series_blocks WHERE id IN (SELECT id FROM series_blocks WHERE open <> 0 AND gen > ? ORDER BY gen LIMIT ?)`,
		// Before the series themselves: another log may give their ids to others.
		`DELETE FROM latest_measurements WHERE series IN (SELECT id FROM series WHERE gen > ? ORDER BY gen LIMIT ?)`,
		`DELETE FROM series WHERE id IN (SELECT id FROM series WHERE gen > ? ORDER BY gen LIMIT ?)`,
		`UPDATE series SET gone = 0 WHERE id IN (SELECT id FROM series WHERE gone > ? AND gone <> 0 ORDER BY gone LIMIT ?)`,
	} {
		n, err := tx.Exec(q, int64(gen), limit)
		if err != nil {
			return 0, err
		}
		all += n
	}
	return all, nil
}

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
