package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/auth"
	"weir/broker"
	"weir/command"
	"weir/config"
	"weir/edge"
	"weir/ingest"
	"weir/ingest/links"
	"weir/internal/mqttclient"
	"weir/internal/ranges"
	"weir/model"
	"weir/operate"
	"weir/presence"
	"weir/provision"
	"weir/registry"
	"weir/site"
	"weir/store"
)

// Transport is a transport that an instance can have. Adding one is its package, its section of the configuration, and an
// entry in ownTransports, or in Options.Transports from outside.
type Transport struct {
	Name   string // as the ledger names it
	Source string // id of its event source; "" when the configuration names several
	// Owns reports whether an event source is one of its; nil: Source is the only one.
	Owns func(c config.Config, source string) bool
	// Listeners returns the listeners that the configuration gives it; nil: it has none.
	Listeners func(config.Config) []operate.Listener
	// New builds it. Its sockets belong to it unless New fails.
	New func(TransportDeps) (Served, error)

	share *share // of the memory; nil: it takes none of its own
}

// ownTransports are those of Weir, in the order of the start.
func ownTransports() []Transport {
	return []Transport{mqttTransport, httpTransport, mqttSourceTransport, sparkplugTransport, lwm2mTransport}
}

// TransportNames are the names of Weir's own, as the ledger has them.
func TransportNames() (names []string) {
	for _, t := range ownTransports() {
		names = append(names, t.Name)
	}
	return names
}

// TransportDeps are what a transport is built from.
type TransportDeps struct {
	Config    config.Config
	Source    string
	Sockets   []OpenSocket // of its listeners those that the configuration opens
	Intake    *ingest.Intake
	Verifier  *auth.Verifier // of the credentials that a connection presents
	Provision *provision.Provision
	Presence  presence.Store // what is stored of its devices' presence
	Desk      command.Desk   // of the commands of its devices
	Registry  *registry.Registry
	Site      *site.Site
	Store     store.Store     // of what a transport keeps of its own
	Pressure  ingest.Pressure // how full the log is
	// Tenant finds a tenant by its token.
	Tenant func(token string) (id int64, enabled, known bool)
	// Link is the link of an event source that can be cut: listening time of its devices stands still while it is down.
	Link func(source string) links.Link
	// Dial connects to brokers that the operator names.
	Dial mqttclient.Dial
	// DialOpen connects to the open topics of the instance.
	DialOpen func() (net.Conn, error)
	// Suspend closes all transports for a reason, which /readyz and the status show, until resume is called.
	Suspend    func(reason string) (resume func())
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Refused shows a connection that was turned away in weir tail. It does not block.
	Refused func(tenant, device, why, mistake string)

	// Datagrams opens the UDP socket of a listener, when the transport wants it.
	Datagrams func(l operate.Listener) (net.PacketConn, error)
	// Relayed returns the numbers of an edge's link that are known, see applier.relayed.
	Relayed func(ctx context.Context, tenant, link string) (known ranges.Set, complete bool)
	// Registrations keeps what LwM2M devices have registered.
	Registrations *registrations

	// Uplink is that of the platform, nil for none: devices take commands of a Weir above where they are connected.
	Uplink *edge.Edge

	lock *lock // how many connections memory and open files allow
}

// Served is a transport that was built, and what the instance asks of it besides.
type Served struct {
	ingest.Transport // nil: the configuration leaves it out
	// Reload takes over what a reload of the configuration has changed; nil: nothing.
	Reload func(*config.Config)
	// Carrier takes commands to its devices; nil: it takes none.
	Carrier command.Carrier
	// EdgeCarrier takes commands to devices behind edges; nil: it takes none.
	EdgeCarrier command.Carrier
	// SharedChanged is told of the devices that may read something else of themselves than before, see registry.OnShared; nil: it is not.
	SharedChanged func(device int64)
	// DialOpen connects a part of the program to the open topics; nil: the transport has none.
	DialOpen func() (net.Conn, error)
	// Connections are how many lasting connections there are and may be; nil: the transport has none.
	Connections func() (open, maximum int)
}

// transports are all ways in.
type transports struct {
	*base
	lock        *lock
	certificate *certificate
	store       *database
	spool       *logStore
	entities    *entities
	applier     *applier
	intake      *intake
	api         *api
	uplink      *uplink

	backstop *presence.Backstop

	mu        sync.Mutex
	served    []Served
	suspended []*suspension
}

// Start opens the ways in, last of all.
func (t *transports) Start(ctx, life context.Context) error {
	// Before the first connection: a credential that is revoked from now on must end its connections.
	t.entities.verifier.OnInvalidate(t.dropConnections)
	for _, k := range t.kinds {
		if err := t.start(life, k); err != nil {
			return errors.Join(err, t.Stop(ctx))
		}
	}
	t.runPart(life, "commands", t.applier.afterReplay(t.entities.Commands.Run)) // every carrier is there
	// Devices can be heard from here on, so their listening time runs.
	t.spool.links.Open()
	// The backstop judges by results, which must be complete.
	t.backstop = t.newBackstop()
	t.runPart(life, "presence backstop", t.applier.afterReplay(t.backstop.Run))
	t.report()
	return nil
}

// newBackstop returns the backstop of the presence that the event sources assert.
func (t *transports) newBackstop() *presence.Backstop {
	return presence.NewBackstop(t.effective().Presence.SourceBackstop, presence.BackstopDeps{
		Store:     presences{t.store, t.entities, t.applier},
		Listening: t.spool.links.Now,
		Now:       func() time.Time { return t.spool.clock.Stamp().Wall.Time() },
		Up: func(source string) bool {
			// A link to a site that is cut is no device's silence: an edge says what happened meanwhile once it is back.
			return strings.HasPrefix(source, broker.EdgeSource("")) || slices.ContainsFunc(t.sources(), func(s ingest.SourceStatus) bool { return s.ID == source && s.State == ingest.SourceUp })
		},
		Emit: func(ctx context.Context, source string, b model.Binding, p model.Presence) {
			t.intake.into.Presence(ctx, ingest.TransportAPI, source, b, p, func(ingest.Answer) {})
		},
		Logger:     t.log,
		Registerer: t.metrics,
	})
}

// start builds a transport on its open sockets and runs it.
func (t *transports) start(life context.Context, k Transport) error {
	var sockets []OpenSocket
	var err error
	// Open the sockets first: an address in use is the most frequent error, and nothing has to be undone for it.
	if k.Listeners != nil {
		if sockets, err = t.open(t.certificate.pair, k.Listeners(t.cfg)); err != nil {
			return err
		}
	}
	s, err := k.New(TransportDeps{
		Config:        t.cfg,
		Source:        k.Source,
		Sockets:       sockets,
		Intake:        t.intake.into,
		Verifier:      t.entities.verifier,
		Provision:     t.entities.Provision,
		Presence:      presences{t.store, t.entities, t.applier},
		Desk:          t.entities.Commands,
		Registry:      t.entities.Registry,
		Site:          t.entities.Site,
		Logger:        t.log,
		Store:         t.store.db.For(store.Devices),
		Pressure:      t.intake.gauge,
		Tenant:        t.entities.Govern.Lookup,
		Link:          t.spool.links.Link,
		Dial:          dialOperators,
		DialOpen:      t.dialOpen,
		Suspend:       t.suspend,
		Registerer:    t.metrics,
		lock:          t.lock,
		Uplink:        t.uplink.edge,
		Datagrams:     t.datagrams,
		Relayed:       t.applier.relayed,
		Registrations: &registrations{store: t.store, entities: t.entities},
		Refused: func(tenant, device, why, mistake string) {
			t.applier.tap.ConnectionRefused(k.Name, k.Source, tenant, device, why, mistake, t.entities.Govern.Known(tenant))
		},
	})
	// A transport that was not built does not close its sockets.
	if err != nil || s.Transport == nil {
		return errors.Join(err, closeAll(sockets))
	}
	// Connect the transport with the parts that reach its devices before it takes the first one in.
	for _, carrier := range []command.Carrier{s.Carrier, s.EdgeCarrier} {
		if carrier != nil {
			t.entities.Commands.Carry(carrier)
		}
	}
	if s.SharedChanged != nil {
		t.entities.Registry.Attributes.OnShared(s.SharedChanged)
	}
	// Listed before it runs, so that an invalidation finds its connections.
	t.mu.Lock()
	t.served = append(t.served, s)
	t.mu.Unlock()
	t.runPart(life, k.Name, s.Run)
	return nil
}

// dialOpen connects to the open topics of the transport that has them.
func (t *transports) dialOpen() (net.Conn, error) {
	for _, s := range t.all() {
		if s.DialOpen != nil {
			return s.DialOpen()
		}
	}
	return nil, broker.ErrNoOpenTopics
}

// Stop implements component: it lets no device in any more, notifies those that are connected, and waits until they have
// their answers.
func (t *transports) Stop(ctx context.Context) error {
	// Listening time stops first: silence during the stop is no silence of a device.
	t.spool.links.Shut()
	var errs []error
	for _, s := range slices.Backward(t.all()) {
		errs = append(errs, s.Close(ctx))
	}
	return errors.Join(errs...)
}

// all are the transports that run.
func (t *transports) all() []Served {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.served)
}

// dropConnections ends the connections that what was invalidated has let in.
func (t *transports) dropConnections(f auth.Invalidation) {
	for _, s := range t.all() {
		s.Drop(func(b model.Binding) bool {
			return f.CredentialID != 0 && b.Credential == f.CredentialID || f.DeviceID != 0 && b.DeviceID == f.DeviceID ||
				f.Tenant != "" && b.Tenant == f.Tenant
		})
	}
}

// reload hands every transport what a reload has changed.
func (t *transports) reload(c *config.Config) {
	for _, s := range t.all() {
		if s.Reload != nil {
			s.Reload(c)
		}
	}
	t.backstop.Set(c.Presence.SourceBackstop)
}

func (t *transports) connections() (open, maximum int) {
	for _, s := range t.all() {
		if s.Connections != nil {
			n, m := s.Connections()
			open, maximum = open+n, maximum+m
		}
	}
	return open, maximum
}

func (t *transports) sources() (all []ingest.SourceStatus) {
	for _, s := range t.all() {
		all = append(all, s.Sources()...)
	}
	return all
}

// report says what is open and whether it is protected, and what to do first.
func (t *transports) report() {
	out := t.opt.Out
	fmt.Fprintf(out, "Weir %s, instance %s, data in %s\n", t.opt.Version, t.cfg.Instance.ID, t.cfg.DataDir)
	for _, l := range t.listeners.list().Open() {
		fmt.Fprintf(out, "  %-12s %-24s %s\n", l.Name, l.Address, l.Description())
	}
	// Without an administrator the output says how to make one.
	switch {
	case t.entities.Auth.HasSuperuser():
	case t.entities.Auth.HasIdentity(): // no link: who reads the log of an instance in use must not become its owner
		fmt.Fprintf(out, "\nThere is no superuser. Make one with\n"+
			"  weir admin create you@example.org --data %s\nor in a browser: weir admin link makes a link\n", t.cfg.DataDir)
	default:
		fmt.Fprintf(out, "\nNo account can sign in yet: no default password exists. Make the first administrator with\n"+
			"  %s admin create you@example.org --data %s\n", cmp.Or(t.opt.Program, "weir"), t.cfg.DataDir)
		t.api.setup.Print(out)
	}
}
