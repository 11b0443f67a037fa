package channel

import (
	"encoding/json"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"weir/internal/delivery"
	"weir/internal/test/loopback"
)

func TestBodiesOfWebhooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	body := func(m Message) (got map[string]any) {
		t.Helper()
		text, err := webhookBody(m.normal(), &w.env)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	same := func(got any, want string) {
		t.Helper()
		var w any
		if err := json.Unmarshal([]byte(want), &w); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, w) {
			text, _ := json.Marshal(got)
			t.Errorf("got  %s\nwant %s", text, want)
		}
	}
	same(body(single(func(a *Alarm) {
		a.RaisedTime = a.RaisedTime.In(time.FixedZone("", 3600))
		a.NotifyCount, a.Escalation = 1, 1
	})), `{"text": "[CRITICAL] raised: too-hot (Boiler 1)", "eventType": "RAISED",
		"alarmToken": "0a1b2c", "alarmKey": "too-hot", "originatorType": "device", "originatorId": "boiler-1", "severity": "CRITICAL", "state": "ACTIVE", "acknowledged": false,
		"raisedTime": "2026-01-02T03:05:05Z", "occurredTime": "2026-01-02T03:05:05Z", "metricKey": "temp", "value": 95.5, "originatorName": "Boiler 1", "ruleName": "Too hot",
		"ruleDescription": "Open the valve.\nCall the plant.", "tenant": "acme", "link": "https://weir.example.com/alarms/0a1b2c", "recipients": ["ops@example.com"]}`)
	same(body(single(func(a *Alarm) {
		zero := 0.0
		*a = Alarm{EventType: Renotified, AlarmToken: "t", AlarmKey: "k", OriginatorType: "device", OriginatorID: "d", Severity: "MINOR", PreviousSeverity: "WARNING", State: "ACTIVE", Value: &zero,
			RaisedTime: a.RaisedTime, OccurredTime: a.RaisedTime.Add(1_500_000), Escalation: 2, NotifyCount: 3, FirstNotifiedTime: a.RaisedTime, LastNotifiedTime: a.RaisedTime}
	})), `{"text": "[MINOR] still active: k (d)", "eventType": "RENOTIFIED", "alarmToken": "t", "alarmKey": "k", "originatorType": "device", "originatorId": "d", "severity": "MINOR",
		"previousSeverity": "WARNING", "state": "ACTIVE", "acknowledged": false, "raisedTime": "2026-01-02T03:05:05Z", "occurredTime": "2026-01-02T03:05:05.0015Z", "value": 0, "escalation": 2,
		"notifyCount": 3, "firstNotifiedTime": "2026-01-02T03:05:05Z", "lastNotifiedTime": "2026-01-02T03:05:05Z", "recipients": ["ops@example.com"]}`)
	d := body(digest(1000))
	if alarms := d["alarms"].([]any); d["eventType"] != "DIGEST" || len(alarms) != MaxAlarms || d["total"] != 1000.0 || alarms[0].(map[string]any)["eventType"] != "RAISED" {
		t.Errorf("%v", d)
	}
	same(d["counts"], `{"CRITICAL": 500, "MINOR": 500}`)
	if text := d["text"].(string); !strings.HasPrefix(text, "1000 alarms: 500 CRITICAL, 500 MINOR\n") || !strings.HasSuffix(text, "\nand 950 more") {
		t.Error(text)
	}
	if m := body(Message{Kind: MuteEnd, Note: "pump"}); m["eventType"] != "MUTE_ENDED" || m["note"] != "pump" {
		t.Errorf("%v", m)
	}
	same(body(Message{Kind: Test, Tenant: "acme"}), `{"text": "This is a test message of Weir: the channel works.", "eventType": "TEST", "test": true, "tenant": "acme", "instance": "weir"}`)
	if f := delivery.Of(w.send(t, Channel{"webhook", `{"url": "http://hooks.example.com"}`, ""}, Message{Kind: "other"})); f.Outcome != Invalid {
		t.Errorf("%+v", f)
	}
	if f := delivery.Of(w.send(t, Channel{"webhook", `{"url": "http://hooks.example.com"}`, ""}, Message{Kind: Single})); f.Outcome != Invalid {
		t.Errorf("%+v", f)
	}
}

func TestHowAWebhookSendsItsSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.hook(t, false, nil)
	for more, want := range map[string][2]string{
		``:                        {"Authorization", "Bearer s3cret"},
		`, "auth": "bearer"`:      {"Authorization", "Bearer s3cret"},
		`, "auth": "header"`:      {"Authorization", "Bearer s3cret"},
		`, "authScheme": "Token"`: {"Authorization", "Token s3cret"},
		`, "authScheme": ""`:      {"Authorization", "s3cret"},
		`, "authHeader": "x-api-key", "authScheme": ""`:         {"X-Api-Key", "s3cret"},
		`, "authHeader": "X-Auth", "auth": "header"`:            {"X-Auth", "Bearer s3cret"},
		`, "method": "PUT", "headers": {"content-type": "a/b"}`: {"Content-Type", "a/b"},
	} {
		if err := w.send(t, Channel{"webhook", `{"url": "` + h.url + `"` + more + `}`, "s3cret"}, single(nil)); err != nil {
			t.Fatalf("%s: %v", more, err)
		}
		if r := h.asked[len(h.asked)-1]; r.Header.Get(want[0]) != want[1] || want[0] != "Authorization" && want[0] != "Content-Type" && r.Header.Get("Authorization") != "" {
			t.Errorf("%s: %v", more, r.Header)
		}
	}
	if err := w.send(t, Channel{"webhook", `{"url": "` + h.url + `"}`, ""}, single(nil)); err != nil || h.asked[len(h.asked)-1].Header.Get("Authorization") != "" {
		t.Error(err)
	}
}

// TestWhatAWebhookCanAnswer has what a tenant reads, when is tried again, and what the operator reads.
func TestWhatAWebhookCanAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	long := strings.Repeat("x", 100_000)
	for _, c := range []struct {
		code   int
		header [2]string
		want   delivery.Failure
	}{
		{code: 200}, {code: 204}, {code: 299},
		{code: 301, header: [2]string{"Location", "http://127.0.0.1:1/"}, want: delivery.Failure{Outcome: Retry, Text: "HTTP 301 (redirects are not followed)"}},
		{code: 307, header: [2]string{"Location", "http://127.0.0.1:1/"}, want: delivery.Failure{Outcome: Retry, Text: "HTTP 307 (redirects are not followed)"}},
		{code: 404, want: delivery.Failure{Outcome: Retry, Text: "HTTP 404", Tries: 2}},
		{code: 429, header: [2]string{"Retry-After", "120"}, want: delivery.Failure{Outcome: Retry, Text: "HTTP 429", After: 2 * time.Minute}},
		{code: 503, header: [2]string{"Retry-After", at.Add(90 * time.Second).Format(http.TimeFormat)}, want: delivery.Failure{Outcome: Retry, Text: "HTTP 503", After: 90 * time.Second}},
		{code: 503, header: [2]string{"Retry-After", "9999999"}, want: delivery.Failure{Outcome: Retry, Text: "HTTP 503", After: time.Hour}},
		{code: 500, header: [2]string{"Retry-After", "120"}, want: delivery.Failure{Outcome: Retry, Text: "HTTP 500"}},
	} {
		for _, secret := range []string{"", "s3cret"} {
			h := w.hook(t, false, func(rw http.ResponseWriter, r *http.Request) {
				if c.header[0] != "" {
					rw.Header().Set(c.header[0], c.header[1])
				}
				rw.WriteHeader(c.code)
				if c.code != 204 {
					_, _ = rw.Write([]byte(r.Header.Get("Authorization") + long))
				}
			})
			err := w.send(t, Channel{"webhook", `{"url": "` + h.url + `"}`, secret}, single(nil))
			if c.want.Text == "" {
				if err != nil {
					t.Errorf("%d: %v", c.code, err)
				}
				continue
			}
			f := delivery.Of(err)
			if f.Outcome != c.want.Outcome || f.Text != c.want.Text || f.After != c.want.After || f.Tries != c.want.Tries {
				t.Errorf("%d: %+v", c.code, f)
			}
			if d := f.Detail(); secret != "" && d != "" || secret == "" && (len(d) > 600 || !strings.Contains(d, "xxx")) {
				t.Errorf("%d: detail %.700q", c.code, d)
			}
		}
	}
}

// TestDestinationsOfChannelsAreGuarded: nothing is asked where a tenant must not reach, and the answer does not say what is there.
func TestDestinationsOfChannelsAreGuarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.hook(t, false, nil)
	box := w.mailbox(t, noTLS, nil)
	w.guarded(t)
	host := strings.TrimPrefix(h.url, "http://")
	for _, url := range []string{h.url, "http://localhost" + host[strings.LastIndex(host, ":"):], "http://[::ffff:127.0.0.1]" + host[strings.LastIndex(host, ":"):], "http://169.254.169.254/", "http://10.0.0.1/"} {
		if f := delivery.Of(w.send(t, Channel{"webhook", `{"url": "` + url + `"}`, ""}, single(nil))); f.Outcome != Blocked || f.Text != "Weir may not connect to the destination" {
			t.Errorf("%s: %+v", url, f)
		}
	}
	if f := delivery.Of(w.send(t, Channel{"smtp", box.config(""), ""}, single(nil))); f.Outcome != Blocked || f.Text != "Weir may not connect to the destination" {
		t.Errorf("%+v", f)
	}
	if len(h.asked) != 0 || len(box.said) != 0 {
		t.Error("it was asked all the same")
	}
	w.guarded(t, strings.Replace(host, ":", "/32:", 1), strings.Replace(box.addr, ":", "/32:", 1)+"@acme")
	for _, c := range []Channel{{"webhook", `{"url": "` + h.url + `"}`, ""}, {"smtp", box.config(""), ""}} {
		if err := w.send(t, c, single(nil)); err != nil {
			t.Error(c, err)
		}
	}
}

func TestProxiesAreNotAsked(t *testing.T) {
	for _, v := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(v, "http://"+loopback.Refusing(t))
	}
	_ = os.Unsetenv("NO_PROXY")
	w := newWorld(t)
	h := w.hook(t, false, nil)
	if err := w.send(t, Channel{"webhook", `{"url": "` + h.url + `"}`, ""}, single(nil)); err != nil {
		t.Error(err)
	}
}
