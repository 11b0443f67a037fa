package broker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/ingest"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/presence"
)

const (
	theClient     = "weir:acme:dev1"
	theUser       = "acme:tok1"
	theEvents     = "weir/acme/devices/dev1/events"
	theCommands   = "weir/acme/device-commands/dev1"
	theAttributes = "weir/acme/device-attributes/dev1"
	theReports    = "weir/acme/device-reports/dev1"

	theResponses = "weir/acme/command-responses/dev1"
)

// fakeIntake stores everything at once unless it is told otherwise.
type fakeIntake struct {
	mu       sync.Mutex
	arrivals []ingest.Arrival
	presence []model.Presence
	firings  []string
	dones    []func(ingest.Answer)
	received int
	refused  []ingest.Reason
	hold     bool
	answer   func(a *ingest.Arrival) ingest.Answer
	block    func(ctx context.Context) // called before anything else
}

func (g *fakeIntake) Accept(ctx context.Context, a *ingest.Arrival, done func(ingest.Answer)) {
	if g.block != nil {
		g.block(ctx)
	}
	if ctx.Err() != nil {
		done(ingest.Answer{Outcome: ingest.Withheld})
		return
	}
	g.mu.Lock()
	kept := *a
	kept.Body = bytes.Clone(a.Body) // it is the intake's until Accept returns
	g.arrivals = append(g.arrivals, kept)
	hold := g.hold
	if hold {
		g.dones = append(g.dones, done)
	}
	g.mu.Unlock()
	if hold {
		return
	}
	answer := ingest.Answer{}
	if g.answer != nil {
		answer = g.answer(a)
	}
	done(answer)
}

func (g *fakeIntake) Presence(_ context.Context, _, _ string, _ model.Binding, p model.Presence, done func(ingest.Answer)) {
	g.mu.Lock()
	g.presence = append(g.presence, p)
	g.mu.Unlock()
	done(ingest.Answer{})
}

func (g *fakeIntake) Firing(_ context.Context, _, _ string, b model.Binding, f model.Firing, link string, number uint64, done func(ingest.Answer)) {
	g.mu.Lock()
	g.firings = append(g.firings, fmt.Sprintf("%s %s/%s %s %s %d", b.Device, f.Profile, f.Rule, f.Signal, link, number))
	g.mu.Unlock()
	done(ingest.Answer{})
}

func (g *fakeIntake) Received(string, string, string, int) ingest.Packet {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.received++
	return ingest.Packet{}
}

func (g *fakeIntake) Refuse(_ ingest.Packet, r ingest.Reason) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused = append(g.refused, r)
}

func (g *fakeIntake) settle(i int, a ingest.Answer) {
	g.mu.Lock()
	done := g.dones[i]
	g.mu.Unlock()
	done(a)
}

func (g *fakeIntake) bodies() (all []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.arrivals {
		all = append(all, string(a.Body))
	}
	return all
}

// transitions are the presence transitions so far, as words.
func (g *fakeIntake) transitions() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []string
	for _, p := range g.presence {
		all = append(all, p.State.String()+" "+p.Reason)
	}
	return strings.Join(all, ", ")
}

type fakeVerifier struct {
	mu     sync.Mutex
	proofs map[Claim]Proof
	hook   func()
	err    error // of what is in no proof; nil: a refusal
	calls  int
}

func (v *fakeVerifier) Verify(_ context.Context, c Claim) (Proof, error) {
	v.mu.Lock()
	v.calls++
	v.mu.Unlock()
	if v.hook != nil { // not under the lock: a bubble's clock stands still while a goroutine waits for a mutex
		v.hook()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	c.From = netip.Addr{} // a credential is good from every address
	if p, ok := v.proofs[c]; ok {
		return p, nil
	}
	if v.err != nil {
		return Proof{}, v.err
	}
	return Proof{}, errors.New("no")
}

func knownDevices() *fakeVerifier {
	dev := func(tenant, device string, id int64) Proof {
		return Proof{Binding: model.Binding{Tenant: tenant, TenantID: 1, Device: device, DeviceID: id, Credential: 100 + id}}
	}
	return &fakeVerifier{proofs: map[Claim]Proof{
		{Tenant: "acme", Type: AccessToken, ID: "tok1"}:                    dev("acme", "dev1", 1),
		{Tenant: "acme", Type: AccessToken, ID: "tok2"}:                    dev("acme", "dev2", 2),
		{Tenant: "acme", Type: MQTTBasic, ID: "user1", Secret: "s3cret"}:   dev("acme", "dev1", 1),
		{Tenant: "globex", Type: AccessToken, ID: "tok9"}:                  dev("globex", "dev1", 9),
		{Tenant: "acme", Type: AccessToken, ID: "with:colon"}:              dev("acme", "dev1", 1),
		{Tenant: "acme", Type: AccessToken, ID: "tok-of-another-tenant"}:   dev("globex", "dev1", 9),
		{Tenant: "acme", Type: MQTTBasic, ID: "user1", Secret: "s3cret\n"}: dev("acme", "dev2", 2),
	}}
}

// pipes is a listener in memory. A connection to one that is closed is over at once.
type pipes struct{ *fixture.Pipes }

func (l pipes) dial() net.Conn {
	c, _ := l.Dial(context.Background())
	return c
}

// bench is a broker with its neighbours.
type bench struct {
	t        testing.TB
	intake   *fakeIntake
	verifier *fakeVerifier
	broker   *Broker
	ln       pipes
}

// inBubble runs test with a broker under a clock of its own. Everything must have ended when it returns.
func inBubble(t *testing.T, cfg Config, test func(*testing.T, *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := newBench(t, cfg, nil)
		defer x.stop()
		test(t, x)
	})
}

func newBench(t testing.TB, cfg Config, store presence.Store) *bench {
	return newBenchWith(t, cfg, Deps{Presence: store})
}

// newBenchWith fills in the intake and the verifier.
func newBenchWith(t testing.TB, cfg Config, d Deps) *bench {
	x := &bench{t: t, intake: &fakeIntake{}, verifier: knownDevices(), ln: pipes{fixture.NewPipes(0)}}
	cfg.InstanceID = "weir"
	d.Intake, d.Verifier = x.intake, x.verifier
	var err error
	if x.broker, err = New(cfg, d); err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := x.broker.Serve(context.Background(), x.ln); err != nil && !errors.Is(err, net.ErrClosed) { // the test may be over first
			t.Errorf("Serve: %v", err)
		}
	}()
	return x
}

func (x *bench) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := x.broker.Close(ctx); err != nil {
		x.t.Errorf("Close: %v", err)
	}
}

// client is an MQTT client that does exactly what a test tells it. What it receives is collected by a goroutine.
type client struct {
	t       testing.TB
	conn    net.Conn
	version byte
	mu      sync.Mutex
	got     []byte // everything received
	closed  bool
	read    chan struct{}
}

func attach(t testing.TB, conn net.Conn, version byte) *client {
	c := &client{t: t, conn: conn, version: version, read: make(chan struct{})}
	go func() {
		defer close(c.read)
		r := bufio.NewReader(conn)
		for {
			b, err := r.ReadByte()
			c.mu.Lock()
			if err != nil {
				c.closed = true
				c.mu.Unlock()
				return
			}
			c.got = append(c.got, b)
			c.mu.Unlock()
		}
	}()
	return c
}

func (x *bench) dial(version byte) *client { return attach(x.t, x.ln.dial(), version) }

// connect opens a session for dev1 and fails the test when it is refused.
func (x *bench) connect(version byte, options ...func(*hello)) *client {
	x.t.Helper()
	c := x.dial(version)
	c.send(connectPacket(version, options...))
	synctest.Wait()
	got := c.take()
	if len(got) == 0 || got[0][0] != pktConnack<<4 || got[0][3] != 0 {
		x.t.Fatalf("CONNACK is % x", got)
	}
	return c
}

func (c *client) send(packets ...[]byte) {
	if _, err := c.conn.Write(slices.Concat(packets...)); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		c.t.Logf("write: %v", err)
	}
}

// take returns the packets received since the last call.
func (c *client) take() (packets [][]byte) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.got) > 0 {
		r := bufio.NewReader(strings.NewReader(string(c.got)))
		_, size, err := fixedHeader(r)
		if err != nil || packetSize(size) > len(c.got) {
			break
		}
		packets = append(packets, c.got[:packetSize(size):packetSize(size)])
		c.got = c.got[packetSize(size):]
	}
	return packets
}

func (c *client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// expect waits until all is quiet and fails unless exactly these packets have come.
func (c *client) expect(what string, want ...[]byte) {
	c.t.Helper()
	synctest.Wait()
	got := c.take()
	if !slices.EqualFunc(got, want, slices.Equal) {
		c.t.Fatalf("%s: received % x, want % x", what, got, want)
	}
}

// expectInAnyOrder is expect where the standard leaves the order open: an answer, and a message on its way to the same client.
func (c *client) expectInAnyOrder(what string, want ...[]byte) {
	c.t.Helper()
	synctest.Wait()
	got := c.take()
	sorted := func(packets [][]byte) [][]byte { return slices.SortedFunc(slices.Values(packets), bytes.Compare) }
	if !slices.EqualFunc(sorted(got), sorted(want), slices.Equal) {
		c.t.Fatalf("%s: received % x, want % x in any order", what, got, want)
	}
}

func (c *client) expectClosed(what string) {
	c.t.Helper()
	synctest.Wait()
	if !c.isClosed() {
		c.t.Fatalf("%s: the connection is still open", what)
	}
}

// hello is what goes into a CONNECT.
type hello struct {
	name           string
	level          byte
	flags          byte
	keepAlive      uint16
	props          []byte
	clientID       string
	willProps      []byte
	will           []string // topic, payload
	user, password string
	noUser         bool
	tail           []byte
}

func connectPacket(version byte, options ...func(*hello)) []byte {
	h := hello{name: "MQTT", level: version, flags: flagClean, keepAlive: 60, clientID: theClient, user: theUser}
	for _, o := range options {
		o(&h)
	}
	b := append(str(h.name), h.level)
	if !h.noUser {
		h.flags |= flagUser
	}
	if h.password != "" {
		h.flags |= flagPassword
	}
	if h.will != nil {
		h.flags |= flagWill
	}
	b = binary.BigEndian.AppendUint16(append(b, h.flags), h.keepAlive)
	if version == mqtt5 {
		b = append(appendVarint(b, len(h.props)), h.props...)
	}
	b = append(b, str(h.clientID)...)
	if h.will != nil {
		if version == mqtt5 {
			b = append(appendVarint(b, len(h.willProps)), h.willProps...)
		}
		b = append(b, slices.Concat(str(h.will[0]), str(h.will[1]))...)
	}
	if !h.noUser {
		b = append(b, str(h.user)...)
	}
	if h.password != "" {
		b = append(b, str(h.password)...)
	}
	return packet(pktConnect<<4, append(b, h.tail...)...)
}

func str(s string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...)
}

func packet(header byte, body ...byte) []byte {
	return append(appendVarint([]byte{header}, len(body)), body...)
}

// publishPacket is a PUBLISH without properties; flags are those of its fixed header.
func publishPacket(version, flags byte, topic string, id uint16, payload string) []byte {
	b := str(topic)
	if flags&6 != 0 {
		b = binary.BigEndian.AppendUint16(b, id)
	}
	if version == mqtt5 {
		b = append(b, 0)
	}
	return packet(pktPublish<<4|flags, append(b, payload...)...)
}

const (
	qos1 = 2
	qos2 = 4
	dup  = 8
)

func subscribePacket(version byte, id uint16, filters ...string) []byte {
	b := binary.BigEndian.AppendUint16(nil, id)
	if version == mqtt5 {
		b = append(b, 0)
	}
	for _, f := range filters {
		b = append(append(b, str(f)...), 1)
	}
	return packet(pktSubscribe<<4|2, b...)
}

func puback(id byte) []byte { return []byte{0x40, 2, 0, id} }

// pubackReason is the PUBACK of MQTT 5 with a code and a reason string.
func pubackReason(id, code byte, text string) []byte {
	return packet(0x40, slices.Concat([]byte{0, id, code, byte(3 + len(text)), propReasonString}, str(text))...)
}

// counted is the value of a metric.
func counted(t testing.TB, c prometheus.Collector) float64 {
	t.Helper()
	return testutil.ToFloat64(c)
}

// mochiDecodes runs the library's own decoder.
func mochiDecodes(version, kind byte, body []byte) error {
	pk := packets.Packet{ProtocolVersion: version, FixedHeader: packets.FixedHeader{Type: kind, Remaining: len(body)}}
	switch kind {
	case pktPuback:
		return pk.PubackDecode(body)
	case pktSubscribe:
		return pk.SubscribeDecode(body)
	}
	return pk.UnsubscribeDecode(body)
}

func (g *fakeIntake) seenPresence() []model.Presence {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.presence)
}

func (g *fakeIntake) seenArrivals() []ingest.Arrival {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.arrivals)
}

func (g *fakeIntake) reasons() []ingest.Reason {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.refused)
}

func (g *fakeIntake) counted() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.received
}
