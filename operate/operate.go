// Package operate is what an operator can ask of an instance. Each question is a Verb, described once (verb.go): its name, what
// goes in and comes out, whether it streams, and whether it is answered where nothing runs, too. The same description serves
// the unix socket (Server), its other end (Client) and, on a data directory in which nothing runs, this process (Directory).
//
// The authority of a verb is the file mode of the socket, or the lock of the directory: the holder of either can read all data.
// What a verb changes is journalled under the principal of Local.
package operate

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/backup"
	"weir/broker"
	"weir/config"
	"weir/edge"
	"weir/health"
	"weir/ingest"
	"weir/internal/hub"
	"weir/internal/memory"
	"weir/internal/ranges"
	"weir/model"
	"weir/series"
	"weir/spool"
	"weir/store"
)

// Store is the database of a running instance.
type Store interface {
	store.Driver
	backup.Store
	// Check reads the whole database and returns store.ErrDamaged when it does not hang together.
	Check(ctx context.Context) error
	GiveBack(ctx context.Context, bytes int64) (int64, error)
	Scrub(bytes int64) func(context.Context) (left int64, err error)
	FreeSpace()
}

// Log is the log of a running instance.
type Log interface {
	spool.Log
	Copy(ctx context.Context, each func(spool.File) error) error
}

// Wiring is what only the package knows that puts an instance together: the drivers, the transports, and how memory is divided.
type Wiring interface {
	backup.Drivers
	// OpenEntities opens the database of a directory whose lock the caller holds, and what is built on it.
	OpenEntities(ctx context.Context, cfg config.Config, getenv func(string) string, log *slog.Logger) (*Entities, io.Closer, error)
	// LogAtRest is a log that nothing has open; fs.ErrNotExist when there is none.
	LogAtRest(dir string) (backup.LogSource, error)
	// WalkLog calls f for the batches of such a log from the one that holds from on.
	WalkLog(ctx context.Context, dir string, from model.Offset, f func(*spool.Batch) error) error
	// TransportOf is the transport that an event source belongs to, "" for an unknown one.
	TransportOf(source string) string
	// Listeners are those that an instance with this configuration has, all of them closed.
	Listeners(config.Config) Listeners
	// OpenEdge opens the log of an edge and what it keeps besides, in a directory whose lock the caller holds.
	OpenEdge(cfg config.Config, getenv func(string) string, log *slog.Logger) (*edge.Edge, error)
	// Plan is what the configuration means on this machine.
	Plan(config.Config) Plan
}

// Plan is how an instance would divide what the machine gives it.
type Plan struct {
	Memory          int64 // limits.memory, in bytes
	Runtime         int64 // what the Go runtime is given of it
	MQTTConnections int   // maximum
}

// Deps are the parts of a running instance that its operator asks.
type Deps struct {
	*Entities
	Wiring  Wiring
	Version string
	Getenv  func(string) string
	Started time.Time
	Ready   func() bool
	// Effective is the configuration that applies now, with what reloads have changed.
	Effective   func() *config.Config
	Reloads     Reloads
	SetupLink   func() (*SetupLink, error)
	Checks      func() []health.Check // of capabilities, for weir doctor
	Connections func() (open, maximum int)
	// Sources returns how the event sources of the transports are; Closed why all transports are closed, "" while they are open.
	Sources func() []ingest.SourceStatus
	Closed  func() string
	// Carried takes in what was carried from edges by hand; Relayed returns the numbers of an edge's link that are known, and whether what was acknowledged
	// before the call is among them.
	Carried *broker.Carried
	Relayed func(ctx context.Context, tenant, link string) (known ranges.Set, complete bool)
	// Background runs a function that the stop of the instance waits for before the log closes.
	Background func(func())
	// Aside is Background for what may take long: it ends with the context, which ends with the instance.
	Aside    func(func(context.Context))
	Log      *slog.Logger
	Metrics  *prometheus.Registry
	Memory   *memory.Accountant
	Store    Store
	Spool    Log
	Vault    *store.Vault
	Series   *series.Series
	Applier  *ingest.Applier
	Clock    *ingest.Clock
	Tap      *ingest.Tap
	Edges    *hub.Hub[model.Edge]
	Gauge    *ingest.Gauge
	Writes   *spool.Budget
	Files    int // that may be open, 0 for any number
	LastStop LastStop
	Uplink   *edge.Edge // nil: the instance has none
}

// Operator answers the verbs on a running instance.
type Operator struct {
	deps      Deps
	vitals    *vitals // nil until StartVitals
	backups   backups
	recounts  recounts
	pinning   sync.Mutex // history is pinned once at a time
	importing sync.Mutex // one file of an edge at a time
	imports   *prometheus.CounterVec
}

// New returns an operator and registers its metrics.
func New(d Deps) *Operator {
	o := &Operator{deps: d}
	o.backups.init(d.Metrics)
	o.imports = newImportMetrics(d.Metrics)
	o.backups.last.Store(readLastBackup(d.Config.DataDir))
	return o
}

// Local is the principal of the owner of the data directory.
func Local() *model.Principal { return &model.Principal{Kind: model.LocalOperator, Subject: "local"} }
