package registry

import (
	"context"
	"maps"

	"weir/model"
	"weir/store"
)

// Kind is the life of one kind of entity: what all kinds share is written here once, and what is particular to one hangs
// on the hooks that its file sets. Every verb is scoped by the tenant of the principal; authorities are the caller's
// matter.
type Kind[T any] struct {
	r     *Registry
	table *store.Table[T]

	// prepare works on a copy of the patch before the transaction: what takes long (a password hash) or is not a value of
	// a column as it was sent. token is the record's, in a create as the patch names it.
	prepare func(ctx context.Context, by *model.Principal, token string, p store.Patch, create bool) error
	// admit runs in the transaction before n rows are made.
	admit func(c *store.Change, n int64) error
	// removing runs in the transaction before a row is removed: what goes with it.
	removing func(c *store.Change, row *T) error
	// changed runs in the transaction after a row was made (old is nil), updated, or removed (row is nil).
	changed func(c *store.Change, old, row *T) error
}

// Name is the kind's name in messages.
func (k *Kind[T]) Name() string { return k.table.Kind() }

// Fields describes the kind's fields.
func (k *Kind[T]) Fields() []store.Field { return k.table.Fields() }

// Values returns a record as the patch of its create would give it: references are row ids, secrets are left out.
func (k *Kind[T]) Values(row *T) store.Patch { return k.table.Values(row) }

// RowID returns the row id of a record.
func (k *Kind[T]) RowID(row *T) int64 { return k.table.RowID(row) }

// Create makes a record of a patch, which names its token.
func (k *Kind[T]) Create(ctx context.Context, by *model.Principal, p store.Patch) (*T, error) {
	token, _ := p["token"].(string)
	p, err := k.prepared(ctx, by, token, p, true)
	if err != nil {
		return nil, err
	}
	var row *T
	err = k.r.mutate(ctx, by, func(c *store.Change) (err error) {
		if err := k.admitted(c, 1); err != nil {
			return err
		}
		row, err = k.create(c, p)
		return err
	})
	return orNil(row, err)
}

// create makes a record within a change that has been admitted.
func (k *Kind[T]) create(c *store.Change, p store.Patch) (*T, error) {
	row, err := k.table.Create(c, c.By.TenantID, p)
	if err != nil {
		return nil, err
	}
	return row, k.after(c, nil, row)
}

// Update sets what the patch names: absent keeps, nil clears, a value sets. A patch that names nothing writes nothing.
func (k *Kind[T]) Update(ctx context.Context, by *model.Principal, token string, p store.Patch) (*T, error) {
	p, err := k.prepared(ctx, by, token, p, false)
	if err != nil {
		return nil, err
	}
	var row *T
	err = k.r.mutate(ctx, by, func(c *store.Change) (err error) {
		old, err := k.must(c, c.By.TenantID, token)
		if err != nil {
			return err
		}
		row, err = k.table.Update(c, c.By.TenantID, token, p)
		if err != nil || len(p) == 0 {
			return err
		}
		return k.after(c, old, row)
	})
	return orNil(row, err)
}

// Delete removes a record and what goes with it; false says that there was none. It is refused with IN_USE while
// something refers to the record.
func (k *Kind[T]) Delete(ctx context.Context, by *model.Principal, token string) (deleted bool, err error) {
	err = k.r.mutate(ctx, by, func(c *store.Change) (err error) {
		deleted, err = k.remove(c, token)
		return err
	})
	return deleted && err == nil, err
}

func (k *Kind[T]) remove(c *store.Change, token string) (bool, error) {
	row, err := k.table.Get(c, c.By.TenantID, token)
	if err != nil || row == nil {
		return false, err
	}
	if k.removing != nil {
		if err := k.removing(c, row); err != nil {
			return false, err
		}
	}
	if deleted, err := k.table.Delete(c, c.By.TenantID, token); err != nil || !deleted {
		return false, err
	}
	return true, k.after(c, row, nil)
}

func (k *Kind[T]) prepared(ctx context.Context, by *model.Principal, token string, p store.Patch, create bool) (store.Patch, error) {
	if err := needTenant(by); err != nil {
		return nil, err
	}
	if k.prepare == nil {
		return p, nil
	}
	clone := make(store.Patch, len(p)+1)
	maps.Copy(clone, p)
	return clone, k.prepare(ctx, by, token, clone, create)
}

func (k *Kind[T]) admitted(c *store.Change, n int64) error {
	if k.admit == nil {
		return nil
	}
	return k.admit(c, n)
}

func (k *Kind[T]) after(c *store.Change, old, row *T) error {
	if k.changed == nil {
		return nil
	}
	return k.changed(c, old, row)
}

func (k *Kind[T]) must(tx store.Tx, tenantID int64, token string) (*T, error) {
	row, err := k.table.Get(tx, tenantID, token)
	if err == nil && row == nil {
		return nil, model.NotFound(k.Name(), token)
	}
	return row, err
}

// ByID returns the records with these ids that exist.
func (k *Kind[T]) ByID(ctx context.Context, by *model.Principal, ids []int64) ([]*T, error) {
	return k.read(ctx, by, func(tx store.Tx) ([]*T, error) { return k.table.ByID(tx, by.TenantID, unique(ids)) })
}

// ByToken returns the records with these tokens that exist.
func (k *Kind[T]) ByToken(ctx context.Context, by *model.Principal, tokens []string) ([]*T, error) {
	return k.read(ctx, by, func(tx store.Tx) ([]*T, error) { return k.table.ByToken(tx, by.TenantID, unique(tokens)) })
}

// By returns the records whose column holds one of the values.
func (k *Kind[T]) By(ctx context.Context, by *model.Principal, column string, values ...any) ([]*T, error) {
	return k.read(ctx, by, func(tx store.Tx) ([]*T, error) { return k.table.By(tx, by.TenantID, column, values...) })
}

// List returns a page of the records that the filters let through, in the kind's order, and how many there are in all.
func (k *Kind[T]) List(ctx context.Context, by *model.Principal, page store.Page, filters ...store.Filter) (rows []*T, total int64, err error) {
	rows, err = k.read(ctx, by, func(tx store.Tx) (rows []*T, err error) {
		rows, total, err = k.table.List(tx, by.TenantID, page, filters...)
		return rows, err
	})
	return rows, total, err
}

func (k *Kind[T]) read(ctx context.Context, by *model.Principal, fn func(store.Tx) ([]*T, error)) (rows []*T, err error) {
	if err := needTenant(by); err != nil {
		return nil, err
	}
	err = k.r.parts.Store.Read(ctx, func(tx store.Tx) (err error) {
		rows, err = fn(tx)
		return err
	})
	return rows, err
}

// unique drops repeated keys: each record is returned once.
func unique[K comparable](keys []K) []K {
	seen := make(map[K]bool, len(keys))
	var out []K
	for _, key := range keys {
		if !seen[key] {
			seen[key] = true
			out = append(out, key)
		}
	}
	return out
}

func orNil[T any](row *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return row, nil
}
