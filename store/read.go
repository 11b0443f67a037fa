package store

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a page.
const (
	DefaultPageSize = 100
	MaxPageSize     = 1000
)

// Page is the page of a list that a caller requests. Number counts from 1.
type Page struct {
	Number, Size int
}

// Norm returns the page with its defaults: a size below 1 becomes the default, a size above the maximum the maximum, a
// number below 1 the first page.
func (p Page) Norm() Page {
	switch {
	case p.Size < 1:
		p.Size = DefaultPageSize
	case p.Size > MaxPageSize:
		p.Size = MaxPageSize
	}
	p.Number = max(p.Number, 1)
	return p
}

// Span returns the numbers of the first and the last of n rows on the page, counted from 1 over the list; 0 and 0 for
// none.
func (p Page) Span(n int) (start, end int) {
	if n == 0 {
		return 0, 0
	}
	p = p.Norm()
	start = (p.Number-1)*p.Size + 1
	return start, start + n - 1
}

// Offset is how many rows come before the page.
func (p Page) Offset() int64 {
	p = p.Norm()
	return (int64(p.Number) - 1) * int64(p.Size) // in 64 bits on every machine
}

// First is the index of the page's first row in a list of n, n where the list ends before the page.
func (p Page) First(n int) int { return int(min(p.Offset(), int64(n))) }

// bounds returns the values of LIMIT and OFFSET.
func (p Page) bounds() (limit, offset int64) { return int64(p.Norm().Size), p.Offset() }

// where collects the conditions of a statement.
type where struct {
	conditions []string
	args       []any
	narrow     bool // see Filter.Narrow
}

func (w *where) add(condition string, args ...any) {
	w.conditions = append(w.conditions, condition)
	w.args = append(w.args, args...)
}

// text returns the WHERE clause, "" without conditions.
func (w *where) text() string {
	if len(w.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conditions, " AND ")
}

func (t *untyped) get(tx Tx, tenantID int64, token string) (any, error) {
	if t.token == nil {
		return nil, fmt.Errorf("store: %s has no token", t.name)
	}
	return t.first(tx, tenantID, Eq(t.token.Column, token))
}

func (t *untyped) byToken(tx Tx, tenantID int64, tokens []string, next func() any) error {
	if t.token == nil {
		return fmt.Errorf("store: %s has no token", t.name)
	}
	return t.in(tx, tenantID, t.token.Column, len(tokens), func(i int) any { return tokens[i] }, next)
}

// in reads by a column in slices of values.
func (t *untyped) in(tx Tx, tenantID int64, column string, n int, value func(int) any, next func() any) error {
	for start := 0; start < n; start += maxIn {
		args := Padded(min(maxIn, n-start), func(i int) any { return value(start + i) })
		if err := t.selected(tx, tenantID, "id", []Filter{In(column, args...)}, next); err != nil {
			return err
		}
	}
	return nil
}

// maxIn is the maximum number of values in one statement.
const maxIn = 512

// Padded returns n values, the last repeated up to a power of two: each length needs a prepared statement of its own, and
// this keeps their number small.
func Padded(n int, value func(int) any) []any {
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

func (t *untyped) first(tx Tx, tenantID int64, filters ...Filter) (first any, err error) {
	q, err := t.filtered(tx, tenantID, filters)
	if err != nil {
		return nil, err
	}
	err = t.read(tx, t.columns, q, " ORDER BY id LIMIT 1", func() any {
		first = t.newRow()
		return first
	})
	if err != nil {
		return nil, err
	}
	return first, nil
}

func (t *untyped) selected(tx Tx, tenantID int64, order string, filters []Filter, next func() any) error {
	q, err := t.filtered(tx, tenantID, filters)
	if err != nil {
		return err
	}
	return t.read(tx, t.columns, q, " ORDER BY "+order, next)
}

func (t *untyped) list(tx Tx, tenantID int64, page Page, filters []Filter, next func() any) (total int64, err error) {
	q, err := t.filtered(tx, tenantID, filters)
	if err != nil {
		return 0, err
	}
	limit, offset := page.bounds()
	args := append(slices.Clone(q.args), limit, offset)
	n, order := int64(0), t.order
	if q.narrow {
		order = "+" + order // no index over it is used
	}
	err = t.read(tx, t.listed, where{conditions: q.conditions, args: args}, " ORDER BY "+order+" LIMIT ? OFFSET ?", func() any {
		n++
		return next()
	})
	if err != nil {
		return 0, err
	}
	if n < limit && (n > 0 || offset == 0) {
		return offset + n, nil
	}
	return t.count(tx, tenantID, q, len(filters) == 0)
}

func (t *untyped) countOf(tx Tx, tenantID int64, filters []Filter) (n int64, err error) {
	q, err := t.filtered(tx, tenantID, filters)
	if err != nil {
		return 0, err
	}
	return t.count(tx, tenantID, q, len(filters) == 0)
}

// count returns the number of rows that match. Where all of a tenant's do and their number is stored, none is read.
func (t *untyped) count(tx Tx, tenantID int64, q where, all bool) (n int64, err error) {
	if all && t.stored != nil {
		return t.stored(tx, tenantID)
	}
	err = tx.QueryRow(`SELECT count(*) FROM `+t.name+q.text(), q.args...).Scan(&n)
	return n, err
}

func (t *untyped) countBy(tx Tx, tenantID int64, column string, values []int64) (map[int64]int64, error) {
	counts := map[int64]int64{}
	for some := range slices.Chunk(values, maxIn) {
		q, err := t.filtered(tx, tenantID, []Filter{In(column, Padded(len(some), func(i int) any { return some[i] })...)})
		if err != nil {
			return nil, err
		}
		if err := scanPairs(tx, counts, `SELECT `+column+`, count(*) FROM `+t.name+q.text()+` GROUP BY `+column, q.args...); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

func (t *untyped) distinct(tx Tx, tenantID int64, column string) ([]string, error) {
	q, err := t.filtered(tx, tenantID, []Filter{NotNull(column)})
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(`SELECT DISTINCT `+column+` FROM `+t.name+q.text()+` ORDER BY `+column, q.args...)
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
		args := Padded(len(some), func(i int) any { return some[i] })
		if err := scanPairs(tx, tokens, `SELECT id, token FROM `+table+` WHERE id IN (?`+strings.Repeat(", ?", len(args)-1)+`)`, args...); err != nil {
			return nil, err
		}
	}
	return tokens, nil
}

// AllTokens returns the tokens of a tenant's rows of a table by their ids, in one statement.
func AllTokens(tx Tx, table string, tenantID int64) (map[int64]string, error) {
	tokens := map[int64]string{}
	return tokens, scanPairs(tx, tokens, `SELECT id, token FROM `+table+` WHERE tenant_id = ?`, tenantID)
}

// IDs returns the row ids of a tenant's rows of a table by their tokens; tokens without a row are left out.
func IDs(tx Tx, table string, tenantID int64, tokens []string) (map[string]int64, error) {
	ids := make(map[string]int64, len(tokens))
	for some := range slices.Chunk(tokens, maxIn) {
		args := Padded(len(some), func(i int) any { return some[i] })
		query := `SELECT token, id FROM ` + table + ` WHERE tenant_id = ? AND token IN (?` + strings.Repeat(", ?", len(args)-1) + `)`
		if err := scanPairs(tx, ids, query, append([]any{tenantID}, args...)...); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// Column reads a query of one column.
func Column[T any](tx Tx, query string, args ...any) (all []T, err error) {
	rows, err := tx.Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var one T
		if err := rows.Scan(&one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
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

func (t *untyped) filtered(tx Tx, tenantID int64, filters []Filter) (q where, err error) {
	if !t.instance {
		q.add(t.name+".tenant_id = ?", tenantID)
	}
	for _, f := range filters {
		q.narrow = q.narrow || f.narrow
		if f.resolve != nil {
			if f, err = f.resolve(tx, tenantID); err != nil {
				return q, err
			}
		}
		if f.column != "id" && f.column != "created_at" && f.column != "updated_at" && t.byCol[f.column] == nil {
			return q, fmt.Errorf("store: %s has no column %q", t.name, f.column)
		}
		q.add(strings.ReplaceAll(f.condition, "%", t.name), f.args...)
	}
	return q, nil
}

// read scans the rows of a query into those that next makes.
func (t *untyped) read(tx Tx, columns string, q where, tail string, next func() any) error {
	rows, err := tx.Query(`SELECT `+columns+` FROM `+t.name+q.text()+tail, q.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := t.scan(rows, next()); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (t *untyped) scan(rows *sql.Rows, row any) error {
	v := valueOf(row)
	h := t.head(row)
	to := make([]any, 0, len(t.fields)+4)
	to = append(to, &h.ID, &h.CreatedAt, &h.UpdatedAt)
	if !t.instance {
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
		return fmt.Errorf("%w: %s %d: %w", ErrDamaged, t.name, h.ID, err)
	}
	return nil
}

// Filter restricts a read. Filters are joined by AND.
type Filter struct {
	column    string
	condition string // % is replaced by the table's name
	args      []any
	resolve   func(tx Tx, tenantID int64) (Filter, error) // gives the filter in place of the other fields; nil: they are it
	narrow    bool
}

// Narrow is the filter for a column of which few rows have the same value, as the owner of something. A page of a list is sorted
// after it was found by that column then. Otherwise the database, which knows nothing of the values, prefers the index over the
// order of the list, and walks all rows of the tenant where few match.
func (f Filter) Narrow() Filter {
	f.narrow = true
	return f
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
	return Resolved(func(_ Tx, tenantID int64) (Filter, error) {
		if tenantID == 0 {
			return Where(column, column+" = (SELECT r.id FROM "+table+" r WHERE r.tenant_id = %.tenant_id AND r.token = ?)", token), nil
		}
		return Where(column, column+" = (SELECT r.id FROM "+table+" r WHERE r.tenant_id = ? AND r.token = ?)", tenantID, token), nil
	})
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
