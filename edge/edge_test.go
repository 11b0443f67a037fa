package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/ingest"
	"weir/internal/setting"
	"weir/internal/test/mqttpeer"
	"weir/internal/test/poll"
	"weir/model"
	"weir/spool"
	"weir/spool/bolt"
)

// wall is the clock of a test.
type wall struct {
	mu   sync.Mutex
	at   time.Time
	from time.Time
}

func (w *wall) now() (time.Time, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at.IsZero() {
		return time.Now(), time.Since(w.from)
	}
	return w.at, time.Since(w.from)
}

func (w *wall) set(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = at
}

// neverTrims is set as when_full of an edge whose log is not trimmed while it runs.
const neverTrims = "never trims"

// site is an edge of a test.
type site struct {
	*Edge
	dir  string
	stop func()
	ran  chan struct{} // closed when Run has returned
}

// openSite opens an edge below a broker, and runs it.
func openSite(t *testing.T, dir, broker string, clock *wall, set func(*Settings)) *site {
	t.Helper()
	if clock == nil {
		clock = &wall{from: time.Now()}
	}
	s := Settings{Uplink: UplinkSettings{BrokerURL: "tcp://" + broker, BackoffMin: time.Millisecond, BackoffMax: 10 * time.Millisecond}}
	setting.FillDefaults(&s)
	s.Commands, s.WhenFull = true, "refuse"
	if set != nil {
		set(&s)
	}
	e, err := Open(Config{Settings: s, InstanceID: "weir", Dir: dir + "/edge"}, Deps{Dial: (&net.Dialer{}).DialContext, Now: clock.now, Boot: uint64(time.Now().UnixNano()), Built: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Open: func(o OpenLog) (spool.Log, *Began, error) {
			l, err := bolt.Open(dir+"/spool", bolt.Options{Capacity: spool.Capacity{MaxBytes: s.SpoolMaxBytes}, PairID: o.PairID, MinOffset: o.MinOffset, MinEpoch: o.MinEpoch, Mend: true})
			if err != nil {
				return nil, nil, err
			}
			return l, nil, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	out := &site{Edge: e, dir: dir, ran: make(chan struct{})}
	running.Go(func() {
		defer close(out.ran)
		if err := e.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	if s.WhenFull != neverTrims {
		running.Go(func() { _ = e.RunState(ctx) })
	}
	out.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(out.stop)
	return out
}

// take hands a message in and returns the answer.
func (s *site) take(t *testing.T, a *ingest.Arrival) ingest.Answer {
	t.Helper()
	done := make(chan ingest.Answer, 1)
	s.Intake().Accept(t.Context(), a, func(answer ingest.Answer) { done <- answer })
	return <-done
}

func event(n int) *ingest.Arrival {
	return &ingest.Arrival{Transport: ingest.TransportMQTT, Source: "mqtt1", Tenant: "acme", Topic: "pump", Body: fmt.Appendf(nil, `{"n":%d}`, n), ClientID: "c", PacketID: uint16(n + 1), HoldFor: -1}
}

// drained waits until nothing waits for the broker above.
func (s *site) drained(t *testing.T) {
	t.Helper()
	poll.Until(t, "nothing waits", func() error {
		if st := s.Status(); st.Waiting != 0 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
}

// outcomes are those of the ledger, and whether it balances.
func (s *site) outcomes(t *testing.T) map[string]int64 {
	t.Helper()
	sum := map[string]int64{}
	for _, l := range s.Ledger() {
		if l.Missing() != 0 {
			t.Errorf("%+v does not balance", l)
		}
		for o, n := range l.Outcomes {
			sum[o] += n
		}
	}
	return sum
}

func numberOf(t *testing.T, m mqttpeer.Message) (n int) {
	t.Helper()
	var body struct{ N int }
	if err := json.Unmarshal([]byte(m.Payload), &body); err != nil {
		t.Error(m, err)
	}
	return body.N
}

// TestTheAnswersOfTheBrokerAbove: what it refuses for good is a dead letter, what it cannot take now stays at the head, and everything else
// goes on meanwhile.
func TestTheAnswersOfTheBrokerAbove(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	busy := 3
	up := mqttpeer.Start(t, &mqttpeer.Broker{OnPublish: func(m mqttpeer.Message) (byte, bool) {
		mu.Lock()
		defer mu.Unlock()
		for n, code := range map[int]byte{1: 0x87, 2: 0x99, 3: 0x95} {
			if strings.Contains(m.Payload, fmt.Sprintf(`"n":%d}`, n)) {
				return code, true
			}
		}
		if strings.Contains(m.Payload, `"n":4}`) && busy > 0 {
			busy--
			return 0x97, true
		}
		return 0, true
	}}, nil, false)
	s := openSite(t, t.TempDir(), "127.0.0.1:"+up.Port(), nil, nil)
	for n := range 8 {
		if a := s.take(t, event(n)); a.Outcome != ingest.Stored {
			t.Fatal(a)
		}
	}
	s.drained(t)
	got := s.outcomes(t)
	if got["stored"] != 5 || got["dead-letter"] != 3 || got["waiting"] != 0 {
		t.Errorf("%v", got)
	}
	letters, err := s.DeadLetters(10)
	if err != nil || len(letters) != 3 {
		t.Fatal(letters, err)
	}
	reasons := map[string]bool{}
	for _, l := range letters {
		reasons[l.Reason] = true
	}
	if !reasons["not-authorized"] || !reasons["undecodable"] || !reasons["too-large"] || !bytes.HasPrefix(letters[0].Payload, []byte(`{"n":`)) {
		t.Errorf("%+v", letters)
	}
}

// TestARepeatOfADeviceIsOneMessage: also after a restart of the edge, and while the first is not yet synced.
func TestARepeatOfADeviceIsOneMessage(t *testing.T) {
	t.Parallel()
	up := mqttpeer.Start(t, &mqttpeer.Broker{}, nil, false)
	dir := t.TempDir()
	s := openSite(t, dir, "127.0.0.1:"+up.Port(), nil, nil)
	again := func() *ingest.Arrival {
		a := event(7)
		a.Dup = true
		return a
	}
	first, second := make(chan ingest.Answer, 1), make(chan ingest.Answer, 1)
	s.Intake().Accept(t.Context(), event(7), func(a ingest.Answer) { first <- a })
	s.Intake().Accept(t.Context(), again(), func(a ingest.Answer) { second <- a })
	if a, b := <-first, <-second; a.Outcome != ingest.Stored || b.Outcome != ingest.Stored {
		t.Fatal(a, b)
	}
	poll.True(t, "it is above", func() bool { return s.Status().Waiting == 0 })
	s.stop()
	s = openSite(t, dir, "127.0.0.1:"+up.Port(), nil, nil)
	if a := s.take(t, again()); a.Outcome != ingest.Stored {
		t.Fatal(a)
	}
	if a := s.take(t, event(8)); a.Outcome != ingest.Stored {
		t.Fatal(a)
	}
	poll.True(t, "the next is above", func() bool { return len(up.Messages()) == 2 })
	if got := s.outcomes(t); got["stored"]+got["waiting"] != 2 || got["duplicate"] != 2 {
		t.Errorf("%v", got)
	}
}

// TestAFullLogRefuses: QoS 1 waits without an acknowledgement, HTTP is told, and both go on once the broker above takes messages again.
func TestAFullLogRefuses(t *testing.T) {
	t.Parallel()
	up := mqttpeer.Start(t, &mqttpeer.Broker{OnConnect: nil}, nil, false)
	s := openSite(t, t.TempDir(), "127.0.0.1:1", nil, func(s *Settings) { s.SpoolMaxBytes = 16 << 20 })
	big := bytes.Repeat([]byte("x"), 256<<10)
	n := 0
	for ; ; n++ {
		a := &ingest.Arrival{Transport: ingest.TransportHTTP, Tenant: "acme", Topic: "pump", Reports: true, Body: big}
		if answer := s.take(t, a); answer.Outcome != ingest.Stored {
			if answer.Outcome != ingest.Refused || answer.Reason != ingest.ReasonBackpressure || answer.RetryAfter == 0 {
				t.Fatal(answer)
			}
			break
		}
	}
	waits := make(chan ingest.Answer, 1)
	ctx, end := context.WithCancel(t.Context())
	go s.Intake().Accept(ctx, &ingest.Arrival{Transport: ingest.TransportMQTT, Tenant: "acme", Topic: "pump", Body: big, ClientID: "c", PacketID: 1, HoldFor: -1}, func(a ingest.Answer) { waits <- a })
	poll.True(t, "the log was full for it, too", func() bool { return s.Status().Waiting == int64(n) })
	end()
	if a := <-waits; a.Outcome != ingest.Withheld {
		t.Fatal(a)
	}
	dir := s.dir
	s.stop()
	s = openSite(t, dir, "127.0.0.1:"+up.Port(), nil, func(s *Settings) { s.SpoolMaxBytes = 16 << 20 })
	poll.True(t, "all is above", func() bool { return len(up.Messages()) == n && s.Status().Waiting == 0 })
	if a := s.take(t, event(1)); a.Outcome != ingest.Stored {
		t.Fatal(a)
	}
	poll.True(t, "and goes on", func() bool { return s.Status().Waiting == 0 })
	if got := s.outcomes(t); got["stored"] != int64(n+1) || got["refused"] != 2 {
		t.Errorf("%v, %d were accepted", got, n)
	}
}

// TestAFullLogDropsTheOldest where the operator wants that: counted, and never under a number of another message.
func TestAFullLogDropsTheOldest(t *testing.T) {
	t.Parallel()
	up := mqttpeer.Start(t, &mqttpeer.Broker{}, nil, false)
	small := func(s *Settings) { s.SpoolMaxBytes, s.WhenFull = 16<<20, dropOldest }
	s := openSite(t, t.TempDir(), "127.0.0.1:1", nil, small)
	pad := strings.Repeat("x", 256<<10)
	const n = 200
	for i := range n {
		a := event(i)
		a.Body = fmt.Appendf(nil, `{"n":%d,"pad":%q}`, i, pad)
		if answer := s.take(t, a); answer.Outcome != ingest.Stored {
			t.Fatal(i, answer)
		}
	}
	dropped := s.outcomes(t)["dropped"]
	if dropped == 0 || dropped == n {
		t.Fatalf("%d of %d are dropped", dropped, n)
	}
	dir := s.dir
	s.stop()
	s = openSite(t, dir, "127.0.0.1:"+up.Port(), nil, small)
	poll.True(t, "the rest is above", func() bool { return s.Status().Waiting == 0 })
	got := up.Messages()
	if len(got) != n-int(dropped) {
		t.Fatalf("%d are above, %d of %d were dropped", len(got), dropped, n)
	}
	for i, m := range got {
		if want := int(dropped) + i; numberOf(t, m) != want || !strings.Contains(m.Payload, fmt.Sprintf(`:1:%d"`, want+1)) {
			t.Fatalf("message %d above is %.120s", i, m.Payload)
		}
	}
	if o := s.outcomes(t); o["stored"] != n-dropped || o["dropped"] != dropped {
		t.Errorf("%v", o)
	}
}

// TestAClockIn1970: what comes in is acknowledged and waits; once the time of day is known it goes up with the time of its receipt, and with
// the same one when it is sent again after a restart.
func TestAClockIn1970(t *testing.T) {
	t.Parallel()
	up := mqttpeer.Start(t, &mqttpeer.Broker{}, nil, false)
	dir := t.TempDir()
	clock := &wall{from: time.Now().Add(-time.Hour), at: time.Unix(100, 0)}
	s := openSite(t, dir, "127.0.0.1:"+up.Port(), clock, nil)
	if a := s.take(t, event(1)); a.Outcome != ingest.Stored {
		t.Fatal(a)
	}
	if st := s.Status(); !st.ClockUnknown || st.Waiting != 1 || len(s.Problems()) == 0 {
		t.Fatalf("%+v", st)
	}
	s.stop() // it never knew: the next start gives the time at which it does
	set := time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)
	clock2 := &wall{from: time.Now()}
	clock2.set(time.Unix(200, 0))
	s = openSite(t, dir, "127.0.0.1:"+up.Port(), clock2, nil)
	if a := s.take(t, event(2)); a.Outcome != ingest.Stored {
		t.Fatal(a)
	}
	if len(up.Messages()) != 0 {
		t.Fatal("it forwards without knowing the time")
	}
	clock2.set(set)
	poll.True(t, "both are above", func() bool { return len(up.Messages()) == 2 })
	for _, m := range up.Messages() {
		if !strings.Contains(m.Payload, `"occurredTime":"2026-11-27T0`) {
			t.Error(m.Payload)
		}
	}
}

// TestATimeFromAbove: a clock that is never set does not keep an edge below a Weir from forwarding; a time before what is known is not believed.
func TestATimeFromAbove(t *testing.T) {
	t.Parallel()
	above := &mqttpeer.Broker{Time: "2026-11-27T08:00:00.5Z"}
	up := mqttpeer.Start(t, above, nil, false)
	clock := &wall{from: time.Now(), at: time.Unix(100, 0)}
	s := openSite(t, t.TempDir(), "127.0.0.1:"+up.Port(), clock, nil)
	if a := s.take(t, event(1)); a.Outcome != ingest.Stored {
		t.Fatal(a)
	}
	poll.True(t, "it is above", func() bool { return len(up.Messages()) == 1 })
	if a := s.take(t, event(2)); a.Outcome != ingest.Stored {
		t.Fatal(a)
	}
	poll.True(t, "the next one, too", func() bool { return len(up.Messages()) == 2 })
	for _, m := range up.Messages() {
		if !strings.Contains(m.Payload, `"occurredTime":"2026-11-27T0`) {
			t.Error(m.Payload)
		}
	}
	if st := s.Status(); st.ClockUnknown {
		t.Errorf("%+v", st)
	}
	late := mqttpeer.Start(t, &mqttpeer.Broker{Time: "1999-01-01T00:00:00Z"}, nil, false)
	clock = &wall{from: time.Now(), at: time.Unix(100, 0)}
	s = openSite(t, t.TempDir(), "127.0.0.1:"+late.Port(), clock, nil)
	if a := s.take(t, event(1)); a.Outcome != ingest.Stored {
		t.Fatal(a)
	}
	poll.True(t, "the time is asked for", func() bool { return late.Connects() > 0 })
	if st := s.Status(); !st.ClockUnknown || len(late.Messages()) > 0 {
		t.Errorf("%+v, %d messages", st, len(late.Messages()))
	}
}

// TestAnotherInstanceIDOverTheSameDirectoryIsRefused: the topics of what waits would be others.
func TestAnotherInstanceIDOverTheSameDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	s := openSite(t, t.TempDir(), "127.0.0.1:1", nil, nil)
	s.stop()
	_, err := Open(Config{InstanceID: "other", Dir: s.dir + "/edge"}, Deps{Now: (&wall{from: time.Now()}).now})
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeConflict || !strings.Contains(e.Hint, "weir") {
		t.Fatal(err)
	}
}

// TestALogThatIsGoneBeginsANewEpoch: no number is used twice, whatever is lost of the directory.
func TestALogThatIsGoneBeginsANewEpoch(t *testing.T) {
	t.Parallel()
	up := mqttpeer.Start(t, &mqttpeer.Broker{}, nil, false)
	s := openSite(t, t.TempDir(), "127.0.0.1:"+up.Port(), nil, nil)
	s.take(t, event(1))
	poll.True(t, "it is above", func() bool { return s.Status().Waiting == 0 })
	install := s.InstallID()
	s.stop()
	if err := removeAll(s.dir + "/spool"); err != nil {
		t.Fatal(err)
	}
	s2 := openSite(t, s.dir, "127.0.0.1:"+up.Port(), nil, nil)
	s2.take(t, event(2))
	poll.True(t, "the next is above", func() bool { return len(up.Messages()) == 2 })
	if st := s2.Status(); st.InstallID != install || st.Epoch != 2 {
		t.Fatalf("%+v, it was %s", st, install)
	}
	s2.stop()
	if err := errors.Join(removeAll(s.dir+"/spool"), removeAll(s.dir+"/edge/state.json")); err != nil {
		t.Fatal(err)
	}
	if s3 := openSite(t, s.dir, "127.0.0.1:"+up.Port(), nil, nil); s3.InstallID() == install {
		t.Error("the installation goes on although nothing says which numbers it has used")
	}
}

// TestACredentialThatIsRefused is tried again at the longest pause, and shown.
func TestACredentialThatIsRefused(t *testing.T) {
	t.Parallel()
	up := mqttpeer.Start(t, &mqttpeer.Broker{OnConnect: nil}, nil, false)
	_ = up
	s := openSite(t, t.TempDir(), "127.0.0.1:"+refusing(t), nil, func(s *Settings) { s.Username, s.Password = "site", setting.NewSecret("secret") })
	poll.True(t, "it is shown", func() bool { return s.Status().Uplink.Refused != "" })
	in := s.Intake()
	if in.Admit("site", "wrong") || in.Admit("", "") || !in.Admit("site", "secret") {
		t.Error("the shared password")
	}
	a := event(1)
	a.Transport, a.Topic, a.Body = ingest.TransportHTTP, "", []byte(`{"device":"d","eventType":"Measurement","payload":{"entries":[{"measurements":{"n":"1"}}]}}`)
	if answer := s.take(t, a); answer.Outcome != ingest.Refused || answer.Reason != ingest.ReasonNotAuthorized {
		t.Error(answer)
	}
	a.Credential = ingest.Credential{Type: "MQTT_BASIC", ID: "site", Secret: "secret"}
	if answer := s.take(t, a); answer.Outcome != ingest.Stored {
		t.Error(answer)
	}
}

// TestALogThatIsClosedWhileTheBrokerIsAway: the end of the log is seen by what waits for the broker, and by what waits for the reader's end.
func TestALogThatIsClosedWhileTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := gone.Addr().String()
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	s := openSite(t, t.TempDir(), address, nil, func(s *Settings) { s.Uplink.BackoffMin, s.Uplink.BackoffMax = time.Hour, time.Hour })
	if err := s.spool.Close(); err != nil {
		t.Fatal(err)
	}
	<-s.ran
}
