package store

import "strings"

// Bounds of a page.
const (
	DefaultPageSize = 100
	MaxPageSize     = 1000
)

// Page is a page of a list as a caller asks for it: Number counts from 1.
type Page struct {
	Number, Size int
}

// Norm returns the page that is meant: a size below 1 is the default, one above the most is the most, a number below 1
// is the first.
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

// Span returns the places of the first and the last of n rows that the page holds, counted from 1; 0 and 0 for none.
func (p Page) Span(n int) (start, end int) {
	if n == 0 {
		return 0, 0
	}
	p = p.Norm()
	start = (p.Number-1)*p.Size + 1
	return start, start + n - 1
}

// bounds returns what stands behind LIMIT and OFFSET.
func (p Page) bounds() (limit, offset int64) {
	p = p.Norm()
	return int64(p.Size), (int64(p.Number) - 1) * int64(p.Size)
}

// where collects the conditions of a statement.
type where struct {
	conditions []string
	args       []any
}

func (w *where) add(condition string, args ...any) {
	w.conditions = append(w.conditions, condition)
	w.args = append(w.args, args...)
}

// text is the WHERE clause, "" without a condition.
func (w *where) text() string {
	if len(w.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conditions, " AND ")
}
