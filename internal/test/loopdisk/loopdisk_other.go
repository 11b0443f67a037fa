//go:build !linux

package loopdisk

import "errors"

// Make needs Linux.
func Make(string, int64) (*Disk, error) {
	return nil, errors.New("a disk on a loop device needs Linux")
}

// Close does nothing.
func (*Disk) Close() error { return nil }
