package sqlite

import (
	"container/list"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	modernc "modernc.org/sqlite"

	"weir/store"
)

// maxStatements bounds the prepared statements that a connection keeps: some tens of kilobytes each at worst.
const maxStatements = 128

// connector opens connections of the third-party driver and wraps each in a conn.
type connector struct {
	inner driver.Connector
	trace func(query string) // nil: none
}

func newConnector(dsn string) (*connector, error) {
	inner, err := modernc.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	return &connector{inner: inner}, nil
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	dc, err := c.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	prep, ok := dc.(preparer)
	if !ok {
		return nil, errors.Join(fmt.Errorf("store/sqlite: the driver's %T prepares nothing", dc), dc.Close())
	}
	return &conn{preparer: prep, trace: c.trace, cached: map[string]*list.Element{}, recent: list.New()}, nil
}

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return c.inner.Driver() }

type preparer interface {
	driver.Conn
	driver.ConnPrepareContext
}

// conn is a connection that keeps its statements prepared, translates errors, and runs one statement at a time: it tracks
// its open rows, refuses the next statement until they are closed, and ends no transaction before them. database/sql
// serializes all calls.
type conn struct {
	preparer
	cached map[string]*list.Element // of *statement
	recent *list.List               // front: used most recently
	open   *rows                    // nil: none
	trace  func(query string)       // nil: none
}

// statement is a prepared statement.
type statement struct {
	query string
	stmt  driver.Stmt
}

// CheckNamedValue implements driver.NamedValueChecker: the types that SQLite binds pass unchanged.
func (c *conn) CheckNamedValue(nv *driver.NamedValue) error {
	switch v := nv.Value.(type) {
	case int64, string, []byte, float64, bool, nil:
		return nil
	case int:
		nv.Value = int64(v)
		return nil
	}
	v, err := driver.DefaultParameterConverter.ConvertValue(nv.Value)
	nv.Value = v
	return err
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	stmt, err := c.prepared(ctx, query)
	if err != nil {
		return nil, err
	}
	res, err := stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	return res, translate(err)
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	stmt, err := c.prepared(ctx, query)
	if err != nil {
		return nil, err
	}
	inner, err := stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
	if err != nil {
		return nil, translate(err)
	}
	c.open = &rows{inner: inner, conn: c, query: query}
	return c.open, nil
}

// run executes an internal statement without parameters and ignores its rows.
func (c *conn) run(query string) error {
	_, err := c.ExecContext(context.Background(), query, nil)
	return err
}

// closeRows closes the open rows and returns their query, "" when there were none.
func (c *conn) closeRows() (query string) {
	if c.open == nil {
		return ""
	}
	query = c.open.query
	_ = c.open.Close() // its error belongs to an abandoned statement
	return query
}

// Close finalizes the statements and closes the connection.
func (c *conn) Close() error {
	c.closeRows()
	var err error
	for e := c.recent.Front(); e != nil; e = e.Next() {
		err = errors.Join(err, e.Value.(*statement).stmt.Close())
	}
	clear(c.cached)
	c.recent.Init()
	return errors.Join(err, c.preparer.Close())
}

// prepared returns the prepared statement of a query. It refuses while rows are open.
func (c *conn) prepared(ctx context.Context, query string) (driver.Stmt, error) {
	if c.open != nil {
		return nil, fmt.Errorf("%w: %q while the rows of %q are open", store.ErrOpenRows, query, c.open.query)
	}
	if c.trace != nil {
		c.trace(query)
	}
	if e, ok := c.cached[query]; ok {
		c.recent.MoveToFront(e)
		return e.Value.(*statement).stmt, nil
	}
	stmt, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, translate(err)
	}
	c.cached[query] = c.recent.PushFront(&statement{query, stmt})
	return stmt, c.evict()
}

// evict closes the least recently used statement when there are too many.
func (c *conn) evict() error {
	if c.recent.Len() <= maxStatements {
		return nil
	}
	s := c.recent.Remove(c.recent.Back()).(*statement)
	delete(c.cached, s.query)
	return s.stmt.Close()
}

// rows wraps a cursor.
type rows struct {
	inner driver.Rows
	conn  *conn
	query string
}

// Columns implements driver.Rows.
func (r *rows) Columns() []string { return r.inner.Columns() }

// Next implements driver.Rows.
func (r *rows) Next(dest []driver.Value) error { return translate(r.inner.Next(dest)) }

// Close implements driver.Rows. A second call does nothing: the end of the transaction may have closed it.
func (r *rows) Close() error {
	if r.conn.open != r {
		return nil
	}
	r.conn.open = nil
	return translate(r.inner.Close())
}
