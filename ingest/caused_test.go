package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/test/draws"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/presence"
	"weir/registry"
	"weir/series"
	"weir/spool"
	"weir/spool/bolt"
	"weir/store"
	"weir/store/sqlite"
)

// operator is who makes the entities of these tests.
var operator = model.Service("operator", "acme", 1, model.DeviceRead, model.DeviceWrite)

// keptRegistry is a registry in a store, with the limits of small tests.
func keptRegistry(st store.Store) *registry.Registry {
	return registry.New(registry.Config{DeviceSettings: registry.DeviceSettings{AttributesPerEntity: 5, RelationshipsPerDevice: 4, TrackedPerDevice: 2}},
		registry.Deps{Store: st, Writer: store.Direct{Store: st, Now: func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }}})
}

// declared gives a world a registry with the devices d1..dn, two assets, two areas and a group, and types of relationships.
func declared(t testing.TB, devices int, change ...func(*world)) *world {
	t.Helper()
	w := newWorld(t, append(change, func(w *world) {
		w.registrar = func(st store.Store) Registrar { return keptRegistry(st) }
	})...)
	w.change(row(model.ViewTenant, "acme", model.TenantView{V: 1, ID: 1, Enabled: true}))
	declare(t, w.db, devices)
	w.must(w.control.Drain(t.Context()))
	return w
}

func declare(t testing.TB, st store.Store, devices int) {
	t.Helper()
	r := keptRegistry(st)
	make := func(table string, p store.Patch) {
		t.Helper()
		if _, err := r.Kinds.Of(table).Create(context.Background(), operator, p); err != nil {
			t.Fatal(err)
		}
	}
	make("device_types", store.Patch{"token": "boiler"})
	for i := range devices {
		make("devices", store.Patch{"token": fmt.Sprintf("d%d", i+1), "deviceTypeToken": "boiler"})
	}
	make("area_types", store.Patch{"token": "floor"})
	for _, area := range []string{"hall", "roof", "yard"} {
		make("areas", store.Patch{"token": area, "areaTypeToken": "floor"})
	}
	make("entity_relationship_types", store.Patch{"token": "stands-in", "tracked": true})
	make("entity_relationship_types", store.Patch{"token": "near", "tracked": false})
}

func (w *world) reportOf(device int, attributes string) *Arrival {
	a := w.arrival(device, `{"attributes":{`+attributes+`}}`)
	a.Reports = true
	return a
}

func relation(typ, targetType, target, more string) string {
	return fmt.Sprintf(`{"eventType":"NewRelationship","payload":{"relationshipType":%q,"targetType":%q,"target":%q}%s}`, typ, targetType, target, more)
}

func (w *world) stored(a *Arrival) {
	w.t.Helper()
	w.clock.advance(time.Second)
	if an := w.send(a); an.Outcome != Stored {
		w.t.Fatalf("%s: %+v", a.Body, an)
	}
}

// attributes are those of all devices, as text.
func attributesIn(t testing.TB, st store.Store) []string {
	t.Helper()
	return fixture.Rows(t, st, `SELECT entity_id, scope, key, value_type, coalesce(text_value, literal, number_value, 'null') FROM attributes ORDER BY entity_id, scope, key`)
}

func TestAReportSetsAndRemovesAttributes(t *testing.T) {
	t.Parallel()
	w := declared(t, 2)
	w.stored(w.reportOf(1, `"fw":"1.2","n":7,"x":7.5,"on":true,"cfg":{"a": [1]}`))
	w.stored(w.reportOf(2, `"fw":"1.2"`))
	w.apply()
	check := func(stage string, want ...string) {
		t.Helper()
		if got := attributesIn(t, w.db); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", stage, got, want)
		}
	}
	check("set", `1 CLIENT cfg JSON {"a":[1]}`, "1 CLIENT fw STRING 1.2", "1 CLIENT n LONG 7", "1 CLIENT on BOOLEAN 1", "1 CLIENT x DOUBLE 7.5", "2 CLIENT fw STRING 1.2")
	before := fixture.Rows(t, w.db, `SELECT key, updated_at FROM attributes WHERE key IN ('on', 'x') ORDER BY id`)
	w.stored(w.reportOf(1, `"fw":"1.3","n":null,"x":7.5,"on":true,"cfg":null,"gone":null,"new":"v"`))
	w.apply()
	check("changed", "1 CLIENT fw STRING 1.3", "1 CLIENT new STRING v", "1 CLIENT on BOOLEAN 1", "1 CLIENT x DOUBLE 7.5", "2 CLIENT fw STRING 1.2")
	if after := fixture.Rows(t, w.db, `SELECT key, updated_at FROM attributes WHERE key IN ('on', 'x') ORDER BY id`); !slices.Equal(before, after) {
		t.Errorf("what is equal was written again: %q, before %q", after, before)
	}
	w.stored(w.reportOf(1, ``))
	w.stored(w.reportOf(1, `"fw":"1.4"`))
	w.stored(w.reportOf(1, `"fw":5`))
	w.apply()
	check("the last arrival wins", "1 CLIENT fw LONG 5", "1 CLIENT new STRING v", "1 CLIENT on BOOLEAN 1", "1 CLIENT x DOUBLE 7.5", "2 CLIENT fw STRING 1.2")
	if rows := fixture.Rows(t, w.db, `SELECT actor FROM audit_events WHERE table_name = 'attributes'`); len(rows) != 0 {
		t.Errorf("the journal has %q", rows)
	}
	if n := w.ledger(); n[store.OutcomeReceived] != 6 || n[store.OutcomeStored] != 6 {
		t.Errorf("%v", n)
	}
	states, err := w.applier.DeviceStatesOf(t.Context(), 1, []int64{2})
	if d := states[2]; err != nil || d == nil || !d.HasActivity || d.ActivitySource != "mqtt1" {
		t.Errorf("a report is no activity: %+v, %v", d, err)
	}
	w.writeHead()
	if v := w.verifyDisk(); len(v.Wrongs) != 0 {
		t.Errorf("%s", wrongsOf(v))
	}
	if rows := fixture.Rows(t, w.db, `SELECT log_offset FROM caused_changes`); len(rows) != 0 {
		t.Errorf("the checkpoint left %q", rows)
	}
}

// What a device did not report stays, whatever its scope.
func TestAReportLeavesOtherScopesAlone(t *testing.T) {
	t.Parallel()
	w := declared(t, 1)
	for _, scope := range []string{registry.ScopeServer, registry.ScopeShared, registry.ScopeClient} {
		_, err := keptRegistry(w.db).Attributes.Set(t.Context(), operator, registry.AttributeSet{AttributeRef: registry.AttributeRef{EntityType: "device", Entity: "d1", Scope: scope, Key: "k"},
			Type: registry.ValueString, Value: new("by the API")})
		w.must(err)
	}
	w.stored(w.reportOf(1, `"k":null`))
	w.apply()
	if got, want := attributesIn(t, w.db), []string{"1 SERVER k STRING by the API", "1 SHARED k STRING by the API"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// deadReasons are the dead letters that there are: reason, device and detail.
func (w *world) deadReasons() []string {
	w.t.Helper()
	return fixture.Rows(w.t, w.db, `SELECT reason, subject, coalesce(detail, '') FROM dead_letters ORDER BY log_offset`)
}

// TestEachEndOfAReportIsCounted: a report ends in one of the ways that a message may end in, and its line of the ledger says which.
func TestEachEndOfAReportIsCounted(t *testing.T) {
	t.Parallel()
	w := declared(t, 2)
	w.stored(w.reportOf(1, `"a":1,"b":2,"c":3,"d":4`))
	w.stored(w.reportOf(1, `"e":5,"f":6`)) // one too many: neither is set
	w.stored(w.reportOf(1, `"a":null,"e":5,"f":6`))
	w.stored(w.reportOf(7, `"a":1`))
	foreign := w.reportOf(1, `"a":1`)
	foreign.Conn.DeviceID = 99
	w.stored(foreign)
	repeat := func(dup bool) *Arrival { a := w.reportOf(2, `"z":1`); a.PacketID, a.Dup = 4, dup; return a }
	w.stored(repeat(false))
	w.stored(repeat(true))
	old := w.reportOf(1, `"a":1,"a":2`)
	old.CannotRefuse = true
	w.stored(old) // 3.1.1: acknowledged, and a dead letter
	for _, body := range []string{`"a":1,"a":2`, `"a":"` + strings.Repeat("x", 16<<10+1) + `"`} {
		if an := w.send(w.reportOf(1, body)); an.Outcome != Refused || an.Reason != ReasonUndecodable || an.Text == "" {
			t.Errorf("%.40s: %+v", body, an)
		}
	}
	w.stored(&Arrival{Transport: TransportHTTP, Source: "http1", Tenant: "acme", Topic: "d1", Reports: true, Body: []byte(`{"attributes":{"b":9}}`),
		Credential: Credential{Type: "ACCESS_TOKEN", ID: "token-1"}})
	w.stored(&Arrival{Transport: TransportHTTP, Source: "http1", Tenant: "acme", Topic: "d1", Reports: true, Body: []byte(`{"attributes":{"b":9}}`)})
	w.ceiling.left = 3
	w.stored(w.reportOf(1, `"b":1,"c":1,"d":1`)) // takes a reading for each attribute
	for cannotRefuse, want := range map[bool]Outcome{false: Refused, true: Dropped} {
		a := w.reportOf(1, `"b":2`)
		a.CannotRefuse = cannotRefuse
		if an := w.send(a); an.Outcome != want || an.Reason != ReasonCeiling {
			t.Errorf("over the ceiling: %+v, want %v", an, want)
		}
	}
	w.apply()
	if got, want := attributesIn(t, w.db), []string{"1 CLIENT b LONG 1", "1 CLIENT c LONG 1", "1 CLIENT d LONG 1", "1 CLIENT e LONG 5", "1 CLIENT f LONG 6", "2 CLIENT z LONG 1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := w.deadReasons(), []string{"over-limit d1 device report e=5 f=6", "unknown-device d7 device report a=1", "bad-credential d1 device report a=1", "undecodable d1 ",
		"bad-credential d1 device report b=9"}; !slices.Equal(got, want) {
		t.Errorf("dead letters %q, want %q", got, want)
	}
	reasons := map[string]int64{}
	lines, err := w.applier.Ledger().Lines(t.Context(), store.LedgerFilter{})
	w.must(err)
	for _, l := range lines {
		for _, r := range l.Reasons {
			reasons[string(r.Outcome)+" "+r.Reason] += r.Count.Messages
		}
	}
	w.ledger() // balances
	for k, want := range map[string]int64{"stored device-report": 5, "dead letter over-limit": 1, "dead letter unknown-device": 1, "dead letter bad-credential": 2, "dead letter undecodable": 1,
		"refused undecodable": 2, "refused ceiling": 1, "dropped ceiling": 1} {
		if reasons[k] != want {
			t.Errorf("%s: %d, want %d; all: %v", k, reasons[k], want, reasons)
		}
	}
	w.writeHead()
	if v := w.verifyDisk(); len(v.Wrongs) != 0 {
		t.Errorf("%s", wrongsOf(v))
	}
}

// A report that a transport decoded itself ends as one in JSON does.
func TestATransportMayDecodeAReport(t *testing.T) {
	t.Parallel()
	w := declared(t, 1)
	a := w.arrival(1, "bytes of its own")
	a.Report = &model.Report{Attributes: []model.Reported{{Key: "fw", Type: model.ReportedString, Value: "2"}}}
	w.stored(a)
	bad := w.arrival(1, "bytes of its own")
	bad.Report = &model.Report{Attributes: []model.Reported{{Key: "fw", Type: model.ReportedLong, Value: "2.5"}}}
	if an := w.send(bad); an.Outcome != Refused || an.Reason != ReasonUndecodable {
		t.Errorf("%+v", an)
	}
	w.apply()
	if got := attributesIn(t, w.db); !slices.Equal(got, []string{"1 CLIENT fw STRING 2"}) {
		t.Errorf("%q", got)
	}
}

// A dead letter that holds a report is sent again as a report.
func TestAReportIsSentAgain(t *testing.T) {
	t.Parallel()
	w := declared(t, 1)
	w.stored(w.reportOf(1, `"a":1,"b":2,"c":3,"d":4,"e":5,"f":6`))
	w.stored(w.reportOf(1, `"a":1`))
	w.apply()
	var d *store.DeadLetter
	w.must(w.db.Read(t.Context(), func(tx store.Tx) error {
		listed, err := store.DeadLetters(tx, store.DeadLetterFilter{Limit: 10})
		if err != nil || len(listed) != 1 {
			return err
		}
		letters, err := store.OpenDeadLetters(tx, []int64{listed[0].ID})
		if err == nil && len(letters) == 1 {
			d = &letters[0]
		}
		return err
	}))
	if d == nil {
		t.Fatal("there is no dead letter")
	}
	if an, err := w.intake.Resend(t.Context(), d); err != nil || an.Outcome != Stored {
		t.Errorf("%+v, %v", an, err)
	}
	w.apply()
	if n := w.ledger(); n[store.OutcomeDeadLetter] != 2 || n[store.OutcomeStored] != 1 {
		t.Errorf("%v", n)
	}
}

// TestAReplayRepeatsNoChange: what the API has changed since stays, no row is written twice, and each message has the outcome of the first time.
func TestAReplayRepeatsNoChange(t *testing.T) {
	t.Parallel()
	w := declared(t, 2)
	w.stored(w.reportOf(1, `"fw":"1","n":1`))
	w.stored(w.arrival(1, relation("stands-in", "area", "hall", "")))
	w.stored(w.reportOf(2, `"a":1,"b":1,"c":1,"d":1,"e":1,"f":1`))
	w.stored(w.arrival(1, temp(1)))
	w.apply()
	r := keptRegistry(w.db)
	_, err := r.Attributes.Delete(t.Context(), operator, registry.AttributeRef{EntityType: "device", Entity: "d1", Scope: "CLIENT", Key: "fw"})
	w.must(err)
	_, err = r.Relationships.RemoveAll(t.Context(), operator, []string{w.relationships()[0]})
	w.must(err)
	for _, key := range []string{"a", "b"} { // what was refused would now fit
		w.stored(w.reportOf(1, `"`+key+`":null`))
	}
	rows := func() []string {
		return append(fixture.Rows(t, w.db, `SELECT * FROM attributes ORDER BY id`), fixture.Rows(t, w.db, `SELECT * FROM entity_relationships ORDER BY id`)...)
	}
	before, ends := rows(), w.ledger()
	w.restart()
	w.must(w.control.Drain(t.Context()))
	w.apply()
	if got := rows(); !slices.Equal(got, before) {
		t.Errorf("the replay made %q of %q", got, before)
	}
	ends[store.OutcomeStored] += ends[store.OutcomeWaiting]
	delete(ends, store.OutcomeWaiting)
	if got := w.ledger(); got[store.OutcomeDeadLetter] != ends[store.OutcomeDeadLetter] || got[store.OutcomeStored] != ends[store.OutcomeStored] {
		t.Errorf("the ledger has %v, want %v", got, ends)
	}
	if got, want := w.borne(w.applier, 1, series.Query{}), []string{"0: area/hall", "2: area/hall"}; !slices.Equal(got, want) {
		t.Errorf("events bear %q, want %q", got, want)
	}
	w.stored(w.arrival(1, temp(2)))
	w.apply()
	if got, want := w.borne(w.applier, 1, series.Query{}), []string{"0: area/hall", "2: area/hall", "2: "}; !slices.Equal(got, want) {
		t.Errorf("events bear %q, want %q", got, want)
	}
}

// relationships are the tokens of all.
func (w *world) relationships() []string {
	w.t.Helper()
	return fixture.Rows(w.t, w.db, `SELECT token FROM entity_relationships ORDER BY id`)
}

func TestANewRelationshipFollowsTheRulesOfAllOthers(t *testing.T) {
	t.Parallel()
	w := declared(t, 2)
	w.stored(w.arrival(1, temp(0)))
	w.stored(w.arrival(1, relation("stands-in", "area", "hall", `,"altId":"r1","occurredTime":"2026-03-01T11:00:00Z"`)))
	w.stored(w.arrival(1, temp(1)))
	w.stored(w.arrival(1, relation("stands-in", "area", "hall", `,"altId":"r1","occurredTime":"2026-03-01T11:00:00Z"`))) // the same event
	w.stored(w.arrival(1, relation("stands-in", "area", "hall", "")))                                                    // another, of what there is
	w.stored(w.arrival(1, relation("near", "device", "d2", "")))
	w.stored(w.arrival(1, relation("assigned", "area", "roof", ""))) // a type that is made by its first use
	w.stored(w.arrival(1, temp(2)))
	w.stored(w.arrival(1, relation("stands-in", "area", "yard", ""))) // a third that is tracked
	w.stored(w.arrival(1, relation("unknown", "area", "hall", "")))
	w.stored(w.arrival(1, relation("stands-in", "area", "unknown", "")))
	w.stored(w.arrival(1, relation("near", "area", "hall", "")))
	w.stored(w.arrival(1, relation("near", "area", "roof", ""))) // a fifth
	w.apply()
	if got, want := fixture.Rows(t, w.db, `SELECT t.token, r.source_token, r.target_type, r.target_token FROM entity_relationships r JOIN entity_relationship_types t ON t.id = r.type_id ORDER BY r.id`),
		[]string{"stands-in d1 area hall", "near d1 device d2", "assigned d1 area roof", "near d1 area hall"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := w.deadReasons(), []string{`over-limit d1 NewRelationship stands-in area "yard"`, `bad-relationship d1 NewRelationship unknown area "hall"`,
		`bad-relationship d1 NewRelationship stands-in area "unknown"`, `over-limit d1 NewRelationship near area "roof"`}; !slices.Equal(got, want) {
		t.Errorf("dead letters %q, want %q", got, want)
	}
	check := func(stage string) {
		t.Helper()
		if got, want := w.borne(w.applier, 1, series.Query{}), []string{"0: area/hall", "2: ", "2: area/hall", "0: area/hall", "0: area/hall", "0: area/hall area/roof", "2: area/hall area/roof", "0: area/hall area/roof"}; !slices.Equal(got, want) {
			t.Errorf("%s: events bear %q, want %q", stage, got, want)
		}
	}
	check("applied")
	if n := w.ledger(); n[store.OutcomeDuplicate] != 1 || n[store.OutcomeDeadLetter] != 4 || n[store.OutcomeStored] != 8 {
		t.Errorf("%v", n)
	}
	if got := fixture.Rows(t, w.db, `SELECT DISTINCT actor FROM audit_events WHERE table_name = 'entity_relationships'`); !slices.Equal(got, []string{"device:d1"}) {
		t.Errorf("the journal names %q", got)
	}
	w.writeHead()
	check("written")
	if v := w.verifyDisk(); len(v.Wrongs) != 0 {
		t.Errorf("%s", wrongsOf(v))
	}
	w.restart()
	check("after a start")
}

// TestAChangeOnItsWayDoesNotUndoOneThatAMessageCauses: the API removes one anchor, and before its record is applied a message makes
// another one. The record was made without it.
func TestAChangeOnItsWayDoesNotUndoOneThatAMessageCauses(t *testing.T) {
	t.Parallel()
	w := declared(t, 1)
	w.stored(w.arrival(1, relation("stands-in", "area", "hall", "")))
	w.apply()
	w.stored(w.arrival(1, relation("stands-in", "area", "roof", "")))
	_, err := keptRegistry(w.db).Relationships.RemoveAll(t.Context(), operator, w.relationships())
	w.must(err)
	w.must(w.control.Drain(t.Context())) // behind the message
	w.apply()
	w.must(w.control.Drain(t.Context()))
	w.apply()
	w.stored(w.arrival(1, temp(1)))
	w.apply()
	for range 2 {
		if got, want := w.borne(w.applier, 1, series.Query{}), []string{"0: area/hall", "0: area/roof", "2: area/roof"}; !slices.Equal(got, want) {
			t.Errorf("events bear %q, want %q", got, want)
		}
		w.restart()
		w.apply()
	}
}

// weakStore knows which change of the registry was last numbered by a commit that a power cut may take back.
type weakStore struct {
	store.Store
	weak uint64
}

func (s *weakStore) Write(ctx context.Context, d store.Durability, fn func(store.Tx) error) error {
	var before, after uint64
	err := s.Store.Write(ctx, d, func(tx store.Tx) (err error) {
		if before, err = store.ControlSequence(tx); err != nil {
			return err
		}
		if err := fn(tx); err != nil {
			return err
		}
		after, err = store.ControlSequence(tx)
		return err
	})
	switch {
	case err != nil:
	case d == store.Durable:
		s.weak = 0
	case after > before:
		s.weak = after
	}
	return err
}

// strictLog refuses a change of the registry whose number may be taken back.
type strictLog struct {
	spool.Log
	store *weakStore
	weak  int // changes that were appended too early
}

func (l *strictLog) Append(ctx context.Context, entries ...spool.Entry) error {
	for _, e := range entries {
		if r, ok := e.Value.(*model.Record); ok && r.Control != nil && l.store.weak > 0 && r.Control.Sequence >= l.store.weak {
			l.weak++
		}
	}
	return l.Log.Append(ctx, entries...)
}

// TestTheLogHoldsNoChangeThatAPowerCutTakesBackFromTheStore: a change that a message causes is committed with results; where its rows
// go through the log as well, they are durable before. So is what a process left that was killed.
func TestTheLogHoldsNoChangeThatAPowerCutTakesBackFromTheStore(t *testing.T) {
	t.Parallel()
	w := declared(t, 1)
	w.stored(w.arrival(1, relation("stands-in", "area", "hall", "")))
	w.apply()
	st := &weakStore{Store: w.db}
	log := &strictLog{Log: w.log, store: st}
	w.applier = w.newApplier(log, st)
	w.control = w.applier.deps.Controller
	drain := func(weakly bool) {
		t.Helper()
		if (st.weak > 0) != weakly {
			t.Fatalf("change %d is not durable", st.weak)
		}
		w.must(w.control.Drain(t.Context()))
		if log.weak > 0 {
			t.Fatal("the log holds a change that a power cut takes back from the store")
		}
	}
	caused := func() {
		t.Helper()
		w.stored(w.arrival(1, relation("stands-in", "area", "roof", "")))
		_, err := keptRegistry(st).Relationships.RemoveAll(t.Context(), operator, w.relationships())
		w.must(err)
		drain(false) // behind the message
		w.apply()
	}
	caused()
	drain(true)
	w.apply()
	caused()
	w.control = NewController(st, log, w.time.Stamp, slog.New(slog.DiscardHandler)) // as after a kill
	drain(true)
	w.apply()
	drain(false)
}

// TestDemotionsAreInTheLog: a replay finds them, the active flag and the times stay, and a claim of another session loses.
func TestDemotionsAreInTheLog(t *testing.T) {
	t.Parallel()
	w := declared(t, 3)
	claim := func(device int, session uint64, s model.PresenceState) {
		w.clock.advance(time.Second)
		w.claim(device, s, session)
	}
	claim(1, 5, model.Connected)
	claim(2, 6, model.Connected)
	claim(2, 6, model.Disconnected)
	claim(3, 7, model.Connected)
	w.apply()
	before, err := w.applier.DeviceStates(t.Context(), 1)
	w.must(err)
	w.clock.advance(time.Second)
	var all []presence.Asserted
	for i, session := range []uint64{5, 6, 8} { // the third has connected again since
		all = append(all, presence.Asserted{Binding: *w.arrival(i+1, "").Conn, Session: session})
	}
	last, refused := w.intake.Demote(t.Context(), "mqtt1", all, "gone for good")
	if refused != nil || last == 0 {
		t.Fatalf("%d, %+v", last, refused)
	}
	w.apply()
	check := func(stage string) {
		t.Helper()
		after, err := w.applier.DeviceStates(t.Context(), 1)
		w.must(err)
		for i, d := range after {
			want := *before[i]
			want.Asserted, want.CreatedAt, want.UpdatedAt = i == 2, d.CreatedAt, d.UpdatedAt
			if *d != want {
				t.Errorf("%s: %+v, want %+v", stage, *d, want)
			}
		}
		if got := fixture.Rows(t, w.db, `SELECT device_token, reason, session FROM row_events WHERE type = ? AND state = ? ORDER BY log_offset`, int64(model.StateChange), int64(model.Demoted)); !slices.Equal(got, []string{"d1 gone for good 5", "d2 gone for good 6"}) {
			t.Errorf("%s: events %q", stage, got)
		}
	}
	check("applied")
	w.restart()
	w.apply()
	check("after a replay")
	w.ceiling.left = 1
	if _, refused := w.intake.Demote(t.Context(), "mqtt1", all, "again"); refused == nil || refused.Reason != ReasonCeiling || refused.RetryAfter == 0 {
		t.Errorf("over the ceiling: %+v", refused)
	}
}

// reporting sends reports, relationships and readings as devices at random would.
func (w *world) reporting(seed uint64, n int) {
	w.t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	for range n {
		w.clock.advance(time.Duration(r.IntN(400)) * time.Millisecond)
		device := 1 + r.IntN(4)
		key := func() string { return fmt.Sprintf(`"k%d":`, r.IntN(8)) }
		a := w.arrival(device, temp(float64(r.IntN(90))))
		switch r.IntN(5) {
		case 0:
			a = w.reportOf(device, key()+[]string{"1", "null", `"x"`, "2.5", "[1]"}[r.IntN(5)])
		case 1:
			a = w.reportOf(device, `"p":`+fmt.Sprint(r.IntN(3))+`,"q":null,"r":true`)
		case 2:
			a = w.arrival(device, relation([]string{"stands-in", "near", "assigned", "unknown"}[r.IntN(4)], "area", []string{"hall", "roof", "yard", "moon"}[r.IntN(4)], ""))
		}
		w.send(a)
	}
}

// causedRows are all that the messages leave, beside the tables of results.
func causedRows(t testing.TB, db store.Store) map[string][]string {
	t.Helper()
	all := dump(t, db)
	for _, table := range []string{"attributes", "entity_relationships", "entity_relationship_types", "audit_events", "row_counts"} {
		all[table] = tableRows(t, db, table, `SELECT * FROM `+table)
	}
	return all
}

// TestReportsGiveTheSameHoweverTheLogWasCut applies one log in one go, again with kills at random places, and again into another store
// record by record.
func TestReportsGiveTheSameHoweverTheLogWasCut(t *testing.T) {
	t.Parallel()
	for seed := range draws.Seeds(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := declared(t, 4, smallHeads)
			release := w.log.HoldTrim()
			defer release()
			w.reporting(seed, 200)
			other := newWorldStore(t, w, 4)
			w.apply()
			w.finishHead(w.applier)
			want := causedRows(t, w.db)
			for _, table := range []string{"attributes", "entity_relationships", "dead_letters", "row_events", "anchor_sets", "view_rows"} {
				if len(want[table]) == 0 {
					t.Errorf("the messages left nothing in %s", table)
				}
			}
			r := rand.New(rand.NewPCG(seed, 8))
			log, done := w.recutLog(3)
			defer done()
			a := w.newApplier(log, other)
			for {
				reader, err := log.Reader(a.Applied() + 1)
				w.must(err)
				for range 1 + r.IntN(25) {
					b, err := reader.TryNext()
					w.must(err)
					if b == nil {
						break
					}
					w.must(a.apply(context.Background(), b))
				}
				reader.Close()
				if _, last := log.Bounds(); a.Applied() >= last {
					break
				}
				if r.IntN(3) == 0 { // or no life of a slow process would ever get further than the one before
					w.must(a.checkpoints.await())
				}
				a.checkpoints.end() // the process goes
				_ = a.checkpoints.await()
				a = w.newApplier(log, other)
			}
			w.finishHead(a)
			compareDumps(t, causedRows(t, other), want)
		})
	}
}

// newWorldStore is another store with the same entities.
func newWorldStore(t testing.TB, w *world, devices int) store.Store {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "weir.db"), sqlite.Options{Clock: func() time.Time { return w.clock.stamp().Wall.Time() }})
	w.must(err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = store.Mutate(context.Background(), db, nil, time.Now, func(c *store.Change) error {
		c.View(row(model.ViewTenant, "acme", model.TenantView{V: 1, ID: 1, Enabled: true}))
		return nil
	})
	w.must(err)
	declare(t, db, devices)
	w.must(db.Write(t.Context(), store.Results, func(tx store.Tx) error { // they are in the log
		_, err := tx.Exec(`DELETE FROM control`)
		return err
	}))
	return db
}

// recutLog is the log of the world in batches of so many records.
func (w *world) recutLog(each int) (*bolt.Log, func()) {
	w.t.Helper()
	records, re := w.records()
	log, err := bolt.Open(filepath.Join(w.t.TempDir(), "spool"), bolt.Options{Capacity: spool.Capacity{MaxBytes: 64 << 20}, Meta: re})
	w.must(err)
	for i, rec := range records {
		w.must(log.Append(context.Background(), spool.Entry{Data: rec.Data, Done: func(model.Offset, error) {}}))
		if i%each == 0 {
			w.must(log.Sync(context.Background()))
		}
	}
	w.must(log.Sync(context.Background()))
	return log, func() { _ = log.Close() }
}

// fullAtFirst is a registry on a disk that is full for some changes.
type fullAtFirst struct {
	Registrar
	left *atomic.Int32
}

func (r fullAtFirst) Report(ctx context.Context, by *model.Principal, device int64, report *model.Report) error {
	if r.left.Add(-1) >= 0 {
		return &model.Error{Code: model.CodeUnavailable, Err: store.ErrFull, Message: "unavailable: the disk is full"}
	}
	return r.Registrar.Report(ctx, by, device, report)
}

// A report that a full disk does not take is no dead letter: it is applied once there is room.
func TestAReportWaitsForRoomOnTheDisk(t *testing.T) {
	t.Parallel()
	var left atomic.Int32
	left.Store(3)
	w := newWorld(t, func(w *world) {
		w.registrar = func(st store.Store) Registrar { return fullAtFirst{keptRegistry(st), &left} }
	})
	w.change(row(model.ViewTenant, "acme", model.TenantView{V: 1, ID: 1, Enabled: true}))
	declare(t, w.db, 1)
	w.must(w.control.Drain(t.Context()))
	w.stored(w.reportOf(1, `"fw":"1.2"`))
	w.apply()
	if got := attributesIn(t, w.db); len(got) != 1 || got[0] != "1 CLIENT fw STRING 1.2" {
		t.Errorf("%q", got)
	}
	if n := w.ledger(); n[store.OutcomeStored] != 1 || left.Load() >= 0 {
		t.Errorf("%v, %d refusals left", n, left.Load())
	}
}

// besides is a projection of which each report has an edge of its own.
type besides struct{ ProjectionBase }

func (besides) Record(_ context.Context, e *Event, out *Effects) error {
	if e.Record != nil && e.Record.Kind == model.KindDeviceReport && e.Change == nil {
		out.Edge(model.Edge{ID: model.EdgeID{Epoch: e.At.Epoch, Offset: e.At.Offset, Rule: "boiler/besides", Key: "d1"}, TenantID: 1, Tenant: "acme", Profile: "boiler",
			Rule: "besides", Series: "d1", Signal: model.Raised, Occurred: e.At.Received.Micros(), Received: e.At.Received})
	}
	return nil
}

// TestATimerThatFiresBeforeAReport: the change that a report causes is committed before the record's other results, and takes none of them
// with it: edges of one offset would be known before the last of them is there.
func TestATimerThatFiresBeforeAReport(t *testing.T) {
	t.Parallel()
	w := declared(t, 1, func(w *world) { w.projections = func() []Projection { return []Projection{besides{}} } })
	absence := doing(model.RuleView{Token: "silent", Definition: `{"name":"n","type":"absence","timeout":"30s","lateness":"0s","severity":"major"}`}, `{"type":"raiseAlarm","raiseAlarm":{}}`)
	w.change(row(model.ViewDeviceType, "1", model.DeviceTypeView{V: 1, Profile: 20}), w.profile(1, absence))
	w.stored(w.arrival(1, temp(1)))
	w.clock.advance(time.Minute)
	w.stored(w.reportOf(1, `"serial":"a"`))
	w.apply()
	var got []string
	for _, e := range w.edges {
		got = append(got, e.Rule)
	}
	if !slices.Equal(got, []string{"silent", "besides"}) || len(detections(t, w.db)) != 2 {
		t.Errorf("edges %v, kept %q", got, detections(t, w.db))
	}
	if n := len(fixture.Rows(t, w.db, `SELECT token FROM alarms`)); n != 1 {
		t.Errorf("%d alarms", n)
	}
	if n := len(attributesIn(t, w.db)); n != 1 {
		t.Errorf("%d attributes", n)
	}
	w.restart() // and again from the start of the log
	w.apply()
	if n := len(detections(t, w.db)); n != 2 {
		t.Errorf("%d detections after a replay", n)
	}
}
