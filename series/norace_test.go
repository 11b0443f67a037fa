//go:build !race

package series

const underRace = false
