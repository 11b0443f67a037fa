package app

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/config"
	"weir/model"
	"weir/operate"
)

// reload reads the configuration again: when the operator asks, at a signal, and when watched files change.
type reload struct {
	*base
	noStop
	in     *Instance
	one    sync.Mutex // one at a time
	last   atomic.Pointer[operate.ReloadReport]
	seen   config.Fingerprint // of the files at the last reload, whatever its outcome
	counts *prometheus.CounterVec
}

func newReload(b *base, in *Instance) *reload {
	r := &reload{
		base: b,
		in:   in,
		seen: b.cfg.Fingerprint(),
		counts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_config_reloads_total",
			Help: "Reloads of the configuration by outcome."}, []string{"outcome"}),
	}
	for _, o := range []string{operate.ReloadTaken, operate.ReloadUnchanged, operate.ReloadFailed} {
		r.counts.WithLabelValues(o)
	}
	b.metrics.MustRegister(r.counts)
	return r
}

// Start listens for what asks for a reload besides the operator's verb.
func (r *reload) Start(_, life context.Context) error {
	if r.opt.Source != nil {
		r.runPart(life, "reload", r.run)
	}
	return nil
}

// Possible implements operate.Reloads.
func (r *reload) Possible() error {
	if r.opt.Source == nil {
		return errNoSource()
	}
	if !r.serving.Load() {
		return model.Errorf(model.CodeUnavailable, "the instance is starting or stopping")
	}
	return nil
}

// Last implements operate.Reloads.
func (r *reload) Last() *operate.ReloadReport { return r.last.Load() }

// Plan implements operate.Reloads.
func (r *reload) Plan() *operate.ReloadReport {
	r.one.Lock()
	defer r.one.Unlock()
	seen := r.seen
	defer func() { r.seen = seen }() // it was only looked at
	rep, _ := r.plan("")
	return rep
}

// plan reads the configuration again and says what a reload would do, and what would apply then. It needs the lock.
func (r *reload) plan(by string) (*operate.ReloadReport, *config.Config) {
	// The fingerprint is taken from this read, so that a change between two reads is not overlooked.
	read := config.Read(*r.opt.Source)
	r.seen = read.Fingerprint
	rep := &operate.ReloadReport{
		At:       time.Now().UTC(),
		By:       by,
		Outcome:  operate.ReloadFailed,
		Taken:    []config.Change{},
		Waiting:  []config.Change{},
		Problems: read.Problems,
	}
	if rep.Problems != nil {
		return rep, nil
	}
	// What a reload would apply must be valid together with what waits for a restart.
	next := config.Take(r.effective(), read.Config)
	if rep.Problems = r.checkApplicable(next); rep.Problems != nil {
		return rep, nil
	}
	rep.Outcome, rep.Warnings = operate.ReloadUnchanged, read.Config.Warnings()
	changes := config.Diff(r.effective(), read.Config)
	// Divide the changes into those that apply now and those that need a restart.
	for _, c := range changes {
		if c.Reload {
			rep.Taken, rep.Outcome = append(rep.Taken, c), operate.ReloadTaken
		} else {
			rep.Waiting = append(rep.Waiting, c)
		}
	}
	rep.Unchanged = config.Keys() - len(changes)
	return rep, next
}

// checkApplicable returns why a configuration cannot be applied although each of its keys may be as it is: what was taken must go together
// with what waits for a restart.
func (r *reload) checkApplicable(next *config.Config) config.Problems {
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

// Reload reads the configuration again and applies what can be applied without a restart. When anything is wrong with it
// nothing changes.
func (r *reload) Reload(by string) *operate.ReloadReport {
	r.one.Lock()
	defer r.one.Unlock()
	_ = r.in.certificate.checkFiles(true) // it has reported, and the plan says it again where the files are wrong
	// Nothing is applied unless the whole configuration is valid.
	rep, next := r.plan(by)
	if next != nil {
		if err := r.apply(next); err != nil { // unfit has asked them all
			rep.Problems = config.Problems{{Reason: err.Error()}}
			rep.Outcome = operate.ReloadFailed
		}
	}
	r.report(rep)
	if r.opt.Level != nil && rep.Outcome != operate.ReloadFailed { // last, so that a log that becomes quieter still says why
		r.opt.Level.Set(levelOf(next.Logging.Level))
	}
	r.last.Store(rep)
	r.counts.WithLabelValues(rep.Outcome).Inc()
	return rep
}

// report logs how a reload ended.
func (r *reload) report(rep *operate.ReloadReport) {
	if rep.Outcome == operate.ReloadFailed {
		r.log.Error("the configuration was not reloaded: the one before stays", "by", rep.By, "problems", rep.Problems.Error())
		return
	}
	r.log.Info("the configuration was reloaded", "by", rep.By, "taken", paths(rep.Taken), "waiting for a restart", paths(rep.Waiting))
	r.warn(rep.Warnings)
}

func paths(changes []config.Change) []string {
	out := []string{}
	for _, c := range changes {
		out = append(out, c.Path)
	}
	return out
}

// apply hands every part what may change while it runs. Those that may refuse come first.
func (r *reload) apply(c *config.Config) error {
	if err := r.in.entities.Govern.SetPlatform(governConfig(*c)); err != nil {
		return err
	}
	if err := r.in.entities.Auth.SetConfig(authConfig(*c)); err != nil {
		return err
	}
	if err := r.in.entities.guard.SetAllowed(c.Egress.Allowed); err != nil {
		return err
	}
	r.in.entities.Connectors.Forget() // a kept connection may lead to where none is allowed any more
	// None of these can refuse.
	r.in.intake.into.Set(intakeConfig(*c))
	r.in.transports.reload(c)
	r.in.entities.Registry.SetLimits(c.Limits.DeviceSettings)
	r.in.entities.Provision.SetLimits(c.Limits.ProfileSettings)
	for _, b := range r.in.brought {
		if b.Reload != nil {
			b.Reload(*c)
		}
	}
	r.in.entities.Commands.Set(c.Commands)
	r.in.front.web.SetURLs(c.URLs)
	// The configuration counts as effective only after every part has it.
	r.current.Store(c)
	// A shorter retention takes effect now, not at the next interval.
	r.in.operator.retention.Wake()
	return nil
}

// levelOf reads a level that the configuration has checked.
func levelOf(word string) (l slog.Level) {
	_ = l.UnmarshalText([]byte(word))
	return l
}

// errNoSource says that there is nothing to read again.
func errNoSource() error {
	return model.Errorf(model.CodeUnsupported, "this instance has no configuration to read again")
}
