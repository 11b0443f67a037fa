package store

import (
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"strconv"

	"weir/model"
)

// EventRow is an event that is stored as a row: its log position, its device and its content. Only the part that belongs
// to Type is set.
type EventRow struct {
	ID          int64
	TenantID    int64
	Device      int64
	DeviceToken string
	Type        model.EventType
	Offset      model.Offset
	Index       uint32
	Source      string // event source id
	AltID       string
	Anchors     int64
	Occurred    model.Micros
	Received    model.Micros

	Location model.Location // absent coordinates are NaN
	Alert    model.Alert
	State    StateChange
	Response model.Response
}

// StateChange is the content of a state change event.
type StateChange struct {
	State   model.PresenceState
	Reason  string
	Session uint64
}

const eventColumns = `tenant_id, device_id, device_token, type, log_offset, idx, source, alt_id, anchors, occurred_at, received_at`

const eventRowColumns = `id, ` + eventColumns + `, latitude, longitude, elevation, accuracy, speed, heading, kind, level, message, origin,
	state, reason, session`

func (e *EventRow) columns(t model.EventType) []any {
	return []any{e.TenantID, e.Device, e.DeviceToken, int64(t), int64(e.Offset), int64(e.Index), e.Source, e.AltID, e.Anchors,
		int64(e.Occurred), int64(e.Received)}
}

// InsertLocation writes a location event; an existing one stays as it is.
func InsertLocation(tx Tx, e *EventRow) error {
	l := &e.Location
	_, err := tx.Exec(`INSERT INTO row_events (`+eventColumns+`, latitude, longitude, elevation, accuracy, speed, heading)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (log_offset, idx) DO NOTHING`,
		append(e.columns(model.LocationEvent), degrees(l.Latitude), degrees(l.Longitude), metres(l.Elevation), metres(l.Accuracy),
			metres(l.Speed), metres(l.Heading))...)
	return err
}

// InsertAlert writes an alert event; an existing one stays as it is.
func InsertAlert(tx Tx, e *EventRow) error {
	a := &e.Alert
	_, err := tx.Exec(`INSERT INTO row_events (`+eventColumns+`, kind, level, message, origin)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (log_offset, idx) DO NOTHING`,
		append(e.columns(model.AlertEvent), a.Type, int64(a.Level), orNull(a.Message), orNull(a.Source))...)
	return err
}

// InsertStateChange writes a state change event; an existing one stays as it is.
func InsertStateChange(tx Tx, e *EventRow) error {
	_, err := tx.Exec(`INSERT INTO row_events (`+eventColumns+`, state, reason, session)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (log_offset, idx) DO NOTHING`,
		append(e.columns(model.StateChange), int64(e.State.State), orNull(e.State.Reason), strconv.FormatUint(e.State.Session, 10))...)
	return err
}

// InsertResponse writes the event of an answer to a command and reports whether it was not there yet; an existing one stays as it is.
func InsertResponse(tx Tx, e *EventRow) (fresh bool, err error) {
	r := &e.Response
	success := 0
	if r.Success {
		success = 1
	}
	n, err := tx.Exec(`INSERT INTO row_events (`+eventColumns+`, kind, origin, level, message, reason)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (log_offset, idx) DO NOTHING`,
		append(e.columns(model.CommandResponse), r.Command, orNull(r.Nonce), success, orNull(r.Payload), orNull(r.Error))...)
	return n > 0, err
}

// InsertRelationship writes the event of a new relationship; an existing one stays as it is.
func InsertRelationship(tx Tx, e *EventRow) error {
	_, err := tx.Exec(`INSERT INTO row_events (`+eventColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (log_offset, idx) DO NOTHING`,
		e.columns(model.NewRelationship)...)
	return err
}

// EventScope selects row events: those of a type, of a device or, with Device 0, of the tenant.
type EventScope struct {
	TenantID int64
	Device   int64
	Type     model.EventType
	From, To model.Micros   // event time, inclusive
	Before   *EventPosition // only what is strictly older in list order
	// Anchors, unless nil, lists the anchor sets that count.
	Anchors []int64
}

// EventPosition is a position in list order: newest event time first, then newest offset, then newest index.
type EventPosition struct {
	Occurred model.Micros
	Offset   model.Offset
	Index    uint32
}

// where returns the condition for the rows of a scope after a position. The upper bound is a bound of the index and not a
// comparison of rows: otherwise each batch of a walk would begin at the newest row again.
func (s *EventScope) where(after *EventPosition) (string, []any) {
	q, args := `tenant_id = ? AND type = ?`, []any{s.TenantID, int64(s.Type)}
	if s.Device != 0 {
		q, args = `device_id = ? AND type = ? AND tenant_id = ?`, []any{s.Device, int64(s.Type), s.TenantID}
	}
	upper := s.To
	for _, p := range [...]*EventPosition{s.Before, after} {
		if p != nil {
			upper = min(upper, p.Occurred)
			q += ` AND (occurred_at < ? OR log_offset < ? OR log_offset = ? AND idx < ?)`
			args = append(args, int64(p.Occurred), int64(p.Offset), int64(p.Offset), int64(p.Index))
		}
	}
	q, args = q+` AND occurred_at >= ? AND occurred_at <= ?`, append(args, int64(s.From), int64(upper))
	if s.Anchors != nil {
		sets, _ := json.Marshal(s.Anchors) // integers; as one argument, since there may be more of them than a statement takes
		q, args = q+` AND anchors <> 0 AND anchors IN (SELECT value FROM json_each(?))`, append(args, string(sets))
	}
	return q, args
}

// RowEvents returns at most limit events of a scope after a position, newest first, without the first skip of them.
func RowEvents(tx Tx, s EventScope, after *EventPosition, skip, limit int) ([]EventRow, error) {
	q, args := s.where(after)
	rows, err := tx.Query(`SELECT `+eventRowColumns+` FROM row_events WHERE `+q+` ORDER BY occurred_at DESC, log_offset DESC, idx DESC LIMIT ? OFFSET ?`,
		append(args, limit, skip)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []EventRow
	for rows.Next() {
		e, err := scanEvent(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, *e)
	}
	return out, rows.Err()
}

// EventsInOrder returns events of a tenant that are rows in the order of the log: those after an offset and an index, of the records up to
// another offset; at most limit of them.
func EventsInOrder(tx Tx, tenantID int64, after model.Offset, index int64, upto model.Offset, limit int) ([]EventRow, error) {
	rows, err := tx.Query(`SELECT `+eventRowColumns+` FROM row_events WHERE (log_offset, idx) > (?, ?) AND log_offset <= ? AND tenant_id = ?
		ORDER BY log_offset, idx LIMIT ?`, int64(after), index, int64(upto), tenantID, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []EventRow
	for rows.Next() {
		e, err := scanEvent(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, *e)
	}
	return out, rows.Err()
}

func scanEvent(rows scanner) (*EventRow, error) {
	var e EventRow
	var typ, offset, index int64
	var c coordinates
	var level, state sql.NullInt64
	var kind, message, origin, reason, session sql.NullString
	if err := rows.Scan(&e.ID, &e.TenantID, &e.Device, &e.DeviceToken, &typ, &offset, &index, &e.Source, &e.AltID, &e.Anchors,
		(*int64)(&e.Occurred), (*int64)(&e.Received), &c[0], &c[1], &c[2], &c[3], &c[4], &c[5], &kind, &level, &message, &origin,
		&state, &reason, &session); err != nil {
		return nil, err
	}
	e.Type, e.Offset, e.Index, e.Location = model.EventType(typ), model.Offset(offset), uint32(index), c.location()
	if e.Type == model.CommandResponse {
		e.Response = model.Response{Command: kind.String, Nonce: origin.String, Success: level.Int64 == 1, Payload: message.String, Error: reason.String}
		return &e, nil
	}
	e.Alert = model.Alert{Type: kind.String, Level: int32(level.Int64), Message: message.String, Source: origin.String}
	e.State = StateChange{State: model.PresenceState(state.Int64), Reason: reason.String}
	if session.Valid {
		n, err := strconv.ParseUint(session.String, 10, 64)
		if err != nil {
			return nil, err
		}
		e.State.Session = n
	}
	return &e, nil
}

// AllRows is the limit of a count that has none.
const AllRows = math.MaxInt64

// CountRowEvents counts the events of a scope, up to limit.
func CountRowEvents(tx Tx, s EventScope, limit int64) (int64, error) {
	q, args := s.where(nil)
	var n int64
	err := tx.QueryRow(`SELECT COUNT(*) FROM (SELECT 1 FROM row_events WHERE `+q+` LIMIT ?) AS some`, append(args, limit)...).Scan(&n)
	return n, err
}

// The ends of the widest range of event times.
const (
	MinMicros model.Micros = math.MinInt64
	MaxMicros model.Micros = math.MaxInt64
)

// HasRowEvent reports whether the event of a log position is stored as a row. A replay uses it to detect its own work.
func HasRowEvent(tx Tx, at model.Offset, index uint32) (bool, error) {
	var one int
	err := tx.QueryRow(`SELECT 1 FROM row_events WHERE log_offset = ? AND idx = ?`, int64(at), int64(index)).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
