package app_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/app"
	"weir/config"
	"weir/internal/test/conformance"
	"weir/internal/test/poll"
	"weir/internal/test/seed"
	"weir/internal/test/testweir"
	"weir/operate"
)

// killRounds is how often the process is killed in one run of the test.
const killRounds = 30

// killConfig writes heads and blocks all the time, so that a kill meets every part of their life.
const killConfig = `
spool: {replay_bytes: 256KiB, head_age: 5s}
governance: {ingest_messages_per_second: 1000000, ingest_burst: 1000000}
`

// sender is a device that sends 1, 2, 3, … and never gives up on a message: what was not acknowledged when the process
// died is sent again, as the same message, before anything new. So the log must hold each number exactly once, in order.
type sender struct {
	device string
	token  string
	http   bool
	at     string       // time of all its events: with the altId it is what makes a retry the same event
	acked  int          // everything up to here was acknowledged
	sent   int          // everything up to here was sent at least once
	seen   atomic.Int64 // acked, for readers while it runs
}

func (s *sender) value(n int) string { return fmt.Sprint(n) }

func (s *sender) body(n int) []byte {
	more := ""
	if s.http {
		more = fmt.Sprintf(`,"altId":"n%d","occurredTime":%q,"credentialType":"ACCESS_TOKEN","credentialId":%q`, n, s.at, s.token)
	}
	return fmt.Appendf(nil, `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"n":%q,"wave":"%d"}}]}%s}`, s.value(n), n%100, more)
}

// run sends until the process is gone.
func (s *sender) run(p *testweir.Proc, stop <-chan struct{}) {
	if s.http {
		s.runHTTP(p, stop)
		return
	}
	s.runMQTT(p, stop)
}

const window = 16

func (s *sender) runMQTT(p *testweir.Proc, stop <-chan struct{}) {
	m, err := testweir.DialMQTT(p.MQTT, "weir", "acme", s.device, s.token)
	if err != nil {
		return // the process is gone already
	}
	defer m.Close()
	topic := "weir/acme/devices/" + s.device + "/events"
	id := func(n int) uint16 { return uint16(n%60000 + 1) }
	next := s.acked + 1
	stopped := false
	for {
		select {
		case <-stop:
			stopped = true
		default:
		}
		last := s.acked + window
		if stopped { // nothing new, but what was begun is brought to its end
			if last = min(last, s.sent); s.acked == s.sent {
				return
			}
		}
		for ; next <= last; next++ {
			if err := m.Publish(topic, id(next), next <= s.sent, s.body(next)); err != nil {
				return
			}
			s.sent = max(s.sent, next)
		}
		got, err := m.Puback()
		if err != nil {
			return
		}
		if got != id(s.acked+1) {
			panic(fmt.Sprintf("%s: PUBACK %d out of order, expected %d", s.device, got, id(s.acked+1)))
		}
		s.acked++
		s.seen.Store(int64(s.acked))
	}
}

func (s *sender) runHTTP(p *testweir.Proc, stop <-chan struct{}) {
	c := &http.Client{Transport: &http.Transport{}}
	defer c.CloseIdleConnections()
	for {
		select {
		case <-stop:
			return
		default:
		}
		s.sent = s.acked + 1
		resp, err := c.Post(p.Ingest+"/weir/acme/events", "application/json", bytes.NewReader(s.body(s.sent)))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			return
		}
		s.acked++
		s.seen.Store(int64(s.acked))
	}
}

func TestKilledAtRandomMomentsNothingIsMissingAndNothingIsTwice(t *testing.T) {
	t.Parallel()
	var env []string
	if os.Getenv("WEIR_TEST_MEMORY") != "" { // of make check: a small gateway
		env = append(env, "GOMEMLIMIT=200MiB", "WEIR_LIMITS_MEMORY=200MiB")
	}
	opt := testweir.Options{Dir: t.TempDir(), Config: killConfig, Env: env}
	p := testweir.Start(t, opt)
	senders := furnish(t, p)
	r := seed.Rand(t)
	opt.Serving = true // devices send again, and the next kill comes, while what was acknowledged before is being applied
	for round := range killRounds {
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for _, s := range senders {
			wg.Go(func() { s.run(p, stop) })
		}
		before := acknowledged(senders)
		poll.True(t, "the devices send", func() bool { return acknowledged(senders) > before })
		time.Sleep(time.Duration(20+r.IntN(300)) * time.Millisecond) // the random moment
		if held, limit := anonymous(t, p.PID()), int64(memoryLimit); env != nil && held > limit {
			t.Errorf("the process holds %d bytes of memory, its limit is %d", held, limit)
		}
		p.Kill()
		close(stop)
		wg.Wait()
		recountAtRest(t, filepath.Join(p.Dir, "data"))
		opt.Serving = round < killRounds-1
		p = testweir.Start(t, opt)
	}
	// The last round ends in peace: what is still open is sent again and acknowledged.
	stop := make(chan struct{})
	close(stop)
	for _, s := range senders {
		s.run(p, stop)
		for s.http && s.acked < s.sent {
			again := make(chan struct{})
			time.AfterFunc(50*time.Millisecond, func() { close(again) })
			s.run(p, again)
		}
		if s.acked != s.sent {
			t.Fatalf("%s: %d of %d acknowledged in the end", s.device, s.acked, s.sent)
		}
	}
	check(t, p, senders)
	conformance.Shown(t, "S2-014", "S2-027", "S1-054")
}

// acknowledged is how many messages of all senders were acknowledged.
func acknowledged(senders []*sender) (n int64) {
	for _, s := range senders {
		n += s.seen.Load()
	}
	return n
}

// recountAtRest recounts what a kill has left, as it lies.
func recountAtRest(t *testing.T, dir string) {
	t.Helper()
	cfg := config.Default()
	cfg.DataDir = dir
	v, err := operate.VerifyLedger.Ask(t.Context(), app.AtRest(cfg, func(string) string { return "" }, slog.New(slog.DiscardHandler)), func(int64, int64) {})
	if err != nil || !v.Balanced {
		t.Errorf("after a kill: %+v, %v", v, err)
	}
}

// memoryLimit is what the process gets where the test plays a small gateway.
const memoryLimit = 200 << 20

// anonymous is the memory that a process holds, files that it maps not counted.
func anonymous(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatal("the kernel does not say what the process holds")
	return 0
}

// furnish makes the tenant, a profile with two rules, and the devices.
func furnish(t *testing.T, p *testweir.Proc) []*sender {
	p.Run("", "tenant", "create", "acme")
	token := p.SignIn("acme")
	q := func(query string) { p.Query("device-management", token, query, nil, nil) }
	q(`mutation{createDeviceProfile(request:{token:"wave"}){token}}`)
	q(`mutation{createMetricDefinition(request:{token:"m",deviceProfileToken:"wave",metricKey:"wave",dataType:"INT"}){token}}`)
	for rule, limit := range map[string]int{"high": 50, "low": 20} {
		def := fmt.Sprintf(`{"name":"%s","type":"threshold","severity":"major","when":{"metric":"wave","op":"gt","threshold":%d}}`, rule, limit)
		p.Query("device-management", token, `mutation($d:String!){createDetectionRule(request:{token:"`+rule+`",deviceProfileToken:"wave",definition:$d,enabled:true}){token}}`,
			map[string]any{"d": def}, nil)
	}
	q(`mutation{createDeviceType(request:{token:"t",profileToken:"wave"}){token}}`)
	q(`mutation{publishDeviceProfile(token:"wave"){version}}`)
	var out []*sender
	for i := range 8 {
		s := &sender{device: fmt.Sprintf("d%d", i), http: i >= 6, at: time.Now().UTC().Format(time.RFC3339)}
		var made struct{ AccessToken string }
		p.RunJSON(&made, "device", "add", "acme", s.device, "--type", "t")
		s.token = made.AccessToken
		out = append(out, s)
	}
	return out
}

// check compares the instance with the plain model: each sender's numbers once and in order, the edges they must have
// brought about, and a ledger that balances.
func check(t *testing.T, p *testweir.Proc, senders []*sender) {
	t.Helper()
	token := p.SignIn("acme")
	total, fires := 0, map[string]int{}
	for _, s := range senders {
		total += s.acked
		got := numbers(t, p, token, s.device)
		if len(got) != s.acked {
			t.Errorf("%s: %d readings, want %d", s.device, len(got), s.acked)
		}
		for i, n := range got {
			if n != i+1 {
				t.Errorf("%s: reading %d is %d", s.device, i+1, n)
				break
			}
		}
		for rule, limit := range map[string]int{"high": 50, "low": 20} {
			raised := false
			for n := 1; n <= s.acked; n++ {
				if hit := n%100 > limit; hit != raised {
					raised = hit
					fires[rule]++
				}
			}
		}
	}
	var health struct {
		RuleHealth []struct {
			RuleToken string
			FireCount int
		}
	}
	p.Query("event-processing", token, `{ruleHealth(profileToken:"wave"){ruleToken fireCount}}`, nil, &health)
	if len(health.RuleHealth) != 2 {
		t.Errorf("rule health: %+v", health)
	}
	for _, h := range health.RuleHealth {
		if h.FireCount != fires[h.RuleToken] {
			t.Errorf("rule %s fired %d times, want %d", h.RuleToken, h.FireCount, fires[h.RuleToken])
		}
	}
	var ledger struct {
		Hours []struct {
			Tenant   string
			Outcomes map[string]int
			Missing  int
		}
	}
	p.RunJSON(&ledger, "ledger")
	var recounted operate.Verification
	p.RunJSON(&recounted, "ledger", "verify")
	if !recounted.Balanced {
		t.Errorf("what is stored does not balance: %+v", recounted.Wrongs)
	}
	stored := 0
	for _, h := range ledger.Hours {
		if h.Missing != 0 {
			t.Errorf("the ledger does not balance: %+v", h)
		}
		stored += h.Outcomes["stored"]
	}
	if stored != total {
		t.Errorf("the ledger says that %d messages are stored, %d are", stored, total)
	}
	t.Logf("%d readings of %d devices, %v fires", total, len(senders), fires)
}

func numbers(t *testing.T, p *testweir.Proc, token, device string) []int {
	t.Helper()
	var out []int
	before := ""
	for {
		var page struct {
			MeasurementEvents struct {
				Results []struct {
					ID    string
					Name  string
					Value float64
				}
			}
		}
		criteria := map[string]any{"pageNumber": 1, "pageSize": 1000, "deviceToken": device}
		if before != "" {
			criteria["before"] = before
		}
		p.Query("event-management", token, `query($c:EventSearchCriteria!){measurementEvents(criteria:$c){results{id name value}}}`,
			map[string]any{"c": criteria}, &page)
		rs := page.MeasurementEvents.Results
		if len(rs) == 0 {
			break
		}
		for _, r := range rs {
			if r.Name == "n" {
				out = append(out, int(r.Value))
			}
		}
		before = rs[len(rs)-1].ID
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}
