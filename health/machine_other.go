//go:build !linux

package health

import (
	"errors"
	"os"
	"syscall"
)

func fileSystem(string) (FileSystem, error) { return FileSystem{}, errors.ErrUnsupported }

func clockState() (synchronized bool, by string, err error) { return false, "", errors.ErrUnsupported }

func openFiles() (uint64, error) { return 0, errors.ErrUnsupported }

func owner(os.FileInfo) (uid int, ok bool) { return 0, false }

func lacksRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) }

func traces() Traces { return Traces{} }

func disk(string) (Disk, error) { return Disk{}, errors.ErrUnsupported }
