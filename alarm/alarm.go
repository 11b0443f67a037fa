// Package alarm keeps the alarms of devices: what rules contribute is folded into one alarm for each device and key, in the
// order of the log and in the transaction of the edges; operators acknowledge and clear.
//
//	fold.go    what becomes of an alarm: pure
//	folding.go the fold over the rows of a transaction, with its bounds
//	alarm.go   queries, and what operators do
//
// Each move leaves an event, which is a row and a message to subscribers.
package alarm

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/hub"
	"weir/internal/setting"
	"weir/model"
	"weir/store"
	"weir/store/alarms"
)

// TenantSettings are the keys of alarms, in the section limits.
type TenantSettings struct {
	//limit:what alarms of a tenant
	//limit:chapter What is kept
	//limit:bound {}
	//limit:level weir_alarm_moves_total{move="RAISED"}
	//limit:met weir_alarm_evicted_total weir_alarm_refused_total
	//limit:then the one that has been cleared for the longest time makes room; where all are active, the new one is not raised
	//limit:cost about 400 bytes of disk each
	AlarmsPerTenant int64 `yaml:"alarms_per_tenant" default:"100000" zero:"default" doc:"Maximum number of alarms of a tenant. The one that has been cleared for the longest time makes room for a new one; where all are active, the new one is not raised, and counted." reload:"yes"`
}

// MaxBulk is the maximum number of alarms that are acknowledged or cleared at once.
const MaxBulk = 2000

// Deps are the collaborators. Now and Registerer may be left out.
type Deps struct {
	Store  store.Store
	Writer store.Writer
	// Moved gets the moves of alarms in their transaction, in their order; nil: nobody does. Its error undoes them.
	Moved      func(tx store.Tx, events []model.AlarmEvent) error
	Now        func() time.Time      // nil: time.Now
	Registerer prometheus.Registerer // nil: metrics are not registered
}

// Alarms are the alarms of one instance. They are safe for concurrent use.
type Alarms struct {
	// Events are the moves of alarms, once they are committed.
	Events *hub.Hub[model.AlarmEvent]

	deps  Deps
	limit atomic.Int64
	m     *metrics
}

// New returns the alarms of an instance.
func New(s TenantSettings, d Deps) *Alarms {
	if d.Now == nil {
		d.Now = time.Now
	}
	a := &Alarms{Events: hub.New[model.AlarmEvent]("alarms", d.Registerer), deps: d, m: newMetrics(d.Registerer)}
	a.SetLimits(s)
	return a
}

// SetLimits changes how many alarms a tenant may have. Those that are there stay.
func (a *Alarms) SetLimits(s TenantSettings) {
	setting.FillDefaults(&s)
	a.limit.Store(s.AlarmsPerTenant)
}

// Publish sends committed events to the subscribers, and counts them.
func (a *Alarms) Publish(events ...model.AlarmEvent) {
	for i := range events {
		a.m.moves.WithLabelValues(string(events[i].Move)).Inc()
	}
	if len(events) > 0 {
		a.Events.Publish(events...)
	}
}

// List returns a page of the caller's alarms, newest first, and the number of all that the filter selects.
func (a *Alarms) List(ctx context.Context, by *model.Principal, f *alarms.Filter, page store.Page) (found []*model.Alarm, total int64, err error) {
	err = store.Read(ctx, a.deps.Store, func(tx store.Tx) (err error) {
		found, total, err = alarms.List(tx, by.TenantID, f, page)
		return err
	})
	return found, total, err
}

// Find returns the caller's alarms that the filter selects.
func (a *Alarms) Find(ctx context.Context, by *model.Principal, f *alarms.Filter) (found []*model.Alarm, err error) {
	err = store.Read(ctx, a.deps.Store, func(tx store.Tx) (err error) {
		found, err = alarms.Find(tx, by.TenantID, f)
		return err
	})
	return found, err
}

// History returns a page of the events of an alarm, newest first, and the number of all. The alarm itself may be gone.
func (a *Alarms) History(ctx context.Context, by *model.Principal, token string, page store.Page) (found []model.AlarmEvent, total int64, err error) {
	err = store.Read(ctx, a.deps.Store, func(tx store.Tx) (err error) {
		found, total, err = alarms.Events(tx, by.TenantID, token, page)
		return err
	})
	return found, total, err
}

// Acknowledge acknowledges alarms on behalf of an operator: the first to do so and the time are kept. It returns the alarms in
// the order of the tokens, each once, and the tokens of those that do not exist.
func (a *Alarms) Acknowledge(ctx context.Context, by *model.Principal, tokens []string) (done []*model.Alarm, unknown []string, err error) {
	return a.operate(ctx, by, tokens, func(c *store.Change, x *model.Alarm) model.AlarmMove {
		if x.AcknowledgedAt != nil {
			return ""
		}
		x.AcknowledgedAt, x.AcknowledgedBy = &c.At, c.Actor()
		return model.AlarmAcknowledged
	})
}

// Clear clears alarms on behalf of an operator. What contributes to them stays, and the next raise makes them active again. It
// returns what Acknowledge does.
func (a *Alarms) Clear(ctx context.Context, by *model.Principal, tokens []string) (done []*model.Alarm, unknown []string, err error) {
	return a.operate(ctx, by, tokens, func(c *store.Change, x *model.Alarm) model.AlarmMove {
		if x.State != model.AlarmActive {
			return ""
		}
		x.State, x.ClearedAt = model.AlarmCleared, &c.At
		return model.AlarmWasCleared
	})
}

// operate lets an operator change alarms. change returns the move, "" for none.
func (a *Alarms) operate(ctx context.Context, by *model.Principal, tokens []string, change func(*store.Change, *model.Alarm) model.AlarmMove) (done []*model.Alarm, unknown []string, err error) {
	if len(tokens) == 0 {
		return nil, nil, nil
	}
	err = a.deps.Writer.Mutate(ctx, by, func(c *store.Change) error {
		found, err := alarms.Find(c, by.TenantID, &alarms.Filter{Tokens: tokens})
		if err != nil {
			return err
		}
		byToken := make(map[string]*model.Alarm, len(found))
		for _, x := range found {
			byToken[x.Token] = x
		}
		done, unknown = nil, nil
		var events []model.AlarmEvent
		for _, token := range unique(tokens) {
			x := byToken[token]
			if x == nil {
				unknown = append(unknown, token)
				continue
			}
			if move := change(c, x); move != "" {
				e, err := moveBy(c, x, move)
				if err != nil {
					return err
				}
				events = append(events, e)
			}
			done = append(done, x)
		}
		c.OnCommit(func() { a.Publish(events...) })
		return a.moved(c, events)
	})
	if err != nil {
		return nil, nil, err
	}
	return done, unknown, nil
}

// moveBy stores what an operator has made of an alarm.
func moveBy(c *store.Change, x *model.Alarm, move model.AlarmMove) (e model.AlarmEvent, err error) {
	x.Moves++
	x.UpdatedAt = c.At
	e = model.AlarmEvent{Number: x.Moves, Move: move, Occurred: c.At, At: c.At, Alarm: *x}
	if err = alarms.Save(c, x); err != nil {
		return e, err
	}
	if err = alarms.AddEvent(c, &e); err != nil {
		return e, err
	}
	return e, c.Audit(store.AuditEvent{TenantID: x.TenantID, Category: store.AuditMutation, Operation: store.AuditUpdate, Table: "alarms",
		Key: strconv.FormatInt(x.ID, 10), Label: x.Token, Rows: 1})
}

func unique(tokens []string) []string {
	seen := make(map[string]bool, len(tokens))
	return slices.DeleteFunc(slices.Clone(tokens), func(t string) bool {
		again := seen[t]
		seen[t] = true
		return again
	})
}

// RemoveDevice removes the alarms of a device with the device: it is a registry.Removal. Their history stays, and ends with
// their clearing.
func (a *Alarms) RemoveDevice(tx store.Tx, tenant, device int64) error {
	now := model.NanosOf(a.deps.Now())
	f := &folding{tx: tx, limit: a.limit.Load(), m: a.m}
	if err := f.run([]model.Contribution{{Kind: model.ContributeGone, TenantID: tenant, DeviceID: device, Occurred: now.Micros(), Received: now}}); err != nil {
		return err
	}
	tx.OnCommit(func() { a.Publish(f.events...) })
	return a.moved(tx, f.events)
}

func (a *Alarms) moved(tx store.Tx, events []model.AlarmEvent) error {
	if a.deps.Moved == nil || len(events) == 0 {
		return nil
	}
	return a.deps.Moved(tx, events)
}

// Fold folds contributions into the alarms, in the order of the log, and returns what has happened to them. It may be called
// again with the same contributions when its transaction has failed.
func (a *Alarms) Fold(tx store.Tx, cs []model.Contribution) ([]model.AlarmEvent, error) {
	f := &folding{tx: tx, limit: a.limit.Load(), m: a.m}
	err := f.run(cs)
	if err == nil {
		err = a.moved(tx, f.events)
	}
	return f.events, err
}

// Refused are the alarms that were not raised since the process started, because their tenant had its maximum, all of them active.
type Refused struct {
	Alarms   int64
	TenantID int64 // of the last one
	At       model.Micros
}

// Refused returns them.
func (a *Alarms) Refused() Refused {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	return a.m.last
}

// metrics count for the operator, over all tenants.
type metrics struct {
	moves   *prometheus.CounterVec
	refused prometheus.Counter
	evicted prometheus.Counter

	mu   sync.Mutex
	last Refused
}

// refuse counts an alarm of a tenant that was not raised.
func (m *metrics) refuse(tenant int64, at model.Micros) {
	m.refused.Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = Refused{m.last.Alarms + 1, tenant, at}
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_alarm_moves_total",
			Help: "Moves of alarms, by what happened (RAISED, ESCALATED, DEESCALATED, CLEARED, ACKNOWLEDGED)."}, []string{"move"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_alarm_refused_total",
			Help: "Alarms that were not raised because their tenant had its maximum of alarms, all of them active."}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_alarm_evicted_total",
			Help: "Cleared alarms that were removed because their tenant had its maximum of alarms."}),
	}
	for _, move := range []model.AlarmMove{model.AlarmRaised, model.AlarmEscalated, model.AlarmDeescalated, model.AlarmWasCleared, model.AlarmAcknowledged} {
		m.moves.WithLabelValues(string(move))
	}
	if reg != nil {
		reg.MustRegister(m.moves, m.refused, m.evicted)
	}
	return m
}
