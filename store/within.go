package store

import (
	"context"

	"weir/model"
)

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
