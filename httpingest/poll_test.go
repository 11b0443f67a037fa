package httpingest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/command"
	"weir/ingest"
)

// desk has the commands of devices, and offers a device as the service does: when a command waits and the one before has an end.
type desk struct {
	mu      sync.Mutex
	carrier command.Carrier
	waiting map[int64][]string // tokens
	out     map[int64]string   // the command that has no end
	nonces  int
	said    []string
	claims  chan struct{} // has a value for each claim, where it is not nil
}

func (d *desk) order(device int64, tokens ...string) {
	d.mu.Lock()
	d.waiting[device] = append(d.waiting[device], tokens...)
	d.mu.Unlock()
	d.carrier.Offer(device)
}

func (d *desk) Reachable(int64) {}

func (d *desk) Claim(device int64, carrier string, done func(command.Dispatch, bool)) {
	d.mu.Lock()
	var one command.Dispatch
	ok := len(d.waiting[device]) > 0 && d.out[device] == ""
	if ok {
		d.nonces++
		one = command.Dispatch{TenantID: 1, DeviceID: device, Device: fmt.Sprintf("d%d", device), Token: d.waiting[device][0], Name: "open", Nonce: fmt.Sprintf("n%d", d.nonces)}
		d.waiting[device] = d.waiting[device][1:]
		d.out[device] = one.Token
	}
	d.mu.Unlock()
	go func() {
		done(one, ok)
		if d.claims != nil {
			d.claims <- struct{}{}
		}
	}()
}

func (d *desk) Progress(command.Progress) {}

func (d *desk) Ended(r command.Receipt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	token := d.out[r.DeviceID]
	if token == "" || r.Token != "" && r.Token != token {
		return
	}
	d.out[r.DeviceID] = ""
	word := "acknowledged"
	if r.End == command.Lost {
		word = "lost"
		d.waiting[r.DeviceID] = append([]string{token}, d.waiting[r.DeviceID]...)
	}
	d.said = append(d.said, word+" "+token)
}

func (d *desk) reported() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.said)
}

const fetchPath = "/weir/acme/commands"

// fetch asks for a command of the device whose token ends in n; more are members of the body.
func (d *instance) fetch(t testing.TB, n int, more string) (status int, body string) {
	t.Helper()
	res, body := d.do(t, http.MethodPost, fetchPath, fmt.Sprintf(`{"credentialType":"ACCESS_TOKEN","credentialId":"t%d"%s}`, n, more))
	return res.StatusCode, strings.TrimSuffix(body, "\n")
}

func (d *instance) expectFetched(t testing.TB, n int, more string, status int, body string) {
	t.Helper()
	if s, b := d.fetch(t, n, more); s != status || b != body {
		t.Errorf("%d %s: %d %q, want %d %q", n, more, s, b, status, body)
	}
}

func downlink(device int, token, nonce string) string {
	return fmt.Sprintf(`{"token":"%s","deviceToken":"d%d","name":"open","dispatchNonce":"%s"}`, token, device, nonce)
}

func commanding() Config { return Config{Settings: Settings{Commands: true}} }

// A device fetches its commands one after the other. What it names as received is delivered; what it neither names nor answers is sent
// again, under another nonce.
func TestADeviceFetchesItsCommands(t *testing.T) {
	t.Parallel()
	d := open(t, commanding())
	if r := d.desk.carrier.Reach(1); r != command.Unknown {
		t.Errorf("before the first poll: %d", r)
	}
	d.expectFetched(t, 1, "", http.StatusNoContent, "")
	if r := d.desk.carrier.Reach(1); r != command.Absent {
		t.Errorf("between polls: %d", r)
	}
	d.desk.order(1, "c-1", "c-2")
	d.desk.order(2, "c-9")
	d.expectFetched(t, 1, "", http.StatusOK, downlink(1, "c-1", "n1"))
	d.expectFetched(t, 1, "", http.StatusOK, downlink(1, "c-1", "n2"))
	d.expectFetched(t, 1, `,"received":["c-1"]`, http.StatusOK, downlink(1, "c-2", "n3"))
	d.expectFetched(t, 1, `,"received":["c-2"],"device":"d1"`, http.StatusNoContent, "")
	d.expectFetched(t, 2, "", http.StatusOK, downlink(2, "c-9", "n4"))
	if got, want := d.desk.reported(), []string{"lost c-1", "acknowledged c-1", "acknowledged c-2"}; !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}

// A device that waits gets what is ordered meanwhile, and only its newest request waits.
func TestADeviceWaitsForACommand(t *testing.T) {
	t.Parallel()
	d := open(t, commanding())
	d.desk.claims = make(chan struct{}, 10)
	type answer struct {
		status int
		body   string
	}
	ask := func(more string) chan answer {
		got := make(chan answer, 1)
		go func() {
			s, b := d.fetch(t, 1, `,"wait":60`+more)
			got <- answer{s, b}
		}()
		<-d.desk.claims // it found none
		return got
	}
	first := ask("")
	if r := d.desk.carrier.Reach(1); r != command.Present {
		t.Errorf("while it waits: %d", r)
	}
	second := ask("")
	if a := <-first; a.status != http.StatusNoContent {
		t.Errorf("the older one: %+v", a)
	}
	d.desk.order(1, "c-1")
	if a := <-second; a.status != http.StatusOK || a.body != downlink(1, "c-1", "n1") {
		t.Errorf("the newer one: %+v", a)
	}
	<-d.desk.claims
	third := ask(`,"received":["c-1"]`)
	d.handler.polls.shut()
	if a := <-third; a.status != http.StatusNoContent {
		t.Errorf("at a stop: %+v", a)
	}
	if d.desk.carrier.Offer(1) {
		t.Error("an offer is taken after a stop")
	}
	d.expectFetched(t, 1, "", http.StatusServiceUnavailable, "the instance is stopping")
}

// A command that is claimed for a request that has ended meanwhile goes back.
func TestACommandOfAnEndedRequestGoesBack(t *testing.T) {
	t.Parallel()
	d := newInstance(t, commanding())
	p := d.handler.polls
	one, err := p.begin(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := p.end(one); ok {
		t.Fatal("there was a command")
	}
	d.desk.out[1] = "c-1"
	p.claimed(one, command.Dispatch{DeviceID: 1, Token: "c-1", Nonce: "n"}, true)
	if got := d.desk.reported(); !slices.Equal(got, []string{"lost c-1"}) {
		t.Errorf("%q", got)
	}
}

func TestRequestsForCommandsAreBounded(t *testing.T) {
	t.Parallel()
	cfg := commanding()
	cfg.MaxPolls = 1
	d := open(t, cfg)
	if _, err := d.handler.polls.begin(2, nil); err != nil {
		t.Fatal(err)
	}
	res, body := d.do(t, http.MethodPost, fetchPath, `{"credentialType":"ACCESS_TOKEN","credentialId":"t1"}`)
	if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	d.expectFetched(t, 2, "", http.StatusNoContent, "") // takes the place of its older one
	d.expectFetched(t, 1, "", http.StatusNoContent, "")
	p := d.handler.polls
	for i := range int64(2*maxPolled + 10) {
		p.mu.Lock()
		p.remember(i)
		p.mu.Unlock()
	}
	if n := len(p.polled[0]) + len(p.polled[1]); n > 2*maxPolled {
		t.Errorf("%d devices are remembered", n)
	}
}

func TestRequestsForCommandsAreRefused(t *testing.T) {
	t.Parallel()
	d := open(t, commanding())
	const known = `{"credentialType":"ACCESS_TOKEN","credentialId":"t1"`
	for body, want := range map[string]string{
		"":                             "400 an object",
		known + `,"wait":61}`:          "400 wait must be",
		known + `,"wait":-1}`:          "400 wait must be",
		known + `,"wait":1.5}`:         "400 wait must be",
		known + `,"wait":"1"}`:         "400 wait must be",
		known + `,"wait":1,"wait":1}`:  "400 given twice",
		known + `,"received":"c"}`:     "400 an array",
		known + `,"received":[1]}`:     "400 must be a string",
		known + `,"received":["a b"]}`: "400 not the token",
		known + `,"received":[` + strings.Repeat(`"c",`, maxReceived) + `"c"]}`: "400 at most 1000",
		known + `,"credentialId":"t1"}`:                                         "400 given twice",
		known + `,"x":"` + strings.Repeat("x", maxPollBody) + `"}`:              "400 larger than",
		known + `,"device":"d2"}`:                                               "403 the credential is not that of the device",
		`{}`:                                                                    "403 the credential is not that of the device",
		`{"credentialType":"ACCESS_TOKEN","credentialId":"wrong"}`:              "403 the credential is not that of the device",
		`{"credentialId":"busy"}`:                                               "503 too many credentials",
		`{"credentialId":"slow"}`:                                               "429 too many wrong passwords",
	} {
		res, got := d.do(t, http.MethodPost, fetchPath, body)
		if status, text, _ := strings.Cut(want, " "); fmt.Sprint(res.StatusCode) != status || !strings.Contains(got, text) {
			t.Errorf("%.60s: %d %q, want %q", body, res.StatusCode, got, want)
		}
	}
	for path, want := range map[string]int{"/other/acme/commands": http.StatusNotFound, "/weir/a%20b/commands": http.StatusBadRequest, "/weir/acme/commands/": http.StatusNotFound} {
		if res, _ := d.do(t, http.MethodPost, path, known+"}"); res.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, want)
		}
	}
	if res, _ := d.do(t, http.MethodGet, fetchPath, ""); res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != http.MethodPost {
		t.Errorf("GET: %d", res.StatusCode)
	}
	d.intake.full = true
	if s, _ := d.fetch(t, 1, ""); s != http.StatusTooManyRequests {
		t.Errorf("a tenant over its ceiling: %d", s)
	}
}

// Without the key the paths do not exist.
func TestWithoutTheKeyNothingIsFetched(t *testing.T) {
	t.Parallel()
	d := open(t, Config{})
	for _, path := range []string{fetchPath, "/weir/acme/command-responses"} {
		if res, _ := d.do(t, http.MethodPost, path, `{"credentialType":"ACCESS_TOKEN","credentialId":"t1"}`); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
	if d.server.Commands() != nil {
		t.Error("it is a carrier")
	}
}

func TestAnAnswerIsPosted(t *testing.T) {
	t.Parallel()
	d := open(t, commanding())
	body := `{"credentialType":"ACCESS_TOKEN","credentialId":"t1","commandToken":"c-1","success":true}`
	if res, text := d.do(t, http.MethodPost, "/weir/acme/command-responses", body); res.StatusCode != http.StatusAccepted || text != "" {
		t.Errorf("%d %q", res.StatusCode, text)
	}
	if a := d.intake.arrivals; len(a) != 1 || !a[0].Answers || a[0].Tenant != "acme" || string(a[0].Body) != body || a[0].Transport != ingest.TransportHTTP {
		t.Errorf("the intake got %+v", a)
	}
	d.intake.answer = ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonBackpressure}
	if res, _ := d.do(t, http.MethodPost, "/weir/acme/command-responses", body); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "10" {
		t.Errorf("%d", res.StatusCode)
	}
}

func FuzzDecodeAsking(f *testing.F) {
	for _, body := range []string{`{"credentialId":"t","received":["a","b"],"wait":30}`, `{"wait":null,"received":null}`, `{"received":[]`, `[]`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := decodeAsking(body)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("the error has several lines: %q", err)
			}
			return
		}
		if a.wait < 0 || a.wait > maxPollWait*1e9 || len(a.received) > maxReceived {
			t.Errorf("%+v", a)
		}
	})
}
