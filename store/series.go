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
