package mqttsource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/ingest"
	"weir/ingest/links"
	"weir/internal/setting"
	"weir/internal/test/conformance"
	"weir/internal/test/mqttpeer"
	"weir/presence"
	"weir/store"
	"weir/store/sqlite"
)

// pair is a broker, and nodes that read it over one store.
type pair struct {
	*testing.T
	broker *mqttpeer.Broker
	db     store.Store

	mu     sync.Mutex
	hellos []*packets.Connect
}

// node is one of the nodes.
type node struct {
	*world
	*Transport
	name    string
	log     *record
	cut     atomic.Bool // the store does not answer
	away    atomic.Bool // the broker cannot be reached
	cancel  context.CancelFunc
	stopped chan struct{}
}

// record keeps the lines of a log.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, string(b))
	return len(b), nil
}

func (r *record) count(text string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines {
		if strings.Contains(l, text) {
			n++
		}
	}
	return n
}

// cutStore is the store as a node sees it.
type cutStore struct {
	store.Store
	cut *atomic.Bool
}

var errCut = errors.New("the store does not answer")

func (s cutStore) Read(ctx context.Context, fn func(store.Tx) error) error {
	if s.cut.Load() {
		return errCut
	}
	return s.Store.Read(ctx, fn)
}

func (s cutStore) Write(ctx context.Context, d store.Durability, fn func(store.Tx) error) error {
	if s.cut.Load() {
		return errCut
	}
	return s.Store.Write(ctx, d, fn)
}

// together runs a test in a bubble.
func together(t *testing.T, test func(p *pair)) {
	synctest.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "weir.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := &pair{T: t, db: db}
		p.broker = &mqttpeer.Broker{OnConnect: func(c *packets.Connect) byte {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.hellos = append(p.hellos, c)
			return 0
		}}
		defer func() {
			p.broker.Cut()
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(p)
	})
}

// start starts a node.
func (p *pair) start(name string, change func(*Config)) *node {
	p.Helper()
	n := &node{world: &world{T: p.T, broker: p.broker, reg: prometheus.NewRegistry()}, name: name, log: &record{}, stopped: make(chan struct{})}
	var cfg Settings
	setting.SetDefaults(&cfg)
	var s Source
	setting.SetDefaults(&s)
	s.ID, s.URL, s.Tenant = "plant", "mqtt://broker:1883", "acme"
	cfg.Sources = []Source{s}
	all := Config{InstanceID: "weir", Node: name, Settings: cfg, Timing: presence.Timing{Grace: time.Minute, Check: time.Hour}}
	change(&all)
	var err error
	if n.Transport, err = New(all, Deps{Intake: n.world, Adopter: n.world, Store: cutStore{p.db, &n.cut}, Tenant: func(string) (int64, bool, bool) { return 7, true, true },
		Link: links.New(func() time.Duration { return 0 }).Link,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if n.away.Load() {
				return nil, errors.New("no route to the broker")
			}
			return p.broker.Dial(ctx, network, address)
		},
		Suspend: func(reason string) func() {
			n.suspended.Store(&reason)
			return func() { n.suspended.Store(nil) }
		}, Logger: slog.New(slog.NewTextHandler(n.log, nil)), Registerer: n.reg}); err != nil {
		p.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	go func() {
		defer close(n.stopped)
		if err := n.Run(ctx); err != nil {
			p.Error(err)
		}
	}()
	return n
}

func (n *node) stop() {
	n.cancel()
	<-n.stopped
}

// kill ends a node that says nothing any more, neither to the store nor to the broker.
func (n *node) kill() {
	n.cut.Store(true)
	n.stop()
}

// after lets a time pass, and what follows from it happen.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// owners are the owner's metrics of nodes.
func owners(nodes ...*node) (all []float64) {
	for _, n := range nodes {
		all = append(all, testutil.ToFloat64(n.metrics.owner.WithLabelValues("plant")))
	}
	return all
}

func (p *pair) expect(what string, want []float64, nodes ...*node) {
	p.Helper()
	if got := owners(nodes...); !slices.Equal(got, want) {
		p.Errorf("%s: the owners are %v, want %v", what, got, want)
	}
}

// hello is the newest CONNECT.
func (p *pair) hello() *packets.Connect {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hellos[len(p.hellos)-1]
}

var nextPacket atomic.Uint32

// send delivers an event to whoever is subscribed and returns to how many.
func (p *pair) send(body string) int {
	n := p.broker.Deliver(mqttpeer.Delivery{Topic: "x/acme/devices/d1/events", Payload: body, QoS: 1, PacketID: uint16(nextPacket.Add(1))})
	synctest.Wait()
	return n
}

func same(*Config) {}

// TestOneNodeReadsASource and the others stand by; a stop hands it over at once, a node that is killed leaves it until its lease ends.
func TestOneNodeReadsASource(t *testing.T) {
	together(t, func(p *pair) {
		a := p.start("a", same)
		after(0)
		b := p.start("b", same)
		after(time.Minute)
		p.expect("two nodes", []float64{1, 0}, a, b)
		if n := p.send("1"); n != 1 || p.broker.Open() != 1 {
			t.Errorf("%d nodes read it over %d connections", n, p.broker.Open())
		}
		if s := b.Sources()[0]; s.State != ingest.SourceStandby || s.Owner != "a" || a.Sources()[0].Owner != "a" || a.Sources()[0].State != ingest.SourceUp {
			t.Errorf("%+v, %+v", a.Sources()[0], s)
		}
		if n, err := testutil.GatherAndCount(b.reg, "weir_source_connected"); n != 0 || err != nil {
			t.Errorf("the node that stands by shows %d connections, %v: SourceDown would fire", n, err)
		}
		c := p.start("c", same)
		after(time.Minute)
		p.expect("three nodes", []float64{1, 0, 0}, a, b, c)
		conformance.Shown(t, "S2-052")
		conformance.Shown(t, "S2-056")

		begun := time.Now()
		a.stop()
		c.stop()
		for owners(b)[0] != 1 || b.Sources()[0].State != ingest.SourceUp {
			after(100 * time.Millisecond)
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("a clean hand-over took %v", took)
		}
		if c := p.hello(); c.ClientID != "weir:weir:plant:b" || !c.CleanStart {
			t.Errorf("the new reader begins with %s, clean start %v", c.ClientID, c.CleanStart)
		}
		p.send("2")

		a = p.start("a", same)
		after(7 * time.Second) // between two renewals
		begun = time.Now()
		b.kill()
		for owners(a)[0] != 1 || a.Sources()[0].State != ingest.SourceUp {
			after(100 * time.Millisecond)
		}
		if took := time.Since(begun); took < 20*time.Second || took > 32*time.Second {
			t.Errorf("the source of a node that was killed was unread for %v", took)
		}
		conformance.Shown(t, "S2-053")
		if c := p.hello(); !c.CleanStart {
			t.Error("a node that was not the last owner resumes its session")
		}
		p.send("3")
		if got := a.messages(); !slices.Equal(got, []string{"acme d1 3"}) {
			t.Errorf("a has %q", got)
		}
		if got := b.messages(); !slices.Equal(got, []string{"acme d1 2"}) {
			t.Errorf("b has %q", got)
		}
		a.stop()
		a = p.start("a", same)
		after(time.Second)
		if c := p.hello(); c.CleanStart {
			t.Error("the last owner begins a new session")
		}
		a.stop()
	})
}

// TestANodeThatCannotConnect logs why, leaves the source to the others and tries again; what else it reads goes on.
func TestANodeThatCannotConnect(t *testing.T) {
	together(t, func(p *pair) {
		a := p.start("a", same)
		after(time.Second)
		b := p.start("b", func(c *Config) {
			other := c.Sources[0]
			other.ID, other.Topic = "other", "other/#"
			c.Sources = append(c.Sources, other)
		})
		after(time.Second)
		b.away.Store(true)
		a.stop()
		after(2 * time.Second)
		p.expect("taken over and released", []float64{0}, b)
		const text = "an event source cannot be read: it is left to other nodes"
		if n := b.log.count(text); n != 1 || b.log.count("no route to the broker") == 0 {
			t.Fatalf("%d lines: %q", n, b.log.lines)
		}
		if s := b.Sources(); s[0].State != ingest.SourceDown || s[0].LastError == "" || s[1].State != ingest.SourceUp {
			t.Errorf("%+v", s)
		}
		if b.Suspended() != "" {
			t.Errorf("all transports are closed: %s", b.Suspended())
		}
		b.away.Store(false)
		after(10 * time.Second)
		p.expect("before the next attempt", []float64{0}, b)
		after(5 * time.Second)
		p.expect("15 s later", []float64{1}, b)
		if s := b.Sources(); s[0].State != ingest.SourceUp || s[1].State != ingest.SourceUp {
			t.Errorf("%+v", s)
		}
		conformance.Shown(t, "S2-054")

		// A takeover that came to nothing does not make the session of the last reader useless.
		c := p.start("c", same)
		c.away.Store(true)
		after(time.Second)
		b.stop()
		after(2 * time.Second)
		b = p.start("b", same)
		after(2 * time.Second)
		if hello := p.hello(); hello.ClientID != "weir:weir:plant:b" || hello.CleanStart {
			t.Errorf("%s begins with clean start %v", hello.ClientID, hello.CleanStart)
		}
		b.stop()
		c.stop()
	})
}

// TestWhatComesAfterTheSourceIsLost is dropped and counted, and not acknowledged. The node gives its connection up by itself.
func TestWhatComesAfterTheSourceIsLost(t *testing.T) {
	together(t, func(p *pair) {
		a := p.start("a", same)
		held := make(chan struct{})
		a.answer = func(*ingest.Arrival) (ingest.Answer, bool) {
			<-held // the decoder waits
			return ingest.Answer{Outcome: ingest.Stored}, true
		}
		after(time.Second)
		b := p.start("b", same)
		after(time.Second)
		for i := range 4 {
			if n := p.send(fmt.Sprint(i)); n != 1 {
				t.Fatalf("%d readers", n)
			}
		}
		a.cut.Store(true) // it cannot renew its lease, and is still connected
		after(15 * time.Second)
		p.expect("the lease goes on", []float64{1, 0}, a, b)
		after(20 * time.Second)
		p.expect("the lease has ended", []float64{0, 1}, a, b)
		close(held)
		after(time.Second)
		if n := testutil.ToFloat64(a.metrics.notOwner.WithLabelValues("plant")); n != 3 {
			t.Errorf("%v messages were dropped as late", n)
		}
		if got := a.messages(); !slices.Equal(got, []string{"acme d1 0"}) || len(p.broker.Acked()) > 0 {
			t.Errorf("stored: %q, acknowledged: %v", got, p.broker.Acked())
		}
		conformance.Shown(t, "S2-055")
		p.send("4")
		if got := b.messages(); !slices.Equal(got, []string{"acme d1 4"}) {
			t.Errorf("b has %q", got)
		}
		// Once it learns of the other one it ends its session at the broker, which would collect messages for nobody.
		a.cut.Store(false)
		after(2 * time.Second)
		if c := p.hello(); c.ClientID != "weir:weir:plant:a" || !c.CleanStart || c.Properties.SessionExpiryInterval != nil && *c.Properties.SessionExpiryInterval != 0 {
			t.Errorf("%s %v %+v", c.ClientID, c.CleanStart, c.Properties)
		}
		if s := a.Sources()[0]; s.State != ingest.SourceStandby || p.broker.Open() != 1 {
			t.Errorf("%+v, %d connections", s, p.broker.Open())
		}
		a.stop()
		b.stop()
	})
}

// TestAFailedPublish is a message that the log does not take: it is counted and logged. Weir does not try it again: the broker delivers it again where it
// keeps the session.
func TestAFailedPublish(t *testing.T) {
	together(t, func(p *pair) {
		a := p.start("a", same)
		a.answer = func(a *ingest.Arrival) (ingest.Answer, bool) {
			if string(a.Body) == "broken" {
				return ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonUnavailable}, true
			}
			return ingest.Answer{Outcome: ingest.Stored}, true
		}
		after(time.Second)
		p.send("broken")
		after(time.Minute)
		p.send("next")
		if got := a.messages(); !slices.Equal(got, []string{"acme d1 broken", "acme d1 next"}) {
			t.Errorf("the log was handed %q", got)
		}
		if n := testutil.ToFloat64(a.metrics.failed.WithLabelValues("plant")); n != 1 || a.log.count("a message could not be handed to the log") != 1 || a.log.count("error=log-unavailable") != 1 {
			t.Errorf("%v are counted: %q", n, a.log.lines)
		}
		if n, err := testutil.GatherAndCount(a.reg, "weir_eventsources_total_msg_publish_failed"); n != 1 || err != nil || len(p.broker.Acked()) != 1 {
			t.Errorf("%d metrics, %v; acknowledged: %v", n, err, p.broker.Acked())
		}
		conformance.Shown(t, "S2-046")
		a.stop()
	})
}

// TestANodeThatIsAlone takes what a run before it held, and reads also while the store takes nothing.
func TestANodeThatIsAlone(t *testing.T) {
	together(t, func(p *pair) {
		alone := func(c *Config) { c.Alone = true }
		a := p.start("a", alone)
		after(time.Second)
		a.kill()
		b := p.start("b", alone)
		after(0)
		p.expect("at once", []float64{1}, b)
		b.cut.Store(true)
		after(5 * time.Minute)
		p.expect("without the store", []float64{1}, b)
		if p.send("1"); len(b.messages()) != 1 {
			t.Errorf("%q", b.messages())
		}
		b.stop()
	})
}
