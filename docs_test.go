package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/internal/testweir"
)

// documentTimeout is how long a page, or the demonstration until its first firing, may take.
const documentTimeout = time.Minute

// TestDocumentsGettingStarted follows the page as a reader would: its commands in their order in one shell, and what each
// prints must be what stands below it.
func TestDocumentsGettingStarted(t *testing.T) {
	t.Parallel()
	needs(t, "sh", "curl", "jq", "mosquitto_pub")
	follow(t, "docs/getting-started.md")
}

// TestDocumentsReadme does what the first screen says, and ends with a firing seen.
func TestDocumentsReadme(t *testing.T) {
	t.Parallel()
	needs(t, "make")
	steps := read(t, "README.md")
	if len(steps) == 0 || !strings.HasPrefix(steps[0].commands, "make run ") || !strings.Contains(steps[0].commands, "\nmake test ") {
		t.Fatalf("the first commands of README.md are not make run and make test: %+v", steps)
	}
	ctx, cancel := context.WithTimeout(t.Context(), documentTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "make", "run")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C goes to the whole group
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fired, seen := false, ""
	for s := bufio.NewScanner(out); s.Scan(); {
		seen += s.Text() + "\n"
		if !fired && strings.Contains(s.Text(), "raised") {
			fired = true
			if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); !fired {
		t.Errorf("make run showed no firing (%v):\n%s", err, seen)
	}
}

// reference finds links to files and, between backticks, names that look like files of the tree.
var reference = regexp.MustCompile("\\]\\(([^)#:]+)(?:#[^)]*)?\\)|`((?:\\.ci|[a-z]+)/[a-zA-Z0-9_./-]+)`")

func TestDocumentsNameOnlyFilesThatExist(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md", "CHANGELOG.md") {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range reference.FindAllStringSubmatch(string(b), -1) {
			name := m[2]
			if name == "" {
				name = filepath.Join(filepath.Dir(page), m[1])
			} else if _, err := os.Stat(strings.Split(name, "/")[0]); err != nil {
				continue // no path of the tree
			} else if strings.Contains(name, ".Test") {
				continue // a test
			}
			if found, err := filepath.Glob(name); err != nil || len(found) == 0 {
				t.Errorf("%s names %s, which is not there", page, name)
			}
		}
	}
}

// needs skips the test where a program is missing, unless DOCUMENTS says that it must run.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	if os.Getenv("DOCUMENTS") == "" {
		t.Skip("run by make check-docs")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Fatal(err)
		}
	}
}

// step is a block of commands of a page and what they must print.
type step struct {
	line     int
	server   bool // it runs until the page ends
	commands string
	prints   []string
}

// read takes the steps out of a page: ```sh blocks, and the ```text block that may follow each.
func read(t *testing.T, page string) []step {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	block, body := "", ""
	for i, line := range strings.Split(string(b), "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case !fence:
			body += line + "\n"
		case block == "":
			block, body = "open "+info, ""
			if strings.HasPrefix(info, "sh") {
				steps = append(steps, step{line: i + 1, server: info == "sh server"})
			}
		default:
			if strings.HasPrefix(block, "open sh") {
				steps[len(steps)-1].commands = body
			} else if block == "open text" && len(steps) > 0 && steps[len(steps)-1].prints == nil {
				steps[len(steps)-1].prints = strings.Split(strings.TrimSpace(body), "\n")
			}
			block = ""
		}
	}
	return steps
}

// follow runs a page's steps in a directory of their own. The ports of the page stand for free ones.
func follow(t *testing.T, page string) {
	dir := t.TempDir()
	if err := os.Symlink(testweir.Binary(t), filepath.Join(dir, "weir")); err != nil {
		t.Fatal(err)
	}
	ports, env := freePorts(t)
	sh := newShell(t, dir, env)
	for _, s := range read(t, page) {
		where := fmt.Sprintf("%s:%d", page, s.line)
		sh.do(t, where, s.server, ports.Replace(s.commands), func(got string) error {
			return printed(got, strings.Split(ports.Replace(strings.Join(s.prints, "\n")), "\n"))
		})
	}
}

// freePorts maps the default ports to free ones, in texts and in the environment of weir.
func freePorts(t *testing.T) (*strings.Replacer, []string) {
	t.Helper()
	var pairs []string
	env := testweir.Environ()
	for _, l := range []struct{ name, port string }{{"API", "8080"}, {"INGEST", "8081"}, {"MQTT", "1883"}, {"METRICS", "9090"}} {
		c, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() // after all are chosen, so that they differ
		_, port, _ := net.SplitHostPort(c.Addr().String())
		pairs = append(pairs, l.port, port)
		env = append(env, fmt.Sprintf("WEIR_LISTENERS_%s=127.0.0.1:%s", l.name, port))
	}
	return strings.NewReplacer(pairs...), env
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
	cmd *exec.Cmd
	in  *bufio.Writer
	out output
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

func newShell(t *testing.T, dir string, env []string) *shell {
	t.Helper()
	s := &shell{cmd: exec.Command("sh"), out: output{more: make(chan struct{}, 1)}}
	s.cmd.Dir, s.cmd.Env = dir, env
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
	got, ok := s.out.take(over, time.After(documentTimeout))
	if err := check(got); err != nil || !ok {
		t.Fatalf("%s: %v; it printed:\n%s", where, err, got)
	}
	if !server && !strings.Contains(got, mark+"0\n") {
		t.Fatalf("%s: its last command failed:\n%s", where, got)
	}
}
