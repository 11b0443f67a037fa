package sqlite

import (
	"context"
	"database/sql"

	"weir/store"
)

// tx is one transaction, or one savepoint of the writer's.
type tx struct {
	ctx   context.Context
	conn  *sql.Conn
	hooks []func()
	write bool
}

var _ store.Tx = (*tx)(nil)

// insideWrite marks the context of a write transaction: a Write inside it would wait for itself.
type insideWrite struct{}

// over is the context of ended transactions: every call on them fails.
var over = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errTxOver)
	return ctx
}()

// end invalidates the transaction, so that one that has left its function does no harm.
func (t *tx) end() { t.ctx = over }

// Context implements store.Tx.
func (t *tx) Context() context.Context { return t.ctx }

// Exec implements store.Tx.
func (t *tx) Exec(query string, args ...any) (int64, error) {
	res, err := t.conn.ExecContext(t.ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Insert implements store.Tx.
func (t *tx) Insert(query string, args ...any) (id int64, err error) {
	err = t.conn.QueryRowContext(t.ctx, query+" RETURNING id", args...).Scan(&id)
	return id, err
}

// Query implements store.Tx.
func (t *tx) Query(query string, args ...any) (*sql.Rows, error) {
	return t.conn.QueryContext(t.ctx, query, args...)
}

// QueryRow implements store.Tx.
func (t *tx) QueryRow(query string, args ...any) *sql.Row {
	return t.conn.QueryRowContext(t.ctx, query, args...)
}

// OnCommit implements store.Tx.
func (t *tx) OnCommit(f func()) {
	if t.write {
		t.hooks = append(t.hooks, f)
	}
}
