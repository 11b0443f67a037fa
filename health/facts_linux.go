package health

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Facts describes the machine and the mount of dir, for a diagnostic bundle.
func Facts(dir string) string {
	var out strings.Builder
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		fmt.Fprintf(&out, "kernel   %s %s %s\n", unix.ByteSliceToString(u.Sysname[:]), unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:]))
	}
	fmt.Fprintf(&out, "cpus     %d, %d used\n", runtime.NumCPU(), runtime.GOMAXPROCS(0))
	fmt.Fprintf(&out, "user     %d\n", os.Geteuid())
	if fs, err := fileSystem(existing(dir)); err == nil {
		fmt.Fprintf(&out, "disk     %s, %s of %s free, %d of %d inodes free\n", or(fs.Kind, "unknown"), Bytes(fs.FreeBytes), Bytes(fs.Bytes), fs.FreeInodes, fs.Inodes)
	}
	if b, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		if abs, err := filepath.Abs(existing(dir)); err == nil {
			fmt.Fprintf(&out, "mount    %s\n", mountOf(string(b), abs))
		}
	}
	for _, file := range []string{"/proc/loadavg", "/proc/pressure/memory", "/proc/pressure/io", "/proc/meminfo"} {
		if b, err := os.ReadFile(file); err == nil {
			fmt.Fprintf(&out, "\n%s\n%s", file, b)
		}
	}
	return out.String()
}

// mountOf finds the mount that a path lies on. Of the options only plain words are returned: a value could name a
// user or a password of a network file system.
func mountOf(mountinfo, path string) string {
	best, told := "", "unknown"
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 2 {
			continue
		}
		at := f[4]
		if !inside(path, at) || len(at) < len(best) {
			continue
		}
		best = at
		var words []string
		for o := range strings.SplitSeq(f[5], ",") {
			if !strings.Contains(o, "=") {
				words = append(words, o)
			}
		}
		told = fmt.Sprintf("%s on %s (%s)", g[0], at, strings.Join(words, ","))
	}
	return told
}

func inside(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}
