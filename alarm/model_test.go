package alarm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	"weir/store/alarms"
	"weir/store/sqlite"
)

// naive is the fold as the contract says it, one alarm at a time, without a database.
type naive struct {
	alarms map[string]*naiveAlarm // by device and key
	said   []string
}

type naiveAlarm struct {
	active, acknowledged bool
	severity             string
	raised               model.Micros
	by                   map[string]string // severity by rule
	events               int
}

func (n *naive) at(device int64, key string) *naiveAlarm {
	id := fmt.Sprint(device, "/", key)
	if n.alarms[id] == nil {
		n.alarms[id] = &naiveAlarm{by: map[string]string{}}
	}
	return n.alarms[id]
}

func (n *naive) say(device int64, key, what string, a *naiveAlarm) {
	a.events++
	n.said = append(n.said, fmt.Sprintf("%d %s %s %s #%d", device, key, what, a.severity, a.events))
}

func worst(by map[string]string) string {
	for _, s := range []string{"CRITICAL", "MAJOR", "MINOR", "WARNING"} {
		for _, have := range by {
			if have == s {
				return s
			}
		}
	}
	return "INDETERMINATE"
}

var naiveOrder = []string{"INDETERMINATE", "WARNING", "MINOR", "MAJOR", "CRITICAL"}

func (n *naive) weigh(device int64, key string, a *naiveAlarm) {
	before := a.severity
	a.severity = worst(a.by)
	switch is, was := slices.Index(naiveOrder, a.severity), slices.Index(naiveOrder, before); {
	case is > was:
		n.say(device, key, "ESCALATED", a)
	case is < was:
		n.say(device, key, "DEESCALATED", a)
	}
}

func (n *naive) raise(device int64, key, rule, severity string, when model.Micros) {
	a := n.at(device, key)
	a.by[rule] = severity
	if a.active {
		n.weigh(device, key, a)
		return
	}
	a.active, a.acknowledged, a.raised, a.severity = true, false, when, worst(a.by)
	n.say(device, key, "RAISED", a)
}

func (n *naive) drop(device int64, key, rule string) {
	a := n.at(device, key)
	if _, ok := a.by[rule]; !ok {
		return
	}
	delete(a.by, rule)
	switch {
	case !a.active:
	case len(a.by) == 0:
		a.active = false
		n.say(device, key, "CLEARED", a)
	default:
		n.weigh(device, key, a)
	}
}

// TestRandomContributionsAgreeWithThePlainModel: contributions, operators and removals at random, cut into transactions at
// random, some of which fail and are tried again; in the end rows, events and the counts of the bound agree with a fold that is
// written down plainly.
func TestRandomContributionsAgreeWithThePlainModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { t.Parallel(); agrees(t, seed) })
	}
}

func agrees(t *testing.T, seed uint64) {
	w := newWorld(t, TenantSettings{})
	r := rand.New(rand.NewPCG(seed, 3))
	plain := &naive{alarms: map[string]*naiveAlarm{}}
	keys, ruleNames := []string{"a", "b", "c"}, []string{"p/1", "p/2", "q/1"}
	severities := []string{"CRITICAL", "MAJOR", "MINOR", "WARNING", "INDETERMINATE", "UNHEARD"}
	var waiting []model.Contribution
	for step := range 400 {
		c := model.Contribution{TenantID: 1, DeviceID: int64(1 + r.IntN(3)), Rule: ruleNames[r.IntN(3)], Severity: severities[r.IntN(6)],
			Occurred: model.Micros(r.IntN(1000)), Received: model.Nanos(step+1) * 1e6, Edge: model.EdgeID{Epoch: 1, Offset: model.Offset(step + 1)}}
		c.Device = fmt.Sprint("d", c.DeviceID)
		switch k := r.IntN(20); {
		case k < 9:
			c.Kind = model.ContributeRaise
			for _, key := range keys {
				if r.IntN(2) == 0 {
					c.Keys = append(c.Keys, model.AlarmKey{Key: key})
					plain.raise(c.DeviceID, key, c.Rule, c.Severity, c.Occurred)
				}
			}
		case k < 16:
			c.Kind = model.ContributeResolve
			for _, key := range w.order(c.DeviceID, waiting) {
				plain.drop(c.DeviceID, key, c.Rule)
			}
		case k < 18: // an operator, after what waits
			w.fold(r, waiting)
			waiting = nil
			w.operate(t, r, plain)
			continue
		case k == 18:
			c.Kind = model.ContributeGone
			for _, key := range w.order(c.DeviceID, waiting) {
				if a := plain.at(c.DeviceID, key); a.active {
					a.active = false
					plain.say(c.DeviceID, key, "CLEARED", a)
				}
			}
			for _, key := range keys {
				delete(plain.alarms, fmt.Sprint(c.DeviceID, "/", key))
			}
		default:
			w.fold(r, waiting)
			waiting = nil
			continue
		}
		waiting = append(waiting, c)
	}
	w.fold(r, waiting)
	if !slices.Equal(w.said, plain.said) {
		for i := range w.said {
			if i >= len(plain.said) || w.said[i] != plain.said[i] {
				t.Fatalf("event %d: %s, want %v", i, w.said[i], plain.said[min(i, len(plain.said)-1)])
			}
		}
		t.Fatalf("%d events, want %d", len(w.said), len(plain.said))
	}
	got := map[string]string{}
	for _, a := range w.all() {
		got[fmt.Sprint(a.DeviceID, "/", a.Key)] = fmt.Sprint(a.State == model.AlarmActive, a.AcknowledgedAt != nil, a.Severity, a.RaisedAt, a.Moves)
	}
	want := map[string]string{}
	for id, a := range plain.alarms {
		if a.events > 0 {
			want[id] = fmt.Sprint(a.active, a.acknowledged, a.severity, a.raised, a.events)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("rows %v\nwant %v", got, want)
	}
	if n := w.counted(); n != int64(len(got)) {
		t.Errorf("%d rows are counted, there are %d", n, len(got))
	}
}

// world is a database with alarms.
type world struct {
	*Alarms
	t    testing.TB
	db   store.Store
	said []string
}

func newWorld(t testing.TB, s TenantSettings) *world {
	db := fixture.Store(t)
	w := &world{t: t, db: db}
	w.Alarms = New(s, Deps{Store: db, Writer: store.Direct{Store: db}})
	return w
}

func (w *world) hears(events []model.AlarmEvent) {
	for _, e := range events {
		w.said = append(w.said, fmt.Sprintf("%d %s %s %s #%d", e.DeviceID, e.Key, e.Move, e.Severity, e.Number))
	}
}

// fold folds contributions in transactions that are cut at random; a part of them is tried twice.
func (w *world) fold(r *rand.Rand, cs []model.Contribution) {
	w.t.Helper()
	for len(cs) > 0 {
		n := 1 + r.IntN(len(cs))
		part := cs[:n]
		cs = cs[n:]
		fails := r.IntN(4) == 0
		for attempt := 0; ; attempt++ {
			var events []model.AlarmEvent
			err := w.db.Write(context.Background(), store.Results, func(tx store.Tx) (err error) {
				if events, err = w.Fold(tx, part); err == nil && fails && attempt == 0 {
					err = errTried
				}
				return err
			})
			if errors.Is(err, errTried) {
				continue
			}
			if err != nil {
				w.t.Fatal(err)
			}
			w.hears(events)
			break
		}
	}
}

var errTried = errors.New("the transaction fails")

// order is the order in which the alarms of a device were made, those of waiting contributions included.
func (w *world) order(device int64, waiting []model.Contribution) (keys []string) {
	for _, a := range w.all() {
		if a.DeviceID == device {
			keys = append(keys, a.Key)
		}
	}
	slices.Reverse(keys) // the list is newest first; all of one instant have the order of their tokens, so ids decide
	byID := map[string]int64{}
	for _, a := range w.all() {
		if a.DeviceID == device {
			byID[a.Key] = a.ID
		}
	}
	slices.SortFunc(keys, func(a, b string) int { return int(byID[a] - byID[b]) })
	for _, c := range waiting {
		switch {
		case c.DeviceID != device:
		case c.Kind == model.ContributeGone:
			keys = nil
		case c.Kind == model.ContributeRaise:
			for _, k := range c.Keys {
				if !slices.Contains(keys, k.Key) {
					keys = append(keys, k.Key)
				}
			}
		}
	}
	return keys
}

func (w *world) all() (found []*model.Alarm) {
	w.t.Helper()
	found, err := w.Find(context.Background(), &model.Principal{TenantID: 1}, &alarms.Filter{})
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

func (w *world) counted() (n int64) {
	w.t.Helper()
	if err := w.db.Write(context.Background(), store.Results, func(tx store.Tx) (err error) {
		n, err = store.AddRows(tx, 1, "alarms", 0)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// operate acknowledges or clears an alarm at random, in both models.
func (w *world) operate(t *testing.T, r *rand.Rand, plain *naive) {
	all := w.all()
	if len(all) == 0 {
		return
	}
	x := all[r.IntN(len(all))]
	a := plain.at(x.DeviceID, x.Key)
	by, tokens := &model.Principal{TenantID: 1, Subject: "ann"}, []string{x.Token, x.Token, "nobody"}
	sub := w.Events.Subscribe(nil, 10)
	defer sub.Close()
	do := w.Acknowledge
	if r.IntN(2) == 0 {
		do = w.Clear
		if a.active {
			a.active = false
			plain.say(x.DeviceID, x.Key, "CLEARED", a)
		}
	} else if !a.acknowledged {
		a.acknowledged = true
		plain.say(x.DeviceID, x.Key, "ACKNOWLEDGED", a)
	}
	done, unknown, err := do(context.Background(), by, tokens)
	if err != nil || len(done) != 1 || !slices.Equal(unknown, []string{"nobody"}) {
		t.Fatalf("%v, %v, %v", done, unknown, err)
	}
	if want := len(plain.said) - len(w.said); want > 0 {
		e, err := sub.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.hears([]model.AlarmEvent{e})
	}
}

func contribution(kind model.ContributionKind, device int64, offset model.Offset, keys ...string) model.Contribution {
	c := model.Contribution{Kind: kind, TenantID: 1, DeviceID: device, Device: fmt.Sprint("d", device), Rule: "p/r", Severity: "MAJOR",
		Edge: model.EdgeID{Epoch: 1, Offset: offset}, Occurred: model.Micros(offset), Received: model.Nanos(offset) * 1000}
	for _, k := range keys {
		c.Keys = append(c.Keys, model.AlarmKey{Key: k})
	}
	return c
}

// TestAnAlarmThatFlapsKeepsItsNewestEvents: however it was cut.
func TestAnAlarmThatFlapsKeepsItsNewestEvents(t *testing.T) {
	t.Parallel()
	for _, cut := range []int{1, 7, 2 * maxEvents, 5 * maxEvents} {
		w := newWorld(t, TenantSettings{})
		var cs []model.Contribution
		for i := range 5 * maxEvents {
			kind, keys := model.ContributeRaise, []string{"a"}
			if i%2 == 1 {
				kind, keys = model.ContributeResolve, nil
			}
			cs = append(cs, contribution(kind, 1, model.Offset(i+1), keys...))
		}
		if cut == 1 {
			cs = cs[:2*maxEvents]
		}
		for part := range slices.Chunk(cs, cut) {
			if err := w.db.Write(t.Context(), store.Results, func(tx store.Tx) error { _, err := w.Fold(tx, part); return err }); err != nil {
				t.Fatal(err)
			}
		}
		a := w.all()[0]
		events, total, err := w.History(t.Context(), &model.Principal{TenantID: 1}, a.Token, store.Page{Size: 1})
		if err != nil || total != maxEvents || a.Moves != int64(len(cs)) || events[0].Number != a.Moves || events[0].Move != model.AlarmWasCleared {
			t.Errorf("cut into %d: %d events of %d, %+v, %v", cut, total, a.Moves, events, err)
		}
	}
}

func TestAFullTenantMakesRoomOfWhatIsCleared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, TenantSettings{AlarmsPerTenant: 2})
	r := rand.New(rand.NewPCG(1, 1))
	w.fold(r, []model.Contribution{contribution(model.ContributeRaise, 1, 1, "a"), contribution(model.ContributeRaise, 2, 2, "b"),
		contribution(model.ContributeRaise, 3, 3, "c")})
	if want := []string{"1 a RAISED MAJOR #1", "2 b RAISED MAJOR #1"}; !slices.Equal(w.said, want) {
		t.Errorf("%q, want %q", w.said, want)
	}
	if got := w.Refused(); got.Alarms != 1 || got.TenantID != 1 || got.At == 0 {
		t.Errorf("refused are %+v", got)
	}
	w.said = nil
	w.fold(r, []model.Contribution{contribution(model.ContributeResolve, 2, 4), contribution(model.ContributeResolve, 1, 5),
		contribution(model.ContributeRaise, 3, 6, "c"), contribution(model.ContributeRaise, 2, 7, "b")})
	if want := []string{"2 b CLEARED MAJOR #2", "1 a CLEARED MAJOR #2", "3 c RAISED MAJOR #1", "2 b RAISED MAJOR #1"}; !slices.Equal(w.said, want) {
		t.Errorf("%q, want %q", w.said, want)
	}
	if n := w.counted(); n != 2 || len(w.all()) != 2 {
		t.Errorf("%d counted, %d there", n, len(w.all()))
	}
	other := contribution(model.ContributeRaise, 9, 8, "x")
	other.TenantID = 2 // has a bound of its own
	w.fold(r, []model.Contribution{other})
	if len(w.said) != 5 {
		t.Errorf("%q", w.said)
	}
}

func TestTheFirstToAcknowledgeIsKept(t *testing.T) {
	t.Parallel()
	db := fixture.Store(t)
	now := time.Unix(1000, 0)
	a := New(TenantSettings{}, Deps{Store: db, Writer: store.Direct{Store: db, Now: func() time.Time { now = now.Add(time.Second); return now }}})
	if err := db.Write(t.Context(), store.Results, func(tx store.Tx) error {
		_, err := a.Fold(tx, []model.Contribution{contribution(model.ContributeRaise, 1, 1, "a")})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	all, err := a.Find(t.Context(), &model.Principal{TenantID: 1}, &alarms.Filter{})
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	for i, who := range []string{"ann", "bob"} {
		done, _, err := a.Acknowledge(t.Context(), &model.Principal{TenantID: 1, Subject: who}, []string{all[0].Token})
		if err != nil || done[0].AcknowledgedBy != "ann" || *done[0].AcknowledgedAt != 1_001_000_000 || done[0].Moves != 2 {
			t.Errorf("%d: %+v, %v", i, done, err)
		}
	}
	if done, unknown, err := a.Acknowledge(t.Context(), &model.Principal{TenantID: 2}, []string{all[0].Token}); err != nil || len(done) != 0 || len(unknown) != 1 {
		t.Errorf("another tenant: %v %v %v", done, unknown, err)
	}
}

// TestTheAlarmsOfADeviceAreFoundByIt: no list of a device walks all alarms of its tenant.
func TestTheAlarmsOfADeviceAreFoundByIt(t *testing.T) {
	t.Parallel()
	var queries []string
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "weir.db"), sqlite.Options{Trace: func(q string) { queries = append(queries, q) }})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	a := New(TenantSettings{}, Deps{Store: db, Writer: store.Direct{Store: db}})
	for index, f := range map[string]*alarms.Filter{"device_id=?": {Device: "d1", State: "ACTIVE"}, "token=?": {Tokens: []string{"a", "b"}}, "rowid=?": {IDs: []int64{1, 2}}} {
		queries = nil
		if _, _, err := a.List(t.Context(), &model.Principal{TenantID: 1}, f, store.Page{}); err != nil {
			t.Fatal(err)
		}
		for _, q := range slices.Clone(queries) {
			if !strings.Contains(q, "FROM alarms") {
				continue
			}
			var plan strings.Builder
			fixture.EachRow(t, db, func(_ []string, values []any) { fmt.Fprintln(&plan, values[len(values)-1]) }, "EXPLAIN QUERY PLAN "+q, make([]any, strings.Count(q, "?"))...)
			if !strings.Contains(plan.String(), index) || strings.Contains(plan.String(), "SCAN alarms") {
				t.Errorf("%s\n%s", q, plan.String())
			}
		}
	}
}
