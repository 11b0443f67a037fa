package store

import (
	"context"

	"weir/model"
)

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
