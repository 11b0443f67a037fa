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

// untyped is a Table without the Go type of its rows: a row is a *T. One copy of the code serves all kinds; a copy for each
// would be a megabyte of the program.
type untyped struct {
	kind, name          string
	instance, uncounted bool
	stored              func(tx Tx, tenantID int64) (int64, error)
	validate            func(tx Tx, row any, changed Changed) error // nil: nothing more
	labelOf             func(row any) string                        // nil: the token, else the row id
	referrers           []Referrer
	newRow              func() any

	fields    []*Field
	byName    map[string]*Field
	byCol     map[string]*Field
	token     *Field // nil for kinds without one
	embedded  []int  // index of the embedded Row
	columns   string // of a read
	listed    string // of a list: large fields are empty
	insertion string
	order     string
}

// describe reads the fields of the struct T off its tags and prepares the statements.
func (t *untyped) describe(entity reflect.Type, order string) {
	t.fields, t.byName, t.byCol = fieldsOf(entity), map[string]*Field{}, map[string]*Field{}
	if t.kind == "" || t.name == "" {
		panic(fmt.Sprintf("store: the table of %s needs a kind and a name", entity))
	}
	sf, _ := entity.FieldByName("Row")
	t.embedded = sf.Index
	columns := []string{"id", "created_at", "updated_at"}
	if !t.instance {
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
	t.insertion = "INSERT INTO " + t.name + " (" + strings.Join(columns[1:], ", ") + ") VALUES (?" +
		strings.Repeat(", ?", len(columns)-2) + ")"
	t.order = order
	if t.order == "" {
		t.order = "created_at DESC, id"
		if t.token != nil {
			t.order = "created_at DESC, " + t.token.Column
		}
	}
}

// valueOf is the struct that a row points at.
func valueOf(row any) reflect.Value { return reflect.ValueOf(row).Elem() }

func (t *untyped) shownFields() []Field {
	fs := make([]Field, len(t.fields))
	for i, f := range t.fields {
		fs[i] = *f
	}
	return fs
}

func (t *untyped) value(row any, column string) any {
	f := t.byCol[column]
	v := valueOf(row).FieldByIndex(f.index)
	if f.null {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	return v.Interface()
}

func (t *untyped) values(row any) Patch {
	v := valueOf(row)
	p := make(Patch, len(t.byName))
	for name, f := range t.byName {
		if !f.Secret {
			p[name] = f.get(v.FieldByIndex(f.index))
		}
	}
	return p
}

func (t *untyped) create(c *Change, tenantID int64, row any, p Patch) error {
	v := valueOf(row)
	if err := t.known(p); err != nil {
		return err
	}
	for _, f := range t.fields {
		value, named := p[f.Name]
		switch {
		case f.Name == "":
		case named && !(value == nil && !f.Required):
			if err := f.set(c, tenantID, v, value); err != nil {
				return err
			}
		case f.Required:
			return model.Invalid(f.Label, "is required")
		}
	}
	t.head(row).TenantID = tenantID
	return t.insert(c, row)
}

func (t *untyped) check(row any, p Patch, complete bool) (refused []error) {
	if err := t.known(p); err != nil {
		return []error{err}
	}
	v := valueOf(row)
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
	return refused
}

func (t *untyped) insert(c *Change, row any) error {
	h := t.head(row)
	h.CreatedAt, h.UpdatedAt = c.At, c.At
	if t.token != nil {
		if err := t.token.checkToken(t.token.Label, t.tokenOf(row)); err != nil {
			return err
		}
	}
	if t.validate != nil {
		if err := t.validate(c, row, Changed{New: true}); err != nil {
			return err
		}
	}
	args := []any{int64(h.CreatedAt), int64(h.UpdatedAt)}
	if !t.instance {
		args = append(args, h.TenantID)
	}
	args = t.args(args, row, t.fields)
	size := SizeOf(args...)
	if err := cmp.Or(c.Admit(t.account(h), size), c.Wrote(size)); err != nil {
		return err
	}
	id, err := c.Insert(t.insertion, args...)
	if err != nil {
		return t.refused(err, row)
	}
	h.ID = id
	return errors.Join(c.Grown(t.account(h), size), t.audit(c, AuditCreate, row))
}

func (t *untyped) update(c *Change, tenantID int64, token string, p Patch) (any, error) {
	row, err := t.must(c, tenantID, token)
	if err != nil {
		return nil, err
	}
	if err := t.known(p); err != nil {
		return nil, err
	}
	v := valueOf(row)
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

func (t *untyped) save(c *Change, row any, columns ...string) error {
	var named []*Field
	for _, column := range columns {
		f, ok := t.byCol[column]
		if !ok {
			return fmt.Errorf("store: %s has no column %q", t.name, column)
		}
		named = append(named, f)
	}
	if len(named) == 0 {
		return nil
	}
	return t.write(c, row, named)
}

func (t *untyped) rename(c *Change, tenantID int64, token, newToken string) (any, error) {
	row, err := t.must(c, tenantID, token)
	if err != nil || token == newToken {
		return row, err
	}
	if err := t.token.checkToken("newToken", newToken); err != nil {
		return nil, err
	}
	valueOf(row).FieldByIndex(t.token.index).SetString(newToken)
	return row, t.write(c, row, []*Field{t.token})
}

func (t *untyped) delete(c *Change, tenantID int64, token string) (bool, error) {
	row, err := t.get(c, tenantID, token)
	if err != nil || row == nil {
		return false, err
	}
	if err := t.free(c, row, t.referrers...); err != nil {
		return false, err
	}
	return true, t.remove(c, row)
}

func (t *untyped) free(tx Tx, row any, referrers ...Referrer) error {
	for _, r := range referrers {
		var held bool
		if err := tx.QueryRow(`SELECT EXISTS (SELECT 1 FROM `+r.Table+` WHERE `+r.Column+` = ?)`, t.head(row).ID).Scan(&held); err != nil {
			return err
		}
		if held {
			return model.InUse(t.kind, t.label(row), r.Kind)
		}
	}
	return nil
}

func (t *untyped) remove(c *Change, row any) error {
	h := t.head(row)
	var size int64
	err := c.QueryRow(`DELETE FROM `+t.name+` WHERE id = ? RETURNING `+RowSize(t.stringColumns(t.fields)...), h.ID).Scan(&size)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return model.NotFound(t.kind, t.label(row))
	case err != nil:
		return err
	}
	return errors.Join(c.Grown(t.account(h), -size), t.audit(c, AuditDelete, row))
}

// write updates the named columns of one row.
func (t *untyped) write(c *Change, row any, named []*Field) error {
	changed := Changed{columns: make([]string, len(named))}
	for i, f := range named {
		changed.columns[i] = f.Column
	}
	if t.validate != nil {
		if err := t.validate(c, row, changed); err != nil {
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
	n, err := c.Exec(`UPDATE `+t.name+` SET updated_at = ?, `+strings.Join(changed.columns, " = ?, ")+
		` = ? WHERE id = ?`, append(args, h.ID)...)
	if err != nil {
		return t.refused(err, row)
	}
	if n == 0 {
		return model.NotFound(t.kind, t.label(row))
	}
	h.UpdatedAt = updated
	return errors.Join(c.Grown(t.account(h), growth), t.audit(c, AuditUpdate, row))
}

// account is the tenant whose bytes a row counts among, 0 for none.
func (t *untyped) account(h *Row) int64 {
	if t.instance || t.uncounted {
		return 0
	}
	return h.TenantID
}

// growth is by how many bytes a row grows when the named fields are set to args.
func (t *untyped) growth(tx Tx, id int64, named []*Field, args []any) (int64, error) {
	columns := t.stringColumns(named)
	if len(columns) == 0 {
		return 0, nil
	}
	var before int64
	err := tx.QueryRow(`SELECT `+textSize(columns)+` FROM `+t.name+` WHERE id = ?`, id).Scan(&before)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil // the update finds that out
	}
	return textBytes(args) - before, err
}

// stringColumns are the columns of fields that hold strings.
func (t *untyped) stringColumns(fields []*Field) (columns []string) {
	for _, f := range fields {
		if k := f.typ.Kind(); k == reflect.String || k == reflect.Slice {
			columns = append(columns, f.Column)
		}
	}
	return columns
}

func (t *untyped) countBytes(tx Tx, sums map[int64]int64) error {
	if t.instance || t.uncounted {
		return nil
	}
	return CountRows(tx, sums, t.name, t.stringColumns(t.fields)...)
}

func (t *untyped) must(tx Tx, tenantID int64, token string) (any, error) {
	row, err := t.get(tx, tenantID, token)
	if err == nil && row == nil {
		return nil, model.NotFound(t.kind, token)
	}
	return row, err
}

// known refuses a patch with an unknown field.
func (t *untyped) known(p Patch) error {
	var unknown []string
	for name := range p {
		if t.byName[name] == nil {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return model.Invalid(slices.Min(unknown), "is no field of a %s", t.kind)
}

// refused turns the error of a unique index into a refusal that names the field and the value.
func (t *untyped) refused(err error, row any) error {
	u, ok := errors.AsType[*UniqueError](err)
	if !ok || u.Table != t.name {
		return err
	}
	for _, column := range slices.Backward(u.Columns) {
		if f := t.byCol[column]; f != nil {
			if f.Secret && len(u.Columns) == 1 { // unique in the instance: who has it is not said
				return model.Invalid(f.Label, "cannot be used, choose another one")
			}
			return model.NotUnique(t.kind, f.Label, t.shown(f, row))
		}
	}
	return err
}

// shown returns a value for a message, without secrets.
func (t *untyped) shown(f *Field, row any) string {
	v := valueOf(row).FieldByIndex(f.index)
	if f.null && !v.IsNil() {
		v = v.Elem()
	}
	if f.Secret || v.Kind() == reflect.Slice || v.Kind() == reflect.Pointer {
		return "…"
	}
	return fmt.Sprint(v.Interface())
}

func (t *untyped) audit(c *Change, operation string, row any) error {
	h := t.head(row)
	return c.Audit(AuditEvent{TenantID: h.TenantID, Category: AuditMutation, Operation: operation,
		Table: t.name, Key: strconv.FormatInt(h.ID, 10), Label: t.label(row), Rows: 1})
}

func (t *untyped) label(row any) string {
	switch {
	case t.labelOf != nil:
		return t.labelOf(row)
	case t.token != nil:
		return t.tokenOf(row)
	}
	return strconv.FormatInt(t.head(row).ID, 10)
}

func (t *untyped) head(row any) *Row {
	return valueOf(row).FieldByIndex(t.embedded).Addr().Interface().(*Row)
}

func (t *untyped) tokenOf(row any) string {
	if t.token == nil {
		return ""
	}
	return valueOf(row).FieldByIndex(t.token.index).String()
}

// args appends the values of fields as a statement takes them.
func (t *untyped) args(to []any, row any, fields []*Field) []any {
	v := valueOf(row)
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
