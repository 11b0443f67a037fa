package app_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// child is this test program again, running one instance. It prints "listens ADDRESS" when it serves, and ends with its input.
type child struct {
	*exec.Cmd
	stdin   io.Closer
	address string
}

// startChild runs the named test as a process of its own, with a data directory in a variable, and waits until it serves.
func startChild(t *testing.T, test, variable, dir string) *child {
	t.Helper()
	p := &child{Cmd: exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+test+"$")}
	p.Env = append(os.Environ(), variable+"="+dir)
	var err error
	if p.stdin, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if address, ok := strings.CutPrefix(lines.Text(), "listens "); ok {
			p.address = address
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return p
		}
		all.WriteString(lines.Text() + "\n")
	}
	t.Fatalf("it does not start: %s", all.String())
	return nil
}
