package store

import (
	"reflect"
	"slices"

	"weir/model"
)

// Row holds the fields that every entity has. It is embedded in the entity's struct and kept in the columns id,
// tenant_id (not where the kind belongs to the instance), created_at and updated_at.
type Row struct {
	ID        int64
	TenantID  int64 // 0 for kinds of the instance
	CreatedAt model.Micros
	UpdatedAt model.Micros
}

// Desc describes a kind of entity; the fields are in the tags of T, see Field.
type Desc[T any] struct {
	Kind     string // in messages: "device type"
	Name     string // of the table
	Instance bool   // the kind belongs to the instance, there is no tenant_id; pass tenant 0
	// Uncounted leaves the rows out of what the rows of their tenant may take: operators make them.
	Uncounted bool
	Order     string // of lists; default: created_at DESC, token
	// Check validates a row before it is written, where the rules concern several fields. changed names the columns that
	// are written. An error stops the change.
	Check func(tx Tx, row *T, changed Changed) error
	// Stored returns the number of rows that a tenant has, where it is stored, so that no list counts them all; nil otherwise.
	Stored func(tx Tx, tenantID int64) (int64, error)
	// Referrers are the kinds that hold a row of this one: while one exists, Delete is refused.
	Referrers []Referrer
	// Label returns the journal's name of a row; default: the token, else the row id. It must not contain a secret.
	Label func(row *T) string
}

// Referrer is a column that holds row ids of the described kind.
type Referrer struct {
	Kind   string // in messages: "device"
	Table  string
	Column string
}

// Changed is the set of columns that a write sets. New is true for a create, which sets them all.
type Changed struct {
	New     bool
	columns []string
}

// Has reports whether the column is written.
func (c Changed) Has(column string) bool { return c.New || slices.Contains(c.columns, column) }

// Table reads and writes one kind of entity. All reads and writes are scoped by tenant; every write leaves a row in the
// journal. Refusals are *model.Error. It has no state and is safe for concurrent use.
//
// What it does is in untyped, once for all kinds. It is a field and not embedded: every package that names a Table compiles its
// whole method set for every kind, and the promoted methods of an embedded struct would be the larger part of it.
type Table[T any] struct{ rows *untyped }

// NewTable makes the table of a description. It panics on a mistake in the description.
func NewTable[T any](d Desc[T]) *Table[T] {
	t := &untyped{kind: d.Kind, name: d.Name, instance: d.Instance, uncounted: d.Uncounted, stored: d.Stored, referrers: d.Referrers, newRow: func() any { return new(T) }}
	if d.Check != nil {
		t.validate = func(tx Tx, row any, changed Changed) error { return d.Check(tx, row.(*T), changed) }
	}
	if d.Label != nil {
		t.labelOf = func(row any) string { return d.Label(row.(*T)) }
	}
	t.describe(reflect.TypeFor[T](), d.Order)
	return &Table[T]{t}
}

// Kind is the kind's name in messages.
func (t *Table[T]) Kind() string { return t.rows.kind }

// Name is the table's name in the database and in the journal.
func (t *Table[T]) Name() string { return t.rows.name }

// Fields describes the fields, in the order of the struct. The caller may change the result.
func (t *Table[T]) Fields() []Field { return t.rows.shownFields() }

// Count returns the number of rows that match the filters.
func (t *Table[T]) Count(tx Tx, tenantID int64, filters ...Filter) (int64, error) {
	return t.rows.countOf(tx, tenantID, filters)
}

// CountBy returns the number of rows for each of the values in a column; values without rows are left out.
func (t *Table[T]) CountBy(tx Tx, tenantID int64, column string, values ...int64) (map[int64]int64, error) {
	return t.rows.countBy(tx, tenantID, column, values)
}

// Distinct returns the distinct strings of a column, sorted.
func (t *Table[T]) Distinct(tx Tx, tenantID int64, column string) ([]string, error) {
	return t.rows.distinct(tx, tenantID, column)
}

// CountBytes implements Counter.
func (t *Table[T]) CountBytes(tx Tx, sums map[int64]int64) error { return t.rows.countBytes(tx, sums) }

// Head returns the Row that is embedded in a row.
func (t *Table[T]) Head(row *T) *Row { return t.rows.head(row) }

// Token returns the token of a row, "" for kinds without one.
func (t *Table[T]) Token(row *T) string { return t.rows.tokenOf(row) }

// Value returns the value of a column of a row, nil for null. It panics for a column that the kind does not have.
func (t *Table[T]) Value(row *T, column string) any { return t.rows.value(row, column) }

// Values returns a row as a patch with every field of the API by its name: nil for null, the row id for a reference, and
// without secrets.
func (t *Table[T]) Values(row *T) Patch { return t.rows.values(row) }

// Create inserts a row with the values of a patch. A field that the patch does not name becomes null or the Go zero
// value; a required one is refused.
func (t *Table[T]) Create(c *Change, tenantID int64, p Patch) (*T, error) {
	row := new(T)
	if err := t.rows.create(c, tenantID, row, p); err != nil {
		return nil, err
	}
	return row, nil
}

// Check returns what is wrong with the values of a create whatever is stored, in the order of the fields, and the row that
// they make. A required field that is missing is one of them where the patch is complete; secrets may be given elsewhere.
func (t *Table[T]) Check(p Patch, complete bool) (row *T, refused []error) {
	row = new(T)
	return row, t.rows.check(row, p, complete)
}

// Insert inserts a row that code has filled. It sets ID, CreatedAt and UpdatedAt.
func (t *Table[T]) Insert(c *Change, row *T) error { return t.rows.insert(c, row) }

// Update sets the fields of a patch: absent keeps, nil clears, a value sets. It writes only these columns, so that two
// writers of different fields do not undo each other. An empty patch writes nothing.
func (t *Table[T]) Update(c *Change, tenantID int64, token string, p Patch) (*T, error) {
	return typed[T](t.rows.update(c, tenantID, token, p))
}

// Save writes the named columns of a row that code has changed since it was read in this transaction. Without columns
// it writes nothing.
func (t *Table[T]) Save(c *Change, row *T, columns ...string) error {
	return t.rows.save(c, row, columns...)
}

// Rename changes the token of a row. Its present token is no change.
func (t *Table[T]) Rename(c *Change, tenantID int64, token, newToken string) (*T, error) {
	return typed[T](t.rows.rename(c, tenantID, token, newToken))
}

// Delete removes a row; false when there was none. It is refused with IN_USE while a referrer holds the row.
func (t *Table[T]) Delete(c *Change, tenantID int64, token string) (bool, error) {
	return t.rows.delete(c, tenantID, token)
}

// Free returns IN_USE when one of the referrers holds the row.
func (t *Table[T]) Free(tx Tx, row *T, referrers ...Referrer) error {
	return t.rows.free(tx, row, referrers...)
}

// Remove removes a row that was read in this transaction, without a check of its referrers.
func (t *Table[T]) Remove(c *Change, row *T) error { return t.rows.remove(c, row) }

// Get returns the row with the token, nil when there is none.
func (t *Table[T]) Get(tx Tx, tenantID int64, token string) (*T, error) {
	return typed[T](t.rows.get(tx, tenantID, token))
}

// GetByID returns the row with the id, nil when there is none in this tenant.
func (t *Table[T]) GetByID(tx Tx, tenantID, id int64) (*T, error) {
	return t.First(tx, tenantID, Eq("id", id))
}

// ByID returns the rows with these ids that exist, in no promised order.
func (t *Table[T]) ByID(tx Tx, tenantID int64, ids []int64) ([]*T, error) {
	var r read[T]
	return r.done(t.rows.in(tx, tenantID, "id", len(ids), func(i int) any { return ids[i] }, r.next))
}

// ByToken returns the rows with these tokens that exist, in no promised order.
func (t *Table[T]) ByToken(tx Tx, tenantID int64, tokens []string) ([]*T, error) {
	var r read[T]
	return r.done(t.rows.byToken(tx, tenantID, tokens, r.next))
}

// By returns all rows with one of the values in the column, ordered by id within a slice of values.
func (t *Table[T]) By(tx Tx, tenantID int64, column string, values ...any) ([]*T, error) {
	var r read[T]
	return r.done(t.rows.in(tx, tenantID, column, len(values), func(i int) any { return values[i] }, r.next))
}

// First returns the first row by id that matches the filters, nil when there is none.
func (t *Table[T]) First(tx Tx, tenantID int64, filters ...Filter) (*T, error) {
	return typed[T](t.rows.first(tx, tenantID, filters...))
}

// Select returns all rows that match the filters in the given order of columns. It is for code that knows a bound of
// their number; List returns pages.
func (t *Table[T]) Select(tx Tx, tenantID int64, order string, filters ...Filter) ([]*T, error) {
	var r read[T]
	return r.done(t.rows.selected(tx, tenantID, order, filters, r.next))
}

// List returns a page of the rows that match the filters, in the kind's order, and the number of all matching rows, which are
// counted where the page does not show the end. Large fields are "" in them.
func (t *Table[T]) List(tx Tx, tenantID int64, page Page, filters ...Filter) (rows []*T, total int64, err error) {
	var r read[T]
	total, err = t.rows.list(tx, tenantID, page, filters, r.next)
	rows, err = r.done(err)
	return rows, total, err
}

// typed gives a row its type again.
func typed[T any](row any, err error) (*T, error) {
	if row == nil {
		return nil, err
	}
	return row.(*T), err
}

// read collects the rows of a query.
type read[T any] struct{ rows []*T }

// next makes the row that is read next.
func (r *read[T]) next() any {
	row := new(T)
	r.rows = append(r.rows, row)
	return row
}

func (r *read[T]) done(err error) ([]*T, error) {
	if err != nil {
		return nil, err
	}
	return r.rows, nil
}
