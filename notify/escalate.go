package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/model"
	"weir/notify/channel"
	"weir/store"
	"weir/store/notices"
)

// sweepBatch is how many states one transaction of a sweep looks at.
const sweepBatch = 500

// Load goes on with the time that was stored. It is called once, before anything else is done with alarms.
func (n *Notify) Load(ctx context.Context) error {
	return store.Read(ctx, n.deps.Store, func(tx store.Tx) error {
		c, err := notices.ReadClock(tx)
		n.clock.load(c)
		return err
	})
}

// Run tells again of alarms that nobody has acknowledged, ends mutes and removes states that are no longer kept, until ctx ends.
func (n *Notify) Run(ctx context.Context) error {
	t := time.NewTicker(n.cfg.Sweep)
	defer t.Stop()
	swept := time.Duration(-1)
	for {
		if err := n.save(ctx); err != nil && ctx.Err() == nil {
			n.deps.Logger.Warn("the time of notifications cannot be stored; it is tried again", "error", err, "retry", n.cfg.Sweep.String())
		}
		select {
		case <-ctx.Done():
			return n.save(context.WithoutCancel(ctx))
		case <-t.C:
		}
		if !n.deps.Plausible() {
			continue
		}
		_, mono := n.deps.Now()
		retire := swept < 0 || mono-swept >= n.cfg.RetentionSweep
		if retire {
			swept = mono
		}
		if err := n.sweep(ctx, retire); err != nil && ctx.Err() == nil {
			n.deps.Logger.Warn("alarms cannot be notified again; it is tried again", "error", err, "retry", n.cfg.Sweep.String())
		}
	}
}

func (n *Notify) save(ctx context.Context) error {
	return n.deps.Store.Write(ctx, store.Results, n.clock.save)
}

// sweep does what time brings; retire removes states, too.
func (n *Notify) sweep(ctx context.Context, retire bool) error {
	if err := n.endMutes(ctx); err != nil {
		return err
	}
	if err := n.escalate(ctx); err != nil || !retire {
		return err
	}
	before := model.MicrosOf(n.wall().Add(-n.cfg.Retention))
	for {
		var removed int64
		err := n.deps.Store.Write(ctx, store.Results, func(tx store.Tx) (err error) {
			removed, err = notices.Sweep(tx, before, sweepBatch)
			return err
		})
		if err != nil || removed < sweepBatch {
			return err
		}
	}
}

// escalate tells again of alarms that nobody has acknowledged, of each at most once.
func (n *Notify) escalate(ctx context.Context) error {
	var tenants []int64
	err := n.deps.Store.Read(ctx, func(tx store.Tx) (err error) {
		tenants, err = notices.Escalating(tx)
		return err
	})
	for _, tenant := range tenants {
		for after, more := int64(0), true; more && err == nil; {
			err = n.deps.Store.Write(ctx, store.Durable, func(tx store.Tx) (err error) {
				after, more, err = n.escalateSome(tx, tenant, after)
				return err
			})
		}
	}
	return err
}

// escalateSome tells again of alarms of a tenant behind a row id. It returns the row id up to which it has looked, and whether there may be more.
func (n *Notify) escalateSome(tx store.Tx, tenant, after int64) (upto int64, more bool, err error) {
	set, err := n.setOf(tx, tenant)
	if err != nil {
		return after, false, err
	}
	shortest := set.shortest()
	if shortest == 0 || n.deps.Tenants.TokenOf(tenant) == "" {
		return after, false, nil
	}
	now := n.clock.now()
	states, err := notices.Due(tx, tenant, now-shortest.Microseconds(), after, sweepBatch)
	for _, s := range states {
		if upto = s.ID; err == nil {
			err = n.escalateOne(tx, set, s, now)
		}
	}
	return upto, len(states) == sweepBatch, err
}

// shortest is the shortest time after which a policy tells again, 0 when none does.
func (s *set) shortest() (d time.Duration) {
	for _, p := range s.policies {
		if p.escalateAfter > 0 && (d == 0 || p.escalateAfter < d) {
			d = p.escalateAfter
		}
	}
	return d
}

func (n *Notify) escalateOne(tx store.Tx, set *set, s *notices.State, now int64) error {
	to := set.targets(s.Severity, set.matching(s.Severity), func(p *heldPolicy) bool {
		return p.escalateAfter > 0 && now-*s.Notified >= p.escalateAfter.Microseconds() && s.Level < p.maxEscalations
	})
	if len(to) == 0 {
		return nil
	}
	a := new(channel.Alarm)
	if err := json.Unmarshal(s.Alarm, a); err != nil {
		return fmt.Errorf("%w: notification state %d: %w", store.ErrDamaged, s.ID, err)
	}
	alarm, err := n.alarm(tx, s)
	if err != nil {
		return err
	}
	if m, err := n.muted(tx, set, alarm); err != nil || m != nil {
		return err // it is notified when the mute ends
	}
	at := model.MicrosOf(n.wall())
	level := s.Level + 1
	a.EventType, a.Escalation, a.Severity = channel.Renotified, int(level), s.Severity
	s.Level, s.LastEscalatedAt = level, &at
	if err := n.tell(tx, set, s, alarm, a, to, telling{occasion: fmt.Sprintf("escalation %d %d", a.RaisedTime.UnixMicro(), level), now: now, at: at, occurred: at}); err != nil {
		return err
	}
	return notices.Put(tx, s)
}

// alarm is the alarm of a state, as mutes are compared with it.
func (n *Notify) alarm(tx store.Tx, s *notices.State) (*model.Alarm, error) {
	tokens, err := store.Tokens(tx, "devices", []int64{s.DeviceID})
	return &model.Alarm{TenantID: s.TenantID, Token: s.AlarmToken, Key: s.AlarmKey, Severity: s.Severity, DeviceID: s.DeviceID, Device: tokens[s.DeviceID]}, err
}

// endMutes ends the mutes whose time is over.
func (n *Notify) endMutes(ctx context.Context) error {
	var over [][2]int64
	if err := n.deps.Store.Read(ctx, func(tx store.Tx) (err error) {
		over, err = notices.Over(tx, model.MicrosOf(n.wall()), sweepBatch)
		return err
	}); err != nil {
		return err
	}
	for _, m := range over {
		if err := n.deps.Store.Write(ctx, store.Durable, func(tx store.Tx) error {
			rows, err := n.Mutes.Table.Select(tx, m[0], "id", store.Eq("id", m[1]))
			if err != nil || len(rows) == 0 {
				return err
			}
			return n.endMute(tx, rows[0])
		}); err != nil {
			return err
		}
	}
	return nil
}

// endMute ends a mute, and tells in one message of the alarms that it has held back and that are still active.
func (n *Notify) endMute(tx store.Tx, m *Mute) error {
	if m.EndedAt != nil {
		return nil
	}
	at := model.MicrosOf(n.wall())
	if err := notices.SetEnded(tx, m.ID, at); err != nil {
		return err
	}
	tx.OnCommit(func() { n.drop(m.TenantID) })
	set, err := n.setOf(tx, m.TenantID)
	if err != nil {
		return err
	}
	mail := ending{now: n.clock.now(), at: at}
	for after := int64(0); ; {
		states, err := notices.Held(tx, m.ID, after, sweepBatch)
		if err != nil {
			return err
		}
		for _, s := range states {
			after = s.ID
			if err := n.release(tx, set, m, s, &mail); err != nil {
				return err
			}
		}
		if len(states) < sweepBatch {
			break
		}
	}
	return n.tellEnd(tx, m, &mail)
}

// ending is what is notified at the end of a mute.
type ending struct {
	now int64
	at  model.Micros
	to  []*endingTo
}

// endingTo is what is notified to a target.
type endingTo struct {
	target
	alarms []channel.Alarm
}

// release lets an alarm be notified of again, with the end of its mute when it is still active.
func (n *Notify) release(tx store.Tx, set *set, m *Mute, s *notices.State, e *ending) error {
	s.HeldBy = 0
	if s.ClearedAt != nil || s.AcknowledgedAt != nil {
		return notices.Put(tx, s)
	}
	alarm, err := n.alarm(tx, s)
	if err != nil {
		return err
	}
	other, err := n.muted(tx, set.without(m), alarm)
	if err != nil {
		return err
	}
	if other != nil { // another mute goes on
		s.HeldBy = other.ID
		return notices.Put(tx, s)
	}
	to := set.targets(s.Severity, set.matching(s.Severity), func(*heldPolicy) bool { return true })
	if len(to) > 0 {
		var a channel.Alarm
		if err := json.Unmarshal(s.Alarm, &a); err != nil {
			return fmt.Errorf("%w: notification state %d: %w", store.ErrDamaged, s.ID, err)
		}
		a.Severity = s.Severity
		e.add(to, a)
		s.NotifyCount++
		if s.LastNotifiedAt, s.Notified = &e.at, &e.now; s.FirstNotifiedAt == nil {
			s.FirstNotifiedAt = &e.at
		}
	}
	return notices.Put(tx, s)
}

func (e *ending) add(to []target, a channel.Alarm) {
	for _, t := range to {
		i := slices.IndexFunc(e.to, func(o *endingTo) bool { return t.is(o.target) })
		if i < 0 {
			i, e.to = len(e.to), append(e.to, &endingTo{target: t})
		}
		e.to[i].alarms = append(e.to[i].alarms, a)
	}
}

// without is the set without a mute.
func (s *set) without(m *Mute) *set {
	c := *s
	c.mutes = slices.DeleteFunc(slices.Clone(s.mutes), func(o *Mute) bool { return o.ID == m.ID })
	return &c
}

// tellEnd writes the orders of the end of a mute.
func (n *Notify) tellEnd(tx store.Tx, m *Mute, e *ending) error {
	for _, t := range e.to {
		sortAlarms(t.alarms)
		d := &model.DispatchNotification{Note: m.note(len(t.alarms)), Counts: map[string]int{}}
		for i := range t.alarms {
			d.Counts[t.alarms[i].Severity]++
		}
		text, err := json.Marshal(t.alarms[:min(len(t.alarms), channel.MaxAlarms)])
		if err != nil {
			return err
		}
		o := &model.Order{TenantID: m.TenantID, Kind: OrderKind, Occurred: e.at, Received: e.at.Nanos()}
		if err := n.order(tx, o, "", string(text), t.target, fmt.Sprintf("mute %d", m.ID), d); err != nil {
			return err
		}
	}
	return nil
}

// note says what has ended.
func (m *Mute) note(active int) string {
	text := fmt.Sprintf("The mute %s has ended. It held back %d notifications; %d of its alarms are still active.", m.Token, m.HeldBack, active)
	if m.Reason != nil && *m.Reason != "" {
		text += " It was made by " + m.By + ": " + strings.Join(strings.Fields(*m.Reason), " ")
	}
	return text
}
