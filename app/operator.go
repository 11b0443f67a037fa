package app

import (
	"context"

	"weir/broker"
	"weir/health"
	"weir/ingest"
	"weir/operate"
	"weir/operate/upkeep"
)

// operator answers what an operator asks, and looks after the instance: its vital figures, the age of its history, the shape
// of its blocks.
type operator struct {
	*base
	noStop
	lock     *lock
	store    *database
	spool    *logStore
	entities *entities
	applier  *applier
	intake   *intake
	uplink   *uplink

	connections func() (open, maximum int)
	sources     func() []ingest.SourceStatus
	reloads     operate.Reloads
	setupLink   func() (*operate.SetupLink, error)

	asked     *operate.Operator
	retention *upkeep.Retention
}

// Start implements component.
func (o *operator) Start(ctx, life context.Context) error {
	// Everything that the verbs of the operator reach; those parts that start later come as functions.
	o.asked = operate.New(operate.Deps{
		Entities:    o.entities.Entities,
		Wiring:      wiring{o.kinds, o.cfg},
		Version:     o.opt.Version,
		Getenv:      o.opt.Getenv,
		Started:     o.started,
		Ready:       o.ready.Load,
		Effective:   o.effective,
		Reloads:     o.reloads,
		SetupLink:   o.setupLink,
		Checks:      func() []health.Check { return checksOf(o.brought) },
		Connections: o.connections,
		Sources:     o.sources,
		Closed:      o.closed,
		Carried: &broker.Carried{
			InstanceID: o.cfg.Instance.ID,
			Source:     mqttTransport.Source,
			Intake:     o.intake.into,
			Edges:      edgesOf{o.entities.Registry.Edges, o.entities.Site, o.applier.relayed},
		},
		Relayed:    o.applier.relayed,
		Background: o.running.Go,
		Aside:      func(run func(context.Context)) { o.running.Go(func() { run(life) }) },
		Log:        o.log,
		Metrics:    o.metrics,
		Memory:     o.memory,
		Store:      o.store.db,
		Spool:      o.spool.log,
		Vault:      o.store.vault,
		Series:     o.applier.series,
		Applier:    o.applier.ingest,
		Clock:      o.spool.clock,
		Tap:        o.applier.tap,
		Edges:      o.applier.edges,
		Gauge:      o.intake.gauge,
		Files:      o.lock.files,
		LastStop:   o.spool.lastStop,
		Writes:     o.spool.writes,
		Uplink:     o.uplink.edge,
	})
	// The maintenance jobs share these parts.
	keep := upkeep.Maintained{
		Store:     o.store.db,
		Series:    o.applier.series,
		Applier:   o.applier.ingest,
		Clock:     o.spool.clock,
		Effective: o.effective,
		Disk:      o.entities.disk,
		Look:      o.readClock,
		Log:       o.log,
		Metrics:   o.metrics,
	}
	o.retention = upkeep.NewRetention(keep)
	eraser := upkeep.NewEraser(keep, o.entities.writer, o.spool.log, o.entities.deleted)
	// What the uplink keeps of a deleted tenant is erased too.
	if o.uplink.edge != nil {
		eraser.Elsewhere = o.uplink.edge.EraseTenant
	}
	// Take the first figures now, so that a status that is asked at once is not empty.
	look := o.asked.StartVitals(ctx)
	// After a crash or a power cut the store is checked once.
	if !o.spool.lastStop.Clean {
		o.runPart(life, "store check", o.applier.afterReplay(func(ctx context.Context) error { return keep.CheckStore(ctx, operate.StoreHint(o.cfg.DataDir)) }))
	}
	// Jobs that read or remove results wait for the replay: before it the results lack what the log holds.
	o.runPart(life, "vitals", look)
	o.runPart(life, "backups", o.applier.afterReplay(o.asked.RunBackups))
	o.runPart(life, "retention", o.applier.afterReplay(o.retention.Run))
	o.runPart(life, "erase", o.applier.afterReplay(eraser.Run))
	o.runPart(life, "attribute keys", o.applier.afterReplay(o.entities.emptyKeys))
	o.runPart(life, "merge", o.applier.afterReplay(keep.Merge))
	o.runPart(life, "space", keep.Space)
	return nil
}

// socket is the operator's way in.
type socket struct {
	*base
	operator *operator
	server   *operate.Server
}

// Start implements component.
func (s *socket) Start(ctx, life context.Context) error {
	s.server = operate.NewServer(s.operator.asked, s.budget.commandBytes())
	serve, path, err := s.server.Listen(ctx, life)
	if err != nil {
		return err
	}
	s.listeners.opened(operate.SocketListener, path)
	s.runPart(life, "socket", func(context.Context) error { return serve() })
	return nil
}

// Stop implements component.
func (s *socket) Stop(ctx context.Context) error { return s.server.Shutdown(ctx) }
