package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/validator/core"

	"weir/model"
)

// didYouMean suggests similar names, the nearest first; "" when there is none. quote is written around each suggestion
// and what before the first.
func didYouMean(quote, what, name string, names []string) string {
	near := suggestions(name, names)
	if len(near) == 0 {
		return ""
	}
	for i, n := range near {
		near[i] = quote + n + quote
	}
	return fmt.Sprintf(" Did you mean %s%s?", what, core.OrList(near...))
}

// suggestions returns the names at a distance of at most two fifths of the typed length, nearest first, as graphql-js
// does. (gqlparser's own list does not count a swap of neighbours as one edit.)
func suggestions(typed string, names []string) []string {
	if len(typed) > 2*model.MaxToken { // too long to be a misspelt name
		return nil
	}
	maximum := len(typed)*2/5 + 1
	type near struct {
		name     string
		distance int
	}
	var found []near
	for _, name := range names {
		if d := editDistance(typed, name); d <= maximum {
			found = append(found, near{name, d})
		}
	}
	slices.SortFunc(found, func(a, b near) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.name, b.name))
	})
	out := make([]string, len(found))
	for i, f := range found {
		out[i] = f.name
	}
	return out
}

// editDistance counts insertions, deletions, substitutions and swaps of neighbours; a difference of case alone is 1.
func editDistance(a, b string) int {
	if a == b {
		return 0
	}
	a, b = strings.ToLower(a), strings.ToLower(b)
	if a == b {
		return 1
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1) // the rows for a[:i-2] and a[:i-1]
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
