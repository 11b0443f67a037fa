package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"weir/model"
)

// Change is a transaction in which entities change on behalf of a principal. In addition to the rows it collects the
// changes of the metadata view (View) and writes the journal (Audit); all are committed together.
type Change struct {
	Tx
	By *model.Principal // nil: internal work
	At model.Micros     // one instant for the whole change

	views   []model.ViewChange
	silent  bool             // the journal gets nothing of it
	growth  *Growth          // nil: nothing bounds it
	refused bool             // and counted with its cause
	usage   map[int64]*usage // of the tenants whose rows it has grown or shrunk
	grows   bool             // it makes or grows rows
	pace    *Pace            // nil: nothing bounds what it writes
	paced   int64            // the tenant whose caller it is
	wrote   int64            // bytes of rows
	largest int64            // of these rows
}

// Mutate runs fn in one durable transaction. View changes that fn adds to the Change become control rows in the same
// transaction and seq is their sequence; without any, seq is 0. now is called when the transaction begins. In the context
// of a change in progress fn is part of that change, see Change.Context.
func Mutate(ctx context.Context, st Store, by *model.Principal, now func() time.Time, fn func(*Change) error) (seq uint64, err error) {
	if c := changeOf(ctx); c != nil {
		return 0, c.join(by, fn)
	}
	var c *Change
	write := func(tx Tx) (err error) {
		c = &Change{Tx: asked{tx, ctx}, By: by, At: model.MicrosOf(now())}
		seq, err = c.run(fn)
		return err
	}
	err = st.Write(ctx, Durable, write)
	if s, ok := st.(spare); ok && errors.Is(err, ErrFull) && (c == nil || !c.grows) {
		s.FreeSpace()
		err = st.Write(ctx, Durable, write)
	}
	if err != nil {
		return 0, unavailable(err)
	}
	return seq, nil
}

// asked is a transaction whose statements are refused once the context of the one who asked for the change has ended. A statement
// under way is never interrupted: SQLite may undo the whole transaction then, and with it the changes of others.
type asked struct {
	Tx
	by context.Context
}

// Exec implements Tx.
func (a asked) Exec(query string, args ...any) (int64, error) {
	if err := a.by.Err(); err != nil {
		return 0, err
	}
	return a.Tx.Exec(query, args...)
}

// Insert implements Tx.
func (a asked) Insert(query string, args ...any) (int64, error) {
	if err := a.by.Err(); err != nil {
		return 0, err
	}
	return a.Tx.Insert(query, args...)
}

// Query implements Tx.
func (a asked) Query(query string, args ...any) (*sql.Rows, error) {
	if err := a.by.Err(); err != nil {
		return nil, err
	}
	return a.Tx.Query(query, args...)
}

// spare is a store that keeps some space of the disk for changes that make no rows: on a full disk deletes must work.
type spare interface{ FreeSpace() }

// run runs fn and stores what the change has gathered. It returns the sequence of its view changes, 0 for none.
func (c *Change) run(fn func(*Change) error) (seq uint64, err error) {
	if err := fn(c); err != nil {
		return 0, err
	}
	if err := c.storeUsage(); err != nil || len(c.views) == 0 {
		return 0, err
	}
	if err := c.admitViews(); err != nil {
		return 0, err
	}
	return insertControl(c.Tx, c.views)
}

// Within runs fn as a change in a transaction that is under way, at one instant: all of it or, when fn fails, nothing. A change of
// the metadata view becomes no control row; the caller makes those that are returned effective. Rows of the view that a control
// row under way may hold as they were before (effective is the sequence up to which there is none) are logged once more behind it:
// logged is the sequence of their control rows, 0 for none. These are as durable as the transaction, and must not be appended to
// the log before they survive a power cut.
func Within(tx Tx, by *model.Principal, at model.Micros, effective uint64, fn func(*Change) error) (views []model.ViewChange, logged uint64, err error) {
	c := &Change{Tx: tx, By: by, At: at}
	if _, err := tx.Exec(`SAVEPOINT within`); err != nil {
		return nil, 0, err
	}
	if err = c.within(fn); err != nil {
		_, undo := tx.Exec(`ROLLBACK TO within`)
		_, release := tx.Exec(`RELEASE within`)
		return nil, 0, errors.Join(err, undo, release)
	}
	if _, err := tx.Exec(`RELEASE within`); err != nil || len(c.views) == 0 {
		return nil, 0, err
	}
	last, _, err := MetaInt(tx, metaControlSequence)
	if err == nil && uint64(last) > effective {
		logged, err = insertControl(tx, c.views)
	}
	return c.views, logged, err
}

// within runs fn, and stores what the change has gathered but for the changes of the view.
func (c *Change) within(fn func(*Change) error) error {
	if err := fn(c); err != nil {
		return err
	}
	return cmp.Or(c.admitViews(), c.storeUsage())
}

// Unjournaled leaves what the change does out of the journal.
func (c *Change) Unjournaled() { c.silent = true }

// View adds changes of the metadata view. They are effective from their record in the log on, in this order.
func (c *Change) View(vs ...model.ViewChange) { c.views = append(c.views, vs...) }

// Actor returns the journal's name of the principal.
func (c *Change) Actor() string {
	if c.By == nil || c.By.Subject == "" {
		return "system"
	}
	return c.By.Subject
}

// Direct is a Writer over a store alone, for changes to a stopped instance: the control rows wait for its next start.
type Direct struct {
	Store Store
	Now   func() time.Time // nil: time.Now
}

var _ Writer = Direct{}

// Mutate implements Writer.
func (d Direct) Mutate(ctx context.Context, by *model.Principal, fn func(*Change) error) error {
	now := d.Now
	if now == nil {
		now = time.Now
	}
	_, err := Mutate(ctx, d.Store, by, now, fn)
	return err
}

type changeKey struct{}

// Context is the context of the transaction, and carries the change: a Mutate with it is a part of the change, and so is
// a Read of this package. So packages that know nothing of each other take part in one transaction when their verbs are
// called with it. It is good while the function of the change runs, for one goroutine.
func (c *Change) Context() context.Context { return context.WithValue(c.Tx.Context(), changeKey{}, c) }

// changeOf returns the change under way that ctx belongs to, nil for none.
func changeOf(ctx context.Context) *Change {
	c, _ := ctx.Value(changeKey{}).(*Change)
	return c
}

// InChange reports whether ctx is that of a change under way: what takes long must be done before.
func InChange(ctx context.Context) bool { return changeOf(ctx) != nil }

// Read runs fn in a snapshot of the store or, in the context of a change under way, in what that has made so far.
func Read(ctx context.Context, st Store, fn func(Tx) error) error {
	if c := changeOf(ctx); c != nil {
		return fn(reading{c.Tx})
	}
	return st.Read(ctx, fn)
}

// AfterCommit calls f at once or, in the context of a change under way, once that is committed.
func AfterCommit(ctx context.Context, f func()) {
	if c := changeOf(ctx); c != nil {
		c.OnCommit(f)
		return
	}
	f()
}

// join runs fn as a part of the change, on behalf of by. There is no savepoint around it: when it fails, the function of the
// change must fail with it.
func (c *Change) join(by *model.Principal, fn func(*Change) error) error {
	before := c.By
	c.By = by
	defer func() { c.By = before }()
	return fn(c)
}

// reading is the transaction as a Read has it: hooks are never called.
type reading struct{ Tx }

func (reading) OnCommit(func()) {}
