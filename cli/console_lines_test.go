package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// Each line that the console shows for an operation is a command with these arguments and options: one that is renamed fails here, without Node.
func TestTheLinesOfTheConsoleAreCommands(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../web/console/src/words/lines.json")
	if err != nil {
		t.Fatal(err)
	}
	var lines []struct {
		Area, Operation, Command, Note string
		Args, Flags                    []string
		Options                        map[string]string
	}
	if err := json.Unmarshal(raw, &lines); err != nil {
		t.Fatal(err)
	}
	if len(lines) < 40 {
		t.Errorf("%d lines", len(lines))
	}
	for _, l := range lines {
		if l.Command == "" {
			// The note names what is near: weir COMMAND, up to its first argument.
			words := strings.Fields(l.Note)
			if len(words) < 2 || words[0] != "weir" {
				t.Errorf("%s: the note does not begin with a command: %q", l.Operation, l.Note)
			} else if cmd, _, err := tree().Find(words[1:3]); err != nil || !cmd.HasParent() {
				t.Errorf("%s: %q names no command: %v", l.Operation, l.Note, err)
			}
			continue
		}
		args := strings.Fields(l.Command)
		for range l.Args {
			args = append(args, "1")
		}
		cmd, err := reads(append(args, l.Flags...))
		if err != nil || cmd != "weir "+l.Command {
			t.Errorf("%s: weir %s %s: %q, %v", l.Operation, strings.Join(args, " "), strings.Join(l.Flags, " "), cmd, err)
			continue
		}
		found, _, err := tree().Find(args)
		if err != nil {
			t.Fatal(err)
		}
		for path, option := range l.Options {
			if f := found.Flags().Lookup(strings.TrimPrefix(option, "--")); f == nil || f.NoOptDefVal != "" {
				t.Errorf("%s: weir %s has no option %s that takes %s", l.Operation, l.Command, option, path)
			}
		}
	}
}
