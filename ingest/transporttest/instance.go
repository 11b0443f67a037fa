package transporttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"weir/ingest"
	"weir/ingest/links"
	"weir/internal/test/poll"
	"weir/model"
	"weir/rules"
	"weir/series"
	"weir/spool"
	"weir/spool/bolt"
	"weir/store"
	"weir/store/sqlite"
)

// Names that every instance of the suite knows. Devices is how many there are of them, see Device.
const (
	InstanceID = "weir"
	Tenant     = "acme"
	Source     = "source-under-test"
	Devices    = 3
)

// Device returns the token of the n-th device, from 1; Token is the access token that proves it.
func Device(n int) string           { return fmt.Sprintf("d%d", n) }
func Token(device string) string    { return "token-of-" + device }
func credentialOf(device int) int64 { return int64(100 + device) }

// Instance is an instance without transports: log, intake, applier and store in a directory, with a ceiling, a pressure and a
// sync that a test turns.
type Instance struct {
	Intake *ingest.Intake

	t        *testing.T
	source   string
	dir      string
	log      *bolt.Log
	db       *sqlite.DB
	counts   *ingest.TransportCounts
	applier  *ingest.Applier
	control  *ingest.Controller
	ceiling  *ceiling
	pressure *pressure
	sync     *syncControl
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu       sync.Mutex
	disabled map[string]bool // devices whose credential does not count any more; "" for the tenant
}

func newInstance(t *testing.T, a Adapter) *Instance {
	t.Helper()
	in := &Instance{t: t, source: cmp.Or(a.Source, Source), dir: t.TempDir(), ceiling: &ceiling{}, pressure: newPressure(), sync: &syncControl{}, disabled: map[string]bool{}}
	in.open()
	in.furnish()
	t.Cleanup(in.close)
	return in
}

func (in *Instance) must(err error) {
	in.t.Helper()
	if err != nil {
		in.t.Fatal(err)
	}
}

func (in *Instance) open() {
	in.t.Helper()
	ctx := context.Background()
	started := time.Now()
	logger := slog.New(slog.DiscardHandler)
	listening := links.New(func() time.Duration { return time.Since(started) })
	in.counts = ingest.NewTransportCounts(listening)
	var err error
	in.db, err = sqlite.Open(ctx, filepath.Join(in.dir, "weir.db"), sqlite.Options{Clock: time.Now})
	in.must(err)
	in.log, err = bolt.Open(filepath.Join(in.dir, "spool"), bolt.Options{Capacity: spool.Capacity{MaxBytes: 64 << 20}, Meta: in.counts, Sync: in.sync.run})
	in.must(err)
	clock := ingest.NewClock(ingest.ClockConfig{Boot: uint64(started.UnixNano()), Log: in.log, Logger: logger,
		Now: func() (time.Time, time.Duration) { now := time.Now(); return now, now.Sub(started) }})
	compiler, err := rules.NewCompiler(rules.Limits{})
	in.must(err)
	readings, err := series.Open(ctx, series.Config{}, in.db, series.Options{})
	in.must(err)
	in.control = ingest.NewController(in.db, in.log, clock.Stamp, logger)
	in.applier, err = ingest.NewApplier(ctx, ingest.ApplyConfig{TimeSettings: ingest.TimeSettings{MaxAge: 366 * 24 * time.Hour, MaxFutureSkew: time.Minute}, CheckpointSettings: ingest.CheckpointSettings{ReplayBytes: 1 << 30, HeadAge: time.Hour},
		HeadBytes: 64 << 20, DedupeSettings: ingest.DedupeSettings{DedupeWindow: time.Hour, DedupeMaxBytes: 1 << 20}, RejectedBytes: 1 << 20, CommitRetry: time.Millisecond},
		ingest.ApplyDeps{Log: in.log, Store: in.db, Counts: in.counts, Series: readings, Rules: rules.NewEngine(compiler, nil),
			Controller: in.control, Clock: clock, Logger: logger})
	in.must(err)
	clock.Begin(in.applier.Received())
	listening.Open()
	in.Intake = ingest.NewIntake(ingest.IntakeConfig{AuthSettings: ingest.AuthSettings{DeviceAuth: ingest.AuthRequired}}, ingest.IntakeDeps{Log: in.log, Counts: in.counts, Stamp: clock.Stamp,
		Verify: in.verifyBody, Ceiling: in.ceiling, Pressure: in.pressure, Seal: func(_ string, b []byte) ([]byte, error) { return b, nil },
		KeepRejected: func(context.Context, []*store.DeadLetter) error { return nil }, Logger: logger})
	var life context.Context
	life, in.stop = context.WithCancel(ctx)
	in.running.Go(func() { _ = in.Intake.Run(life) })
}

// furnish gives the instance a tenant with devices.
func (in *Instance) furnish() {
	in.t.Helper()
	row := func(kind model.ViewKind, key, body string) model.ViewChange {
		return model.ViewChange{Kind: kind, Key: key, Body: []byte(body)}
	}
	all := []model.ViewChange{row(model.ViewTenant, Tenant, `{"v":1,"id":1,"enabled":true}`), row(model.ViewDeviceType, "10", `{"v":1}`)}
	for n := range Devices {
		all = append(all, row(model.ViewDevice, Tenant+"/"+Device(n+1), fmt.Sprintf(`{"v":1,"id":%d,"type":10}`, n+1)))
	}
	_, err := store.Mutate(context.Background(), in.db, nil, time.Now, func(c *store.Change) error { c.View(all...); return nil })
	in.must(err)
	in.must(in.control.Drain(context.Background()))
}

// apply runs the applier until it has read the whole log, and ends it: with a last checkpoint, or as a kill would.
func (in *Instance) apply() {
	in.t.Helper()
	in.must(in.log.Sync(context.Background()))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- in.applier.Run(ctx) }()
	_, last := in.log.Bounds()
	poll.True(in.t, "the log is applied", func() bool { return in.applier.Applied() >= last })
	cancel()
	in.must(<-ended)
}

// kill closes everything as the death of the process would, and opens it again.
func (in *Instance) kill() {
	in.t.Helper()
	in.close()
	in.open()
}

func (in *Instance) close() {
	in.sync.set(syncFree)
	in.stop()
	in.running.Wait()
	_ = in.log.Close()
	_ = in.db.Close()
}

// Verify looks up who presents an access token, as auth does for a connection. ok is false for every cause of a refusal.
func (in *Instance) Verify(tenant, token string) (b model.Binding, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for n := 1; n <= Devices; n++ {
		if d := Device(n); tenant == Tenant && token == Token(d) && !in.disabled[d] && !in.disabled[""] {
			return model.Binding{Tenant: Tenant, TenantID: 1, Device: d, DeviceID: int64(n), Credential: credentialOf(n)}, true
		}
	}
	return model.Binding{}, false
}

func (in *Instance) verifyBody(_ context.Context, c ingest.Claim) (ingest.Proof, model.Verdict, error) {
	b, ok := in.Verify(c.Tenant, c.ID)
	if !ok {
		return ingest.Proof{}, model.VerdictBad, nil
	}
	return ingest.Proof{Credential: b.Credential, DeviceID: b.DeviceID, Device: b.Device}, model.VerdictOK, nil
}

func (in *Instance) disable(device string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.disabled[device] = true
}

// outcomes returns the ledger of the source by outcome. Every line of it must balance.
func (in *Instance) outcomes() map[store.Outcome]int64 {
	in.t.Helper()
	lines, err := in.applier.Ledger().Lines(context.Background(), store.LedgerFilter{})
	in.must(err)
	sum := map[store.Outcome]int64{}
	for _, l := range lines {
		if l.Missing() != 0 || l.Source != in.source {
			in.t.Errorf("the ledger has %d missing of %s at %q: %+v", l.Missing(), l.Transport, l.Source, l)
		}
		sum[store.OutcomeReceived] += l.Received.Messages
		for o, c := range l.Outcomes {
			sum[o] += c.Messages
		}
	}
	return sum
}

// recount holds the ledger against what is on disk, and returns how many messages are stored and how many wait in the log.
func (in *Instance) recount() (stored, waiting int64) {
	in.t.Helper()
	v := &ingest.Verifier{Store: in.db, Tenants: func(store.Tx) (map[int64]string, error) { return map[int64]string{1: Tenant}, nil },
		Batches: func(ctx context.Context, from model.Offset, f func(*spool.Batch) error) error {
			return ingest.LogBatches(ctx, in.log, from, f)
		}}
	out, err := v.Verify(context.Background())
	in.must(err)
	for _, w := range out.Wrongs {
		in.t.Errorf("the ledger does not balance: %+v", w)
	}
	return out.Messages, int64(out.Waiting)
}

// records calls f for each record of the log.
func (in *Instance) records(f func(*model.Record)) {
	in.t.Helper()
	in.must(ingest.LogBatches(context.Background(), in.log, 1, func(b *spool.Batch) error {
		for i := range b.Records {
			r, err := model.DecodeRecord(b.Records[i].Data)
			if err != nil {
				return err
			}
			f(r)
		}
		return nil
	}))
}

// ceiling has room until it is emptied.
type ceiling struct {
	mu              sync.Mutex
	empty, unproven bool // unproven: of senders that prove nothing
}

func (c *ceiling) set(empty, unproven bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.empty, c.unproven = empty, unproven
}

func (c *ceiling) Known(tenant string) bool { return tenant == Tenant }
func (c *ceiling) Empty(string) bool        { c.mu.Lock(); defer c.mu.Unlock(); return c.empty }
func (c *ceiling) Take(string, int) bool    { return !c.Empty("") }
func (c *ceiling) Wait(_ context.Context, _ string, _ int, _ time.Duration) bool {
	return !c.Empty("")
}
func (c *ceiling) TakeUnauthenticated(int, int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.unproven
}
func (c *ceiling) TakeHash() bool { return true }
func (c *ceiling) ReturnHash()    {}

// pressure is a log that is full when the test says so.
type pressure struct {
	mu      sync.Mutex
	full    bool
	held    int // arrivals that wait for room
	changed chan struct{}
}

func newPressure() *pressure { return &pressure{changed: make(chan struct{})} }

func (p *pressure) set(full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.full = full
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pressure) Refusing() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.full }
func (p *pressure) Full() bool     { return p.Refusing() }
func (p *pressure) Sample()        {}

func (p *pressure) Wait(ctx context.Context) error {
	p.mu.Lock()
	changed := p.changed
	p.held++
	p.mu.Unlock()
	defer func() { p.mu.Lock(); p.held--; p.mu.Unlock() }()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pressure) holding() int { p.mu.Lock(); defer p.mu.Unlock(); return p.held }

// syncControl stands around the log's syncs.
type syncControl struct {
	mu      sync.Mutex
	mode    syncMode
	change  chan struct{}
	waiting int
	failed  int
}

type syncMode int

const (
	syncFree syncMode = iota
	syncHeld
	syncFails
)

var errSync = errors.New("the disk does not take it")

func (g *syncControl) set(m syncMode) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mode = m; g.change != nil {
		close(g.change)
		g.change = nil
	}
}

func (g *syncControl) run(sync func() error) error {
	g.mu.Lock()
	for g.mode == syncHeld {
		if g.change == nil {
			g.change = make(chan struct{})
		}
		change := g.change
		g.waiting++
		g.mu.Unlock()
		<-change
		g.mu.Lock()
		g.waiting--
	}
	fails := g.mode == syncFails
	if fails {
		g.failed++
	}
	g.mu.Unlock()
	if fails {
		return errSync
	}
	return sync()
}

func (g *syncControl) seen() (waiting, failed int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting, g.failed
}

// timeout ends what would otherwise hang.
const timeout = 30 * time.Second
