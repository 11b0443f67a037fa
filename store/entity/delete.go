package entity

import (
	"context"

	"weir/model"
	"weir/store"
)

// links are what a kind knows of the others in its catalog.
type links struct {
	referrers []store.Referrer // of other kinds' fields
	parts     []part           // kinds whose rows are parts of rows of this one
	managed   *Info            // the kind of the whole that a row is a part of, where that may be managed
}

// part is a kind whose rows go with the rows that they are parts of.
type part struct {
	Any
	column string // holds the row id of the whole
}

// Delete removes a row and its parts; false says that there was none. It is refused with IN_USE while something else
// refers to the row.
func (k *Kind[T]) Delete(ctx context.Context, by *model.Principal, token string) (deleted bool, err error) {
	if err := k.demand(by, k.info.Delete); err != nil {
		return false, err
	}
	_, err = k.change(ctx, by, func(c *store.Change) (_ *T, err error) {
		deleted, err = k.Remove(c, token)
		return nil, err
	})
	return deleted && err == nil, err
}

// Remove is Delete within a change, by code that has demanded the authority.
func (k *Kind[T]) Remove(c *store.Change, token string) (bool, error) {
	row, err := k.Table.Get(c, k.tenantIn(c), token)
	if err != nil || row == nil {
		return false, err
	}
	if err := k.guard(c, row); err != nil {
		return false, err
	}
	if err := k.remove(c, row); err != nil {
		return false, err
	}
	return true, k.after(c, row, nil)
}

// remove removes a row with its parts, unless it is in use.
func (k *Kind[T]) remove(c *store.Change, row *T) error {
	if err := k.Table.Free(c, row, k.desc.Referrers...); err != nil {
		return err
	}
	if err := k.Table.Free(c, row, k.links.referrers...); err != nil {
		return err
	}
	head := k.Table.Head(row)
	for _, p := range k.links.parts {
		if err := p.removeBelow(c, head.TenantID, p.column, head.ID); err != nil {
			return err
		}
	}
	if k.desc.Removing != nil {
		if err := k.desc.Removing(c, row); err != nil {
			return err
		}
	}
	if err := k.info.releaseTies(c, head, k.Table.Token(row)); err != nil {
		return err
	}
	if k.desc.Versions != nil {
		if err := k.desc.Versions.removeAll(c, row); err != nil {
			return err
		}
	}
	if err := k.forget(c, row); err != nil {
		return err
	}
	return k.Table.Remove(c, row)
}

// removeBelow removes the rows that are parts of a row that goes.
func (e *erased[T]) removeBelow(c *store.Change, tenant int64, column string, whole int64) error {
	rows, err := e.kind().Table.By(c, tenant, column, whole)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if err := e.kind().remove(c, row); err != nil {
			return err
		}
		if err := e.kind().views(c, row, nil); err != nil {
			return err
		}
	}
	return nil
}
