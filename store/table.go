package store

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

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
type Table[T any] struct {
	desc    Desc[T]
	fields  []*Field
	byName  map[string]*Field
	byCol   map[string]*Field
	token   *Field // nil for kinds without one
	row     []int  // index of the embedded Row
	columns string // of a read
	listed  string // of a list: large fields are empty
	insert  string
	order   string
}

// NewTable makes the table of a description. It panics on a mistake in the description.
func NewTable[T any](d Desc[T]) *Table[T] {
	entity := reflect.TypeFor[T]()
	t := &Table[T]{desc: d, fields: fieldsOf(entity), byName: map[string]*Field{}, byCol: map[string]*Field{}}
	if d.Kind == "" || d.Name == "" {
		panic(fmt.Sprintf("store: the table of %s needs a kind and a name", entity))
	}
	sf, _ := entity.FieldByName("Row")
	t.row = sf.Index
	columns := []string{"id", "created_at", "updated_at"}
	if !d.Instance {
		columns = append(columns, "tenant_id")
	}
	for _, f := range t.fields {
		if f.Token {
			t.token = f
		}
		if f.Name != "" {
			t.byName[f.Name] = f
		}
		t.byCol[f.Column] = f
		columns = append(columns, f.Column)
	}
	t.columns = strings.Join(columns, ", ")
	t.listed = t.columns
	for _, f := range t.fields {
		if f.Large {
			t.listed = strings.Replace(t.listed, ", "+f.Column, ", '' AS "+f.Column, 1)
		}
	}
	t.insert = "INSERT INTO " + d.Name + " (" + strings.Join(columns[1:], ", ") + ") VALUES (?" +
		strings.Repeat(", ?", len(columns)-2) + ")"
	t.order = d.Order
	if t.order == "" {
		t.order = "created_at DESC, id"
		if t.token != nil {
			t.order = "created_at DESC, " + t.token.Column
		}
	}
	return t
}

// Kind is the kind's name in messages.
func (t *Table[T]) Kind() string { return t.desc.Kind }

// Name is the table's name in the database and in the journal.
func (t *Table[T]) Name() string { return t.desc.Name }

// Fields describes the fields, in the order of the struct. The caller may change the result.
func (t *Table[T]) Fields() []Field {
	fs := make([]Field, len(t.fields))
	for i, f := range t.fields {
		fs[i] = *f
	}
	return fs
}

// Head returns the Row that is embedded in a row.
func (t *Table[T]) Head(row *T) *Row { return t.head(row) }

// Token returns the token of a row, "" for kinds without one.
func (t *Table[T]) Token(row *T) string {
	if t.token == nil {
		return ""
	}
	return t.tokenOf(row)
}

// Value returns the value of a column of a row, nil for null. It panics for a column that the kind does not have.
func (t *Table[T]) Value(row *T, column string) any {
	f := t.byCol[column]
	v := reflect.ValueOf(row).Elem().FieldByIndex(f.index)
	if f.null {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	return v.Interface()
}

// Values returns a row as a patch with every field of the API by its name: nil for null, the row id for a reference, and
// without secrets.
func (t *Table[T]) Values(row *T) Patch {
	v := reflect.ValueOf(row).Elem()
	p := make(Patch, len(t.byName))
	for name, f := range t.byName {
		if !f.Secret {
			p[name] = f.get(v.FieldByIndex(f.index))
		}
	}
	return p
}

// Create inserts a row with the values of a patch. A field that the patch does not name becomes null or the Go zero
// value; a required one is refused.
func (t *Table[T]) Create(c *Change, tenantID int64, p Patch) (*T, error) {
	row := new(T)
	v := reflect.ValueOf(row).Elem()
	if err := t.known(p); err != nil {
		return nil, err
	}
	for _, f := range t.fields {
		value, named := p[f.Name]
		switch {
		case f.Name == "":
		case named && !(value == nil && !f.Required):
			if err := f.set(c, tenantID, v, value); err != nil {
				return nil, err
			}
		case f.Required:
			return nil, model.Invalid(f.Label, "is required")
		}
	}
	t.head(row).TenantID = tenantID
	if err := t.Insert(c, row); err != nil {
		return nil, err
	}
	return row, nil
}

// Check returns what is wrong with the values of a create whatever is stored, in the order of the fields, and the row that
// they make. A required field that is missing is one of them where the patch is complete; secrets may be given elsewhere.
func (t *Table[T]) Check(p Patch, complete bool) (row *T, refused []error) {
	row = new(T)
	if err := t.known(p); err != nil {
		return row, []error{err}
	}
	v := reflect.ValueOf(row).Elem()
	for _, f := range t.fields {
		value, named := p[f.Name]
		var err error
		switch {
		case f.Name == "":
		case named && !(value == nil && !f.Required):
			err = f.check(v, value)
		case f.Required && complete && !f.Secret:
			err = model.Invalid(f.Label, "is required")
		}
		if err != nil {
			refused = append(refused, err)
		}
	}
	return row, refused
}

// Insert inserts a row that code has filled. It sets ID, CreatedAt and UpdatedAt.
func (t *Table[T]) Insert(c *Change, row *T) error {
	h := t.head(row)
	h.CreatedAt, h.UpdatedAt = c.At, c.At
	if t.token != nil {
		if err := t.token.checkToken(t.token.Label, t.tokenOf(row)); err != nil {
			return err
		}
	}
	if t.desc.Check != nil {
		if err := t.desc.Check(c, row, Changed{New: true}); err != nil {
			return err
		}
	}
	args := []any{int64(h.CreatedAt), int64(h.UpdatedAt)}
	if !t.desc.Instance {
		args = append(args, h.TenantID)
	}
	args = t.args(args, row, t.fields)
	size := SizeOf(args...)
	if err := cmp.Or(c.Admit(t.account(h), size), c.Wrote(size)); err != nil {
		return err
	}
	id, err := c.Insert(t.insert, args...)
	if err != nil {
		return t.refused(err, row)
	}
	h.ID = id
	return errors.Join(c.Grown(t.account(h), size), t.audit(c, AuditCreate, row))
}

// Update sets the fields of a patch: absent keeps, nil clears, a value sets. It writes only these columns, so that two
// writers of different fields do not undo each other. An empty patch writes nothing.
func (t *Table[T]) Update(c *Change, tenantID int64, token string, p Patch) (*T, error) {
	row, err := t.must(c, tenantID, token)
	if err != nil {
		return nil, err
	}
	if err := t.known(p); err != nil {
		return nil, err
	}
	v := reflect.ValueOf(row).Elem()
	var named []*Field
	for _, f := range t.fields {
		value, ok := p[f.Name]
		if f.Name == "" || !ok {
			continue
		}
		if f.Immutable {
			return nil, model.Invalid(f.Label, "cannot be changed")
		}
		if err := f.set(c, tenantID, v, value); err != nil {
			return nil, err
		}
		named = append(named, f)
	}
	if len(named) == 0 {
		return row, nil
	}
	return row, t.write(c, row, named)
}

// Save writes the named columns of a row that code has changed since it was read in this transaction. Without columns
// it writes nothing.
func (t *Table[T]) Save(c *Change, row *T, columns ...string) error {
	var named []*Field
	for _, column := range columns {
		f, ok := t.byCol[column]
		if !ok {
			return fmt.Errorf("store: %s has no column %q", t.desc.Name, column)
		}
		named = append(named, f)
	}
	if len(named) == 0 {
		return nil
	}
	return t.write(c, row, named)
}

// Rename changes the token of a row. Its present token is no change.
func (t *Table[T]) Rename(c *Change, tenantID int64, token, newToken string) (*T, error) {
	row, err := t.must(c, tenantID, token)
	if err != nil || token == newToken {
		return row, err
	}
	if err := t.token.checkToken("newToken", newToken); err != nil {
		return nil, err
	}
	reflect.ValueOf(row).Elem().FieldByIndex(t.token.index).SetString(newToken)
	return row, t.write(c, row, []*Field{t.token})
}

// Delete removes a row; false when there was none. It is refused with IN_USE while a referrer holds the row.
func (t *Table[T]) Delete(c *Change, tenantID int64, token string) (bool, error) {
	row, err := t.Get(c, tenantID, token)
	if err != nil || row == nil {
		return false, err
	}
	if err := t.Free(c, row, t.desc.Referrers...); err != nil {
		return false, err
	}
	return true, t.Remove(c, row)
}

// Free returns IN_USE when one of the referrers holds the row.
func (t *Table[T]) Free(tx Tx, row *T, referrers ...Referrer) error {
	for _, r := range referrers {
		var held bool
		if err := tx.QueryRow(`SELECT EXISTS (SELECT 1 FROM `+r.Table+` WHERE `+r.Column+` = ?)`, t.head(row).ID).Scan(&held); err != nil {
			return err
		}
		if held {
			return model.InUse(t.desc.Kind, t.label(row), r.Kind)
		}
	}
	return nil
}

// Remove removes a row that was read in this transaction, without a check of its referrers.
func (t *Table[T]) Remove(c *Change, row *T) error {
	h := t.head(row)
	var size int64
	err := c.QueryRow(`DELETE FROM `+t.desc.Name+` WHERE id = ? RETURNING `+RowSize(t.stringColumns(t.fields)...), h.ID).Scan(&size)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return model.NotFound(t.desc.Kind, t.label(row))
	case err != nil:
		return err
	}
	return errors.Join(c.Grown(t.account(h), -size), t.audit(c, AuditDelete, row))
}

// write updates the named columns of one row.
func (t *Table[T]) write(c *Change, row *T, named []*Field) error {
	changed := Changed{columns: make([]string, len(named))}
	for i, f := range named {
		changed.columns[i] = f.Column
	}
	if t.desc.Check != nil {
		if err := t.desc.Check(c, row, changed); err != nil {
			return err
		}
	}
	h := t.head(row)
	updated := max(c.At, h.UpdatedAt+1) // strictly later, whatever the wall clock does: preconditions compare it
	args := t.args([]any{int64(updated)}, row, named)
	growth, err := t.growth(c, h.ID, named, args)
	if err != nil {
		return err
	}
	if err := cmp.Or(c.Admit(t.account(h), growth), c.Wrote(SizeOf(args...))); err != nil {
		return err
	}
	n, err := c.Exec(`UPDATE `+t.desc.Name+` SET updated_at = ?, `+strings.Join(changed.columns, " = ?, ")+
		` = ? WHERE id = ?`, append(args, h.ID)...)
	if err != nil {
		return t.refused(err, row)
	}
	if n == 0 {
		return model.NotFound(t.desc.Kind, t.label(row))
	}
	h.UpdatedAt = updated
	return errors.Join(c.Grown(t.account(h), growth), t.audit(c, AuditUpdate, row))
}

// account is the tenant whose bytes a row counts among, 0 for none.
func (t *Table[T]) account(h *Row) int64 {
	if t.desc.Instance || t.desc.Uncounted {
		return 0
	}
	return h.TenantID
}

// growth is by how many bytes a row grows when the named fields are set to args.
func (t *Table[T]) growth(tx Tx, id int64, named []*Field, args []any) (int64, error) {
	columns := t.stringColumns(named)
	if len(columns) == 0 {
		return 0, nil
	}
	var before int64
	err := tx.QueryRow(`SELECT `+textSize(columns)+` FROM `+t.desc.Name+` WHERE id = ?`, id).Scan(&before)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil // the update finds that out
	}
	return textBytes(args) - before, err
}

// stringColumns are the columns of fields that hold strings.
func (t *Table[T]) stringColumns(fields []*Field) (columns []string) {
	for _, f := range fields {
		if k := f.typ.Kind(); k == reflect.String || k == reflect.Slice {
			columns = append(columns, f.Column)
		}
	}
	return columns
}

// CountBytes implements Counter.
func (t *Table[T]) CountBytes(tx Tx, sums map[int64]int64) error {
	if t.desc.Instance || t.desc.Uncounted {
		return nil
	}
	return CountRows(tx, sums, t.desc.Name, t.stringColumns(t.fields)...)
}

func (t *Table[T]) must(tx Tx, tenantID int64, token string) (*T, error) {
	row, err := t.Get(tx, tenantID, token)
	if err == nil && row == nil {
		return nil, model.NotFound(t.desc.Kind, token)
	}
	return row, err
}

// known refuses a patch with an unknown field.
func (t *Table[T]) known(p Patch) error {
	var unknown []string
	for name := range p {
		if t.byName[name] == nil {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return model.Invalid(slices.Min(unknown), "is no field of a %s", t.desc.Kind)
}

// refused turns the error of a unique index into a refusal that names the field and the value.
func (t *Table[T]) refused(err error, row *T) error {
	u, ok := errors.AsType[*UniqueError](err)
	if !ok || u.Table != t.desc.Name {
		return err
	}
	for _, column := range slices.Backward(u.Columns) {
		if f := t.byCol[column]; f != nil {
			return model.NotUnique(t.desc.Kind, f.Label, t.shown(f, row))
		}
	}
	return err
}

// shown returns a value for a message, without secrets.
func (t *Table[T]) shown(f *Field, row *T) string {
	v := reflect.ValueOf(row).Elem().FieldByIndex(f.index)
	if f.null && !v.IsNil() {
		v = v.Elem()
	}
	if f.Secret || v.Kind() == reflect.Slice || v.Kind() == reflect.Pointer {
		return "…"
	}
	return fmt.Sprint(v.Interface())
}

func (t *Table[T]) audit(c *Change, operation string, row *T) error {
	h := t.head(row)
	return c.Audit(AuditEvent{TenantID: h.TenantID, Category: AuditMutation, Operation: operation,
		Table: t.desc.Name, Key: strconv.FormatInt(h.ID, 10), Label: t.label(row), Rows: 1})
}

func (t *Table[T]) label(row *T) string {
	switch {
	case t.desc.Label != nil:
		return t.desc.Label(row)
	case t.token != nil:
		return t.tokenOf(row)
	}
	return strconv.FormatInt(t.head(row).ID, 10)
}

func (t *Table[T]) head(row *T) *Row {
	return reflect.ValueOf(row).Elem().FieldByIndex(t.row).Addr().Interface().(*Row)
}

func (t *Table[T]) tokenOf(row *T) string {
	return reflect.ValueOf(row).Elem().FieldByIndex(t.token.index).String()
}

// args appends the values of fields as a statement takes them.
func (t *Table[T]) args(to []any, row *T, fields []*Field) []any {
	v := reflect.ValueOf(row).Elem()
	for _, f := range fields {
		value := v.FieldByIndex(f.index)
		if f.List {
			to = append(to, listText(value.Interface().([]string)))
			continue
		}
		to = append(to, value.Interface())
	}
	return to
}
