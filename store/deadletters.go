package store

import (
	"database/sql"
	"errors"
	"strconv"
	"strings"

	"weir/model"
)

// DeadLetter is a message that was accepted and could not be stored, or the copy of one that was refused as unreadable; or an order that
// could not be performed.
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
	Correlation     string // idempotency key of what was to go out
	Reference       string // runtime id of the rule that ordered it
}

// Kinds of dead letters.
const (
	DeadLetterIngest   = "ingest"   // a received message
	DeadLetterReadings = "readings" // readings of a message whose others are stored: the ledger counts it as stored
	// DeadLetterResponse is an answer to a command that moved none: it is stored as an event, and the ledger counts it as stored.
	DeadLetterResponse = "command-response"

	DeadLetterAction    = "detection-action"   // an order of a rule that Weir itself performs
	DeadLetterConnector = "connector-dispatch" // an order of a rule that goes to another system
	DeadLetterNotice    = "notification"       // a message to people
)

// incoming are the kinds of what devices sent, as SQL. All others are of what was to go out, and have a bound of their own: what a dead target
// leaves must not push out what a device sent.
const incoming = `('` + DeadLetterIngest + `', '` + DeadLetterReadings + `', '` + DeadLetterResponse + `')`

// Direction separates dead letters of what came in from those of what was to go out.
type Direction bool

// The directions.
const (
	Incoming Direction = false
	Outgoing Direction = true
)

func (d Direction) kinds() string {
	if d == Outgoing {
		return `kind NOT IN ` + incoming
	}
	return `kind IN ` + incoming
}

// Incoming reports whether it is of what came in.
func (d *DeadLetter) Incoming() bool {
	return d.Kind == DeadLetterIngest || d.Kind == DeadLetterReadings || d.Kind == DeadLetterResponse
}

// AddDeadLetter stores d. Adding the dead letter of a record again, as a replay does, changes nothing.
func AddDeadLetter(tx Tx, d *DeadLetter) error {
	_, err := tx.Exec(`INSERT INTO dead_letters (tenant, occurred, kind, reason, source, summary, detail, attempts, subject, epoch,
		log_offset, stranger, bytes, record, correlation, reference) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		d.Tenant, int64(d.Occurred), d.Kind, d.Reason, d.Source, d.Summary, orNull(d.Detail), d.Attempts, orNull(d.Subject),
		int64(d.Epoch), int64(d.Offset), d.Unauthenticated, d.Bytes, d.Record, orNull(d.Correlation), orNull(d.Reference))
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

// TrimDeadLetters removes the oldest dead letters of a tenant, of what came in, that are over the bound, at most trimStep of them. It
// records the time of the newest removed one and returns the number of removed rows.
func TrimDeadLetters(tx Tx, tenant string, bound DeadLetterBound) (int64, error) {
	n, occurred, err := trim(tx, tenant, Incoming, bound)
	if err != nil || n == 0 {
		return n, err
	}
	key := metaTrimmed + tenant
	have, _, err := MetaInt(tx, key)
	if err == nil {
		err = SetMetaInt(tx, key, max(have, occurred))
	}
	return n, err
}

// TrimOutgoing is TrimDeadLetters for what was to go out. The ledger does not count these: nothing is recorded.
func TrimOutgoing(tx Tx, tenant string, bound DeadLetterBound) (int64, error) {
	n, _, err := trim(tx, tenant, Outgoing, bound)
	return n, err
}

func trim(tx Tx, tenant string, of Direction, bound DeadLetterBound) (n, newest int64, err error) {
	var id, occurred sql.NullInt64
	if err := tx.QueryRow(`SELECT MAX(id), MAX(occurred) FROM (SELECT id, occurred, ROW_NUMBER() OVER (ORDER BY id DESC) AS place,
		SUM(bytes) OVER (ORDER BY id DESC) AS held FROM dead_letters WHERE tenant = ? AND stranger = ? AND `+of.kinds()+`) AS own WHERE place > ? OR held > ?`,
		tenant, false, bound.Rows, bound.Bytes).Scan(&id, &occurred); err != nil || !id.Valid {
		return 0, 0, err
	}
	n, err = tx.Exec(`DELETE FROM dead_letters WHERE id IN (SELECT id FROM dead_letters WHERE tenant = ? AND stranger = ? AND id <= ? AND `+of.kinds()+` ORDER BY id LIMIT ?)`,
		tenant, false, id.Int64, trimStep)
	return n, occurred.Int64, err
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
	Source       string
	Start, End   *model.Micros // both inclusive
	Open         bool          // neither sent again nor discarded
	IDs          []int64
	Before       int64 // ids below; 0 = from the newest
	Limit        int   // not of a page
}

func (f *DeadLetterFilter) where() (q where) {
	for _, c := range []struct {
		condition string
		value     *string
	}{{"tenant = ?", f.Tenant}, {"subject = ?", f.Subject}, {"kind = ?", given(f.Kind)}, {"reason = ?", given(f.Reason)}, {"source = ?", given(f.Source)}} {
		if c.value != nil {
			q.add(c.condition, *c.value)
		}
	}
	if f.Start != nil {
		q.add("occurred >= ?", int64(*f.Start))
	}
	if f.End != nil {
		q.add("occurred <= ?", int64(*f.End))
	}
	if f.Open {
		q.add("closed = ?", false)
	}
	if f.IDs != nil {
		args := make([]any, len(f.IDs))
		for i, id := range f.IDs {
			args[i] = id
		}
		q.add("id IN (0"+strings.Repeat(", ?", len(args))+")", args...)
	}
	if f.Before > 0 {
		q.add("id < ?", f.Before)
	}
	return q
}

func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

const deadLetterColumns = `id, tenant, occurred, kind, reason, source, summary, detail, attempts, subject, epoch, log_offset, stranger, bytes, correlation, reference`

// DeadLetters lists dead letters without their records, newest first.
func DeadLetters(tx Tx, f DeadLetterFilter) ([]DeadLetter, error) {
	q := f.where()
	return scanDeadLetters(tx, `SELECT `+deadLetterColumns+`, NULL FROM dead_letters`+q.text()+` ORDER BY id DESC LIMIT ?`, append(q.args, f.Limit)...)
}

// ListDeadLetters returns a page of dead letters without their records, newest first, and the number of all matching ones.
func ListDeadLetters(tx Tx, page Page, f DeadLetterFilter) (letters []DeadLetter, total int64, err error) {
	q := f.where()
	if err := tx.QueryRow(`SELECT count(*) FROM dead_letters`+q.text(), q.args...).Scan(&total); err != nil {
		return nil, 0, err
	}
	limit, offset := page.bounds()
	letters, err = scanDeadLetters(tx, `SELECT `+deadLetterColumns+`, NULL FROM dead_letters`+q.text()+` ORDER BY id DESC LIMIT ? OFFSET ?`, append(q.args, limit, offset)...)
	return letters, total, err
}

// OpenDeadLetters returns the dead letters with these ids that are neither sent again nor discarded, with their records, oldest
// first.
func OpenDeadLetters(tx Tx, ids []int64) ([]DeadLetter, error) {
	q := (&DeadLetterFilter{Open: true, IDs: append([]int64{}, ids...)}).where()
	return scanDeadLetters(tx, `SELECT `+deadLetterColumns+`, record FROM dead_letters`+q.text()+` ORDER BY id`, q.args...)
}

// CloseDeadLetter marks a dead letter as done with. False says that it is already, or does not exist.
func CloseDeadLetter(c *Change, id int64) (bool, error) {
	var tenant string
	err := c.QueryRow(`UPDATE dead_letters SET closed = ? WHERE id = ? AND closed = ? RETURNING tenant`, true, id, false).Scan(&tenant)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	tenantID, err := TenantID(c, tenant)
	if err != nil {
		return false, err
	}
	key := strconv.FormatInt(id, 10)
	return true, c.Audit(AuditEvent{TenantID: tenantID, Category: AuditMutation, Operation: AuditUpdate, Table: "dead_letters", Key: key, Label: key, Rows: 1})
}

func scanDeadLetters(tx Tx, query string, args ...any) ([]DeadLetter, error) {
	rows, err := tx.Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []DeadLetter
	for rows.Next() {
		var d DeadLetter
		var detail, subject, correlation, reference sql.NullString
		var offset, epoch int64
		if err := rows.Scan(&d.ID, &d.Tenant, (*int64)(&d.Occurred), &d.Kind, &d.Reason, &d.Source, &d.Summary, &detail, &d.Attempts,
			&subject, &epoch, &offset, &d.Unauthenticated, &d.Bytes, &correlation, &reference, &d.Record); err != nil {
			return nil, err
		}
		d.Detail, d.Subject, d.Epoch, d.Offset = detail.String, subject.String, uint32(epoch), model.Offset(offset)
		d.Correlation, d.Reference = correlation.String, reference.String
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
