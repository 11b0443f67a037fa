package admin

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"weir/gql/engine"
	"weir/internal/logring"
	"weir/model"
	"weir/store"
)

// Backups makes copies of the instance; it is that of weir backup list.
type Backups interface {
	List() (*BackupState, error)
	Create() error
	Verify(name string) error
	Delete(name string) error
	// Link returns a path below the address of the API that is valid once.
	Link(name string) (path string, expires time.Time, err error)
}

// BackupState is the backup directory and what is done there.
type BackupState struct {
	Directory string         `gql:"directory"`
	Every     *float64       `gql:"everySeconds"`
	Keep      int            `gql:"keep"`
	Next      *model.Micros  `gql:"nextTime"`
	Running   *BackupRun     `gql:"running"`
	Failure   *BackupFailure `gql:"failure"`
	Files     []BackupFile   `gql:"files"`
	Unlisted  int            `gql:"unlisted"`
}

// BackupRun is a backup that is being made or verified.
type BackupRun struct {
	What    string       `gql:"what"`
	Name    string       `gql:"name"`
	Started model.Micros `gql:"startedTime"`
	Done    int64        `gql:"doneBytes"`
	Bytes   int64        `gql:"bytes"`
}

// BackupFailure is an attempt that failed.
type BackupFailure struct {
	At   model.Micros `gql:"time"`
	What string       `gql:"what"`
	Name string       `gql:"name"`
	Text string       `gql:"text"`
}

// BackupFile is a file of the backup directory.
type BackupFile struct {
	Name      string              `gql:"name"`
	Bytes     int64               `gql:"bytes"`
	Modified  model.Micros        `gql:"modifiedTime"`
	Scheduled bool                `gql:"scheduled"`
	Verified  *BackupVerification `gql:"verification"`
}

// BackupVerification is what a verification has found.
type BackupVerification struct {
	At         model.Micros  `gql:"time"`
	Restorable bool          `gql:"restorable"`
	Findings   []string      `gql:"findings"`
	Instance   *string       `gql:"instanceId"`
	Version    *string       `gql:"version"`
	Created    *model.Micros `gql:"createdTime"`
	RootKey    *string       `gql:"rootKeyId"`
	HasRootKey bool          `gql:"rootKeyIncluded"`
	Tenants    int64         `gql:"tenants"`
	Devices    int64         `gql:"devices"`
	Messages   int64         `gql:"messages"`
}

type backupLink struct {
	Path    string       `gql:"path"`
	Expires model.Micros `gql:"expiresTime"`
}

// registerBackups registers what the settings plane does with backups.
func (r *resolvers) registerBackups() {
	r.area.Types(map[string]any{"Backups": BackupState{}, "BackupRun": BackupRun{}, "BackupFailure": BackupFailure{}, "BackupFile": BackupFile{},
		"BackupVerification": BackupVerification{}, "BackupLink": backupLink{}})
	r.query("backups", model.SettingsRead, func(context.Context, *model.Principal, engine.Args) (any, error) { return r.listBackups() })
	r.mutation("createBackup", model.SettingsWrite, func(ctx context.Context, by *model.Principal, _ engine.Args) (any, error) {
		return r.inBackups(ctx, by, store.AuditCreate, "", func() error { return r.Instance.Backups.Create() })
	})
	r.mutation("verifyBackup", model.SettingsWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		name := args.String("name")
		return r.inBackups(ctx, by, store.AuditUpdate, name, func() error { return r.Instance.Backups.Verify(name) })
	})
	r.mutation("deleteBackup", model.SettingsWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		name := args.String("name")
		return r.inBackups(ctx, by, store.AuditDelete, name, func() error { return r.Instance.Backups.Delete(name) })
	})
	r.mutation("backupLink", model.SettingsWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		if !by.Sudo && by.Kind != model.LocalOperator {
			return nil, model.Errorf(model.CodeForbidden, "forbidden: a superuser is required: a backup holds the data of every tenant")
		}
		if r.Instance.Backups == nil {
			return nil, notRunning()
		}
		name := args.String("name")
		path, expires, err := r.Instance.Backups.Link(name)
		if err != nil {
			return nil, err
		}
		// Without its line in the journal nothing leaves.
		return backupLink{path, model.MicrosOf(expires)}, r.note(ctx, by, "download", "backups", name)
	})
}

func (r *resolvers) listBackups() (any, error) {
	if r.Instance.Backups == nil {
		return nil, notRunning()
	}
	return r.Instance.Backups.List()
}

// inBackups does something in the backup directory, notes it in the journal and returns what is there.
func (r *resolvers) inBackups(ctx context.Context, by *model.Principal, operation, name string, do func() error) (any, error) {
	if r.Instance.Backups == nil {
		return nil, notRunning()
	}
	if err := do(); err != nil {
		return nil, err
	}
	if err := r.note(ctx, by, operation, "backups", name); err != nil {
		return nil, err
	}
	return r.listBackups()
}

// note writes a line of the journal about something that is no row.
func (r *resolvers) note(ctx context.Context, by *model.Principal, operation, table, label string) error {
	return r.Writer.Mutate(ctx, by, func(c *store.Change) error {
		return c.Audit(store.AuditEvent{Category: store.AuditMutation, Operation: operation, Table: table, Label: label, Rows: 1})
	})
}

// Bounds of a look at the log of the instance, and of a level that a component has of its own.
const (
	logLines       = 200
	maxLogLines    = 1000
	maxLogText     = 200
	levelMinutes   = 15
	maxLevelMinute = 240
)

type logLine struct {
	ID        string       `gql:"id"`
	Time      model.Micros `gql:"time"`
	Level     string       `gql:"level"`
	Component string       `gql:"component"`
	Message   string       `gql:"message"`
	Detail    string       `gql:"detail"`
}

type logLevel struct {
	Component string       `gql:"component"`
	Level     string       `gql:"level"`
	Until     model.Micros `gql:"untilTime"`
}

type instanceLog struct {
	Lines      []logLine  `gql:"lines"`
	Next       string     `gql:"next"`
	Missed     int64      `gql:"missed"`
	Components []string   `gql:"components"`
	Levels     []logLevel `gql:"levels"`
}

// registerLog registers the log of the instance.
func (r *resolvers) registerLog() {
	r.area.Types(map[string]any{"InstanceLog": instanceLog{}, "LogLine": logLine{}, "LogLevel": logLevel{}})
	r.query("instanceLog", model.SettingsRead, func(_ context.Context, _ *model.Principal, args engine.Args) (any, error) {
		q, err := logQuery(args)
		if err != nil {
			return nil, err
		}
		if r.Instance.Log == nil {
			return nil, notRunning()
		}
		return showLog(r.Instance.Log.Find(q), r.Instance.Log.Overrides()), nil
	})
	r.mutation("setLogLevel", model.SettingsWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		component, minutes := args.String("component"), levelMinutes
		if args.Has("minutes") && !args.IsNull("minutes") {
			minutes = args.Int("minutes")
		}
		level, err := levelOf(args.String("level"))
		switch {
		case err != nil:
			return nil, err
		case component == "" || len(component) > maxLogText:
			return nil, model.Invalid("component", "must be a component that instanceLog names")
		case minutes < 0 || minutes > maxLevelMinute:
			return nil, model.Invalid("minutes", "must lie in 0..%d", maxLevelMinute)
		}
		if r.Instance.Log == nil {
			return nil, notRunning()
		}
		if err := r.note(ctx, by, store.AuditUpdate, "log_levels", component); err != nil {
			return nil, err
		}
		if !r.Instance.Log.SetLevel(component, level, r.Instance.Now().Add(time.Duration(minutes)*time.Minute)) {
			return nil, model.Errorf(model.CodeLimitExceeded, "%d components have a level of their own, which is the maximum; end one of them with minutes: 0", logring.MaxOverrides)
		}
		return showLevels(r.Instance.Log.Overrides()), nil
	})
}

func logQuery(args engine.Args) (q logring.Query, err error) {
	q = logring.Query{Component: args.String("component"), Contains: args.String("contains"), Limit: logLines, Level: slog.LevelDebug}
	if args.Has("limit") && !args.IsNull("limit") {
		q.Limit = args.Int("limit")
	}
	if after := args.String("after"); after != "" {
		if q.After, err = strconv.ParseUint(after, 10, 64); err != nil {
			return q, model.Invalid("after", "%.40q is not the next of an answer", after)
		}
	}
	if level := args.String("level"); level != "" {
		if q.Level, err = levelOf(level); err != nil {
			return q, err
		}
	}
	switch {
	case q.Limit < 1 || q.Limit > maxLogLines:
		err = model.Invalid("limit", "must lie in 1..%d", maxLogLines)
	case len(q.Component) > maxLogText:
		err = model.OverLimit("component", "more than 200 bytes")
	case len(q.Contains) > maxLogText:
		err = model.OverLimit("contains", "more than 200 bytes")
	}
	return q, err
}

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

func levelOf(word string) (slog.Level, error) {
	level, known := levels[word]
	if !known {
		return 0, model.Invalid("level", "%.40q is none of debug, info, warn, error", word)
	}
	return level, nil
}

func levelWord(l slog.Level) string {
	switch {
	case l < slog.LevelInfo:
		return "debug"
	case l < slog.LevelWarn:
		return "info"
	case l < slog.LevelError:
		return "warn"
	}
	return "error"
}

func showLog(f logring.Found, all []logring.Override) instanceLog {
	out := instanceLog{Lines: make([]logLine, len(f.Lines)), Next: strconv.FormatUint(f.Next, 10), Missed: int64(min(f.Missed, 1<<31-1)), Components: f.Components, Levels: showLevels(all)}
	for i, l := range f.Lines {
		out.Lines[i] = logLine{strconv.FormatUint(l.ID, 10), model.MicrosOf(l.Time), levelWord(l.Level), l.Component, l.Message, l.Detail}
	}
	return out
}

func showLevels(all []logring.Override) []logLevel {
	out := make([]logLevel, len(all))
	for i, o := range all {
		out[i] = logLevel{o.Component, levelWord(o.Level), model.MicrosOf(o.Until)}
	}
	return out
}

// Recounts recounts the ledger; it is that of weir ledger verify.
type Recounts interface {
	Start() error
	Last() *LedgerVerification // nil: there was none since the start
}

// LedgerVerification is a recount that runs, or the last one.
type LedgerVerification struct {
	Started  model.Micros      `gql:"startedTime"`
	Ended    *model.Micros     `gql:"endedTime"`
	Done     int64             `gql:"doneRows"`
	Rows     int64             `gql:"rows"`
	Balanced *bool             `gql:"balanced"`
	Error    *string           `gql:"error"`
	Hours    int               `gql:"hours"`
	Messages int64             `gql:"messages"`
	Readings int64             `gql:"readings"`
	Waiting  int64             `gql:"waiting"`
	Wrongs   []LedgerImbalance `gql:"imbalances"`
	Unlisted int               `gql:"unlisted"`
}

// LedgerImbalance is one thing that does not balance.
type LedgerImbalance struct {
	Kind      string  `gql:"kind"`
	Tenant    *string `gql:"tenant"`
	Transport *string `gql:"transport"`
	Hour      *string `gql:"hour"`
	Messages  int64   `gql:"messages"`
	Readings  int64   `gql:"readings"`
	Text      string  `gql:"text"`
}

// registerRecounts registers the recount of the ledger.
func (r *resolvers) registerRecounts() {
	r.area.Types(map[string]any{"LedgerVerification": LedgerVerification{}, "LedgerImbalance": LedgerImbalance{}})
	last := func() (any, error) {
		if r.Instance.Recounts == nil {
			return nil, notRunning()
		}
		if v := r.Instance.Recounts.Last(); v != nil {
			return v, nil
		}
		return nil, nil
	}
	r.query("ledgerVerification", model.SettingsRead, func(context.Context, *model.Principal, engine.Args) (any, error) { return last() })
	r.mutation("verifyLedger", model.SettingsWrite, func(ctx context.Context, by *model.Principal, _ engine.Args) (any, error) {
		if r.Instance.Recounts == nil {
			return nil, notRunning()
		}
		if err := r.note(ctx, by, store.AuditUpdate, "ledger", ""); err != nil {
			return nil, err
		}
		if err := r.Instance.Recounts.Start(); err != nil {
			return nil, err
		}
		return last()
	})
}

// ConfigurationCheck is what is wrong with a text as the file of the configuration, and what it would change.
type ConfigurationCheck struct {
	Problems []ConfigurationProblem `gql:"problems"`
	Warnings []ConfigurationProblem `gql:"warnings"`
	Changes  []ConfigurationChange  `gql:"changes"`
}

// ConfigurationProblem is one mistake, or one thing to think over.
type ConfigurationProblem struct {
	Line   *int    `gql:"line"`
	Column *int    `gql:"column"`
	File   *string `gql:"file"`
	Key    *string `gql:"key"`
	Reason string  `gql:"reason"`
	Hint   *string `gql:"hint"`
}

// ConfigurationChange is a key that would get another value.
type ConfigurationChange struct {
	Key    string `gql:"key"`
	From   string `gql:"from"`
	To     string `gql:"to"`
	Reload bool   `gql:"reload"`
}

// maxConfiguration bounds a text that is checked: that of a file of the configuration.
const maxConfiguration = 256 << 10

// UnauthenticatedSender is a sender that no credential, device or tenant stands for.
type UnauthenticatedSender struct {
	First     model.Micros `gql:"firstTime"`
	Last      model.Micros `gql:"lastTime"`
	Count     int64        `gql:"count"`
	Transport string       `gql:"transport"`
	Tenant    *string      `gql:"tenant"`
	Device    *string      `gql:"device"`
	Reason    string       `gql:"reason"`
	Detail    *string      `gql:"detail"`
}

// registerLooks registers what is only looked at.
func (r *resolvers) registerLooks() {
	r.area.Types(map[string]any{"ConfigurationCheck": ConfigurationCheck{}, "ConfigurationProblem": ConfigurationProblem{}, "ConfigurationChange": ConfigurationChange{},
		"UnauthenticatedSender": UnauthenticatedSender{}})
	r.query("checkConfiguration", model.SettingsRead, func(_ context.Context, _ *model.Principal, args engine.Args) (any, error) {
		text := args.String("text")
		if len(text) > maxConfiguration {
			return nil, model.OverLimit("text", "more than 256 KiB")
		}
		if r.Instance.CheckConfiguration == nil {
			return nil, notRunning()
		}
		return r.Instance.CheckConfiguration(text), nil
	})
	r.query("strangers", model.SettingsRead, func(context.Context, *model.Principal, engine.Args) (any, error) {
		if r.Instance.Unauthenticated == nil {
			return nil, notRunning()
		}
		return r.Instance.Unauthenticated(), nil
	})
}
