package store

import "weir/model"

// Outcome is how a message ends in the ledger.
type Outcome string

// The outcomes. OutcomeReceived is counted apart from the others, which add up to it; waiting is never stored: it
// counts the messages in the log that are not applied yet.
const (
	OutcomeReceived   Outcome = "received"
	OutcomeStored     Outcome = "stored"
	OutcomeDuplicate  Outcome = "duplicate"
	OutcomeDeadLetter Outcome = "dead letter"
	OutcomeRefused    Outcome = "refused"
	OutcomeDropped    Outcome = "dropped"
	OutcomeWaiting    Outcome = "waiting"
)

// LedgerKey identifies one line of the ledger, which balances per tenant, source and hour. Hour counts from the Unix
// epoch.
type LedgerKey struct {
	Tenant    string
	Transport string // of the source
	Source    string // event source id
	Hour      int64
	Outcome   Outcome
	Reason    string
}

// LedgerCount is the content of a line.
type LedgerCount struct {
	Messages int64
	Readings int64
}

// Add adds o to c.
func (c *LedgerCount) Add(o LedgerCount) {
	c.Messages += o.Messages
	c.Readings += o.Readings
}

// AddLedger adds counts to a line. The table calls a transport door and an outcome heading, because the check of a backup
// reads tables of every version.
func AddLedger(tx Tx, k LedgerKey, c LedgerCount) error {
	_, err := tx.Exec(`INSERT INTO ledger (tenant, hour, source, door, heading, reason, messages, readings) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (tenant, hour, source, door, heading, reason) DO UPDATE
		SET messages = ledger.messages + excluded.messages, readings = ledger.readings + excluded.readings`,
		k.Tenant, k.Hour, k.Source, k.Transport, string(k.Outcome), k.Reason, c.Messages, c.Readings)
	return err
}

// LedgerFilter restricts a read of the ledger. Nil and empty fields restrict nothing; hours are inclusive.
type LedgerFilter struct {
	Tenant    *string
	Transport string
	From, To  *int64
}

// Ledger calls f for each stored line, newest hour first.
func Ledger(tx Tx, flt LedgerFilter, f func(LedgerKey, LedgerCount) error) error {
	q, args := `SELECT tenant, door, source, hour, heading, reason, messages, readings FROM ledger WHERE 1 = 1`, []any{}
	if flt.Tenant != nil {
		q, args = q+` AND tenant = ?`, append(args, *flt.Tenant)
	}
	if flt.Transport != "" {
		q, args = q+` AND door = ?`, append(args, flt.Transport)
	}
	if flt.From != nil {
		q, args = q+` AND hour >= ?`, append(args, *flt.From)
	}
	if flt.To != nil {
		q, args = q+` AND hour <= ?`, append(args, *flt.To)
	}
	rows, err := tx.Query(q+` ORDER BY hour DESC, tenant, door, source, heading, reason`, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var k LedgerKey
		var c LedgerCount
		if err := rows.Scan(&k.Tenant, &k.Transport, &k.Source, &k.Hour, (*string)(&k.Outcome), &k.Reason, &c.Messages, &c.Readings); err != nil {
			return err
		}
		if err := f(k, c); err != nil {
			return err
		}
	}
	return rows.Err()
}

// LedgerGap is a span of time in which refusals of the transports may not have been counted.
type LedgerGap struct{ From, To model.Micros }

// AddLedgerGap records a span.
func AddLedgerGap(tx Tx, g LedgerGap) error {
	_, err := tx.Exec(`INSERT INTO ledger_gaps (from_time, to_time) VALUES (?, ?)`, int64(g.From), int64(g.To))
	return err
}

// LedgerGaps returns the newest recorded spans, newest first.
func LedgerGaps(tx Tx, limit int) ([]LedgerGap, error) {
	rows, err := tx.Query(`SELECT from_time, to_time FROM ledger_gaps ORDER BY id DESC LIMIT ?`, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var gaps []LedgerGap
	for rows.Next() {
		var g LedgerGap
		if err := rows.Scan((*int64)(&g.From), (*int64)(&g.To)); err != nil {
			return nil, err
		}
		gaps = append(gaps, g)
	}
	return gaps, rows.Err()
}
