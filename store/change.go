package store

import (
	"context"
	"time"

	"weir/model"
)

// Change is a transaction in which entities change on behalf of a principal. Beside the rows it carries what the change
// means to the judging of readings (View) and what the journal has to say of it (Audit); both are written with it.
type Change struct {
	Tx
	By *model.Principal // nil: internal work
	At model.Micros     // one instant for the whole change

	views []model.ViewChange
}

// Mutate runs fn in one durable transaction. When fn has put view changes on the Change, they become control rows in
// the same transaction and seq is their sequence; else seq is 0. now is asked when the transaction begins. In the context
// of a change under way fn is a part of that change, see Change.Context.
func Mutate(ctx context.Context, st Store, by *model.Principal, now func() time.Time, fn func(*Change) error) (seq uint64, err error) {
	if c := changeOf(ctx); c != nil {
		return 0, c.join(by, fn)
	}
	err = st.Write(ctx, Durable, func(tx Tx) error {
		c := &Change{Tx: tx, By: by, At: model.MicrosOf(now())}
		if err := fn(c); err != nil {
			return err
		}
		if len(c.views) == 0 {
			return nil
		}
		s, err := insertControl(tx, c.views)
		seq = s
		return err
	})
	if err != nil {
		return 0, err
	}
	return seq, nil
}

// View adds changes of what resolution reads. They hold from the control record on that will carry them, in this order.
func (c *Change) View(vs ...model.ViewChange) { c.views = append(c.views, vs...) }

// Actor is how the journal names the principal.
func (c *Change) Actor() string {
	if c.By == nil || c.By.Subject == "" {
		return "system"
	}
	return c.By.Subject
}

// Direct is a Writer over a store alone: for work while nothing runs, whose control rows wait for the next start.
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
