package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"weir/config"
	"weir/health"
	"weir/ingest"
	"weir/internal/build"
	"weir/internal/memory"
	"weir/internal/rootkey"
	"weir/model"
	"weir/rules"
	"weir/store"
)

// How long one check may take, and how many times as long all of them together: a verb answers within patience.
const (
	CheckPatience = 4 * time.Second
	allChecks     = 6
)

// DoctorQuery says who asks.
type DoctorQuery struct {
	Version string `json:"version,omitempty"` // of the binary that asks
}

// doctor looks at a running instance from inside: its limits and its view of the disk are what count.
func (in *Instance) doctor(ctx context.Context, q DoctorQuery) (*health.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, allChecks*CheckPatience)
	defer cancel()
	r := health.Examine(ctx, CheckPatience, in.checks(health.ThisMachine(), q))
	r.Running = true
	return r, nil
}

// checks are what can be looked at while the instance runs.
func (in *Instance) checks(m health.Machine, q DoctorQuery) []health.Check {
	cfg := *in.obeyed()
	dir := cfg.DataDir
	log := in.spool.Stats()
	return slices.Concat([]health.Check{
		{ID: "instance", Look: func(context.Context) health.Finding { return in.isUp(q.Version) }},
		m.Directory(dir),
		m.FileModes(dir),
		m.FileSystemKind(dir),
		m.DiskKind(dir),
		m.Space(dir, log.MaxBytes-log.DiskBytes),
		m.Sync(dir),
		health.Wear(in.vitals.writing()),
		{ID: "root-key", Look: func(context.Context) health.Finding {
			return rootKeyFinding(rootkey.Options{File: in.rootKeyPath(), Env: in.opt.Getenv("WEIR_ROOT_KEY"), SealedUnder: in.vault.KeyID()})
		}},
		{ID: "store", Look: in.storeAnswers},
		{ID: "log", Look: func(context.Context) health.Finding { return in.logTakes() }},
		{ID: "log-losses", Look: func(ctx context.Context) health.Finding { return lossFindingOf(ctx, in.store, dir, m.Now()) }},
		{ID: "reload", Look: func(context.Context) health.Finding { return reloadFinding(in.reloads.last.Load()) }},
		{ID: "last-stop", Look: func(context.Context) health.Finding { return in.last.finding() }},
		backupCheck(dir, m.Now),
		{ID: "clock", Look: func(ctx context.Context) health.Finding {
			return in.clockHolds(ctx, m.Clock(build.Time(), dir, spoolPath(dir)))
		}},
		m.OpenFileLimit(NewBudget(MemoryLimit(cfg)).mqttConnections(cfg.Broker.MaxConnections)),
		health.MemoryLimit(memoryOf(cfg, debug.SetMemoryLimit(-1))),
		health.PortsAnswer(in.addrs.listeners()),
		names(cfg),
		health.Exposure(configured(cfg)),
	}, openTopicsChecks(cfg), in.certificateChecks(m.Now), []health.Check{
		health.DeviceAuth(cfg.Auth.DeviceAuthMode),
		{ID: "sign-in", Look: func(context.Context) health.Finding { return signIn(in.auth.HasSuperuser(), dir) }},
		{ID: "ledger", Look: func(ctx context.Context) health.Finding { return ledgerFinding(ctx, in.applier.Ledger()) }},
		{ID: "backlog", Look: func(context.Context) health.Finding { return in.backlog(m.Now()) }},
		{ID: "dead-letters", Look: func(ctx context.Context) health.Finding { return deadLetterFinding(ctx, in.store, m.Now()) }},
		{ID: "applier", Look: func(context.Context) health.Finding { return in.applies() }},
		{ID: "rules", Look: func(context.Context) health.Finding {
			return rulesFinding(in.applier.RuleStats(), in.applier.UnhealthyRules())
		}},
		{ID: "ceilings", Look: func(ctx context.Context) health.Finding { return ceilings(ctx, in.applier.Ledger(), m.Now()) }},
	})
}

func (in *Instance) isUp(asker string) health.Finding {
	switch up := time.Since(in.started).Round(time.Second); {
	case !in.ready.Load():
		return health.Warn("wait for it: weir health --wait 1m", "version %s, not ready: it is starting or stopping", in.opt.Version)
	case asker != "" && asker != in.opt.Version:
		return health.Warn("restart the instance to run what is installed", "version %s runs, this binary is %s", in.opt.Version, asker)
	default:
		return health.Good("version %s, ready, up %s", in.opt.Version, up)
	}
}

func (in *Instance) storeAnswers(ctx context.Context) health.Finding {
	if err := in.store.Read(ctx, func(tx store.Tx) error {
		_, _, err := store.CheckpointState(tx)
		return err
	}); err != nil {
		return health.Fail("the log of the instance says more", "the database cannot be read: %v", err)
	}
	if f, sound := in.storeFinding(); !sound {
		return f
	}
	s := in.store.Stats()
	return health.Good("%s on disk", health.Bytes(s.Bytes))
}

func (in *Instance) logTakes() health.Finding {
	s := in.spool.Stats()
	if s.Err != nil {
		return health.Fail("messages are refused until it takes them again; look at disk-space and disk-sync", "the log refuses appends: %v", s.Err)
	}
	told := health.Bytes(s.DiskBytes) + " on disk"
	if s.LastSyncNanos > 0 {
		told += fmt.Sprintf(", the last sync took %s", time.Duration(s.LastSyncNanos).Round(10*time.Microsecond))
	}
	return health.Good("%s", told)
}

// clockHolds says what the instance itself holds of the clock, else what can be seen from outside.
func (in *Instance) clockHolds(ctx context.Context, outside health.Check) health.Finding {
	if why := in.clock.Doubt(); why != "" {
		return health.Fail("set the clock (a time server, date -s): messages are acknowledged and kept meanwhile, event times as sent", "%s", why)
	}
	return outside.Look(ctx)
}

func (in *Instance) applies() health.Finding {
	if why := in.applier.Stalled(); why != "" {
		return health.Fail("nothing acknowledged is lost: it waits in the log and is applied once this is mended", "what was accepted is not applied: %s", why)
	}
	return health.Good("applied up to record %d", in.applier.Applied())
}

// backlogWarning is how full the log may be, in percent, before it is worth a word.
const backlogWarning = 50

func (in *Instance) backlog(now time.Time) health.Finding {
	s := in.spool.Stats()
	waiting := int64(s.Last) - int64(in.applier.Applied())
	told := fmt.Sprintf("%s to be applied, the log holds %s of %s", health.Count(max(waiting, 0), "record"), health.Bytes(s.Bytes), health.Bytes(s.MaxBytes))
	if since := in.applier.HeadSince(); since > 0 {
		told += fmt.Sprintf(", the oldest that is not yet in the store came %s ago", now.Sub(since.Time()).Round(time.Second))
	}
	const hint = "look at applier, store and disk-sync; ingest.spool_max_bytes is how much may wait"
	switch {
	case in.gauge != nil && in.gauge.Refusing():
		return health.Fail(hint, "new messages are refused: %s", told)
	case s.MaxBytes > 0 && s.Bytes*100 >= s.MaxBytes*backlogWarning:
		return health.Warn(hint, "%s", told)
	}
	return health.Good("%s", told)
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
	case r.Outcome == reloadFailed:
		return health.Fail("weir config validate shows the lines; until it is mended the configuration of before is obeyed",
			"the last one, at %s, was refused: %s", r.At.Format(time.RFC3339), health.Count(len(r.Problems), "mistake"))
	case len(r.Waiting) > 0:
		var keys []string
		for _, c := range r.Waiting {
			keys = append(keys, c.Path)
		}
		return health.Warn("restart the instance to have them obeyed", "waiting for a restart: %s", strings.Join(keys, ", "))
	}
	return health.Good("the last one, at %s, is obeyed", r.At.Format(time.RFC3339))
}

func signIn(can bool, dir string) health.Finding {
	if can {
		return health.Good("there is an administrator")
	}
	return health.Warn("weir admin create you@example.org --data "+dir+", or in a browser: weir admin link", "nobody can sign in yet")
}

func ledgerFinding(ctx context.Context, l *ingest.Ledger) health.Finding {
	lines, err := l.Lines(ctx, store.LedgerFilter{})
	if err != nil {
		return health.Skip("the ledger cannot be read: %v", err)
	}
	var hours int
	var missing int64
	for i := range lines {
		if n := lines[i].Missing(); n != 0 {
			hours++
			missing += n
		}
	}
	if hours > 0 {
		return health.Fail("weir ledger shows which; this is a defect of Weir: please report it with weir bundle", "%s out of balance, by %s", health.Count(hours, "hour"), health.Count(missing, "message"))
	}
	return health.Good("balanced, %s", health.Count(len(lines), "line"))
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
	var told []string
	for _, r := range reasons {
		told = append(told, fmt.Sprintf("%d %s", r.Count, r.Reason))
	}
	return health.Warn("weir ledger dead-letters shows them", "in the last day: %s", strings.Join(told, ", "))
}

// namedRules is how many rules a finding names.
const namedRules = 3

func rulesFinding(s rules.Stats, ailing []rules.Health) health.Finding {
	if len(ailing) == 0 {
		return health.Good("%d run", s.Rules)
	}
	var told []string
	result := health.Warn
	for _, h := range ailing {
		what := fmt.Sprintf("%d samples could not be judged", h.EvalErrors)
		switch {
		case h.Status == rules.CompileError:
			what, result = "does not run: "+h.Message, health.Fail
		case h.EvalErrors == 0:
			what = fmt.Sprintf("%d detections found no room (detection.max_keys_per_tenant)", h.RefusedKeys)
		}
		told = append(told, h.RuntimeID+" "+what)
	}
	if more := len(told) - namedRules; more > 0 {
		told = append(told[:namedRules], fmt.Sprintf("and %d more", more))
	}
	return result("correct the rule in its device profile and publish it", "%d of %d: %s", len(ailing), max(s.Rules, len(ailing)), strings.Join(told, "; "))
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
	var told []string
	for _, t := range order {
		told = append(told, fmt.Sprintf("%s %s", t, health.Count(over[t], "message")))
	}
	return health.Warn("give the tenant a larger tier, raise governance.ingest_messages_per_second, or let its devices send less",
		"turned away in the last hours for the ceiling: %s", strings.Join(told, ", "))
}

// openTopicsChecks say that there are open topics; where there are none nothing is to be said.
func openTopicsChecks(cfg config.Config) []health.Check {
	if cfg.Broker.OpenTopics == "" || !cfg.Broker.Enabled {
		return nil
	}
	return []health.Check{{ID: "open-topics", Look: func(context.Context) health.Finding {
		return health.Warn("leave broker.open_topics out unless a bridge, local nodes or a conformance suite need it",
			"%s serves general publish and subscribe: nothing published there is stored", cfg.Broker.OpenTopics)
	}}}
}

func memoryOf(cfg config.Config, runtime int64) health.Memory {
	if runtime == RuntimeLimit(cfg) { // as it should be
		runtime = MemoryLimit(cfg)
	}
	return health.Memory{Limit: MemoryLimit(cfg), Configured: cfg.Limits.Memory > 0, Runtime: runtime, Available: memory.Available("/")}
}

// names are those that the configuration holds.
func names(cfg config.Config) health.Check {
	values := []string{cfg.BaseURL}
	for _, l := range configured(cfg) {
		values = append(values, l.Address)
	}
	return health.Names(values, net.DefaultResolver.LookupHost)
}

// configured are the listeners as the configuration has them.
func configured(cfg config.Config) []health.Listener {
	l := cfg.Listeners
	if !cfg.Broker.Enabled {
		l.MQTT, l.MQTTS, l.MQTTWS, l.MQTTWSS, cfg.Broker.OpenTopics = "", "", "", "", ""
	}
	if !cfg.Metrics.Enabled {
		l.Metrics = ""
	}
	if !cfg.TLS.Enabled() {
		l.MQTTS, l.APITLS, l.IngestTLS, l.MQTTWSS = "", "", "", ""
	}
	return Addresses{API: l.API, Ingest: l.Ingest, MQTT: l.MQTT, Metrics: l.Metrics, MQTTS: l.MQTTS, APITLS: l.APITLS, IngestTLS: l.IngestTLS,
		MQTTWS: l.MQTTWS, MQTTWSS: l.MQTTWSS, OpenTopics: cfg.Broker.OpenTopics}.listeners()
}

func (a Addresses) listeners() []health.Listener {
	return []health.Listener{{Key: "listeners.api", Address: a.API}, {Key: "listeners.api_tls", Address: a.APITLS, TLS: true},
		{Key: "listeners.ingest", Address: a.Ingest}, {Key: "listeners.ingest_tls", Address: a.IngestTLS, TLS: true},
		{Key: "listeners.mqtt", Address: a.MQTT}, {Key: "listeners.mqtts", Address: a.MQTTS, TLS: true},
		{Key: "listeners.mqtt_ws", Address: a.MQTTWS}, {Key: "listeners.mqtt_wss", Address: a.MQTTWSS, TLS: true},
		{Key: "listeners.metrics", Address: a.Metrics}, {Key: "broker.open_topics", Address: a.OpenTopics}}
}

func (in *Instance) doctorVerbs() map[string]http.Handler {
	return map[string]http.Handler{
		"doctor": verb(in, in.doctor),
		"health": verb(in, func(context.Context, struct{}) (*Health, error) { return in.health(), nil }),
		"bundle": verb(in, func(ctx context.Context, _ struct{}) ([]BundleFile, error) { return in.bundle(ctx) }),
	}
}

// Doctor returns what is wrong with the instance.
func (c *Client) Doctor(ctx context.Context, q DoctorQuery) (*health.Report, error) {
	return call[health.Report](ctx, c, "doctor", q)
}
