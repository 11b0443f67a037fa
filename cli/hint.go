package cli

import (
	"errors"
	"syscall"

	"weir/operate"
)

// diskHint is what to do about a disk that is full, "" for any other error.
func diskHint(err error) string {
	if operate.FaultOf(err) == operate.NoSpace || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return "the disk is full: free some space and start again; no acknowledged message is lost; weir doctor shows the free space"
	}
	return ""
}
