package commands

import (
	"strings"

	"weir/model"
	"weir/store"
)

const batchColumns = `id, tenant_id, created_at, updated_at, token, metadata, name, payload, target_kind, group_token, group_version, allow_partial, resolved, accepted,
	refusals, refusal_counts, cancelled_at, cancelled, expires_at, max_per_minute, stop_percent, state, stopped_at, stop_reason, succeeded, failed, succeeded_before,
	failed_before, released_to, next_at`

func readBatches(tx store.Tx, clauses string, args ...any) (found []*model.CommandBatch, err error) {
	rows, err := tx.Query(`SELECT `+batchColumns+` FROM command_batches`+clauses, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var b model.CommandBatch
		if err := rows.Scan(&b.ID, &b.TenantID, (*int64)(&b.CreatedAt), (*int64)(&b.UpdatedAt), &b.Token, &b.Metadata, &b.Name, &b.Payload, &b.TargetKind, &b.Group,
			&b.GroupVersion, &b.AllowPartial, &b.Resolved, &b.Accepted, &b.Refusals, &b.Counts, &b.CancelledAt, &b.Cancelled, (*int64)(&b.Expires), &b.MaxPerMinute,
			&b.StopPercent, (*string)(&b.State), &b.StoppedAt, &b.StopReason, &b.Succeeded, &b.Failed, &b.SucceededBefore, &b.FailedBefore, &b.ReleasedTo,
			(*int64)(&b.NextAt)); err != nil {
			return nil, err
		}
		found = append(found, &b)
	}
	return found, rows.Err()
}

// GetBatch returns the batch of a tenant with a token, nil when there is none.
func GetBatch(tx store.Tx, tenant int64, token string) (*model.CommandBatch, error) {
	return first(readBatches(tx, ` WHERE tenant_id = ? AND token = ?`, tenant, token))
}

// BatchOf returns the batch with a row id, nil when there is none.
func BatchOf(tx store.Tx, id int64) (*model.CommandBatch, error) {
	return first(readBatches(tx, ` WHERE id = ?`, id))
}

// InsertBatch stores a new batch and sets its row id.
func InsertBatch(tx store.Tx, b *model.CommandBatch) (err error) {
	b.ID, err = tx.Insert(`INSERT INTO command_batches (tenant_id, created_at, updated_at, token, metadata, name, payload, target_kind, group_token, group_version,
		allow_partial, resolved, accepted, refusals, refusal_counts, cancelled_at, cancelled, expires_at, max_per_minute, stop_percent, state, stopped_at, stop_reason,
		succeeded, failed, succeeded_before, failed_before, released_to, next_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		b.TenantID, int64(b.CreatedAt), int64(b.UpdatedAt), b.Token, b.Metadata, b.Name, b.Payload, b.TargetKind, b.Group, b.GroupVersion, b.AllowPartial, b.Resolved,
		b.Accepted, b.Refusals, b.Counts, b.CancelledAt, b.Cancelled, int64(b.Expires), b.MaxPerMinute, b.StopPercent, string(b.State), b.StoppedAt, b.StopReason,
		b.Succeeded, b.Failed, b.SucceededBefore, b.FailedBefore, b.ReleasedTo, int64(b.NextAt))
	return err
}

// SaveBatch stores what a batch has become.
func SaveBatch(tx store.Tx, b *model.CommandBatch) error {
	_, err := tx.Exec(`UPDATE command_batches SET updated_at = ?, cancelled_at = ?, cancelled = ?, state = ?, stopped_at = ?, stop_reason = ?, succeeded = ?, failed = ?,
		succeeded_before = ?, failed_before = ?, released_to = ?, next_at = ? WHERE id = ?`, int64(b.UpdatedAt), b.CancelledAt, b.Cancelled, string(b.State), b.StoppedAt,
		b.StopReason, b.Succeeded, b.Failed, b.SucceededBefore, b.FailedBefore, b.ReleasedTo, int64(b.NextAt), b.ID)
	return err
}

// allReleased is released_to of a batch all of whose commands have had their turn.
const allReleased = "9223372036854775807"

// Paced returns the batches that run at a pace and have commands whose turn has not come.
func Paced(tx store.Tx) ([]*model.CommandBatch, error) {
	return readBatches(tx, ` WHERE state = 'RUNNING' AND max_per_minute > 0 AND released_to < `+allReleased+` ORDER BY id`)
}

// Unmade returns the batches whose commands are being written.
func Unmade(tx store.Tx) ([]*model.CommandBatch, error) {
	return readBatches(tx, ` WHERE state = 'MAKING' ORDER BY id`)
}

// Cancelling returns the batches whose commands are being cancelled.
func Cancelling(tx store.Tx) ([]*model.CommandBatch, error) {
	return readBatches(tx, ` WHERE state = 'CANCELLING' ORDER BY id`)
}

// AfterTurn returns the commands of a batch that come after a row id, in their order.
func AfterTurn(tx store.Tx, batch, after int64, limit int) ([]*model.Command, error) {
	return read(tx, ` WHERE batch_id = ? AND batch_id > 0 AND id > ? ORDER BY id LIMIT ?`, batch, after, limit)
}

// DropMade removes commands of a batch that was not completed, at most limit, and returns how many these were. It counts nothing.
func DropMade(tx store.Tx, batch int64, limit int) (int64, error) {
	return tx.Exec(`DELETE FROM commands WHERE id IN (SELECT id FROM commands WHERE batch_id = ? AND batch_id > 0 LIMIT ?)`, batch, limit)
}

// DropBatch removes a batch.
func DropBatch(tx store.Tx, batch int64) error {
	_, err := tx.Exec(`DELETE FROM command_batches WHERE id = ?`, batch)
	return err
}

// TokensFrom returns the tokens of commands of a tenant that begin with a text, at most limit.
func TokensFrom(tx store.Tx, tenant int64, begin string, limit int) (found map[string]bool, err error) {
	rows, err := tx.Query(`SELECT token FROM commands WHERE tenant_id = ? AND token >= ? AND token < ? LIMIT ?`, tenant, begin, begin+"\x7f", limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found = map[string]bool{}
	for rows.Next() {
		var token string
		if err := rows.Scan(&token); err != nil {
			return nil, err
		}
		found[token] = true
	}
	return found, rows.Err()
}

// BatchFilter selects batches of a tenant; a zero field restricts nothing.
type BatchFilter struct {
	IDs    []int64
	Tokens []string
	Name   string
	Group  string
	Target string
}

func (f *BatchFilter) where(tenant int64) (text string, args []any) {
	conditions, args := []string{"tenant_id = ?", "state <> 'MAKING'"}, []any{tenant}
	in := func(column string, vs []any) {
		conditions, args = append(conditions, column+" IN (''"+strings.Repeat(", ?", len(vs))+")"), append(args, vs...)
	}
	if f.IDs != nil {
		in("id", anys(f.IDs))
	}
	if f.Tokens != nil {
		in("token", anys(f.Tokens))
	}
	for _, c := range [...]struct{ column, value string }{{"name", f.Name}, {"group_token", f.Group}, {"target_kind", f.Target}} {
		if c.value != "" {
			conditions, args = append(conditions, c.column+" = ?"), append(args, c.value)
		}
	}
	return " WHERE " + strings.Join(conditions, " AND "), args
}

// FindBatches returns the batches of a tenant that a filter selects, in the order of the list.
func FindBatches(tx store.Tx, tenant int64, f *BatchFilter) ([]*model.CommandBatch, error) {
	where, args := f.where(tenant)
	return readBatches(tx, where+` ORDER BY created_at DESC, token`, args...)
}

// ListBatches returns a page of the batches of a tenant, newest first, then by token, and the number of all that the filter selects.
func ListBatches(tx store.Tx, tenant int64, f *BatchFilter, page store.Page) (found []*model.CommandBatch, total int64, err error) {
	page = page.Norm()
	where, args := f.where(tenant)
	if err := tx.QueryRow(`SELECT COUNT(*) FROM command_batches`+where, args...).Scan(&total); err != nil {
		return nil, 0, err
	}
	found, err = readBatches(tx, where+` ORDER BY created_at DESC, token LIMIT ? OFFSET ?`, append(args, page.Size, page.Offset())...)
	return found, total, err
}
