package store

import (
	"context"
	"time"

	"weir/model"
)

// Change is a transaction in which entities change on behalf of a principal. In addition to the rows it collects the
// changes of the metadata view (View) and writes the journal (Audit); all are committed together.
type Change struct {
	Tx
	By *model.Principal // nil: internal work
	At model.Micros     // one instant for the whole change

	views []model.ViewChange
}

// Mutate runs fn in one durable transaction. View changes that fn adds to the Change become control rows in the same
// transaction and seq is their sequence; without any, seq is 0. now is called when the transaction begins. In the context
// of a change in progress fn is part of that change, see Change.Context.
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
