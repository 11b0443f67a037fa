package store

import "errors"

// Holdings are the counts of a database's content.
type Holdings struct {
	Tenants, Devices int64
	// Messages are those that the ledger has as stored, Readings those in them.
	Messages, Readings int64
}

// ReadHoldings counts what the database holds.
func ReadHoldings(tx Tx) (h Holdings, err error) {
	err = errors.Join(
		tx.QueryRow(`SELECT count(*) FROM tenants`).Scan(&h.Tenants),
		tx.QueryRow(`SELECT count(*) FROM devices`).Scan(&h.Devices),
		tx.QueryRow(`SELECT coalesce(sum(messages), 0), coalesce(sum(readings), 0) FROM ledger WHERE heading = ?`, string(OutcomeStored)).Scan(&h.Messages, &h.Readings))
	return h, err
}
