package cli

import (
	"errors"
	"syscall"

	"weir/store"
)

// diskHint is what to do about a disk that is full, "" for any other error.
func diskHint(err error) string {
	if errors.Is(err, store.ErrFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return "the disk is full: make room and start again, nothing that was acknowledged is lost; weir doctor shows what is free"
	}
	return ""
}
