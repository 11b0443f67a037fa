package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/ingest/links"
	"weir/model"
	"weir/spool"
)

// paperLog is a log of which only the figures exist. What is appended is stored at once, unless it is full.
type paperLog struct {
	spool.Log
	mu    sync.Mutex
	stats spool.Stats
	full  bool
}

func (l *paperLog) set(change func(*spool.Stats)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.stats)
}

func (l *paperLog) Stats() spool.Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

func (l *paperLog) Append(_ context.Context, es ...spool.Entry) error {
	l.mu.Lock()
	full := l.full
	l.mu.Unlock()
	if full {
		return spool.ErrFull
	}
	for i, e := range es {
		e.Done(model.Offset(i+1), nil)
	}
	return nil
}

// holding sets how many bytes and records of 1,000 each are kept.
func (l *paperLog) holding(bytes, records int64) {
	l.set(func(s *spool.Stats) {
		*s = spool.Stats{First: 1, Last: model.Offset(records), Bytes: bytes, MaxBytes: 1000, MaxRecords: 1000}
	})
}

func TestTransportsRefuseFromNineTenthsAndAcceptFromEightTenthsOfTheTighterLimit(t *testing.T) {
	t.Parallel()
	for _, kind := range []Cause{CauseBytes, CauseRecords} {
		log := &paperLog{}
		log.holding(0, 0)
		reg := prometheus.NewRegistry()
		g := NewGauge(GaugeConfig{Log: log, Registry: reg})
		for i, step := range []struct {
			held     int64 // of 1,000
			refusing bool
		}{{899, false}, {900, true}, {850, true}, {801, true}, {800, false}, {899, false}, {1000, true}, {0, false}} {
			other := int64(799) // less tight, and no reason of its own
			if kind == CauseBytes {
				log.holding(step.held, min(other, step.held))
			} else {
				log.holding(min(other, step.held), step.held)
			}
			g.Sample()
			if g.Refusing() != step.refusing {
				t.Errorf("%s, step %d: at %d of 1000 refusing is %v", kind, i, step.held, g.Refusing())
			}
			if why := g.Why(); step.refusing != slices.Equal(why, []string{string(kind)}) || g.Full() {
				t.Errorf("%s, step %d: because of %v, full %v", kind, i, why, g.Full())
			}
		}
	}
}

func TestTheEdgesAreExactForBudgetsThatTenDoesNotDivide(t *testing.T) {
	t.Parallel()
	for n := int64(1); n < 2000; n++ {
		if at := nineTenths(n); at*10 < n*9 || (at-1)*10 >= n*9 {
			t.Fatalf("nine tenths of %d are not %d", n, at)
		}
		if at := eightTenths(n); at*10 > n*8 || (at+1)*10 <= n*8 {
			t.Fatalf("eight tenths of %d are not %d", n, at)
		}
	}
	if most := int64(1) << 62; nineTenths(most) <= 0 || eightTenths(most) <= 0 {
		t.Error("a large budget overflows")
	}
}

func TestBothCausesMustPassBeforeMessagesAreTakenAgain(t *testing.T) {
	t.Parallel()
	log := &paperLog{}
	log.holding(950, 950)
	g := NewGauge(GaugeConfig{Log: log})
	log.holding(100, 850)
	g.Sample()
	if why := g.Why(); !slices.Equal(why, []string{"records"}) || !g.Refusing() {
		t.Errorf("refusing %v because of %v", g.Refusing(), why)
	}
}

// A log of 1 GiB fills by 10 MiB a second. It is let go on until it has half a minute left, and then refused although it
// is far from nine tenths; when it fills more slowly it is taken again from a minute on, and at once when the applier is
// as fast as the transports.
func TestTransportsRefuseWhenTheLogWillBeFullInHalfAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const second, mib = 1000, int64(1 << 20) // records
		log := &paperLog{stats: spool.Stats{First: 1, MaxBytes: 1 << 30, MaxRecords: 1 << 40}}
		var applied model.Offset
		reg := prometheus.NewRegistry()
		g := NewGauge(GaugeConfig{Log: log, Applied: func() model.Offset { return applied }, Registry: reg})
		tick := func(in, out int64, bytes int64) { // over a tick: records in and applied, bytes in
			time.Sleep(pressureTick)
			log.set(func(s *spool.Stats) {
				s.Last += model.Offset(in)
				s.Through, s.Bytes = s.Through+bytes, s.Bytes+bytes
				if in > 0 {
					s.Bytes -= bytes * min(out, in) / in
				}
			})
			applied += model.Offset(out)
			g.Sample()
		}
		room := func() time.Duration {
			s := log.Stats()
			return time.Duration(s.MaxBytes-s.Bytes) * time.Second / time.Duration(10*mib)
		}
		for room() >= 30*time.Second+pressureTick {
			tick(second/5, 0, 2*mib)
			if g.Refusing() {
				t.Fatalf("refused with %v left", room())
			}
		}
		for range 2 {
			tick(second/5, 0, 2*mib)
		}
		if s := log.Stats(); !g.Refusing() || !slices.Equal(g.Why(), []string{"runway"}) || s.Bytes >= nineTenths(s.MaxBytes) {
			t.Fatalf("taken with %v left: %v", room(), g.Why())
		}
		for range 60 { // at 6 MiB a second there is less than a minute
			tick(second/5, second/5*4/10, 2*mib)
		}
		if !g.Refusing() {
			t.Errorf("taken again although the log is full in %v", g.Runway())
		}
		for range 60 { // at 2 MiB a second there are two
			tick(second/5, second/5*8/10, 2*mib)
		}
		if g.Refusing() {
			t.Errorf("refused although the log is full in %v only", g.Runway())
		}
		if got := testutil.ToFloat64(g.collectors()[2]); got < 60 || got > 300 {
			t.Errorf("the metric says %v s", got)
		}
		log.set(func(s *spool.Stats) { s.Bytes = s.MaxBytes * 85 / 100 })
		for range 60 {
			tick(second/5, 0, 2*mib)
		}
		if !g.Refusing() {
			t.Fatalf("taken with %v left", g.Runway())
		}
		log.set(func(s *spool.Stats) { s.Bytes = s.MaxBytes * 7 / 10 })
		applied = log.Stats().Last
		g.Sample()
		if g.Refusing() {
			t.Errorf("caught up, and yet refused because of %v", g.Why())
		}
	})
}

func TestABurstIsNoForecast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &paperLog{stats: spool.Stats{First: 1, MaxBytes: 1000, MaxRecords: 1000}}
		g := NewGauge(GaugeConfig{Log: log, Applied: func() model.Offset { return 0 }})
		time.Sleep(runwayMin - pressureTick)
		log.set(func(s *spool.Stats) { s.Last, s.Bytes, s.Through = 500, 500, 500 })
		if g.Sample(); g.Refusing() {
			t.Errorf("%v of fast messages are held for a trend", runwayMin-pressureTick)
		}
	})
}

func TestRecordsHaveARunwayToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &paperLog{stats: spool.Stats{First: 1, MaxBytes: 1 << 40, MaxRecords: 100_000}}
		g := NewGauge(GaugeConfig{Log: log, Applied: func() model.Offset { return 0 }})
		for range 50 {
			time.Sleep(pressureTick)
			log.set(func(s *spool.Stats) { s.Last, s.Bytes, s.Through = s.Last+1000, s.Bytes+1000, s.Through+1000 })
			g.Sample()
		}
		if !g.Refusing() {
			t.Errorf("half of the records are gone in ten seconds, %v are left, and nothing is refused", g.Runway())
		}
	})
}

func TestTheReserveOfTheDiskRefusesAndHalfOfItStopsEverybody(t *testing.T) {
	t.Parallel()
	log := &paperLog{}
	log.holding(0, 0)
	const size, reserve = 1_000_000, 1000
	var free int64 = size
	var failing error
	g := NewGauge(GaugeConfig{Log: log, DiskSettings: DiskSettings{DiskReserve: reserve}, Disk: func() (int64, int64, error) { return free, size, failing }})
	for i, step := range []struct {
		free           int64
		refusing, full bool
	}{{1000, false, false}, {999, true, false}, {1249, true, false}, {1250, false, false}, {500, true, false}, {499, true, true}, {749, true, true},
		{750, true, false}, {1249, true, false}, {1250, false, false}} {
		free = step.free
		g.Sample()
		if g.Refusing() != step.refusing || g.Full() != step.full {
			t.Errorf("step %d, %d free: refusing %v, full %v", i, free, g.Refusing(), g.Full())
		}
	}
	free, failing = 0, errors.New("no such disk")
	if g.Sample(); g.Refusing() {
		t.Error("a disk that cannot be looked at is taken for a full one")
	}
	small := NewGauge(GaugeConfig{Log: log, DiskSettings: DiskSettings{DiskReserve: reserve}, Disk: func() (int64, int64, error) { return 600, 10_000, nil }})
	if small.Refusing() {
		t.Error("on a small disk a twentieth is enough")
	}
}

// dial is a Pressure that a test turns.
type dial struct {
	mu             sync.Mutex
	refusing, full bool
	changed        chan struct{}
}

func (d *dial) Refusing() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.refusing }
func (d *dial) Full() bool     { d.mu.Lock(); defer d.mu.Unlock(); return d.full }
func (d *dial) Sample()        {}
func (d *dial) Wait(ctx context.Context) error {
	d.mu.Lock()
	changed := d.changed
	d.mu.Unlock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *dial) turn(refusing, full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refusing, d.full = refusing, full
	if d.changed != nil {
		close(d.changed)
	}
	d.changed = make(chan struct{})
}

// paperIntake is an intake before a paper log.
func paperIntake(failClosed bool) (*Intake, *paperLog, *dial, *testCeiling) {
	log, d, c := &paperLog{}, &dial{}, &testCeiling{known: map[string]bool{"acme": true}, left: -1, unauthenticated: 100}
	d.turn(false, false)
	return NewIntake(IntakeConfig{AuthSettings: AuthSettings{DeviceAuth: AuthRequired}, HoldSettings: HoldSettings{FailClosed: failClosed}}, IntakeDeps{Log: log, Counts: NewTransportCounts(links.New(func() time.Duration { return 0 })),
		Stamp: func() model.Stamp { return model.Stamp{Wall: 1} }, Ceiling: c, Pressure: d, Tap: NewTap(func() model.Nanos { return 1 }, nil), Logger: slog.New(slog.DiscardHandler),
		Verify: func(context.Context, Claim) (Proof, model.Verdict, error) {
			return Proof{Credential: 7, DeviceID: 1, Device: "d1"}, model.VerdictOK, nil
		}}), log, d, c
}

// sender is a way to send, as the intake sees it.
type sender struct {
	name       string
	http, mute bool
	packet     uint16
	report     bool // a device report, which is held as events are
	answer     bool // an answer to a command, likewise
}

var senders = []sender{{name: "MQTT 3.1.1 QoS 0", mute: true}, {name: "MQTT 3.1.1 QoS 1", mute: true, packet: 1}, {name: "MQTT 5 QoS 0", mute: true},
	{name: "MQTT 5 QoS 1", packet: 1}, {name: "HTTP", http: true},
	{name: "report over MQTT 3.1.1 QoS 0", mute: true, report: true}, {name: "report over MQTT 3.1.1 QoS 1", mute: true, packet: 1, report: true},
	{name: "report over MQTT 5 QoS 1", packet: 1, report: true}, {name: "report over HTTP", http: true, report: true},
	{name: "answer over MQTT 3.1.1 QoS 0", mute: true, answer: true}, {name: "answer over MQTT 3.1.1 QoS 1", mute: true, packet: 1, answer: true},
	{name: "answer over MQTT 5 QoS 1", packet: 1, answer: true}, {name: "answer over HTTP", http: true, answer: true}}

func (s sender) arrival() *Arrival {
	a := s.event()
	if s.report {
		a.Topic, a.Reports, a.Body = "d1", true, []byte(`{"attributes":{"fw":"1"}}`)
		a.Credential = Credential{Type: "ACCESS_TOKEN", ID: "token-1"}
	}
	if s.answer {
		a.Topic, a.Answers, a.Body = "d1", true, []byte(`{"commandToken":"c-1","success":true,"credentialType":"ACCESS_TOKEN","credentialId":"token-1"}`)
	}
	return a
}

func (s sender) event() *Arrival {
	if s.http {
		return &Arrival{Transport: TransportHTTP, Source: "http1", Tenant: "acme", Body: []byte(measurement("temp", 1, `,"credentialType":"ACCESS_TOKEN","credentialId":"token-1"`))}
	}
	return &Arrival{Transport: TransportMQTT, Source: "mqtt1", Tenant: "acme", Topic: "d1", Body: []byte(temp(1)), ClientID: "weir:acme:d1", PacketID: s.packet, CannotRefuse: s.mute, HoldFor: -1,
		Conn: &model.Binding{Tenant: "acme", TenantID: 1, Device: "d1", DeviceID: 1, Credential: 7}}
}

// TestFailClosedByVersionQoSAndPressure holds every way to send against every state of the log, with room in the tenant's
// bucket and without.
func TestFailClosedByVersionQoSAndPressure(t *testing.T) {
	t.Parallel()
	const waits, stored = "waits", "stored"
	for _, s := range senders {
		for _, failClosed := range []bool{false, true} {
			for _, state := range []string{"room", "90 %", "disk", "100 %"} {
				for _, over := range []bool{false, true} {
					want := stored
					switch {
					case over && (s.http || !s.mute):
						want = "refused ceiling"
					case over:
						want = "dropped ceiling"
					case state == "room":
					case s.http:
						want = "refused backpressure"
					case state != "90 %", failClosed && s.packet > 0:
						want = waits
					}
					t.Run(fmt.Sprintf("%s/fail-closed %v/%s/over %v", s.name, failClosed, state, over), func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) { offered(t, s, failClosed, state, over, want) })
					})
				}
			}
		}
	}
}

func offered(t *testing.T, s sender, failClosed bool, state string, over bool, want string) {
	g, log, d, c := paperIntake(failClosed)
	if over {
		c.left = 0
	}
	d.turn(state != "room", state == "disk")
	log.full = state == "100 %"
	var got *Answer
	go g.Accept(t.Context(), s.arrival(), func(a Answer) { got = &a })
	synctest.Wait()
	if said := ended(got); said != want {
		t.Fatalf("%s, want %s", said, want)
	}
	retry := map[string]int{"refused ceiling": 1, "refused backpressure": 10, "dropped ceiling": 1}
	if got != nil && got.RetryAfter != retry[want] {
		t.Errorf("to be repeated after %d s", got.RetryAfter)
	}
	if got == nil { // as soon as there is room it is stored
		log.mu.Lock()
		log.full = false
		log.mu.Unlock()
		d.turn(false, false)
		if synctest.Wait(); ended(got) != "stored" {
			t.Errorf("with room again: %s", ended(got))
		}
	}
}

func ended(a *Answer) string {
	if a == nil {
		return "waits"
	}
	switch a.Outcome {
	case Stored:
		return "stored"
	case Refused:
		return "refused " + string(a.Reason)
	case Dropped:
		return "dropped " + string(a.Reason)
	}
	return "withheld " + string(a.Reason)
}

func TestWhoWaitsForRoomIsLetInWhenFailClosedIsSwitchedOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _, d, _ := paperIntake(true)
		d.turn(true, false)
		var got *Answer
		go g.Accept(t.Context(), senders[1].arrival(), func(a Answer) { got = &a })
		synctest.Wait()
		if got != nil {
			t.Fatalf("not waiting: %s", ended(got))
		}
		g.Set(IntakeConfig{AuthSettings: AuthSettings{DeviceAuth: AuthRequired}})
		if synctest.Wait(); ended(got) != "stored" {
			t.Errorf("switched off: %s", ended(got))
		}
		g.Set(IntakeConfig{AuthSettings: AuthSettings{DeviceAuth: AuthRequired}, HoldSettings: HoldSettings{FailClosed: true}})
		got = nil
		ctx, gone := context.WithCancel(t.Context())
		go g.Accept(ctx, senders[3].arrival(), func(a Answer) { got = &a })
		synctest.Wait()
		if got != nil {
			t.Fatalf("switched on again: %s", ended(got))
		}
		gone()
		if synctest.Wait(); ended(got) != "withheld backpressure" {
			t.Errorf("the connection ended first: %s", ended(got))
		}
	})
}
