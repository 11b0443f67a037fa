package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The command tree is described once, in the commands themselves; --help, the man pages and docs/cli.md are made from it.

// exitCodes is what the numbers mean, for every command.
var exitCodes = []struct {
	code int
	what string
}{
	{ExitOK, "It did what it was asked."},
	{ExitFailed, "It failed: a full disk, a port in use, a file that cannot be read."},
	{ExitUsage, "The command line does not read."},
	{ExitConfig, "The configuration is not valid, or the root key is missing or not fit."},
	{ExitNotRunning, "No instance runs, and the command needs one."},
	{ExitCheck, "A check did its work and found something."},
	{ExitRefused, "The instance said no: unknown, not unique, not valid."},
	{ExitConflict, "Another process has the data directory, or a newer Weir has written it."},
}

// variables are the environment, as far as commands look at it.
var variables = []struct{ name, what string }{
	{"WEIR_CONFIG", "The configuration file, where --config is not given."},
	{"WEIR_*", "Keys of the configuration: WEIR_LISTENERS_API is listeners.api."},
	{"WEIR_ROOT_KEY", "The root key itself, in base64, in place of its file."},
	{"WEIR_GRAPHQL_*", "Bounds and developer tools of the API."},
	{"GOMEMLIMIT", "The memory limit, in place of what is worked out from limits.memory."},
	{"GOGC", "How much garbage may gather, in percent of what is in use, in place of what follows from the load."},
	{"NO_COLOR", "Set: no colours. Only weir demo has any, and only on a terminal."},
}

// option is one option of a command, for a page about it.
type option struct {
	names string // -o, --output FILE
	usage string // with its default
}

// reachable are the commands of a tree that people may call, parents before their children.
func reachable(cmd *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{cmd}
	for _, sub := range children(cmd) {
		out = append(out, reachable(sub)...)
	}
	return out
}

func children(cmd *cobra.Command) []*cobra.Command {
	subs := slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return c.Hidden || c.Name() == "help" })
	slices.SortFunc(subs, func(a, b *cobra.Command) int { return cmp.Compare(a.Name(), b.Name()) })
	return subs
}

// options are the command's own options; the global ones belong to the root.
func options(cmd *cobra.Command) []option {
	var out []option
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || cmd.HasParent() && cmd.Root().PersistentFlags().Lookup(f.Name) != nil {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		names := "--" + f.Name
		if f.Shorthand != "" {
			names = "-" + f.Shorthand + ", " + names
		}
		if kind != "" {
			names += " " + strings.ToUpper(kind)
		}
		out = append(out, option{names, sentence(usage) + standard(f)})
	})
	return out
}

// standard adds an option's default where it says something and the text does not say it already.
func standard(f *pflag.Flag) string {
	if slices.Contains([]string{"", "0", "0s", "false", "[]"}, f.DefValue) || strings.Contains(f.Usage, "default") {
		return ""
	}
	return " Default: " + f.DefValue + "."
}

func sentence(s string) string {
	if s == "" {
		return ""
	}
	s = strings.ToUpper(s[:1]) + s[1:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

// paragraphs splits a long text. Lines of a paragraph are joined; one whose lines are indented is kept as it is.
func paragraphs(text string) []string {
	var out []string
	for p := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if !indented(p) {
			p = strings.Join(strings.Fields(p), " ")
		}
		out = append(out, p)
	}
	return out
}

func indented(paragraph string) bool { return strings.HasPrefix(paragraph, "  ") }

// synopsis is the line that says how a command is called.
func synopsis(cmd *cobra.Command) string {
	s := strings.TrimSuffix(cmd.UseLine(), " [flags]")
	if len(children(cmd)) > 0 && cmd.HasParent() && !cmd.HasLocalFlags() {
		return s + " COMMAND"
	}
	if !cmd.HasParent() {
		return s + " COMMAND"
	}
	if len(options(cmd)) > 0 {
		s += " [OPTION…]"
	}
	return s
}

// example is the example without the indent that --help wants.
func example(cmd *cobra.Command) string {
	lines := strings.Split(strings.Trim(cmd.Example, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

// withoutJSON are the commands for which --json changes nothing, and why.
var withoutJSON = map[string]string{
	"weir config schema": "the schema is JSON",
	"weir site schema":   "the schema is JSON",
	"weir source check":  "it shows what the broker says as it comes",
	"weir run":           "its answer is the instance; the log has logging.format",
	"weir completion":    "the script is for a shell",
	"weir man":           "the page is for man",
}

// jsonShape is what all answers in JSON have in common.
const jsonShape = "- The answer is one object. A list is a named array in it, with `total` where the number of all elements is known\n" +
	"  (`{\"total\": 2, \"tenants\": [\u2026]}`). `weir tail`, `weir send`, `weir firings --follow` and `weir demo` write an object on each line.\n" +
	"- Keys are camelCase. Only the keys of the configuration (`config show`) are written as in its file, and the metrics' own names in\n" +
	"  `status` (`removed`) as in `/metrics`.\n" +
	"- Outcomes, reasons and other fixed values are written as the options take them: `dead-letter`, `bad-credential`, `series_limit`.\n" +
	"- Times are RFC 3339. A message has `occurredTime` (of the device), `receivedTime` and, where it was moved, `storedTime`; what people make has\n" +
	"  `createdAt` and `updatedAt`; what the instance did has `at`.\n" +
	"- An error is an object on stderr: `error`, `exit` (the exit code), `code` (as in [the API](api.md#errors)), `hint`, `problems`.\n" +
	"- `weir site export` has the file as a text in `yaml`.\n"

// writeReference writes docs/cli.md.
func writeReference(w io.Writer, root *cobra.Command) {
	fmt.Fprint(w, "# Command line\n\nMade from the commands themselves by `make generate`; `weir COMMAND --help` says the same.\n\n"+
		"stdout is data, stderr is messages. Nothing is coloured in a pipe, and no line is cut to the width of a terminal.\n"+
		"Every command answers in JSON with `--json`, errors included:\n\n"+jsonShape+"\nFor these `--json` changes nothing:\n\n")
	for _, cmd := range reachable(root) {
		if why, ok := withoutJSON[cmd.CommandPath()]; ok {
			fmt.Fprintf(w, "- `%s`: %s\n", cmd.CommandPath(), why)
		}
	}
	fmt.Fprint(w, "\n| command | what it does |\n|---|---|\n")
	for _, cmd := range reachable(root)[1:] {
		fmt.Fprintf(w, "| [`%s`](#%s) | %s |\n", cmd.CommandPath(), strings.ReplaceAll(cmd.CommandPath(), " ", "-"), cell(cmd.Short))
	}
	fmt.Fprint(w, "\n## Exit codes\n\n| code | meaning |\n|---|---|\n")
	for _, e := range exitCodes {
		fmt.Fprintf(w, "| %d | %s |\n", e.code, e.what)
	}
	fmt.Fprint(w, "\n## Options of every command\n\n")
	writeOptions(w, root)
	fmt.Fprint(w, "\n## Environment\n\nAll of it is described in [configuration.md](configuration.md).\n\n| variable | meaning |\n|---|---|\n")
	for _, v := range variables {
		fmt.Fprintf(w, "| `%s` | %s |\n", v.name, cell(v.what))
	}
	for _, cmd := range reachable(root)[1:] {
		writeCommand(w, cmd)
	}
}

func writeCommand(w io.Writer, cmd *cobra.Command) {
	fmt.Fprintf(w, "\n## %s\n\n%s.\n\n```text\n%s\n```\n", cmd.CommandPath(), cmd.Short, synopsis(cmd))
	if cmd.Long != "" {
		for _, p := range paragraphs(cmd.Long) {
			if indented(p) {
				p = "```text\n" + p + "\n```"
			}
			fmt.Fprintf(w, "\n%s\n", p)
		}
	}
	if subs := children(cmd); len(subs) > 0 {
		fmt.Fprint(w, "\n")
		for _, s := range subs {
			fmt.Fprintf(w, "- [`%s`](#%s): %s\n", s.CommandPath(), strings.ReplaceAll(s.CommandPath(), " ", "-"), s.Short)
		}
	}
	if len(options(cmd)) > 0 {
		fmt.Fprint(w, "\n")
		writeOptions(w, cmd)
	}
	if cmd.Example != "" {
		fmt.Fprintf(w, "\n```console\n%s\n```\n", example(cmd))
	}
}

func writeOptions(w io.Writer, cmd *cobra.Command) {
	fmt.Fprint(w, "| option | meaning |\n|---|---|\n")
	for _, o := range options(cmd) {
		fmt.Fprintf(w, "| `%s` | %s |\n", o.names, cell(o.usage))
	}
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
