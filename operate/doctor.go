package operate

import (
	"context"
	"fmt"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"weir/actions"
	"weir/alarm"
	"weir/config"
	"weir/gql"
	"weir/health"
	"weir/ingest"
	"weir/internal/build"
	"weir/internal/memory"
	"weir/internal/rootkey"
	"weir/internal/throttle"
	"weir/model"
	"weir/rules"
	"weir/spool"
	"weir/store"
)

// How long one check may take, and how many times as long all of them together: a verb answers within its timeout.
const (
	CheckTimeout = 4 * time.Second
	allChecks    = 6
)

// DoctorQuery describes the asking program.
type DoctorQuery struct {
	Version string `json:"version,omitempty"` // of the binary that asks
	// CheckTimeout bounds a check where nothing runs; 0: CheckTimeout. A running instance answers within that of a verb.
	CheckTimeout time.Duration `json:"-"`
}

// Findings are those of the instance, for the API.
func (o *Operator) Findings(ctx context.Context) (*health.Report, error) {
	return o.doctor(ctx, DoctorQuery{})
}

// doctor looks at a running instance from inside: its limits and its view of the disk are what count.
func (o *Operator) doctor(ctx context.Context, q DoctorQuery) (*health.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, allChecks*CheckTimeout)
	defer cancel()
	r := health.Examine(ctx, CheckTimeout, o.checks(health.ThisMachine(), q))
	r.Running = true
	return r, nil
}

// checks are what can be looked at while the instance runs.
func (o *Operator) checks(m health.Machine, q DoctorQuery) []health.Check {
	cfg := *o.deps.Effective()
	dir := cfg.DataDir
	log, plan, listeners := o.deps.Spool.Stats(), o.deps.Wiring.Plan(cfg), o.deps.Listeners()
	return slices.Concat([]health.Check{
		{ID: "instance", Look: func(context.Context) health.Finding { return o.isUp(q.Version) }},
		m.Directory(dir),
		m.FileModes(dir),
		m.FileSystemKind(dir),
		m.DiskKind(dir),
		m.Space(dir, log.MaxBytes-log.DiskBytes),
		m.Sync(dir),
		health.Wear(o.vitals.writing(), o.writeBudget()),
		{ID: "root-key", Look: func(context.Context) health.Finding {
			return rootKeyFinding(rootkey.Options{File: RootKeyPath(o.deps.Config), Env: o.deps.Getenv("WEIR_ROOT_KEY"), SealedUnder: o.deps.Vault.KeyID()})
		}},
		{ID: "store", Look: o.storeAnswers},
		{ID: "log", Look: func(context.Context) health.Finding { return o.logTakes() }},
		{ID: "log-losses", Look: func(ctx context.Context) health.Finding { return lossFindingOf(ctx, o.deps.Store, dir, m.Now()) }},
		{ID: "reload", Look: func(context.Context) health.Finding { return reloadFinding(o.deps.Reloads.Last()) }},
		{ID: "last-stop", Look: func(context.Context) health.Finding { return o.deps.LastStop.finding() }},
		backupCheck(cfg, o.backups.failure.Load(), m.Now),
		{ID: "clock", Look: func(ctx context.Context) health.Finding {
			return o.clockHolds(ctx, m.Clock(build.Time(), dir, SpoolPath(dir)))
		}},
		m.OpenFileLimit(plan.MQTTConnections),
		health.MemoryLimit(memoryOf(cfg, plan, debug.SetMemoryLimit(-1))),
		health.PortsAnswer(listeners.opened()),
		names(cfg, listeners),
		health.Exposure(listeners.configured()),
	}, o.uplinkChecks(m.Now), openTopicsChecks(listeners), o.openTopicsTenantChecks(), devToolsChecks(o.deps.Getenv), o.certificateChecks(m.Now), []health.Check{
		health.DeviceAuth(string(cfg.Auth.DeviceAuth)),
		{ID: "sign-in", Look: func(context.Context) health.Finding {
			return signIn(o.deps.Auth.HasSuperuser(), o.deps.Auth.HasIdentity(), dir)
		}},
		{ID: "ledger", Look: func(ctx context.Context) health.Finding { return ledgerFinding(ctx, o.deps.Applier.Ledger()) }},
		{ID: "backlog", Look: func(context.Context) health.Finding { return o.backlog(m.Now()) }},
		{ID: "dead-letters", Look: func(ctx context.Context) health.Finding { return deadLetterFinding(ctx, o.deps.Store, m.Now()) }},
		{ID: "applier", Look: func(context.Context) health.Finding { return o.applies() }},
		{ID: "rules", Look: func(context.Context) health.Finding {
			return rulesFinding(o.deps.Applier.RuleStats(), o.deps.Applier.UnhealthyRules(), o.deps.Applier.UsedUpBudgets())
		}},
	}, o.deps.Checks(), []health.Check{
		{ID: "outbox", Look: func(context.Context) health.Finding { return standingFinding(o.deps.Standing(), m.Now()) }},
		{ID: "commands", Look: func(ctx context.Context) health.Finding {
			var waiting []CommandsStatus
			if err := o.deps.Store.Read(ctx, func(tx store.Tx) (err error) { waiting, err = o.deps.commandsStatus(tx); return err }); err != nil {
				return health.Skip("they cannot be read: %v", err)
			}
			return commandsFinding(waiting, m.Now())
		}},
		{ID: "device-clocks", Look: func(context.Context) health.Finding {
			return deviceClocks(o.deps.Applier.DeviceClocks(), o.deps.Applier.HeldTenants())
		}},
		{ID: "metadata", Look: o.metadataFits},
		{ID: "device-certificates", Look: o.deviceCertificates},
		{ID: "ceilings", Look: func(ctx context.Context) health.Finding { return ceilings(ctx, o.deps.Applier.Ledger(), m.Now()) }},
	})
}

func (o *Operator) isUp(asker string) health.Finding {
	switch up := time.Since(o.deps.Started).Round(time.Second); {
	case !o.deps.Ready():
		return health.Warn("wait for it: weir health --wait 1m", "version %s, not ready: %s", o.deps.Version, o.unready())
	case asker != "" && asker != o.deps.Version:
		return health.Warn("restart the instance to run what is installed", "version %s runs, this binary is %s", o.deps.Version, asker)
	default:
		return health.Good("version %s, ready, up %s", o.deps.Version, up)
	}
}

func (o *Operator) storeAnswers(ctx context.Context) health.Finding {
	if err := o.deps.Store.Read(ctx, func(tx store.Tx) error {
		_, _, err := store.CheckpointState(tx)
		return err
	}); err != nil {
		return health.Fail("the log of the instance says more", "the database cannot be read: %v", err)
	}
	if f, sound := o.storeFinding(); !sound {
		return f
	}
	s := o.deps.Store.Stats()
	return health.Good("%s on disk", health.Bytes(s.Bytes))
}

func (o *Operator) logTakes() health.Finding {
	s := o.deps.Spool.Stats()
	if s.Err != nil {
		return health.Fail("messages are refused until it takes them again; look at disk-space and disk-sync", "the log refuses appends: %v", s.Err)
	}
	text := health.Bytes(s.DiskBytes) + " on disk"
	if s.LastSyncNanos > 0 {
		text += fmt.Sprintf(", the last sync took %s", time.Duration(s.LastSyncNanos).Round(10*time.Microsecond))
	}
	return health.Good("%s", text)
}

// clockHolds says what the instance itself holds of the clock, else what can be seen from outside.
func (o *Operator) clockHolds(ctx context.Context, outside health.Check) health.Finding {
	if why := o.deps.Clock.Doubt(); why != "" {
		return health.Fail("set the clock (a time server, date -s): messages are acknowledged and kept meanwhile, event times as sent", "%s", why)
	}
	return outside.Look(ctx)
}

// metadataFits names the tenant that takes most of a memory that becomes scarce.
func (o *Operator) metadataFits(ctx context.Context) health.Finding {
	parts := o.deps.Memory.Parts()
	i := slices.IndexFunc(parts, func(h memory.Held) bool { return h.Part == "metadata" && h.Held != nil })
	if i < 0 {
		return health.Skip("its memory is not known")
	}
	var used map[int64]int64
	if err := o.deps.Store.Read(ctx, func(tx store.Tx) (err error) { used, err = store.AllUsedBytes(tx); return err }); err != nil {
		return health.Skip("what the tenants take cannot be read: %v", err)
	}
	return metadataFinding(*parts[i].Held, parts[i].Budget, used, o.deps.Govern.TokenOf)
}

func metadataFinding(held, limit int64, used map[int64]int64, tokenOf func(int64) string) health.Finding {
	text := fmt.Sprintf("what messages are judged by takes %s of the %s of memory for it", health.Bytes(held), health.Bytes(limit))
	if held <= store.FreeMetadata(limit) {
		return health.Good("%s", text)
	}
	var most, all int64
	for id, n := range used {
		if all += n; n > used[most] || n == used[most] && id < most {
			most = id
		}
	}
	if all > 0 {
		text += fmt.Sprintf(", most of it the tenant %s: %d %% of all rows", tokenOf(most), used[most]*100/all)
	}
	return health.Warn("a tenant that has more than its share of it makes no more devices; raise limits.memory, or delete what is not needed", "%s", text)
}

func (o *Operator) applies() health.Finding {
	if why := o.deps.Applier.Stalled(); why != "" {
		return health.Fail("nothing acknowledged is lost: it waits in the log and is applied once this is mended", "what was accepted is not applied: %s", why)
	}
	return health.Good("applied up to record %d", o.deps.Applier.Applied())
}

// backlogWarning is how full the log may be, in percent, before it is worth a word.
const backlogWarning = 50

func (o *Operator) backlog(now time.Time) health.Finding {
	s := o.deps.Spool.Stats()
	waiting := int64(s.Last) - int64(o.deps.Applier.Applied())
	text := fmt.Sprintf("%s to be applied, the log holds %s of %s", health.Count(max(waiting, 0), "record"), health.Bytes(s.Bytes), health.Bytes(s.MaxBytes))
	if since := o.deps.Applier.UnwrittenSince(); since > 0 {
		text += fmt.Sprintf(", the oldest that is not yet in the store came %s ago", now.Sub(since.Time()).Round(time.Second))
	}
	return backlogFinding(s, o.deps.Gauge.Refusing(), o.slowing(), text)
}

func backlogFinding(s spool.Stats, refusing bool, slowing *throttle.State, text string) health.Finding {
	const hint = "look at applier, store and disk-sync; ingest.spool_max_bytes is how much may wait"
	switch {
	case refusing:
		return health.Fail(hint, "new messages are refused: %s", text)
	case slowing != nil:
		return health.Warn("look at the rules of the tenant that costs most: those that flap cost most; its ceiling is governance.ingest_messages_per_second, or that of its tier",
			"%v; %s", slowing, text)
	case s.MaxBytes > 0 && s.Bytes*100 >= s.MaxBytes*backlogWarning:
		return health.Warn(hint, "%s", text)
	}
	return health.Good("%s", text)
}

func rootKeyFinding(o rootkey.Options) health.Finding {
	k, err := rootkey.Look(o)
	switch {
	case err != nil:
		return health.Fail("what is sealed cannot be read without it: put the key back as it was, mode 0600", "%v", err)
	case len(k.Warnings) > 0:
		return health.Warn("chmod 600 the file", "%s", strings.Join(k.Warnings, "; "))
	case o.Env != "":
		return health.Good("key %s, from WEIR_ROOT_KEY", k.Key.ID())
	}
	return health.Good("key %s; keep a copy of %s in another place", k.Key.ID(), o.File)
}

// reloadFinding is how the last reload of the configuration ended, nil for none.
func reloadFinding(r *ReloadReport) health.Finding {
	switch {
	case r == nil:
		return health.Good("none since the start")
	case r.Outcome == ReloadFailed:
		return health.Fail("weir config validate shows the lines; until it is corrected, the previous configuration applies",
			"the last one, at %s, was refused: %s", r.At.Format(time.RFC3339), health.Count(len(r.Problems), "mistake"))
	case len(r.Waiting) > 0:
		var keys []string
		for _, c := range r.Waiting {
			keys = append(keys, c.Path)
		}
		return health.Warn("restart the instance to apply them", "waiting for a restart: %s", strings.Join(keys, ", "))
	}
	return health.Good("the last one, at %s, applies", r.At.Format(time.RFC3339))
}

func signIn(superuser, anyone bool, dir string) health.Finding {
	hint := "weir admin create you@example.org --data " + dir + ", or in a browser: weir admin link"
	switch {
	case superuser:
		return health.Good("there is an administrator")
	case anyone:
		return health.Warn(hint, "there is no superuser: accounts can sign in to their tenants, and none can administer the instance")
	}
	return health.Warn(hint, "no account can sign in yet")
}

func ledgerFinding(ctx context.Context, l *ingest.Ledger) health.Finding {
	wrong, all, err := l.Imbalances(ctx)
	if err != nil {
		return health.Skip("the ledger cannot be read: %v", err)
	}
	var missing int64
	for i := range wrong {
		missing += wrong[i].Missing()
	}
	if len(wrong) > 0 {
		return health.Fail("weir ledger shows which; this is a defect of Weir: please report it with weir bundle", "%s out of balance, by %s", health.Count(len(wrong), "hour"), health.Count(missing, "message"))
	}
	return health.Good("balanced, %s", health.Count(all, "line"))
}

func deadLetterFinding(ctx context.Context, st interface {
	Read(context.Context, func(store.Tx) error) error
}, now time.Time) health.Finding {
	var reasons []store.ReasonCount
	if err := st.Read(ctx, func(tx store.Tx) (err error) {
		reasons, err = store.DeadLetterReasons(tx, model.MicrosOf(now.Add(-24*time.Hour)))
		return err
	}); err != nil {
		return health.Skip("they cannot be read: %v", err)
	}
	if len(reasons) == 0 {
		return health.Good("none in the last day")
	}
	var text []string
	for _, r := range reasons {
		text = append(text, fmt.Sprintf("%d %s", r.Count, r.Reason))
	}
	return health.Warn("weir ledger dead-letters shows them", "in the last day: %s", strings.Join(text, ", "))
}

// namedRules is how many rules a finding names.
const namedRules = 3

// rulesFinding finds the rules that do not run or could not judge everything, and the budgets for which no rule is to blame.
func rulesFinding(s rules.Stats, unhealthy []rules.Health, usedUp []ingest.UsedUp) health.Finding {
	hint := "correct the rule in its device profile and publish it"
	if len(usedUp) > 0 {
		hint = "raise the key, or let rules keep less: weir rule explain says what each keeps; what finds no room is not judged"
	}
	if len(unhealthy)+len(usedUp) == 0 {
		return health.Good("%d run", s.Rules)
	}
	var text []string
	for _, u := range usedUp {
		of := "of all tenants together"
		if u.Tenant != "" {
			of = "of tenant " + u.Tenant
		}
		text = append(text, fmt.Sprintf("the rules %s have used up %s", of, u.Key))
	}
	result := health.Warn
	for _, h := range unhealthy {
		what := fmt.Sprintf("%d samples could not be judged", h.EvalErrors)
		switch {
		case h.Status == rules.CompileError:
			what, result = "does not run: "+h.Message, health.Fail
		case h.Flaps:
			what = h.Message
		case h.EvalErrors == 0:
			what = fmt.Sprintf("%d samples found no room (detection.max_keys_per_tenant, detection.max_samples_per_tenant)", h.RefusedKeys)
		}
		text = append(text, h.RuntimeID+" "+what)
	}
	if more := len(text) - namedRules; more > 0 {
		text = append(text[:namedRules], fmt.Sprintf("and %d more", more))
	}
	return result(hint, "%d of %d: %s", len(unhealthy), max(s.Rules, len(unhealthy)), strings.Join(text, "; "))
}

// AlarmsFinding finds alarms that were not raised. tenant is that of the last one.
func AlarmsFinding(r alarm.Refused, tenant string) health.Finding {
	if r.Alarms == 0 {
		return health.Good("none was turned away since the start")
	}
	return health.Warn("clear what is over (clearAlarms of the API), or raise limits.alarms_per_tenant; the rules go on, and their detections are kept",
		"%s not raised since the start, the last of tenant %s at %s: it has its maximum of alarms, all of them active", health.Count(r.Alarms, "alarm"), tenant,
		r.At.Time().UTC().Format(time.RFC3339))
}

// namedTargets is how many targets a finding names.
const namedTargets = 3

// standingFinding finds targets of orders of rules that stand still.
func standingFinding(standing []actions.Standing, now time.Time) health.Finding {
	if len(standing) == 0 {
		return health.Good("no target stands still")
	}
	var text []string
	for _, s := range standing[:min(len(standing), namedTargets)] {
		text = append(text, fmt.Sprintf("%s since %s (%s), with %s waiting: %s", s.Name(), s.Since.UTC().Format(time.RFC3339), now.Sub(s.Since).Round(time.Second),
			health.Count(s.Rows, "order"), s.Error))
	}
	if more := len(standing) - namedTargets; more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	verb := "stand"
	if len(standing) == 1 {
		verb = "stands"
	}
	return health.Warn("weir outbox shows what waits; nothing is lost: it goes on by itself once the target takes it, and what expires meanwhile is a dead letter",
		"%s %s still: %s", health.Count(len(standing), "target"), verb, strings.Join(text, "; "))
}

// strandedAfter is for how long commands of a state wait before it is a finding: those that may leave do so at once, and a device that is
// away for a day may be gone.
var strandedAfter = map[model.CommandState]time.Duration{model.CommandQueued: 10 * time.Minute, model.CommandHeld: 24 * time.Hour, model.CommandParked: 24 * time.Hour}

// commandsFinding finds commands that are stranded.
func commandsFinding(waiting []CommandsStatus, now time.Time) health.Finding {
	if len(waiting) == 0 {
		return health.Good("none is under way")
	}
	var text []string
	var stranded *CommandsStatus
	for i, c := range waiting {
		text = append(text, fmt.Sprintf("%d %s", c.Count, c.State))
		if after := strandedAfter[c.State]; after > 0 && now.Sub(c.Oldest) >= after && (stranded == nil || c.Oldest.Before(stranded.Oldest)) {
			stranded = &waiting[i]
		}
	}
	if stranded == nil {
		return health.Good("%s", strings.Join(text, ", "))
	}
	return health.Warn(fmt.Sprintf("weir command list %s --status %s shows them; weir command cancel ends one that is not wanted any more", stranded.Tenant, stranded.State),
		"%s; one for device %s is %s for %s", strings.Join(text, ", "), stranded.Device, stranded.State, now.Sub(stranded.Oldest).Round(time.Minute))
}

// heldTooLong is how long a tenant's time may stand still before it is a finding.
const heldTooLong = 15 * time.Minute

// deviceClocks finds devices whose clock was set back, and tenants whose silence has not counted for long.
func deviceClocks(c ingest.DeviceClocks, held []ingest.HeldTenant) health.Finding {
	var long []string
	for _, h := range held {
		if h.For >= heldTooLong {
			long = append(long, fmt.Sprintf("%s for %s", h.Tenant, h.For.Round(time.Minute)))
		}
	}
	switch {
	case len(long) > 0:
		return health.Warn("raise the ceiling of the tenant, or let its devices send less: weir ledger shows what is refused",
			"messages are turned away or wait, and silence does not count meanwhile: rules of absence and duration wait: %s", strings.Join(long, ", "))
	case c.SetBack > 0:
		return health.Warn("set the clock of the device right, best by a time server",
			"the clock of device %s was set back, seen %s; %s of rules began again since the start", c.Device, c.At.Time().UTC().Format(time.RFC3339), health.Count(c.SetBack, "key"))
	}
	return health.Good("no device's clock was set back since the start; silence counts for every tenant")
}

// ceilings finds the tenants of whom messages were turned away in this hour or the one before because they send more
// than they may.
func ceilings(ctx context.Context, l *ingest.Ledger, now time.Time) health.Finding {
	lines, err := l.Lines(ctx, store.LedgerFilter{From: new(model.NanosOf(now.Add(-time.Hour)).Hour())})
	if err != nil {
		return health.Skip("the ledger cannot be read: %v", err)
	}
	over := map[string]int64{}
	var order []string
	for i := range lines {
		for _, r := range lines[i].Reasons {
			if r.Reason != string(ingest.ReasonCeiling) {
				continue
			}
			if over[lines[i].Tenant] == 0 {
				order = append(order, lines[i].Tenant)
			}
			over[lines[i].Tenant] += r.Count.Messages
		}
	}
	if len(order) == 0 {
		return health.Good("no tenant sends more than it may")
	}
	var text []string
	for _, t := range order {
		text = append(text, fmt.Sprintf("%s %s", t, health.Count(over[t], "message")))
	}
	return health.Warn("give the tenant a larger tier, raise governance.ingest_messages_per_second, or let its devices send less",
		"turned away in the last hours for the ceiling: %s", strings.Join(text, ", "))
}

// openTopicsTenantChecks say that broker.open_topics_tenant names no tenant: then no client gets in.
func (o *Operator) openTopicsTenantChecks() []health.Check {
	b := o.deps.Effective().Broker
	if b.OpenTopics == "" || b.OpenTopicsTenant == "" || o.deps.Govern.Known(b.OpenTopicsTenant) {
		return nil
	}
	return []health.Check{{ID: "open-topics-tenant", Look: func(context.Context) health.Finding {
		return health.Warn("name a tenant of weir tenant list, or make it", "broker.open_topics_tenant: there is no tenant %q, so no client gets in", b.OpenTopicsTenant)
	}}}
}

// openTopicsChecks say that there are open topics; where there are none nothing is to be said.
func openTopicsChecks(ls Listeners) []health.Check {
	address := ls.named(OpenListener).Configured
	if address == "" {
		return nil
	}
	return []health.Check{{ID: "open-topics", Look: func(context.Context) health.Finding {
		return health.Warn("leave broker.open_topics out unless a bridge, local nodes or a conformance suite need it",
			"%s serves general publish and subscribe: nothing published there is stored", address)
	}}}
}

// devToolsChecks say that the developer tools are on; where they are off nothing is to be said.
func devToolsChecks(getenv func(string) string) []health.Check {
	if !gql.DevTools(getenv) {
		return nil
	}
	return []health.Check{{ID: "dev-tools", Look: func(context.Context) health.Finding {
		return health.Warn("leave "+gql.DevToolsVariable+" out except on a development instance", "introspection and the explorer of the API are open to every client")
	}}}
}

func memoryOf(cfg config.Config, plan Plan, runtime int64) health.Memory {
	if runtime == plan.Runtime { // as it should be
		runtime = plan.Memory
	}
	return health.Memory{Limit: plan.Memory, Configured: cfg.Limits.Memory > 0, Runtime: runtime, Available: memory.Available("/")}
}

// names are those that the configuration holds.
func names(cfg config.Config, ls Listeners) health.Check {
	values := []string{cfg.BaseURL}
	for _, l := range ls.configured() {
		values = append(values, l.Address)
	}
	return health.Names(values, net.DefaultResolver.LookupHost)
}
