package ingest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/auth"
	"weir/govern"
	"weir/inference"
	"weir/ingest/links"
	"weir/internal/test/draws"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/spool"
	"weir/spool/bolt"
	"weir/store"
	"weir/store/entity"
	"weir/store/erase"
	"weir/store/sqlite"
)

// traffic sends n messages and changes as a random but repeatable plant would: readings early and late, repeats, events
// of every type, unfit ones, presence, devices that get other anchors, attributes and memberships, groups and fences that change, and a
// profile that is published and rolled back.
func (w *world) traffic(seed uint64, n int) {
	w.t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	version := 1
	answers := make(chan Answer, n)
	sent := 0
	for range n {
		w.clock.advance(time.Duration(r.IntN(400)) * time.Millisecond)
		device := 1 + r.IntN(6)
		now := w.clock.stamp().Wall.Time()
		more := ""
		switch r.IntN(4) {
		case 0:
			more = fmt.Sprintf(`,"occurredTime":%q`, now.Add(-time.Duration(r.IntN(7200))*time.Second).Format(time.RFC3339Nano))
		case 1:
			more = fmt.Sprintf(`,"altId":"a%d","occurredTime":"2026-03-01T11:00:00Z"`, r.IntN(40))
		}
		a := w.arrival(device, measurement("temp", float64(r.IntN(1200))/10, more))
		if device == 2 {
			a.Source = "plant"
		}
		switch r.IntN(12) {
		case 0:
			a = w.arrival(device, `{"eventType":"Location","payload":{"entries":[{"latitude":"47.1","longitude":"8.5"}]}}`)
		case 1:
			a = w.arrival(device, `{"eventType":"Alert","payload":{"entries":[{"type":"door","level":2}]}}`)
		case 2:
			a = w.arrival(device, "garbage")
			a.CannotRefuse = r.IntN(2) == 0
		case 3:
			a.PacketID, a.Dup = uint16(1+r.IntN(3)), r.IntN(2) == 0
		case 4:
			a = w.arrival(device, measurement("temp", 900, ""))
		case 5:
			a = w.arrival(device, measurement("flagged", float64(r.IntN(3)), ""))
		case 6:
			a = w.answerOf(device, fmt.Sprintf(`{"commandToken":"c-%d","success":%v,"payload":{"n":%d}}`, r.IntN(9), r.IntN(2) == 0, r.IntN(9)))
		}
		switch r.IntN(40) {
		case 6:
			w.must(appendClock(context.Background(), w.log, w.time.Stamp(), func(model.Offset, error) {}))
		case 7:
			w.counts.links.Refused("acme")
		case 8:
			w.counts.links.Link("plant").Up()
		case 9:
			w.counts.links.Link("plant").Down()
		case 0:
			version = 3 - version
			w.change(w.profile(version, w.rulesOf(version)...))
		case 2:
			w.change(anchored(device, []model.Anchor{{Type: "area", Token: "hall"}, {Type: "area", Token: "roof"}, {Type: "customer", Token: "acme"}}[:r.IntN(4)]...))
		case 3, 4, 5:
			w.change(w.meaning(r, device)...)
		case 1:
			w.intake.Presence(context.Background(), TransportMQTT, "mqtt1", *a.Conn, model.Presence{State: model.PresenceState(1 + r.IntN(2)),
				Session: uint64(1 + r.IntN(50)), Occurred: w.clock.stamp().Wall}, func(an Answer) { answers <- an })
			sent++
		}
		w.intake.Accept(context.Background(), a, func(an Answer) { answers <- an })
		sent++
		if len(answers) > 20 || r.IntN(6) == 0 {
			for ; sent > 0; sent-- {
				<-answers
			}
		}
	}
	for ; sent > 0; sent-- {
		<-answers
	}
}

// meaning is a change of what resolution reads besides profiles and anchors.
func (w *world) meaning(r *rand.Rand, device int) []model.ViewChange {
	switch r.IntN(6) {
	case 0:
		return []model.ViewChange{attribute(device, "SHARED", "limit", float64(r.IntN(4))), attribute(device, "SERVER", "limit", 1.5)}
	case 1:
		return []model.ViewChange{attribute(device, "SHARED", "site", []any{"east", "west", true, removed}[r.IntN(4)])}
	case 2:
		return []model.ViewChange{inGroups(device, []string{"first", "second"}[:r.IntN(3)]...)}
	case 3:
		return []model.ViewChange{published("hot", 1, `attr["limit"] > 1 || attr["site"] == "east"`, r.IntN(2) == 0),
			published("far", 1+r.IntN(2), `!("site" in attr)`, true)}
	case 4:
		return []model.ViewChange{{Kind: model.ViewGroup, Key: "1/1"}, {Kind: model.ViewGroup, Key: "2/2"}}
	}
	return fenced(1, int64(1+r.IntN(100)), "yard", []string{square, ""}[r.IntN(2)])
}

func (w *world) rulesOf(version int) []model.RuleView {
	const critical = `{"type":"raiseAlarm","raiseAlarm":{"alarmKey":"heat"}}`
	var all []model.RuleView
	if version == 1 {
		all = []model.RuleView{doing(thresholdRule("hot", "temp", "gt", 60), critical), doing(thresholdRule("warm", "temp", "gt", 40), critical),
			doing(thresholdRule("cold", "temp", "lt", 10), `{"type":"raiseAlarm","raiseAlarm":{},"guard":"value < 8.0"},
				{"type":"sendCommand","sendCommand":{"command":"heat","payload":"{}"}},{"type":"httpCall","httpCall":{"url":"http://h","bodyTemplate":"series + string(value)"}}`)}
	} else {
		warm := doing(thresholdRule("warm", "temp", "gt", 40), critical+`,{"type":"raiseAlarm","raiseAlarm":{"alarmKeyTemplate":"'warm-' + series"}}`)
		warm.Definition = strings.Replace(warm.Definition, `"major"`, `"critical"`, 1)
		all = []model.RuleView{doing(thresholdRule("hot", "temp", "gt", 80), critical), warm,
			doing(thresholdRule("cold", "temp", "lt", 10), `{"type":"publish","publish":{"connectorRef":"bus"}}`)}
	}
	if all = append(all, scopedRules()...); version == 2 {
		all = slices.DeleteFunc(all, func(r model.RuleView) bool { return r.Token == "a-group" })
	}
	for i, body := range waitingKinds {
		all = append(all, model.RuleView{Token: fmt.Sprint("w", i), Definition: `{"name":"n",` + body + `}`})
	}
	return all
}

// waitingKinds are rules of the kinds that fire as time passes.
var waitingKinds = []string{
	`"type":"absence","timeout":"3s","lateness":"0s"`,
	`"type":"duration","hold":"2s","when":{"metric":"temp","op":"gt","threshold":20}`,
	`"type":"deltaRate","metric":"temp","op":"gt","threshold":30`,
	`"type":"repeating","count":2,"window":"10s","when":{"metric":"temp","op":"gt","threshold":50}`,
	`"type":"aggregate","windowMode":"tumbling","window":"4s","agg":"avg","metric":"temp","op":"gt","threshold":50`,
	`"type":"aggregate","windowMode":"sliding","window":"5s","agg":"max","metric":"temp","op":"gt","threshold":80`,
	`"type":"aggregate","windowMode":"session","gap":"2s","agg":"count","op":"gt","threshold":1`,
	`"type":"aggregate","windowMode":"sliding","window":"40s","agg":"avg","metric":"temp","op":"gt","threshold":60`,
	`"type":"correlation","anchorType":"area","count":2,"window":"10s","lateness":"1s","when":{"metric":"temp","op":"gt","threshold":40}`,
	`"type":"connectivity"`,
}

// notResults are the tables that do not follow from the log, each with the reason. Every other table of the schema does: the
// tests below compare it, and traffic must leave something in it. The tables of entities of tenants are those that an erase of a tenant
// counts as its registry, but for the metadata view; those of the instance are in the catalogs.
var notResults = func() map[string]string {
	out := map[string]string{
		"meta":         "figures of this database, among them its pair id; what the checkpoint keeps there is compared by metaResults",
		"control":      "metadata changes on their way into the log",
		"secrets":      "written by the vault",
		"audit_events": "written by the API",

		"caused_changes": "what a replay from the checkpoint on needs, removed with the next one",

		"schema_migrations": "says when each migration ran, by the wall clock",
		"ledger_gaps":       "says what was lost, by the wall clock at which it was found",
		"sparkplug_nodes":   "written by the transport",
		"site_firings":      "of a platform with an uplink: edges that wait for the Weir above, which knows their numbers",

		"notification_states":   "written by the notifier, which follows the alarms",
		"tenant_erasures":       "the journal of the deletions of tenants",
		"tenant_erasure_stores": "the same, by part",

		"identities":     "people: the API writes them",
		"identity_roles": "a part of those",
		"signing_keys":   "written by sign-in",
		"ai_tier_grants": "a part of a tier: the API writes it",
	}
	entities := erase.Tables(erase.Registry)
	for _, kind := range entity.Union(govern.Describe(), auth.Describe(), inference.Describe()).All() {
		entities = append(entities, kind.Info().Table)
	}
	for _, table := range entities {
		if out[table] == "" && table != "view_rows" {
			out[table] = "an entity: the API writes it"
		}
	}
	return out
}()

// maybeEmpty are result tables that the traffic need not fill, each with the reason.
var maybeEmpty = map[string]string{"series_chunks": "a chunk has more readings of a series than the traffic sends between two checkpoints",
	"edges": "detections of earlier versions; now they are in edge_blocks"}

// bookkeeping are tables whose row ids are given out at the commit, so that they say nothing.
var bookkeeping = []string{"edges", "dead_letters", "seen_pages", "row_events"}

// metaResults are the keys of meta that the checkpoint writes.
var metaResults = []string{metaListening, metaReceived, metaTimeMap}

// tables returns the tables of the schema.
func tables(t testing.TB, db store.Store) (out []string) {
	t.Helper()
	err := db.Read(context.Background(), func(tx store.Tx) error {
		rows, err := tx.Query(`SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				return err
			}
			out = append(out, name)
		}
		return rows.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// dump returns the rows of every result table, as text in one order, and what the checkpoint keeps in meta.
func dump(t testing.TB, db store.Store) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, table := range tables(t, db) {
		if table == "edge_blocks" {
			out[table] = detections(t, db)
		} else if notResults[table] == "" {
			out[table] = tableRows(t, db, table, `SELECT * FROM `+table)
		}
	}
	for _, key := range metaResults {
		out["meta "+key] = tableRows(t, db, "meta", `SELECT value, number FROM meta WHERE key = ?`, key)
	}
	return out
}

// detections returns what the blocks of edges hold, as text in one order: which edges share a block follows from the batches.
func detections(t testing.TB, db store.Store) (out []string) {
	t.Helper()
	if err := db.Read(context.Background(), func(tx store.Tx) error {
		return store.Edges(tx, 1, func(e *model.Edge) error {
			out = append(out, fmt.Sprintf("%+v", *e))
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func tableRows(t testing.TB, db store.Store, table, query string, args ...any) (out []string) {
	t.Helper()
	fixture.EachRow(t, db, func(columns []string, values []any) {
		var b strings.Builder
		for i, c := range columns {
			if c != "id" || !slices.Contains(bookkeeping, table) {
				fmt.Fprintf(&b, "%s=%v ", c, values[i])
			}
		}
		out = append(out, b.String())
	}, query, args...)
	slices.Sort(out)
	return out
}

// unfilled returns the result tables in which the traffic left nothing: results that it does not bring about, or tables that
// were added and that are not named as none.
func unfilled(d map[string][]string) (out []string) {
	for _, table := range slices.Sorted(maps.Keys(d)) {
		if len(d[table]) == 0 && maybeEmpty[table] == "" && !strings.HasPrefix(table, "meta ") {
			out = append(out, table)
		}
	}
	return out
}

func compareDumps(t testing.TB, got, want map[string][]string) {
	t.Helper()
	for _, d := range differences(got, want) {
		t.Error(d)
	}
}

// differences names the tables that differ, each with the first row that does.
func differences(got, want map[string][]string) (out []string) {
	all := maps.Clone(got)
	maps.Copy(all, want)
	for _, table := range slices.Sorted(maps.Keys(all)) {
		if slices.Equal(got[table], want[table]) {
			continue
		}
		for i := range max(len(got[table]), len(want[table])) {
			if g, x := at(got[table], i), at(want[table], i); g != x {
				out = append(out, fmt.Sprintf("table %s differs: %d rows, want %d\n  got  %.600s\n  want %.600s", table, len(got[table]), len(want[table]), g, x))
				break
			}
		}
	}
	return out
}

func at(s []string, i int) string {
	if i < len(s) {
		return s[i]
	}
	return "(none)"
}

func (w *world) finishHead(a *Applier) {
	w.t.Helper()
	a.begin()
	w.must(a.checkpoint(context.Background(), a.Applied()))
	a.checkpoints.start()
	w.must(a.checkpoints.await())
}

func smallHeads(w *world) {
	w.cfg.ReplayBytes, w.cfg.HeadAge = 8<<10, 5*time.Second
}

// recut is the meta of a log that holds the records of another one in other batches: the counts come with the first.
type recut struct {
	spans  []links.Span // of each record; a batch has records of one span
	counts map[store.LedgerKey]store.LedgerCount
	moves  map[int]links.Moves // that lie before a record, which begins a batch
	taken  int
}

func (r *recut) Take(entries []spool.Entry) []byte {
	m := batchMeta{Span: r.spans[r.taken], Counts: r.counts, Moves: r.moves[r.taken]}
	r.counts, r.taken = nil, r.taken+len(entries)
	return appendMeta(nil, m)
}
func (r *recut) Settle(bool) {}

// TestATableThatIsNotListedIsNoticed adds a table to the schema, as a migration would, and says nowhere what it is.
func TestATableThatIsNotListedIsNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exec := func(q string) {
		w.must(w.db.Write(context.Background(), store.Durable, func(tx store.Tx) error { _, err := tx.Exec(q); return err }))
	}
	before := dump(t, w.db)
	exec(`CREATE TABLE scratch (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)`)
	if got := dump(t, w.db); slices.Contains(unfilled(before), "scratch") || !slices.Contains(unfilled(got), "scratch") {
		t.Errorf("without rows it is not noticed: %v", unfilled(got))
	}
	exec(`INSERT INTO scratch (n) VALUES (1)`)
	if got := differences(dump(t, w.db), before); len(got) != 1 || !strings.Contains(got[0], "scratch") {
		t.Errorf("with a row that a replay does not write again it is not noticed: %q", got)
	}
}

func TestTheTablesThatAreNoResultsExist(t *testing.T) {
	t.Parallel()
	have := tables(t, newWorld(t).db)
	for _, names := range []map[string]string{notResults, maybeEmpty} {
		for table := range names {
			if !slices.Contains(have, table) {
				t.Errorf("the schema has no table %s", table)
			}
		}
	}
}

func TestTheSameLogGivesTheSameResultsHoweverItWasCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallHeads)
	release := w.log.HoldTrim()
	defer release()
	w.furnish(6, w.rulesOf(1)...)
	w.traffic(1, 400)
	w.restart()
	defer w.log.HoldTrim()()
	w.clock.advance(12 * time.Hour) // past a midnight, whose snapshot is kept
	w.traffic(2, 400)
	w.apply()
	w.finishHead(w.applier)
	if w.applier.checkpoints.newest.Generation < 5 {
		t.Fatalf("only %d heads were written", w.applier.checkpoints.newest.Generation)
	}
	want := dump(t, w.db)
	for _, table := range unfilled(want) {
		t.Errorf("the traffic left nothing in %s: it must fill the table, or the table is named in notResults with the reason", table)
	}

	for _, r := range w.rulesOf(1) {
		if !slices.ContainsFunc(want["edge_blocks"], func(row string) bool { return strings.Contains(row, " Rule:"+r.Token+" ") }) {
			t.Errorf("rule %s did not fire: %s", r.Token, r.Definition)
		}
	}
	records, re := w.records()
	if len(re.moves) < 4 {
		t.Errorf("the tenant was held and released %d times", len(re.moves))
	}
	w.clock.advance(1000 * time.Hour) // another wall clock
	dir := t.TempDir()
	log, err := bolt.Open(filepath.Join(dir, "spool"), bolt.Options{Capacity: spool.Capacity{MaxBytes: 64 << 20}, Meta: re})
	w.must(err)
	defer log.Close()
	for i, rec := range records {
		w.must(log.Append(context.Background(), spool.Entry{Data: rec.Data, Done: func(model.Offset, error) {}}))
		if i%17 == 0 || i+1 < len(records) && (re.spans[i+1] != re.spans[i] || len(re.moves[i+1].Holds)+len(re.moves[i+1].Turns) > 0) {
			w.must(log.Sync(context.Background()))
		}
	}
	w.must(log.Sync(context.Background()))
	db, err := sqlite.Open(context.Background(), filepath.Join(dir, "weir.db"), sqlite.Options{})
	w.must(err)
	defer db.Close()
	w.edges = nil
	a := w.newApplier(log, db)
	defer a.checkpoints.end()
	w.applyTo(a, log)
	w.finishHead(a)
	compareDumps(t, dump(t, db), want)
}

// TestAKillAnywhereLeavesTheSameResults applies a log in one go, and again with the process gone at random places, among
// them between a head that is cut and its write.
func TestAKillAnywhereLeavesTheSameResults(t *testing.T) {
	t.Parallel()
	for seed := range draws.Seeds(4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { killAnywhere(t, seed, 300, smallHeads) })
	}
}

// flapping is a number of messages of the traffic, some eight minutes of it, with many more detections than one a second.
const flapping = 2400

// TestAKillWhileARuleFlapsLeavesTheSameResults: which edges are over the ceiling follows from the log.
func TestAKillWhileARuleFlapsLeavesTheSameResults(t *testing.T) {
	draws.NeedsAll(t)
	t.Parallel()
	killAnywhere(t, 5, flapping, smallHeads, func(w *world) { w.maxEdges = 1 }).flaps()
}

// flaps shows that a rule was over the ceiling and that its health says so.
func (w *world) flaps() {
	w.t.Helper()
	h, err := w.applier.RuleHealth(context.Background(), "acme", "boiler")
	if err != nil || !slices.ContainsFunc(h, func(r RuleHealth) bool { return r.HeldEdges > 10 && r.Flaps && strings.Contains(r.Message, "flaps") }) {
		w.t.Errorf("the ceiling was not met: %+v, %v", h, err)
	}
}

func TestARuleThatFlapsIsNamedInItsHealthAndTheLog(t *testing.T) {
	draws.NeedsAll(t)
	t.Parallel()
	w := newWorld(t, func(w *world) { w.maxEdges = 1 })
	w.furnish(6, w.rulesOf(1)...)
	start := w.clock.elapsed()
	w.traffic(5, flapping)
	w.apply()
	w.flaps()
	if lines := strings.Count(w.logged.String(), "a rule flaps"); lines < 1 || lines > 1+int((w.clock.elapsed()-start)/time.Minute) {
		t.Errorf("%d lines of the log name a rule that flaps, in %s", lines, w.clock.elapsed()-start)
	}
}

func killAnywhere(t *testing.T, seed uint64, messages int, options ...func(*world)) *world {
	t.Helper()
	w := newWorld(t, options...)
	release := w.log.HoldTrim()
	w.furnish(6, w.rulesOf(1)...)
	w.traffic(seed, messages)
	w.apply()
	w.finishHead(w.applier)
	want := dump(t, w.db)

	r := rand.New(rand.NewPCG(seed, 9))
	db, err := sqlite.Open(context.Background(), filepath.Join(t.TempDir(), "weir.db"), sqlite.Options{})
	w.must(err)
	var a *Applier
	for kills := 0; ; kills++ {
		a = w.newApplier(w.log, db)
		if w.killedWhileApplying(a, r) {
			a.checkpoints.end()
			_ = a.checkpoints.await()
			continue
		}
		break
	}
	w.finishHead(a)
	compareDumps(t, dump(t, db), want)
	a.checkpoints.end()
	w.must(db.Close())
	release()
	return w
}

// killedWhileApplying applies batches until chance ends the process; false when it reached the end.
func (w *world) killedWhileApplying(a *Applier, r *rand.Rand) bool {
	w.t.Helper()
	reader, err := w.log.Reader(a.Applied() + 1)
	w.must(err)
	defer reader.Close()
	dying := false
	for {
		b, err := reader.TryNext()
		w.must(err)
		if b == nil {
			return dying
		}
		if r.IntN(25) == 0 {
			a.checkpoints.end() // whatever head is being written stops where it is
			dying = true
		}
		if err := a.apply(context.Background(), b); err != nil {
			return true
		}
		if r.IntN(25) == 0 {
			return true
		}
	}
}

func TestEachReadingIsJudgedByTheVersionAtItsPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallHeads)
	w.furnish(1, thresholdRule("hot", "temp", "gt", 60))
	r := rand.New(rand.NewPCG(7, 7))
	limit, version := 60.0, 1
	var want []string
	raised := false
	for i := range 400 { // the applier stands still meanwhile
		if r.IntN(15) == 0 {
			if version = 3 - version; version == 1 {
				limit = 60
			} else {
				limit = 80
			}
			w.change(w.profile(version, thresholdRule("hot", "temp", "gt", limit)))
			if raised { // another body: what was raised resolves where the version changed
				want, raised = append(want, "resolved"), false
			}
		}
		v := float64(r.IntN(100))
		w.clock.advance(time.Second)
		if an := w.send(w.arrival(1, temp(v))); an.Outcome != Stored {
			t.Fatalf("%d: %+v", i, an)
		}
		switch {
		case v > limit && !raised:
			want, raised = append(want, fmt.Sprintf("raised %v", v)), true
		case v <= limit && raised:
			want, raised = append(want, "resolved"), false
		}
	}
	w.apply()
	var got []string
	for _, e := range w.edges {
		s := e.Signal.String()
		if e.HasValue {
			s += fmt.Sprintf(" %v", e.Value)
		}
		got = append(got, s)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	h, err := w.applier.RuleHealth(context.Background(), "acme", "boiler")
	if err != nil || len(h) != 1 || h[0].Fires != int64(len(want)) {
		t.Errorf("health %+v, %v; want %d fires", h, err, len(want))
	}
}

// records is what the log holds, and the counts that came with it, to be cut otherwise.
func (w *world) records() ([]spool.Record, *recut) {
	w.t.Helper()
	var records []spool.Record
	re := &recut{counts: map[store.LedgerKey]store.LedgerCount{}, moves: map[int]links.Moves{}}
	w.batches(w.log, 1, func(b *spool.Batch) {
		m, err := decodeMeta(b.Meta)
		w.must(err)
		if len(m.Holds)+len(m.Turns) > 0 {
			re.moves[len(records)] = m.Moves
		}
		for range b.Records {
			re.spans = append(re.spans, m.Span)
		}
		for k, c := range m.Counts {
			have := re.counts[k]
			have.Add(c)
			re.counts[k] = have
		}
		records = append(records, b.Records...)
	})
	return records, re
}
