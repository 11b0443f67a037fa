package sqlite

import (
	"container/list"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	modernc "modernc.org/sqlite"
)

// maxStatements bounds the prepared statements that a connection keeps: some tens of kilobytes each at worst.
const maxStatements = 128

// connector opens connections of the third-party driver and wraps each in a conn.
type connector struct {
	inner driver.Connector
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
	return &conn{preparer: prep, cached: map[string]*list.Element{}, recent: list.New()}, nil
}

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return c.inner.Driver() }

type preparer interface {
	driver.Conn
	driver.ConnPrepareContext
}

// conn is a connection that keeps its statements prepared, translates errors, and tracks its open rows, so
// that a transaction never ends before its cursors. database/sql serializes all calls.
type conn struct {
	preparer
	cached map[string]*list.Element // of *statement
	recent *list.List               // front: used most recently
	open   []*rows
}

// statement is a prepared statement. While busy it belongs to open rows: a second use of the same text prepares
// it again, because otherwise the inner loop would reset the outer one.
type statement struct {
	query string
	stmt  driver.Stmt
	busy  bool
	once  bool // not in the cache, closed after use
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
	s, err := c.acquire(ctx, query)
	if err != nil {
		return nil, err
	}
	res, err := s.stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	return res, translate(errors.Join(err, c.release(s)))
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.acquire(ctx, query)
	if err != nil {
		return nil, err
	}
	inner, err := s.stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
	if err != nil {
		return nil, translate(errors.Join(err, c.release(s)))
	}
	r := &rows{inner: inner, conn: c, of: s}
	c.open = append(c.open, r)
	return r, nil
}

// run executes an internal statement without parameters and ignores its rows.
func (c *conn) run(query string) error {
	_, err := c.ExecContext(context.Background(), query, nil)
	return err
}

// closeRows closes every open cursor and returns how many there were.
func (c *conn) closeRows() int {
	n := len(c.open)
	for len(c.open) > 0 {
		_ = c.open[len(c.open)-1].Close() // its error belongs to an abandoned statement
	}
	return n
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

func (c *conn) acquire(ctx context.Context, query string) (*statement, error) {
	e, ok := c.cached[query]
	if ok {
		if s := e.Value.(*statement); !s.busy {
			c.recent.MoveToFront(e)
			s.busy = true
			return s, nil
		}
	}
	stmt, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, translate(err)
	}
	s := &statement{query: query, stmt: stmt, busy: true, once: ok}
	if !s.once {
		c.cached[query] = c.recent.PushFront(s)
		return s, c.evict()
	}
	return s, nil
}

// evict closes the least recently used statement when there are too many. A busy one becomes a one-time
// statement instead, closed when its rows are.
func (c *conn) evict() error {
	if c.recent.Len() <= maxStatements {
		return nil
	}
	s := c.recent.Remove(c.recent.Back()).(*statement)
	delete(c.cached, s.query)
	if s.busy {
		s.once = true
		return nil
	}
	return s.stmt.Close()
}

func (c *conn) release(s *statement) error {
	s.busy = false
	if s.once {
		return s.stmt.Close()
	}
	return nil
}

// rows wraps a cursor and returns its statement when it is closed.
type rows struct {
	inner  driver.Rows
	conn   *conn
	of     *statement
	closed bool
}

// Columns implements driver.Rows.
func (r *rows) Columns() []string { return r.inner.Columns() }

// Next implements driver.Rows.
func (r *rows) Next(dest []driver.Value) error { return translate(r.inner.Next(dest)) }

// Close implements driver.Rows. A second call does nothing: the end of the transaction may have closed it.
func (r *rows) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	for i, o := range r.conn.open {
		if o == r {
			last := len(r.conn.open) - 1
			r.conn.open[i], r.conn.open[last] = r.conn.open[last], nil
			r.conn.open = r.conn.open[:last]
			break
		}
	}
	return translate(errors.Join(r.inner.Close(), r.conn.release(r.of)))
}
