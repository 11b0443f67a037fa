package crash_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/alarm"
	"weir/config"
	"weir/ingest"
	"weir/ingest/links"
	"weir/internal/test/fixture"
	"weir/internal/test/poll"
	"weir/model"
	"weir/rules"
	"weir/series"
	"weir/spool"
	"weir/spool/bolt"
	"weir/store"
	"weir/store/sqlite"
)

// twin applies all of an instance's log once, from its first record on and without an end on the way. What the instance holds of
// edges, fires, alarms and orders, between an end and the next start, must be what the twin holds at the same record. The files that
// the instance removes from its log are kept for it.
type twin struct {
	t          *testing.T
	data, kept string
	db         *sqlite.DB
	log        *fed
	applier    *ingest.Applier
	ended      chan struct{} // closed when the applier has
	at         model.Offset  // newest record that it was given
	edges      int           // that were compared
	orders     int           // that were compared
	targets    *targets      // that the instance delivers to; nil: it delivers nothing
}

// newTwin returns the twin of an instance that runs with a configuration.
func newTwin(t *testing.T, data, kept, file string) *twin {
	t.Helper()
	c, err := config.Load(config.Source{File: file})
	if err != nil {
		t.Fatal(err)
	}
	tw := &twin{t: t, data: data, kept: kept, ended: make(chan struct{}), log: &fed{batches: make(chan *spool.Batch)}}
	if tw.db, err = sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "weir.db"), sqlite.Options{}); err != nil {
		t.Fatal(err)
	}
	compiler, err := rules.NewCompiler(rules.Limits{Settings: c.Detection, Actions: rules.Performed()})
	if err != nil {
		t.Fatal(err)
	}
	readings, err := series.Open(t.Context(), series.Config{Settings: c.Limits.Settings}, tw.db, series.Options{})
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	tw.applier, err = ingest.NewApplier(t.Context(), ingest.ApplyConfig{TimeSettings: c.Ingest.TimeSettings, DedupeSettings: c.Ingest.DedupeSettings,
		CheckpointSettings: ingest.CheckpointSettings{ReplayBytes: 16 << 20, HeadAge: time.Hour}, DeadLetterSettings: c.Limits.DeadLetterSettings,
		HeadBytes: 64 << 20, RejectedBytes: 1 << 20, RestartGrace: c.Presence.Grace, CommitRetry: time.Second},
		ingest.ApplyDeps{Log: tw.log, Store: tw.db, Counts: ingest.NewTransportCounts(links.New(func() time.Duration { return 0 })), Series: readings,
			Rules:       rules.NewEngine(compiler, nil),
			Projections: []ingest.Projection{ingest.AlarmResults(alarm.New(c.Limits.TenantSettings, alarm.Deps{Store: tw.db, Writer: store.Direct{Store: tw.db}}))},
			Controller:  ingest.NewController(tw.db, tw.log, func() model.Stamp { return model.Stamp{} }, logger), Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer close(tw.ended)
		if err := tw.applier.Run(ctx); err != nil {
			t.Errorf("the twin: %v", err)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-tw.ended
		if err := tw.db.Close(); err != nil {
			t.Error(err)
		}
	})
	return tw
}

// fed is the log of a twin: it holds what it is given.
type fed struct {
	spool.Log
	batches chan *spool.Batch
}

func (*fed) Bounds() (first, last model.Offset)           { return 1, 0 }
func (f *fed) Reader(model.Offset) (spool.Reader, error)  { return feeding{f}, nil }
func (*fed) Trim(model.Offset) error                      { return nil }
func (*fed) Stats() (s spool.Stats)                       { return s }
func (*fed) Append(context.Context, ...spool.Entry) error { return spool.ErrClosed }

// feeding reads it.
type feeding struct{ *fed }

func (feeding) Close()                         {}
func (feeding) TryNext() (*spool.Batch, error) { return nil, nil }
func (f feeding) Next(ctx context.Context) (*spool.Batch, error) {
	select {
	case b := <-f.batches:
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// check holds what the instance, which has ended, left in its database against the twin. whole: it has applied all of its log.
func (tw *twin) check(whole bool) {
	tw.t.Helper()
	db := atRest(tw.t, tw.data)
	defer db.close()
	at := db.reached()
	tw.feed(at, false)
	tw.compare(db, at)
	if !whole {
		return
	}
	tw.feed(0, true)
	if is := (&rest{tw.t, tw.db, ""}).reached(); is != at {
		tw.t.Errorf("the instance has applied its log and knows edges up to record %d, the log has some up to %d", at, is)
	}
}

// feed gives the twin the records of the instance's log up to one, or all.
func (tw *twin) feed(upTo model.Offset, all bool) {
	tw.t.Helper()
	if !all && upTo <= tw.at {
		return
	}
	dir := tw.t.TempDir()
	for _, from := range []string{tw.kept, filepath.Join(tw.data, "spool")} {
		files, err := filepath.Glob(filepath.Join(from, "*.span"))
		if err != nil {
			tw.t.Fatal(err)
		}
		for _, f := range files {
			if err := os.Link(f, filepath.Join(dir, filepath.Base(f))); err != nil && !os.IsExist(err) {
				tw.t.Fatal(err)
			}
		}
	}
	if err := bolt.Walk(tw.t.Context(), dir, tw.at+1, func(b *spool.Batch) error {
		piece, last := *b, b.Last()
		if !all {
			last = min(last, upTo)
		}
		if last <= tw.at {
			return nil
		}
		if b.First > tw.at+1 {
			return fmt.Errorf("the log lacks records %d to %d", tw.at+1, b.First-1)
		}
		piece.First = tw.at + 1
		piece.Records = b.Records[piece.First-b.First : last+1-b.First]
		tw.at = last
		select {
		case tw.log.batches <- &piece:
			return nil
		case <-tw.ended:
			return errors.New("the twin has ended")
		}
	}); err != nil {
		tw.t.Fatalf("the log of the instance: %v", err)
	}
	poll.Until(tw.t, "the twin has applied the log", func() error {
		if is := tw.applier.Applied(); is != tw.at {
			return fmt.Errorf("record %d of %d; %s", is, tw.at, tw.applier.Stalled())
		}
		return nil
	})
	tw.forget(dir)
}

// forget removes the files that hold nothing new any more.
func (tw *twin) forget(dir string) {
	tw.t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		tw.t.Fatal(err)
	}
	kept, err := filepath.Glob(filepath.Join(tw.kept, "*.span")) // sorted
	if err != nil {
		tw.t.Fatal(err)
	}
	for i := range kept {
		if i+1 < len(kept) && filepath.Base(kept[i+1]) <= bolt.FileName(tw.at+1) {
			if err := os.Remove(kept[i]); err != nil {
				tw.t.Fatal(err)
			}
		}
	}
}

// compare holds the results of the rules against each other, of every tenant that stays.
func (tw *twin) compare(db *rest, at model.Offset) {
	tw.t.Helper()
	own := &rest{tw.t, tw.db, ""}
	tw.edges, tw.orders = 0, 0
	for name, id := range db.tenants() {
		got, want := db.edges(id), own.edges(id)
		tw.edges += len(want)
		if i := firstDifference(got, want); i >= 0 {
			tw.t.Errorf("%s: at record %d %d edges are there, want %d; edge %d:\n got %+v\nwant %+v", name, at, len(got), len(want), i, atMost(got, i), atMost(want, i))
		}
		tw.orders += tw.compareOrders(name, at, db.places(name, id), own.places(name, id))
		for what, query := range map[string]string{
			"fires": `SELECT rule, fires, last_fired, last_signal, stale FROM rule_fires WHERE tenant_id = ? ORDER BY rule`,
			"alarms": `SELECT token, device_id, device, alarm_key, metric_key, state, severity, raised_at, coalesce(cleared_at, '-'), coalesce(last_value, '-'), moves, log_offset,
				created_at, updated_at FROM alarms WHERE tenant_id = ? ORDER BY token`,
			"contributors": `SELECT a.token, c.rule, c.severity, c.epoch, c.log_offset, c.idx FROM alarm_contributors AS c, alarms AS a WHERE c.alarm_id = a.id AND c.tenant_id = ?
				ORDER BY a.token, c.rule`,
			"events of alarms": `SELECT token, number, at, occurred, move, severity, severity_before, state, coalesce(last_value, '-'), raised_at, device, alarm_key FROM alarm_events
				WHERE tenant_id = ? ORDER BY token, number`,
		} {
			got, want := db.rows(query, id), own.rows(query, id)
			if i := firstDifference(got, want); i >= 0 {
				tw.t.Errorf("%s: at record %d the %s are others; row %d of %d, want %d:\n got %v\nwant %v", name, at, what, i, len(got), len(want), atMost(got, i), atMost(want, i))
			}
		}
	}
}

func firstDifference[T comparable](a, b []T) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

// atMost is the element at i, if there is one.
func atMost[T any](all []T, i int) []T { return all[min(i, len(all)):min(i+1, len(all))] }

// rest is a database that nothing else uses.
type rest struct {
	t   *testing.T
	db  *sqlite.DB
	dir string
}

// atRest opens a copy of the database of an instance that has ended: what the instance finds after its start stays as it is.
func atRest(t *testing.T, data string) *rest {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "rest")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"weir.db", "weir.db-wal"} {
		b, err := os.ReadFile(filepath.Join(data, name))
		if os.IsNotExist(err) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, fs.FileMode(0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "weir.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &rest{t, db, dir}
}

func (r *rest) close() {
	if err := r.db.Close(); err != nil {
		r.t.Error(err)
	}
	if err := os.RemoveAll(r.dir); err != nil {
		r.t.Error(err)
	}
}

// rows are the rows of a query, as texts.
func (r *rest) rows(query string, args ...any) []string {
	r.t.Helper()
	return fixture.Rows(r.t, r.db, query, args...)
}

// reached is the newest record whose edges or actions are there.
func (r *rest) reached() (at model.Offset) {
	r.t.Helper()
	if err := r.db.Read(r.t.Context(), func(tx store.Tx) error {
		var edges, acted int64
		err := tx.QueryRow(`SELECT log_offset, acted_offset FROM edge_progress WHERE id = 1`).Scan(&edges, &acted)
		at = model.Offset(max(edges, acted))
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
	return at
}

// tenants are the row ids of the tenants that are not deleted meanwhile.
func (r *rest) tenants() map[string]int64 {
	r.t.Helper()
	found := map[string]int64{}
	for _, row := range r.rows(`SELECT id, token FROM tenants WHERE token NOT LIKE 'passing-%'`) {
		var id int64
		var token string
		if _, err := fmt.Sscan(row, &id, &token); err != nil {
			r.t.Fatal(err)
		}
		found[token] = id
	}
	return found
}

// edges are those of a tenant in the order of the log.
func (r *rest) edges(tenant int64) (all []model.Edge) {
	r.t.Helper()
	if err := r.db.Read(r.t.Context(), func(tx store.Tx) error {
		return store.Edges(tx, tenant, func(e *model.Edge) error {
			all = append(all, *e)
			return nil
		})
	}); err != nil {
		r.t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b model.Edge) int {
		x, y := &a.ID, &b.ID
		return cmp.Or(cmp.Compare(x.Offset, y.Offset), cmp.Compare(x.Index, y.Index), strings.Compare(x.Rule, y.Rule), strings.Compare(x.Key, y.Key), cmp.Compare(x.N, y.N))
	})
	return all
}

// agree checks what can be told without a log: each fire is an edge, an alarm is active while something contributes to it, what contributes
// are the rules whose last edge is raised, and an order is in one place.
func (r *rest) agree() {
	r.t.Helper()
	for name, id := range r.tenants() {
		fires, raised := map[string]int{}, map[string]bool{}
		edges := r.edges(id)
		for i := range edges {
			e := &edges[i]
			if i > 0 && e.ID == edges[i-1].ID {
				r.t.Errorf("%s: an edge is there twice: %+v", name, e)
			}
			fires[e.ID.Rule]++
			raised[fmt.Sprint(e.Device, " ", e.ID.Rule)] = e.Signal == model.Raised
		}
		for _, row := range r.rows(`SELECT rule, fires FROM rule_fires WHERE tenant_id = ?`, id) {
			var rule string
			var n int
			if _, err := fmt.Sscan(row, &rule, &n); err != nil || n != fires[rule] {
				r.t.Errorf("%s: %s has fired %d times, %d edges are there; %v", name, rule, n, fires[rule], err)
			}
			delete(fires, rule)
		}
		if len(fires) > 0 {
			r.t.Errorf("%s: no fires are counted of %v", name, fires)
		}
		r.places(name, id)
		if id != r.tenants()["every"] {
			continue
		}
		contributes := map[string]int{}
		for _, row := range r.rows(`SELECT a.device_id || ' ' || c.rule FROM alarm_contributors AS c, alarms AS a WHERE c.alarm_id = a.id AND c.tenant_id = ?`, id) {
			contributes[row]++
		}
		for key, is := range raised {
			if n := contributes[key]; n > 1 || is != (n == 1) && !strings.Contains(key, "silent-") {
				r.t.Errorf("%s: %s is raised: %v; it contributes to %d alarms", name, key, is, n)
			}
		}
		for key := range contributes {
			if !raised[key] {
				r.t.Errorf("%s: %s contributes to an alarm and is not raised", name, key)
			}
		}
		for _, row := range r.rows(`SELECT token, state, (SELECT count(*) FROM alarm_contributors WHERE alarm_id = alarms.id) AS n FROM alarms
			WHERE (state = 'ACTIVE') != (n > 0)`) {
			r.t.Errorf("an alarm, its state, and how many contribute: %s", row)
		}
	}
}
