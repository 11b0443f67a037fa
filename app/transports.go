package app

import (
	"context"
	"errors"
	"fmt"

	"weir/config"
	"weir/ingest"
)

// transport is a way in for devices.
type transport interface {
	// start opens the listeners that are configured; after an error stop is called all the same.
	start(life context.Context) error
	// stop lets no device in any more, notifies those that are connected, and waits until they have their answers.
	stop(ctx context.Context) error
	// apply takes over what a reload has changed.
	apply(*config.Config)
	// connections are how many there are and may be; 0, 0 for a transport without lasting ones.
	connections() (open, maximum int)
	// opened are its listeners, for people.
	opened() []listener
}

// transportKind is a transport of this Weir: adding one is its package, its section of the configuration, and an entry here.
type transportKind struct {
	source    string // id of its event source
	transport string // as the ledger names it
	make      func(transportDeps) transport
}

var transportKinds = []transportKind{
	{"mqtt1", ingest.TransportMQTT, newMQTT},
	{"http1", ingest.TransportHTTP, newHTTP},
}

// transportDeps are what a transport is built from.
type transportDeps struct {
	*base
	source      string
	lock        *lock
	store       *database
	certificate *certificate
	entities    *entities
	applier     *applier
	intake      *intake
}

// listener is one that is open, or not: then its address is "".
type listener struct{ name, address, how string }

// transports are all ways in.
type transports struct {
	*base
	front    *front
	spool    *logStore
	entities *entities
	api      *api
	all      []transport
}

func newTransports(b *base, in *Instance) *transports {
	t := &transports{base: b, front: in.front, spool: in.spool, entities: in.entities, api: in.api}
	for _, k := range transportKinds {
		t.all = append(t.all, k.make(transportDeps{base: b, source: k.source, lock: in.lock, store: in.store, certificate: in.certificate,
			entities: in.entities, applier: in.applier, intake: in.intake}))
	}
	return t
}

// Start opens the ways in, last of all.
func (t *transports) Start(ctx, life context.Context) error {
	for _, one := range t.all {
		if err := one.start(life); err != nil {
			return errors.Join(err, t.Stop(ctx))
		}
	}
	t.spool.listening.Open()
	t.report()
	return nil
}

// Stop implements component.
func (t *transports) Stop(ctx context.Context) error {
	t.spool.listening.Shut()
	var errs []error
	for i := range t.all {
		errs = append(errs, t.all[len(t.all)-1-i].stop(ctx))
	}
	return errors.Join(errs...)
}

func (t *transports) apply(c *config.Config) {
	for _, one := range t.all {
		one.apply(c)
	}
}

func (t *transports) connections() (open, maximum int) {
	for _, one := range t.all {
		n, m := one.connections()
		open, maximum = open+n, maximum+m
	}
	return open, maximum
}

// report says what is open and whether it is protected, and what to do first.
func (t *transports) report() {
	out := t.opt.Out
	fmt.Fprintf(out, "Weir %s, instance %s, data in %s\n", t.opt.Version, t.cfg.Instance.ID, t.cfg.DataDir)
	all := []listener{{"api", t.addrs.API, "GraphQL; signed tokens; no TLS"}, {"api_tls", t.addrs.APITLS, "GraphQL; signed tokens; TLS"}}
	for i := range t.all {
		all = append(all, t.all[len(t.all)-1-i].opened()...)
	}
	all = append(all, listener{"metrics", t.addrs.Metrics, "anyone who can reach it"}, listener{"socket", t.addrs.Socket, "the operator; file mode 0600"})
	for _, l := range all {
		if l.address != "" {
			fmt.Fprintf(out, "  %-12s %-24s %s\n", l.name, l.address, l.how)
		}
	}
	if !t.entities.Auth.HasSuperuser() {
		fmt.Fprintf(out, "\nNo account can sign in yet: no default password exists. Make the first administrator with\n"+
			"  weir admin create you@example.org --data %s\n", t.cfg.DataDir)
		t.api.setup.Print(out)
	}
}
