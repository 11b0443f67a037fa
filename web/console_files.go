//go:build !noconsole

package web

import (
	"embed"
	"io/fs"
)

// What a browser loads of the console is built from web/console and committed, compressed by gzip but for the page.
//
//go:embed console/dist/*.gz console/dist/index.html
var consoleBuilt embed.FS

// consoleFiles are the page and its pieces; nil in a program that is built without them (the tag noconsole).
func consoleFiles() fs.FS {
	files, err := fs.Sub(consoleBuilt, "console/dist")
	if err != nil { // never: the name is valid
		panic(err)
	}
	return files
}
