//go:build !linux

package health

import "errors"

func written() (int64, error) { return 0, errors.ErrUnsupported }
