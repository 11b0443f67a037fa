package notify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/delivery"
	"weir/internal/guard"
	"weir/internal/test/domain"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/notify/channel"
	"weir/store"
	"weir/store/outbox"
	"weir/store/sqlite"
)

const acme = "acme"

// world are the notifications of an instance with one tenant, whose time stands still unless it is moved.
type world struct {
	testing.TB
	*domain.Domain
	n         *Notify
	db        *sqlite.DB
	wall      time.Time
	mono      time.Duration
	plausible bool
	guard     *guard.Guard
	away      bool              // the channels do not answer
	sent      []channel.Message // that the channels took
	refuse    func(channel.Message) error
	moves     map[string]*model.Alarm
}

func newWorld(t testing.TB, s Settings) *world {
	t.Helper()
	w := &world{TB: t, db: fixture.Store(t), wall: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), plausible: true, moves: map[string]*model.Alarm{}}
	w.Domain = domain.New(t, domain.Config{Store: w.db, Writer: store.Direct{Store: w.db}})
	var err error
	w.guard, err = guard.New(guard.Config{})
	w.must(err)
	w.start(s)
	_, err = w.Govern.Tenants.Create(t.Context(), fixture.Operator(), store.Patch{"token": acme, "tierToken": "gold"})
	w.must(err)
	return w
}

// start starts the notifications, again after a stop.
func (w *world) start(s Settings) {
	w.n = New(s, LimitSettings{}, Deps{Store: w.db, Writer: store.Direct{Store: w.db}, Vault: w.Vault, Tenants: w.Govern, Guard: w.guard,
		Now: func() (time.Time, time.Duration) { return w.wall, w.mono }, Plausible: func() bool { return w.plausible }})
	w.n.send = func(_ context.Context, _ channel.Env, _ channel.Channel, m channel.Message) error {
		switch {
		case w.away:
			return delivery.Fail(delivery.Unreachable, "nobody answers")
		case w.refuse != nil:
			if err := w.refuse(m); err != nil {
				return err
			}
		}
		w.sent = append(w.sent, m)
		return nil
	}
	w.must(w.n.Load(w.Context()))
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) by() *model.Principal {
	return fixture.Member("u", acme, w.tenant(), model.NotifyRead, model.NotifyWrite)
}

func (w *world) tenant() int64 {
	id, _, _ := w.Govern.Lookup(acme)
	return id
}

// pass lets time pass.
func (w *world) pass(d time.Duration) { w.wall, w.mono = w.wall.Add(d), w.mono+d }

// channel makes a webhook.
func (w *world) channel(token string) *Channel {
	w.Helper()
	row, err := w.n.Channels.Create(w.Context(), w.by(), store.Patch{"token": token, "channelType": "webhook", "config": `{"url":"https://hooks.example.com/a"}`, "enabled": true})
	w.must(err)
	return row
}

// policy makes a policy with rules, each a severity, a channel and a person: "CRITICAL ops ann".
func (w *world) policy(token string, fields store.Patch, rules ...string) *Policy {
	w.Helper()
	list := []any{}
	for _, r := range rules {
		f := strings.Fields(r)
		list = append(list, map[string]any{"severity": f[0], "channelToken": f[1], "recipients": fmt.Sprintf("[%q]", f[2])})
	}
	p := store.Patch{"token": token, "enabled": true, "rules": list}
	maps.Copy(p, fields)
	row, err := w.n.Policies.Create(w.Context(), w.by(), p)
	w.must(err)
	return row
}

// move moves an alarm, as package alarm does.
func (w *world) move(key string, move model.AlarmMove, severity string) {
	w.Helper()
	w.must(w.db.Write(w.Context(), store.Results, func(tx store.Tx) error { return w.n.Moved(tx, []model.AlarmEvent{w.event(key, move, severity)}) }))
}

func (w *world) event(key string, move model.AlarmMove, severity string) model.AlarmEvent {
	at := model.MicrosOf(w.wall)
	a := w.moves[key]
	if a == nil {
		a = &model.Alarm{TenantID: w.tenant(), Token: "alarm-" + key, DeviceID: 7, Device: "pump", Key: key}
		w.moves[key] = a
	}
	switch move {
	case model.AlarmRaised:
		a.State, a.RaisedAt, a.ClearedAt, a.AcknowledgedAt = model.AlarmActive, at, nil, nil
	case model.AlarmWasCleared:
		a.State, a.ClearedAt = model.AlarmCleared, &at
	case model.AlarmAcknowledged:
		a.AcknowledgedAt = &at
	}
	if severity != "" {
		a.Severity = severity
	}
	a.Moves++
	return model.AlarmEvent{Number: a.Moves, Move: move, Occurred: at, At: at, Alarm: *a}
}

// drain performs what waits as package actions does, until nothing may begin now. It returns what the channels took, each as "RAISED key > ann".
func (w *world) drain() (took []string) {
	w.Helper()
	begun := len(w.sent)
	paused := map[string]bool{}
	for more := true; more; {
		more = false
		var heads []outbox.Head
		w.must(w.db.Read(w.Context(), func(tx store.Tx) (err error) {
			heads, err = outbox.After(tx, 0, 100_000)
			return err
		}))
		for _, h := range heads {
			if paused[h.Target] || h.Due.Time().After(w.wall) {
				continue
			}
			var row *outbox.Row
			w.must(w.db.Read(w.Context(), func(tx store.Tx) (err error) {
				row, err = outbox.Read(tx, h.ID)
				return err
			}))
			with, err := w.n.Deliver(w.Context(), acme, row, heads[len(heads)-1].ID)
			if _, ok := errors.AsType[*Wait](err); ok {
				paused[h.Target] = true
				continue
			}
			if err != nil && !errors.Is(err, ErrGone) {
				paused[h.Target] = true
				continue
			}
			w.must(w.db.Write(w.Context(), store.Results, func(tx store.Tx) error {
				for _, id := range append(with, h.ID) {
					if _, err := outbox.Remove(tx, id); err != nil {
						return err
					}
				}
				return nil
			}))
			more = true
			break
		}
	}
	for _, m := range w.sent[begun:] {
		took = append(took, say(m))
	}
	return took
}

// say is a message in a line.
func say(m channel.Message) string {
	text := ""
	switch m.Kind {
	case channel.Single:
		text = m.Alarms[0].EventType + " " + m.Alarms[0].AlarmKey
		if m.Alarms[0].Escalation > 0 {
			text += fmt.Sprintf(" %d", m.Alarms[0].Escalation)
		}
	case channel.Digest:
		n := 0
		for _, c := range m.Counts {
			n += c
		}
		text = fmt.Sprintf("digest of %d", n)
	case channel.MuteEnd:
		text = fmt.Sprintf("end of mute, %d active", len(m.Alarms))
	default:
		text = string(m.Kind)
	}
	return text + " > " + strings.Join(m.Recipients, " ")
}

func (w *world) want(when string, got []string, want ...string) {
	w.Helper()
	if !slices.Equal(got, want) {
		w.Errorf("%s: notified %q, want %q", when, got, want)
	}
}
