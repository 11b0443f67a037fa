//go:build !unix

package bolt

import "io/fs"

func diskBytes(info fs.FileInfo) int64 { return info.Size() }
