package e2e_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/test/conformance"
	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

// letter is a mail as a mail server took it.
type letter struct {
	to, subject, text string
	envelope          []string // the recipients that the session named
}

// mailServer takes every mail and keeps it.
type mailServer struct {
	port string
	mu   sync.Mutex
	took []letter
	bad  []error
}

func startMailServer(t *testing.T) *mailServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	m := &mailServer{}
	_, m.port, _ = net.SplitHostPort(l.Addr().String())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if err := m.serve(c); err != nil {
					m.mu.Lock()
					m.bad = append(m.bad, err)
					m.mu.Unlock()
				}
			}()
		}
	}()
	return m
}

// serve speaks as much of RFC 5321 as taking a mail needs.
func (m *mailServer) serve(c net.Conn) error {
	in := bufio.NewReader(c)
	answer := "220 mail.example.com ESMTP"
	var to []string
	for {
		if _, err := io.WriteString(c, answer+"\r\n"); err != nil {
			return err
		}
		l, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		l = strings.TrimRight(l, "\r\n")
		switch verb, rest, _ := strings.Cut(l, " "); strings.ToUpper(verb) {
		case "EHLO":
			answer = "250-mail.example.com\r\n250 8BITMIME"
		case "RCPT":
			to, answer = append(to, rest), "250 2.1.5 Fine"
		case "DATA":
			if _, err := io.WriteString(c, "354 Go on\r\n"); err != nil {
				return err
			}
			var data strings.Builder
			for l := ""; l != ".\r\n"; data.WriteString(strings.TrimPrefix(l, ".")) {
				if l, err = in.ReadString('\n'); err != nil {
					return err
				}
			}
			if err := m.take(strings.TrimSuffix(data.String(), "\r\n"), to); err != nil {
				return err
			}
			to, answer = nil, "250 2.0.0 Queued"
		case "QUIT":
			_, err := io.WriteString(c, "221 Bye\r\n")
			return err
		default:
			answer = "250 2.1.0 Fine"
		}
	}
}

func (m *mailServer) take(data string, to []string) error {
	read, err := mail.ReadMessage(strings.NewReader(data))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(quotedprintable.NewReader(read.Body))
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took = append(m.took, letter{read.Header.Get("To"), read.Header.Get("Subject"), strings.ReplaceAll(string(text), "\r\n", "\n"), to})
	return nil
}

// mails waits until there are n mails, and returns all that there are.
func (m *mailServer) mails(t *testing.T, n int) (all []letter) {
	t.Helper()
	poll.Until(t, fmt.Sprintf("%d mails", n), func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		all = slices.Clone(m.took)
		if len(m.bad) > 0 {
			t.Fatal(errors.Join(m.bad...))
		}
		if len(all) < n {
			return fmt.Errorf("%d mails: %+v", len(all), all)
		}
		return nil
	})
	return all
}

// toldAlarm is what a webhook says of an alarm.
type toldAlarm struct {
	Text, EventType, AlarmKey, OriginatorType, OriginatorID, OriginatorName, Severity, State, RuleName, MetricKey, Tenant, RaisedTime, OccurredTime string
	Value                                                                                                                                           *float64
	Total                                                                                                                                           int
	Note                                                                                                                                            string
	Counts                                                                                                                                          map[string]int
	Alarms                                                                                                                                          []toldAlarm
}

// hookServer keeps what webhooks tell.
type hookServer struct {
	url  string
	mu   sync.Mutex
	took []toldAlarm
	bad  []error
	keys []string
}

func startHookServer(t *testing.T) *hookServer {
	t.Helper()
	h := &hookServer{}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var told toldAlarm
		err := json.NewDecoder(r.Body).Decode(&told)
		h.mu.Lock()
		defer h.mu.Unlock()
		if err != nil {
			h.bad = append(h.bad, err)
		}
		h.took, h.keys = append(h.took, told), append(h.keys, r.Header.Get("X-Weir-Idempotency-Key"))
	}))
	t.Cleanup(s.Close)
	h.url = s.URL
	return h
}

// calls waits until there are n calls, and returns all that there are.
func (h *hookServer) calls(t *testing.T, n int) (all []toldAlarm) {
	t.Helper()
	poll.Until(t, fmt.Sprintf("%d calls", n), func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		all = slices.Clone(h.took)
		if len(h.bad) > 0 {
			t.Fatal(errors.Join(h.bad...))
		}
		if len(all) < n {
			return fmt.Errorf("%d calls: %+v", len(all), all)
		}
		return nil
	})
	return all
}

// counted waits until a metric has a value.
func (w *world) counted(t *testing.T, metric string, want float64) {
	t.Helper()
	poll.Until(t, metric, func() error {
		all, err := w.Scrape(t.Context())
		if err == nil && all[metric] != want {
			err = fmt.Errorf("%v, want %v", all[metric], want)
		}
		return err
	})
}

// performed waits until no order waits any more: what was sent is known to be sent.
func (w *world) performed(t *testing.T) {
	t.Helper()
	poll.Until(t, "an empty outbox", func() error {
		var box struct{ Rows int }
		w.RunJSON(&box, "outbox")
		if box.Rows != 0 {
			return fmt.Errorf("%d orders wait", box.Rows)
		}
		return nil
	})
}

// TestAnAlarmReachesPeople: a reading over MQTT raises an alarm, of which a policy notifies a mail server and a URL, one message each. The alarm that is raised again
// within the throttle is not notified but counted. A mute holds back, and its end tells what is still active. None comes twice after a kill.
func TestAnAlarmReachesPeople(t *testing.T) {
	t.Parallel()
	mails, hook := startMailServer(t), startHookServer(t)
	_, hookPort, _ := strings.Cut(strings.TrimPrefix(hook.url, "http://"), ":")
	o := testweir.Options{Dir: t.TempDir(), Config: generous + "notifications: {escalation_sweep: 1s}\n" +
		fmt.Sprintf("egress: {allowed_destinations: [\"127.0.0.1/32:%s\", \"127.0.0.1/32:%s\"]}\n", hookPort, mails.port)}
	w := start(t, o)
	tn := w.tenant(t, "telling")
	out := func(query string, vars map[string]any) *answer {
		t.Helper()
		return tn.must(t, "notification-management", tn.token, query, vars)
	}
	for token, channel := range map[string][2]string{
		"desk": {"smtp", fmt.Sprintf(`{"host":"127.0.0.1","port":%s,"from":"Plant <weir@example.com>","security":"none"}`, mails.port)},
		"hook": {"webhook", fmt.Sprintf(`{"url":%q}`, hook.url)},
	} {
		out(`mutation($r:NotificationChannelCreateRequest!){createNotificationChannel(request:$r){id}}`,
			map[string]any{"r": map[string]any{"token": token, "channelType": channel[0], "config": channel[1], "enabled": true}})
	}
	out(`mutation{createNotificationPolicy(request:{token:"plant",enabled:true,throttleSeconds:3600,rules:[
		{severity:"CRITICAL",channelToken:"desk",recipients:"[\"ann@example.com\"]"},{severity:"CRITICAL",channelToken:"hook"}]}){id}}`, nil)
	tn.profile("p", map[string]string{"hot": above("Too hot", "temp", 80, `,"severity":"critical","actions":[{"type":"raiseAlarm","raiseAlarm":{"alarmKey":"heat"}}]`)})
	for _, d := range []string{"boiler", "pump", "fan"} {
		tn.device(d, "p")
	}
	since := time.Now().Add(-time.Minute).Truncate(time.Second).UTC()
	boiler := tn.connect("boiler")
	boiler.send(measured("temp", "95.5", at(since)))

	alarm := tn.becomes("boiler", "heat", "ACTIVE", "CRITICAL")
	first := mails.mails(t, 1)[0]
	if first.to != "<ann@example.com>" || len(first.envelope) != 1 || !strings.Contains(first.envelope[0], "<ann@example.com>") || first.subject != "[CRITICAL] raised: heat (boiler)" {
		t.Errorf("%+v", first)
	}
	facts := fmt.Sprintf("Alarm:     heat\nSeverity:  CRITICAL\nWhere:     boiler (device %s)\nSince:     %s UTC\nValue:     temp = 95.5\nRule:      hot\n",
		alarm.OriginatorID, since.Format(time.DateTime))
	if want := facts + "\n-- \nSent by Weir for telling, instance weir.\n"; first.text != want {
		t.Errorf("the mail says\n%s\nwant\n%s", first.text, want)
	}
	told := hook.calls(t, 1)[0]
	when := since.Format(time.RFC3339)
	if told.Value == nil || *told.Value != 95.5 {
		t.Errorf("value %v", told.Value)
	}
	told.Value = nil
	if want := (toldAlarm{Text: "[CRITICAL] raised: heat (boiler)", EventType: "RAISED", AlarmKey: "heat", OriginatorType: "device", OriginatorID: alarm.OriginatorID, OriginatorName: "boiler",
		Severity: "CRITICAL", State: "ACTIVE", RuleName: "hot", MetricKey: "temp", Tenant: "telling", RaisedTime: when, OccurredTime: when}); fmt.Sprintf("%+v", told) != fmt.Sprintf("%+v", want) {
		t.Errorf("told %+v, want %+v", told, want)
	}
	conformance.Shown(t, "S2-120")

	// Raised again within the throttle: the next message to each channel is another's.
	boiler.send(measured("temp", "20", at(since.Add(time.Second))))
	boiler.send(measured("temp", "96", at(since.Add(2*time.Second))))
	w.counted(t, "weir_notifications_throttled_total", 1)

	// A mute holds back the pump's, and its end tells of it.
	out(`mutation($u:String!){createNotificationMute(request:{token:"work",deviceToken:"pump",until:$u,reason:"new seals"}){id}}`,
		map[string]any{"u": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	tn.connect("pump").send(measured("temp", "90"))
	w.counted(t, "weir_notifications_muted_total", 1)
	if raw := out(`{notificationMutesByToken(tokens:["work"]){heldBack endedAt}}`, nil).raw; !strings.Contains(raw, `"heldBack":1,"endedAt":null`) {
		t.Errorf("the mute that holds back: %s", raw)
	}
	out(`mutation($u:String!){updateNotificationMute(token:"work",request:{until:$u}){id}}`, map[string]any{"u": time.Now().Add(-time.Second).UTC().Format(time.RFC3339)})
	const note = "The mute work has ended. It held back 1 notifications; 1 of its alarms are still active. It was made by "
	all := mails.mails(t, 2)
	if end := all[1]; len(all) != 2 || end.subject != "[CRITICAL] still active after a mute: 1 alarm" || !strings.Contains(end.text, note) || !strings.Contains(end.text, "new seals") ||
		!strings.Contains(end.text, "[CRITICAL] raised: heat (pump)") || strings.Contains(end.text, "boiler") {
		t.Errorf("%d mails, the last %+v", len(all), end)
	}
	calls := hook.calls(t, 2)
	if end := calls[1]; len(calls) != 2 || end.EventType != "MUTE_ENDED" || end.Total != 1 || end.Counts["CRITICAL"] != 1 || !strings.HasPrefix(end.Note, note) || len(end.Alarms) != 1 ||
		end.Alarms[0].OriginatorName != "pump" {
		t.Errorf("%d calls, the last %+v", len(calls), end)
	}

	states := func() (shown []string) {
		t.Helper()
		var fromAPI struct {
			NotificationStates struct {
				Results []struct {
					AlarmToken, AlarmKey, Severity string
					NotifyCount                    int
					FirstNotifiedAt                *string
				}
			}
		}
		out(`{notificationStates(criteria:{pageNumber:1,pageSize:10}){results{alarmToken alarmKey severity notifyCount firstNotifiedAt}}}`, nil).into(t, &fromAPI)
		table := w.Run("", "notify", "states", "telling")
		for _, s := range fromAPI.NotificationStates.Results {
			shown = append(shown, fmt.Sprintf("%s %s %d %t", s.AlarmKey, s.Severity, s.NotifyCount, s.FirstNotifiedAt != nil))
			if !slices.ContainsFunc(strings.Split(table, "\n"), func(l string) bool {
				f := strings.Fields(l)
				return len(f) > 3 && f[0] == s.AlarmKey && f[1] == s.Severity && f[2] == fmt.Sprint(s.NotifyCount) && f[len(f)-1] == s.AlarmToken
			}) {
				t.Errorf("weir notify states does not show %+v:\n%s", s, table)
			}
		}
		return shown
	}
	known := []string{"heat CRITICAL 1 true", "heat CRITICAL 1 true"}
	if got := states(); !slices.Equal(got, known) {
		t.Errorf("states %q", got)
	}

	// What was sent before a kill does not come again: the next of each channel is the fan's.
	w.performed(t)
	w.Kill()
	w = &world{Proc: testweir.Start(t, o)}
	w.login()
	tn = w.enter(t, "telling")
	if got := states(); !slices.Equal(got, known) {
		t.Errorf("after the kill: states %q", got)
	}
	boiler = tn.connect("boiler")
	boiler.send(measured("temp", "20", at(since.Add(3*time.Second))))
	boiler.send(measured("temp", "97", at(since.Add(4*time.Second))))
	w.counted(t, "weir_notifications_throttled_total", 1) // the time since the message goes on over the kill
	tn.connect("fan").send(measured("temp", "99"))
	if all := mails.mails(t, 3); len(all) != 3 || all[2].subject != "[CRITICAL] raised: heat (fan)" {
		t.Errorf("after the kill: %+v", all)
	}
	if calls := hook.calls(t, 3); len(calls) != 3 || calls[2].OriginatorName != "fan" {
		t.Errorf("after the kill: %+v", calls)
	}
	hook.mu.Lock()
	defer hook.mu.Unlock()
	if slices.Contains(hook.keys, "") || len(slices.Compact(slices.Sorted(slices.Values(hook.keys)))) != 3 {
		t.Errorf("keys %q", hook.keys)
	}
}

// TestAChannelThatIsAwayIsNamed: weir status and weir doctor name a channel and a connector of which the target is away, with what waits and since when.
func TestAChannelThatIsAwayIsNamed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if err := l.Close(); err != nil { // nobody answers there
		t.Fatal(err)
	}
	began := time.Now().Truncate(time.Second)
	w := start(t, testweir.Options{Config: generous + fmt.Sprintf("egress: {allowed_destinations: [\"127.0.0.1/32:%s\"]}\n", port)})
	tn := w.tenant(t, "away")
	tn.must(t, "notification-management", tn.token, `mutation($c:String!){createNotificationChannel(request:{token:"hook",channelType:"webhook",enabled:true,config:$c}){id}
		createNotificationPolicy(request:{token:"plant",enabled:true,rules:[{severity:"*",channelToken:"hook"}]}){id}}`, map[string]any{"c": fmt.Sprintf(`{"url":"http://127.0.0.1:%s"}`, port)})
	tn.must(t, "outbound-connectors", tn.token, `mutation($c:String!){createConnector(request:{token:"broker",type:"mqtt",config:$c}){id} publishConnector(token:"broker"){version}}`,
		map[string]any{"c": fmt.Sprintf(`{"urls":["mqtt://127.0.0.1:%s"],"topic":"t"}`, port)})
	tn.profile("p", map[string]string{"hot": above("Hot", "temp", 80, `,"severity":"major","actions":[{"type":"raiseAlarm","raiseAlarm":{"alarmKey":"heat"}},{"type":"publish","publish":{"connectorRef":"broker"}}]`)})
	const devices = 3 // fewer than the failures in a row after which a target stands still, so that the two are not mistaken
	for i := range devices {
		d := fmt.Sprintf("d%d", i)
		tn.device(d, "p")
		tn.kept(measured("temp", "99", tn.as(d)))
	}
	for _, target := range []string{"away notification hook", "away publish broker"} {
		named := regexp.MustCompile(regexp.QuoteMeta(target) + fmt.Sprintf(` since (\S+)(?: \(\S+\))?, with %d orders waiting: `, devices))
		for _, command := range []string{"status", "doctor"} {
			poll.Until(t, command+" names "+target, func() error {
				out, err := w.TryRun("", command) // the doctor warns of other things, too
				m := named.FindStringSubmatch(strings.Join(strings.Fields(out), " "))
				if m == nil {
					return fmt.Errorf("%w\n%s", err, out)
				}
				since, err := time.Parse(time.RFC3339, m[1])
				if err != nil || since.Before(began) || since.After(time.Now()) {
					t.Errorf("%s: since %s, not after %s: %v", command, m[1], began, err)
				}
				return nil
			})
		}
	}
}
