package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"weir/auth"
	"weir/broker"
	"weir/httpingest"
	"weir/ingest"
	"weir/store"
)

// The event source ids of the doors.
const (
	sourceMQTT = "mqtt1"
	sourceHTTP = "http1"
)

// startDoors opens the ways in, last of all.
func (in *Instance) startDoors(ctx, life context.Context) error {
	in.gauge = ingest.NewGauge(in.spool, in.metrics)
	in.gate = ingest.NewGate(ingest.GateConfig{DeviceAuth: ingest.DeviceAuthMode(in.cfg.Auth.DeviceAuthMode), FailClosed: in.cfg.Broker.FailClosed},
		ingest.GateDeps{Log: in.spool, Doors: in.doors, Stamp: in.stamp, Verify: in.verifyBody, Ceiling: in.govern, Pressure: in.gauge,
			Seal: in.vault.Seal, Ring: in.keepRefused, Logger: in.log, Registry: in.metrics})
	in.goes(life, "pressure", in.gauge.Run)
	in.goes(life, "gate", in.gate.Run)
	in.goes(life, "door counts", func(ctx context.Context) error { return in.gate.RunCounts(ctx, countsInterval) })
	in.goes(life, "dead letters", in.sweepDeadLetters)
	if err := in.startBroker(life); err != nil {
		return err
	}
	if err := in.startIngest(life); err != nil {
		return errors.Join(err, in.stopDoors(ctx))
	}
	in.listen.Open()
	in.tellListeners()
	return nil
}

// countsInterval is how long the doors' counts may wait for a batch to ride in before one is made for them.
const countsInterval = 10 * time.Second

func (in *Instance) startBroker(life context.Context) error {
	if !in.cfg.Broker.Enabled || in.cfg.Listeners.MQTT == "" {
		return nil
	}
	b, err := broker.New(broker.Config{InstanceID: in.cfg.Instance.ID, Source: sourceMQTT, MaxConnections: in.cfg.Broker.MaxConnections,
		SilentPresence: !in.cfg.Presence.Broker, RestartGrace: in.cfg.Presence.RestartGrace,
		ReconcileInterval: in.cfg.Presence.ReconcileInterval, AllowQoS2: in.cfg.Broker.AllowQoS2},
		broker.Deps{Gate: in.gate, Verifier: doorVerifier{in.verifier}, Presence: presences{in}, Logger: in.log, Registerer: in.metrics})
	if err != nil {
		return err
	}
	l, err := in.listenOn(in.cfg.Listeners.MQTT, &in.addrs.MQTT)
	if err != nil {
		return err
	}
	in.broker = b
	in.verifier.OnForget(func(f auth.Forgotten) {
		b.Drop(func(bound ingest.Binding) bool {
			return f.CredentialID != 0 && bound.Credential == f.CredentialID || f.DeviceID != 0 && bound.DeviceID == f.DeviceID ||
				f.Tenant != "" && bound.Tenant == f.Tenant
		})
	})
	in.goes(life, "broker", b.Run)
	in.goes(life, "mqtt", func(ctx context.Context) error { return ignoreClosed(b.Serve(ctx, l)) })
	return nil
}

func (in *Instance) startIngest(life context.Context) error {
	if in.cfg.Listeners.Ingest == "" {
		return nil
	}
	c := in.cfg.Ingest
	h, err := httpingest.New(httpingest.Config{InstanceID: in.cfg.Instance.ID, Source: sourceHTTP, MaxBody: int(c.MaxBody), HeaderTimeout: c.HTTPHeaderTimeout,
		RequestTimeout: c.HTTPRequestTimeout}, httpingest.Deps{Gate: in.gate, Logger: in.log, Registerer: in.metrics})
	if err != nil {
		return err
	}
	l, err := in.listenOn(in.cfg.Listeners.Ingest, &in.addrs.Ingest)
	if err != nil {
		return err
	}
	s := httpingest.NewServer(h, nil)
	in.http = s
	in.goes(life, "http ingest", func(context.Context) error { return ignoreClosed(s.Serve(l)) })
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// stopDoors shuts the doors: nobody is let in, those inside are told, and what was accepted is answered.
func (in *Instance) stopDoors(ctx context.Context) error {
	in.listen.Shut()
	var errs []error
	if in.http != nil {
		errs = append(errs, in.http.Shutdown(ctx))
	}
	if in.broker != nil {
		errs = append(errs, in.broker.Close(ctx))
	}
	return errors.Join(append(errs, in.gate.Shut(ctx))...)
}

// keepRefused puts the copy of a body that was refused into the strangers' ring.
func (in *Instance) keepRefused(ctx context.Context, d *store.DeadLetter) error {
	return in.store.Write(ctx, store.Results, func(tx store.Tx) error {
		if err := store.AddDeadLetter(tx, d); err != nil {
			return err
		}
		_, err := store.TrimStrangers(tx, strangersBytes)
		return err
	})
}

// strangersBytes bounds the ring of dead letters of those who verify as nobody.
const strangersBytes = 16 << 20

// sweepDeadLetters removes dead letters that are past their time.
func (in *Instance) sweepDeadLetters(ctx context.Context) error {
	keep := in.cfg.History.DeadLetterRetention
	if keep == 0 {
		return nil
	}
	t := time.NewTicker(time.Hour)
	defer t.Stop()
	for {
		before := (in.stamp().Wall.Micros()) - storeMicros(keep)
		if err := in.store.Write(ctx, store.Results, func(tx store.Tx) error {
			_, err := store.DeleteDeadLettersBefore(tx, before)
			return err
		}); err != nil && ctx.Err() == nil {
			in.log.Warn("old dead letters could not be removed; it is tried again in an hour", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// tellListeners says what is open and whether it is protected, and what to do first.
func (in *Instance) tellListeners() {
	say := func(what, addr, how string) {
		if addr != "" {
			fmt.Fprintf(in.opt.Out, "  %-12s %-24s %s\n", what, addr, how)
		}
	}
	fmt.Fprintf(in.opt.Out, "Weir %s, instance %s, data in %s\n", in.opt.Version, in.cfg.Instance.ID, in.cfg.DataDir)
	say("api", in.addrs.API, "GraphQL; signed tokens; no TLS")
	say("ingest", in.addrs.Ingest, "HTTP ingest; "+protection(in.cfg.Auth.DeviceAuthMode)+"; no TLS")
	say("mqtt", in.addrs.MQTT, "devices; a credential per connection; no TLS")
	say("metrics", in.addrs.Metrics, "anyone who can reach it")
	say("socket", in.addrs.Socket, "the operator; file mode 0600")
	if !in.auth.HasSuperuser() {
		fmt.Fprintf(in.opt.Out, "\nNobody can sign in yet: no default password exists. Make the first administrator with\n"+
			"  weir admin create you@example.org --data %s\n", in.cfg.DataDir)
	}
}

func protection(mode string) string {
	switch mode {
	case "optional":
		return "a credential in the body is checked when there is one"
	case "disabled":
		return "NO credential is asked for"
	}
	return "a credential in each body"
}
