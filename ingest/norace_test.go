//go:build !race

package ingest_test

// everyLife: all lives are compared.
const everyLife = 1
