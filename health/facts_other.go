//go:build !linux

package health

import (
	"fmt"
	"runtime"
)

// Facts describes the machine, for somebody who cannot see it.
func Facts(string) string {
	return fmt.Sprintf("system   %s/%s\ncpus     %d\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}
