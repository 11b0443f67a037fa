package docs

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed schema/*.json
var schemas embed.FS

// Schemas returns the JSON Schemas (2020-12) of what devices send and receive, by the name of their file. A reference from one to
// another is relative to where they are published.
func Schemas() map[string]string {
	all := map[string]string{}
	_ = fs.WalkDir(schemas, "schema", func(at string, d fs.DirEntry, err error) error { // an embedded tree can be read
		if err == nil && !d.IsDir() {
			b, _ := schemas.ReadFile(at)
			all[strings.TrimPrefix(at, "schema/")] = string(b)
		}
		return err
	})
	return all
}
