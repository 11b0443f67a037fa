package sqlite

import (
	"crypto/sha256"
	_ "embed" // schema.sql
	"encoding/hex"
	"strings"
)

// schemaText is what the migrations make of an empty database, as one script. A first start runs it at once: a transaction for
// each migration is a sync for each, which takes seconds on a slow flash, and SQLite reads the whole schema again for each column added.
//
//go:embed schema.sql
var schemaText string

// schemaOf begins the first line of the script; the sum of the migrations follows.
const schemaOf = "-- What the migrations make of an empty database; sum "

// wholeSchema returns the script, "" when it is that of other migrations.
func wholeSchema(ms []migration) string {
	if first, _, _ := strings.Cut(schemaText, "\n"); first != schemaOf+sumOf(ms) {
		return ""
	}
	return schemaText
}

// sumOf is the checksum of all migrations.
func sumOf(ms []migration) string {
	h := sha256.New()
	for _, m := range ms {
		h.Write([]byte(m.name + " " + m.checksum + "\n"))
	}
	return hex.EncodeToString(h.Sum(nil))
}
