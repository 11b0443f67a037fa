package store

import (
	"cmp"
	"database/sql"
	"errors"
	"math"
	"slices"

	"weir/model"
)

// Retained is a kind of history with a retention time of its own.
type Retained string

// The kinds of history, as metrics and status name them.
const (
	KeptReadings    Retained = "readings"
	KeptEvents      Retained = "events" // alerts and state changes
	KeptLocations   Retained = "locations"
	KeptDetections  Retained = "detections"
	KeptDeadLetters Retained = "dead_letters"
	KeptAudit       Retained = "audit"
	KeptMetadata    Retained = "metadata" // what the registry said before: attributes, relationships, published versions
)

// AllKept are the kinds of history.
var AllKept = [...]Retained{KeptReadings, KeptEvents, KeptLocations, KeptDetections, KeptDeadLetters, KeptAudit, KeptMetadata}

// Removal is what one step of a sweep removed.
type Removal struct {
	Rows    int64
	Entries int64 // readings, where rows hold several
}

// RemoveBefore removes at most limit rows of a kind that lie completely before t, the oldest first. A Removal without rows
// means that none are left.
func RemoveBefore(tx Tx, k Retained, t model.Micros, limit int) (Removal, error) {
	e, err := FindExpired(tx, k, t, limit)
	if err != nil {
		return Removal{}, err
	}
	return e.Remove(tx, limit)
}

// Expired is rows of a kind whose time is over, in the order in which their removal writes least: an index by series has few
// pages with the rows of a series, and one by time has few with all of them.
type Expired struct {
	kind   Retained
	groups []expiredGroup
}

// expiredGroup is rows of one table. remove is a statement for the id of each: it removes nothing that came to this id since.
type expiredGroup struct {
	remove string
	args   []any // after the id
	rows   []expiredRow
}

type expiredRow struct{ id, entries int64 }

// FindExpired returns the oldest rows of a kind that lie completely before t, at most limit of them. Results that a replay may
// produce again stay until a checkpoint lies after them, however old they are.
func FindExpired(tx Tx, k Retained, t model.Micros, limit int) (*Expired, error) {
	head, gen, err := CheckpointState(tx)
	if err != nil {
		return nil, err
	}
	s := sweep{tx: tx, before: int64(t), head: int64(head), gen: int64(gen), left: limit, found: &Expired{kind: k}}
	switch k {
	case KeptReadings:
		err = s.readings()
	case KeptEvents:
		err = s.events(model.AlertEvent, model.StateChange)
	case KeptLocations:
		err = s.events(model.LocationEvent)
	case KeptDetections:
		err = s.detections()
	case KeptDeadLetters:
		err = s.find(`DELETE FROM dead_letters WHERE id = ? AND occurred < ?`, []any{s.before},
			`SELECT id, 1 FROM dead_letters WHERE occurred < ? ORDER BY occurred LIMIT ?`, s.before)
	case KeptAudit:
		err = s.find(`DELETE FROM audit_events WHERE id = ? AND occurred_at < ?`, []any{s.before},
			`SELECT id, 1 FROM audit_events WHERE occurred_at < ? ORDER BY occurred_at LIMIT ?`, s.before)
	case KeptMetadata:
		err = s.metadata(s.before)
	}
	return s.found, err
}

// FindExcess returns the oldest rows of the metadata that are no longer effective, at most limit of them, as far as all of them take more
// than a number of bytes.
func FindExcess(tx Tx, bytes int64, limit int) (*Expired, error) {
	head, gen, err := CheckpointState(tx)
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(`SELECT to_offset, length(body) + length(key) + ` + viewRowBytes + ` FROM view_rows WHERE to_offset IS NOT NULL ORDER BY to_offset DESC`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	over := int64(-1)
	for rows.Next() && bytes >= 0 {
		var n int64
		if err := rows.Scan(&over, &n); err != nil {
			return nil, err
		}
		bytes -= n
	}
	s := sweep{tx: tx, head: min(int64(head), over), gen: int64(gen), left: limit, found: &Expired{kind: KeptMetadata}}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || bytes >= 0 {
		return s.found, err
	}
	return s.found, s.metadata(math.MaxInt64)
}

// viewRowBytes is what a row of the metadata takes besides its key and body, indexes included.
const viewRowBytes = "64"

// Rows is how many rows are left to be removed.
func (e *Expired) Rows() (n int) {
	for i := range e.groups {
		n += len(e.groups[i].rows)
	}
	return n
}

// Remove removes at most limit of the rows, and counts their entries in the same transaction, so that they stay accounted for. When the
// transaction fails, rows that are left of it are found again.
func (e *Expired) Remove(tx Tx, limit int) (done Removal, err error) {
	for limit > 0 && len(e.groups) > 0 {
		g := &e.groups[0]
		part := g.rows[:min(limit, len(g.rows))]
		limit -= len(part)
		if err := g.removePart(tx, part, &done); err != nil {
			return done, err
		}
		if g.rows = g.rows[len(part):]; len(g.rows) == 0 {
			e.groups = e.groups[1:]
		}
	}
	if done.Rows == 0 {
		return done, nil
	}
	have, _, err := MetaInt(tx, metaRemoved(e.kind))
	if err != nil {
		return done, err
	}
	return done, SetMetaInt(tx, metaRemoved(e.kind), have+done.Entries)
}

// removePart removes rows in the order of their table.
func (g *expiredGroup) removePart(tx Tx, rows []expiredRow, done *Removal) error {
	slices.SortFunc(rows, func(a, b expiredRow) int { return cmp.Compare(a.id, b.id) })
	for _, r := range rows {
		n, err := tx.Exec(g.remove, append([]any{r.id}, g.args...)...)
		if err != nil {
			return err
		}
		done.Rows += n
		done.Entries += n * r.entries
	}
	return nil
}

// Removed returns the total number of entries of each kind that retention removed.
func Removed(tx Tx) (map[Retained]int64, error) {
	out := map[Retained]int64{}
	for _, k := range AllKept {
		n, ok, err := MetaInt(tx, metaRemoved(k))
		if err != nil {
			return nil, err
		}
		if ok {
			out[k] = n
		}
	}
	return out, nil
}

func metaRemoved(k Retained) string { return "removed:" + string(k) }

// sweep looks for what is expired.
type sweep struct {
	tx                Tx
	before, head, gen int64
	left              int // rows that may still be found
	found             *Expired
}

// find adds the rows that a query returns, up to the limit. The query ends with its LIMIT parameter and returns ids and
// numbers of entries.
func (s *sweep) find(remove string, removeArgs []any, query string, args ...any) error {
	if s.left <= 0 {
		return nil
	}
	rows, err := s.tx.Query(query, append(args, s.left)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	g := expiredGroup{remove: remove, args: removeArgs}
	for rows.Next() {
		var r expiredRow
		if err := rows.Scan(&r.id, &r.entries); err != nil {
			return err
		}
		g.rows = append(g.rows, r)
	}
	if len(g.rows) > 0 {
		s.found.groups = append(s.found.groups, g)
		s.left -= len(g.rows)
	}
	return rows.Err()
}

// tenants calls f with each tenant that has rows in a table. It seeks in the index once per tenant and does not scan.
func (s *sweep) tenants(table string, f func(tenant int64) error) error {
	for tenant := int64(-1); ; {
		var next *int64
		if err := s.tx.QueryRow(`SELECT MIN(tenant_id) FROM `+table+` WHERE tenant_id > ?`, tenant).Scan(&next); err != nil || next == nil {
			return err
		}
		if tenant = *next; s.left <= 0 {
			return nil
		}
		if err := f(tenant); err != nil {
			return err
		}
	}
}

func (s *sweep) readings() error {
	if err := s.tenants(`series_chunks`, s.chunks); err != nil {
		return err
	}
	return s.tenants(`series_blocks`, func(tenant int64) error { return s.packed(`series_blocks`, tenant) })
}

// chunks finds the oldest chunks of a tenant, by series.
func (s *sweep) chunks(tenant int64) error {
	var newest int64 // of those that fit
	err := s.tx.QueryRow(`SELECT last_at FROM series_chunks WHERE tenant_id = ? AND last_at < ? AND gen <= ? ORDER BY last_at LIMIT 1 OFFSET ?`,
		tenant, s.before, s.gen, s.left-1).Scan(&newest)
	end := newest + 1
	if errors.Is(err, sql.ErrNoRows) {
		end, err = s.before, nil
	}
	if err != nil {
		return err
	}
	was := s.left
	if err := s.find(removePacked(`series_chunks`), []any{s.before, s.gen}, `SELECT c.id, c.n FROM series AS s, series_chunks AS c
		WHERE s.tenant_id = ? AND c.series = s.id AND c.last_at < ? AND c.gen <= ? ORDER BY c.series, c.last_at LIMIT ?`, tenant, end, s.gen); err != nil || s.left < was {
		return err
	}
	return s.packed(`series_chunks`, tenant) // of series that are not in the catalog
}

func (s *sweep) packed(table string, tenant int64) error {
	return s.find(removePacked(table), []any{s.before, s.gen},
		`SELECT id, n FROM `+table+` WHERE tenant_id = ? AND last_at < ? AND gen <= ? ORDER BY last_at LIMIT ?`, tenant, s.before, s.gen)
}

func removePacked(table string) string {
	return `DELETE FROM ` + table + ` WHERE id = ? AND last_at < ? AND gen <= ?`
}

func (s *sweep) events(types ...model.EventType) error {
	return s.tenants(`row_events`, func(tenant int64) error {
		for _, t := range types {
			if err := s.find(`DELETE FROM row_events WHERE id = ? AND tenant_id = ? AND type = ? AND occurred_at < ? AND log_offset <= ?`, []any{tenant, int64(t), s.before, s.head},
				`SELECT id, 1 FROM row_events WHERE tenant_id = ? AND type = ? AND occurred_at < ? AND log_offset <= ? ORDER BY occurred_at LIMIT ?`,
				tenant, int64(t), s.before, s.head); err != nil {
				return err
			}
		}
		return nil
	})
}

// detections finds by receive time, whole blocks. It rises with the ids, so that only the oldest rows are read.
func (s *sweep) detections() error {
	for _, t := range [...]struct{ table, n string }{{`edges`, `1`}, {`edge_blocks`, `n`}} {
		if err := s.find(`DELETE FROM `+t.table+` WHERE id = ? AND received < ? AND log_offset <= ?`, []any{s.before, s.head},
			`SELECT id, n FROM (SELECT id, `+t.n+` AS n, received, log_offset FROM `+t.table+
				` ORDER BY id LIMIT `+oldestDetections+`) AS oldest WHERE received < ? AND log_offset <= ? ORDER BY id LIMIT ?`, s.before, s.head); err != nil {
			return err
		}
	}
	return nil
}

const oldestDetections = "1000"

// metadata finds rows that ended before a time; those of an older Weir do not say when. They have no id: each step removes one of
// those that ended at an offset.
func (s *sweep) metadata(before int64) error {
	return s.find(`DELETE FROM view_rows WHERE (kind, key, from_offset) IN
		(SELECT kind, key, from_offset FROM view_rows WHERE to_offset = ? AND to_offset <= ? AND coalesce(ended_at, 0) < ? LIMIT 1)`, []any{s.head, before},
		`SELECT to_offset, 1 FROM view_rows WHERE to_offset <= ? AND coalesce(ended_at, 0) < ? ORDER BY to_offset LIMIT ?`, s.head, before)
}
