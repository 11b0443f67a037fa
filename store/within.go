package store

import (
	"context"

	"weir/model"
)

type changeKey struct{}

// Context returns the context of the transaction. It carries the change: a Mutate with it is part of the change, and a
// Read of this package sees the change. So independent packages take part in one transaction when their verbs get this
// context. It is valid while the function of the change runs, for one goroutine.
func (c *Change) Context() context.Context { return context.WithValue(c.Tx.Context(), changeKey{}, c) }

// changeOf returns the change in progress that ctx carries, nil for none.
func changeOf(ctx context.Context) *Change {
	c, _ := ctx.Value(changeKey{}).(*Change)
	return c
}

// InChange reports whether ctx carries a change in progress: long work must be done before it.
func InChange(ctx context.Context) bool { return changeOf(ctx) != nil }

// Read runs fn in a snapshot of the store or, in the context of a change in progress, in that change's transaction.
func Read(ctx context.Context, st Store, fn func(Tx) error) error {
	if c := changeOf(ctx); c != nil {
		return fn(reading{c.Tx})
	}
	return st.Read(ctx, fn)
}

// AfterCommit calls f at once or, in the context of a change in progress, after its commit.
func AfterCommit(ctx context.Context, f func()) {
	if c := changeOf(ctx); c != nil {
		c.OnCommit(f)
		return
	}
	f()
}

// Joined is a Store and a Writer over a change in progress, so that independent packages can take part in one
// transaction: their writes are committed with the change or not at all, and their reads see the change so far. It is
// valid while the function of the change runs, for one goroutine.
//
// There is no savepoint around a write: when a write fails, the function of the change must fail too.
type Joined struct{ c *Change }

var (
	_ Store  = (*Joined)(nil)
	_ Writer = (*Joined)(nil)
)

// Within returns the store and the writer of a change in progress.
func Within(c *Change) *Joined { return &Joined{c} }

// Read implements Store: fn sees the change so far.
func (j *Joined) Read(_ context.Context, fn func(Tx) error) error { return fn(reading{j.c.Tx}) }

// Write implements Store. The durability is the change's.
func (j *Joined) Write(_ context.Context, _ Durability, fn func(Tx) error) error { return fn(j.c.Tx) }

// Mutate implements Writer: fn changes entities on behalf of by, at the change's instant. Its view changes are
// added to those of the change.
func (j *Joined) Mutate(_ context.Context, by *model.Principal, fn func(*Change) error) error {
	before := j.c.By
	j.c.By = by
	defer func() { j.c.By = before }()
	return fn(j.c)
}

// Stats implements Store; a transaction has none.
func (j *Joined) Stats() Stats { return Stats{} }

// Close implements Store: the change ends with its own function.
func (j *Joined) Close() error { return nil }

// reading is the transaction of a Read: hooks are never called.
type reading struct{ Tx }

func (reading) OnCommit(func()) {}
