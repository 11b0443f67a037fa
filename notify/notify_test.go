package notify

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/delivery"
	"weir/internal/test/conformance"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/notify/channel"
	"weir/store"
	"weir/store/notices"
)

func TestAnAlarmIsToldByEveryPolicyOnceToEachChannelAndPerson(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Settings{})
	w.channel("ops")
	w.channel("boss")
	w.policy("a", nil, "CRITICAL ops ann", "* ops bob", "MINOR boss eve")
	w.policy("b", nil, "* ops bob", "CRITICAL boss eve")
	w.policy("off", store.Patch{"enabled": false}, "* ops zoe")
	w.move("hot", model.AlarmRaised, "CRITICAL")
	w.want("critical", w.drain(), "RAISED hot > ann", "RAISED hot > bob", "RAISED hot > eve")
	w.move("hot", model.AlarmDeescalated, "MAJOR")
	w.move("hot", model.AlarmAcknowledged, "")
	w.move("hot", model.AlarmWasCleared, "")
	w.want("the other moves", w.drain())
	w.move("cold", model.AlarmRaised, "WARNING")
	w.want("warning", w.drain(), "RAISED cold > bob")
	w.move("cold", model.AlarmEscalated, "MINOR")
	w.want("graver", w.drain(), "ESCALATED cold > bob", "ESCALATED cold > eve")

	_, err := w.n.Channels.Delete(w.Context(), w.by(), "boss")
	w.must(err)
	w.move("third", model.AlarmRaised, "CRITICAL")
	w.want("without a channel", w.drain(), "RAISED third > ann", "RAISED third > bob")
}

func TestRowsAreUniqueSoThatAReplayTellsNothingTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Settings{})
	w.channel("ops")
	w.policy("a", nil, "* ops ann")
	e := w.event("hot", model.AlarmRaised, "MAJOR")
	for range 3 {
		w.must(w.db.Write(t.Context(), store.Results, func(tx store.Tx) error { return w.n.Moved(tx, []model.AlarmEvent{e}) }))
	}
	w.want("the same move three times", w.drain(), "RAISED hot > ann")
}

func TestAnAlarmThatFlapsForADayIsToldAsOftenAsTheThrottleAllows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Settings{})
	w.channel("ops")
	w.policy("a", store.Patch{"throttleSeconds": int64(3600)}, "* ops ann")
	notified := 0
	for minute := range 24 * 60 {
		if minute == 700 { // the clock is set back by a day, which changes nothing
			w.wall = w.wall.Add(-24 * time.Hour)
		}
		w.move("hot", model.AlarmRaised, "MAJOR")
		notified += len(w.drain())
		w.move("hot", model.AlarmWasCleared, "")
		w.pass(time.Minute)
	}
	if notified != 24 {
		t.Errorf("notified %d times in a day, want 24", notified)
	}
}

func TestEscalationGoesOnOverARestartAndStopsAtAnAcknowledgement(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Settings{})
	w.channel("ops")
	w.policy("a", store.Patch{"escalateAfterSeconds": int64(600), "maxEscalations": int64(4)}, "* ops ann")
	sweep := func() []string {
		w.Helper()
		w.must(w.n.sweep(t.Context(), true))
		return w.drain()
	}
	w.move("hot", model.AlarmRaised, "MAJOR")
	w.want("raised", w.drain(), "RAISED hot > ann")
	w.pass(599 * time.Second)
	w.want("a second before", sweep())
	w.pass(time.Second)
	w.want("in time", sweep(), "RENOTIFIED hot 1 > ann")
	w.want("again at once", sweep())

	w.must(w.n.save(t.Context()))
	w.wall, w.mono = w.wall.Add(5*time.Hour), time.Second // Weir is off for five hours
	w.start(Settings{})
	w.want("after a start, one level", sweep(), "RENOTIFIED hot 2 > ann")
	w.pass(599 * time.Second)
	w.want("not before its time", sweep())
	w.wall = w.wall.Add(-24 * time.Hour)
	w.want("the clock is set back", sweep())
	w.pass(time.Second)
	w.want("in time by the steady clock", sweep(), "RENOTIFIED hot 3 > ann")

	w.pass(599 * time.Second)
	w.move("hot", model.AlarmAcknowledged, "")
	w.pass(time.Hour)
	w.want("acknowledged a second before its turn", sweep())
	w.move("hot", model.AlarmWasCleared, "")
	w.move("hot", model.AlarmRaised, "MAJOR")
	w.want("raised again", w.drain(), "RAISED hot > ann")
	for i := range 6 {
		w.pass(10 * time.Minute)
		if got := sweep(); i < 4 != (len(got) == 1) {
			t.Errorf("escalation %d of at most 4: %q", i+1, got)
		}
	}
}

func TestAThousandAlarmsAtOnceAreOneDigestTheGravestFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Settings{})
	w.channel("ops")
	w.policy("a", nil, "* ops ann")
	severities := model.AlarmSeverities()
	var all []model.AlarmEvent
	for i := range 1000 {
		all = append(all, w.event(fmt.Sprintf("k%03d", i), model.AlarmRaised, severities[4-i%5]))
	}
	w.must(w.db.Write(t.Context(), store.Results, func(tx store.Tx) error { return w.n.Moved(tx, all) }))
	w.want("at once", w.drain(), "digest of 1000 > ann")
	m := w.sent[0]
	if len(m.Alarms) != 50 || m.Counts["CRITICAL"] != 200 || m.Counts["INDETERMINATE"] != 200 || slices.ContainsFunc(m.Alarms, func(a channel.Alarm) bool { return a.Severity != "CRITICAL" }) {
		t.Errorf("%d alarms, %v", len(m.Alarms), m.Counts)
	}
	for i := range 40 {
		w.move(fmt.Sprintf("late%d", i), model.AlarmRaised, "MINOR")
	}
	w.want("more within the minute", w.drain())
	w.pass(time.Minute)
	w.want("a minute later", w.drain(), "digest of 40 > ann")
	w.pass(time.Minute)
	w.move("one", model.AlarmRaised, "MINOR")
	w.want("a single one", w.drain(), "RAISED one > ann")
}

func TestAServerThatIsAwayForANightGetsWhatStillMatters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Settings{})
	w.channel("ops")
	w.policy("a", nil, "* ops ann")
	w.away = true
	for i := range 10 {
		w.move(fmt.Sprintf("k%d", i), model.AlarmRaised, "MAJOR")
	}
	for i := range 8 {
		w.move(fmt.Sprintf("k%d", i), model.AlarmWasCleared, "")
	}
	w.want("away", w.drain())
	w.pass(9 * time.Hour)
	w.away = false
	w.want("back", w.drain(), "RAISED k8 > ann", "RAISED k9 > ann")
}

func TestTheKeyOfADigestThatIsRepeatedIsTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Settings{PerMinute: 2})
	w.channel("ops")
	w.policy("a", nil, "* ops ann")
	var keys []string
	w.refuse = func(m channel.Message) error {
		keys = append(keys, m.Key)
		if len(keys) == 1 {
			return delivery.Fail(delivery.Unreachable, "no answer came, though it may have been taken")
		}
		return nil
	}
	for i := range 5 {
		w.move(fmt.Sprintf("k%d", i), model.AlarmRaised, "MAJOR")
	}
	w.drain()
	w.move("more", model.AlarmRaised, "MAJOR")
	w.want("the second attempt", w.drain(), "digest of 6 > ann")
	if len(keys) != 2 || keys[0] != keys[1] {
		t.Errorf("keys %q", keys)
	}
}

func TestAMuteHoldsMessagesBackAndTellsAtItsEndOfWhatIsStillActive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Settings{})
	w.channel("ops")
	w.policy("a", store.Patch{"escalateAfterSeconds": int64(600)}, "* ops ann", "CRITICAL ops bob")
	_, err := w.n.Mutes.Create(t.Context(), w.by(), store.Patch{"token": "work", "deviceToken": "pump", "severity": "MAJOR", "until": time.Now().Add(1000 * time.Hour).UTC().Format(time.RFC3339), "reason": "new pump"})
	w.must(err)
	w.move("a", model.AlarmRaised, "MAJOR")
	w.move("b", model.AlarmRaised, "MAJOR")
	w.move("c", model.AlarmRaised, "CRITICAL")
	w.want("muted", w.drain(), "RAISED c > ann", "RAISED c > bob")
	w.move("b", model.AlarmWasCleared, "")
	w.pass(20 * time.Minute)
	w.must(w.n.sweep(t.Context(), false))
	w.want("what is muted does not escalate", w.drain(), "RENOTIFIED c 1 > ann", "RENOTIFIED c 1 > bob")
	w.wall = time.Now().Add(1001 * time.Hour)
	w.must(w.n.sweep(t.Context(), false))
	w.want("its end", w.drain(), "end of mute, 1 active > ann")
	if note := w.sent[len(w.sent)-1].Note; !strings.Contains(note, "held back 2 ") || !strings.Contains(note, "new pump") {
		t.Errorf("the end says %q", note)
	}
	rows, _, err := w.n.Mutes.List(t.Context(), w.by(), store.Page{})
	w.must(err)
	if len(rows) != 1 || rows[0].HeldBack != 2 || rows[0].EndedAt == nil || rows[0].By == "" {
		t.Errorf("the mute is %+v", rows[0])
	}
	w.move("d", model.AlarmRaised, "MAJOR")
	w.want("after it", w.drain(), "RAISED d > ann")
}

func TestAnotherMuteGoesOnHoldingBackWhilePoliciesAreDisabled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Settings{})
	w.channel("ops")
	w.policy("a", nil, "* ops ann")
	for _, token := range []string{"first", "second"} {
		_, err := w.n.Mutes.Create(t.Context(), w.by(), store.Patch{"token": token, "until": time.Now().Add(1000 * time.Hour).UTC().Format(time.RFC3339)})
		w.must(err)
	}
	w.move("hot", model.AlarmRaised, "MAJOR")
	enable := func(on bool) {
		t.Helper()
		_, err := w.n.Policies.Update(t.Context(), w.by(), "a", store.Patch{"enabled": on})
		w.must(err)
	}
	end := func(token string) {
		t.Helper()
		_, err := w.n.Mutes.Delete(t.Context(), w.by(), token)
		w.must(err)
	}
	enable(false)
	end("first")
	enable(true)
	w.want("held back", w.drain())
	end("second")
	w.want("the end of the second", w.drain(), "end of mute, 1 active > ann")
}

func TestStatesEndAWeekAfterTheirAlarm(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Settings{})
	w.channel("ops")
	w.policy("a", nil, "* ops ann")
	w.move("a", model.AlarmRaised, "MAJOR")
	w.move("b", model.AlarmRaised, "MAJOR")
	w.move("b", model.AlarmWasCleared, "")
	for _, day := range []struct {
		pass time.Duration
		left int
	}{{167 * time.Hour, 2}, {2 * time.Hour, 1}, {1000 * time.Hour, 1}} {
		w.pass(day.pass)
		w.must(w.n.sweep(t.Context(), true))
		left, err := w.n.States(t.Context(), w.by(), &notices.Filter{})
		w.must(err)
		if len(left) != day.left {
			t.Errorf("%d states are left, want %d", len(left), day.left)
		}
	}
}

func TestChannelSecretsAndRulesFollowTheUpdateRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Settings{})
	ctx, by := t.Context(), w.by()
	row, err := w.n.Channels.Create(ctx, by, store.Patch{"token": "ops", "channelType": "webhook", "config": `{"url":"https://hooks.example.com/a"}`, "enabled": true, "secret": "one"})
	w.must(err)
	secret := func(token string) string {
		t.Helper()
		var text string
		w.must(w.db.Read(ctx, func(tx store.Tx) error {
			row, err := w.n.Channels.Must(tx, by.TenantID, token)
			if err == nil {
				text, _, err = w.n.Channels.Reveal(tx, row)
			}
			return err
		}))
		return text
	}
	update := func(p store.Patch) {
		t.Helper()
		_, err := w.n.Channels.Update(ctx, by, "ops", p)
		w.must(err)
	}
	update(store.Patch{"name": "Operations"})
	if secret("ops") != "one" {
		t.Error("an update without a secret changes it")
	}
	update(store.Patch{"secret": "two"})
	_, err = w.n.Channels.Update(ctx, by, "ops", store.Patch{"secret": "a\nb"})
	fixture.Refused(t, err, model.CodeInvalidInput, "secret")
	if secret("ops") != "two" {
		t.Error("a value does not replace the secret")
	}
	for _, none := range []any{nil, ""} {
		update(store.Patch{"secret": none})
		if secret("ops") != "" {
			t.Errorf("%v does not delete the secret", none)
		}
		update(store.Patch{"secret": "three"})
	}
	conformance.Shown(t, "S3-057")

	p := w.policy("p", nil, "CRITICAL ops ann", "* ops bob")
	rules := func() (all []string) {
		t.Helper()
		rows, err := w.n.Policies.ByToken(ctx, by, []string{"p"})
		w.must(err)
		views, err := RulesOf(rows[0])
		w.must(err)
		for _, v := range views {
			all = append(all, fmt.Sprintf("%s %s %d", v.ID, v.Severity, v.ChannelID))
		}
		return all
	}
	before := rules()
	_, err = w.n.Policies.Update(ctx, by, "p", store.Patch{"name": "Pumps", "throttleSeconds": int64(5)})
	w.must(err)
	if !slices.Equal(rules(), before) || len(before) != 2 {
		t.Errorf("rules %q became %q", before, rules())
	}
	conformance.Shown(t, "S3-073")
	if _, err = w.n.Channels.Rename(ctx, by, "ops", "operations"); err != nil {
		t.Fatal(err)
	}
	if secret("operations") != "three" || !slices.Equal(rules(), before) {
		t.Errorf("after a rename: %q, %q", secret("operations"), rules())
	}
	w.move("hot", model.AlarmRaised, "CRITICAL")
	w.want("after a rename", w.drain(), "RAISED hot > ann", "RAISED hot > bob")
	conformance.Shown(t, "S3-088")
	_, err = w.n.Policies.Update(ctx, by, "p", store.Patch{"rules": []any{map[string]any{"severity": "MINOR", "channelToken": "operations"}}})
	w.must(err)
	if got := rules(); len(got) != 1 || got[0] != fmt.Sprintf("%d-3 MINOR %d", p.ID, row.ID) {
		t.Errorf("a list gives %q", got)
	}
	for _, none := range []any{nil, []any{}} {
		_, err = w.n.Policies.Update(ctx, by, "p", store.Patch{"rules": none})
		w.must(err)
		if got := rules(); len(got) != 0 {
			t.Errorf("%v leaves %q", none, got)
		}
		_, err = w.n.Policies.Update(ctx, by, "p", store.Patch{"rules": []any{map[string]any{"severity": "*", "channelToken": "operations"}}})
		w.must(err)
	}
	conformance.Shown(t, "S3-074")
	_, err = w.n.Policies.Create(ctx, by, store.Patch{"token": "q", "enabled": true, "rules": []any{}, "deviceTypeToken": "pump"})
	fixture.Refused(t, err, model.CodeInvalidInput, "deviceTypeToken")
	conformance.Shown(t, "S3-075")
	if _, err = w.n.Policies.Rename(ctx, by, "p", "r"); err == nil {
		t.Error("a policy is renamed")
	}
	conformance.Shown(t, "S3-094")
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Settings{})
	ctx, by := t.Context(), w.by()
	w.channel("ops")
	_, err := w.n.Channels.Create(ctx, by, store.Patch{"token": "x", "channelType": "pigeon", "config": `{}`, "enabled": true})
	fixture.Refused(t, err, model.CodeInvalidInput, "channelType")
	_, err = w.n.Channels.Create(ctx, by, store.Patch{"token": "x", "channelType": "webhook", "config": `{"url":"https://a.example.com","auth":"bearer"}`, "enabled": true})
	fixture.Refused(t, err, model.CodeInvalidInput, "secret")
	for text, rule := range map[string]map[string]any{
		"rules[0].severity":                                 {"severity": "LOUD", "channelToken": "ops"},
		"rules[0].channelToken":                             {"severity": "*", "channelToken": "nowhere"},
		"rules[0].recipients: the recipients must be":       {"severity": "*", "channelToken": "ops", "recipients": "ann"},
		"unknown field (known are channelToken, recipients": {"severity": "*", "channelToken": "ops", "recipient": "[]"},
	} {
		_, err := w.n.Policies.Create(ctx, by, store.Patch{"token": "p", "enabled": true, "rules": []any{rule}})
		fixture.Refused(t, err, model.CodeInvalidInput, text)
	}
	_, err = w.n.Policies.Create(ctx, by, store.Patch{"token": "p", "enabled": true, "rules": []any{}, "throttleSeconds": int64(-1)})
	fixture.Refused(t, err, model.CodeInvalidInput, "throttleSeconds")
	_, err = w.n.Mutes.Create(ctx, by, store.Patch{"token": "m", "until": "2020-01-01T00:00:00Z"})
	fixture.Refused(t, err, model.CodeInvalidInput, "until")
	for i := range 7 {
		_, err := w.n.Test(ctx, by, "ops", "")
		if i == 6 {
			fixture.Refused(t, err, model.CodeThrottled, "6 times a minute")
		} else if err != nil {
			t.Error(err)
		}
	}
}
