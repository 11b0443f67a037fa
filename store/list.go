package store

import "strings"

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

// bounds returns the values of LIMIT and OFFSET.
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

// text returns the WHERE clause, "" without conditions.
func (w *where) text() string {
	if len(w.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conditions, " AND ")
}
