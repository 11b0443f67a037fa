//go:build race

package ingest_test

// everyLife: under the detector, which sees nothing new in the twentieth of them, every fifth of the lives is compared.
const everyLife = 5
