package operate

import (
	"context"
	"io"
	"log/slog"

	"weir/backup"
	"weir/config"
	"weir/edge"
	"weir/model"
	"weir/spool"
	"weir/spool/bolt"
	"weir/store/sqlite"
)

// testWiring opens what lies in files.
type testWiring struct{}

type testInspector struct{ *sqlite.Inspector }

func (i testInspector) Pending() int { return i.Inspector.Pending }

func (testWiring) InspectStore(ctx context.Context, path string) (backup.Inspector, error) {
	i, err := sqlite.Inspect(ctx, path)
	if err != nil {
		return nil, err
	}
	return testInspector{i}, nil
}

func (testWiring) InspectLog(ctx context.Context, dir string) (*backup.LogInventory, error) {
	inv, err := bolt.Inspect(ctx, dir)
	if err != nil {
		return nil, err
	}
	return new(backup.LogInventory(*inv)), nil
}

func (testWiring) OpenEntities(context.Context, config.Config, func(string) string, *slog.Logger) (*Entities, io.Closer, error) {
	return nil, nil, ErrNotRunning
}

func (testWiring) LogAtRest(dir string) (backup.LogSource, error) { return bolt.AtRest(dir) }

func (testWiring) OpenEdge(config.Config, func(string) string, *slog.Logger) (*edge.Edge, error) {
	return nil, ErrNotRunning
}

func (testWiring) WalkLog(ctx context.Context, dir string, from model.Offset, f func(*spool.Batch) error) error {
	return bolt.Walk(ctx, dir, from, f)
}

func (testWiring) TransportOf(string) string { return "" }

func (testWiring) Listeners(cfg config.Config) Listeners {
	return Listeners{{Name: APIListener, Key: "listeners.api", Configured: cfg.Listeners.API}}
}

func (testWiring) Plan(cfg config.Config) Plan {
	return Plan{Memory: 64 << 20, Runtime: 60 << 20, MQTTConnections: cfg.Broker.MaxConnections}
}

func atRestIn(cfg config.Config) *Directory {
	return &Directory{Config: cfg, Getenv: func(string) string { return "" }, Wiring: testWiring{}}
}
