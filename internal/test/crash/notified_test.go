package crash_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/test/poll"
	"weir/internal/test/seed"
	"weir/internal/test/testweir"
	"weir/store"
)

// told is a receiver of webhooks of a notification channel. It hangs up on one of eight messages when it has it and has not said so.
type told struct {
	mu    sync.Mutex
	n     int
	of    map[string]string // what each key brought
	keys  map[string]string // of each alarm that was raised, by device
	wrong []string
}

// ServeHTTP implements http.Handler.
func (g *told) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil { // the instance was killed
		return
	}
	var a struct{ EventType, OriginatorName string }
	_ = json.Unmarshal(body, &a) // it has no device then
	key := r.Header.Get("X-Weir-Idempotency-Key")
	g.mu.Lock()
	g.n++
	hangUp := g.n%8 == 0
	was, again := g.of[key]
	switch earlier, twice := g.keys[a.OriginatorName]; {
	case key == "" || a.EventType != "RAISED" || a.OriginatorName == "":
		g.wrong = append(g.wrong, fmt.Sprintf("a message under %q: %s", key, body))
	case again && was != string(body):
		g.wrong = append(g.wrong, fmt.Sprintf("the key %s brought %s, and then %s", key, was, body))
	case twice && earlier != key:
		g.wrong = append(g.wrong, fmt.Sprintf("the alarm of %s came under %s and %s", a.OriginatorName, earlier, key))
	}
	g.of[key], g.keys[a.OriginatorName] = string(body), key
	g.mu.Unlock()
	if hangUp {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(http.StatusNoContent)
}

// Killed while alarms are notified over a webhook whose receiver hangs up on some: every alarm whose reading was acknowledged is notified or a dead
// letter, and comes again under the same key alone.
func TestNotified(t *testing.T) {
	t.Parallel()
	const perRound = 25 // alarms, of a device each
	r := seed.Rand(t)
	g := &told{of: map[string]string{}, keys: map[string]string{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: g}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(l) }) // until it is closed
	t.Cleanup(func() {
		_ = server.Close()
		running.Wait()
	})
	const name = "told"
	opt := testweir.Options{Dir: t.TempDir(), Config: settings + fmt.Sprintf("notifications: {per_channel_per_minute: 10000}\negress: {allowed_destinations: [\"127.0.0.1/32:%d\"]}\n", l.Addr().(*net.TCPAddr).Port)}
	w := &world{t: t, opt: opt, r: r, tokens: map[string]string{}, p: testweir.Start(t, opt)}
	w.tenant(name)
	w.p.Run("", "api", "--tenant", name, "user-management-admin", fmt.Sprintf(`mutation{updateTenant(token:%q,request:{outboundMessagesPerSecond:100000,outboundBurst:100000}){token}}`, name))
	w.p.Query("notification-management", w.tokens[name], `mutation($c:String!){createNotificationChannel(request:{token:"hook",channelType:"webhook",enabled:true,config:$c}){id}
		createNotificationPolicy(request:{token:"all",enabled:true,rules:[{severity:"*",channelToken:"hook"}]}){id}}`, map[string]any{"c": fmt.Sprintf(`{"url":"http://%s/"}`, l.Addr())}, nil)
	w.p.Query("device-management", w.tokens[name], `mutation($d:String!){a:createDeviceProfile(request:{token:"one"}){id} b:createMetricDefinition(request:{token:"one",deviceProfileToken:"one",metricKey:"wave",dataType:"INT"}){id}
		c:createDetectionRule(request:{token:"one",deviceProfileToken:"one",definition:$d,enabled:true}){id} d:createDeviceType(request:{token:"one",profileToken:"one"}){id} e:publishDeviceProfile(token:"one"){version}}`,
		map[string]any{"d": `{"name":"n","type":"threshold","severity":"major","when":{"metric":"wave","op":"gt","threshold":50},"actions":[{"type":"raiseAlarm","raiseAlarm":{"alarmKey":"wave"}}]}`}, nil)
	client := &http.Client{Timeout: 5 * time.Second}
	send := func(p *testweir.Proc, device string) bool {
		body := fmt.Sprintf(`{"eventType":"Measurement","payload":{"entries":[{"measurements":{"wave":"99"}}]},"altId":%[1]q,"credentialType":"ACCESS_TOKEN","credentialId":"%[2]s-%[1]s"}`, device, name)
		resp, err := client.Post(p.Ingest+"/weir/"+name+"/events", "application/json", strings.NewReader(body))
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode/100 == 2
	}
	var all, owed []string    // devices, and those whose reading was not acknowledged
	ends := max(*kills/10, 4) // each costs a start
	for range ends {
		for range perRound {
			d := fmt.Sprintf("d%d", len(all))
			all, owed = append(all, d), append(owed, d)
			w.p.Query("device-management", w.tokens[name], fmt.Sprintf(`mutation{a:createDevice(request:{token:%[1]q,name:%[1]q,deviceTypeToken:"one"}){id}
				b:createDeviceCredential(request:{token:%[1]q,deviceToken:%[1]q,credentialType:"ACCESS_TOKEN",credentialId:"%[2]s-%[1]s",enabled:true}){id}}`, d, name), nil, nil)
		}
		p, over := w.p, make(chan struct{})
		go func() {
			defer close(over)
			owed = slices.DeleteFunc(owed, func(d string) bool { return send(p, d) })
		}()
		select {
		case <-over:
			time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond) // some are on their way
		case <-time.After(time.Duration(5+r.IntN(60)) * time.Millisecond):
		}
		p.Kill()
		<-over
		w.restart()
	}
	for _, d := range owed {
		if !send(w.p, d) {
			t.Fatalf("the reading of %s is refused", d)
		}
	}
	poll.Until(t, "all are notified", func() error {
		var got struct{ Rows int64 }
		w.p.RunJSON(&got, "outbox", name)
		g.mu.Lock()
		defer g.mu.Unlock()
		if got.Rows > 0 {
			return fmt.Errorf("%d orders wait, %d messages", got.Rows, g.n)
		}
		var page struct {
			DeadLetters []struct{ Device string }
		}
		w.p.RunJSON(&page, "ledger", "dead-letters", "--tenant", name, "--kind", store.DeadLetterNotice, "--limit", "500")
		gaveUp := map[string]bool{}
		for _, l := range page.DeadLetters {
			gaveUp[l.Device] = true
		}
		var lost []string
		for _, d := range all {
			if _, arrived := g.keys[d]; !arrived && !gaveUp[d] {
				lost = append(lost, d)
			}
		}
		if len(lost) > 0 {
			return fmt.Errorf("%d of %d alarms are neither notified nor given up; %d messages, wrong: %.500q", len(lost), len(all), g.n, g.wrong[:min(len(g.wrong), 1)])
		}
		return nil
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, what := range g.wrong {
		t.Error(what)
	}
	t.Logf("%d ends, %d alarms, %d messages, %d of them again", ends, len(all), g.n, g.n-len(g.of))
	if g.n == len(g.of) {
		t.Error("no message came again: the test shows less than it should")
	}
}
