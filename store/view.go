package store

import (
	"encoding/json"
	"fmt"

	"weir/model"
)

// MaxControlBody is the maximum size of a control row's body in bytes: with its other fields, a record of the log stays
// under 1 MiB.
const MaxControlBody = 1<<20 - 4<<10

// formatView is the version that the encoded view changes begin with.
const formatView = 1

// EncodeViewChanges returns the body of a metadata change before it is split: a version, then JSON.
func EncodeViewChanges(vs []model.ViewChange) ([]byte, error) {
	body, err := json.Marshal(vs)
	if err != nil {
		return nil, fmt.Errorf("store: view changes: %w", err)
	}
	return append([]byte{formatView}, body...), nil
}

// DecodeViewChanges is the inverse of EncodeViewChanges, over the joined parts of a sequence. Errors: ErrVersion for the
// body of a newer Weir, ErrDamaged otherwise.
func DecodeViewChanges(body []byte) ([]model.ViewChange, error) {
	if len(body) == 0 {
		return nil, fmt.Errorf("%w: control body is empty", ErrDamaged)
	}
	if body[0] != formatView {
		return nil, fmt.Errorf("%w: control body of version %d, this Weir reads %d", ErrVersion, body[0], formatView)
	}
	var vs []model.ViewChange
	if err := json.Unmarshal(body[1:], &vs); err != nil {
		return nil, fmt.Errorf("%w: control body: %w", ErrDamaged, err)
	}
	return vs, nil
}

// PendingControl returns at most limit control rows of sequences above after, in order, and no further sequence once they have
// MaxControlBody bytes. They are to be appended to the log. The result may end within a sequence; RemoveControl is called when its
// last part is appended.
func PendingControl(tx Tx, after uint64, limit int) ([]model.Control, error) {
	rows, err := tx.Query(`SELECT sequence, part, parts, body FROM control WHERE sequence > ? ORDER BY sequence, part LIMIT ?`,
		int64(after), limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var cs []model.Control
	for bytes := 0; rows.Next(); {
		var c model.Control
		if err := rows.Scan(&c.Sequence, &c.Part, &c.Parts, &c.Body); err != nil {
			return nil, err
		}
		if c.Part == 0 && bytes >= MaxControlBody {
			break
		}
		cs, bytes = append(cs, c), bytes+len(c.Body)
	}
	return cs, rows.Err()
}

// RemoveControl removes all parts of the sequences up to and including through, after they were appended to the log.
func RemoveControl(tx Tx, through uint64) error {
	_, err := tx.Exec(`DELETE FROM control WHERE sequence <= ?`, int64(through))
	return err
}

// insertControl writes the rows of one change and returns its sequence, which is never used again.
func insertControl(tx Tx, vs []model.ViewChange) (uint64, error) {
	body, err := EncodeViewChanges(vs)
	if err != nil {
		return 0, err
	}
	last, _, err := MetaInt(tx, metaControlSequence)
	if err != nil {
		return 0, err
	}
	sequence := last + 1
	if err := SetMetaInt(tx, metaControlSequence, sequence); err != nil {
		return 0, err
	}
	parts := (len(body) + MaxControlBody - 1) / MaxControlBody
	if parts > maxControlParts {
		return 0, model.Errorf(model.CodeLimitExceeded, "the change needs %d bytes of the log, more than %d", len(body), maxControlParts*MaxControlBody)
	}
	for part := range parts {
		piece := body[part*MaxControlBody : min((part+1)*MaxControlBody, len(body))]
		if _, err := tx.Exec(`INSERT INTO control (sequence, part, parts, body) VALUES (?, ?, ?, ?)`,
			sequence, part, parts, piece); err != nil {
			return 0, err
		}
	}
	return uint64(sequence), nil
}

// maxControlParts bounds one change: 16 MiB of the log are reserved for metadata changes.
const maxControlParts = 12

// ViewRow is one row of the metadata view, with the span of the log in which it is effective.
type ViewRow struct {
	Kind model.ViewKind
	Key  string
	From model.Offset
	Body []byte
}

// SetView sets the body of (kind, key) from offset on, whose record was received at; a nil body ends the row there. Setting it
// again with the same offset, as a replay does, changes nothing.
func SetView(tx Tx, kind model.ViewKind, key string, body []byte, from model.Offset, at model.Micros) error {
	if _, err := tx.Exec(`UPDATE view_rows SET to_offset = ?, ended_at = ? WHERE kind = ? AND key = ? AND to_offset IS NULL AND from_offset < ?`,
		int64(from), int64(at), string(kind), key, int64(from)); err != nil {
		return err
	}
	if body == nil {
		_, err := tx.Exec(`DELETE FROM view_rows WHERE kind = ? AND key = ? AND from_offset = ?`, string(kind), key, int64(from))
		return err
	}
	_, err := tx.Exec(`INSERT INTO view_rows (kind, key, from_offset, body, began_at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (kind, key, from_offset) DO UPDATE SET body = excluded.body`, string(kind), key, int64(from), body, int64(at))
	return err
}

// ViewAsOf calls f for each row that is effective at offset, in no promised order.
func ViewAsOf(tx Tx, at model.Offset, f func(ViewRow) error) error {
	rows, err := tx.Query(`SELECT kind, key, from_offset, body FROM view_rows
		WHERE from_offset <= ? AND (to_offset IS NULL OR to_offset > ?)`, int64(at), int64(at))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var r ViewRow
		var from int64
		if err := rows.Scan((*string)(&r.Kind), &r.Key, &from, &r.Body); err != nil {
			return err
		}
		r.From = model.Offset(from)
		if err := f(r); err != nil {
			return err
		}
	}
	return rows.Err()
}

// AnchorSet is what devices belonged to when they sent: events bear its number.
type AnchorSet struct {
	Number   int64
	TenantID int64
	Members  string // JSON of Anchors, in the one order that they have
	Anchors  []model.Anchor
}

// LastAnchorSet returns the highest number of a set, 0 when there is none.
func LastAnchorSet(tx Tx) (n int64, err error) {
	err = tx.QueryRow(`SELECT coalesce(max(id), 0) FROM anchor_sets`).Scan(&n)
	return n, err
}

// FindAnchorSet returns the number of a tenant's set, 0 when it has none yet.
func FindAnchorSet(tx Tx, tenantID int64, members string) (n int64, err error) {
	err = tx.QueryRow(`SELECT coalesce(max(id), 0) FROM anchor_sets WHERE tenant_id = ? AND members = ?`, tenantID, members).Scan(&n)
	return n, err
}

// InsertAnchorSet writes a set under its number. Writing it again, as a replay does, changes nothing.
func InsertAnchorSet(tx Tx, s AnchorSet) error {
	if _, err := tx.Exec(`INSERT INTO anchor_sets (id, tenant_id, members) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, s.Number, s.TenantID, s.Members); err != nil {
		return err
	}
	for _, a := range s.Anchors {
		if _, err := tx.Exec(`INSERT INTO anchor_set_members (tenant_id, type, token, set_id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			s.TenantID, a.Type, a.Token, s.Number); err != nil {
			return err
		}
	}
	return nil
}

// AnchorsOf returns the anchors of those of a tenant's sets that exist, by number, in one statement.
func AnchorsOf(tx Tx, tenantID int64, sets []int64) (map[int64][]model.Anchor, error) {
	numbers, err := json.Marshal(sets)
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(`SELECT id, members FROM anchor_sets WHERE tenant_id = ? AND id IN (SELECT value FROM json_each(?))`, tenantID, string(numbers))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := make(map[int64][]model.Anchor, len(sets))
	for rows.Next() {
		var n int64
		var members string
		if err := rows.Scan(&n, &members); err != nil {
			return nil, err
		}
		var anchors []model.Anchor
		if err := json.Unmarshal([]byte(members), &anchors); err != nil {
			return nil, fmt.Errorf("%w: anchors of set %d: %w", ErrDamaged, n, err)
		}
		found[n] = anchors
	}
	return found, rows.Err()
}

// AnchorSetsWith returns the numbers of a tenant's sets that an anchor is in.
func AnchorSetsWith(tx Tx, tenantID int64, a model.Anchor) (sets []int64, err error) {
	return Column[int64](tx, `SELECT set_id FROM anchor_set_members WHERE tenant_id = ? AND type = ? AND token = ? ORDER BY set_id`, tenantID, a.Type, a.Token)
}
