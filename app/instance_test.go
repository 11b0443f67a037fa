package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/app"
	"weir/config"
	"weir/internal/test/poll"
	"weir/model"
	"weir/operate"
)

// asking runs documents of the API over the socket.
func (in *instance) asking(t *testing.T) func(area, tenant, query string, vars map[string]any, into any) error {
	t.Helper()
	client, err := operate.Dial(t.Context(), in.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return func(area, tenant, query string, vars map[string]any, into any) error {
		resp, err := operate.RunGraphQL.Ask(t.Context(), client, operate.GraphQLRequest{Area: area, Tenant: tenant, Query: query, Variables: vars})
		if err == nil {
			err = resp.Err()
		}
		if err != nil {
			return err
		}
		return json.Unmarshal(resp.Data, into)
	}
}

type shownBackups struct {
	Backups struct {
		Directory string
		Running   *struct{ What string }
		Failure   *struct{ Text string }
		Files     []struct {
			Name         string
			Bytes        float64
			Scheduled    bool
			Verification *struct {
				Restorable bool
				Findings   []string
				Devices    float64
			}
		}
	}
}

const backupsQuery = `{ backups { directory running { what } failure { text } files { name bytes scheduled verification { restorable findings devices } } } }`

// A backup is made, verified, fetched by a link that is valid once, restored, listed by the command where nothing runs, and deleted.
func TestABackupIsMadeVerifiedFetchedAndDeletedThroughTheAPI(t *testing.T) {
	t.Parallel()
	in := runInstance(t, nil)
	ask := in.asking(t)
	const area = "user-management-settings"
	var shown shownBackups
	done := func(what string) {
		t.Helper()
		poll.Until(t, what, func() error {
			if err := ask(area, "", backupsQuery, nil, &shown); err != nil {
				return err
			}
			if r := shown.Backups.Running; r != nil {
				return fmt.Errorf("it still does: %s", r.What)
			}
			return nil
		})
		if f := shown.Backups.Failure; f != nil {
			t.Fatalf("%s: %s", what, f.Text)
		}
	}
	var none json.RawMessage
	if err := ask(area, "", `mutation { createBackup { keep } }`, nil, &none); err != nil {
		t.Fatal(err)
	}
	done("the backup is made")
	if shown.Backups.Directory != filepath.Join(in.cfg.DataDir, "backups") || len(shown.Backups.Files) != 1 || shown.Backups.Files[0].Scheduled || shown.Backups.Files[0].Verification != nil {
		t.Fatalf("%+v", shown)
	}
	file := shown.Backups.Files[0]
	name := map[string]any{"n": file.Name}
	if err := ask(area, "", `mutation($n: String!) { verifyBackup(name: $n) { keep } }`, name, &none); err != nil {
		t.Fatal(err)
	}
	done("the backup is verified")
	if v := shown.Backups.Files[0].Verification; v == nil || !v.Restorable || v.Devices != 1 || len(v.Findings) != 0 {
		t.Fatalf("%+v", v)
	}
	var link struct{ BackupLink struct{ Path string } }
	if err := ask(area, "", `mutation($n: String!) { backupLink(name: $n) { path } }`, name, &link); err != nil {
		t.Fatal(err)
	}
	url := "http://" + in.Listeners().At(operate.APIListener) + "/" + link.BackupLink.Path
	if resp, err := http.Head(url); err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("HEAD: %v, %v", resp, err)
	}
	body := get(t, url, http.StatusOK)
	if float64(len(body)) != file.Bytes {
		t.Errorf("%d bytes came of %v", len(body), file.Bytes)
	}
	if text := get(t, url, http.StatusNotFound); !strings.Contains(string(text), "was used") {
		t.Errorf("a second time: %s", text)
	}
	fetched := filepath.Join(t.TempDir(), "fetched.backup")
	if err := os.WriteFile(fetched, body, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"../weir.db", "no.backup", file.Name + operate.DownloadPath, "weir.db"} {
		for _, op := range []string{"verifyBackup(name: $n) { keep }", "deleteBackup(name: $n) { keep }", "backupLink(name: $n) { path }"} {
			if err := ask(area, "", `mutation($n: String!) { `+op+` }`, map[string]any{"n": bad}, &none); model.CodeOf(err) != model.CodeNotFound {
				t.Errorf("%s of %s: %v", op, bad, err)
			}
		}
	}
	in.stop()
	rest := app.AtRest(in.cfg, func(string) string { return "" }, slog.New(slog.DiscardHandler))
	listed, err := operate.ListBackups.Ask(t.Context(), rest, operate.None{})
	if err != nil || len(listed.Files) != 1 || listed.Files[0].Verified == nil {
		t.Errorf("where nothing runs: %+v, %v", listed, err)
	}
	restoreInto(t, in.cfg, fetched)
}

func get(t *testing.T, url string, status int) []byte {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		t.Fatalf("%s, %v, want %d", resp.Status, err, status)
	}
	return b
}

func restoreInto(t *testing.T, cfg config.Config, file string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	key := operate.RootKeyPath(cfg)
	cfg.DataDir = t.TempDir() + "/again"
	r, err := app.AtRest(cfg, func(string) string { return "" }, slog.New(slog.DiscardHandler)).Restore(t.Context(), operate.RestoreQuery{RootKeyFile: key}, f)
	if err != nil || r.Counts == nil || r.Counts.Devices != 1 {
		t.Errorf("restored: %+v, %v", r, err)
	}
}

// The log, the ledger, the rates, the senders that are not known, and a configuration that is pasted.
func TestTheInstanceIsLookedAtThroughTheAPI(t *testing.T) {
	t.Parallel()
	in := runInstanceWith(t, app.Options{Source: &config.Source{}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	ask := in.asking(t)
	const settings = "user-management-settings"
	if status, _, err := in.post(); err != nil || status != http.StatusAccepted {
		t.Fatal(status, err)
	}
	resp, err := http.Post("http://"+in.Listeners().At(operate.IngestListener)+"/weir/nowhere/events", "application/json",
		strings.NewReader(`{"device":"lost","credentialType":"ACCESS_TOKEN","credentialId":"no","eventType":"Measurement","payload":{"entries":[{"measurements":{"t":"1"}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()

	var senders struct {
		Strangers []struct{ Tenant, Device, Reason string }
	}
	poll.Until(t, "the sender that is not known is shown", func() error {
		if err := ask(settings, "", `{ strangers { tenant device reason count transport firstTime lastTime detail } }`, nil, &senders); err != nil {
			return err
		}
		if len(senders.Strangers) != 1 || senders.Strangers[0].Tenant != "nowhere" {
			return fmt.Errorf("%+v", senders)
		}
		return nil
	})

	var rates struct {
		IngestRates []struct {
			Transport        string
			Received, Stored int
		}
	}
	poll.Until(t, "the message is in the rates", func() error {
		if err := ask("event-management", "acme", `{ ingestRates(minutes: 60) { transport received stored time } }`, nil, &rates); err != nil {
			return err
		}
		if len(rates.IngestRates) != 1 || rates.IngestRates[0].Received != 1 || rates.IngestRates[0].Stored != 1 || rates.IngestRates[0].Transport != "http" {
			return fmt.Errorf("%+v", rates)
		}
		return nil
	})

	var none json.RawMessage
	if err := ask(settings, "", `mutation { verifyLedger { startedTime } }`, nil, &none); err != nil {
		t.Fatal(err)
	}
	var recount struct {
		LedgerVerification *struct {
			Balanced *bool
			Error    *string
			Messages float64
		}
	}
	poll.Until(t, "the ledger is recounted", func() error {
		if err := ask(settings, "", `{ ledgerVerification { balanced error messages } }`, nil, &recount); err != nil {
			return err
		}
		if v := recount.LedgerVerification; v == nil || v.Balanced == nil && v.Error == nil {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	if v := recount.LedgerVerification; v.Error != nil || !*v.Balanced {
		t.Errorf("%+v", v)
	}

	var log struct {
		InstanceLog struct {
			Next       string
			Components []string
			Lines      []struct{ Component, Message, Level string }
		}
		SetLogLevel []struct{ Component, Level string }
	}
	if err := ask(settings, "", `{ instanceLog(level: "info") { next components lines { component message level } } }`, nil, &log); err != nil || len(log.InstanceLog.Lines) == 0 || log.InstanceLog.Lines[0].Component == "" {
		t.Errorf("the log: %+v, %v", log, err)
	}
	if err := ask(settings, "", `mutation { setLogLevel(component: "ingest", level: "debug") { component level untilTime } }`, nil, &log); err != nil || len(log.SetLogLevel) != 1 {
		t.Errorf("a level: %+v, %v", log.SetLogLevel, err)
	}
	if err := ask(settings, "", `mutation { setLogLevel(component: "ingest", level: "loud") { component } }`, nil, &none); model.CodeOf(err) != model.CodeInvalidInput {
		t.Errorf("a level that does not exist: %v", err)
	}

	var check struct {
		CheckConfiguration struct {
			Problems []struct {
				Line        int
				Key, Reason string
			}
			Changes []struct {
				Key    string
				Reload bool
			}
		}
	}
	const pasted = `query($t: String!) { checkConfiguration(text: $t) { problems { line column key reason hint file } warnings { reason } changes { key from to reload } } }`
	if err := ask(settings, "", pasted, map[string]any{"t": "logging:\n  level: loud\n"}, &check); err != nil || len(check.CheckConfiguration.Problems) != 1 || check.CheckConfiguration.Problems[0].Line != 2 {
		t.Errorf("a mistake: %+v, %v", check, err)
	}
	if err := ask(settings, "", pasted, map[string]any{"t": "backup: {keep: 3}\nauth: {superuser_email: a@example.org, superuser_password_file: /etc/shadow}\n"}, &check); err != nil || len(check.CheckConfiguration.Problems) != 0 {
		t.Errorf("what is valid: %+v, %v", check, err)
	}
	found := false
	for _, c := range check.CheckConfiguration.Changes {
		found = found || c.Key == "backup.keep" && c.Reload
	}
	if !found {
		t.Errorf("what would change: %+v", check.CheckConfiguration.Changes)
	}
}

// A user sends an event as a device, sees its outcome, and finds the message in the log with what it brought.
func TestATestEventIsAMessageAsAnyOther(t *testing.T) {
	t.Parallel()
	in := runInstance(t, nil)
	ask := in.asking(t)
	const send = `mutation($d: String!, $e: String!) { sendTestEvent(deviceToken: $d, event: $e) { outcome reason transport deviceToken values offset } }`
	var sent struct {
		SendTestEvent struct{ Outcome, Reason, Transport, Offset string }
	}
	event := `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"21.5"}}]}}`
	if err := ask("device-management", "acme", send, map[string]any{"d": in.device, "e": event}, &sent); err != nil {
		t.Fatal(err)
	}
	if s := sent.SendTestEvent; s.Outcome != "stored" || s.Transport != "console" || s.Offset == "" {
		t.Fatalf("%+v", s)
	}
	var found struct {
		Message *struct {
			Outcome, Transport, DeviceToken, Event string
			Values                                 []struct{ Name, Value string }
			Unauthenticated                        bool
			Readings                               int
		}
	}
	const message = `query($o: String!) { message(offset: $o) { outcome transport deviceToken event readings values { name value } unauthenticated inLog steps { name time } profileVersion edges { ruleToken profileVersion edge severity value } } }`
	if err := ask("event-management", "acme", message, map[string]any{"o": sent.SendTestEvent.Offset}, &found); err != nil {
		t.Fatal(err)
	}
	if m := found.Message; m == nil || m.Outcome != "stored" || m.DeviceToken != in.device || m.Event != event || m.Readings != 1 || len(m.Values) != 1 || m.Values[0].Value != "21.5" || m.Unauthenticated {
		t.Errorf("%+v", m)
	}
	var made json.RawMessage
	if err := ask("user-management-admin", "", `mutation { createTenant(request: {token: "globex", tierToken: "silver"}) { token } }`, nil, &made); err != nil {
		t.Fatal(err)
	}
	if err := ask("event-management", "globex", message, map[string]any{"o": sent.SendTestEvent.Offset}, &found); err != nil || found.Message != nil {
		t.Errorf("another tenant finds %+v, %v", found.Message, err)
	}
	if err := ask("event-management", "acme", message, map[string]any{"o": "99999999"}, &found); err != nil || found.Message != nil {
		t.Errorf("beyond the log: %+v, %v", found.Message, err)
	}
	if err := ask("device-management", "acme", send, map[string]any{"d": in.device, "e": `{"what": 1}`}, &sent); err != nil || sent.SendTestEvent.Outcome != "refused" || sent.SendTestEvent.Reason != "undecodable" {
		t.Errorf("what does not decode: %+v, %v", sent, err)
	}
	if err := ask("device-management", "acme", send, map[string]any{"d": "no-such", "e": event}, &sent); model.CodeOf(err) != model.CodeNotFound {
		t.Errorf("of a device that does not exist: %v", err)
	}
}
