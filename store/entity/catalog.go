package entity

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"weir/model"
	"weir/store"
)

// Any is a kind without its Go type. Rows are *T. It is what the API, site files and the tests over all kinds see.
type Any interface {
	Info() *Info
	// New returns an empty *T.
	New() any
	Create(ctx context.Context, by *model.Principal, p store.Patch) (any, error)
	Update(ctx context.Context, by *model.Principal, token string, p store.Patch, expect ...Expect) (any, error)
	Rename(ctx context.Context, by *model.Principal, token, newToken string) (any, error)
	Delete(ctx context.Context, by *model.Principal, token string) (bool, error)
	ByID(ctx context.Context, by *model.Principal, ids []int64) ([]any, error)
	ByToken(ctx context.Context, by *model.Principal, tokens []string) ([]any, error)
	By(ctx context.Context, by *model.Principal, column string, values ...any) ([]any, error)
	List(ctx context.Context, by *model.Principal, page store.Page, filters ...store.Filter) ([]any, int64, error)
	// Follow returns the rows whose column (id, or a reference) holds one of the values, without demanding an authority:
	// the row that leads there was demanded.
	Follow(ctx context.Context, by *model.Principal, column string, values ...any) ([]any, error)
	// Check returns what is wrong with the patch of a create whatever an instance holds, see Kind.Check.
	Check(p store.Patch, complete bool) []error
	// Advise returns what a caller that made or changed a row by a patch probably did not mean, see Desc.Advise.
	Advise(ctx context.Context, by *model.Principal, row any, p store.Patch) []string
	// Values returns rows as the patches of their creates would give them, references as tokens and secrets left out.
	Values(ctx context.Context, by *model.Principal, rows ...any) ([]store.Patch, error)
	// Secret returns the secret of a row of a kind that has one, see Kind.Reveal.
	Secret(ctx context.Context, row any) (secret string, ok bool, err error)
	// Head, Token and Value read a row.
	Head(row any) *store.Row
	Token(row any) string
	Value(row any, column string) any
	// Sort puts rows into the order of lists, for kinds whose description names no other: newest first, then by token.
	Sort(rows []any)
	// Parts are the kinds whose rows are parts of rows of this one.
	Parts() []Any
	// Versions is nil where rows have none.
	Versions() AnyVersions
	// Counter counts what the rows and their versions take.
	store.Counter

	link(o *Info, kind Any)
	guarded(whole *Info)
	removeBelow(c *store.Change, tenant int64, column string, whole int64) error
	stampsBelow(tx store.Tx, tenant int64, column string, whole int64) (string, error)
}

// Entry is a *Kind of any type.
type Entry interface{ Any() Any }

// Catalog is the list of kinds that know each other: what refers to what, and what is a part of what.
type Catalog struct{ kinds []Any }

// NewCatalog links the kinds. Those that fields refer to come before those that have the fields. A mistake in the
// descriptions is one of the program: it panics.
func NewCatalog(kinds ...Entry) *Catalog {
	c := &Catalog{}
	c.Join(kinds...)
	return c
}

// Join adds kinds of another package to the catalog, after those that it has. It is called before the catalog is used.
func (c *Catalog) Join(kinds ...Entry) {
	for _, entry := range kinds {
		c.add(entry.Any())
	}
	c.checkOrder()
}

// Union returns the catalog of the kinds of all, in their order: fields refer across them. Each of them stays as it is.
func Union(all ...*Catalog) *Catalog {
	c := &Catalog{}
	c.Include(all...)
	return c
}

// Include adds the kinds of other catalogs, after those that it has. It is called before the catalog is used.
func (c *Catalog) Include(all ...*Catalog) {
	for _, other := range all {
		for _, kind := range other.kinds {
			c.add(kind)
		}
	}
	c.checkOrder()
}

func (c *Catalog) add(kind Any) {
	info := kind.Info()
	if slices.ContainsFunc(c.kinds, func(o Any) bool {
		return o.Info().Table == info.Table || o.Info().Type == info.Type || o.Info().Plural == info.Plural
	}) {
		panic(fmt.Sprintf("entity: %s is described twice", info.Kind))
	}
	c.kinds = append(c.kinds, kind)
	for _, o := range c.kinds {
		o.link(info, kind)
		kind.guarded(o.Info())
	}
}

// checkOrder makes sure that what is referred to comes first. Tables of other catalogs are not known here.
func (c *Catalog) checkOrder() {
	for i, kind := range c.kinds {
		for _, f := range kind.Info().Refs() {
			if j := slices.Index(c.kinds, c.Of(f.Ref)); j > i {
				panic(fmt.Sprintf("entity: %s comes before %s, which it refers to", kind.Info().Kind, c.kinds[j].Info().Kind))
			}
		}
	}
}

// All returns the kinds; those that are referred to come first.
func (c *Catalog) All() []Any { return slices.Clone(c.kinds) }

// Area returns the kinds that an API serves.
func (c *Catalog) Area(name string) []Any {
	return slices.DeleteFunc(c.All(), func(k Any) bool { return k.Info().Area != name })
}

// Of returns the kind whose rows a table holds, nil for none.
func (c *Catalog) Of(table string) Any {
	i := slices.IndexFunc(c.kinds, func(k Any) bool { return k.Info().Table == table })
	if i < 0 {
		return nil
	}
	return c.kinds[i]
}

// link notes how another kind refers to this one.
func (l *links) link(self *Info, o *Info, kind Any) {
	for _, f := range o.Refs() {
		r := store.Referrer{Kind: o.Kind, Table: o.Table, Column: f.Column}
		known := slices.Contains(l.referrers, r) || slices.ContainsFunc(l.parts, func(p part) bool { return p.Info() == o && p.column == f.Column })
		switch {
		case f.Ref != self.Table || known:
		case f.Parent:
			l.parts = append(l.parts, part{kind, f.Column})
		default:
			l.referrers = append(l.referrers, r)
		}
	}
}

// Any implements Entry.
func (k *Kind[T]) Any() Any { return k.any }

// erased is a kind as Any.
type erased[T any] Kind[T]

func (e *erased[T]) kind() *Kind[T] { return (*Kind[T])(e) }

func (e *erased[T]) Info() *Info { return e.kind().info }

func (e *erased[T]) New() any { return new(T) }

func (e *erased[T]) Check(p store.Patch, complete bool) []error { return e.kind().Check(p, complete) }

func (e *erased[T]) Create(ctx context.Context, by *model.Principal, p store.Patch) (any, error) {
	return one(e.kind().Create(ctx, by, p))
}

func (e *erased[T]) Update(ctx context.Context, by *model.Principal, token string, p store.Patch, expect ...Expect) (any, error) {
	return one(e.kind().Update(ctx, by, token, p, expect...))
}

func (e *erased[T]) Rename(ctx context.Context, by *model.Principal, token, newToken string) (any, error) {
	return one(e.kind().Rename(ctx, by, token, newToken))
}

func (e *erased[T]) Delete(ctx context.Context, by *model.Principal, token string) (bool, error) {
	return e.kind().Delete(ctx, by, token)
}

func (e *erased[T]) ByID(ctx context.Context, by *model.Principal, ids []int64) ([]any, error) {
	return all(e.kind().ByID(ctx, by, ids))
}

func (e *erased[T]) ByToken(ctx context.Context, by *model.Principal, tokens []string) ([]any, error) {
	return all(e.kind().ByToken(ctx, by, tokens))
}

func (e *erased[T]) By(ctx context.Context, by *model.Principal, column string, values ...any) ([]any, error) {
	return all(e.kind().By(ctx, by, column, values...))
}

func (e *erased[T]) List(ctx context.Context, by *model.Principal, page store.Page, filters ...store.Filter) ([]any, int64, error) {
	rows, total, err := e.kind().List(ctx, by, page, filters...)
	some, err := all(rows, err)
	return some, total, err
}

func (e *erased[T]) Follow(ctx context.Context, by *model.Principal, column string, values ...any) ([]any, error) {
	return all(e.kind().Rows.By(ctx, by, column, values...))
}

func (e *erased[T]) Values(ctx context.Context, by *model.Principal, rows ...any) ([]store.Patch, error) {
	patches := make([]store.Patch, len(rows))
	for i, row := range rows {
		whole, err := e.kind().complete(ctx, by, row.(*T))
		if err != nil {
			return nil, err
		}
		if whole == nil {
			whole = row.(*T) // it has been removed since
		}
		patches[i] = e.kind().Values(whole)
	}
	err := store.Read(ctx, e.kind().Rows.store, func(tx store.Tx) error { return e.kind().nameRefs(tx, patches) })
	return patches, err
}

func (e *erased[T]) Advise(ctx context.Context, by *model.Principal, row any, p store.Patch) []string {
	changed, ok := row.(*T)
	if !ok || e.kind().desc.Advise == nil {
		return nil
	}
	return e.kind().desc.Advise(ctx, by, changed, p)
}

func (e *erased[T]) Secret(ctx context.Context, row any) (secret string, ok bool, err error) {
	err = store.Read(ctx, e.kind().Rows.store, func(tx store.Tx) error {
		secret, ok, err = e.kind().Reveal(tx, row.(*T))
		return err
	})
	return secret, ok, err
}

func (e *erased[T]) Head(row any) *store.Row { return e.kind().Table.Head(row.(*T)) }

func (e *erased[T]) Token(row any) string { return e.kind().Table.Token(row.(*T)) }

func (e *erased[T]) Value(row any, column string) any { return e.kind().Table.Value(row.(*T), column) }

func (e *erased[T]) Sort(rows []any) {
	slices.SortFunc(rows, func(a, b any) int {
		return cmp.Or(cmp.Compare(e.Head(b).CreatedAt, e.Head(a).CreatedAt), cmp.Compare(e.Token(a), e.Token(b)))
	})
}

func (e *erased[T]) Parts() []Any {
	parts := make([]Any, len(e.links.parts))
	for i, p := range e.links.parts {
		parts[i] = p.Any
	}
	return parts
}

func (e *erased[T]) Versions() AnyVersions {
	if e.kind().desc.Versions == nil {
		return nil
	}
	return (*erasedVersions[T])(e)
}

// CountBytes implements store.Counter.
func (e *erased[T]) CountBytes(tx store.Tx, sums map[int64]int64) error {
	if err := e.kind().Table.CountBytes(tx, sums); err != nil || e.kind().desc.Versions == nil {
		return err
	}
	return e.kind().desc.Versions.CountBytes(tx, sums)
}

// CountBytes implements store.Counter for all kinds of the catalog.
func (c *Catalog) CountBytes(tx store.Tx, sums map[int64]int64) error {
	for _, k := range c.kinds {
		if err := k.CountBytes(tx, sums); err != nil {
			return err
		}
	}
	return nil
}

// erasedVersions are the verbs of a kind with versions.
type erasedVersions[T any] Kind[T]

func (e *erasedVersions[T]) kind() *Kind[T] { return (*Kind[T])(e) }

func (e *erasedVersions[T]) Publish(ctx context.Context, by *model.Principal, token string, label, description *string, expect ...Expect) (*Version, error) {
	return e.kind().Publish(ctx, by, token, label, description, expect...)
}

func (e *erasedVersions[T]) Rollback(ctx context.Context, by *model.Principal, token string, version int64, expect ...Expect) (any, error) {
	return one(e.kind().Rollback(ctx, by, token, version, expect...))
}

func (e *erasedVersions[T]) History(ctx context.Context, by *model.Principal, token string, limit, offset int64) ([]*Version, error) {
	return e.kind().History(ctx, by, token, limit, offset)
}

func (e *erasedVersions[T]) Unpublished(ctx context.Context, by *model.Principal, token string) (differs bool, next int64, err error) {
	return e.kind().Unpublished(ctx, by, token)
}

// guarded notes that rows are parts of rows that may be managed.
func (e *erased[T]) guarded(whole *Info) {
	k := e.kind()
	if parent := k.info.Parent; parent != nil && parent.Ref == whole.Table && slices.ContainsFunc(whole.Fields, isManagedBy) {
		k.links.managed = whole
	}
}

func (e *erased[T]) link(o *Info, kind Any) { e.kind().links.link(e.kind().info, o, kind) }

// nameRefs replaces row ids by tokens.
func (k *Kind[T]) nameRefs(tx store.Tx, patches []store.Patch) error {
	for _, f := range k.info.Refs() {
		var ids []int64
		for _, p := range patches {
			if id, ok := p[f.Name].(int64); ok {
				ids = append(ids, id)
			}
		}
		tokens, err := store.Tokens(tx, f.Ref, unique(ids))
		if err != nil {
			return err
		}
		for _, p := range patches {
			if id, ok := p[f.Name].(int64); ok {
				p[f.Name] = tokens[id]
			}
		}
	}
	return nil
}

// one keeps a nil row from becoming a value that is not nil.
func one[T any](row *T, err error) (any, error) {
	if row == nil {
		return nil, err
	}
	return row, err
}

func all[T any](rows []*T, err error) ([]any, error) {
	if err != nil {
		return nil, err
	}
	some := make([]any, len(rows))
	for i, row := range rows {
		some[i] = row
	}
	return some, nil
}
