// Package listening keeps how listening time went, as rows: the listening time of any stored reading follows from its receive stamp. A row is
// written where the time goes on otherwise than the row before says: the transports opened, closed or were started, the wall clock was
// set or is behind, a tenant is held or no longer, a link went down or came up.
//
//	listening.go  the rows, and their bounds
//	course.go     where the time of the transports needs a row
//	history.go    what the rows say of a receive stamp
package listening

import (
	"weir/model"
	"weir/store"
)

// Span says how a listening time goes on from a place in the log.
type Span struct {
	TenantID int64  // 0: the time of the transports together, from which that of a tenant follows
	Link     string // through which the tenant's devices are heard; "": the transports together

	Offset    model.Offset // of the record before which it is so
	Received  model.Micros // receive stamp of that record
	Boot      uint64       // start of the process that received it
	Listening int64        // of the transports together, in nanoseconds
	Slope     int64        // of the transports: how much passes with the receive stamp; of a tenant 1, 0 while its time stands still
	Lag       int64        // by how much that of the tenant is less there, in nanoseconds; of the transports, at a start: how much has passed since it
}

// Bounds of the rows: of the transports and of each tenant the newest 16,384 stay, of all tenants together the newest 262,144. Rows of one
// record stay or go together.
const (
	maxSpans      = 16 << 10
	maxSpansInAll = 256 << 10
)

// Add adds rows. Adding them again, as a replay does, changes nothing.
func Add(tx store.Tx, spans []Span) error {
	for i := range spans {
		s := &spans[i]
		if _, err := tx.Exec(`INSERT INTO listening_spans (tenant_id, link, log_offset, received, boot, listening, slope, lag)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, s.TenantID, s.Link, int64(s.Offset), int64(s.Received), int64(s.Boot), s.Listening, s.Slope, s.Lag); err != nil {
			return err
		}
	}
	return nil
}

// Trim removes the oldest rows over the bounds as of a checkpoint, of the tenants that have new ones and of all together.
func Trim(tx store.Tx, upto model.Offset, tenants ...int64) error {
	return trim(tx, maxSpans, maxSpansInAll, upto, tenants)
}

func trim(tx store.Tx, each, all int, upto model.Offset, tenants []int64) error {
	for _, t := range tenants {
		if _, err := tx.Exec(`DELETE FROM listening_spans WHERE tenant_id = ? AND log_offset <
			(SELECT log_offset FROM listening_spans WHERE tenant_id = ? AND log_offset <= ? ORDER BY log_offset DESC LIMIT 1 OFFSET ?)`, t, t, int64(upto), each-1); err != nil {
			return err
		}
	}
	if len(tenants) == 0 {
		return nil
	}
	_, err := tx.Exec(`DELETE FROM listening_spans WHERE tenant_id > 0 AND log_offset <
		(SELECT log_offset FROM listening_spans WHERE tenant_id > 0 AND log_offset <= ? ORDER BY log_offset DESC LIMIT 1 OFFSET ?)`, int64(upto), all-1)
	return err
}

const columns = `tenant_id, link, log_offset, received, boot, listening, slope, lag`

// read returns the rows of a query.
func read(tx store.Tx, query string, args ...any) (spans []Span, err error) {
	rows, err := tx.Query(`SELECT `+columns+` FROM listening_spans `+query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s Span
		var offset, received, boot int64
		if err := rows.Scan(&s.TenantID, &s.Link, &offset, &received, &boot, &s.Listening, &s.Slope, &s.Lag); err != nil {
			return nil, err
		}
		s.Offset, s.Received, s.Boot = model.Offset(offset), model.Micros(received), uint64(boot)
		spans = append(spans, s)
	}
	return spans, rows.Err()
}
