package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// station is one part on the way from the disk to the doors.
type station struct {
	name  string
	start func(ctx, life context.Context) error
	// stop may wait; it ends early when ctx does. nil: nothing to do.
	stop func(ctx context.Context) error
	// patience bounds stop.
	patience time.Duration
}

// stations is the order of things: what stands further down needs what stands above it. The start goes down the list,
// the stop goes up.
func (in *Instance) stations() []station {
	return []station{
		// One process owns the directory before anything in it is looked at.
		{"lock", in.startLock, in.stopLock, time.Second},
		// Whoever watches is answered from the first moment on.
		{"front", in.startFront, in.stopFront, 15 * time.Second},
		// Secrets are sealed with the root key, the signing keys among them: the key first, then the store.
		{"store", in.startStore, in.stopStore, 10 * time.Second},
		// The log needs the offsets that the results know, so that its own never go back.
		{"spool", in.startSpool, in.stopSpool, 10 * time.Second},
		// Tenants, identities, devices: read into memory before anybody asks.
		{"registry", in.startRegistry, nil, 0},
		// Everything acknowledged before is applied before anybody may query; at a stop, before the log closes.
		{"applier", in.startApplier, in.stopApplier, 60 * time.Second},
		// What the files of the configuration declare is in force before anybody is let in by what it says: people sign in
		// after it, devices are known before their first message. It needs the applier, for its changes take their place
		// in the log.
		{"site", in.startSite, nil, 0},
		// What everybody may ask for is looked at before anybody can ask.
		{"vitals", in.startVitals, nil, 0},
		// People and programs.
		{"api", in.startAPI, in.stopAPI, 15 * time.Second},
		{"metrics", in.startMetrics, in.stopMetrics, time.Second},
		// The operator's own way in.
		{"socket", in.startSocket, in.stopSocket, 5 * time.Second},
		// Devices last in and first out: what they are told is true from the first message on.
		{"doors", in.startDoors, in.stopDoors, 15 * time.Second},
		// The configuration is taken anew only once everybody stands who must obey it.
		{"reload", in.startReload, nil, 0},
	}
}

// StopTimeout is how long a stop takes at most: whoever stops an instance waits longer before it kills.
func StopTimeout() time.Duration {
	var all time.Duration
	for _, s := range new(Instance).stations() {
		all += s.patience
	}
	return all
}

// start goes down the list. On an error the stations that stand are returned for the stop.
func (in *Instance) start(ctx, life context.Context) ([]station, error) {
	var up []station
	for _, s := range in.stations() {
		if err := s.start(ctx, life); err != nil {
			return up, unreadable(in.cfg.DataDir, fmt.Errorf("%s: %w", s.name, err))
		}
		up = append(up, s)
		if ctx.Err() != nil {
			return up, nil
		}
	}
	return up, nil
}

// stop goes up the list. What runs in the background ends with life once the stations below the log have stopped.
func (in *Instance) stop(up []station, endLife func(), hurry <-chan struct{}) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-hurry:
			in.log.Warn("the waits of the stop are cut short")
			cancel()
		case <-done:
		}
	}()
	var errs []error
	for _, s := range slices.Backward(up) {
		if s.name == "spool" { // nothing needs the background any more, and it must not meet a closed log
			endLife()
			in.running.Wait()
		}
		if s.stop == nil {
			continue
		}
		wait, release := context.WithTimeout(ctx, s.patience)
		if err := s.stop(wait); err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", s.name, err))
		}
		release()
	}
	endLife()
	in.running.Wait()
	return errors.Join(errs...)
}
