// Package follow does what a page of the documentation says: it takes the commands out of the rendered page, runs them as a
// reader would, in one shell for each terminal, and holds what they print against what the page shows. Only tests use it.
package follow

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Options say where a page is followed.
type Options struct {
	Dir  string   // where the first terminal begins
	Home string   // where every other terminal begins, and HOME; default: Dir
	Env  []string // what every terminal begins with, besides HOME
	// Have says what is at hand: from a step on that names what is missing, or has it named above it, a section is left out.
	Have map[string]bool
	// Section is the heading whose steps are followed; "": all.
	Section string
	// Console lets the blocks of console run, too.
	Console bool
	// NotRun says how the commands of a block of console are checked instead; nil: by TestDocumentsNameOnlyCommandsThatExist.
	NotRun  func(Step) string
	Shell   []string // default: sh; another root: chroot ROOT sh. It is one terminal
	Replace *strings.Replacer
	Timeout time.Duration // of one step; default: a minute
}

func (o Options) complete() Options {
	if o.Replace == nil {
		o.Replace = strings.NewReplacer()
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.Home == "" {
		o.Home = o.Dir
	}
	return o
}

// Page does a page's steps in their order, each in its terminal, and holds what is printed against the page. A command that
// does not return keeps its terminal until the page ends: the page has to lead its reader to another one.
func Page(t testing.TB, page string, o Options) {
	t.Helper()
	o = o.complete()
	steps := Read(t, page)
	if o.Section != "" {
		steps = slices.DeleteFunc(steps, func(s Step) bool { return s.Section != o.Section })
	}
	if len(steps) == 0 {
		t.Fatalf("%s %s: no step", page, o.Section)
	}
	open, missing := map[int]*shell{}, map[string]string{}
	for i, s := range steps {
		where := fmt.Sprintf("%s:%d", page, s.Line)
		missing[s.Section] = cmp.Or(missing[s.Section], o.missing(s))
		if reason := cmp.Or(missing[s.Section], o.notRun(s)); reason != "" {
			t.Logf("%s: not run: %s: %s", where, cmp.Or(s.File, strings.TrimSpace(s.Body)), reason)
			continue
		}
		if open[s.Terminal] == nil {
			open[s.Terminal] = newShell(t, o, len(open) == 0)
		}
		sh := open[s.Terminal]
		if sh.busy != "" {
			t.Fatalf("%s: the terminal is taken by %q, and the page names no other one", where, sh.busy)
		}
		if s.File != "" {
			sh.do(t, where, save(s.File, o.Replace.Replace(s.Body)), false, func(string) error { return nil })
			continue
		}
		stays := s.Prints != nil && i+1 < len(steps) && steps[i+1].Terminal != s.Terminal
		sh.do(t, where, o.Replace.Replace(s.Body), stays, func(got string) error {
			return printed(got, strings.Split(o.Replace.Replace(strings.Join(s.Prints, "\n")), "\n"))
		})
	}
}

// notRun says how a block that is only shown is checked; "" for every other one.
func (o Options) notRun(s Step) string {
	switch {
	case s.Language != "console" || s.File != "" || o.Console:
		return ""
	case o.NotRun == nil:
		return "only its commands and flags are checked"
	}
	return o.NotRun(s)
}

// missing says what a step needs and is not there.
func (o Options) missing(s Step) string {
	for what, there := range o.Have {
		if !there && regexp.MustCompile(`(^|[^\w-])`+regexp.QuoteMeta(what)+`($|[^\w-])`).MatchString(s.Above+s.Body) {
			return "needs " + what
		}
	}
	return ""
}

// save is the command that writes a file where the reader is.
func save(file, body string) string {
	return fmt.Sprintf("mkdir -p '%s' && cat >'%s' <<'THE END OF THE FILE'\n%sTHE END OF THE FILE\n", path.Dir(file), file, body)
}

// printed looks for the wanted lines in what was printed, in their order; … stands for anything.
func printed(got string, want []string) error {
	lines := strings.Split(got, "\n")
	for _, w := range want {
		parts := strings.Split(strings.TrimSpace(w), "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		pattern := regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
		for len(lines) > 0 && !pattern.MatchString(strings.TrimSpace(lines[0])) {
			lines = lines[1:]
		}
		if len(lines) == 0 {
			return fmt.Errorf("does not print %q", w)
		}
		lines = lines[1:]
	}
	return nil
}

// shell is one terminal: it keeps its variables and its directory from step to step.
type shell struct {
	cmd     *exec.Cmd
	in      *bufio.Writer
	out     output
	timeout time.Duration
	busy    string // the commands that have not returned
}

// output gathers what the shell prints and tells who waits for it.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() {
		select {
		case o.more <- struct{}{}:
		default:
		}
	}()
	return o.text.Write(b)
}

func (o *output) take(done func(string) bool, deadline <-chan time.Time) (string, bool) {
	for {
		o.mu.Lock()
		got := o.text.String()
		if done(got) {
			o.text.Reset()
			o.mu.Unlock()
			return got, true
		}
		o.mu.Unlock()
		select {
		case <-o.more:
		case <-deadline:
			return got, false
		}
	}
}

// newShell opens a terminal. Nothing of another one is known in it.
func newShell(t testing.TB, o Options, first bool) *shell {
	t.Helper()
	command, dir := o.Shell, o.Home
	if first {
		dir = o.Dir
	} else if command != nil {
		t.Fatal("the page opens a second terminal on a machine that has one")
	}
	if command == nil {
		command = []string{"sh"}
	}
	s := &shell{cmd: exec.Command(command[0], command[1:]...), out: output{more: make(chan struct{}, 1)}, timeout: o.Timeout}
	s.cmd.Dir, s.cmd.Env = dir, slices.Concat(o.Env, []string{"HOME=" + o.Home})
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := s.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.in = bufio.NewWriter(in)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) // the shell and the instance
		_ = s.cmd.Wait()                                      // it was killed
	})
	return s
}

const mark = "-- the step has ended with "

// do runs a step and holds check against what it printed. One that may stay is over when check is content, and then has the
// terminal to itself until it returns.
func (s *shell) do(t testing.TB, where, commands string, mayStay bool, check func(string) error) {
	t.Helper()
	if _, err := fmt.Fprintf(s.in, "%s\necho '%s'$?\n", strings.TrimRight(commands, "\n"), mark); err != nil {
		t.Fatal(err)
	}
	if err := s.in.Flush(); err != nil {
		t.Fatal(err)
	}
	got, ok := s.out.take(func(got string) bool { return strings.Contains(got, mark) || mayStay && check(got) == nil }, time.After(s.timeout))
	err := check(got)
	switch {
	case err != nil:
		t.Fatalf("%s: %v; it printed:\n%s", where, err, got)
	case !ok:
		t.Fatalf("%s: it does not return, and the page leads to no other terminal; it printed:\n%s", where, got)
	case !strings.Contains(got, mark):
		s.busy = strings.TrimSpace(commands)
	case !strings.Contains(got, mark+"0\n"):
		t.Fatalf("%s: its last command failed:\n%s", where, got)
	}
}
