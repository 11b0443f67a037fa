// Package similar finds what was probably meant by a name that is not known.
package similar

import "slices"

// Nearest returns the known name that differs least from name, "" when none is near.
func Nearest(name string, known []string) string { return Within(name, known, len(name)/3+1) }

// Within returns the known name that differs least from name, and by at most so many letters; "" when there is none.
func Within(name string, known []string, letters int) string {
	best, least := "", letters+1
	for _, n := range slices.Sorted(slices.Values(known)) {
		if d := distance(name, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance is the number of letters to insert, remove or change.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
