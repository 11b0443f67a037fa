package entity

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"weir/model"
	"weir/store"
)

// Kind is the life of one kind of entity. Its verbs demand the authority that the description names, of every caller:
// GraphQL, site files, the socket and the command line. They are scoped by the tenant of the principal and take part in
// the change that their context belongs to, see store.Change.Context. It is safe for concurrent use once a Catalog has it.
type Kind[T any] struct {
	// Rows reads without demanding an authority.
	Rows *Rows[T]
	// Table reads and writes rows within a transaction, without authority and hooks: for the code of the kind itself.
	Table *store.Table[T]

	desc   Desc[T]
	any    Any // made once, by New: each package that makes it compiles all of erased, for each kind
	info   *Info
	writer store.Writer
	vault  *store.Vault
	links  links

	managed bool        // the table has a column managed_by
	guards  func() bool // Base.Managed
}

// New makes a kind of its description. A mistake in it is one of the program: it panics.
func New[T any](b Base, d Desc[T]) *Kind[T] {
	if d.Stored == nil && d.Ceiling.counts() {
		d.Stored = store.StoredRows(d.Table)
	}
	table := store.NewTable(store.Desc[T]{Kind: d.Kind, Name: d.Table, Instance: d.Instance, Order: d.Order, Stored: d.Stored, Check: checkOf(&d), Label: d.Label})
	k := &Kind[T]{Rows: &Rows[T]{store: b.Store, table: table, instance: d.Instance}, Table: table, desc: d,
		info: infoOf(&d, table.Fields()), writer: b.Writer, vault: b.Vault, guards: b.Managed}
	k.info.ceiling, k.info.untie = d.Ceiling, b.Untie
	k.managed = slices.ContainsFunc(k.info.Fields, isManagedBy)
	if d.Type == "" || d.Plural == "" || len(d.Read) == 0 || len(d.Write) == 0 {
		panic(fmt.Sprintf("entity: %s needs a type, a plural and authorities", d.Kind))
	}
	if d.Versions != nil {
		d.Versions.of(k)
	}
	k.any = (*erased[T])(k)
	return k
}

// checkOf is Valid and then Check. It is no method, nor is infoOf: each package that names a kind compiles all methods of its description.
func checkOf[T any](d *Desc[T]) func(store.Tx, *T, store.Changed) error {
	if d.Valid == nil {
		return d.Check
	}
	valid, check := d.Valid, d.Check
	return func(tx store.Tx, row *T, changed store.Changed) error {
		if err := valid(row); err != nil || check == nil {
			return err
		}
		return check(tx, row, changed)
	}
}

// Check returns what is wrong with the patch of a create whatever an instance holds. Where the patch is not complete, an
// instance may have what it leaves out.
func (k *Kind[T]) Check(p store.Patch, complete bool) []error {
	p, _, err := k.apart(p)
	if err != nil {
		return []error{err}
	}
	row, refused := k.Table.Check(p, complete)
	if len(refused) > 0 || !complete {
		return refused
	}
	for _, check := range []func(*T) error{k.desc.Valid, k.desc.Alone} {
		if check == nil {
			continue
		}
		if err := check(row); err != nil {
			return append(refused, err)
		}
	}
	return refused
}

// Info describes the kind.
func (k *Kind[T]) Info() *Info { return k.info }

// Name is the kind's name in messages.
func (k *Kind[T]) Name() string { return k.info.Kind }

// Values returns a row as the patch of its create would give it: references are row ids, secrets are left out.
func (k *Kind[T]) Values(row *T) store.Patch { return k.Table.Values(row) }

// MayRead refuses a principal that may not read rows of the kind.
func (k *Kind[T]) MayRead(by *model.Principal) error { return k.demand(by, k.info.Read) }

// MayWrite refuses a principal that may not write rows of the kind.
func (k *Kind[T]) MayWrite(by *model.Principal) error { return k.demand(by, k.info.Write) }

func (k *Kind[T]) demand(by *model.Principal, as []model.Authority) error {
	if err := Demand(by, as); err != nil {
		return err
	}
	_, err := k.Rows.tenant(by)
	return err
}

// ByID returns the rows with these ids that exist.
func (k *Kind[T]) ByID(ctx context.Context, by *model.Principal, ids []int64) ([]*T, error) {
	if err := k.MayRead(by); err != nil {
		return nil, err
	}
	return k.Rows.ByID(ctx, by, ids)
}

// ByToken returns the rows with these tokens that exist.
func (k *Kind[T]) ByToken(ctx context.Context, by *model.Principal, tokens []string) ([]*T, error) {
	if err := k.MayRead(by); err != nil {
		return nil, err
	}
	return k.Rows.ByToken(ctx, by, tokens)
}

// By returns the rows whose column holds one of the values.
func (k *Kind[T]) By(ctx context.Context, by *model.Principal, column string, values ...any) ([]*T, error) {
	if err := k.MayRead(by); err != nil {
		return nil, err
	}
	return k.Rows.By(ctx, by, column, values...)
}

// List returns a page of the rows that the filters let through, in the kind's order, and how many there are in all.
func (k *Kind[T]) List(ctx context.Context, by *model.Principal, page store.Page, filters ...store.Filter) (rows []*T, total int64, err error) {
	if err := k.MayRead(by); err != nil {
		return nil, 0, err
	}
	return k.Rows.List(ctx, by, page, filters...)
}

// Each calls f with every row, in the kind's order. Rows are read a page at a time.
func (k *Kind[T]) Each(ctx context.Context, by *model.Principal, f func(row *T) error) error {
	for page, seen := 1, int64(0); ; page++ {
		rows, total, err := k.List(ctx, by, store.Page{Number: page, Size: store.MaxPageSize})
		if err != nil {
			return err
		}
		for _, row := range rows {
			if row, err = k.complete(ctx, by, row); err != nil {
				return err
			}
			if row == nil {
				continue // it has been removed since
			}
			if err := f(row); err != nil {
				return err
			}
		}
		if seen += int64(len(rows)); seen >= total || len(rows) == 0 {
			return nil
		}
	}
}

// complete returns a row of a list with its large fields, nil when it is gone.
func (k *Kind[T]) complete(ctx context.Context, by *model.Principal, row *T) (*T, error) {
	if !slices.ContainsFunc(k.info.Fields, func(f store.Field) bool { return f.Large }) {
		return row, nil
	}
	rows, err := k.ByID(ctx, by, []int64{k.Table.Head(row).ID})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}

// Create makes a row of a patch, which names its token.
func (k *Kind[T]) Create(ctx context.Context, by *model.Principal, p store.Patch) (*T, error) {
	p, err := k.Prepared(ctx, by, p)
	if err != nil {
		return nil, err
	}
	return k.change(ctx, by, func(c *store.Change) (*T, error) {
		if err := k.Admit(c, 1); err != nil {
			return nil, err
		}
		return k.Make(c, p)
	})
}

// Prepared returns the patch of a create as Make takes it: what must be done before the transaction is done here.
func (k *Kind[T]) Prepared(ctx context.Context, by *model.Principal, p store.Patch) (store.Patch, error) {
	token, _ := p["token"].(string)
	return k.prepared(ctx, by, token, p, true)
}

func (k *Kind[T]) prepared(ctx context.Context, by *model.Principal, token string, p store.Patch, create bool) (store.Patch, error) {
	if err := k.MayWrite(by); err != nil {
		return nil, err
	}
	if k.desc.Prepare == nil {
		return p, nil
	}
	clone := make(store.Patch, len(p)+1)
	maps.Copy(clone, p)
	return clone, k.desc.Prepare(ctx, by, token, clone, create)
}

// Admit asks the kind whether n more rows may be made in a change; each is made by Make.
func (k *Kind[T]) Admit(c *store.Change, n int64) error {
	if err := k.info.ceiling.admit(c, k.info, n, k.Table.Count); err != nil {
		return err
	}
	if k.desc.Admit == nil {
		return nil
	}
	return k.desc.Admit(c, n)
}

// Make makes a row of a prepared patch within a change that has been admitted.
func (k *Kind[T]) Make(c *store.Change, p store.Patch) (*T, error) {
	if k.desc.Making != nil {
		if err := k.desc.Making(c, p); err != nil {
			return nil, err
		}
	}
	p, secret, err := k.apart(p)
	if err != nil {
		return nil, err
	}
	row, err := k.Table.Create(c, k.tenantIn(c), p)
	if err != nil {
		return nil, err
	}
	if err := k.guard(c, row); err != nil {
		return nil, err
	}
	if err := k.keep(c, row, secret); err != nil {
		return nil, err
	}
	return row, k.after(c, nil, row)
}

// Expect is a precondition of a write: the row's UpdatedAt, 0 for none.
type Expect model.Micros

func (k *Kind[T]) expected(row *T, want []Expect) error {
	for _, e := range want {
		if at := k.Table.Head(row).UpdatedAt; e != 0 && model.Micros(e) != at {
			return &model.Error{Code: model.CodeConflict, Reason: model.ReasonStaleWrite,
				Message: fmt.Sprintf("conflict: %s %q was changed at %s", k.info.Kind, k.Table.Token(row), at)}
		}
	}
	return nil
}

// Update sets what the patch names: absent keeps, nil clears, a value sets. A patch that names nothing writes nothing.
func (k *Kind[T]) Update(ctx context.Context, by *model.Principal, token string, p store.Patch, expect ...Expect) (*T, error) {
	p, err := k.prepared(ctx, by, token, p, false)
	if err != nil {
		return nil, err
	}
	return k.change(ctx, by, func(c *store.Change) (*T, error) {
		old, err := k.Must(c, k.tenantIn(c), token)
		if err != nil {
			return nil, err
		}
		if err := k.expected(old, expect); err != nil {
			return nil, err
		}
		if err := k.guard(c, old); err != nil {
			return nil, err
		}
		p, secret, err := k.apart(p)
		if err != nil {
			return nil, err
		}
		row, err := k.Table.Update(c, k.tenantIn(c), token, p)
		if err != nil || len(p) == 0 {
			return row, err
		}
		if err := k.keep(c, row, secret); err != nil {
			return nil, err
		}
		return row, k.after(c, old, row)
	})
}

// Rename gives a row another token. The token it has already is no change.
func (k *Kind[T]) Rename(ctx context.Context, by *model.Principal, token, newToken string) (*T, error) {
	if err := k.MayWrite(by); err != nil {
		return nil, err
	}
	return k.change(ctx, by, func(c *store.Change) (*T, error) {
		old, err := k.Must(c, k.tenantIn(c), token)
		if err != nil || token == newToken {
			return old, err
		}
		if err := model.CheckToken("newToken", newToken); err != nil {
			return nil, err
		}
		if k.desc.Rename == nil {
			return nil, model.Invalid("token", "a %s cannot be renamed", k.info.Kind)
		}
		if err := k.guard(c, old); err != nil {
			return nil, err
		}
		if err := k.desc.Rename(c, old); err != nil {
			return nil, err
		}
		row, err := k.Table.Rename(c, k.tenantIn(c), token, newToken)
		if err != nil {
			return nil, err
		}
		return row, k.after(c, old, row)
	})
}

// Must returns the row with the token, NOT_FOUND when there is none.
func (k *Kind[T]) Must(tx store.Tx, tenant int64, token string) (*T, error) {
	row, err := k.Table.Get(tx, tenant, token)
	if err == nil && row == nil {
		return nil, model.NotFound(k.info.Kind, token)
	}
	return row, err
}

// change runs fn as one change, or as a part of the one that ctx belongs to.
func (k *Kind[T]) change(ctx context.Context, by *model.Principal, fn func(c *store.Change) (*T, error)) (row *T, err error) {
	err = k.writer.Mutate(ctx, by, func(c *store.Change) (err error) {
		row, err = fn(c)
		return err
	})
	if err != nil {
		return nil, err
	}
	return row, nil
}

func (k *Kind[T]) tenantIn(c *store.Change) int64 {
	if k.info.Instance {
		return 0
	}
	return c.By.TenantID
}

// after runs what follows from a step in a row's life.
func (k *Kind[T]) after(c *store.Change, old, row *T) error {
	if k.desc.Changed != nil {
		if err := k.desc.Changed(c, old, row); err != nil {
			return err
		}
	}
	return k.views(c, old, row)
}

func (k *Kind[T]) views(c *store.Change, old, row *T) error {
	if k.desc.Views == nil {
		return nil
	}
	return SetViews(c, k.desc.Views(c, old, row)...)
}

// SetViews puts rows of what resolution reads on a change.
func SetViews(c *store.Change, views ...View) error {
	for _, v := range views {
		change := model.ViewChange{Kind: v.Kind, Key: v.Key}
		if v.Body != nil {
			var err error
			if change.Body, err = json.Marshal(v.Body); err != nil {
				return fmt.Errorf("entity: view %s %q: %w", v.Kind, v.Key, err)
			}
		}
		c.View(change)
	}
	return nil
}
