package operate

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/actions"
	"weir/alarm"
	"weir/config"
	"weir/health"
	"weir/ingest"
	"weir/internal/dirlock"
	"weir/internal/rootkey"
	"weir/internal/throttle"
	"weir/model"
	"weir/rules"
	"weir/spool"
	"weir/store"
	"weir/store/sqlite"
)

func found(t *testing.T, f health.Finding, want health.Result, text string) {
	t.Helper()
	if f.Result != want || !strings.Contains(f.Text, text) || want == health.Failure && f.Hint == "" {
		t.Errorf("%s: %s (hint: %s)\nwant %s: …%s…", f.Result, f.Text, f.Hint, want, text)
	}
}

// booked is a store with ledger lines and dead letters in it.
func booked(t *testing.T, fill func(store.Tx) error) store.Store {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "weir.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := st.Write(t.Context(), store.Durable, fill); err != nil {
		t.Fatal(err)
	}
	return st
}

// TestTheDoctorNamesWhoIsSlowed: a tenant that costs most is named; a refusal comes first.
func TestTheDoctorNamesWhoIsSlowed(t *testing.T) {
	t.Parallel()
	half := spool.Stats{Bytes: 50, MaxBytes: 100}
	slowing := &throttle.State{LagSeconds: 3, Tenants: []throttle.Slowed{{Tenant: "acme", Share: 0.93}}}
	found(t, backlogFinding(spool.Stats{MaxBytes: 100}, false, nil, "waits"), health.OK, "waits")
	found(t, backlogFinding(half, false, nil, "waits"), health.Warning, "waits")
	found(t, backlogFinding(half, false, slowing, "waits"), health.Warning, "acme (93 % of the applier's work)")
	found(t, backlogFinding(half, true, slowing, "waits"), health.Failure, "new messages are refused")
}

var noon = time.Date(2026, 6, 1, 12, 30, 0, 0, time.UTC)

func line(tenant string, at time.Time, h store.Outcome, reason ingest.Reason) store.LedgerKey {
	return store.LedgerKey{Tenant: tenant, Transport: "mqtt", Hour: model.NanosOf(at).Hour(), Outcome: h, Reason: string(reason)}
}

func TestALedgerThatDoesNotBalanceIsAFailure(t *testing.T) {
	t.Parallel()
	sound := booked(t, func(tx store.Tx) error {
		return errors.Join(store.AddLedger(tx, line("acme", noon, store.OutcomeReceived, ""), store.LedgerCount{Messages: 5}),
			store.AddLedger(tx, line("acme", noon, store.OutcomeStored, ""), store.LedgerCount{Messages: 5}))
	})
	found(t, ledgerFinding(t.Context(), ingest.NewStoredLedger(sound)), health.OK, "balanced, 1 line")
	lost := booked(t, func(tx store.Tx) error {
		return errors.Join(store.AddLedger(tx, line("acme", noon, store.OutcomeReceived, ""), store.LedgerCount{Messages: 5}),
			store.AddLedger(tx, line("acme", noon, store.OutcomeStored, ""), store.LedgerCount{Messages: 3}))
	})
	found(t, ledgerFinding(t.Context(), ingest.NewStoredLedger(lost)), health.Failure, "1 hour out of balance, by 2 messages")
}

func TestTenantsOverTheirCeilingAreNamed(t *testing.T) {
	t.Parallel()
	st := booked(t, func(tx store.Tx) error {
		return errors.Join(store.AddLedger(tx, line("loud", noon, store.OutcomeRefused, ingest.ReasonCeiling), store.LedgerCount{Messages: 7}),
			store.AddLedger(tx, line("loud", noon.Add(-time.Hour), store.OutcomeDropped, ingest.ReasonCeiling), store.LedgerCount{Messages: 2}),
			store.AddLedger(tx, line("was-loud", noon.Add(-3*time.Hour), store.OutcomeRefused, ingest.ReasonCeiling), store.LedgerCount{Messages: 9}),
			store.AddLedger(tx, line("wrong", noon, store.OutcomeRefused, ingest.ReasonNotAuthorized), store.LedgerCount{Messages: 9}))
	})
	f := ceilings(t.Context(), ingest.NewStoredLedger(st), noon)
	found(t, f, health.Warning, "loud 9 messages")
	if strings.Contains(f.Text, "wrong") || strings.Contains(f.Text, "was-loud") {
		t.Error(f.Text)
	}
	found(t, ceilings(t.Context(), ingest.NewStoredLedger(st), noon.Add(24*time.Hour)), health.OK, "no tenant")
}

func TestDeadLettersOfTheLastDayAreCountedByReason(t *testing.T) {
	t.Parallel()
	st := booked(t, func(tx store.Tx) error {
		var errs []error
		for i, d := range []struct {
			reason string
			ago    time.Duration
		}{{"unknown-device", time.Hour}, {"bad-time", 2 * time.Hour}, {"unknown-device", 3 * time.Hour}, {"old", 25 * time.Hour}} {
			errs = append(errs, store.AddDeadLetter(tx, &store.DeadLetter{Occurred: model.MicrosOf(noon.Add(-d.ago)), Kind: store.DeadLetterIngest, Reason: d.reason,
				Epoch: 1, Offset: model.Offset(i + 1)}))
		}
		return errors.Join(errs...)
	})
	f := deadLetterFinding(t.Context(), st, noon)
	if found(t, f, health.Warning, ""); f.Text != "in the last day: 2 unknown-device, 1 bad-time" {
		t.Error(f.Text)
	}
	found(t, deadLetterFinding(t.Context(), st, noon.Add(48*time.Hour)), health.OK, "none")
}

func TestRulesInErrorAreNamed(t *testing.T) {
	t.Parallel()
	broken := rules.Health{RuntimeID: "acme/p@1/a", Status: rules.CompileError, Message: "no such metric"}
	strained := rules.Health{RuntimeID: "acme/p@1/b", Status: rules.Active, EvalErrors: 3}
	crowded := rules.Health{RuntimeID: "acme/p@1/c", Status: rules.Active, RefusedKeys: 2}
	flapping := rules.Health{RuntimeID: "acme/p@1/d", Status: rules.Active, EvalErrors: 1, HeldEdges: 9, Flaps: true, Message: "this rule flaps: 9 of its detections"}
	s := rules.Stats{Rules: 4}
	found(t, rulesFinding(s, []rules.Health{flapping}, nil), health.Warning, "acme/p@1/d this rule flaps: 9 of its detections")
	found(t, rulesFinding(s, nil, nil), health.OK, "4 run")
	clocks := ingest.DeviceClocks{SetBack: 2, Device: "pump-7", At: 1}
	found(t, deviceClocks(ingest.DeviceClocks{}, []ingest.HeldTenant{{Tenant: "acme", For: 14 * time.Minute}}), health.OK, "no device's clock was set back")
	found(t, deviceClocks(clocks, nil), health.Warning, "the clock of device pump-7 was set back")
	found(t, deviceClocks(clocks, []ingest.HeldTenant{{Tenant: "acme", For: 15 * time.Minute}}), health.Warning, "acme for 15m0s")
	found(t, rulesFinding(s, []rules.Health{strained, crowded}, nil), health.Warning, "acme/p@1/b 3 samples could not be judged; acme/p@1/c 2 samples found no room")
	found(t, rulesFinding(s, []rules.Health{broken, strained}, nil), health.Failure, "2 of 4: acme/p@1/a does not run: no such metric")
	found(t, rulesFinding(s, []rules.Health{broken, strained, crowded, crowded, crowded}, nil), health.Failure, "and 2 more")
	full := []ingest.UsedUp{{Tenant: "acme", Key: "detection.max_samples_per_tenant"}}
	f := rulesFinding(s, nil, full)
	if found(t, f, health.Warning, "the rules of tenant acme have used up detection.max_samples_per_tenant"); !strings.Contains(f.Hint, "raise the key") {
		t.Error(f.Hint)
	}
	found(t, rulesFinding(s, nil, []ingest.UsedUp{{Key: "limits.memory"}}), health.Warning, "the rules of all tenants together have used up limits.memory")
	found(t, AlarmsFinding(alarm.Refused{}, ""), health.OK, "none was turned away")
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	held := func(since time.Duration, state model.CommandState) []CommandsStatus {
		return []CommandsStatus{{State: model.CommandSent, Count: 1, Oldest: noon.AddDate(0, -1, 0)}, {State: state, Count: 4, Oldest: noon.Add(-since), Tenant: "acme", Device: "d1"}}
	}
	found(t, commandsFinding(nil, noon), health.OK, "none is under way")
	found(t, commandsFinding(held(24*time.Hour-1, model.CommandHeld), noon), health.OK, "1 SENT, 4 HELD")
	found(t, commandsFinding(held(24*time.Hour, model.CommandHeld), noon), health.Warning, "1 SENT, 4 HELD; one for device d1 is HELD for 24h0m0s")
	found(t, commandsFinding(held(10*time.Minute, model.CommandQueued), noon), health.Warning, "one for device d1 is QUEUED for 10m0s")
	found(t, AlarmsFinding(alarm.Refused{Alarms: 3, TenantID: 7, At: 1e15}, "acme"), health.Warning, "3 alarms not raised since the start, the last of tenant acme at 2001-09-09T01:46:40Z")
}

func TestARootKeyThatDoesNotFit(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "root.key")
	k, err := rootkey.Load(rootkey.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	id := k.Key.ID()
	found(t, rootKeyFinding(rootkey.Options{File: file, SealedUnder: id}), health.OK, "key "+id)
	found(t, rootKeyFinding(rootkey.Options{File: file, SealedUnder: "0011223344556677"}), health.Failure, "holds the key "+id)
	found(t, rootKeyFinding(rootkey.Options{File: file + ".none", SealedUnder: id}), health.Failure, "does not exist")
	found(t, rootKeyFinding(rootkey.Options{File: file, Env: "short", SealedUnder: id}), health.Failure, "WEIR_ROOT_KEY")
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	found(t, rootKeyFinding(rootkey.Options{File: file, SealedUnder: id}), health.Warning, "open to its group")
	if err := os.Chmod(file, 0o604); err != nil {
		t.Fatal(err)
	}
	found(t, rootKeyFinding(rootkey.Options{File: file, SealedUnder: id}), health.Failure, "mode 0604")
}

// A whole look at a directory where nothing runs, on a machine that is not well.
func TestTheDoctorOfAMachineThatIsNotWell(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.DataDir = filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(cfg.DataDir, 0o750); err != nil {
		t.Fatal(err)
	}
	cfg.Listeners = config.Listeners{API: "127.0.0.1:0"}
	m := health.ThisMachine()
	m.Now = func() time.Time { return time.Unix(100, 0) }
	m.FileSystem = func(string) (health.FileSystem, error) {
		return health.FileSystem{Kind: "tmpfs", Bytes: 1 << 30, FreeBytes: 1 << 20}, nil
	}
	m.OpenFiles = func() (uint64, error) { return 1024, nil }
	r := atRestIn(cfg).examine(t.Context(), m, CheckTimeout)
	got := map[string]health.Result{}
	for _, f := range r.Findings {
		got[f.ID] = f.Result
	}
	for id, want := range map[string]health.Result{"clock": health.Failure, "disk-space": health.Failure, "file-system": health.Warning, "open-files": health.Warning,
		"data-dir": health.OK, "store": health.OK, "sign-in": health.Skipped} {
		if got[id] != want {
			t.Errorf("%s: %q, not %q", id, got[id], want)
		}
	}
	if r.Result != health.Failure || r.Running {
		t.Errorf("%+v", r)
	}
	if left, _ := os.ReadDir(cfg.DataDir); len(left) != 0 {
		t.Errorf("it has left behind %v", left)
	}
}

func TestADirectoryThatIsTakenAndSilentIsNotReady(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	if _, err := AskHealth(t.Context(), cfg); !errors.Is(err, ErrNotRunning) {
		t.Errorf("no instance: %v", err)
	}
	lock, err := dirlock.Acquire(cfg.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	h, err := AskHealth(t.Context(), cfg)
	if err != nil || h.State != HealthNotReady || !strings.Contains(h.Problems[0], "starting or stopping") {
		t.Errorf("%+v, %v", h, err)
	}
	r := atRestIn(cfg).examine(t.Context(), health.ThisMachine(), CheckTimeout)
	found(t, r.Findings[0], health.Failure, "does not answer on its socket")
}

func TestReadyzOverTheNetwork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
		state  string
		text   string
	}{
		"ready":           {http.StatusOK, "ready", HealthReady, ""},
		"not ready":       {http.StatusServiceUnavailable, "not ready\n", HealthNotReady, "it answers: not ready"},
		"another program": {http.StatusFound, "", HealthNotReady, "is this the api listener of a Weir?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/readyz" {
					t.Errorf("asked for %s", r.URL.Path)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			}))
			defer s.Close()
			h, err := AskReadyz(t.Context(), s.URL+"/")
			if err != nil || h.State != c.state || !strings.Contains(strings.Join(h.Problems, ""), c.text) {
				t.Errorf("%+v, %v", h, err)
			}
		})
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	if h, err := AskReadyz(ctx, "http://127.0.0.1:1"); err == nil && h.State == HealthReady {
		t.Errorf("%+v", h)
	}
}

func TestABundleHasBounds(t *testing.T) {
	t.Parallel()
	b := &bundler{now: noon}
	b.add("long", "", make([]byte, maxBundleFile+1))
	if n := len(b.files[0].Body); n > maxBundleFile+100 || !strings.HasSuffix(string(b.files[0].Body), "it was too long\n") {
		t.Errorf("%d bytes", n)
	}
	b.either("failed", "", nil, errors.New("no luck"))
	if s := string(b.files[1].Body); s != "it could not be had: no luck\n" {
		t.Error(s)
	}
	st := booked(t, func(tx store.Tx) error {
		var errs []error
		for i := range maxBundleLines + 5 {
			errs = append(errs, store.AddLedger(tx, line("t"+strconv.Itoa(i), noon, store.OutcomeReceived, ""), store.LedgerCount{Messages: 1}))
		}
		return errors.Join(errs...)
	})
	b.ledger(t.Context(), ingest.NewStoredLedger(st), st)
	if f := b.files[2]; f.Name != "ledger.json" || !strings.Contains(f.What, "the newest 1500 lines of 1505") || len(f.Body) > maxBundleFile || strings.Count(string(f.Body), `"tenant"`) != maxBundleLines {
		t.Errorf("%s: %s, %d bytes", f.Name, f.What, len(f.Body))
	}
}

// A database that was not read to its end is not said to be whole.
func TestALargeDatabaseIsReadAsLongAsThereIsPatience(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	db, err := sqlite.Open(t.Context(), DBPath(cfg.DataDir), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s := atRestIn(cfg).lookAtRest(t.Context())
	defer s.close()
	found(t, s.storeFits(t.Context()), health.OK, "whole")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	found(t, s.storeFits(over), health.Skipped, "not read to its end")
}

// TestTheDoctorNamesWhatStandsStill: a target that is away, be it a channel to people or a connector, with what waits and since when.
func TestTheDoctorNamesWhatStandsStill(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	found(t, standingFinding(nil, now), health.OK, "no target stands still")
	all := []actions.Standing{{Tenant: "acme", Kind: "notification", Target: "desk", Since: now.Add(-90 * time.Second), Rows: 7, Error: "nobody answers"}}
	found(t, standingFinding(all, now), health.Warning, "1 target stands still: acme notification desk since 2026-03-01T11:58:30Z (1m30s), with 7 orders waiting: nobody answers")
	for _, target := range []string{"plant", "hall", "yard"} {
		all = append(all, actions.Standing{Tenant: "acme", Kind: "publish", Target: target, Since: now, Rows: 1, Error: "refused"})
	}
	found(t, standingFinding(all, now), health.Warning, "acme publish plant since 2026-03-01T12:00:00Z (0s), with 1 order waiting: refused;")
	found(t, standingFinding(all, now), health.Warning, "and 1 more")
}

func TestTheDoctorNamesTheTenantThatTakesTheMemoryOfAll(t *testing.T) {
	t.Parallel()
	tokenOf := func(id int64) string { return []string{"", "acme", "plant"}[id] }
	found(t, metadataFinding(3<<20, 4<<20, map[int64]int64{1: 10, 2: 90}, tokenOf), health.OK, "takes 3.0 MiB of the 4.0 MiB")
	found(t, metadataFinding(3<<20+1, 4<<20, map[int64]int64{1: 10, 2: 90}, tokenOf), health.Warning, "most of it the tenant plant: 90 % of all rows")
	found(t, metadataFinding(4<<20, 4<<20, nil, tokenOf), health.Warning, "takes 4.0 MiB of the 4.0 MiB")
}
