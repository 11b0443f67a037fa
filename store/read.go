package store

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Get returns the row with the token, nil when there is none.
func (t *Table[T]) Get(tx Tx, tenantID int64, token string) (*T, error) {
	if t.token == nil {
		return nil, fmt.Errorf("store: %s has no token", t.desc.Name)
	}
	return t.First(tx, tenantID, Eq(t.token.Column, token))
}

// GetByID returns the row with the id, nil when there is none in this tenant.
func (t *Table[T]) GetByID(tx Tx, tenantID, id int64) (*T, error) {
	return t.First(tx, tenantID, Eq("id", id))
}

// ByID returns the rows with these ids that exist, in no promised order.
func (t *Table[T]) ByID(tx Tx, tenantID int64, ids []int64) ([]*T, error) {
	return t.in(tx, tenantID, "id", len(ids), func(i int) any { return ids[i] })
}

// ByToken returns the rows with these tokens that exist, in no promised order.
func (t *Table[T]) ByToken(tx Tx, tenantID int64, tokens []string) ([]*T, error) {
	if t.token == nil {
		return nil, fmt.Errorf("store: %s has no token", t.desc.Name)
	}
	return t.in(tx, tenantID, t.token.Column, len(tokens), func(i int) any { return tokens[i] })
}

// By returns all rows with one of the values in the column, ordered by id within a slice of values.
func (t *Table[T]) By(tx Tx, tenantID int64, column string, values ...any) ([]*T, error) {
	return t.in(tx, tenantID, column, len(values), func(i int) any { return values[i] })
}

// in reads by a column in slices of values.
func (t *Table[T]) in(tx Tx, tenantID int64, column string, n int, value func(int) any) ([]*T, error) {
	var rows []*T
	for start := 0; start < n; start += maxIn {
		args := padded(min(maxIn, n-start), func(i int) any { return value(start + i) })
		some, err := t.Select(tx, tenantID, "id", In(column, args...))
		if err != nil {
			return nil, err
		}
		rows = append(rows, some...)
	}
	return rows, nil
}

// maxIn is the maximum number of values in one statement.
const maxIn = 256

// padded returns n values, the last repeated up to a power of two: each length needs a prepared statement of its own, and
// this keeps their number small.
func padded(n int, value func(int) any) []any {
	slots := 1
	for slots < n {
		slots *= 2
	}
	args := make([]any, slots)
	for i := range args {
		args[i] = value(min(i, n-1))
	}
	return args
}

// First returns the first row by id that matches the filters, nil when there is none.
func (t *Table[T]) First(tx Tx, tenantID int64, filters ...Filter) (*T, error) {
	q, err := t.filtered(tx, tenantID, filters)
	if err != nil {
		return nil, err
	}
	rows, err := t.query(tx, q, " ORDER BY id LIMIT 1")
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}

// Select returns all rows that match the filters in the given order of columns. It is for code that knows a bound of
// their number; List returns pages.
func (t *Table[T]) Select(tx Tx, tenantID int64, order string, filters ...Filter) ([]*T, error) {
	q, err := t.filtered(tx, tenantID, filters)
	if err != nil {
		return nil, err
	}
	return t.query(tx, q, " ORDER BY "+order)
}

// List returns a page of the rows that match the filters, in the kind's order, and the number of all matching rows, which are
// counted where the page does not show the end. Large fields are "" in them.
func (t *Table[T]) List(tx Tx, tenantID int64, page Page, filters ...Filter) (rows []*T, total int64, err error) {
	q, err := t.filtered(tx, tenantID, filters)
	if err != nil {
		return nil, 0, err
	}
	limit, offset := page.bounds()
	args := append(slices.Clone(q.args), limit, offset)
	if rows, err = t.rows(tx, t.listed, where{q.conditions, args}, " ORDER BY "+t.order+" LIMIT ? OFFSET ?"); err != nil {
		return nil, 0, err
	}
	if n := int64(len(rows)); n < limit && (n > 0 || offset == 0) {
		return rows, offset + n, nil
	}
	err = tx.QueryRow(`SELECT count(*) FROM `+t.desc.Name+q.text(), q.args...).Scan(&total)
	return rows, total, err
}

// Count returns the number of rows that match the filters.
func (t *Table[T]) Count(tx Tx, tenantID int64, filters ...Filter) (n int64, err error) {
	q, err := t.filtered(tx, tenantID, filters)
	if err != nil {
		return 0, err
	}
	err = tx.QueryRow(`SELECT count(*) FROM `+t.desc.Name+q.text(), q.args...).Scan(&n)
	return n, err
}

// CountBy returns the number of rows for each of the values in a column; values without rows are left out.
func (t *Table[T]) CountBy(tx Tx, tenantID int64, column string, values ...int64) (map[int64]int64, error) {
	counts := map[int64]int64{}
	for some := range slices.Chunk(values, maxIn) {
		q, err := t.filtered(tx, tenantID, []Filter{In(column, padded(len(some), func(i int) any { return some[i] })...)})
		if err != nil {
			return nil, err
		}
		if err := scanPairs(tx, counts, `SELECT `+column+`, count(*) FROM `+t.desc.Name+q.text()+` GROUP BY `+column, q.args...); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// Distinct returns the distinct strings of a column, sorted.
func (t *Table[T]) Distinct(tx Tx, tenantID int64, column string) ([]string, error) {
	q, err := t.filtered(tx, tenantID, []Filter{NotNull(column)})
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(`SELECT DISTINCT `+column+` FROM `+t.desc.Name+q.text()+` ORDER BY `+column, q.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	values := []string{}
	for rows.Next() {
		var v string
		if err := rows.Scan(&v); err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, rows.Err()
}

// Tokens returns the tokens of rows of a table by their ids; ids without a row are left out.
func Tokens(tx Tx, table string, ids []int64) (map[int64]string, error) {
	tokens := make(map[int64]string, len(ids))
	for some := range slices.Chunk(ids, maxIn) {
		args := padded(len(some), func(i int) any { return some[i] })
		if err := scanPairs(tx, tokens, `SELECT id, token FROM `+table+` WHERE id IN (?`+strings.Repeat(", ?", len(args)-1)+`)`, args...); err != nil {
			return nil, err
		}
	}
	return tokens, nil
}

// IDs returns the row ids of a tenant's rows of a table by their tokens; tokens without a row are left out.
func IDs(tx Tx, table string, tenantID int64, tokens []string) (map[string]int64, error) {
	ids := make(map[string]int64, len(tokens))
	for some := range slices.Chunk(tokens, maxIn) {
		args := padded(len(some), func(i int) any { return some[i] })
		query := `SELECT token, id FROM ` + table + ` WHERE tenant_id = ? AND token IN (?` + strings.Repeat(", ?", len(args)-1) + `)`
		if err := scanPairs(tx, ids, query, append([]any{tenantID}, args...)...); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// scanPairs reads a query of two columns.
func scanPairs[K comparable, V any](tx Tx, into map[K]V, query string, args ...any) error {
	rows, err := tx.Query(query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var key K
		var value V
		if err := rows.Scan(&key, &value); err != nil {
			return err
		}
		into[key] = value
	}
	return rows.Err()
}

func (t *Table[T]) filtered(tx Tx, tenantID int64, filters []Filter) (q where, err error) {
	if !t.desc.Instance {
		q.add(t.desc.Name+".tenant_id = ?", tenantID)
	}
	for _, f := range filters {
		if f.resolve != nil {
			if f, err = f.resolve(tx, tenantID); err != nil {
				return q, err
			}
		}
		if f.column != "id" && f.column != "created_at" && f.column != "updated_at" && t.byCol[f.column] == nil {
			return q, fmt.Errorf("store: %s has no column %q", t.desc.Name, f.column)
		}
		q.add(strings.ReplaceAll(f.condition, "%", t.desc.Name), f.args...)
	}
	return q, nil
}

func (t *Table[T]) query(tx Tx, q where, tail string) ([]*T, error) {
	return t.rows(tx, t.columns, q, tail)
}

func (t *Table[T]) rows(tx Tx, columns string, q where, tail string) ([]*T, error) {
	rows, err := tx.Query(`SELECT `+columns+` FROM `+t.desc.Name+q.text()+tail, q.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []*T
	for rows.Next() {
		row, err := t.scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

func (t *Table[T]) scan(rows *sql.Rows) (*T, error) {
	row := new(T)
	v := reflect.ValueOf(row).Elem()
	h := t.head(row)
	to := make([]any, 0, len(t.fields)+4)
	to = append(to, &h.ID, &h.CreatedAt, &h.UpdatedAt)
	if !t.desc.Instance {
		to = append(to, &h.TenantID)
	}
	for _, f := range t.fields {
		p := v.FieldByIndex(f.index).Addr().Interface()
		if f.List {
			p = (*listScanner)(p.(*[]string))
		}
		to = append(to, p)
	}
	if err := rows.Scan(to...); err != nil {
		return nil, fmt.Errorf("%w: %s %d: %w", ErrDamaged, t.desc.Name, h.ID, err)
	}
	return row, nil
}

// Filter restricts a read. Filters are joined by AND.
type Filter struct {
	column    string
	condition string // % is replaced by the table's name
	args      []any
	resolve   func(tx Tx, tenantID int64) (Filter, error) // gives the filter in place of the other fields; nil: they are it
}

// Resolved is a filter that depends on what is stored: resolve is called within the transaction of each read.
func Resolved(resolve func(tx Tx, tenantID int64) (Filter, error)) Filter {
	return Filter{resolve: resolve}
}

// Where matches rows by a condition on the column, for the parts of this package; % in it is replaced by the table's name.
func Where(column, condition string, args ...any) Filter {
	return Filter{column: column, condition: condition, args: args}
}

// Eq matches rows with the value in the column.
func Eq(column string, value any) Filter { return Where(column, column+" = ?", value) }

// Ne matches rows with another value in the column.
func Ne(column string, value any) Filter { return Where(column, column+" <> ?", value) }

// In matches rows with one of the values in the column; without values it matches none.
func In(column string, values ...any) Filter {
	if len(values) == 0 {
		return Where(column, "1 = 0")
	}
	return Where(column, column+" IN (?"+strings.Repeat(", ?", len(values)-1)+")", values...)
}

// Null matches rows with null in the column.
func Null(column string) Filter { return Where(column, column+" IS NULL") }

// NotNull matches rows without null in the column.
func NotNull(column string) Filter { return Where(column, column+" IS NOT NULL") }

// NotBelow matches rows with the value or a greater one in the column.
func NotBelow(column string, value any) Filter { return Where(column, column+" >= ?", value) }

// NotAbove matches rows with the value or a smaller one in the column.
func NotAbove(column string, value any) Filter { return Where(column, column+" <= ?", value) }

// Contains lets a row through whose column holds a part, whatever the case of its letters.
func Contains(column, part string) Filter {
	return Where(column, "instr(fold("+column+"), fold(?)) > 0", part)
}

// ContainsAny lets a row through one of whose columns holds a part, whatever the case of its letters. column is the first of them,
// others are the rest, which may be null. An index over the same columns makes it cheap, see the migration of devices.
func ContainsAny(part, column string, others ...string) Filter {
	var all strings.Builder
	all.WriteString("%." + column)
	for _, o := range others {
		all.WriteString(" || char(10) || coalesce(%." + o + ", '')")
	}
	return Where(column, "instr(fold("+all.String()+"), fold(?)) > 0", part)
}

// Among matches rows with one of the ids, or with none of them. They may be many: they are one argument.
func Among(ids []int64, among bool) Filter {
	list := make([]byte, 0, 8*len(ids)+2)
	list = append(list, '[')
	for i, id := range ids {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, id, 10)
	}
	in := map[bool]string{true: "IN", false: "NOT IN"}[among]
	return Where("id", "%.id "+in+" (SELECT value FROM json_each(?))", string(append(list, ']')))
}

// RefersTo matches rows with the row id of the token in the other table, of the same tenant, in the column. An unknown
// token matches none.
func RefersTo(column, table, token string) Filter {
	return Where(column, column+" = (SELECT r.id FROM "+table+" r WHERE r.tenant_id = %.tenant_id AND r.token = ?)", token)
}

// RefersToFlagged matches rows that refer to a row of the other table, of the same tenant, whose column flag has the value.
func RefersToFlagged(column, table, flag string, value bool) Filter {
	return Where(column, column+" IN (SELECT r.id FROM "+table+" r WHERE r.tenant_id = %.tenant_id AND r."+flag+" = ?)", value)
}

// RefersToShared is RefersTo for a table of the instance.
func RefersToShared(column, table, token string) Filter {
	return Where(column, column+" = (SELECT r.id FROM "+table+" r WHERE r.token = ?)", token)
}

// listText returns the form of a list in its column.
func listText(list []string) string {
	if len(list) == 0 {
		return "[]"
	}
	b, err := json.Marshal(list)
	if err != nil {
		panic(err) // strings always have a JSON form
	}
	return string(b)
}

// listScanner reads the column of a list.
type listScanner []string

// Scan implements sql.Scanner.
func (l *listScanner) Scan(src any) error {
	*l = nil
	var text []byte
	switch s := src.(type) {
	case nil:
		return nil
	case string:
		text = []byte(s)
	case []byte:
		text = s
	default:
		return fmt.Errorf("a list was expected, not %T", src)
	}
	return json.Unmarshal(text, (*[]string)(l))
}
