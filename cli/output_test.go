package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
)

// full is a writer on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestHelpThatCannotBeWrittenFails(t *testing.T) {
	t.Parallel()
	n := 0
	everyCommand(newRoot(&command{}), func(cmd *cobra.Command) {
		n++
		var errs bytes.Buffer
		args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		if code := Run(t.Context(), args, IO{Stdout: full{}, Stderr: &errs}); code != ExitFailed || !strings.Contains(errs.String(), "the output could not be written: no space left") {
			t.Errorf("%s ended with %d: %s", strings.Join(args, " "), code, &errs)
		}
	})
	if n < 100 {
		t.Errorf("%d commands were found", n)
	}
}

func TestLostOutputIsTheErrorOfACommand(t *testing.T) {
	t.Parallel()
	other := errors.New("refused")
	for name, c := range map[string]struct {
		lost, err error
		outlives  bool
		want      string
	}{
		"nothing lost":                          {nil, other, false, "refused"},
		"lost":                                  {syscall.ENOSPC, nil, false, "the output could not be written: no space left on device"},
		"cancelled for it":                      {syscall.ENOSPC, fmt.Errorf("asking: %w", context.Canceled), false, "the output could not be written: no space left on device"},
		"lost, and failed":                      {syscall.ENOSPC, other, false, "the output could not be written: no space left on device\nrefused"},
		"said already":                          {syscall.ENOSPC, &outputError{syscall.ENOSPC, "the change was undone"}, false, "the output could not be written: no space left on device; the change was undone"},
		"the reader of a command left":          {syscall.EPIPE, nil, false, "the output could not be written: broken pipe"},
		"the reader of an instance left":        {syscall.EPIPE, nil, true, "<nil>"},
		"the disk of an instance's log is full": {syscall.ENOSPC, nil, true, "the output could not be written: no space left on device"},
	} {
		o := &output{to: full{}, gone: func() {}, lost: c.lost}
		if c.outlives {
			o.outlives()
		}
		if got := fmt.Sprint(o.ending(c.err)); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}

// everyCommand calls with each command that a user may call.
func everyCommand(cmd *cobra.Command, with func(*cobra.Command)) {
	if cmd.Hidden || cmd.Name() == "help" {
		return
	}
	with(cmd)
	for _, sub := range cmd.Commands() {
		everyCommand(sub, with)
	}
}

// commandOf is the path of the command that arguments call.
func commandOf(args []string) (string, error) {
	root := newRoot(&command{})
	cmd, _, err := root.Find(joined(root, args))
	if err != nil {
		return "", err
	}
	return cmd.CommandPath(), nil
}

// lostOutputScript is the script that shows of every command that it fails when its output cannot be written.
const lostOutputScript = "testdata/script/lost-output.txtar"

// lostByLines returns the paths of the commands for which the script has a line of their own.
func lostByLines(script string) (map[string]bool, error) {
	lines, _, _ := strings.Cut(script, "\n-- ")
	named := map[string]bool{}
	for line := range strings.Lines(lines) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
		words := shellWord.FindAllString(line, -1)
		for i := range words {
			words[i] = strings.Trim(words[i], "'")
		}
		var calls [][]string
		switch {
		case len(words) > 1 && words[0] == "lost":
			calls = [][]string{words[1:]}
		case len(words) > 1 && words[0] == "lost-otherwise":
			for _, c := range words[1:] {
				calls = append(calls, strings.Fields(c))
			}
		}
		for _, args := range calls {
			path, err := commandOf(args)
			if err != nil {
				return nil, err
			}
			named[path] = true
		}
	}
	return named, nil
}

// argumentsFromUsage returns the command line of a command without a line of its own, made from its usage: the tenant and the device are
// those of the script's site. A command that needs other words, or that asks before it acts, cannot be called so.
func argumentsFromUsage(cmd *cobra.Command) ([]string, error) {
	if cmd.Flags().Lookup("yes") != nil {
		return nil, errors.New("it asks before it acts")
	}
	of := map[string]string{"TENANT": "acme", "DEVICE": "boiler-1"}
	args := strings.Fields(cmd.CommandPath())[1:]
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if strings.HasPrefix(word, "[") {
			continue // it may be left out
		}
		value, known := of[word]
		if !known {
			return nil, fmt.Errorf("its usage has the word %s", word)
		}
		args = append(args, value)
	}
	return append(args, "--data", "data"), nil
}

// callsFromUsage returns the command lines of all commands without a line in the script, and what is wrong with those that need one.
func callsFromUsage(script string) (calls [][]string, wrong []string, err error) {
	named, err := lostByLines(script)
	if err != nil {
		return nil, nil, err
	}
	for _, cmd := range answering(tree()) {
		if named[cmd.CommandPath()] {
			continue
		}
		args, err := argumentsFromUsage(cmd)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s needs a line in %s: %v", cmd.CommandPath(), lostOutputScript, err))
			continue
		}
		calls = append(calls, args)
	}
	return calls, wrong, nil
}

// TestEveryCommandIsCalledForItsLostOutput names, without running anything, the commands that the script cannot call.
func TestEveryCommandIsCalledForItsLostOutput(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(lostOutputScript)
	if err != nil {
		t.Fatal(err)
	}
	calls, wrong, err := callsFromUsage(string(script))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrong {
		t.Error(w)
	}
	if len(calls) < 30 {
		t.Errorf("%d commands are called as their usage says", len(calls))
	}
	if _, wrong, err = callsFromUsage("lost tenant list\n"); err != nil || !slices.ContainsFunc(wrong, func(w string) bool { return strings.HasPrefix(w, "weir tenant create needs a line") }) {
		t.Errorf("a script without lines: %v, %q", err, wrong)
	}
}

// lostByUsage runs the commands that have no line of their own, each as lost does.
func lostByUsage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: lost-by-usage")
	}
	script, err := os.ReadFile(lostOutputScript)
	ts.Check(err)
	calls, wrong, err := callsFromUsage(string(script))
	ts.Check(err)
	if len(wrong) > 0 {
		ts.Fatalf("%s", strings.Join(wrong, "\n"))
	}
	for _, c := range calls {
		lost(ts, false, c)
	}
}

// lost runs weir with a stdout that takes nothing.
func lost(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: lost ARG…")
	}
	path, err := commandOf(args)
	ts.Check(err)
	device, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	ts.Check(err)
	defer device.Close()
	binary, err := exec.LookPath(strings.SplitN(ts.Getenv("PATH"), string(os.PathListSeparator), 2)[0] + "/weir")
	ts.Check(err)
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Stdout = ts.MkAbs("."), device
	cmd.Env = []string{"HOME=" + ts.Getenv("HOME"), "TMPDIR=" + ts.Getenv("TMPDIR"), "WEIR_CONFIG="}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	err = cmd.Run()
	ended, failed := errors.AsType[*exec.ExitError](err)
	if !failed || ended.ExitCode() == 0 || !strings.Contains(errs.String(), "the output could not be written") {
		ts.Logf("weir %s: %v, and not because its output was lost:\n%s", strings.Join(args, " "), err, &errs)
		return
	}
	theInstance(ts).covers(path)
	_, _ = io.WriteString(ts.Stdout(), errs.String())
}

func (in *instance) covers(path string) {
	if in.lost == nil {
		in.lost = map[string]bool{}
	}
	in.lost[path] = true
}

func lostOtherwise(ts *testscript.TestScript, _ bool, commands []string) {
	for _, c := range commands {
		path, err := commandOf(strings.Fields(c))
		ts.Check(err)
		theInstance(ts).covers(path)
	}
}

func allLost(ts *testscript.TestScript, _ bool, _ []string) {
	var left []string
	for _, cmd := range answering(tree()) {
		if !theInstance(ts).lost[cmd.CommandPath()] {
			left = append(left, cmd.CommandPath())
		}
	}
	if len(left) > 0 {
		ts.Fatalf("not shown of %s", strings.Join(left, ", "))
	}
}

// aiProvider answers each prompt with one rule, as a server of kind openai-compatible.
func aiProvider(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: ai-provider NAME")
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		const rule = `{"name": "Hot", "type": "threshold", "severity": "major", "when": {"metric": "temp", "op": "gt", "threshold": 90}}`
		_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"message": map[string]string{"content": rule}}}}) // the script says so
	}))
	ts.Defer(s.Close)
	addr := strings.TrimPrefix(s.URL, "http://")
	ts.Setenv(args[0], addr)
	_, port, _ := strings.Cut(addr, ":")
	ts.Setenv(args[0]+"_DESTINATION", "127.0.0.1/32:"+port)
}
