package outbox

import (
	"encoding/json"
	"errors"
	"strings"

	"weir/model"
	"weir/store"
)

// Letter is an order that was given up, whole: what the record of its dead letter holds, as JSON. Its form is frozen; fields are added.
type Letter struct {
	Kind     string          `json:"kind"`
	Target   string          `json:"target,omitempty"`
	Key      string          `json:"idempotencyKey"`
	DeviceID int64           `json:"deviceId"`
	Offset   model.Offset    `json:"offset"`
	Occurred model.Micros    `json:"occurred"`          // microseconds since the epoch, as are the others
	Received model.Micros    `json:"received"`          // of the record of the edge
	Expires  model.Micros    `json:"expires,omitempty"` // 0: never
	Attempts int             `json:"attempts"`          // that failed
	Dispatch json.RawMessage `json:"dispatch"`          // what was to be performed
}

// letterBytes is what a dead letter takes besides its texts.
const letterBytes = 128

// detailBytes is how much of an order is shown.
const detailBytes = 2 << 10

// GiveUp makes a dead letter of a row and removes the row, in one transaction: kind is that of the dead letter, source who performs the order.
// It reports whether there was a row.
func GiveUp(tx store.Tx, r *Row, kind, tenant, reason, cause string, at model.Micros) (*store.DeadLetter, error) {
	there, err := Remove(tx, r.ID)
	if err != nil || !there {
		return nil, err
	}
	d := letter(r, kind, tenant, reason, cause, at)
	return d, store.AddDeadLetter(tx, d)
}

func letter(r *Row, kind, tenant, reason, cause string, at model.Micros) *store.DeadLetter {
	o := &r.Order
	l := Letter{Kind: o.Kind, Target: o.Target, Key: o.Key, DeviceID: o.DeviceID, Offset: o.Edge.Offset, Occurred: o.Occurred, Received: r.Received,
		Expires: o.Expires, Attempts: r.Attempts, Dispatch: o.Body}
	record, err := json.Marshal(&l)
	if err != nil { // the body is no JSON: it is kept as text
		l.Dispatch, _ = json.Marshal(string(o.Body))
		record, _ = json.Marshal(&l)
	}
	d := &store.DeadLetter{Tenant: tenant, Occurred: at, Kind: kind, Reason: reason, Source: o.Kind, Summary: cause, Detail: shown(r.Dispatch.Payload),
		Attempts: r.Attempts, Subject: r.Dispatch.Device, Correlation: o.Key, Reference: r.Dispatch.Rule, Record: record}
	d.Bytes = int64(len(d.Record)+len(d.Detail)+len(d.Summary)+len(d.Correlation)+len(d.Reference)) + letterBytes
	return d
}

func shown(payload string) string {
	if len(payload) > detailBytes {
		return strings.ToValidUTF8(payload[:detailBytes], "") + "…"
	}
	return payload
}

// ErrNoOrder says that a dead letter holds no order that could be performed.
var ErrNoOrder = errors.New("outbox: the dead letter holds no order that could be performed again")

// readLetter reads the record of a dead letter. False says that nothing could be performed by it.
func readLetter(record []byte) (l Letter, ok bool) {
	var body model.Dispatch
	return l, json.Unmarshal(record, &l) == nil && json.Unmarshal(l.Dispatch, &body) == nil && l.Kind != "" && l.Key != ""
}

// Again puts the order of a dead letter back into the outbox, under its own idempotency key and with all of its attempts. ErrNoOrder: it
// has expired, cannot be read, or waits already.
func Again(tx store.Tx, d *store.DeadLetter, tenant int64, now model.Micros) error {
	l, ok := readLetter(d.Record)
	if !ok || l.Expires != 0 && l.Expires <= now {
		return ErrNoOrder
	}
	n, err := tx.Exec(`INSERT INTO outbox (tenant_id, idem_key, kind, target, device_id, log_offset, occurred, received, expires_at, body)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, tenant, l.Key, l.Kind, l.Target, l.DeviceID, int64(l.Offset), int64(l.Occurred), int64(now),
		orNull(l.Expires), string(l.Dispatch))
	if err == nil && n == 0 {
		err = ErrNoOrder
	}
	return err
}
