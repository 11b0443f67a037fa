package dirlock

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// looks is how often the list of locks is read before a lock counts as absent: the kernel returns the list
// piece by piece, and a line may be missed when other locks change meanwhile.
const looks = 4

// holds checks in the kernel's list of locks whether a process has locked a file.
func holds(pid int, path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	for range looks {
		b, err := os.ReadFile("/proc/locks")
		if err != nil {
			return false
		}
		if listed(string(b), pid, st.Ino) {
			return true
		}
	}
	return false
}

// listed finds a line such as "1: FLOCK  ADVISORY  WRITE 708 fd:01:1573 0 EOF".
func listed(locks string, pid int, inode uint64) bool {
	for line := range strings.Lines(locks) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || f[4] != strconv.Itoa(pid) {
			continue
		}
		if strings.HasSuffix(f[5], ":"+strconv.FormatUint(inode, 10)) {
			return true
		}
	}
	return false
}
