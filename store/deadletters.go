package store

import (
	"database/sql"
	"strings"

	"weir/model"
)

// DeadLetter is a message that was accepted and could not be stored, or the copy of one that was refused as unreadable.
type DeadLetter struct {
	ID              int64
	Tenant          string // "" for unauthenticated senders and unknown tenants
	Occurred        model.Micros
	Kind            string // ingest, …
	Reason          string
	Source          string
	Summary         string
	Detail          string // first 2 KiB of the payload, credential members removed
	Attempts        int
	Subject         string // device as named
	Epoch           uint32
	Offset          model.Offset // 0: it never entered the log
	Unauthenticated bool
	Bytes           int64 // its share of the rejected-payload buffer
	Record          []byte
}

// Kinds of dead letters.
const (
	DeadLetterIngest   = "ingest"   // a received message
	DeadLetterReadings = "readings" // readings of a message whose others are stored: the ledger counts it as stored
)

// AddDeadLetter stores d. Adding the dead letter of a record again, as a replay does, changes nothing.
func AddDeadLetter(tx Tx, d *DeadLetter) error {
	_, err := tx.Exec(`INSERT INTO dead_letters (tenant, occurred, kind, reason, source, summary, detail, attempts, subject, epoch,
		log_offset, stranger, bytes, record) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		d.Tenant, int64(d.Occurred), d.Kind, d.Reason, d.Source, d.Summary, orNull(d.Detail), d.Attempts, orNull(d.Subject),
		int64(d.Epoch), int64(d.Offset), d.Unauthenticated, d.Bytes, d.Record)
	return err
}

// TrimRejected removes the oldest dead letters of unauthenticated senders until the rest takes at most maximum bytes. It
// returns the number of removed rows.
func TrimRejected(tx Tx, maximum int64) (int64, error) {
	return tx.Exec(`DELETE FROM dead_letters WHERE id IN (SELECT id FROM (
		SELECT id, SUM(bytes) OVER (ORDER BY id DESC) AS held FROM dead_letters WHERE stranger = ?) AS ring WHERE held > ?)`, true, maximum)
}

// DeadLetterBound is the maximum number of a tenant's dead letters and of their bytes. The rejected-payload buffer has
// its own bound.
type DeadLetterBound struct{ Rows, Bytes int64 }

// trimStep is the maximum number of rows that one trim removes, so that the writer is not blocked for long.
const trimStep = 5000

// TrimDeadLetters removes the oldest dead letters of a tenant that are over the bound, at most trimStep of them. It
// records the time of the newest removed one and returns the number of removed rows.
func TrimDeadLetters(tx Tx, tenant string, bound DeadLetterBound) (int64, error) {
	var id, occurred sql.NullInt64
	if err := tx.QueryRow(`SELECT MAX(id), MAX(occurred) FROM (SELECT id, occurred, ROW_NUMBER() OVER (ORDER BY id DESC) AS place,
		SUM(bytes) OVER (ORDER BY id DESC) AS held FROM dead_letters WHERE tenant = ? AND stranger = ?) AS own WHERE place > ? OR held > ?`,
		tenant, false, bound.Rows, bound.Bytes).Scan(&id, &occurred); err != nil || !id.Valid {
		return 0, err
	}
	n, err := tx.Exec(`DELETE FROM dead_letters WHERE id IN (SELECT id FROM dead_letters WHERE tenant = ? AND stranger = ? AND id <= ? ORDER BY id LIMIT ?)`,
		tenant, false, id.Int64, trimStep)
	if err != nil {
		return 0, err
	}
	key := metaTrimmed + tenant
	have, _, err := MetaInt(tx, key)
	if err == nil {
		err = SetMetaInt(tx, key, max(have, occurred.Int64))
	}
	return n, err
}

// metaTrimmed is the prefix of the key, before the tenant, of the time up to which its dead letters were trimmed.
const metaTrimmed = "dead_letters_trimmed:"

// DeadLettersTrimmed returns the time up to which dead letters were removed over the bound, for each tenant with removed
// ones.
func DeadLettersTrimmed(tx Tx) (map[string]model.Micros, error) {
	rows, err := tx.Query(`SELECT key, number FROM meta WHERE key >= ? AND key < ?`, metaTrimmed, strings.TrimSuffix(metaTrimmed, ":")+";")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[string]model.Micros{}
	for rows.Next() {
		var key string
		var at int64
		if err := rows.Scan(&key, &at); err != nil {
			return nil, err
		}
		out[strings.TrimPrefix(key, metaTrimmed)] = model.Micros(at)
	}
	return out, rows.Err()
}

// CountDeadLetters returns the number of dead letters of all tenants and unauthenticated senders.
func CountDeadLetters(tx Tx) (n int64, err error) {
	err = tx.QueryRow(`SELECT COUNT(*) FROM dead_letters`).Scan(&n)
	return n, err
}

// DeadLetterFilter restricts a list of dead letters. Nil and empty fields restrict nothing.
type DeadLetterFilter struct {
	Tenant       *string
	Subject      *string // device as named
	Kind, Reason string
	Before       int64 // ids below; 0 = from the newest
	Limit        int
}

// DeadLetters lists dead letters without their records, newest first.
func DeadLetters(tx Tx, f DeadLetterFilter) ([]DeadLetter, error) {
	q, args := `SELECT id, tenant, occurred, kind, reason, source, summary, detail, attempts, subject, epoch, log_offset, stranger, bytes
		FROM dead_letters WHERE 1 = 1`, []any{}
	if f.Tenant != nil {
		q, args = q+` AND tenant = ?`, append(args, *f.Tenant)
	}
	if f.Subject != nil {
		q, args = q+` AND subject = ?`, append(args, *f.Subject)
	}
	if f.Kind != "" {
		q, args = q+` AND kind = ?`, append(args, f.Kind)
	}
	if f.Reason != "" {
		q, args = q+` AND reason = ?`, append(args, f.Reason)
	}
	if f.Before > 0 {
		q, args = q+` AND id < ?`, append(args, f.Before)
	}
	rows, err := tx.Query(q+` ORDER BY id DESC LIMIT ?`, append(args, f.Limit)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []DeadLetter
	for rows.Next() {
		var d DeadLetter
		var detail, subject sql.NullString
		var offset, epoch int64
		if err := rows.Scan(&d.ID, &d.Tenant, (*int64)(&d.Occurred), &d.Kind, &d.Reason, &d.Source, &d.Summary, &detail, &d.Attempts,
			&subject, &epoch, &offset, &d.Unauthenticated, &d.Bytes); err != nil {
			return nil, err
		}
		d.Detail, d.Subject, d.Epoch, d.Offset = detail.String, subject.String, uint32(epoch), model.Offset(offset)
		out = append(out, d)
	}
	return out, rows.Err()
}

// ReasonCount is how many dead letters have a reason.
type ReasonCount struct {
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

// DeadLetterReasons counts the dead letters since t by reason, the most frequent first.
func DeadLetterReasons(tx Tx, t model.Micros) ([]ReasonCount, error) {
	rows, err := tx.Query(`SELECT reason, count(*) FROM dead_letters WHERE occurred >= ? GROUP BY reason ORDER BY count(*) DESC, reason`, int64(t))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []ReasonCount
	for rows.Next() {
		var c ReasonCount
		if err := rows.Scan(&c.Reason, &c.Count); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, rows.Err()
}
