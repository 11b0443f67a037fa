// Package cli is the command line: one file per command. stdout carries data, stderr messages; the exit code says how it
// ended (Exit…).
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"weir/app"
	"weir/config"
	"weir/internal/dirlock"
	"weir/internal/rootkey"
	"weir/model"
	"weir/spool"
	"weir/store"
)

// Exit codes.
const (
	ExitOK         = 0
	ExitFailed     = 1
	ExitUsage      = 2
	ExitConfig     = 3 // configuration invalid, or the root key is missing
	ExitNotRunning = 4
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
	// Hurry is closed when the stop of an instance shall wait for nothing any more.
	Hurry <-chan struct{}
}

// Run runs a command line and returns its exit code.
func Run(ctx context.Context, args []string, stdio IO) int {
	c := &command{io: stdio}
	root := c.root()
	root.SetArgs(args)
	root.SetIn(stdio.Stdin)
	root.SetOut(stdio.Stdout)
	root.SetErr(stdio.Stderr)
	at, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	code := exitCode(err)
	c.tell(err, code, hintOf(err, code, at.CommandPath()))
	return code
}

// command is what all commands share.
type command struct {
	io         IO
	configFile string
	dataDir    string
	json       bool
}

func (c *command) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "A whole IoT platform in one binary",
		Long: "Weir takes readings in over MQTT and HTTP, keeps each on disk before it acknowledges it, judges them by rules,\n" +
			"and shows everything through GraphQL. Nothing vanishes silently: see weir ledger.",
		Version: Version, SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := root.PersistentFlags()
	f.StringVar(&c.configFile, "config", "", "configuration file (default: $WEIR_CONFIG, else none)")
	f.StringVar(&c.dataDir, "data", "", "data directory; overrides data_dir (default: ./weir-data)")
	f.BoolVar(&c.json, "json", false, "write the answer as JSON")
	root.AddCommand(c.run(), c.demo(), c.admin(), c.tenant(), c.device(), c.status(), c.ledger(), c.config(), c.version())
	root.CompletionOptions.DisableDefaultCmd = true
	return root
}

// usageError is a command line that does not read.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exactly is cobra.ExactArgs with our exit code and the names of what is missing.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(args) > len(names) {
			return usageError{fmt.Errorf("%s takes %d arguments, not %d", cmd.CommandPath(), len(names), len(args))}
		}
		return usageError{fmt.Errorf("%s: %s is missing", cmd.CommandPath(), names[len(args)])}
	}
}

// group is a command that only holds others.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Args: func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usageError{fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0])}
		}
		return nil
	}, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	g.AddCommand(subs...)
	return g
}

func exitCode(err error) int {
	if _, ok := errors.AsType[usageError](err); ok || strings.HasPrefix(err.Error(), "unknown command") {
		return ExitUsage
	}
	if _, ok := config.AsProblems(err); ok {
		return ExitConfig
	}
	if _, ok := errors.AsType[*rootkey.MissingError](err); ok {
		return ExitConfig
	}
	if _, ok := errors.AsType[*dirlock.LockedError](err); ok {
		return ExitConflict
	}
	switch {
	case errors.Is(err, store.ErrVersion), errors.Is(err, spool.ErrVersion):
		return ExitConflict
	case errors.Is(err, app.ErrNotRunning):
		return ExitNotRunning
	case errors.Is(err, rootkey.ErrMalformed), errors.Is(err, rootkey.ErrExposed):
		return ExitConfig
	}
	if model.CodeOf(err) != "" {
		return ExitRefused
	}
	return ExitFailed
}

// hintOf is what somebody may do about an error of the command at.
func hintOf(err error, code int, at string) string {
	if e, ok := errors.AsType[*model.Error](err); ok && e.Hint != "" {
		return e.Hint
	}
	if _, ok := errors.AsType[*dirlock.LockedError](err); ok {
		return "one process owns a data directory at a time: stop that one, or name another directory with --data"
	}
	if _, ok := errors.AsType[*rootkey.MissingError](err); ok {
		return "what is sealed cannot be read without it: put the key back, or give it in WEIR_ROOT_KEY"
	}
	switch {
	case errors.Is(err, store.ErrVersion), errors.Is(err, spool.ErrVersion):
		return "a newer Weir has written this directory: run that one, or a newer one"
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
	told := *e
	told.Hint = hint
	return &told
}

// tell writes an error for people, or as JSON for programs.
func (c *command) tell(err error, code int, hint string) {
	if !c.json {
		fmt.Fprintf(c.io.Stderr, "weir: %v\n", err)
		if hint != "" {
			fmt.Fprintf(c.io.Stderr, "hint: %s\n", hint)
		}
		return
	}
	m := map[string]any{"error": err.Error(), "exit": code}
	if hint != "" {
		m["hint"] = hint
	}
	if e, ok := errors.AsType[*model.Error](err); ok {
		m["code"] = e.Code
	}
	if ps, ok := config.AsProblems(err); ok {
		m["error"], m["problems"] = "the configuration is not valid", ps
	}
	c.writeJSON(c.io.Stderr, m)
}

func (c *command) writeJSON(w io.Writer, v any) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // whoever reads has gone
}

// writeLine is writeJSON on one line, for streams.
func (c *command) writeLine(w io.Writer, v any) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // whoever reads has gone
}

// show writes v as JSON when that was asked for, else lets text write it.
func (c *command) show(v any, text func(w io.Writer)) {
	if c.json {
		c.writeJSON(c.io.Stdout, v)
		return
	}
	text(c.io.Stdout)
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
	file := c.configFile
	if file == "" {
		file = c.getenv("WEIR_CONFIG")
	}
	cfg, err := config.Load(config.Source{File: file, Environ: c.io.Environ})
	if err != nil {
		if pe, ok := errors.AsType[*fs.PathError](err); ok { // the file itself cannot be read
			return nil, config.Problems{{File: file, Reason: pe.Err.Error(), Hint: "weir runs without a file, too: leave --config and WEIR_CONFIG out"}}
		}
		return nil, err
	}
	if c.dataDir != "" {
		cfg.DataDir = c.dataDir
	}
	return cfg, nil
}

// operator reaches the instance of the data directory: over its socket when it runs, else on the store itself.
func (c *command) operator(ctx context.Context) (app.Operator, error) {
	cfg, err := c.load()
	if err != nil {
		return nil, err
	}
	client, err := app.Dial(ctx, *cfg)
	if err == nil {
		return client, nil
	}
	if !errors.Is(err, app.ErrNotRunning) {
		return nil, err
	}
	return app.Offline(ctx, *cfg, c.getenv, c.logger(cfg.Logging))
}

// client reaches a running instance.
func (c *command) client(ctx context.Context) (*app.Client, error) {
	cfg, err := c.load()
	if err != nil {
		return nil, err
	}
	return app.Dial(ctx, *cfg)
}

func (c *command) logger(l config.Logging) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level)) // checked when it was loaded
	opt := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	if l.Format == "json" || l.Format == "auto" && !isTerminal(c.io.Stderr) {
		return slog.New(slog.NewJSONHandler(c.io.Stderr, opt))
	}
	return slog.New(slog.NewTextHandler(c.io.Stderr, opt))
}

// readable writes durations as people do, in JSON too, where they would be nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
