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

// Joined is a Store and a Writer over a change under way, so that rooms which know nothing of each other can take part in
// one transaction: what they write is committed with the change or not at all, and what they read is what the change has
// made so far. It is good while the function of the change runs, for one goroutine.
//
// There is no savepoint around a write: when one fails, the function must fail with it.
type Joined struct{ c *Change }

var (
	_ Store  = (*Joined)(nil)
	_ Writer = (*Joined)(nil)
)

// Within returns the store and the writer of a change under way.
func Within(c *Change) *Joined { return &Joined{c} }

// Read implements Store: fn sees what the change has made so far.
func (j *Joined) Read(_ context.Context, fn func(Tx) error) error { return fn(reading{j.c.Tx}) }

// Write implements Store. The durability is the change's.
func (j *Joined) Write(_ context.Context, _ Durability, fn func(Tx) error) error { return fn(j.c.Tx) }

// Mutate implements Writer: fn changes entities on behalf of by, at the change's instant. Its view changes take their
// place among those of the change.
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

// reading is the transaction as a Read has it: hooks are never called.
type reading struct{ Tx }

func (reading) OnCommit(func()) {}
