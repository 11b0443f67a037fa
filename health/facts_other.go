//go:build !linux

package health

import (
	"fmt"
	"runtime"
)

// Facts describes the machine, for a diagnostic bundle.
func Facts(string) string {
	return fmt.Sprintf("system   %s/%s\ncpus     %d\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}
