package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// confirm asks before something is destroyed: on a terminal; a program says --yes.
func (c *command) confirm(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	in, ok := c.io.Stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return usageError{errors.New("no terminal to ask for a confirmation; give --yes")}
	}
	fmt.Fprintf(c.io.Stderr, "%s [y/N] ", printable(question))
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(io.LimitReader(in, 64)).ReadString('\n') // what does not read is no yes
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case s := <-answer:
		if s == "y" || s == "yes" {
			return nil
		}
	case <-ctx.Done():
	}
	return errors.New("not confirmed, nothing was done")
}

// atLeast is exactly for a last argument that may be given several times.
func atLeast(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usageError{fmt.Errorf("%s: %s is missing", cmd.CommandPath(), names[len(args)])}
		}
		return nil
	}
}

// grouped writes a number with commas between its thousands.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
