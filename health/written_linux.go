package health

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

// written asks the kernel for the bytes that this process has caused to be written to disks, page by page.
func written() (int64, error) {
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0, err
	}
	return writeBytes(string(b))
}

func writeBytes(io string) (int64, error) {
	for line := range strings.Lines(io) {
		if v, ok := strings.CutPrefix(line, "write_bytes:"); ok {
			return strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return 0, errors.New("the kernel does not count what is written")
}
