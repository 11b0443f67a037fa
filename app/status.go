package app

import (
	"context"
	"errors"
	"net/http"
	"time"

	"weir/health"
	"weir/model"
	"weir/store"
)

// Status is how a running instance is.
type Status struct {
	Version     string    `json:"version"`
	Instance    string    `json:"instanceId"`
	DataDir     string    `json:"dataDir"`
	StartedAt   time.Time `json:"startedAt"`
	Ready       bool      `json:"ready"`
	Listeners   Addresses `json:"listeners"`
	Connections int       `json:"connections"`
	// MaxConnections is how many there may be: broker.max_connections, or fewer where memory or the open files that the
	// system allows (MaxOpenFiles, 0: no limit) do not suffice; 0: the broker does not listen.
	MaxConnections int       `json:"maxConnections"`
	MaxOpenFiles   int       `json:"maxOpenFiles"`
	Log            LogStatus `json:"log"`
	// Waiting is why the applier stands still, "" when it does not.
	Waiting  string   `json:"waiting,omitempty"`
	LastStop LastStop `json:"lastStop"`
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
	// Alerts are the names of those that fire, of weir alerts.
	Alerts []string `json:"alerts"`
	// Written is what goes to the disk, nil where the system does not say.
	Written    *health.Writing `json:"written,omitempty"`
	Unbalanced int             `json:"unbalancedHours"` // ledger lines that do not balance
	LedgerGaps int             `json:"ledgerGaps"`
	Site       *SiteStatus     `json:"site,omitempty"` // nil: no site file was applied since the start
	// Reload is how the last reload of the configuration ended, nil when there was none.
	Reload *ReloadReport `json:"reload,omitempty"`
	// Certificate is nil when there is none.
	Certificate *CertificateStatus `json:"certificate,omitempty"`
}

// RulesStatus is what the rules have to do.
type RulesStatus struct {
	Profiles int `json:"profiles"` // that have rules
	Rules    int `json:"rules"`
	Devices  int `json:"devices"` // with state
	Keys     int `json:"keys"`    // pairs of rule and device with state
}

// LogStatus is how the durable log is.
type LogStatus struct {
	First     model.Offset `json:"first"`
	Last      model.Offset `json:"last"`
	Applied   model.Offset `json:"applied"`
	Bytes     int64        `json:"bytes"`
	MaxBytes  int64        `json:"maxBytes"`
	DiskBytes int64        `json:"diskBytes"`
	Refusing  bool         `json:"refusing"`
	// RefusingFor are the causes: bytes, records, runway, disk.
	RefusingFor []string `json:"refusingFor,omitempty"`
	MaxRecords  int64    `json:"maxRecords"`
	// Losses are the parts of the log that were lost, in the last week.
	Losses []Loss `json:"losses,omitempty"`
	Error  string `json:"error,omitempty"`
}

func (in *Instance) status(ctx context.Context) (*Status, error) {
	log, db := in.spool.Stats(), in.store.Stats()
	s := &Status{Version: in.opt.Version, Instance: in.cfg.Instance.ID, DataDir: in.cfg.DataDir, StartedAt: in.started.UTC(), Ready: in.ready.Load(),
		Listeners: in.addrs, Waiting: in.applier.Stalled(), StoreBytes: db.Bytes, HeadBytes: in.series.Bytes(), Rules: RulesStatus(in.applier.RuleStats()),
		Log: LogStatus{First: log.First, Last: log.Last, Applied: in.applier.Applied(), Bytes: log.Bytes, MaxBytes: log.MaxBytes,
			DiskBytes: log.DiskBytes, Refusing: in.gauge != nil && in.gauge.Refusing()}}
	s.MaxOpenFiles = in.files
	s.LastStop = in.last
	if db.Err != nil {
		s.Damaged = db.Err.Error()
	}
	s.Clock, s.Memory = in.clock.Doubt(), in.memoryStatus()
	s.Site = in.sited.Load()
	if s.Log.MaxRecords = log.MaxRecords; s.Log.Refusing {
		s.Log.RefusingFor = in.gauge.Why()
	}
	if log.Err != nil {
		s.Log.Error = log.Err.Error()
	}
	if in.broker != nil {
		s.Connections, s.MaxConnections = in.broker.Connections(), in.broker.Settings().MaxConnections
	}
	s.Alerts, s.Written = in.vitals.shown()
	s.Reload = in.reloads.last.Load()
	s.Certificate = in.certificateStatus()
	switch err := in.stored(ctx, s); {
	case errors.Is(err, store.ErrDamaged): // what can be said of the instance is said
		s.Damaged = err.Error()
	case err != nil:
		return nil, err
	}
	return s, nil
}

// stored adds what stands in the database.
func (in *Instance) stored(ctx context.Context, s *Status) error {
	l, err := in.ledger(ctx, LedgerQuery{})
	if err != nil {
		return err
	}
	for i := range l.Lines {
		if l.Lines[i].Missing != 0 {
			s.Unbalanced++
		}
	}
	s.LedgerGaps = len(l.Gaps)
	if err := in.store.Read(ctx, func(tx store.Tx) (err error) {
		s.Removed, err = store.Removed(tx)
		return err
	}); err != nil {
		return err
	}
	lost, err := losses(ctx, in.store)
	s.Log.Losses = since(lost, time.Now().Add(-lossFinding))
	return err
}

func (in *Instance) statusVerbs() map[string]http.Handler {
	return map[string]http.Handler{
		"status": verb(in, func(ctx context.Context, _ struct{}) (*Status, error) { return in.status(ctx) }),
	}
}

// Status returns how the instance is.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return call[Status](ctx, c, "status", struct{}{})
}
