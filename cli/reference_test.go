package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/internal/test/made"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const referencePath = "../docs/cli.md"

func tree() *cobra.Command { return newRoot(&command{}) }

// answering is every command that does something itself, not only holds others.
func answering(root *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(reachable(root), func(c *cobra.Command) bool { return !c.HasParent() || isGroup(c) })
}

func isGroup(c *cobra.Command) bool { return len(children(c)) > 0 && len(options(c)) == 0 }

func TestTheCLIReferenceSaysWhatTheCommandsAre(t *testing.T) {
	t.Parallel()
	var page bytes.Buffer
	writeReference(&page, tree())
	made.File(t, referencePath, page.Bytes(), "make generate")
}

func TestEveryCommandSaysWhatItIsFor(t *testing.T) {
	t.Parallel()
	root := tree()
	for _, cmd := range reachable(root) {
		at := cmd.CommandPath()
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") || len(cmd.Short) > 72 {
			t.Errorf("%s: Short is %q: a line without a full stop, at most 72 characters", at, cmd.Short)
		}
		if cmd.HasParent() && len(options(cmd)) > 0 && cmd.Long == "" {
			t.Errorf("%s has options and no Long", at)
		}
		for line := range strings.SplitSeq(cmd.Long+"\n"+cmd.Example, "\n") {
			if n := len([]rune(line)); n > 132 || strings.ContainsAny(line, "\t\x1b") || strings.TrimRight(line, " ") != line {
				t.Errorf("%s: a line of %d characters, with a tab or with spaces at its end: %q", at, n, line)
			}
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" || strings.HasSuffix(f.Usage, ".") {
				t.Errorf("%s --%s: its text is %q: something, without a full stop", at, f.Name, f.Usage)
			}
		})
	}
	for _, cmd := range answering(root) {
		if cmd.Example == "" {
			t.Errorf("%s has no Example", cmd.CommandPath())
		}
	}
}

// TestEveryExampleIsACommandLineThatReads holds the examples against the commands themselves: words, options, arguments.
func TestEveryExampleIsACommandLineThatReads(t *testing.T) {
	t.Parallel()
	for _, cmd := range reachable(tree()) {
		if cmd.Example == "" {
			continue
		}
		own := false
		for _, args := range invocations(cmd.Example) {
			found, err := reads(args)
			if err != nil {
				t.Errorf("%s: the example weir %s does not read: %v", cmd.CommandPath(), strings.Join(args, " "), err)
				continue
			}
			own = own || found == cmd.CommandPath()
		}
		if !own {
			t.Errorf("%s: no example shows the command itself", cmd.CommandPath())
		}
	}
}

// reads parses a command line without running it and returns the command that it calls.
func reads(args []string) (string, error) {
	cmd, rest, err := tree().Find(args)
	if err != nil {
		return "", err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return "", err
	}
	return cmd.CommandPath(), cmd.ValidateArgs(cmd.Flags().Args())
}

var shellWord = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)

// invocations takes the calls of weir out of lines for a shell.
func invocations(example string) (calls [][]string) {
	example = strings.ReplaceAll(example, "\\\n", " ")
	for line := range strings.SplitSeq(example, "\n") {
		var words []string
		flush := func() {
			if len(words) > 1 && words[0] == "weir" {
				calls = append(calls, words[1:])
			}
			words = nil
		}
		skip := false
		for _, w := range shellWord.FindAllString(line, -1) {
			switch {
			case w == "|" || w == "&&" || w == ";":
				flush()
				skip = false
			case w == "#":
				skip = true
			case w == ">" || w == "<" || w == "2>":
				skip = true // what follows is a file
			case !skip:
				words = append(words, strings.Trim(w, `'"`))
			}
		}
		flush()
	}
	return calls
}

func TestExamplesAreTakenApartAsAShellWould(t *testing.T) {
	t.Parallel()
	got := invocations("  printf %s \"$P\" | weir admin create a@b --password-file - > out && weir status\n  weir tenant create x --name 'A B' # comment")
	want := [][]string{{"admin", "create", "a@b", "--password-file", "-"}, {"status"}, {"tenant", "create", "x", "--name", "A B"}}
	if len(got) != len(want) {
		t.Fatalf("%q", got)
	}
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("%q, not %q", got[i], want[i])
		}
	}
	for _, bad := range [][]string{{"tenant", "create"}, {"status", "--bogus"}, {"bogus"}} {
		if _, err := reads(bad); err == nil {
			t.Errorf("%q reads", bad)
		}
	}
}

// TestEveryAnswerIsShownAsJSON asks for a script that runs each command with --json, but for those that withoutJSON names.
func TestEveryAnswerIsShownAsJSON(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob(filepath.Join("testdata", "script", "*.txtar"))
	if err != nil || len(scripts) == 0 {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, s := range scripts {
		b, err := os.ReadFile(s)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	known := map[string]bool{}
	for _, cmd := range answering(tree()) {
		at := cmd.CommandPath()
		known[at] = true
		shown := regexp.MustCompile(`(?m)^.*` + regexp.QuoteMeta(at) + `( .*)? --json\b`).MatchString(all.String())
		if _, exempt := withoutJSON[at]; !exempt && !shown {
			t.Errorf("no script runs %s with --json; one that has no data to show is named in withoutJSON, with the reason", at)
		}
	}
	for at := range withoutJSON {
		if !known[at] {
			t.Errorf("withoutJSON names %s, which is no command", at)
		}
	}
}

func TestEveryExitCodeIsExplained(t *testing.T) {
	t.Parallel()
	for i, e := range exitCodes {
		if e.code != i || e.what == "" {
			t.Errorf("%d: %+v", i, e)
		}
	}
	if len(exitCodes) != ExitConflict+1 {
		t.Errorf("%d codes", len(exitCodes))
	}
}

func TestTheManPagesAreGoodRoff(t *testing.T) {
	t.Parallel()
	groff, err := exec.LookPath("groff")
	for _, cmd := range reachable(tree()) {
		page := manPage(cmd)
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "'") || strings.Contains(line, "\t") {
				t.Errorf("%s: %q is a request without a purpose", cmd.CommandPath(), line)
			}
			if strings.IndexFunc(line, func(r rune) bool { return r > 126 }) >= 0 {
				t.Errorf("%s: %q is not ASCII: add what it holds to roffEscapes", cmd.CommandPath(), line)
			}
		}
		for _, section := range []string{".TH ", ".SH NAME\n", ".SH SYNOPSIS\n", ".SH EXIT STATUS\n", ".SH ENVIRONMENT\n"} {
			if !strings.Contains(page, section) {
				t.Errorf("%s: %s is missing", cmd.CommandPath(), section)
			}
		}
		if err == nil {
			render := exec.Command(groff, "-man", "-Tascii", "-ww", "-z")
			render.Stdin = strings.NewReader(page)
			if said, err := render.CombinedOutput(); err != nil || len(said) > 0 {
				t.Errorf("%s: %v %s", cmd.CommandPath(), err, said)
			}
		}
	}
}

func TestALineOfTextIsNeverARequest(t *testing.T) {
	t.Parallel()
	p := &roff{}
	p.paragraph("'tis .B a\\trap -x…")
	p.item(".conf", ".hidden")
	p.verbatim("  .TH\n  'x")
	want := ".PP\n\\&'tis .B a\\etrap \\-x\\&...\n.TP\n.B .conf\n\\&.hidden\n.PP\n.nf\n  .TH\n  'x\n.fi\n"
	if p.out.String() != want {
		t.Errorf("%q\n%q", p.out.String(), want)
	}
}
