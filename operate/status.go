package operate

import (
	"context"
	"errors"
	"runtime"
	"time"

	"weir/actions"
	"weir/gql"
	"weir/health"
	"weir/ingest"
	"weir/internal/memory"
	"weir/internal/throttle"
	"weir/model"
	"weir/spool"
	"weir/store"
	stored "weir/store/commands"
)

// Status is how a running instance is.
type Status struct {
	Version   string    `json:"version"`
	Instance  string    `json:"instanceId"`
	DataDir   string    `json:"dataDir"`
	StartedAt time.Time `json:"startedAt"`
	Ready     bool      `json:"ready"`
	// Replay is how far a start has come with what was acknowledged before it, nil once that is applied: devices are served
	// meanwhile, queries wait.
	Replay      *ingest.Replay `json:"replay,omitempty"`
	Listeners   Listeners      `json:"listeners"`
	DevTools    bool           `json:"devTools,omitempty"` // introspection and the explorer of the API are open
	Connections int            `json:"connections"`
	// MaxConnections is how many there may be: broker.max_connections, or fewer where memory or the open files that the
	// system allows (MaxOpenFiles, 0: no limit) do not suffice; 0: the broker does not listen.
	MaxConnections int       `json:"maxConnections"`
	MaxOpenFiles   int       `json:"maxOpenFiles"`
	Log            LogStatus `json:"log"`
	// Waiting is why the applier stands still, "" when it does not.
	Waiting string `json:"waiting,omitempty"`
	// Closed is why all transports are closed, "" while they are open.
	Closed string `json:"transportsClosed,omitempty"`
	// Sources are the event sources.
	Sources  []SourceStatus `json:"sources,omitempty"`
	LastStop LastStop       `json:"lastStop"`
	// Clock is why the system's clock cannot be believed, "" when it can.
	Clock      string `json:"clock,omitempty"`
	StoreBytes int64  `json:"storeBytes"`
	HeadBytes  int64  `json:"headBytes"`
	// Damaged is why the database cannot be trusted any more, "" as long as nothing is known against it.
	Damaged string `json:"damaged,omitempty"`
	// Memory is how the limit is divided and used.
	Memory MemoryStatus `json:"memory"`
	// Removed is how much history went because its time was over, by kind, ever.
	Removed map[store.Retained]int64 `json:"removed,omitempty"`
	Rules   RulesStatus              `json:"rules"`
	// Standing are targets of orders of rules that stand still.
	Standing []actions.Standing `json:"standing,omitempty"`
	// Commands are those that are not at their end, by state.
	Commands []CommandsStatus `json:"commands,omitempty"`
	// Previews is what is kept for previews of rules besides history.
	Previews PreviewStatus `json:"previews"`
	// Alerts are the names of those that fire, of weir alerts.
	Alerts []string `json:"alerts"`
	// Written is what goes to the disk, nil where the system does not say.
	Written *health.Writing `json:"written,omitempty"`
	// WriteBudget is nil without spool.write_budget.
	WriteBudget *spool.BudgetState `json:"writeBudget,omitempty"`
	Unbalanced  int                `json:"unbalancedHours"` // ledger lines that do not balance
	LedgerGaps  int                `json:"ledgerGaps"`
	Site        *SiteStatus        `json:"site,omitempty"` // nil: no site file was applied since the start
	// Reload is how the last reload of the configuration ended, nil when there was none.
	Reload *ReloadReport `json:"reload,omitempty"`
	// Certificate is nil when there is none.
	Certificate *CertificateStatus `json:"certificate,omitempty"`
	// Edge is nil unless the instance has the role edge; then what belongs to a platform is empty.
	Edge *EdgeStatus `json:"edge,omitempty"`
	// Uplink is nil unless a platform has one.
	Uplink *EdgeStatus `json:"uplink,omitempty"`
}

// RulesStatus is what the rules have to do.
type RulesStatus struct {
	Profiles int `json:"profiles"` // that have rules
	Rules    int `json:"rules"`
	Devices  int `json:"devices"` // with state
	Keys     int `json:"keys"`    // pairs of rule and device with state
	Samples  int `json:"samples"` // that rules retain
}

// CommandsStatus is how many commands are in a state that is not final, and which of them waits longest.
type CommandsStatus struct {
	State  model.CommandState `json:"state"`
	Count  int64              `json:"count"`
	Oldest time.Time          `json:"oldest"` // was made then
	Tenant string             `json:"tenant"`
	Device string             `json:"device"`
}

// commandsStatus reads them.
func (e *Entities) commandsStatus(tx store.Tx) (all []CommandsStatus, err error) {
	found, err := stored.Oldest(tx)
	for _, f := range found {
		all = append(all, CommandsStatus{State: f.State, Count: f.N, Oldest: f.Oldest.Time().UTC(), Tenant: e.Govern.TokenOf(f.Tenant), Device: f.Device})
	}
	return all, err
}

// PreviewStatus is what is kept for previews of rules besides history.
type PreviewStatus struct {
	Bytes     int64 `json:"bytes"`     // of detection.preview_bytes
	Snapshots int   `json:"snapshots"` // of the state of rules, each the last before a midnight (UTC)
	Days      int   `json:"days"`      // since the oldest of them, begun ones included; 0 for none
}

func (o *Operator) previewStatus(tx store.Tx) (PreviewStatus, error) {
	use, err := store.UsedByPreviews(tx)
	s := PreviewStatus{Bytes: use.Bytes, Snapshots: use.Snapshots}
	if use.Oldest > 0 {
		s.Days = 1 + int(max(time.Since(use.Oldest.Time()), 0)/(24*time.Hour))
	}
	return s, err
}

// MemoryStatus is how the memory is divided and used.
type MemoryStatus struct {
	Limit int64         `json:"limitBytes"`
	Heap  int64         `json:"heapBytes"` // what the Go runtime has from the system
	Parts []memory.Held `json:"parts"`
}

func (o *Operator) memoryStatus() MemoryStatus {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return MemoryStatus{Limit: o.deps.Memory.Limit(), Heap: int64(m.Sys - m.HeapReleased), Parts: o.deps.Memory.Parts()}
}

// LogStatus is how the durable log is.
type LogStatus struct {
	First     model.Offset `json:"first"`
	Last      model.Offset `json:"last"`
	Applied   model.Offset `json:"applied"`
	AsOf      time.Time    `json:"asOf"` // receive time up to which all records are applied
	Bytes     int64        `json:"bytes"`
	MaxBytes  int64        `json:"maxBytes"`
	DiskBytes int64        `json:"diskBytes"`
	Refusing  bool         `json:"refusing"`
	// RefusingFor are the causes: bytes, records, runway, disk.
	RefusingFor []string `json:"refusingFor,omitempty"`
	MaxRecords  int64    `json:"maxRecords"`
	// Slowing is who is slowed because applying lags behind or the log fills, nil when no tenant is.
	Slowing *throttle.State `json:"slowing,omitempty"`
	// Losses are the parts of the log that were lost, in the last week.
	Losses []Loss `json:"losses,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Status is how the instance is, for the API.
func (o *Operator) Status(ctx context.Context) (*Status, error) { return o.status(ctx, None{}) }

func (o *Operator) status(ctx context.Context, _ None) (*Status, error) {
	log, db := o.deps.Spool.Stats(), o.deps.Store.Stats()
	s := &Status{Version: o.deps.Version, Instance: o.deps.Config.Instance.ID, DataDir: o.deps.Config.DataDir, StartedAt: o.deps.Started.UTC(), Ready: o.deps.Ready(), Closed: o.deps.Closed(), Sources: sourcesOf(o.deps.Sources()), Replay: o.deps.Applier.Replay(),
		Listeners: o.deps.Listeners(), Waiting: o.deps.Applier.Stalled(), StoreBytes: db.Bytes, HeadBytes: o.deps.Series.Bytes(), Rules: RulesStatus(o.deps.Applier.RuleStats()),
		Log: LogStatus{First: log.First, Last: log.Last, Applied: o.deps.Applier.Applied(), AsOf: o.deps.Applier.AsOf(model.NanosOf(time.Now())).Time().UTC(), Bytes: log.Bytes, MaxBytes: log.MaxBytes,
			DiskBytes: log.DiskBytes, Refusing: o.deps.Gauge.Refusing()}}
	s.MaxOpenFiles = o.deps.Files
	if o.deps.Uplink != nil {
		s.Uplink = new(o.deps.Uplink.Status())
		for _, l := range o.deps.Uplink.Ledger() {
			if l.Missing() != 0 {
				s.Unbalanced++
			}
		}
	}
	s.Standing = o.deps.Standing()
	s.DevTools = gql.DevTools(o.deps.Getenv)
	s.LastStop = o.deps.LastStop
	if db.Err != nil {
		s.Damaged = db.Err.Error()
	}
	s.Clock, s.Memory = o.deps.Clock.Doubt(), o.memoryStatus()
	s.Site = o.deps.sited.Load()
	if s.Log.MaxRecords = log.MaxRecords; s.Log.Refusing {
		s.Log.RefusingFor = o.deps.Gauge.Why()
	}
	s.Log.Slowing = o.slowing()
	if log.Err != nil {
		s.Log.Error = log.Err.Error()
	}
	s.Connections, s.MaxConnections = o.deps.Connections()
	s.Alerts, s.Written = o.vitals.shown()
	s.WriteBudget = o.writeBudget()
	s.Reload = o.deps.Reloads.Last()
	s.Certificate = o.certificateStatus()
	switch err := o.stored(ctx, s); {
	case errors.Is(err, store.ErrDamaged): // what can be said of the instance is said
		s.Damaged = err.Error()
	case err != nil:
		return nil, err
	}
	return s, nil
}

// slowing is who is slowed, nil when no tenant is.
func (o *Operator) slowing() *throttle.State {
	if t := o.deps.Gauge.Throttle; t != nil {
		return t.State()
	}
	return nil
}

// writeBudget is where the write budget stands, nil without one.
func (o *Operator) writeBudget() *spool.BudgetState {
	if s := o.deps.Writes.State(); s.PerDay > 0 {
		return &s
	}
	return nil
}

// stored adds what stands in the database.
func (o *Operator) stored(ctx context.Context, s *Status) error {
	var wrong []ingest.LedgerLine
	var err error
	if s.Replay == nil { // else the batch that is being applied is counted in part
		if wrong, _, err = o.deps.Applier.Ledger().Imbalances(ctx); err != nil {
			return err
		}
	}
	gaps, err := gapsOf(ctx, o.deps.Store)
	if err != nil {
		return err
	}
	s.Unbalanced, s.LedgerGaps = len(wrong), len(gaps)
	if err := o.deps.Store.Read(ctx, func(tx store.Tx) (err error) {
		if s.Removed, err = store.Removed(tx); err != nil {
			return err
		}
		if s.Commands, err = o.deps.commandsStatus(tx); err != nil {
			return err
		}
		s.Previews, err = o.previewStatus(tx)
		return err
	}); err != nil {
		return err
	}
	lost, err := losses(ctx, o.deps.Store)
	s.Log.Losses = since(lost, time.Now().Add(-lossFinding))
	return err
}
