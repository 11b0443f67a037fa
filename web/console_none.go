//go:build noconsole

package web

import "io/fs"

// consoleFiles are not part of this program.
func consoleFiles() fs.FS { return nil }
