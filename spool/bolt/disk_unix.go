//go:build unix

package bolt

import (
	"io/fs"
	"syscall"
)

// diskBytes is what a file takes: spans are sparse, their length says little.
func diskBytes(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(st.Blocks) * 512
	}
	return info.Size()
}
