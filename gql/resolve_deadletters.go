package gql

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"weir/actions"
	"weir/gql/engine"
	"weir/ingest"
	"weir/model"
	"weir/store"
	"weir/store/outbox"
)

// deadLetter is a dead letter as operators see it.
type deadLetter struct {
	ID          int64        `gql:"id"`
	Tenant      string       `gql:"tenant"`
	Occurred    model.Micros `gql:"occurredTime"`
	Kind        string       `gql:"kind"`
	Reason      string       `gql:"reason"`
	Source      string       `gql:"source"`
	Summary     string       `gql:"summary"`
	Detail      string       `gql:"detail,omitzero"`
	Attempts    int          `gql:"attempts"`
	Subject     string       `gql:"subject,omitzero"`
	Sequence    string       `gql:"sequence,omitzero"`
	Correlation string       `gql:"correlation,omitzero"`
	Reference   string       `gql:"reference,omitzero"`
}

func shownLetter(d *store.DeadLetter) deadLetter {
	out := deadLetter{ID: d.ID, Tenant: d.Tenant, Occurred: d.Occurred, Kind: d.Kind, Reason: d.Reason, Source: d.Source, Summary: d.Summary,
		Detail: d.Detail, Attempts: d.Attempts, Subject: d.Subject, Correlation: d.Correlation, Reference: d.Reference}
	if d.Offset > 0 {
		out.Sequence = strconv.FormatInt(int64(d.Offset), 10)
	}
	return out
}

// LetterDeps are what lists, sends again and discards dead letters.
type LetterDeps struct {
	Store  store.Store
	Writer store.Writer
	// Tenant is the row id of a tenant.
	Tenant func(token string) (id int64, enabled, known bool)
	// Resend takes the message of a dead letter in again; nil where no instance runs.
	Resend func(context.Context, *store.DeadLetter) (ingest.Answer, error)
	// Ordered is called when an order is put back into the outbox; nil where no instance runs.
	Ordered func()
	// Standing are the targets of orders that stand still; nil where no instance runs.
	Standing func() []actions.Standing
}

// RegisterDeadLetters registers the operations about dead letters. On the tenant plane they are about those of the caller's tenant, on the
// identity plane about all of them.
func RegisterDeadLetters(a *Area, d LetterDeps, read, write Access) {
	r := &letterResolvers{d, a.plane == TenantPlane}
	a.Type("DeadLetter", deadLetter{})
	a.Paged("DeadLetterSearchResults")
	a.Query("deadLetters", read, r.listLetters)
	a.Query("deadLetter", read, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		ids, err := RowIDs("id", []string{args.String("id")})
		if err != nil || len(ids) == 0 {
			return nil, err
		}
		found, err := r.letters(ctx, ids)
		if err != nil || len(found) == 0 {
			return nil, err
		}
		return shownLetter(&found[0]), nil
	})
	a.Mutation("resendDeadLetters", write, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return r.settle(ctx, args, r.resend)
	})
	a.Mutation("discardDeadLetters", write, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return r.settle(ctx, args, func(ctx context.Context, d *store.DeadLetter) (bool, error) { return r.close(ctx, d.ID) })
	})
}

type letterResolvers struct {
	LetterDeps
	own bool // those of the caller's tenant alone
}

func (r *letterResolvers) listLetters(ctx context.Context, _ any, args engine.Args) (any, error) {
	c := args.Object("criteria")
	page := store.Page{Number: c.Int("pageNumber"), Size: c.Int("pageSize")}
	f := store.DeadLetterFilter{Open: true, Tenant: c.Text("tenant"), Kind: c.String("kind"), Reason: c.String("reason"), Source: c.String("source")}
	if r.own {
		f.Tenant = &PrincipalFrom(ctx).Tenant
	}
	var err error
	if f.Start, f.End, err = Span(c); err != nil {
		return nil, err
	}
	var found []store.DeadLetter
	var total int64
	err = store.Read(ctx, r.Store, func(tx store.Tx) (err error) {
		found, total, err = store.ListDeadLetters(tx, page, f)
		return err
	})
	out := make([]deadLetter, len(found))
	for i := range found {
		out[i] = shownLetter(&found[i])
	}
	return Results(page, out, total), err
}

// letters reads the open ones of some dead letters.
func (r *letterResolvers) letters(ctx context.Context, ids []int64) (found []store.DeadLetter, err error) {
	err = store.Read(ctx, r.Store, func(tx store.Tx) (err error) {
		found, err = store.OpenDeadLetters(tx, ids)
		return err
	})
	if r.own {
		tenant := PrincipalFrom(ctx).Tenant
		found = slices.DeleteFunc(found, func(d store.DeadLetter) bool { return d.Tenant != tenant })
	}
	return found, err
}

// settle does something with each open dead letter that is named, which closes it. It returns the number done: those that cannot be
// done, and unknown ids, are left out. What fails ends it; the error is returned when nothing was done before.
func (r *letterResolvers) settle(ctx context.Context, args engine.Args, do func(context.Context, *store.DeadLetter) (closed bool, err error)) (any, error) {
	ids, err := RowIDs("ids", args.Strings("ids"))
	if err != nil {
		return nil, err
	}
	found, err := r.letters(ctx, ids)
	if err != nil {
		return nil, err
	}
	n := 0
	for i := range found {
		closed, err := do(ctx, &found[i])
		switch {
		case errors.Is(err, ingest.ErrNotResendable), errors.Is(err, outbox.ErrNoOrder):
		case err != nil && n == 0:
			return nil, err
		case err != nil:
			return n, nil
		case closed:
			n++
		}
	}
	return n, nil
}

func (r *letterResolvers) close(ctx context.Context, id int64) (closed bool, err error) {
	err = r.Writer.Mutate(ctx, PrincipalFrom(ctx), func(c *store.Change) error {
		closed, err = store.CloseDeadLetter(c, id)
		return err
	})
	return closed, err
}

// resend puts a dead letter back to where it came from: into the outbox, or to the intake.
func (r *letterResolvers) resend(ctx context.Context, d *store.DeadLetter) (closed bool, err error) {
	if !d.Incoming() {
		return r.orderAgain(ctx, d)
	}
	if r.Resend == nil {
		return false, model.Errorf(model.CodeUnavailable, "unavailable: no instance runs that could take the message")
	}
	a, err := r.Resend(ctx, d)
	if err == nil && a.Outcome != ingest.Stored {
		err = model.Errorf(model.CodeUnavailable, "unavailable: the message was not taken (%s)", a.Reason)
	}
	if err != nil {
		return false, err
	}
	return r.close(ctx, d.ID)
}

// orderAgain puts an order back into the outbox and closes its dead letter, in one transaction.
func (r *letterResolvers) orderAgain(ctx context.Context, d *store.DeadLetter) (closed bool, err error) {
	tenant, _, known := r.Tenant(d.Tenant)
	if !known {
		return false, outbox.ErrNoOrder
	}
	err = r.Writer.Mutate(ctx, PrincipalFrom(ctx), func(c *store.Change) error {
		if err := outbox.Again(c, d, tenant, c.At); err != nil {
			return err
		}
		if closed, err = store.CloseDeadLetter(c, d.ID); err == nil && !closed {
			err = outbox.ErrNoOrder // somebody else was faster
		}
		return err
	})
	if err == nil && r.Ordered != nil {
		r.Ordered()
	}
	return closed && err == nil, err
}
