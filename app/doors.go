package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"weir/auth"
	"weir/broker"
	"weir/config"
	"weir/health"
	"weir/httpingest"
	"weir/ingest"
	"weir/model"
	"weir/store"
)

// The event source ids of the doors.
const (
	sourceMQTT = "mqtt1"
	sourceHTTP = "http1"
)

// startDoors opens the ways in, last of all.
func (in *Instance) startDoors(ctx, life context.Context) error {
	in.gauge = ingest.NewGauge(ingest.GaugeConfig{Log: in.spool, Applied: in.applier.Applied, Disk: in.disk, DiskReserve: int64(in.cfg.Spool.DiskReserve),
		Logger: in.log, Registry: in.metrics})
	in.gate = ingest.NewIntake(gateConfig(in.cfg),
		ingest.IntakeDeps{Log: in.spool, Counts: in.doors, Stamp: in.stamp, Verify: in.verifyBody, Ceiling: in.govern, Pressure: in.gauge,
			Seal: in.vault.Seal, KeepRejected: in.keepRefused, Tap: in.tap, Logger: in.log, Registry: in.metrics})
	in.goes(life, "pressure", in.gauge.Run)
	in.goes(life, "gate", in.gate.Run)
	in.goes(life, "door counts", func(ctx context.Context) error { return in.gate.RunCounts(ctx, countsInterval) })
	in.goes(life, "retention", newRetention(in).run)
	in.goes(life, "merge", in.merge)
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

func gateConfig(cfg config.Config) ingest.IntakeConfig {
	return ingest.IntakeConfig{DeviceAuth: ingest.DeviceAuthMode(cfg.Auth.DeviceAuthMode), FailClosed: cfg.Broker.FailClosed}
}

// countsInterval is how long the doors' counts may wait for a batch to ride in before one is made for them.
const countsInterval = 10 * time.Second

func (in *Instance) startBroker(life context.Context) error {
	doors := in.brokerDoors()
	if !in.cfg.Broker.Enabled || len(doors) == 0 {
		return nil
	}
	b, err := broker.New(broker.Config{InstanceID: in.cfg.Instance.ID, Source: sourceMQTT, MaxConnections: in.mostConnections(in.cfg.Broker.MaxConnections),
		MaxHandshakes: in.mostHandshakes(), MaxLargePackets: in.budget.largeBodies(),
		SilentPresence: !in.cfg.Presence.Broker, RestartGrace: in.cfg.Presence.RestartGrace,
		ReconcileInterval: in.cfg.Presence.ReconcileInterval, AllowQoS2: in.cfg.Broker.AllowQoS2,
		Open: openTopics(in.cfg.Broker)},
		broker.Deps{Intake: in.gate, Verifier: doorVerifier{in.verifier}, Presence: presences{in}, Refused: in.connectionRefused, Logger: in.log, Registerer: in.metrics})
	if err != nil {
		return err
	}
	for _, d := range doors {
		l, err := in.listenOn(d.key, d.address, d.at)
		if err != nil {
			return errors.Join(err, b.Close(life))
		}
		b.Listen(l, d.Listener)
	}
	in.broker = b
	in.verifier.OnInvalidate(func(f auth.Invalidation) {
		b.Drop(func(bound model.Binding) bool {
			return f.CredentialID != 0 && bound.Credential == f.CredentialID || f.DeviceID != 0 && bound.DeviceID == f.DeviceID ||
				f.Tenant != "" && bound.Tenant == f.Tenant
		})
	})
	in.goes(life, b.Name(), b.Run)
	return nil
}

// brokerDoor is a listener of the broker.
type brokerDoor struct {
	broker.Listener
	key     string
	address string  // as configured
	at      *string // where it really is
}

// brokerDoors are those that are to be opened. Of what speaks TLS only mqtts asks for the certificate of a device.
func (in *Instance) brokerDoors() (doors []brokerDoor) {
	l := in.cfg.Listeners
	add := func(name, address string, at *string, d broker.Listener) {
		if d.Name = name; address != "" {
			doors = append(doors, brokerDoor{d, "listeners." + name, address, at})
		}
	}
	add("mqtt", l.MQTT, &in.addrs.MQTT, broker.Listener{})
	add("mqtt_ws", l.MQTTWS, &in.addrs.MQTTWS, broker.Listener{WebSocket: true})
	if in.certs != nil {
		add("mqtts", l.MQTTS, &in.addrs.MQTTS, broker.Listener{TLS: in.certs.Server(true)})
		add("mqtt_wss", l.MQTTWSS, &in.addrs.MQTTWSS, broker.Listener{TLS: in.certs.Server(false), WebSocket: true})
	}
	if open := in.cfg.Broker.OpenTopics; open != "" {
		doors = append(doors, brokerDoor{broker.Listener{Name: "open_topics", Open: true}, "broker.open_topics", open, &in.addrs.OpenTopics})
	}
	return doors
}

// openTopics are those of the configuration, nil for none.
func openTopics(c config.Broker) *broker.OpenConfig {
	if c.OpenTopics == "" {
		return nil
	}
	return &broker.OpenConfig{Tenant: c.OpenTopicsTenant, Anonymous: c.OpenTopicsAnonymous}
}

func (in *Instance) startIngest(life context.Context) error {
	secure := in.cfg.Listeners.IngestTLS
	if in.certs == nil {
		secure = ""
	}
	if in.cfg.Listeners.Ingest == "" && secure == "" {
		return nil
	}
	c := in.cfg.Ingest
	var open []httpingest.Listener
	if addr := in.cfg.Listeners.Ingest; addr != "" {
		l, err := in.listenOn("listeners.ingest", addr, &in.addrs.Ingest)
		if err != nil {
			return err
		}
		open = append(open, httpingest.Listener{Listener: l})
	}
	if secure != "" {
		l, err := in.listenOn("listeners.ingest_tls", secure, &in.addrs.IngestTLS)
		if err != nil {
			return errors.Join(err, closeAll(open))
		}
		open = append(open, httpingest.Listener{Listener: l, TLS: in.certs.Server(false)})
	}
	t, err := httpingest.New(httpingest.Config{InstanceID: in.cfg.Instance.ID, Source: sourceHTTP, MaxBody: int(c.MaxBody), HeaderTimeout: c.HTTPHeaderTimeout,
		RequestTimeout: c.HTTPRequestTimeout, MaxConnections: in.ingestConnections(), MaxLargeBodies: in.budget.largeBodies()},
		httpingest.Deps{Intake: in.gate, Listeners: open, Logger: in.log, Registerer: in.metrics})
	if err != nil {
		return errors.Join(err, closeAll(open))
	}
	in.http, in.maxBody = t, t.SetMaxBody
	in.goes(life, "http ingest", t.Run)
	return nil
}

// closeAll closes sockets at which no client was accepted.
func closeAll(open []httpingest.Listener) (err error) {
	for _, l := range open {
		err = errors.Join(err, l.Close())
	}
	return err
}

// disk is what is free on the disk of the data directory, and how large it is.
func (in *Instance) disk() (free, size int64, err error) {
	fs, err := health.ThisMachine().FileSystem(in.cfg.DataDir)
	return int64(fs.FreeBytes), int64(fs.Bytes), err
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
		errs = append(errs, in.http.Close(ctx))
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
		_, err := store.TrimRejected(tx, strangersBytes)
		return err
	})
}

// strangersBytes bounds the ring of dead letters of those who verify as nobody.
const strangersBytes = 16 << 20

// tellListeners says what is open and whether it is protected, and what to do first.
func (in *Instance) tellListeners() {
	say := func(what, addr, how string) {
		if addr != "" {
			fmt.Fprintf(in.opt.Out, "  %-12s %-24s %s\n", what, addr, how)
		}
	}
	fmt.Fprintf(in.opt.Out, "Weir %s, instance %s, data in %s\n", in.opt.Version, in.cfg.Instance.ID, in.cfg.DataDir)
	ingest := "HTTP ingest; " + protection(in.cfg.Auth.DeviceAuthMode)
	say("api", in.addrs.API, "GraphQL; signed tokens; no TLS")
	say("api_tls", in.addrs.APITLS, "GraphQL; signed tokens; TLS")
	say("ingest", in.addrs.Ingest, ingest+"; no TLS")
	say("ingest_tls", in.addrs.IngestTLS, ingest+"; TLS")
	say("mqtt", in.addrs.MQTT, "devices; a credential per connection; no TLS")
	say("mqtts", in.addrs.MQTTS, "devices; "+in.proofs()+" per connection; TLS")
	say("mqtt_ws", in.addrs.MQTTWS, "devices over WebSocket, /mqtt; a credential per connection; no TLS")
	say("mqtt_wss", in.addrs.MQTTWSS, "devices over WebSocket, /mqtt; a credential per connection; TLS")
	say("open_topics", in.addrs.OpenTopics, "general publish and subscribe, NOT stored; "+in.openTo()+"; no TLS")
	say("metrics", in.addrs.Metrics, "anyone who can reach it")
	say("socket", in.addrs.Socket, "the operator; file mode 0600")
	if !in.auth.HasSuperuser() {
		fmt.Fprintf(in.opt.Out, "\nNobody can sign in yet: no default password exists. Make the first administrator with\n"+
			"  weir admin create you@example.org --data %s\n", in.cfg.DataDir)
		in.tellSetup()
	}
}

// openTo says who is let in at the open topics.
func (in *Instance) openTo() string {
	switch b := in.cfg.Broker; {
	case b.OpenTopicsAnonymous:
		return "NO credential is asked for"
	case b.OpenTopicsTenant != "":
		return "a device credential of " + b.OpenTopicsTenant
	}
	return "nobody is let in"
}

// proofs is what opens a connection at mqtts.
func (in *Instance) proofs() string {
	if in.cfg.TLS.ClientCAFile != "" {
		return "a credential or a certificate"
	}
	return "a credential"
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
