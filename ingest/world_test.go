package ingest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/alarm"
	"weir/command"
	"weir/ingest/links"
	"weir/internal/setting"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/rules"
	"weir/series"
	"weir/spool"
	"weir/spool/bolt"
	"weir/store"
	"weir/store/sqlite"
)

// world is an instance without listeners: a log and a store in a directory, an intake before and an applier after, and a clock
// that stands until it is moved.
type world struct {
	t     testing.TB
	dir   string
	cfg   ApplyConfig
	kept  series.Config
	built time.Time
	gcfg  IntakeConfig
	sync  func(func() error) error
	// logBytes is the log's budget, 64 MiB when 0.
	logBytes int64
	clock    *testClock

	log     *bolt.Log
	db      *sqlite.DB
	counts  *TransportCounts
	intake  *Intake
	applier *Applier
	control *Controller
	ceiling *testCeiling
	ring    chan *store.DeadLetter
	tap     *Tap
	time    *Clock
	boots   uint64
	edges   []model.Edge
	alarms  alarmLog
	// projections makes further projections for each start.
	projections func() []Projection
	kinds       []rules.Kind // from outside
	registrar   func(store.Store) Registrar
	answers     command.Answerer
	maxEdges    int            // a second of a tenant; 0: the default
	logged      fixture.Buffer // by appliers
	noonAt      time.Duration  // monotonic time of noon
}

type testClock struct {
	mu   sync.Mutex
	wall time.Time
	mono time.Duration
}

func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.mono = c.wall.Add(d), c.mono+d
}

// step sets the wall, as a time server would: the monotonic time goes on.
func (c *testClock) step(wall time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = wall
}

func (c *testClock) now() (time.Time, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall, c.mono
}

func (c *testClock) stamp() model.Stamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	return model.Stamp{Boot: 1, Mono: int64(c.mono), Wall: model.NanosOf(c.wall)}
}

func (c *testClock) elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mono
}

type testCeiling struct {
	mu              sync.Mutex
	known           map[string]bool
	left            int // -1: no end
	unauthenticated int
	hashes          int // -1: no end
}

func (c *testCeiling) Known(tenant string) bool { return c.known[tenant] }
func (c *testCeiling) Empty(string) bool        { c.mu.Lock(); defer c.mu.Unlock(); return c.left == 0 }
func (c *testCeiling) Take(_ string, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left < 0 {
		return true
	}
	if c.left < n {
		return false
	}
	c.left -= n
	return true
}
func (c *testCeiling) Wait(_ context.Context, tenant string, n int, _ time.Duration) bool {
	return c.Take(tenant, n)
}
func (c *testCeiling) TakeHash() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hashes--
	return c.hashes >= 0
}
func (c *testCeiling) ReturnHash() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hashes++
}
func (c *testCeiling) TakeUnauthenticated(n, _ int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unauthenticated < n {
		return false
	}
	c.unauthenticated -= n
	return true
}

func testConfig() ApplyConfig {
	return ApplyConfig{TimeSettings: TimeSettings{MaxAge: 366 * 24 * time.Hour, MaxFutureSkew: 5 * time.Minute}, CheckpointSettings: CheckpointSettings{ReplayBytes: 1 << 20, HeadAge: time.Hour}, HeadBytes: 64 << 20, DedupeSettings: DedupeSettings{DedupeWindow: 14 * 24 * time.Hour, DedupeMaxBytes: 1 << 20}, RejectedBytes: 16 << 20, CommitRetry: time.Millisecond}
}

func newWorld(t testing.TB, change ...func(*world)) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), cfg: testConfig(), gcfg: IntakeConfig{AuthSettings: AuthSettings{DeviceAuth: AuthRequired}},
		clock:   &testClock{wall: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)},
		ceiling: &testCeiling{known: map[string]bool{"acme": true, "other": true}, left: -1, unauthenticated: 1000, hashes: 1000}, ring: make(chan *store.DeadLetter, 100)}
	for _, f := range change {
		f(w)
	}
	w.open()
	t.Cleanup(w.close)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) open() {
	w.t.Helper()
	ctx := context.Background()
	var err error
	w.db, err = sqlite.Open(ctx, filepath.Join(w.dir, "weir.db"), sqlite.Options{Clock: func() time.Time { return w.clock.stamp().Wall.Time() }})
	w.must(err)
	w.counts = NewTransportCounts(links.New(w.clock.elapsed))
	w.counts.links.Open()
	w.alarms.Alarms = alarm.New(alarm.TenantSettings{}, alarm.Deps{Store: w.db, Writer: store.Direct{Store: w.db}})
	w.log, err = bolt.Open(filepath.Join(w.dir, "spool"), bolt.Options{Capacity: spool.Capacity{MaxBytes: setting.Size(cmp.Or(w.logBytes, 64<<20))}, Meta: w.counts, Sync: w.sync})
	w.must(err)
	if end, ok := EndOf(w.log); ok {
		w.counts.links.Resume(end.Listening)
	}
	w.boots++
	w.time = NewClock(ClockConfig{Boot: w.boots, Now: w.clock.now, Built: w.built, Log: w.log, Logger: slog.New(slog.DiscardHandler)})
	w.tap = NewTap(func() model.Nanos { return w.clock.stamp().Wall }, nil)
	w.applier = w.newApplier(w.log, w.db)
	w.control = w.applier.deps.Controller
	w.intake = NewIntake(w.gcfg, IntakeDeps{Log: w.log, Counts: w.counts, Stamp: w.time.Stamp, Ceiling: w.ceiling, Pressure: NewGauge(GaugeConfig{Log: w.log}),
		Seal: func(_ string, b []byte) ([]byte, error) { return b, nil }, Verify: w.verify, Logger: slog.New(slog.DiscardHandler),
		Tap: w.tap, KeepRejected: func(_ context.Context, ds []*store.DeadLetter) error {
			for _, d := range ds {
				w.ring <- d
			}
			return nil
		}})
}

func (w *world) newApplier(log spool.Log, st store.Store) *Applier {
	w.t.Helper()
	ctx := context.Background()
	compiler, err := rules.NewCompiler(rules.Limits{Kinds: w.kinds, Actions: []rules.ActionType{rules.ActionRaiseAlarm, rules.ActionSendCommand, rules.ActionHTTPCall, rules.ActionPublish}, Settings: rules.Settings{MaxEdges: w.maxEdges}})
	w.must(err)
	readings, err := series.Open(ctx, w.kept, st, series.Options{})
	w.must(err)
	logger := slog.New(slog.NewTextHandler(&w.logged, nil))
	more := []Projection{AlarmResults(&w.alarms)}
	if w.projections != nil {
		more = append(more, w.projections()...)
	}
	var registrar Registrar
	if w.registrar != nil {
		registrar = w.registrar(st)
	}
	a, err := NewApplier(ctx, w.cfg, ApplyDeps{Registrar: registrar, Projections: more, Log: log, Store: st, Counts: w.counts, Series: readings,
		Rules: rules.NewEngine(compiler, nil), Answers: w.answers, Controller: NewController(st, log, w.time.Stamp, logger), Clock: w.time, Logger: logger,
		Edges: func(es ...model.Edge) { w.edges = append(w.edges, es...) }, Tap: w.tap})
	w.must(err)
	return a
}

func (w *world) close() {
	w.applier.checkpoints.end()
	_ = w.applier.checkpoints.await()
	_ = w.log.Close()
	_ = w.db.Close()
}

// restart closes everything without a last head, as a kill would, and opens it again.
func (w *world) restart() {
	w.t.Helper()
	w.close()
	w.open()
}

func (w *world) verify(_ context.Context, c Claim) (Proof, model.Verdict, error) {
	switch {
	case c.Type == "X509_CERTIFICATE":
		return Proof{}, model.VerdictNotSupported, nil
	case c.Tenant == "acme" && c.Type == "ACCESS_TOKEN" && c.ID == "token-1":
		return Proof{Credential: 7, DeviceID: 1, Device: "d1"}, model.VerdictOK, nil
	}
	return Proof{}, model.VerdictBad, nil
}

// change stores view changes and appends their control records.
func (w *world) change(vs ...model.ViewChange) {
	w.t.Helper()
	ctx := context.Background()
	_, err := store.Mutate(ctx, w.db, nil, time.Now, func(c *store.Change) error { c.View(vs...); return nil })
	w.must(err)
	w.must(w.control.Drain(ctx))
}

func row(kind model.ViewKind, key string, body any) model.ViewChange {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return model.ViewChange{Kind: kind, Key: key, Body: b}
}

func thresholdRule(token, metric, op string, threshold float64) model.RuleView {
	return model.RuleView{Token: token, Definition: fmt.Sprintf(`{"name":%q,"type":"threshold","severity":"major","when":{"metric":%q,"op":%q,"threshold":%v}}`,
		token, metric, op, threshold)}
}

// settle gives the instance a tenant, a type with a profile, and devices d1..dn.
func (w *world) furnish(devices int, rs ...model.RuleView) {
	w.t.Helper()
	vs := []model.ViewChange{row(model.ViewTenant, "acme", model.TenantView{V: 1, ID: 1, Enabled: true}),
		row(model.ViewDeviceType, "10", model.DeviceTypeView{V: 1, Profile: 20}), w.profile(1, rs...)}
	for i := 1; i <= devices; i++ {
		vs = append(vs, row(model.ViewDevice, fmt.Sprintf("acme/d%d", i), model.DeviceView{V: 1, ID: int64(i), Type: 10}))
	}
	w.change(vs...)
}

func (w *world) profile(version int, rs ...model.RuleView) model.ViewChange {
	lo, hi := -50.0, 500.0
	return row(model.ViewProfile, "20", model.ProfileView{V: 1, Tenant: "acme", Token: "boiler", Version: version, Rules: rs,
		Metrics: []model.MetricView{{Key: "temp", DataType: "DOUBLE", Unit: "Cel", Min: &lo, Max: &hi}, {Key: "n", DataType: "INT"},
			{Key: "flagged", DataType: "DOUBLE", Max: new(1.0), OutOfRange: model.OutOfRangeFlag}}})
}

// arrival is a message of a connected device.
func (w *world) arrival(device int, body string) *Arrival {
	name := fmt.Sprintf("d%d", device)
	return &Arrival{Transport: TransportMQTT, Source: "mqtt1", Tenant: "acme", Topic: name, Body: []byte(body), ClientID: "weir:acme:" + name, HoldFor: -1,
		Conn: &model.Binding{Tenant: "acme", TenantID: 1, Device: name, DeviceID: int64(device), Credential: int64(100 + device)}}
}

// send takes an arrival in and waits for its answer.
func (w *world) send(a *Arrival) Answer {
	w.t.Helper()
	done := make(chan Answer, 1)
	w.intake.Accept(context.Background(), a, func(an Answer) { done <- an })
	return <-done
}

func temp(v float64) string { return measurement("temp", v, "") }

func measurement(metric string, v float64, more string) string {
	return fmt.Sprintf(`{"eventType":"Measurement","payload":{"entries":[{"measurements":{%q:"%v"}}]}%s}`, metric, v, more)
}

// apply applies everything that is in the log.
func (w *world) apply() { w.t.Helper(); w.applyTo(w.applier, w.log) }

func (w *world) applyTo(a *Applier, log spool.Log) {
	w.t.Helper()
	w.batches(log, a.Applied()+1, func(b *spool.Batch) { w.must(a.apply(context.Background(), b)) })
}

// batches calls f for each batch of a log from a record on.
func (w *world) batches(log spool.Log, from model.Offset, f func(*spool.Batch)) {
	w.t.Helper()
	r, err := log.Reader(from)
	w.must(err)
	defer r.Close()
	for {
		b, err := r.TryNext()
		w.must(err)
		if b == nil {
			return
		}
		f(b)
	}
}

// ledger returns what the ledger says, and fails when a line does not balance.
func (w *world) ledger() map[store.Outcome]int64 {
	w.t.Helper()
	lines, err := w.applier.Ledger().Lines(context.Background(), store.LedgerFilter{})
	w.must(err)
	sum := map[store.Outcome]int64{}
	for _, l := range lines {
		if l.Missing() != 0 {
			w.t.Errorf("ledger line %s/%s hour %d misses %d: %+v", l.Tenant, l.Transport, l.Hour, l.Missing(), l)
		}
		sum[store.OutcomeReceived] += l.Received.Messages
		for h, c := range l.Outcomes {
			sum[h] += c.Messages
		}
	}
	return sum
}

// alarmLog folds alarms, and keeps what subscribers get.
type alarmLog struct {
	*alarm.Alarms
	moves []model.AlarmEvent
}

// Publish implements Alarms.
func (l *alarmLog) Publish(es ...model.AlarmEvent) { l.moves = append(l.moves, es...) }

// doing gives a rule actions, in the JSON of a definition.
func doing(r model.RuleView, actions string) model.RuleView {
	r.Definition = strings.TrimSuffix(r.Definition, "}") + `,"actions":[` + actions + `]}`
	return r
}
