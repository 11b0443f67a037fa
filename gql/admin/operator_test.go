package admin_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weir/auth"
	"weir/gql/admin"
	"weir/internal/logring"
	"weir/model"
)

// fakeBackups is a backup directory without files.
type fakeBackups struct {
	done []string
	now  func() time.Time
}

func (f *fakeBackups) List() (*admin.BackupState, error) {
	return &admin.BackupState{Directory: "/backups", Keep: 7, Files: []admin.BackupFile{}}, nil
}

func (f *fakeBackups) Create() error { f.done = append(f.done, "create"); return nil }

func (f *fakeBackups) Verify(name string) error { return f.named("verify", name) }

func (f *fakeBackups) Delete(name string) error { return f.named("delete", name) }

func (f *fakeBackups) named(what, name string) error {
	if name != "a.backup" {
		return model.NotFound("backup", name)
	}
	f.done = append(f.done, what)
	return nil
}

func (f *fakeBackups) Link(name string) (string, time.Time, error) {
	return "download/ticket", f.now().Add(time.Minute), f.named("link", name)
}

// fakeRecounts has at most one recount.
type fakeRecounts struct{ begun int }

func (f *fakeRecounts) Start() error {
	if f.begun++; f.begun > 1 {
		return model.Errorf(model.CodeUnavailable, "a recount is under way already")
	}
	return nil
}

func (f *fakeRecounts) Last() *admin.LedgerVerification {
	if f.begun == 0 {
		return nil
	}
	return &admin.LedgerVerification{Done: 3, Rows: 1 << 40, Wrongs: []admin.LedgerImbalance{}}
}

// What changes something of the instance is journalled with its name, what is refused is not; a backup leaves with a superuser alone.
func TestBackupsAreJournalledAndLeaveWithASuperuserOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.person("op@example.org", auth.RoleOperator)
	operator := w.login("op@example.org", password)
	w.gives(admin.SettingsArea, `{ backups { directory everySeconds keep nextTime running { what } failure { text } files { name } unlisted } }`,
		`{"backups":{"directory":"/backups","everySeconds":null,"keep":7,"nextTime":null,"running":null,"failure":null,"files":[],"unlisted":0}}`)
	w.gives(admin.SettingsArea, `mutation { createBackup { keep } verifyBackup(name: "a.backup") { keep } }`, `{"createBackup":{"keep":7},"verifyBackup":{"keep":7}}`)
	w.refuses(admin.SettingsArea, `mutation { deleteBackup(name: "b.backup") { keep } }`, model.CodeNotFound, `"b.backup"`)
	if got := w.ask(admin.SettingsArea, operator, `mutation { backupLink(name: "a.backup") { path } }`).refusal(); !strings.HasPrefix(got, "FORBIDDEN forbidden: a superuser is required") {
		t.Errorf("an operator: %s", got)
	}
	w.gives(admin.SettingsArea, `mutation { backupLink(name: "a.backup") { path expiresTime } }`, `{"backupLink":{"path":"download/ticket","expiresTime":"2026-03-01T12:01:00Z"}}`)
	if got := fmt.Sprint(w.backups.done); got != "[create verify link]" {
		t.Errorf("done: %s", got)
	}
	if got := w.scalar(`SELECT group_concat(operation || ' ' || ifnull(entity_label, '') || ' ' || actor, ',') FROM (SELECT * FROM audit_events WHERE table_name = 'backups' ORDER BY id)`); got != "create  root@example.org,update a.backup root@example.org,download a.backup root@example.org" {
		t.Errorf("the journal has %s", got)
	}
}

func TestTheLogOfTheInstanceIsFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log := slog.New(w.lines.Handler(slog.DiscardHandler))
	w.gives(admin.SettingsArea, `{ instanceLog { lines { id } next missed components levels { component } } }`, `{"instanceLog":{"lines":[],"next":"0","missed":0,"components":[],"levels":[]}}`)
	w.gives(admin.SettingsArea, `mutation { setLogLevel(component: "gql", level: "debug") { component level untilTime } }`, `{"setLogLevel":[{"component":"gql","level":"debug","untilTime":"2026-03-01T12:15:00Z"}]}`)
	log.Debug("one", "n", 1)
	log.Warn("two")
	w.gives(admin.SettingsArea, `{ instanceLog(level: "warn") { lines { id level component message detail } next } }`, `{"instanceLog":{"lines":[{"id":"2","level":"warn","component":"gql/admin_test","message":"two","detail":""}],"next":"2"}}`)
	w.gives(admin.SettingsArea, `{ instanceLog(after: "1", contains: "TWO", component: "gql") { lines { message } } }`, `{"instanceLog":{"lines":[{"message":"two"}]}}`)
	w.gives(admin.SettingsArea, `mutation { setLogLevel(component: "gql", level: "debug", minutes: 0) { component } }`, `{"setLogLevel":[]}`)
	for query, text := range map[string]string{
		`{ instanceLog(after: "x") { next } }`:                                                  "after",
		`{ instanceLog(level: "loud") { next } }`:                                               "loud",
		`{ instanceLog(limit: 1001) { next } }`:                                                 "1..1000",
		`mutation { setLogLevel(component: "", level: "info") { component } }`:                  "component",
		`mutation { setLogLevel(component: "gql", level: "info", minutes: 241) { component } }`: "0..240",
	} {
		w.refuses(admin.SettingsArea, query, model.CodeInvalidInput, text)
	}
	w.refuses(admin.SettingsArea, `{ instanceLog(contains: "`+strings.Repeat("x", 201)+`") { next } }`, model.CodeLimitExceeded, "contains")
	for i := range logring.MaxOverrides {
		if !w.lines.SetLevel(fmt.Sprint(i), slog.LevelDebug, w.Now().Add(time.Minute)) {
			t.Fatal("too few may have a level")
		}
	}
	w.refuses(admin.SettingsArea, `mutation { setLogLevel(component: "gql", level: "info") { component } }`, model.CodeLimitExceeded, "32 components")
}

func TestTheLedgerIsRecountedOnceAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gives(admin.SettingsArea, `{ ledgerVerification { rows } }`, `{"ledgerVerification":null}`)
	w.gives(admin.SettingsArea, `mutation { verifyLedger { doneRows rows balanced endedTime imbalances { kind } } }`, `{"verifyLedger":{"doneRows":3,"rows":1099511627776,"balanced":null,"endedTime":null,"imbalances":[]}}`)
	if got := w.ask(admin.SettingsArea, w.super, `mutation { verifyLedger { rows } }`); len(got.Errors) != 1 {
		t.Errorf("a second one: %s", got.raw)
	}
}
