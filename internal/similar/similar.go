// Package similar finds what was probably meant by a name that is not known.
package similar

import "slices"

// Nearest returns the known name that differs least from name, "" when none is near.
func Nearest(name string, known []string) string {
	best, least := "", len(name)/3+2
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
