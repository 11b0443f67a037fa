package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/model"
	"weir/notify/channel"
	"weir/store"
	"weir/store/notices"
	"weir/store/outbox"
)

// OrderKind is the kind of the orders of notifications.
const OrderKind = "notification"

// Moved writes what the moves of alarms come to: their states, and an order for each channel and list of recipients that is to be notified. It runs in the
// transaction of the moves.
func (n *Notify) Moved(tx store.Tx, events []model.AlarmEvent) error {
	for i := range events {
		s, err := n.setOf(tx, events[i].TenantID)
		if err != nil {
			return err
		}
		if s.idle() {
			continue
		}
		if err := n.moved(tx, s, &events[i]); err != nil {
			return err
		}
	}
	return nil
}

func (n *Notify) moved(tx store.Tx, set *set, e *model.AlarmEvent) error {
	s, err := notices.Get(tx, e.TenantID, e.Token)
	if err != nil {
		return err
	}
	tells := e.Move == model.AlarmRaised || e.Move == model.AlarmEscalated
	var matching []*heldPolicy
	if tells {
		matching = set.matching(e.Severity)
	}
	if s == nil {
		if len(matching) == 0 {
			return nil
		}
		s = &notices.State{TenantID: e.TenantID, AlarmToken: e.Token, AlarmKey: e.Key, DeviceID: e.DeviceID}
		tx.OnCommit(func() { n.hasStates(e.TenantID) })
	}
	if e.Move == model.AlarmRaised {
		s.Level, s.LastEscalatedAt = 0, nil
	}
	s.Severity, s.AcknowledgedAt, s.ClearedAt = e.Severity, e.AcknowledgedAt, e.ClearedAt
	a := alarmOf(e)
	if s.Alarm, err = json.Marshal(a); err != nil {
		return err
	}
	now := n.clock.now()
	to := set.targets(e.Severity, matching, func(p *heldPolicy) bool {
		if e.Move == model.AlarmRaised && s.Notified != nil && now-*s.Notified < p.throttle.Microseconds() {
			tx.OnCommit(n.m.throttled.Inc)
			return false
		}
		return true
	})
	if len(to) > 0 {
		if err := n.tell(tx, set, s, &e.Alarm, a, to, telling{occasion: fmt.Sprintf("%d", e.Number), now: now, at: e.At, occurred: e.Occurred, offset: e.Offset}); err != nil {
			return err
		}
	}
	return notices.Put(tx, s)
}

// hasStates notes that a tenant has states.
func (n *Notify) hasStates(tenant int64) {
	n.held.mu.Lock()
	defer n.held.mu.Unlock()
	if s := n.held.tenants[tenant]; s != nil && !s.states {
		with := *s
		with.states = true
		n.held.tenants[tenant] = &with
	}
}

// telling is an occasion to tell people of an alarm.
type telling struct {
	occasion string // differs between the occasions of an alarm
	now      int64  // of the clock
	at       model.Micros
	occurred model.Micros
	offset   model.Offset
}

// tell writes the orders for some targets and notes them in the state, unless a mute holds them back.
func (n *Notify) tell(tx store.Tx, set *set, s *notices.State, alarm *model.Alarm, a *channel.Alarm, to []target, t telling) error {
	m, err := n.muted(tx, set, alarm)
	if err != nil {
		return err
	}
	if m != nil {
		s.HeldBy = m.ID
		tx.OnCommit(n.m.muted.Inc)
		return notices.CountHeld(tx, m.ID)
	}
	s.NotifyCount++
	at := t.at
	if s.LastNotifiedAt = &at; s.FirstNotifiedAt == nil {
		s.FirstNotifiedAt = &at
	}
	s.Notified = &t.now
	if a.EventType == channel.Renotified {
		a.NotifyCount, a.FirstNotifiedTime, a.LastNotifiedTime = int(s.NotifyCount), s.FirstNotifiedAt.Time(), at.Time()
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	for _, x := range to {
		o := &model.Order{Edge: model.EdgeID{Offset: t.offset}, TenantID: s.TenantID, Kind: OrderKind, DeviceID: s.DeviceID, Occurred: t.occurred, Received: t.at.Nanos()}
		if err := n.order(tx, o, alarm.Device, string(text), x, s.AlarmToken+"\x00"+t.occasion, &model.DispatchNotification{}); err != nil {
			return err
		}
	}
	return nil
}

// order writes an order for a target. The idempotency key follows from what it is about, so that a replay writes none twice.
func (n *Notify) order(tx store.Tx, o *model.Order, device, payload string, to target, about string, d *model.DispatchNotification) error {
	sum := sha256.Sum256(fmt.Appendf(nil, "notification\x00%d\x00%s\x00%d\x00%s", o.TenantID, about, to.channel.ID, strings.Join(to.recipients, "\x00")))
	o.Key, o.Target = hex.EncodeToString(sum[:16]), to.channel.Token
	d.ChannelID, d.Recipients = to.channel.ID, to.recipients
	var err error
	if o.Body, err = json.Marshal(&model.Dispatch{Kind: OrderKind, Tenant: n.deps.Tenants.TokenOf(o.TenantID), Device: device, Occurred: o.Occurred.String(), Key: o.Key, Payload: payload,
		Notification: d}); err != nil {
		return err
	}
	added, err := outbox.AddOnce(tx, o)
	if added {
		tx.OnCommit(n.deps.Wake)
	}
	return err
}

// matching are the policies with a rule for a severity.
func (s *set) matching(severity string) (found []*heldPolicy) {
	for _, p := range s.policies {
		if slices.ContainsFunc(p.rules, func(r boundRule) bool { return r.matches(severity) }) {
			found = append(found, p)
		}
	}
	return found
}

func (r *boundRule) matches(severity string) bool {
	return r.Severity == anySeverity || r.Severity == severity
}

// target is a channel and the people who are notified over it.
type target struct {
	channel    *Channel
	recipients []string
}

// targets are those of policies for a severity, each once. may is asked of a policy that has any.
func (s *set) targets(severity string, policies []*heldPolicy, may func(*heldPolicy) bool) (all []target) {
	for _, p := range policies {
		var of []target
		for i := range p.rules {
			r := &p.rules[i]
			c := s.channels[r.Channel]
			if !r.matches(severity) || c == nil || !c.Enabled {
				continue
			}
			to, err := channel.ParseRecipients(c.Type, r.recipients())
			if err != nil {
				continue // it was right when it was saved: a newer version of Weir thinks otherwise
			}
			of = append(of, target{c, to})
		}
		if len(of) == 0 || !may(p) {
			continue
		}
		for _, t := range of {
			if !slices.ContainsFunc(all, t.is) {
				all = append(all, t)
			}
		}
	}
	return all
}

func (t target) is(o target) bool {
	return t.channel.ID == o.channel.ID && slices.Equal(t.recipients, o.recipients)
}

// alarmOf is what is notified of a move.
func alarmOf(e *model.AlarmEvent) *channel.Alarm {
	return &channel.Alarm{EventType: string(e.Move), AlarmToken: e.Token, AlarmKey: e.Key, OriginatorType: model.OriginatorDevice, OriginatorID: strconv.FormatInt(e.DeviceID, 10),
		Severity: e.Severity, State: string(e.State), Acknowledged: e.AcknowledgedAt != nil, RaisedTime: e.RaisedAt.Time(), OccurredTime: e.Occurred.Time(), MetricKey: e.Metric,
		PreviousSeverity: e.Before, Value: e.LastValue}
}
