// Package ranges keeps sets of numbers as ranges without a hole.
package ranges

import (
	"errors"
	"slices"
)

// Set holds numbers as ranges in order, each from its first number up to its last; no two touch. The zero value is empty. It is not safe
// for concurrent use.
type Set [][2]uint64

// find returns the index of the range that holds n, or where one would stand.
func (s Set) find(n uint64) (int, bool) {
	if last := len(s) - 1; last >= 0 && n > s[last][1] { // numbers grow
		return last + 1, false
	}
	return slices.BinarySearchFunc(s, n, func(r [2]uint64, n uint64) int {
		switch {
		case r[1] < n:
			return -1
		case r[0] > n:
			return 1
		}
		return 0
	})
}

// Has reports whether the set holds a number.
func (s Set) Has(n uint64) bool {
	_, found := s.find(n)
	return found
}

// Last is the highest number, 0 of an empty set.
func (s Set) Last() uint64 {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1][1]
}

// Add adds a number. With more than limit ranges the oldest hole is closed: the numbers in it then count as members.
func (s *Set) Add(n uint64, limit int) {
	l := *s
	i, found := l.find(n)
	if found {
		return
	}
	joinsBefore := i > 0 && l[i-1][1]+1 == n
	joinsAfter := i < len(l) && n+1 == l[i][0]
	switch {
	case joinsBefore && joinsAfter:
		l[i-1][1] = l[i][1]
		l = slices.Delete(l, i, i+1)
	case joinsBefore:
		l[i-1][1] = n
	case joinsAfter:
		l[i][0] = n
	default:
		l = slices.Insert(l, i, [2]uint64{n, n})
	}
	if len(l) > limit {
		l[0][1] = l[1][1]
		l = slices.Delete(l, 1, 2)
	}
	*s = l
}

// Fold returns the set with at most limit ranges: the holes between the lowest ones are closed.
func (s Set) Fold(limit int) Set {
	over := len(s) - limit
	if over <= 0 {
		return s
	}
	out := slices.Clone(s[over:])
	out[0][0] = s[0][0]
	return out
}

// Lacking returns the numbers from first up to last that are in none of the sets.
func Lacking(first, last uint64, sets ...Set) Set {
	out := Set{}
	if first <= last {
		out = append(out, [2]uint64{first, last})
	}
	for _, s := range sets {
		var left Set
		at := 0
		for _, r := range out {
			for at < len(s) && s[at][1] < r[0] {
				at++
			}
			from, rest := r[0], true
			for i := at; i < len(s) && s[i][0] <= r[1]; i++ {
				if s[i][0] > from {
					left = append(left, [2]uint64{from, s[i][0] - 1})
				}
				if rest = s[i][1] < r[1]; !rest {
					break
				}
				from = s[i][1] + 1
			}
			if rest {
				left = append(left, [2]uint64{from, r[1]})
			}
		}
		out = left
	}
	return out
}

// Split returns the numbers below n, and the others.
func (s Set) Split(n uint64) (below, rest Set) {
	for _, r := range s {
		switch {
		case r[1] < n:
			below = append(below, r)
		case r[0] >= n:
			rest = append(rest, r)
		default:
			below, rest = append(below, [2]uint64{r[0], n - 1}), append(rest, [2]uint64{n, r[1]})
		}
	}
	return below, rest
}

// Count is how many numbers the set holds.
func (s Set) Count() (n uint64) {
	for _, r := range s {
		n += r[1] - r[0] + 1
	}
	return n
}

// ErrForm says that ranges are not those of a Set.
var ErrForm = errors.New("ranges: not in order")

// Check returns ErrForm where the ranges are not in order, touch, hold 0, or are more than limit.
func (s Set) Check(limit int) error {
	if len(s) > limit {
		return ErrForm
	}
	before := uint64(0)
	for i, r := range s {
		if r[0] == 0 || r[1] < r[0] || i > 0 && (r[0] <= before || r[0]-before < 2) {
			return ErrForm
		}
		before = r[1]
	}
	return nil
}

// Union returns the numbers of both sets.
func Union(a, b Set) Set {
	var out Set
	for len(a) > 0 || len(b) > 0 {
		from := &a
		if len(a) == 0 || len(b) > 0 && b[0][0] < a[0][0] {
			from = &b
		}
		r := (*from)[0]
		*from = (*from)[1:]
		if last := len(out) - 1; last >= 0 && r[0] <= out[last][1]+1 {
			out[last][1] = max(out[last][1], r[1])
			continue
		}
		out = append(out, r)
	}
	return out
}
