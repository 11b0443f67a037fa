package operate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"weir/backup"
	"weir/config"
	"weir/internal/dirlock"
	"weir/internal/rootkey"
	"weir/site"
	"weir/spool"
	"weir/store"
)

// Fault is what kept a verb from being carried out, as far as it has a name.
type Fault int

// The faults.
const (
	Unnamed    Fault = iota
	NotRunning       // ErrNotRunning
	Locked           // another process owns the data directory
	NewerData        // a newer Weir has written it
	NoRootKey
	BadRootKey // malformed, or readable by others
	NoSpace
	InvalidSite
	NewerBackup
	ForeignBackup // no backup of Weir
	DamagedBackup
)

// FaultOf names an error.
func FaultOf(err error) Fault {
	if _, ok := errors.AsType[site.Problems](err); ok {
		return InvalidSite
	}
	if _, ok := errors.AsType[site.RuleProblems](err); ok {
		return InvalidSite
	}
	if _, ok := errors.AsType[*rootkey.MissingError](err); ok {
		return NoRootKey
	}
	if _, ok := errors.AsType[*dirlock.LockedError](err); ok {
		return Locked
	}
	for _, known := range []struct {
		err   error
		fault Fault
	}{{backup.ErrVersion, NewerBackup}, {store.ErrVersion, NewerData}, {spool.ErrVersion, NewerData}, {ErrNotRunning, NotRunning},
		{rootkey.ErrMalformed, BadRootKey}, {rootkey.ErrExposed, BadRootKey}, {store.ErrFull, NoSpace},
		{backup.ErrForeign, ForeignBackup}, {backup.ErrDamaged, DamagedBackup}} {
		if errors.Is(err, known.err) {
			return known.fault
		}
	}
	return Unnamed
}

// ErrNotRunning says that no instance answers: errors.Is holds for every NotRunningError.
var ErrNotRunning = errors.New("no instance runs on this data directory")

// NotRunningError says which data directory was looked at. Made says that it holds an instance, which does not run.
type NotRunningError struct {
	Dir  string // absolute
	Made bool
}

func (e *NotRunningError) Error() string {
	if e.Made {
		return "no instance runs on " + e.Dir
	}
	return "no instance is in " + e.Dir
}

// Is makes errors.Is(err, ErrNotRunning) hold.
func (*NotRunningError) Is(target error) bool { return target == ErrNotRunning }

// Hint says how to get to an instance: others are the data directories in which one runs (OtherInstances).
func (e *NotRunningError) Hint(others []string) string {
	switch {
	case len(others) > 0:
		return fmt.Sprintf("an instance runs on %s: name its directory with --data", strings.Join(others, " and on "))
	case e.Made:
		return "start it with weir run, or name another directory with --data"
	}
	return "start one with weir run, make one without starting it with weir init --data, or name its directory with --data"
}

func notRunning(dir string) error {
	e := &NotRunningError{Dir: dir, Made: Exists(config.Config{DataDir: dir})}
	if abs, err := filepath.Abs(dir); err == nil {
		e.Dir = abs
	}
	return e
}

// Exists reports whether a data directory holds an instance, or may: an error of the look is for Open to report.
func Exists(cfg config.Config) bool {
	_, err := os.Stat(DBPath(cfg.DataDir))
	return !errors.Is(err, os.ErrNotExist)
}

// maxOthers bounds the list of other instances.
const maxOthers = 5

// OtherInstances returns the data directories of the instances that run on this machine, as far as this user may see them.
func OtherInstances() []string {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil // not Linux, or not shown
	}
	defer f.Close()
	return socketDirs(f, func(path string) bool {
		fi, err := os.Stat(path)
		return err == nil && fi.Mode()&os.ModeSocket != 0
	})
}

// unixSocket is a line of /proc/net/unix: Num RefCount Protocol Flags Type St Inode Path.
var unixSocket = regexp.MustCompile(`^\S+ +\S+ +\S+ +(\S+) +\S+ +\S+ +\d+ (/.*)$`)

// socketDirs returns the directories of the listening sockets of instances in a table as that of /proc/net/unix.
func socketDirs(table io.Reader, there func(path string) bool) (dirs []string) {
	const accepting = "00010000" // __SO_ACCEPTCON, column Flags
	for s := bufio.NewScanner(table); s.Scan() && len(dirs) < maxOthers; {
		m := unixSocket.FindStringSubmatch(s.Text())
		if m == nil || m[1] != accepting {
			continue
		}
		path := m[2]
		if dir := filepath.Dir(path); filepath.IsAbs(path) && path == SocketPath(dir) && !slices.Contains(dirs, dir) && there(path) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return dirs
}
