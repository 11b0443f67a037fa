package notify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"weir/model"
	"weir/notify/channel"
	"weir/store"
	"weir/store/notices"
)

// naive says what people are to be notified of, as docs/notifications.md tells it and without regard to how it is done: it goes over everything at every step.
type naive struct {
	wall      time.Time     // of the system clock
	steady    time.Duration // that no step of it changes
	policies  []naivePolicy
	mutes     []*naiveMute
	alarms    []*naiveAlarm
	throttled int
	said      []string
}

type naivePolicy struct {
	token              string
	enabled            bool
	throttle, escalate time.Duration
	most               int
	rules              [][3]string // severity, channel, person
}

type naiveMute struct {
	token, key, device, severity string
	until                        time.Time
	ended                        bool
	held                         int
}

type naiveAlarm struct {
	key, device, severity string
	active, acked         bool
	notified              bool
	last                  time.Duration // when it was notified, of the steady time
	count, level          int
	heldBy                *naiveMute
}

// people are whom the policies that may tell notify of a severity, each over a channel once.
func (n *naive) people(severity string, may func(*naivePolicy) bool) (all [][2]string) {
	for i := range n.policies {
		p := &n.policies[i]
		var of [][2]string
		for _, r := range p.rules {
			if r[0] == severity || r[0] == "*" {
				of = append(of, [2]string{r[1], r[2]})
			}
		}
		if !p.enabled || len(of) == 0 || !may(p) {
			continue
		}
		for _, to := range of {
			if !slices.Contains(all, to) {
				all = append(all, to)
			}
		}
	}
	return all
}

func (n *naive) mute(a *naiveAlarm) *naiveMute {
	for _, m := range n.mutes {
		if !m.ended && n.wall.Before(m.until) && cmp.Or(m.key, a.key) == a.key && cmp.Or(m.device, a.device) == a.device && cmp.Or(m.severity, a.severity) == a.severity {
			return m
		}
	}
	return nil
}

func (n *naive) say(what string, a *naiveAlarm, to [][2]string) {
	a.notified, a.last = true, n.steady
	a.count++
	for _, x := range to {
		n.said = append(n.said, fmt.Sprintf("%s %s %s > %s", what, a.key, a.severity, x[1]))
	}
}

func (n *naive) move(a *naiveAlarm, m model.AlarmMove, severity string) {
	if severity != "" {
		a.severity = severity
	}
	switch m {
	case model.AlarmRaised:
		a.active, a.acked, a.level = true, false, 0
	case model.AlarmWasCleared:
		a.active = false
		return
	case model.AlarmAcknowledged:
		a.acked = true
		return
	case model.AlarmDeescalated:
		return
	}
	to := n.people(a.severity, func(p *naivePolicy) bool {
		soon := m == model.AlarmRaised && a.notified && n.steady-a.last < p.throttle
		if soon {
			n.throttled++
		}
		return !soon
	})
	if len(to) == 0 {
		return
	}
	if by := n.mute(a); by != nil {
		by.held, a.heldBy = by.held+1, by
		return
	}
	n.say(string(m), a, to)
}

// end ends a mute, and tells each person at once of all that it held back.
func (n *naive) end(m *naiveMute) {
	m.ended = true
	told := map[[2]string][]string{}
	for _, a := range n.alarms {
		if a.heldBy != m {
			continue
		}
		a.heldBy = nil
		if !a.active || a.acked {
			continue
		}
		if a.heldBy = n.mute(a); a.heldBy != nil {
			continue
		}
		to := n.people(a.severity, func(*naivePolicy) bool { return true })
		if len(to) > 0 {
			n.say("", a, nil)
		}
		for _, x := range to {
			told[x] = append(told[x], a.key+" "+a.severity)
		}
	}
	for x, alarms := range told {
		slices.Sort(alarms)
		n.said = append(n.said, fmt.Sprintf("END %d held %s > %s", m.held, strings.Join(alarms, ","), x[1]))
	}
}

func (n *naive) sweep() {
	for _, m := range n.mutes {
		if !m.ended && !n.wall.Before(m.until) {
			n.end(m)
		}
	}
	for _, a := range n.alarms {
		if !a.active || a.acked || !a.notified {
			continue
		}
		to := n.people(a.severity, func(p *naivePolicy) bool {
			return p.escalate > 0 && n.steady-a.last >= p.escalate && a.level < p.most
		})
		if len(to) == 0 || n.mute(a) != nil {
			continue
		}
		a.level++
		n.say(fmt.Sprintf("RENOTIFIED %d", a.level), a, to)
	}
}

// heard is a message as naive says it.
func heard(m channel.Message) string {
	to := " > " + strings.Join(m.Recipients, " ")
	var alarms []string
	for _, a := range m.Alarms {
		alarms = append(alarms, a.AlarmKey+" "+a.Severity)
	}
	slices.Sort(alarms)
	switch m.Kind {
	case channel.Single:
		what := m.Alarms[0].EventType
		if n := m.Alarms[0].Escalation; n > 0 {
			what += fmt.Sprintf(" %d", n)
		}
		return what + " " + alarms[0] + to
	case channel.MuteEnd:
		held := "?"
		if _, rest, ok := strings.Cut(m.Note, "It held back "); ok {
			held, _, _ = strings.Cut(rest, " ")
		}
		return "END " + held + " held " + strings.Join(alarms, ",") + to
	}
	return string(m.Kind) + to
}

// TestPeopleAreNotifiedAsADescriptionSays: whatever policies and mutes there are, whatever becomes of alarms and of the clock, over restarts: the messages are those
// of a description that is too simple to be wrong.
func TestPeopleAreNotifiedAsADescriptionSays(t *testing.T) {
	t.Parallel()
	reached := map[string]int{}
	rapid.Check(t, func(r *rapid.T) { describedAndDone(t, r, reached) })
	if t.Failed() {
		return
	}
	t.Logf("reached %v", reached)
	for _, what := range []string{"RAISED", "ESCALATED", "RENOTIFIED", "END", "throttled", "held"} {
		if reached[what] == 0 {
			t.Errorf("no case comes to %s: %v", what, reached)
		}
	}
}

func describedAndDone(t *testing.T, r *rapid.T, reached map[string]int) {
	settings := Settings{PerMinute: 10_000}
	w := newWorld(t, settings)
	w.wall = time.Now().UTC().Truncate(time.Second).Add(240 * time.Hour) // a mute ends in what is to come on the system's clock, too
	n := &naive{wall: w.wall}
	w.must(w.db.Write(w.Context(), store.Results, func(tx store.Tx) error {
		if _, err := tx.Exec(`INSERT INTO device_types (id, tenant_id, created_at, updated_at, token) VALUES (1, ?, 1, 1, 't')`, w.tenant()); err != nil {
			return err
		}
		_, err := tx.Exec(`INSERT INTO devices (id, tenant_id, created_at, updated_at, token, type_id) VALUES (7, ?1, 1, 1, 'pump', 1), (8, ?1, 1, 1, 'fan', 1)`, w.tenant())
		return err
	}))
	severities := model.AlarmSeverities()
	for i, key := range []string{"heat", "noise", "leak"} {
		device := []string{"pump", "fan", "pump"}[i]
		n.alarms = append(n.alarms, &naiveAlarm{key: key, device: device})
		w.moves[key] = &model.Alarm{TenantID: w.tenant(), Token: "alarm-" + key, DeviceID: map[string]int64{"pump": 7, "fan": 8}[device], Device: device, Key: key}
	}
	w.channel("ops")
	w.channel("boss")
	for i := range rapid.IntRange(1, 3).Draw(r, "policies") {
		p := naivePolicy{token: fmt.Sprintf("p%d", i), enabled: true, most: 5,
			throttle: time.Duration(rapid.SampledFrom([]int{0, 60, 300, 3600}).Draw(r, "throttle")) * time.Second,
			escalate: time.Duration(rapid.SampledFrom([]int{0, 60, 600}).Draw(r, "escalate")) * time.Second}
		fields := store.Patch{"throttleSeconds": int64(p.throttle / time.Second), "escalateAfterSeconds": int64(p.escalate / time.Second)}
		if most := rapid.SampledFrom([]int{-1, 0, 1, 3}).Draw(r, "most"); most >= 0 {
			p.most, fields["maxEscalations"] = most, int64(most)
		}
		var rules []string
		for range rapid.IntRange(1, 3).Draw(r, "rules") {
			rule := [3]string{rapid.SampledFrom([]string{"*", "CRITICAL", "MAJOR", "MINOR"}).Draw(r, "severity"), rapid.SampledFrom([]string{"ops", "boss"}).Draw(r, "channel"),
				rapid.SampledFrom([]string{"ann", "bob"}).Draw(r, "person")}
			p.rules, rules = append(p.rules, rule), append(rules, strings.Join(rule[:], " "))
		}
		w.policy(p.token, fields, rules...)
		n.policies = append(n.policies, p)
	}
	pass := func(d time.Duration) {
		w.pass(d)
		n.wall, n.steady = w.wall, n.steady+d
	}
	until := func(m *naiveMute) string { return m.until.Format(time.RFC3339) }
	var history []string
	throttledBefore := 0.0
	for range rapid.IntRange(20, 50).Draw(r, "steps") {
		step := rapid.SampledFrom([]string{"move", "move", "move", "move", "pass", "pass", "sweep", "sweep", "mute", "mute", "unmute", "unmute", "longer", "policy", "clock", "restart"}).Draw(r, "step")
		switch step {
		case "move":
			a := rapid.SampledFrom(n.alarms).Draw(r, "alarm")
			moves := []model.AlarmMove{model.AlarmWasCleared}
			at := slices.Index(severities, a.severity)
			if !a.acked {
				moves = append(moves, model.AlarmAcknowledged)
			}
			if at > 0 {
				moves = append(moves, model.AlarmEscalated)
			}
			if at < len(severities)-1 {
				moves = append(moves, model.AlarmDeescalated)
			}
			if !a.active {
				moves = []model.AlarmMove{model.AlarmRaised}
			}
			m, severity := rapid.SampledFrom(moves).Draw(r, "move"), ""
			switch m {
			case model.AlarmRaised:
				severity = rapid.SampledFrom(severities).Draw(r, "of")
			case model.AlarmEscalated:
				severity = severities[rapid.IntRange(0, at-1).Draw(r, "graver")]
			case model.AlarmDeescalated:
				severity = severities[rapid.IntRange(at+1, len(severities)-1).Draw(r, "less")]
			}
			step += fmt.Sprintf(" %s %s %s", a.key, m, severity)
			n.move(a, m, severity)
			w.move(a.key, m, severity)
		case "pass":
			d := time.Duration(rapid.SampledFrom([]int{1, 59, 60, 241, 600, 3600}).Draw(r, "seconds")) * time.Second
			step += " " + d.String()
			pass(d)
		case "sweep":
			n.sweep()
			w.must(w.n.sweep(w.Context(), true))
		case "mute":
			pick := func(of ...string) string { return rapid.SampledFrom(append(of, "", "", "", "")).Draw(r, "matcher") }
			m := &naiveMute{token: fmt.Sprintf("m%d", len(n.mutes)), key: pick("heat", "noise"), device: pick("pump", "fan"), severity: pick("CRITICAL", "MAJOR"),
				until: n.wall.Add(time.Duration(rapid.SampledFrom([]int{60, 600, 3600}).Draw(r, "for")) * time.Second)}
			step += fmt.Sprintf(" %+v", *m)
			n.mutes = append(n.mutes, m)
			_, err := w.n.Mutes.Create(w.Context(), w.by(), store.Patch{"token": m.token, "alarmKey": m.key, "deviceToken": m.device, "severity": m.severity, "until": until(m)})
			w.must(err)
		case "unmute", "longer":
			open := slices.DeleteFunc(slices.Clone(n.mutes), func(m *naiveMute) bool { return m.ended })
			if len(open) == 0 {
				continue
			}
			m := rapid.SampledFrom(open).Draw(r, "which")
			var err error
			if step += " " + m.token; strings.HasPrefix(step, "longer") {
				m.until = n.wall.Add(time.Duration(rapid.SampledFrom([]int{-1, 600}).Draw(r, "for")) * time.Second)
				_, err = w.n.Mutes.Update(w.Context(), w.by(), m.token, store.Patch{"until": until(m)})
			} else {
				n.end(m)
				_, err = w.n.Mutes.Delete(w.Context(), w.by(), m.token)
			}
			w.must(err)
		case "policy":
			p := &n.policies[rapid.IntRange(0, len(n.policies)-1).Draw(r, "which")]
			p.enabled = !p.enabled
			step += fmt.Sprintf(" %s %t", p.token, p.enabled)
			_, err := w.n.Policies.Update(w.Context(), w.by(), p.token, store.Patch{"enabled": p.enabled})
			w.must(err)
		case "clock":
			d := time.Duration(rapid.SampledFrom([]int{-7200, -30, 30, 7200}).Draw(r, "seconds")) * time.Second
			step += " " + d.String()
			w.wall = w.wall.Add(d)
			n.wall = w.wall
		case "restart":
			off := time.Duration(rapid.SampledFrom([]int{0, 30, 7200}).Draw(r, "off")) * time.Second
			step += " after " + off.String()
			w.must(w.n.save(w.Context()))
			throttledBefore += testutil.ToFloat64(w.n.m.throttled)
			w.wall, w.mono = w.wall.Add(off), 0
			n.wall, n.steady = w.wall, n.steady+off
			w.start(settings)
			w.must(w.n.save(w.Context())) // as Run does at first: what the clock says then is how long Weir was off
		}
		history = append(history, step)
		begun := len(w.sent)
		w.drain()
		got := []string{}
		for _, m := range w.sent[begun:] {
			got = append(got, heard(m))
		}
		slices.Sort(got)
		slices.Sort(n.said)
		fault := func(what string, got, want any) {
			t.Helper()
			r.Fatalf("%s: %v, want %v, of the policies %+v after\n%s", what, got, want, n.policies, strings.Join(history, "\n"))
		}
		if !slices.Equal(got, n.said) {
			fault("notified", fmt.Sprintf("%q", got), fmt.Sprintf("%q", n.said))
		}
		for _, s := range n.said {
			what, _, _ := strings.Cut(s, " ")
			reached[what]++
		}
		n.said = nil
		if got := throttledBefore + testutil.ToFloat64(w.n.m.throttled); got != float64(n.throttled) {
			fault("throttled", got, n.throttled)
		}
		states, err := w.n.States(w.Context(), w.by(), &notices.Filter{})
		w.must(err)
		for _, a := range n.alarms {
			i := slices.IndexFunc(states, func(s *notices.State) bool { return s.AlarmKey == a.key })
			if i < 0 {
				if a.notified || a.heldBy != nil {
					fault("the state of "+a.key, "none", a)
				}
				continue
			}
			s := states[i]
			is := fmt.Sprintf("%s count %d level %d acknowledged %t active %t held %t", s.Severity, s.NotifyCount, s.Level, s.AcknowledgedAt != nil, s.ClearedAt == nil, s.HeldBy != 0)
			if want := fmt.Sprintf("%s count %d level %d acknowledged %t active %t held %t", a.severity, a.count, a.level, a.acked, a.active, a.heldBy != nil); is != want {
				fault("the state of "+a.key, is, want)
			}
			if a.heldBy != nil {
				reached["held"]++
			}
		}
	}
	reached["throttled"] += n.throttled
}
