package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/broker"
	"weir/config"
	"weir/model"
)

// ReloadReport is how a reload ended, or would end.
type ReloadReport struct {
	At time.Time `json:"at"`
	// By is who asked for it: weir reload, SIGHUP or watch.
	By string `json:"by"`
	// Outcome is taken, unchanged or failed.
	Outcome string `json:"outcome"`
	// Taken are the keys that are obeyed from now on, Waiting those that differ and need a restart.
	Taken     []config.Change `json:"taken"`
	Waiting   []config.Change `json:"waiting"`
	Unchanged int             `json:"unchanged"`
	// Problems are why the old configuration stays whole.
	Problems config.Problems  `json:"problems,omitempty"`
	Warnings []config.Warning `json:"warnings,omitempty"`
}

// Outcomes of a reload.
const (
	reloadTaken     = "taken"
	reloadUnchanged = "unchanged"
	reloadFailed    = "failed"
)

// reloads is what an instance knows of its configuration over time.
type reloads struct {
	one     sync.Mutex // one at a time
	obeyed  atomic.Pointer[config.Config]
	last    atomic.Pointer[ReloadReport]
	seen    config.Fingerprint // of the files at the last reload, whatever became of it
	metrics *prometheus.CounterVec
}

func (r *reloads) init(cfg config.Config, reg prometheus.Registerer) {
	r.obeyed.Store(&cfg)
	r.seen = cfg.Fingerprint()
	r.metrics = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_config_reloads_total",
		Help: "Reloads of the configuration by outcome."}, []string{"outcome"})
	for _, o := range []string{reloadTaken, reloadUnchanged, reloadFailed} {
		r.metrics.WithLabelValues(o)
	}
	reg.MustRegister(r.metrics)
}

// obeyed is the configuration that counts now: as it was at the start, with what reloads have taken.
func (in *Instance) obeyed() *config.Config { return in.reloads.obeyed.Load() }

// startReload listens for what asks for a reload beside the operator's command.
func (in *Instance) startReload(_, life context.Context) error {
	if in.opt.Source != nil {
		in.goes(life, "reload", in.runReload)
	}
	return nil
}

// plan reads the configuration again and says what a reload would do, and what would be obeyed then. It needs the lock.
func (in *Instance) plan(by string) (*ReloadReport, *config.Config) {
	read := config.Read(*in.opt.Source)
	in.reloads.seen = read.Fingerprint
	r := &ReloadReport{At: time.Now().UTC(), By: by, Outcome: reloadFailed, Taken: []config.Change{}, Waiting: []config.Change{}, Problems: read.Problems}
	if r.Problems != nil {
		return r, nil
	}
	next := config.Take(in.obeyed(), read.Config)
	if r.Problems = in.unfit(next); r.Problems != nil {
		return r, nil
	}
	r.Outcome, r.Warnings = reloadUnchanged, read.Config.Warnings()
	changes := config.Diff(in.obeyed(), read.Config)
	for _, c := range changes {
		if c.Reload {
			r.Taken, r.Outcome = append(r.Taken, c), reloadTaken
		} else {
			r.Waiting = append(r.Waiting, c)
		}
	}
	r.Unchanged = config.Keys() - len(changes)
	return r, next
}

// unfit is why a configuration cannot be obeyed although each of its keys may be as it is: what was taken must go together
// with what waits for a restart.
func (in *Instance) unfit(next *config.Config) config.Problems {
	if ps := next.Check(); ps != nil {
		return ps
	}
	for _, err := range []error{governConfig(*next).Validate(), authConfig(*next).Validate()} {
		if err != nil {
			return config.Problems{{Reason: err.Error()}}
		}
	}
	return nil
}

// reload reads the configuration again and obeys what can be obeyed without a restart. When anything is wrong with it
// nothing changes.
func (in *Instance) reload(by string) *ReloadReport {
	in.reloads.one.Lock()
	defer in.reloads.one.Unlock()
	_ = in.lookAtCertificate(true) // it has told, and the plan says it again where the files are wrong
	r, next := in.plan(by)
	if next != nil {
		if err := in.obey(next); err != nil { // unfit has asked them all
			r.Problems = config.Problems{{Reason: err.Error()}}
			r.Outcome = reloadFailed
		}
	}
	in.tell(r)
	if in.opt.Level != nil && r.Outcome != reloadFailed { // last, so that a log that becomes quieter still says why
		in.opt.Level.Set(levelOf(next.Logging.Level))
	}
	in.reloads.last.Store(r)
	in.reloads.metrics.WithLabelValues(r.Outcome).Inc()
	return r
}

// tell logs how a reload ended.
func (in *Instance) tell(r *ReloadReport) {
	if r.Outcome == reloadFailed {
		in.log.Error("the configuration was not reloaded: the one before stays", "by", r.By, "problems", r.Problems.Error())
		return
	}
	in.log.Info("the configuration was reloaded", "by", r.By, "taken", paths(r.Taken), "waiting for a restart", paths(r.Waiting))
	in.warn(r.Warnings)
}

func paths(changes []config.Change) []string {
	out := []string{}
	for _, c := range changes {
		out = append(out, c.Path)
	}
	return out
}

// obey hands every room what it may be told while it runs. Those that may refuse come first.
func (in *Instance) obey(c *config.Config) error {
	if err := in.govern.SetPlatform(governConfig(*c)); err != nil {
		return err
	}
	if err := in.auth.SetConfig(authConfig(*c)); err != nil {
		return err
	}
	in.gate.Set(gateConfig(*c))
	if in.broker != nil {
		in.broker.Set(broker.Settings{MaxConnections: in.mostConnections(c.Broker.MaxConnections), AllowQoS2: c.Broker.AllowQoS2,
			RestartGrace: c.Presence.RestartGrace, ReconcileInterval: c.Presence.ReconcileInterval})
	}
	if in.maxBody != nil {
		in.maxBody(int(c.Ingest.MaxBody))
	}
	in.registry.SetDevicesPerTenant(int64(c.Limits.DevicesPerTenant))
	in.api.SetURLs(c.BaseURL, c.DocsURL)
	in.reloads.obeyed.Store(c)
	select {
	case in.retention <- struct{}{}:
	default: // it looks already
	}
	return nil
}

// levelOf reads a level that the configuration has checked.
func levelOf(word string) (l slog.Level) {
	_ = l.UnmarshalText([]byte(word))
	return l
}

// warn logs what whoever sets this up should think over. What set itself up (the demonstration) knows.
func (in *Instance) warn(ws []config.Warning) {
	if in.opt.Source == nil {
		return
	}
	for _, w := range ws {
		at := w.Path
		if w.Line > 0 {
			at = fmt.Sprintf("%s (%s:%d)", w.Path, w.File, w.Line)
		} else if at == "" {
			at = w.File
		}
		in.log.Warn("configuration: "+at+" "+w.Reason, "hint", w.Hint)
	}
}

// errNoSource says that there is nothing to read again.
func errNoSource() error {
	return model.Errorf(model.CodeUnsupported, "this instance has no configuration to read again")
}

// canReload is why a reload must be refused now.
func (in *Instance) canReload() error {
	if in.opt.Source == nil {
		return errNoSource()
	}
	if !in.ready.Load() {
		return model.Errorf(model.CodeUnavailable, "the instance is starting or stopping")
	}
	return nil
}

// reloadNow is what weir reload asks for.
func (in *Instance) reloadNow(context.Context, struct{}) (*ReloadReport, error) {
	if err := in.canReload(); err != nil {
		return nil, err
	}
	return in.reload("weir reload"), nil
}

// planReload says what a reload would do, and does nothing.
func (in *Instance) planReload(context.Context, struct{}) (*ReloadReport, error) {
	if err := in.canReload(); err != nil {
		return nil, err
	}
	in.reloads.one.Lock()
	defer in.reloads.one.Unlock()
	seen := in.reloads.seen
	defer func() { in.reloads.seen = seen }() // it was only looked at
	r, _ := in.plan("")
	return r, nil
}

func (in *Instance) reloadVerbs() map[string]http.Handler {
	return map[string]http.Handler{
		"reload":      verb(in, in.reloadNow),
		"reload-plan": verb(in, in.planReload),
	}
}

// Reload makes the instance read its configuration again.
func (c *Client) Reload(ctx context.Context) (*ReloadReport, error) {
	return call[ReloadReport](ctx, c, "reload", struct{}{})
}

// PlanReload says what a reload would do.
func (c *Client) PlanReload(ctx context.Context) (*ReloadReport, error) {
	return call[ReloadReport](ctx, c, "reload-plan", struct{}{})
}
