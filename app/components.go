package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// component is a part of an instance with a life of its own.
type component interface {
	// Start returns once what stands below it in the list can rely on it. life is for what goes on in the background.
	Start(ctx, life context.Context) error
	// Stop may wait; it ends early when ctx does.
	Stop(ctx context.Context) error
}

// entry is a component in the order of the start.
type entry struct {
	name string
	of   func(*Instance) component
	// timeout bounds the stop; 0: there is nothing to stop.
	timeout time.Duration
}

// components is the order of things: what stands further down needs what stands above it. The start goes down the list,
// the stop goes up.
var components = []entry{
	// One process owns the directory before anything in it is looked at.
	{"lock", func(in *Instance) component { return in.lock }, time.Second},
	{"certificate", func(in *Instance) component { return in.certificate }, 0},
	// Health is answered from the first moment on.
	{"front", func(in *Instance) component { return in.front }, 15 * time.Second},
	// Secrets are sealed with the root key, the signing keys among them: the key first, then the store.
	{"store", func(in *Instance) component { return in.store }, 10 * time.Second},
	// The log needs the offsets that the results know, so that its own never go back.
	{"spool", func(in *Instance) component { return in.spool }, 10 * time.Second},
	// What runs in the background ends before the log closes: it must not meet a closed one.
	{"background", func(in *Instance) component { return in.background }, 0},
	// Tenants, identities, devices: read into memory before the first question.
	{"registry", func(in *Instance) component { return in.entities }, 0},
	// It forwards what the applier has applied, beside it: it is opened before, and at a stop it hands over what was applied last.
	{"uplink", func(in *Instance) component { return in.uplink }, 10 * time.Second},
	// What was acknowledged before is applied in the background from here on; at a stop, before the log closes. What answers from
	// it waits for it by itself (ingest.Applier.Replayed).
	{"applier", func(in *Instance) component { return in.applier }, 60 * time.Second},
	// What the files of the configuration declare applies before it decides about a caller: people sign in after it, devices
	// are known before their first message. It needs the controller that the applier has started, since its changes are records of
	// the log.
	{"site", func(in *Instance) component { return in.site }, 0},
	{"intake", func(in *Instance) component { return in.intake }, 5 * time.Second},
	// Figures that are looked at rather than counted, and what keeps the store in shape.
	{"vitals", func(in *Instance) component { return in.operator }, 0},
	// People and programs.
	{"api", func(in *Instance) component { return in.api }, 15 * time.Second},
	{"metrics", func(in *Instance) component { return in.scrape }, time.Second},
	{"socket", func(in *Instance) component { return in.socket }, 5 * time.Second},
	// Devices last in and first out: the answers that they get are true from the first message on.
	{"transports", func(in *Instance) component { return in.transports }, 10 * time.Second},
	// The configuration is read again only once everything runs that a change applies to.
	{"reload", func(in *Instance) component { return in.reload }, 0},
}

// StopTimeout is the longest time that a stop takes: a service manager waits longer before it kills.
func StopTimeout() time.Duration {
	var all time.Duration
	for _, c := range components {
		all += c.timeout
	}
	return all
}

// start goes down the list. On an error the components that run are returned for the stop.
func (in *Instance) start(ctx, life context.Context) (up []entry, err error) {
	for _, c := range components {
		if err := c.of(in).Start(ctx, life); err != nil {
			return up, fmt.Errorf("%s: %w", c.name, err)
		}
		// A stop that was asked for during the start takes effect between two components.
		if up = append(up, c); ctx.Err() != nil {
			break
		}
	}
	return up, nil
}

// stop goes up the list.
func (in *Instance) stop(up []entry, early <-chan struct{}) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	// The operator can cancel the waits. Every component is stopped all the same.
	go func() {
		select {
		case <-early:
			in.log.Warn("the waits of the stop are cancelled")
			cancel()
		case <-done:
		}
	}()
	var errs []error
	// An error does not end the stop, but the stop is then not recorded as clean.
	for _, c := range slices.Backward(up) {
		if err := in.stopOne(ctx, c); err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", c.name, err))
			in.spool.incomplete = true
		}
	}
	return errors.Join(append(errs, in.background.Stop(ctx))...) // a start that failed early may have begun something
}

// stopOne stops a component within its timeout, and says what it waits for where that takes long.
func (in *Instance) stopOne(ctx context.Context, e entry) error {
	if e.timeout > 0 {
		var release func()
		ctx, release = context.WithTimeout(ctx, e.timeout)
		defer release()
	}
	c := e.of(in)
	// The text is built only when the stop takes long enough to be reported.
	defer in.reporting("stopping", func() string {
		text := "waiting for " + e.name
		if w, ok := c.(interface{ waitsFor() string }); ok {
			text += ", " + w.waitsFor()
		}
		return text
	})()
	return c.Stop(ctx)
}

// background is what runs besides the components.
type background struct {
	*base
	end context.CancelFunc
}

// Start implements component.
func (*background) Start(context.Context, context.Context) error { return nil }

// Stop ends what runs in the background and waits for it.
func (b *background) Stop(context.Context) error {
	b.end()
	b.running.Wait()
	return nil
}

// noStop is a component that has nothing to stop.
type noStop struct{}

// Stop implements component.
func (noStop) Stop(context.Context) error { return nil }
