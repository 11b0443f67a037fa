package notify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"weir/internal/delivery"

	"weir/internal/lograte"
	"weir/model"
	"weir/notify/channel"
	"weir/store"
	"weir/store/notices"
	"weir/store/outbox"
)

// Wait is the error of a delivery whose turn has not come.
type Wait struct{ For time.Duration }

func (w *Wait) Error() string { return "the channel gets no more messages now" }

// ErrGone is the error of a delivery that has nothing to say any more, or nobody to say it to.
var ErrGone = errors.New("there is nothing to tell any more")

const (
	maxGathered = 10_000 // messages that one digest counts
)

// attempt is one message on its way.
type attempt struct {
	n       *Notify
	tenant  string
	row     *outbox.Row
	to      *model.DispatchNotification
	channel *Channel
	secret  string
	waiting int64         // messages to the channel
	rows    []*outbox.Row // that are notified together; the first is the oldest
	late    int           // of them, that are not notified
	message channel.Message
}

// Deliver delivers an order of a notification. with are the row ids of others that were notified together with it: what came of it came of them. upto is the
// row id up to which others may be. The error is a *delivery.Failure, a *Wait or ErrGone.
func (n *Notify) Deliver(ctx context.Context, tenant string, row *outbox.Row, upto int64) (with []int64, err error) {
	if n.deps.Guard == nil {
		return nil, &delivery.Failure{Outcome: delivery.Unreachable, Text: "nothing is delivered where no instance runs"}
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	d := &attempt{n: n, tenant: tenant, row: row, to: row.Dispatch.Notification}
	if d.to == nil {
		return nil, d.note(ctx, &delivery.Failure{Outcome: delivery.Invalid, Text: "the order names no channel"})
	}
	if err := n.read(ctx, func(tx store.Tx) error { return d.find(tx, upto) }); err != nil {
		return nil, d.note(ctx, err)
	}
	_, mono := n.deps.Now()
	t, undo := n.rates.take(d.to.ChannelID, strings.Join(d.to.Recipients, "\x00"), d.waiting, n.cfg.PerMinute, mono)
	if t.wait > 0 {
		return nil, &Wait{t.wait}
	}
	err = n.read(ctx, func(tx store.Tx) error { return d.compose(tx, t.digest, upto) })
	n.m.deliveries.WithLabelValues(d.channel.Type, string(outcomeLate)).Add(float64(d.late))
	if err != nil {
		undo()
		return d.with(), d.note(ctx, err)
	}
	err = n.send(ctx, n.env(tenant), channel.Channel{Type: d.channel.Type, Config: d.channel.config(), Secret: d.secret}, d.message)
	if err != nil {
		undo()
	} else if len(d.rows) > 1 {
		n.m.digested.Add(float64(len(d.rows) - d.late))
	}
	return d.with(), d.note(ctx, err)
}

// env is what sending for a tenant needs.
func (n *Notify) env(tenant string) channel.Env {
	return channel.Env{Dial: n.deps.Guard.Dial(tenant), Roots: n.deps.Guard.TLS().RootCAs, Instance: n.deps.Instance, BaseURL: n.deps.BaseURL, Now: n.wall}
}

// read reads in one transaction. A store that fails is no failure of the channel.
func (n *Notify) read(ctx context.Context, fn func(store.Tx) error) error {
	err := n.deps.Store.Read(ctx, fn)
	if _, ok := errors.AsType[*delivery.Failure](err); ok || err == nil || errors.Is(err, ErrGone) {
		return err
	}
	return &delivery.Failure{Outcome: delivery.Unreachable, Text: "Weir cannot read what the notification needs"}
}

// find reads the channel, and how much waits for it.
func (d *attempt) find(tx store.Tx, upto int64) (err error) {
	n := d.n
	found, err := n.Channels.Table.Select(tx, d.row.TenantID, "id", store.Eq("id", d.to.ChannelID))
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return ErrGone
	}
	if d.channel = found[0]; !d.channel.Enabled {
		return &delivery.Failure{Outcome: delivery.Invalid, Text: "the channel is disabled"}
	}
	if d.channel.HasSecret {
		if d.secret, _, err = n.Channels.Reveal(tx, d.channel); err != nil {
			return err
		}
	}
	d.waiting, err = outbox.Waits(tx, d.row.TenantID, OrderKind, d.row.Target, max(upto, d.row.ID))
	return err
}

// compose makes the message: of the row, or of all that wait for the same people.
func (d *attempt) compose(tx store.Tx, digest bool, upto int64) (err error) {
	m := &d.message
	m.Recipients, m.Key = d.to.Recipients, d.row.Order.Key
	if d.rows = []*outbox.Row{d.row}; d.to.Note != "" {
		m.Kind, m.Note, m.Counts = channel.MuteEnd, d.to.Note, d.to.Counts
		if json.Unmarshal([]byte(d.row.Dispatch.Payload), &m.Alarms) != nil {
			return &delivery.Failure{Outcome: delivery.Invalid, Text: "the order holds no alarms"}
		}
		return d.name(tx)
	}
	if digest {
		if err := d.gather(tx, upto); err != nil {
			return err
		}
	}
	var all []channel.Alarm
	var notified []*outbox.Row
	for _, row := range d.rows {
		var a channel.Alarm
		if json.Unmarshal([]byte(row.Dispatch.Payload), &a) != nil {
			return &delivery.Failure{Outcome: delivery.Invalid, Text: "the order holds no alarm"}
		}
		late, err := d.n.late(tx, row, &a)
		if err != nil {
			return err
		}
		if late {
			d.late++
			continue
		}
		all, notified = append(all, a), append(notified, row)
	}
	switch len(all) {
	case 0:
		return ErrGone
	case 1:
		m.Kind, m.Key = channel.Single, notified[0].Order.Key
	default:
		m.Kind, m.Key, m.Counts = channel.Digest, "digest-"+d.rows[0].Order.Key, map[string]int{}
		for i := range all {
			m.Counts[all[i].Severity]++
		}
		sortAlarms(all)
	}
	m.Alarms = all[:min(len(all), channel.MaxAlarms)]
	return d.name(tx)
}

// sortAlarms sorts alarms by severity, the gravest first, and by their age.
func sortAlarms(all []channel.Alarm) {
	rank := model.AlarmSeverities()
	slices.SortStableFunc(all, func(a, b channel.Alarm) int {
		return cmp.Or(cmp.Compare(slices.Index(rank, a.Severity), slices.Index(rank, b.Severity)), a.OccurredTime.Compare(b.OccurredTime))
	})
}

// gather reads all that waits for the same people, the oldest first: the key of the message follows from it, and stays when more come.
func (d *attempt) gather(tx store.Tx, upto int64) error {
	heads, err := outbox.Next(tx, d.row.TenantID, OrderKind, d.row.Target, 0, max(upto, d.row.ID), maxGathered)
	if err != nil {
		return err
	}
	d.rows = nil
	for _, h := range heads {
		row, err := outbox.Read(tx, h.ID)
		if row == nil || errors.Is(err, store.ErrDamaged) {
			continue // its own turn tells
		}
		if err != nil {
			return err
		}
		if to := row.Dispatch.Notification; to != nil && to.ChannelID == d.to.ChannelID && to.Note == "" && slices.Equal(to.Recipients, d.to.Recipients) && json.Valid([]byte(row.Dispatch.Payload)) {
			d.rows = append(d.rows, row)
		}
	}
	return nil
}

// late reports whether an alarm that was raised need not be notified any more.
func (n *Notify) late(tx store.Tx, row *outbox.Row, a *channel.Alarm) (bool, error) {
	if a.EventType != string(model.AlarmRaised) || n.wall().Sub(row.Head.Received.Time()) <= n.cfg.MaxAge {
		return false, nil
	}
	s, err := notices.Get(tx, row.TenantID, a.AlarmToken)
	return err == nil && (s == nil || s.ClearedAt != nil), err
}

// name adds what people call what the alarms are about.
func (d *attempt) name(tx store.Tx) error {
	for i := range d.message.Alarms {
		a := &d.message.Alarms[i]
		a.Tenant = d.tenant
		device := d.row.DeviceID
		if _, err := fmt.Sscan(a.OriginatorID, &device); err != nil {
			continue // the body is not one that Weir wrote: it has no name
		}
		of, err := notices.NamesOf(tx, d.row.TenantID, device, a.AlarmToken)
		if err != nil {
			return err
		}
		a.OriginatorName, a.RuleName, a.RuleDescription = of.Device, of.Rule, of.Description
	}
	return nil
}

// with are the rows that are notified together with that of the order.
func (d *attempt) with() (ids []int64) {
	for _, r := range d.rows {
		if r.ID != d.row.ID {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// note counts what a delivery came to, and tells the operator of failures, each kind of them once a minute.
func (d *attempt) note(ctx context.Context, err error) error {
	typ := noType
	if d.channel != nil {
		typ = d.channel.Type
	}
	return d.n.note(ctx, typ, d.tenant, d.row.Target, err)
}

func (n *Notify) note(ctx context.Context, typ, tenant, target string, err error) error {
	switch {
	case err == nil:
		n.m.deliveries.WithLabelValues(typ, string(delivery.Sent)).Inc()
		return nil
	case errors.Is(ctx.Err(), context.Canceled): // Weir stops, which says nothing of the channel
		return err
	case errors.Is(err, ErrGone):
		if typ == noType {
			n.m.deliveries.WithLabelValues(typ, string(outcomeGone)).Inc()
		}
		return err
	}
	f := delivery.Of(err)
	n.m.deliveries.WithLabelValues(typ, string(f.Outcome)).Inc()
	n.mu.Lock()
	every := n.logged[f.Outcome]
	if every == nil {
		every = new(lograte.Every)
		n.logged[f.Outcome] = every
	}
	n.mu.Unlock()
	_, mono := n.deps.Now()
	if held, ok := every.Allow(mono); ok {
		n.deps.Logger.Warn("a notification was not delivered", "channel_type", typ, "tenant", tenant, "channel", target, "outcome", string(f.Outcome), "error", f.Text, "detail", f.Detail(), "held_back", held)
	}
	return err
}
