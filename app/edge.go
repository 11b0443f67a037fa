package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"weir/auth"
	"weir/broker"
	"weir/config"
	"weir/edge"
	"weir/httpingest"
	"weir/ingest"
	"weir/internal/build"
	"weir/model"
	"weir/operate"
	"weir/spool"
	"weir/spool/bolt"
	"weir/web"
)

// Edge is a running instance with role: edge. It has the lock, the log, the transports and the operator's socket of every instance, and in
// place of the platform an uplink.
type Edge struct {
	*base
	lock        *lock
	certificate *certificate
	scrape      *scrape

	edge     *edge.Edge
	web      *web.Server
	serving  sync.WaitGroup // of web
	socket   *operate.Server
	mqtt     *broker.Broker
	http     *httpingest.Transport
	stopLink context.CancelFunc // ends the uplink
	linked   sync.WaitGroup
}

// NewEdge returns an edge that is not yet started.
func NewEdge(cfg config.Config, opt Options) *Edge {
	b := newBase(cfg, opt)
	b.kinds, b.listeners.all = nil, edgeListeners(cfg)
	in := &Edge{base: b}
	b.memory.OpenFunc("program", programBytes, nil)
	// The log is opened later, so the accounts ask for it once the edge serves.
	for _, s := range []struct {
		share share
		held  func(spool.Stats) int64
	}{
		{unsyncedShare, func(s spool.Stats) int64 { return s.UnsyncedBytes }},
		{tailShare, func(s spool.Stats) int64 { return s.TailBytes }},
	} {
		b.memory.OpenFunc(s.share.Name, b.budget.of(s.share), func() int64 {
			if !b.ready.Load() {
				return 0
			}
			return s.held(in.edge.LogStats())
		})
	}
	in.lock, in.certificate, in.scrape = &lock{base: b}, &certificate{base: b}, &scrape{base: b}
	return in
}

// Listeners returns the listeners that the instance can have, with the addresses of those that are open.
func (in *Edge) Listeners() operate.Listeners { return in.listeners.list() }

// Status returns how the edge is. It must run.
func (in *Edge) Status() edge.Status { return in.edge.Status() }

// Ledger returns the ledger of the edge. It must run.
func (in *Edge) Ledger() []edge.LedgerLine { return in.edge.Ledger() }

// edgeListeners are all that an edge can have.
func edgeListeners(c config.Config) operate.Listeners {
	access := "devices of the site; user name and password that they share"
	if c.Edge.Synced() {
		access = "devices of the site; their credentials at the Weir above"
	} else if c.Edge.Username == "" {
		access = "devices of the site; NO credential is asked for"
	}
	const health = "health"
	l := c.Listeners
	all := operate.Listeners{
		{Name: operate.APIListener, Key: "listeners.api", Configured: l.API, Protocol: health, Access: health},
		{Name: operate.APITLSListener, Key: "listeners.api_tls", Configured: l.APITLS, Protocol: health, Access: health, TLS: true},
		{Name: operate.IngestListener, Key: "listeners.ingest", Configured: l.Ingest, Protocol: "HTTP ingest", Access: access},
		{Name: operate.IngestTLSListener, Key: "listeners.ingest_tls", Configured: l.IngestTLS, Protocol: "HTTP ingest", Access: access, TLS: true},
		{Name: operate.MQTTListener, Key: "edge.listen", Configured: c.Edge.Listen, Protocol: mqttPlain, Access: access},
		{Name: operate.MQTTSListener, Key: "listeners.mqtts", Configured: l.MQTTS, Protocol: mqttPlain, Access: access, TLS: true},
		{Name: "mqtt_ws", Key: "listeners.mqtt_ws", Configured: l.MQTTWS, Protocol: mqttOverWebSocket, Access: access},
		{Name: "mqtt_wss", Key: "listeners.mqtt_wss", Configured: l.MQTTWSS, Protocol: mqttOverWebSocket, Access: access, TLS: true},
		metricsListener(c),
		{Name: operate.SocketListener, Access: "the operator; file mode 0600"},
	}
	// A listener with TLS stays closed without a certificate.
	for i := range all {
		if all[i].TLS && !c.TLS.Enabled() {
			all[i].Configured = ""
		}
	}
	return all
}

// Run starts the edge, calls ready when it serves (ready may be nil), and stops it when ctx ends or a part fails. Closing early ends the
// waits of the stop; a nil channel never does.
func (in *Edge) Run(ctx context.Context, ready func(), early <-chan struct{}) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var stops []func(context.Context) error // in the order of the start
	err := in.start(ctx, life, func(stop func(context.Context) error) { stops = append(stops, stop) })
	if err == nil {
		in.announce(ready)
		select {
		case <-ctx.Done():
			in.log.Info("stopping")
		case err = <-in.failed:
			in.log.Error("a part failed; stopping", "error", err)
		}
	}
	in.ready.Store(false)
	// One timeout bounds the whole stop.
	stopping, cancel := context.WithTimeout(context.Background(), StopTimeout())
	defer cancel()
	// The operator can cancel the waits of the stop.
	go func() {
		select {
		case <-early:
			cancel()
		case <-stopping.Done():
		}
	}()
	for i, stop := range slices.Backward(stops) {
		if i == 0 { // the lock goes last, when nothing runs
			end()
			in.running.Wait()
		}
		err = errors.Join(err, stop(stopping))
	}
	return err
}

func (in *Edge) announce(ready func()) {
	in.ready.Store(true)
	in.log.Info("ready", "took", time.Since(in.started).Round(time.Millisecond).String())
	if ready != nil {
		ready()
	}
}

// start starts the parts: devices last in and first out.
func (in *Edge) start(ctx, life context.Context, started func(func(context.Context) error)) error {
	// One process owns the directory before anything in it is looked at.
	if err := in.lock.Start(ctx, life); err != nil {
		return err
	}
	started(in.lock.Stop)
	if err := in.certificate.Start(ctx, life); err != nil {
		return err
	}
	// Health is answered before the log is opened.
	if err := in.startWeb(life); err != nil {
		return err
	}
	started(func(ctx context.Context) error {
		defer in.serving.Wait()
		return in.web.Shutdown(ctx)
	})
	if err := in.open(); err != nil {
		return err
	}
	started(func(context.Context) error { return in.edge.Close() })
	// What watches the edge comes before what uses it.
	if err := in.scrape.Start(ctx, life); err != nil {
		return err
	}
	started(in.scrape.Stop)
	if err := in.startSocket(ctx, life); err != nil {
		return err
	}
	started(func(ctx context.Context) error { return in.socket.Shutdown(ctx) })
	// The link before the transports, and at the stop after them: the last messages are forwarded.
	in.startLink()
	started(func(context.Context) error {
		in.stopLink()
		in.linked.Wait()
		return nil
	})
	if err := in.startTransports(life); err != nil {
		return err
	}
	started(in.stopTransports)
	in.report()
	return nil
}

// startWeb opens the port that answers health checks.
func (in *Edge) startWeb(life context.Context) error {
	var err error
	if in.web, err = web.New(web.Config{
		MaxConnections: in.lock.apiConnections(),
		URLs:           in.cfg.URLs,
		Ready:          in.ready.Load,
		Log:            in.log,
		Registerer:     in.metrics,
	}); err != nil {
		return err
	}
	sockets, err := in.base.open(in.certificate.pair, apiListeners(in.cfg))
	for _, s := range sockets {
		in.serving.Go(in.part(life, s.About.Name, func(context.Context) error {
			if s.TLS != nil {
				return ignoreClosed(in.web.ServeTLS(s, s.About.Name, s.TLS))
			}
			return ignoreClosed(in.web.Serve(s))
		}))
	}
	return err
}

// open opens the log.
func (in *Edge) open() error {
	// The roles keep different files, so a directory of the other role is refused.
	if _, err := os.Stat(operate.DBPath(in.cfg.DataDir)); err == nil {
		return &model.Error{Code: model.CodeConflict, Message: fmt.Sprintf("%s is the data directory of a platform, the configuration says role: edge", in.cfg.DataDir),
			Hint: "name another data_dir"}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	cfg := edge.Config{Settings: in.cfg.Edge, InstanceID: in.cfg.Instance.ID, Dir: operate.EdgePath(in.cfg.DataDir)}
	if edge.Secure(cfg.Uplink.BrokerURL) {
		cfg.TLS = cfg.Uplink.TLS.Load // for each connection, so that renewed files are taken
	}
	var err error
	in.edge, err = edge.Open(cfg, edge.Deps{
		Open:       in.openLog,
		Dial:       dialOperators,
		Now:        in.readClock,
		Boot:       in.boot,
		Built:      build.Time(),
		Machine:    machineOf(),
		Version:    in.opt.Version,
		Logger:     in.log,
		Registerer: in.metrics,
	})
	return err
}

// maxEdgeRecords bounds the records of an edge's log beside their bytes: small messages for weeks.
const maxEdgeRecords = 100_000_000

// openLog opens the log of an edge. One whose newest part is damaged goes on in a new epoch: what can be read of it is forwarded.
func (in *Edge) openLog(o edge.OpenLog) (spool.Log, *edge.Began, error) {
	l, err := bolt.Open(operate.SpoolPath(in.cfg.DataDir), bolt.Options{
		Capacity:       spool.Capacity{MaxBytes: in.cfg.Edge.SpoolMaxBytes, MaxRecords: maxEdgeRecords},
		CommitSettings: in.cfg.Spool.CommitSettings,
		UnsyncedBytes:  in.budget.of(unsyncedShare),
		TailBytes:      in.budget.of(tailShare),
		Sync:           in.opt.Sync,
		PairID:         o.PairID,
		MinOffset:      o.MinOffset,
		MinEpoch:       o.MinEpoch,
		Mend:           true,
		Logger:         in.log,
		Registerer:     in.metrics,
	})
	if err != nil {
		return nil, nil, err
	}
	if b := l.Began(); b != nil {
		return l, &edge.Began{Why: string(b.Why), Damage: b.Err}, nil
	}
	return l, nil, nil
}

// startSocket opens the operator's way in.
func (in *Edge) startSocket(ctx, life context.Context) error {
	in.socket = operate.NewEdgeServer(operate.EdgeDeps{
		Config:    in.cfg,
		Version:   in.opt.Version,
		Started:   in.started,
		Ready:     in.ready.Load,
		Listeners: in.listeners.list,
		Connections: func() (open, maximum int) {
			if in.mqtt == nil {
				return 0, 0
			}
			return in.mqtt.Connections(), in.mqtt.Settings().MaxConnections
		},
		Edge:    in.edge,
		Log:     in.log,
		Metrics: in.metrics,
	})
	serve, path, err := in.socket.Listen(ctx, life)
	if err != nil {
		return err
	}
	in.listeners.opened(operate.SocketListener, path)
	in.runPart(life, "socket", func(context.Context) error { return serve() })
	return nil
}

// startLink forwards until stopLink is called: after the transports have stopped, so that what they took last is on its way, too.
func (in *Edge) startLink() {
	var link context.Context
	link, in.stopLink = context.WithCancel(context.Background())
	in.linked.Go(in.part(link, "uplink", in.edge.Run))
	in.linked.Go(in.part(link, "position", in.edge.RunState))
}

// startTransports opens the ways in.
func (in *Edge) startTransports(life context.Context) error {
	mqtt, err := in.base.open(in.certificate.pair, mqttOf(edgeListeners(in.cfg)))
	if err != nil {
		return err
	}
	// Bounds as on a platform: memory and open files allow only so many connections.
	settings := in.cfg.Broker.Settings
	settings.MaxConnections = in.lock.maxConnections(settings.MaxConnections)
	into := in.edge.Intake()
	deps := broker.Deps{Intake: into, Logger: in.log, Registerer: in.metrics}
	if in.cfg.Edge.Commands {
		deps.Listening = in.edge.Listening
	}
	deps.Presence = in.edge.Presence()
	var site *broker.Site
	// With devices from the Weir above their credentials are checked here; else they share one, or need none.
	verifier := in.edge.Verifier()
	if verifier == nil {
		site = &broker.Site{Admit: into.Admit, OtherInstance: edge.ReasonOtherInstance}
	} else {
		deps.Verifier = connectVerifier{verifier, func() string { return "" }}
	}
	in.mqtt, err = broker.New(broker.Config{
		InstanceID:      in.cfg.Instance.ID,
		Source:          mqttTransport.Source,
		Settings:        settings,
		MaxHandshakes:   in.lock.maxHandshakes(),
		MaxLargePackets: in.lock.budget.largeBodies(),
		SilentPresence:  deps.Presence == nil,
		Site:            site,
	}, deps)
	if err != nil {
		return errors.Join(err, closeAll(mqtt))
	}
	if verifier != nil {
		verifier.OnInvalidate(func(f auth.Invalidation) {
			in.mqtt.Drop(func(b model.Binding) bool { return f.CredentialID != 0 && b.Credential == f.CredentialID })
		})
	}
	// Commands of the Weir above are handed to the devices that are connected here.
	in.edge.HandOnBy(in.mqtt.HandOn)
	for _, s := range mqtt {
		in.mqtt.Listen(s.Listener, broker.Listener{Name: s.About.Name, TLS: s.TLS, WebSocket: s.About.Protocol == mqttOverWebSocket})
	}
	in.runPart(life, ingest.TransportMQTT, in.mqtt.Run)
	// HTTP ingest, when it has a listener.
	sockets, err := in.base.open(in.certificate.pair, ingestListeners(in.cfg))
	if err != nil || len(sockets) == 0 {
		return err
	}
	var listeners []httpingest.Listener
	for _, s := range sockets {
		listeners = append(listeners, httpingest.Listener{Listener: s.Listener, Name: s.About.Name, TLS: s.TLS})
	}
	in.http, err = httpingest.New(httpingest.Config{
		InstanceID:     in.cfg.Instance.ID,
		Source:         httpTransport.Source,
		Basic:          true,
		Settings:       in.cfg.Ingest.Settings,
		MaxConnections: in.lock.ingestConnections(),
		MaxLargeBodies: in.lock.budget.largeBodies(),
	}, httpingest.Deps{Intake: into, Listeners: listeners, Logger: in.log, Registerer: in.metrics})
	if err != nil {
		return errors.Join(err, closeAll(sockets))
	}
	in.runPart(life, ingest.TransportHTTP, in.http.Run)
	return nil
}

func mqttOf(all operate.Listeners) (mqtt []operate.Listener) {
	for _, l := range all {
		if l.Protocol == mqttPlain || l.Protocol == mqttOverWebSocket {
			mqtt = append(mqtt, l)
		}
	}
	return mqtt
}

// stopTransports lets no device in any more, and waits until those that are connected have their answers.
func (in *Edge) stopTransports(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var err error
	if in.http != nil {
		err = in.http.Close(ctx)
	}
	err = errors.Join(err, in.mqtt.Close(ctx))
	// Last: the transports still wait for answers of the intake.
	in.edge.Intake().Shut()
	return err
}

// report says what is open and whether it is protected.
func (in *Edge) report() {
	out := in.opt.Out
	fmt.Fprintf(out, "Weir %s, edge of instance %s, data in %s\n", in.opt.Version, in.cfg.Instance.ID, in.cfg.DataDir)
	for _, l := range in.listeners.list().Open() {
		fmt.Fprintf(out, "  %-12s %-24s %s\n", l.Name, l.Address, l.Description())
	}
	fmt.Fprintf(out, "  %-12s %-24s %s\n", "uplink", in.edge.Status().Uplink.Broker, "as "+in.edge.Status().Uplink.ClientID)
}

// refuseEdge refuses the data directory of an edge where a platform is expected.
func refuseEdge(dir string) error {
	if _, err := os.Stat(operate.EdgePath(dir)); err != nil {
		return nil // opening it says what is wrong
	}
	return &model.Error{Code: model.CodeConflict, Message: fmt.Sprintf("%s is the data directory of an edge, the configuration says role: platform", dir),
		Hint: "set role: edge, or name another data_dir"}
}
