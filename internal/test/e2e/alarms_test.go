package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// alarmOf is an item of alarms.
type alarmOf struct {
	ID, Token, OriginatorType, OriginatorID, AlarmKey, MetricKey, State, Severity string
	OriginatorToken, RaisedTime, ClearedTime, AcknowledgedTime, AcknowledgedBy    *string
	Acknowledged                                                                  bool
	LastValue                                                                     *float64
	Message, Metadata, DeletedAt, CreatedAt, UpdatedAt                            *string
}

const alarmFields = `id token originatorType originatorId originatorToken alarmKey metricKey state acknowledged severity raisedTime clearedTime acknowledgedTime
	acknowledgedBy lastValue message metadata deletedAt createdAt updatedAt`

// alarms returns the alarms that further criteria select.
func (tn *tenant) alarms(criteria string) []alarmOf {
	tn.t.Helper()
	var out struct {
		Alarms struct {
			Results    []alarmOf
			Pagination struct{ TotalRecords int }
		}
	}
	tn.devices(`{alarms(criteria:{pageNumber:1,pageSize:100`+criteria+`}){results{`+alarmFields+`} pagination{totalRecords}}}`, nil).into(tn.t, &out)
	if n := out.Alarms.Pagination.TotalRecords; n != len(out.Alarms.Results) {
		tn.t.Errorf("%d of %d", len(out.Alarms.Results), n)
	}
	return out.Alarms.Results
}

// becomes waits until the alarm of a device with the key is in the state, and returns it.
func (tn *tenant) becomes(device, key, state, severity string) (a alarmOf) {
	tn.t.Helper()
	poll.Until(tn.t, key+" "+state, func() error {
		as := tn.alarms(fmt.Sprintf(`,originatorType:"device",originator:%q,alarmKey:%q`, device, key))
		if len(as) != 1 || as[0].State != state || as[0].Severity != severity {
			return fmt.Errorf("%+v", as)
		}
		a = as[0]
		return nil
	})
	return a
}

type alarmEvent struct {
	EventType, AlarmToken, OriginatorToken, AlarmKey, State, Severity string
	PreviousSeverity, AcknowledgedBy                                  *string
	Acknowledged                                                      bool
}

const eventFields = `eventType alarmToken originatorToken alarmKey state severity previousSeverity acknowledged acknowledgedBy`

// alarmHistory are the types of the events of an alarm, newest first.
func (tn *tenant) alarmHistory(token string) (types []string) {
	tn.t.Helper()
	var out struct {
		AlarmHistory struct{ Results []alarmEvent }
	}
	tn.devices(fmt.Sprintf(`{alarmHistory(alarmToken:%q,pageNumber:1,pageSize:100){results{%s} pagination{totalRecords}}}`, token, eventFields), nil).into(tn.t, &out)
	for _, e := range out.AlarmHistory.Results {
		types = append(types, e.EventType)
	}
	return types
}

// heardAlarm is the next event of a stream.
func (tn *tenant) heardAlarm(s *testweir.Socket, within time.Duration) (e alarmEvent, err error) {
	m, err := s.Next(within)
	if err != nil {
		return e, err
	}
	var out struct {
		Data struct{ AlarmStream alarmEvent }
	}
	if err := json.Unmarshal(m.Payload, &out); m.Type != "next" || err != nil {
		tn.t.Fatalf("%+v %s %v", m, m.Payload, err)
	}
	return out.Data.AlarmStream, nil
}

func alarms(t *testing.T, w *world) {
	tn := w.tenant(t, "alarms")
	rule := func(name, severity string, limit float64, key string) string {
		return above(name, "temp", limit, fmt.Sprintf(`,"severity":%q,"actions":[{"type":"raiseAlarm","raiseAlarm":{%s}}]`, severity, key))
	}
	tn.profile("p", map[string]string{"warm": rule("warm", "minor", 20, `"alarmKey":"heat"`), "hot": rule("hot", "critical", 30, `"alarmKey":"heat"`),
		"own": rule("own", "warning", 40, ""), "each": rule("each", "major", 50, `"alarmKeyTemplate":"'of-' + series"`)})
	tn.device("d", "p")
	tn.device("e", "p")
	c := tn.connect("d")
	c.send(measured("temp", "25"))
	a := tn.becomes("d", "heat", "ACTIVE", "MINOR")
	if a.OriginatorType != "device" || *a.OriginatorToken != "d" || a.MetricKey != "temp" || *a.LastValue != 25 || a.RaisedTime == nil || a.ClearedTime != nil ||
		a.Acknowledged || a.AcknowledgedBy != nil || a.Message != nil || a.Metadata != nil || a.DeletedAt != nil {
		t.Errorf("%+v", a)
	}
	c.send(measured("temp", "35"))
	tn.becomes("d", "heat", "ACTIVE", "CRITICAL")
	c.send(measured("temp", "60"))
	tn.becomes("d", "p/own", "ACTIVE", "WARNING")
	tn.becomes("d", "of-d", "ACTIVE", "MAJOR")
	e := tn.connect("e")
	e.send(measured("temp", "60"))
	tn.becomes("e", "of-e", "ACTIVE", "MAJOR")

	for criteria, want := range map[string]int{"": 6, `,state:"ACTIVE"`: 6, `,state:"CLEARED"`: 0, `,severity:"MAJOR"`: 2, `,alarmKey:"heat"`: 2,
		`,originatorType:"device",originator:"e"`: 3, `,originatorType:"device",originator:"nobody"`: 0, `,originatorType:"asset"`: 0, `,acknowledged:false`: 6,
		`,acknowledged:true`: 0, `,originatorType:"device",originator:"d",severity:"CRITICAL"`: 1} {
		if got := tn.alarms(criteria); len(got) != want {
			t.Errorf("%s: %d, want %d", criteria, len(got), want)
		}
	}
	for criteria, field := range map[string]string{`,originator:"d"`: "originatorType", `,state:"active"`: "state", `,severity:"critical"`: "severity"} {
		tn.refused(`{alarms(criteria:{pageNumber:1,pageSize:1`+criteria+`}){results{id}}}`, nil, "INVALID_INPUT", field)
	}
	alarmsOperated(t, tn, a, c)
	alarmsOfTheDeleted(t, tn)
}

// alarmsOperated: an operator acknowledges and clears, and the stream says so.
func alarmsOperated(t *testing.T, tn *tenant, a alarmOf, c *client) {
	s, err := tn.Dial("device-management", tn.token)
	if err == nil {
		err = s.Subscribe("1", `subscription{alarmStream(originatorType:"device",originator:"d",alarmKey:"heat"){`+eventFields+`}}`, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	for heard := false; !heard; { // the subscription stands once it hears
		tn.devices(fmt.Sprintf(`mutation{clearAlarm(token:%q){state acknowledged}}`, a.Token), nil)
		_, err := tn.heardAlarm(s, 50*time.Millisecond)
		if heard = err == nil; !heard && !errors.Is(err, testweir.ErrQuiet) {
			t.Fatal(err)
		}
		c.send(measured("temp", "5")) // what contributes ends, and is raised again
		c.send(measured("temp", "35"))
		tn.becomes("d", "heat", "ACTIVE", "CRITICAL")
	}
	for {
		if _, err := tn.heardAlarm(s, 200*time.Millisecond); errors.Is(err, testweir.ErrQuiet) {
			break
		}
	}
	var one struct{ AcknowledgeAlarm, Again alarmOf }
	tn.devices(fmt.Sprintf(`mutation{acknowledgeAlarm(token:%[1]q){%[2]s} again:acknowledgeAlarm(token:%[1]q){%[2]s}}`, a.Token, alarmFields), nil).into(t, &one)
	if x := one.AcknowledgeAlarm; !x.Acknowledged || x.AcknowledgedBy == nil || x.State != "ACTIVE" || *one.Again.AcknowledgedTime != *x.AcknowledgedTime {
		t.Errorf("%+v, again %+v", x, one.Again)
	}
	c.send(measured("temp", "25"))
	tn.becomes("d", "heat", "ACTIVE", "MINOR")
	c.send(measured("temp", "5"))
	if x := tn.becomes("d", "heat", "CLEARED", "MINOR"); !x.Acknowledged || x.ClearedTime == nil {
		t.Errorf("%+v", x)
	}
	c.send(measured("temp", "25"))
	if x := tn.becomes("d", "heat", "ACTIVE", "MINOR"); x.Acknowledged || x.Token != a.Token || x.ClearedTime != nil {
		t.Errorf("raised again %+v", x)
	}
	major := func(p *string) string {
		if p == nil {
			return ""
		}
		return " from " + *p
	}
	var got []string
	for range 4 {
		e, err := tn.heardAlarm(s, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %s %s%s %t", e.EventType, e.State, e.Severity, major(e.PreviousSeverity), e.Acknowledged))
	}
	if want := []string{"ACKNOWLEDGED ACTIVE CRITICAL true", "DEESCALATED ACTIVE MINOR from CRITICAL true", "CLEARED CLEARED MINOR true", "RAISED ACTIVE MINOR false"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if h := tn.alarmHistory(a.Token); len(h) < 6 || !slices.Equal(h[:4], []string{"RAISED", "CLEARED", "DEESCALATED", "ACKNOWLEDGED"}) || h[len(h)-1] != "RAISED" || h[len(h)-2] != "ESCALATED" {
		t.Errorf("%q", h)
	}
	var bulk struct {
		AcknowledgeAlarms struct {
			Acknowledged []alarmOf
			Refusals     []struct{ Token, Code, Reason string }
		}
		ClearAlarms struct {
			Cleared  []alarmOf
			Refusals []struct{ Code string }
		}
		None struct{ Cleared []alarmOf }
	}
	tokens, _ := json.Marshal([]string{a.Token, "nobody", a.Token, tn.alarms(`,alarmKey:"of-e"`)[0].Token})
	tn.devices(fmt.Sprintf(`mutation{acknowledgeAlarms(tokens:%[1]s){acknowledged{token acknowledged} refusals{token code reason}}
		clearAlarms(tokens:%[1]s){cleared{token state} refusals{code}} none:clearAlarms(tokens:[]){cleared{token}}}`, tokens), nil).into(t, &bulk)
	r := bulk.AcknowledgeAlarms.Refusals
	if len(bulk.AcknowledgeAlarms.Acknowledged) != 2 || len(bulk.ClearAlarms.Cleared) != 2 || bulk.ClearAlarms.Cleared[1].State != "CLEARED" ||
		len(r) != 1 || r[0].Token != "nobody" || r[0].Code != "ALARM_NOT_FOUND" || !strings.Contains(r[0].Reason, "nobody") || len(bulk.None.Cleared) != 0 {
		t.Errorf("%+v", bulk)
	}
	for _, verb := range []string{"acknowledgeAlarm", "clearAlarm"} {
		tn.refused(`mutation{`+verb+`(token:"nobody"){id}}`, nil, "NOT_FOUND", "nobody")
		tn.refused(`mutation($t:[String!]!){`+verb+`s(tokens:$t){refusals{code}}}`, map[string]any{"t": make([]string, 2001)}, "LIMIT_EXCEEDED", "tokens")
	}
	var journal struct {
		AuditEvents struct {
			Results []struct{ EntityLabel string }
		}
	}
	tn.devices(`{auditEvents(criteria:{pageNumber:1,pageSize:100,tableName:"alarms"}){results{entityLabel}}}`, nil).into(t, &journal)
	if js := journal.AuditEvents.Results; len(js) < 4 || js[0].EntityLabel == "" {
		t.Errorf("the journal has %+v", js)
	}
}

// alarmsOfTheDeleted: the alarms of a device go with it, and their history stays.
func alarmsOfTheDeleted(t *testing.T, tn *tenant) {
	left := tn.alarms(`,originatorType:"device",originator:"e",state:"ACTIVE"`)
	tn.devices(`mutation{deleteDevice(token:"e")}`, nil)
	if as := tn.alarms(`,originatorType:"device",originator:"e"`); len(as) != 0 || len(left) != 2 {
		t.Errorf("%+v are left of %+v", as, left)
	}
	if h := tn.alarmHistory(left[0].Token); !slices.Equal(h, []string{"CLEARED", "RAISED"}) {
		t.Errorf("%q", h)
	}
	var out struct{ AlarmsByToken, AlarmsByID []alarmOf }
	as := tn.alarms("")
	tn.devices(fmt.Sprintf(`{alarmsByToken(tokens:[%q,"nobody"]){id} alarmsById(ids:[%q,"999999"]){token}}`, as[0].Token, as[0].ID), nil).into(t, &out)
	if len(out.AlarmsByToken) != 1 || len(out.AlarmsByID) != 1 || out.AlarmsByID[0].Token != as[0].Token {
		t.Errorf("%+v", out)
	}
}
