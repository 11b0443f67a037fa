// Package cli is the command line: one file per command. stdout carries data, stderr messages; the exit code says how it
// ended (Exit…).
package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"weir/config"
	"weir/model"
	"weir/operate"
)

// Exit codes.
const (
	ExitOK         = 0
	ExitFailed     = 1
	ExitUsage      = 2
	ExitConfig     = 3 // configuration invalid, or the root key is missing
	ExitNotRunning = 4
	ExitCheck      = 5 // a check did its work and found something
	ExitRefused    = 6 // the instance said no
	ExitConflict   = 7 // directory locked, or its data format is newer
)

// Version is the version of the binary; the build sets it.
var Version = "0.1.0-dev"

// IO is what a command reads and writes.
type IO struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Environ        []string
	// SystemConfig is the configuration file that a package has installed; it counts where it is there and nothing else is
	// named.
	SystemConfig string
	// Cancel is closed when the stop of an instance shall wait for nothing any more.
	Cancel <-chan struct{}
}

// Run runs a command line and returns its exit code.
func Run(ctx context.Context, args []string, stdio IO) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := &output{to: stdio.Stdout, gone: func() { cancel(errEnded) }} // what follows something ends with its reader
	stdio.Stdout = out
	c := &command{io: stdio, out: out}
	root := newRoot(c)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		c.completeTokens(root) // for the shell alone: it makes sets of flags for every command, a megabyte that an instance would keep
	}
	root.SetArgs(joined(root, args))
	root.SetIn(stdio.Stdin)
	root.SetOut(stdio.Stdout)
	root.SetErr(stdio.Stderr)
	at, err := root.ExecuteContextC(ctx)
	if err = out.ending(err); err == nil {
		return ExitOK
	}
	code := exitCode(err)
	c.report(err, code, hintOf(err, code, at.CommandPath()))
	return code
}

// command is what all commands share.
type command struct {
	io         IO
	out        *output // of io.Stdout
	configFile string
	dataDir    string
	set        []string // key=value
	json       bool
}

func newRoot(c *command) *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "A whole IoT platform in one binary",
		Long: "Weir receives readings over MQTT and HTTP, writes each to disk before it\n" +
			"acknowledges it, evaluates rules on it, and serves everything through GraphQL.\n" +
			"weir ledger shows the outcome of every message.\n\n" +
			"Start here: weir demo shows it at work; weir run starts an instance in ./weir-data\n" +
			"and prints a link to its setup page. weir man COMMAND prints a manual page; the\n" +
			"documentation begins at docs/README.md.",
		SilenceErrors: true, SilenceUsage: true,
	}
	// Not cobra's: its text is a template, and one template in the program costs an eighth of its size, see web/pages.go.
	version := root.Flags().BoolP("version", "v", false, "version for weir")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *version {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), Version)
			return err
		}
		return cmd.Help()
	}
	root.SetFlagErrorFunc(flagError)
	root.Args = unknownCommand
	root.PersistentPreRunE = namedPlaces
	f := root.PersistentFlags()
	f.StringVar(&c.configFile, "config", "", "configuration file, or its directory (default: $WEIR_CONFIG, else /etc/weir/weir.yaml if there)")
	f.StringVar(&c.dataDir, "data", "", "data directory; overrides data_dir (default: ./weir-data)")
	f.StringArrayVar(&c.set, "set", nil, "set a key of the configuration, `KEY=VALUE`; may be repeated")
	f.BoolVar(&c.json, "json", false, "write the answer as JSON")
	for i, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Start here", []*cobra.Command{newDemo(c), newRun(c), newInit(c)}},
		{"Tenants, devices, people", []*cobra.Command{newTenant(c), newDevice(c), newCredential(c), newType(c), newProfile(c), newRule(c), newAdmin(c), newSite(c), newGet(c), newDescribe(c)}},
		{"Messages and readings", []*cobra.Command{newSend(c), newTail(c), newSourceGroup(c), newLwM2MGroup(c), newArtifactGroup(c), newReadings(c), newFirings(c), newCommandGroup(c), newConnectorGroup(c), newNotifyGroup(c), newOutbox(c), newLedger(c), newAPI(c)}},
		{"The instance", []*cobra.Command{newStatus(c), newDoctor(c), newHealth(c), newReload(c), newConfig(c), newCert(c), newBackup(c), newEdgeGroup(c), newService(c), newAlerts(c), newBundle(c)}},
		{"This program", []*cobra.Command{newDocs(c), newCompletion(c), newMan(c), newVersion(c)}},
	} {
		id := strconv.Itoa(i)
		root.AddGroup(&cobra.Group{ID: id, Title: g.title + ":"})
		for _, cmd := range g.commands {
			cmd.GroupID = id
			root.AddCommand(cmd)
		}
	}
	root.SetHelpCommandGroupID("4")
	root.CompletionOptions.DisableDefaultCmd = true
	_ = root.RegisterFlagCompletionFunc("set", completeKeys) // fails only when it is registered twice
	return root
}

// namedPlaces refuses a flag that names nothing, as "$DIR" of a script does where it was not set: the default would be
// another directory than was meant.
func namedPlaces(cmd *cobra.Command, _ []string) error {
	for _, name := range []string{"data", "config"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return usageError{fmt.Errorf("--%s is empty", name)}
		}
	}
	return nil
}

// unknownCommand refuses what is no command of the root.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], root.CommandPath())
	if similar := similarCommands(root, args[0]); len(similar) > 0 {
		text += "\n\nDid you mean this?\n\t" + strings.Join(similar, "\n\t") + "\n"
	}
	return usageError{errors.New(text)}
}

// synonyms are words that people try first, by the name of the command that does it.
var synonyms = map[string][]string{
	"add": {"create", "new", "make"}, "create": {"add", "new", "make"}, "rm": {"delete", "remove", "del"}, "list": {"ls", "all"},
	"show": {"get", "describe", "info", "cat"}, "set": {"edit", "update", "change"}, "passwd": {"password", "reset"}, "send": {"publish", "post"},
	"tail": {"log", "logs", "watch"}, "run": {"start", "serve", "server"}, "firings": {"alarm", "alarms", "detections"},
	"api": {"graphql", "query", "gql"}, "readings": {"values", "measurements", "history", "export"}, "admin": {"user", "users", "account"},
	"site": {"plan", "apply"}, "man": {"manual"}, "docs": {"upgrade", "update", "changelog", "changes"}, "service": {"stop", "restart", "install"}, "type": {"types"}, "bundle": {"diagnostics", "support"},
}

// similarCommands are those below a command that a misspelt word may mean.
func similarCommands(under *cobra.Command, word string) []string {
	for _, cmd := range under.Commands() {
		cmd.SuggestFor = synonyms[cmd.Name()]
	}
	if under.SuggestionsMinimumDistance = 2; len(word) < 5 {
		under.SuggestionsMinimumDistance = 1 // two letters of four make another word
	}
	similar := under.SuggestionsFor(word)
	slices.Sort(similar)
	return slices.Compact(similar)
}

// subcommandOrNone are the arguments of a command that holds others: none of its own.
func subcommandOrNone(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("%s has no command %q", cmd.CommandPath(), args[0])
	if similar := similarCommands(cmd, args[0]); len(similar) > 0 {
		text += " (did you mean " + strings.Join(similar, " or ") + "?)"
	}
	return usageError{errors.New(text)}
}

// usageError is a command line that does not read.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// checkLimit refuses a --limit below 1 or over the most that may be listed.
func checkLimit(limit, most int) error {
	if limit < 1 || limit > most {
		return usageError{fmt.Errorf("--limit must be within 1..%d", most)}
	}
	return nil
}

// printMore says that a list shows a part of all.
func printMore(w io.Writer, shown int, total int64) {
	if int64(shown) < total {
		fmt.Fprintf(w, "%d of %d; more with --limit\n", shown, total)
	}
}

// checkError is what a check has found; it did its work.
type checkError struct {
	error
	hint string
}

func (e checkError) Unwrap() error { return e.error }

// exactly is cobra.ExactArgs with the exit code for usage errors and the names of missing arguments.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(names) == 0 {
			return usageError{fmt.Errorf("%s takes no argument, and here is %q", cmd.CommandPath(), args[0])}
		}
		if len(args) > len(names) {
			return usageError{fmt.Errorf("%s takes %s, not %d", cmd.CommandPath(), count(len(names), "argument"), len(args))}
		}
		return usageError{fmt.Errorf("%s: %s is missing", cmd.CommandPath(), names[len(args)])}
	}
}

// upTo takes none of the named arguments, or the first few.
func upTo(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > len(names) {
			return usageError{fmt.Errorf("%s takes at most %s, not %d", cmd.CommandPath(), count(len(names), "argument"), len(args))}
		}
		return nil
	}
}

// group is a command that only holds others.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Args: subcommandOrNone, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	g.AddCommand(subs...)
	return g
}

func exitCode(err error) int {
	if _, ok := errors.AsType[usageError](err); ok {
		return ExitUsage
	}
	if _, ok := errors.AsType[checkError](err); ok {
		return ExitCheck
	}
	if _, ok := config.AsProblems(err); ok {
		return ExitConfig
	}
	switch operate.FaultOf(err) {
	case operate.InvalidSite, operate.NoRootKey, operate.BadRootKey:
		return ExitConfig
	case operate.Locked, operate.NewerData, operate.NewerBackup:
		return ExitConflict
	case operate.NotRunning:
		return ExitNotRunning
	}
	if model.CodeOf(err) != "" {
		return ExitRefused
	}
	return ExitFailed
}

// hintOf is what the user may do about an error of the command at.
func hintOf(err error, code int, at string) string {
	if e, ok := errors.AsType[*model.Error](err); ok && e.Hint != "" {
		return e.Hint
	}
	if e, ok := errors.AsType[*outputError](err); ok {
		return e.hint()
	}
	if e, ok := errors.AsType[checkError](err); ok {
		return e.hint
	}
	if e, ok := errors.AsType[*operate.NotRunningError](err); ok {
		return e.Hint(operate.OtherInstances())
	}
	switch operate.FaultOf(err) {
	case operate.Locked:
		return "one process owns a data directory at a time: stop that one, or name another directory with --data"
	case operate.NoRootKey:
		return "what is sealed cannot be read without it: put the key back, or give it in WEIR_ROOT_KEY"
	case operate.NewerBackup:
		return "a newer Weir has made this backup: use that one, or a newer one"
	case operate.NewerData:
		return "a newer Weir has written this directory: run that one, or a newer one"
	}
	switch {
	case diskHint(err) != "":
		return diskHint(err)
	case code == ExitUsage:
		return at + " --help"
	case code == ExitNotRunning:
		return "start one with weir run, or name its directory with --data"
	}
	return ""
}

// hinted adds what to do about a refusal of this reason.
func hinted(err error, reason, hint string) error {
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Reason != reason || e.Hint != "" {
		return err
	}
	out := *e
	out.Hint = hint
	return &out
}

// report writes an error for people, or as JSON for programs.
func (c *command) report(err error, code int, hint string) {
	if !c.json {
		c.note("weir: %v", err)
		if hint != "" {
			c.note("hint: %s", hint)
		}
		return
	}
	m := map[string]any{"error": err.Error(), "exit": code}
	if hint != "" {
		m["hint"] = hint
	}
	if e, ok := errors.AsType[*model.Error](err); ok {
		m["code"] = e.Code
		if e.Reason != "" {
			m["reason"] = e.Reason
		}
		maps.Copy(m, e.Ext)
	}
	if ps, ok := config.AsProblems(err); ok {
		m["error"], m["problems"] = "the configuration is not valid", ps
	}
	if ps, ok := errors.AsType[operate.SiteProblems](err); ok {
		m["error"], m["problems"] = "the site file is not valid", ps
	}
	if ps, ok := operate.AsRuleProblems(err); ok {
		m["error"], m["problems"] = "the rules are not valid", ps
	}
	c.writeJSON(c.io.Stderr, m)
}

func (c *command) writeJSON(w io.Writer, v any) { writeIndented(w, v, "  ") }

// writeLine is writeJSON on one line, for streams.
func (c *command) writeLine(w io.Writer, v any) { writeIndented(w, v, "") }

func writeIndented(w io.Writer, v any, indent string) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if e.Encode(v) == nil { // all that is shown can be
		_, _ = io.WriteString(w, escaped(b.String())) // output keeps the error
	}
}

// note writes a message for people, apart from the data.
func (c *command) note(format string, args ...any) {
	_, _ = io.WriteString(c.io.Stderr, harmless(fmt.Sprintf(format, args...))+"\n") // the reader has gone
}

// show writes v as JSON when that was asked for, else lets text write it.
func (c *command) show(v any, text func(w io.Writer)) {
	if c.json {
		c.writeJSON(c.io.Stdout, v)
		return
	}
	var b bytes.Buffer
	text(&b)
	_, _ = io.WriteString(c.io.Stdout, harmless(b.String())) // output keeps the error
}

func (c *command) getenv(name string) string {
	for i := len(c.io.Environ) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(c.io.Environ[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// load reads the configuration that this command line names.
func (c *command) load() (*config.Config, error) {
	src, err := c.source()
	if err != nil {
		return nil, err
	}
	src.Asking = true
	return config.Load(src)
}

func (c *command) logger(l config.Logging) *slog.Logger {
	logger, _ := c.levelled(l)
	return logger
}

// levelled is a logger whose level may be changed.
func (c *command) levelled(l config.Logging) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	_ = level.UnmarshalText([]byte(l.Level)) // checked when it was loaded
	opt := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	if l.Format == "json" || l.Format == "auto" && !isTerminal(c.io.Stderr) {
		return slog.New(slog.NewJSONHandler(c.io.Stderr, opt)), level
	}
	return slog.New(slog.NewTextHandler(c.io.Stderr, opt)), level
}

// readable writes durations as people do, in JSON too, where they would be nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

func isTerminal(w io.Writer) bool {
	if o, ok := w.(*output); ok {
		w = o.Unwrap()
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
