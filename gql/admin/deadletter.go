package admin

import (
	"context"
	"errors"
	"strconv"

	"weir/gql"
	"weir/gql/engine"
	"weir/ingest"
	"weir/model"
	"weir/store"
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
	Correlation *string      `gql:"correlation"` // of kinds that do not exist yet, as is Reference
	Reference   *string      `gql:"reference"`
}

func shown(d *store.DeadLetter) deadLetter {
	out := deadLetter{ID: d.ID, Tenant: d.Tenant, Occurred: d.Occurred, Kind: d.Kind, Reason: d.Reason, Source: d.Source, Summary: d.Summary,
		Detail: d.Detail, Attempts: d.Attempts, Subject: d.Subject}
	if d.Offset > 0 {
		out.Sequence = strconv.FormatInt(int64(d.Offset), 10)
	}
	return out
}

func (r *resolvers) deadLetters() {
	r.area.Type("DeadLetter", deadLetter{})
	r.area.Paged("DeadLetterSearchResults")
	r.query("deadLetters", model.AuditRead, r.listLetters)
	r.query("deadLetter", model.AuditRead, func(ctx context.Context, _ *model.Principal, args engine.Args) (any, error) {
		ids, err := gql.RowIDs("id", []string{args.String("id")})
		if err != nil || len(ids) == 0 {
			return nil, err
		}
		found, err := r.letters(ctx, ids)
		if err != nil || len(found) == 0 {
			return nil, err
		}
		return shown(&found[0]), nil
	})
	r.mutation("resendDeadLetters", model.TenantWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.settle(ctx, by, args, r.resend)
	})
	r.mutation("discardDeadLetters", model.TenantWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.settle(ctx, by, args, func(context.Context, *store.DeadLetter) error { return nil })
	})
}

func (r *resolvers) listLetters(ctx context.Context, _ *model.Principal, args engine.Args) (any, error) {
	c := args.Object("criteria")
	page := store.Page{Number: c.Int("pageNumber"), Size: c.Int("pageSize")}
	f := store.DeadLetterFilter{Open: true, Tenant: c.Text("tenant"), Kind: c.String("kind"), Reason: c.String("reason"), Source: c.String("source")}
	var err error
	if f.Start, f.End, err = gql.Span(c); err != nil {
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
		out[i] = shown(&found[i])
	}
	return gql.Results(page, out, total), err
}

// letters reads the open ones of some dead letters.
func (r *resolvers) letters(ctx context.Context, ids []int64) (found []store.DeadLetter, err error) {
	err = store.Read(ctx, r.Store, func(tx store.Tx) (err error) {
		found, err = store.OpenDeadLetters(tx, ids)
		return err
	})
	return found, err
}

// settle does something with each open dead letter that is named and closes it. It returns the number done: those that cannot be
// done, and unknown ids, are left out. What fails ends it; the error is returned when nothing was done before.
func (r *resolvers) settle(ctx context.Context, by *model.Principal, args engine.Args, do func(context.Context, *store.DeadLetter) error) (any, error) {
	ids, err := gql.RowIDs("ids", args.Strings("ids"))
	if err != nil {
		return nil, err
	}
	found, err := r.letters(ctx, ids)
	if err != nil {
		return nil, err
	}
	n := 0
	for i := range found {
		err := do(ctx, &found[i])
		if errors.Is(err, ingest.ErrNotResendable) {
			continue
		}
		closed := false
		if err == nil {
			closed, err = r.close(ctx, by, found[i].ID)
		}
		switch {
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

func (r *resolvers) close(ctx context.Context, by *model.Principal, id int64) (closed bool, err error) {
	err = r.Writer.Mutate(ctx, by, func(c *store.Change) error {
		closed, err = store.CloseDeadLetter(c, id)
		return err
	})
	return closed, err
}

// resend hands a dead letter to the intake.
func (r *resolvers) resend(ctx context.Context, d *store.DeadLetter) error {
	if r.Resend == nil {
		return model.Errorf(model.CodeUnavailable, "unavailable: no instance runs that could take the message")
	}
	a, err := r.Resend(ctx, d)
	if err == nil && a.Outcome != ingest.Stored {
		return model.Errorf(model.CodeUnavailable, "unavailable: the message was not taken (%s)", a.Reason)
	}
	return err
}
