package store

import "weir/model"

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
)

// AllKept are the kinds of history.
var AllKept = [...]Retained{KeptReadings, KeptEvents, KeptLocations, KeptDetections, KeptDeadLetters, KeptAudit}

// Removal is what one step of a sweep removed.
type Removal struct {
	Rows    int64
	Entries int64 // readings, where rows hold several
}

// RemoveBefore removes at most limit rows of a kind that lie completely before t. In the same transaction it adds them to
// the counts of Removed, so that they stay accounted for. A Removal without rows means that none are left. Results that a
// replay may produce again stay until a checkpoint lies after them, however old they are.
func RemoveBefore(tx Tx, k Retained, t model.Micros, limit int) (Removal, error) {
	head, gen, err := CheckpointState(tx)
	if err != nil {
		return Removal{}, err
	}
	s := sweep{tx: tx, before: int64(t), head: int64(head), gen: int64(gen), limit: limit}
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
		err = s.each(`DELETE FROM dead_letters WHERE id = ?`, `SELECT id, 1 FROM dead_letters WHERE occurred < ? ORDER BY occurred LIMIT ?`, s.before)
	case KeptAudit:
		err = s.each(`DELETE FROM audit_events WHERE id = ?`, `SELECT id, 1 FROM audit_events WHERE occurred_at < ? ORDER BY occurred_at LIMIT ?`, s.before)
	}
	if err != nil || s.done.Rows == 0 {
		return s.done, err
	}
	have, _, err := MetaInt(tx, metaRemoved(k))
	if err != nil {
		return s.done, err
	}
	return s.done, SetMetaInt(tx, metaRemoved(k), have+s.done.Entries)
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

// sweep is one step of retention.
type sweep struct {
	tx                Tx
	before, head, gen int64
	limit             int
	done              Removal
}

// each removes the rows that a query returns, up to the limit of the step. The query ends with its LIMIT parameter and
// returns ids and numbers of entries.
func (s *sweep) each(remove, find string, args ...any) error {
	left := s.limit - int(s.done.Rows)
	if left <= 0 {
		return nil
	}
	rows, err := s.tx.Query(find, append(args, left)...)
	if err != nil {
		return err
	}
	var found [][2]int64
	for rows.Next() {
		var r [2]int64
		if err := rows.Scan(&r[0], &r[1]); err != nil {
			_ = rows.Close()
			return err
		}
		found = append(found, r)
	}
	if err := rows.Close(); err != nil {
		return err
	}
	for _, r := range found {
		if _, err := s.tx.Exec(remove, r[0]); err != nil {
			return err
		}
		s.done.Rows++
		s.done.Entries += r[1]
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
		if tenant = *next; int(s.done.Rows) >= s.limit {
			return nil
		}
		if err := f(tenant); err != nil {
			return err
		}
	}
}

func (s *sweep) readings() error {
	for _, table := range [...]string{`series_chunks`, `series_blocks`} {
		if err := s.tenants(table, func(tenant int64) error {
			return s.each(`DELETE FROM `+table+` WHERE id = ?`,
				`SELECT id, n FROM `+table+` WHERE tenant_id = ? AND last_at < ? AND gen <= ? ORDER BY last_at LIMIT ?`, tenant, s.before, s.gen)
		}); err != nil {
			return err
		}
	}
	return nil
}

func (s *sweep) events(types ...model.EventType) error {
	return s.tenants(`row_events`, func(tenant int64) error {
		for _, t := range types {
			if err := s.each(`DELETE FROM row_events WHERE id = ?`, `SELECT id, 1 FROM row_events
				WHERE tenant_id = ? AND type = ? AND occurred_at < ? AND log_offset <= ? ORDER BY occurred_at LIMIT ?`,
				tenant, int64(t), s.before, s.head); err != nil {
				return err
			}
		}
		return nil
	})
}

// detections removes by receive time, whole blocks. It rises with the ids, so that only the oldest rows are read.
func (s *sweep) detections() error {
	for _, t := range [...]struct{ table, n string }{{`edges`, `1`}, {`edge_blocks`, `n`}} {
		if err := s.each(`DELETE FROM `+t.table+` WHERE id = ?`, `SELECT id, n FROM (SELECT id, `+t.n+` AS n, received, log_offset FROM `+t.table+
			` ORDER BY id LIMIT `+oldestDetections+`) AS oldest WHERE received < ? AND log_offset <= ? ORDER BY id LIMIT ?`, s.before, s.head); err != nil {
			return err
		}
	}
	return nil
}

const oldestDetections = "1000"
