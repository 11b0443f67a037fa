package store

import (
	"database/sql"
	"errors"
	"math"
	"slices"
	"strconv"

	"weir/model"
)

// Retained is a kind of history with a retention time of its own.
type Retained string

// The kinds of history, as metrics and status name them.
const (
	KeptReadings    Retained = "readings"
	KeptEvents      Retained = "events" // alerts, state changes and new relationships
	KeptLocations   Retained = "locations"
	KeptDetections  Retained = "detections"
	KeptDeadLetters Retained = "dead_letters"
	KeptAudit       Retained = "audit"
	KeptAlarmEvents Retained = "alarm_events" // moves of alarms
	KeptCommands    Retained = "commands"     // that have ended, and batches of them
	KeptMetadata    Retained = "metadata"     // what the registry said before: attributes, relationships, published versions
	KeptListening   Retained = "listening"    // how listening time went
	KeptSnapshots   Retained = "snapshots"    // state of rules before a midnight
)

// AllKept are the kinds of history.
var AllKept = [...]Retained{KeptReadings, KeptEvents, KeptLocations, KeptDetections, KeptDeadLetters, KeptAudit, KeptAlarmEvents, KeptCommands, KeptMetadata, KeptListening, KeptSnapshots}

// KeptForPreviews are the kinds that previews of rules alone need. Together they have a bound in bytes.
var KeptForPreviews = [...]Retained{KeptMetadata, KeptListening, KeptSnapshots}

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

// expiredGroup is rows of one table. remove is a statement for the id of each that returns the number of its entries: what came to the id
// since is removed only if it is expired, too, and may have more entries than what was found.
type expiredGroup struct {
	remove string
	args   []any // after the id
	rows   []int64
}

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
		err = s.events(model.AlertEvent, model.StateChange, model.NewRelationship, model.CommandResponse)
	case KeptLocations:
		err = s.events(model.LocationEvent)
	case KeptDetections:
		err = s.detections()
	case KeptDeadLetters:
		err = s.find(`DELETE FROM dead_letters WHERE id = ? AND occurred < ? RETURNING 1`, []any{s.before},
			`SELECT id FROM dead_letters WHERE occurred < ? ORDER BY occurred LIMIT ?`, s.before)
	case KeptAudit:
		err = s.find(`DELETE FROM audit_events WHERE id = ? AND occurred_at < ? RETURNING 1`, []any{s.before},
			`SELECT id FROM audit_events WHERE occurred_at < ? ORDER BY occurred_at LIMIT ?`, s.before)
	case KeptAlarmEvents:
		err = s.find(`DELETE FROM alarm_events WHERE id = ? AND at < ? RETURNING 1`, []any{s.before},
			`SELECT id FROM alarm_events WHERE at < ? ORDER BY at LIMIT ?`, s.before)
	case KeptCommands:
		err = s.commands()
	case KeptMetadata:
		err = s.metadata(s.before)
	case KeptListening:
		err = s.listening()
	case KeptSnapshots:
		err = s.snapshots()
	}
	return s.found, err
}

// PreviewUse is what is kept for previews of rules.
type PreviewUse struct {
	Bytes     int64        // of all of it, about
	Snapshots int          // of the state of rules
	Oldest    model.Micros // receive time of the oldest of these, 0 for none
}

// UsedByPreviews returns what is kept for previews of rules.
func UsedByPreviews(tx Tx) (u PreviewUse, err error) {
	if err := tx.QueryRow(`SELECT count(*), coalesce(min(received), 0) FROM rule_snapshots`).Scan(&u.Snapshots, (*int64)(&u.Oldest)); err != nil {
		return u, err
	}
	_, gen, err := CheckpointState(tx)
	if err == nil {
		err = tx.QueryRow(`SELECT coalesce(sum(bytes), 0) + ? * (SELECT count(*) FROM (`+recentSpans+`)) FROM (`+previewRows+`)`, spanBytes, int64(gen)).Scan(&u.Bytes)
	}
	return u, err
}

// spanBytes is what a row of listening_spans takes, viewRowBytes what a row of the metadata takes besides its key and body, indexes included.
const (
	spanBytes    = 100
	viewRowBytes = "64"
)

// previewRows selects the bytes of each row that is kept for previews, and may go, and the place in the log with which it goes. A page of rule state goes with
// the newest snapshot that has it. The parameter is the generation of the checkpoint.
var previewRows = `SELECT to_offset AS place, length(body) + length(key) + ` + viewRowBytes + ` AS bytes FROM view_rows WHERE to_offset IS NOT NULL
	UNION ALL SELECT log_offset, ` + strconv.Itoa(spanBytes) + ` FROM listening_spans WHERE id NOT IN (` + recentSpans + `)
	UNION ALL SELECT s.log_offset, coalesce(length(p.body), 0) + length(p.page) FROM rule_pages AS p, rule_snapshots AS s WHERE s.gen = ` + ruleSnapshot

// recentSpans are those that stay, wherever they lie.
var recentSpans = `SELECT id FROM listening_spans WHERE tenant_id = 0 ORDER BY log_offset DESC, id DESC LIMIT ` + strconv.Itoa(RecentSpans)

// previewsEnd returns the newest place of the log at which, or before which, what is kept for previews is more than fits into so many bytes; -1 where all
// fits.
func previewsEnd(tx Tx, gen uint64, bytes int64) (place int64, err error) {
	use, err := UsedByPreviews(tx)
	if err != nil || use.Bytes <= bytes {
		return -1, err
	}
	var stay int64
	if err := tx.QueryRow(`SELECT count(*) FROM (` + recentSpans + `)`).Scan(&stay); err != nil {
		return -1, err
	}
	bytes -= stay * spanBytes
	rows, err := tx.Query(previewRows+` ORDER BY place DESC`, int64(gen))
	if err != nil {
		return -1, err
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		if err := rows.Scan(&place, &n); err != nil {
			return -1, err
		}
		if bytes -= n; bytes < 0 {
			break
		}
	}
	return place, rows.Err()
}

// FindExcess returns the oldest rows of a kind that is kept for previews, at most limit of them, as far as all that is kept for them takes
// more than a number of bytes.
func FindExcess(tx Tx, k Retained, bytes int64, limit int) (*Expired, error) {
	head, gen, err := CheckpointState(tx)
	if err != nil {
		return nil, err
	}
	over, err := previewsEnd(tx, gen, bytes)
	if err != nil {
		return nil, err
	}
	s := sweep{tx: tx, before: math.MaxInt64, head: min(int64(head), over), gen: int64(gen), left: limit, found: &Expired{kind: k}}
	if over < 0 {
		return s.found, nil
	}
	switch k {
	case KeptMetadata:
		err = s.metadata(s.before)
	case KeptListening:
		err = s.listening()
	case KeptSnapshots:
		err = s.find(dropSnapshot, nil, `SELECT gen FROM rule_snapshots WHERE log_offset <= ? ORDER BY gen LIMIT ?`, s.head)
	}
	return s.found, err
}

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
	last := int64(0)
	for limit > 0 && len(e.groups) > 0 {
		g := &e.groups[0]
		part := g.rows[:min(limit, len(g.rows))]
		limit -= len(part)
		last = max(last, slices.Max(part))
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
	if e.kind == KeptMetadata { // its rows are found by the offset at which they ended
		from, err := MetadataFrom(tx)
		if err == nil {
			err = SetMetaInt(tx, metaMetadataFrom, max(int64(from), last))
		}
		if err != nil {
			return done, err
		}
	}
	return done, SetMetaInt(tx, metaRemoved(e.kind), have+done.Entries)
}

const metaMetadataFrom = "metadata_from"

// MetadataFrom returns the offset from which on the metadata view is known as it was: before it, rows that ended were removed.
func MetadataFrom(tx Tx) (model.Offset, error) {
	n, _, err := MetaInt(tx, metaMetadataFrom)
	return model.Offset(n), err
}

// removePart removes rows in the order of their table.
func (g *expiredGroup) removePart(tx Tx, rows []int64, done *Removal) error {
	slices.Sort(rows)
	for _, id := range rows {
		var entries int64
		switch err := tx.QueryRow(g.remove, append([]any{id}, g.args...)...).Scan(&entries); {
		case errors.Is(err, sql.ErrNoRows): // it was removed, or replaced by another row
		case err != nil:
			return err
		default:
			done.Rows++
			done.Entries += entries
		}
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

// find adds the rows that a query returns, up to the limit. The query ends with its LIMIT parameter and returns ids.
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
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		g.rows = append(g.rows, id)
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
	if err := s.find(removePacked(`series_chunks`), []any{s.before, s.gen}, `SELECT c.id FROM series AS s, series_chunks AS c
		WHERE s.tenant_id = ? AND c.series = s.id AND c.last_at < ? AND c.gen <= ? ORDER BY c.series, c.last_at LIMIT ?`, tenant, end, s.gen); err != nil || s.left < was {
		return err
	}
	return s.packed(`series_chunks`, tenant) // of series that are not in the catalog
}

func (s *sweep) packed(table string, tenant int64) error {
	return s.find(removePacked(table), []any{s.before, s.gen},
		`SELECT id FROM `+table+` WHERE tenant_id = ? AND last_at < ? AND gen <= ? ORDER BY last_at LIMIT ?`, tenant, s.before, s.gen)
}

func removePacked(table string) string {
	return `DELETE FROM ` + table + ` WHERE id = ? AND last_at < ? AND gen <= ? RETURNING n`
}

func (s *sweep) events(types ...model.EventType) error {
	return s.tenants(`row_events`, func(tenant int64) error {
		for _, t := range types {
			if err := s.find(`DELETE FROM row_events WHERE id = ? AND tenant_id = ? AND type = ? AND occurred_at < ? AND log_offset <= ? RETURNING 1`, []any{tenant, int64(t), s.before, s.head},
				`SELECT id FROM row_events WHERE tenant_id = ? AND type = ? AND occurred_at < ? AND log_offset <= ? ORDER BY occurred_at LIMIT ?`,
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
		if err := s.find(`DELETE FROM `+t.table+` WHERE id = ? AND received < ? AND log_offset <= ? RETURNING `+t.n, []any{s.before, s.head},
			`SELECT id FROM (SELECT id, received, log_offset FROM `+t.table+
				` ORDER BY id LIMIT `+oldestDetections+`) AS oldest WHERE received < ? AND log_offset <= ? ORDER BY id LIMIT ?`, s.before, s.head); err != nil {
			return err
		}
	}
	return nil
}

const oldestDetections = "1000"

// commands finds those that ended before a time, and batches with none left.
func (s *sweep) commands() error {
	const ended = `updated_at < ? AND state NOT IN ('QUEUED', 'HELD', 'PARKED', 'SENT')`
	if err := s.find(`DELETE FROM commands WHERE id = ? AND `+ended+` RETURNING 1`, []any{s.before}, `SELECT id FROM commands WHERE `+ended+` ORDER BY updated_at LIMIT ?`, s.before); err != nil {
		return err
	}
	const over = `updated_at < ? AND state <> 'MAKING' AND NOT EXISTS (SELECT 1 FROM commands AS c WHERE c.batch_id = b.id AND c.batch_id > 0)`
	return s.find(`DELETE FROM command_batches AS b WHERE id = ? AND `+over+` RETURNING 1`, []any{s.before}, `SELECT id FROM command_batches AS b WHERE `+over+` ORDER BY id LIMIT ?`, s.before)
}

// metadata finds rows that ended before a time; those of an older Weir do not say when. They have no id: each step removes one of
// those that ended at an offset.
func (s *sweep) metadata(before int64) error {
	return s.find(`DELETE FROM view_rows WHERE (kind, key, from_offset) IN
		(SELECT kind, key, from_offset FROM view_rows WHERE to_offset = ? AND to_offset <= ? AND coalesce(ended_at, 0) < ? LIMIT 1) RETURNING 1`, []any{s.head, before},
		`SELECT to_offset FROM view_rows WHERE to_offset <= ? AND coalesce(ended_at, 0) < ? ORDER BY to_offset LIMIT ?`, s.head, before)
}

// RecentSpans is how many of the transports' newest listening spans stay whatever their age: the applier goes on from them.
const RecentSpans = 64

// listening finds the spans of listening time that ended before a time: the last one that began before it explains what was received from
// then on.
func (s *sweep) listening() error {
	return s.find(`DELETE FROM listening_spans WHERE id = ? AND received < ? RETURNING 1`, []any{s.before},
		`SELECT id FROM listening_spans AS s WHERE received < ? AND log_offset <= ?
		AND EXISTS (SELECT 1 FROM listening_spans AS n WHERE n.tenant_id = s.tenant_id AND n.link = s.link AND n.log_offset >= s.log_offset AND n.id > s.id AND n.received < ? AND n.log_offset <= ?)
		AND NOT (tenant_id = 0 AND id IN (SELECT id FROM listening_spans WHERE tenant_id = 0 ORDER BY log_offset DESC, id DESC LIMIT ?))
		ORDER BY id LIMIT ?`, s.before, s.head, s.before, s.head, RecentSpans)
}

const dropSnapshot = `DELETE FROM rule_snapshots WHERE gen = ? RETURNING 1`

// snapshots finds the kept snapshots from before a time, and those that lie before what is kept of the metadata: no preview begins there. Their pages
// go with SweepRulePages.
func (s *sweep) snapshots() error {
	from, err := MetadataFrom(s.tx)
	if err != nil {
		return err
	}
	return s.find(dropSnapshot, nil, `SELECT gen FROM rule_snapshots WHERE received < ? OR log_offset < ? ORDER BY gen LIMIT ?`, s.before, int64(from))
}
