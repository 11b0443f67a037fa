// Package follow does what a page of the documentation says: it takes the commands out of the page, runs them as a reader
// would, in one shell, and holds what they print against what the page shows. Only tests use it.
package follow

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Step is a block of a page that is done: commands and what they must print, or a file to be written.
type Step struct {
	Line     int
	Language string // sh for commands, else that of the file
	Server   bool   // it runs until the page ends
	If       string // the step is done only where this is at hand; "" everywhere
	File     string // the block is the content of this file
	Body     string
	Prints   []string // lines, in their order; … stands for anything
}

// Read takes the steps out of a page: ```sh blocks, and the ```text block that may follow each. A block of "sh server"
// runs on, one of "sh if=NAME" needs NAME; a block of any language with "file=NAME" is saved as that file. Other kinds of
// block, such as ```console, are for the reader alone.
func Read(t *testing.T, page string) []Step {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var steps []Step
	block, body := "", ""
	for i, line := range strings.Split(string(b), "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case !fence:
			body += line + "\n"
		case block == "":
			block, body = "other", ""
			if step, ok := stepOf(info); ok {
				step.Line = i + 1
				steps, block = append(steps, step), "step"
			} else if info == "text" {
				block = "prints"
			}
		default:
			if block == "step" {
				steps[len(steps)-1].Body = body
			} else if block == "prints" && len(steps) > 0 && steps[len(steps)-1].Prints == nil {
				steps[len(steps)-1].Prints = strings.Split(strings.TrimSpace(body), "\n")
			}
			block = ""
		}
	}
	return steps
}

// stepOf reads what stands behind the opening fence; ok is false for a block that is only read.
func stepOf(info string) (s Step, ok bool) {
	words := strings.Fields(info)
	if len(words) == 0 {
		return s, false
	}
	s.Language = words[0]
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "server":
			s.Server = true
		case "if":
			s.If = value
		case "file":
			s.File = value
		}
	}
	return s, s.Language == "sh" || s.File != ""
}

// Options say where a page is followed.
type Options struct {
	Dir     string          // where the commands run
	Files   string          // where the page's files are written; default: Dir
	Have    map[string]bool // what steps with an if may count on
	Env     []string        // their environment
	Shell   []string        // default: sh; another root: chroot ROOT sh
	Replace *strings.Replacer
	Timeout time.Duration // of one step; default: a minute
}

// Page runs a page's steps in their order in one shell, and holds what each prints against the page.
func Page(t *testing.T, page string, o Options) {
	t.Helper()
	if o.Shell == nil {
		o.Shell = []string{"sh"}
	}
	if o.Replace == nil {
		o.Replace = strings.NewReplacer()
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.Files == "" {
		o.Files = o.Dir
	}
	sh := newShell(t, o)
	for _, s := range Read(t, page) {
		where := fmt.Sprintf("%s:%d", page, s.Line)
		if s.If != "" && !o.Have[s.If] {
			t.Logf("%s: needs %s, left out", where, s.If)
			continue
		}
		if s.File != "" {
			save(t, filepath.Join(o.Files, s.File), o.Replace.Replace(s.Body))
			continue
		}
		sh.do(t, where, s.Server, o.Replace.Replace(s.Body), func(got string) error {
			return printed(got, strings.Split(o.Replace.Replace(strings.Join(s.Prints, "\n")), "\n"))
		})
	}
}

func save(t *testing.T, path, body string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
		t.Fatal(err)
	}
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

// shell is one shell that keeps its variables from step to step.
type shell struct {
	cmd     *exec.Cmd
	in      *bufio.Writer
	out     output
	timeout time.Duration
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

func newShell(t *testing.T, o Options) *shell {
	t.Helper()
	s := &shell{cmd: exec.Command(o.Shell[0], o.Shell[1:]...), out: output{more: make(chan struct{}, 1)}, timeout: o.Timeout}
	s.cmd.Dir, s.cmd.Env = o.Dir, o.Env
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

// do runs a step and holds check against what it printed; a server's step is over when check is content.
func (s *shell) do(t *testing.T, where string, server bool, commands string, check func(string) error) {
	t.Helper()
	if server {
		commands = strings.TrimSpace(commands) + " &\n"
	} else {
		commands += fmt.Sprintf("echo '%s'$?\n", mark)
	}
	if _, err := s.in.WriteString(commands); err != nil {
		t.Fatal(err)
	}
	if err := s.in.Flush(); err != nil {
		t.Fatal(err)
	}
	over := func(got string) bool {
		if server {
			return check(got) == nil
		}
		return strings.Contains(got, mark)
	}
	got, ok := s.out.take(over, time.After(s.timeout))
	if err := check(got); err != nil || !ok {
		t.Fatalf("%s: %v; it printed:\n%s", where, err, got)
	}
	if !server && !strings.Contains(got, mark+"0\n") {
		t.Fatalf("%s: its last command failed:\n%s", where, got)
	}
}
