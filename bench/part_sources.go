package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"weir/ingest"
	"weir/operate"
	"weir/sparkplug"
)

const (
	sourcePublishers = 64
	sparkplugNodes   = 500
	metricsEach      = 100 // of a node, in each of its messages
	// notStored is how many readings may be on their way from the publishers to the store: a backlog that does not grow.
	notStored = 40_000
)

// sources measures brokers of others that are read: from mosquitto's publishers to what is stored.
func (b *bench) sources(ctx context.Context) error {
	return b.each(ctx, decodeSparkplug, readMosquitto, readSparkplug, bornAtOnce)
}

// decodeSparkplug decodes one NDATA after the other, resolves its aliases and follows its sequence, on one core.
func decodeSparkplug(b *bench, _ context.Context) error {
	m, now := sparkplug.NewMachine(sparkplug.Rules{RebirthsPerSecond: 10}), time.Now()
	birth := sparkplug.Topic{Kind: sparkplug.NBIRTH, Group: "g", Node: "n"}
	data := sparkplug.Topic{Kind: sparkplug.NDATA, Group: "g", Node: "n"}
	m.Message(birth, nodeBirth(1, now), now)
	bodies := make([][]byte, 256)
	for i := range bodies {
		bodies[i] = nodeData(nil, int64(i+1), now)
	}
	metrics := 0
	for i := 0; time.Since(now) < b.seconds/4; i++ {
		for _, e := range m.Message(data, bodies[i%256], now) {
			metrics += len(e.Samples)
		}
	}
	b.judged(atLeast(500_000, 2_000_000, perSecond), "Sparkplug: metrics of NDATA of 100 decoded and resolved, one core", float64(metrics)/time.Since(now).Seconds(), "")
	return nil
}

// throttled bounds what publishers have under way by what is stored.
type throttled struct {
	sent, stored atomic.Int64 // readings
}

// follow reads what is stored until ctx ends.
func (t *throttled) follow(ctx context.Context, in *instance) error {
	for ctx.Err() == nil {
		n, err := in.metric(ctx, "weir_ingest_readings_stored_total")
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		t.stored.Store(int64(n))
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return nil
		}
	}
	return nil
}

// pattern keeps window messages of each sender in flight at the broker, and waits while too many readings are not stored. A message has so many.
func (t *throttled) pattern(window, readings int64, payload func(s *sender, out []byte) []byte) pattern {
	return func(s *sender, stop *atomic.Bool) error {
		var body []byte
		for !stop.Load() {
			if t.sent.Load()-t.stored.Load() > notStored {
				time.Sleep(time.Millisecond)
				continue
			}
			s.out = s.out[:0]
			for limit := s.acked.Load() + window; s.sent < limit; s.sent++ {
				body = payload(s, body[:0])
				s.out = appendPublish(s.out, s.topic, s.sent, body)
				t.sent.Add(readings)
			}
			if err := s.exchange(); err != nil {
				return err
			}
		}
		s.out = s.out[:0]
		for s.acked.Load() < s.sent {
			if err := s.exchange(); err != nil {
				return err
			}
		}
		return nil
	}
}

// exchange writes what is to go out and takes the acknowledgements that have come, at least one.
func (s *sender) exchange() error {
	if err := s.patient(time.Now()); err != nil {
		return err
	}
	if len(s.out) > 0 {
		if _, err := s.Write(s.out); err != nil {
			return err
		}
	}
	n, err := s.acks(s.acked.Load())
	s.acked.Add(int64(n))
	return err
}

// everything waits until all that was sent is stored, and reports what is not after a minute.
func (t *throttled) everything(ctx context.Context) error {
	for end := time.Now().Add(time.Minute); t.stored.Load() < t.sent.Load(); {
		if time.Now().After(end) {
			return fmt.Errorf("LOSS: the broker has acknowledged %d readings, %d are stored", t.sent.Load(), t.stored.Load())
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// foreignBroker starts a mosquitto that keeps whatever its clients have not taken, nil when it is not there.
func (b *bench) foreignBroker(ctx context.Context) (*server, address, error) {
	program, err := exec.LookPath("mosquitto")
	if err != nil {
		if program = "/usr/sbin/mosquitto"; !exists(program) {
			return nil, address{}, nil
		}
	}
	addr, err := freeAddress(ctx)
	if err != nil {
		return nil, addr, err
	}
	s, err := b.peer(ctx, "mosquitto-read", program, addr, mosquittoConf(addr)+"max_queued_messages 0\nmax_inflight_messages 0\n")
	return s, addr, err
}

// isRead waits until the only source of an instance is connected.
func (in *instance) isRead(ctx context.Context) error {
	for end := time.Now().Add(time.Minute); ; {
		all, err := operate.ListSources.Ask(ctx, in.client, operate.None{})
		if err != nil {
			return err
		}
		for _, s := range all {
			if s.Transport != ingest.TransportMQTT && s.Transport != ingest.TransportHTTP && s.State == string(ingest.SourceUp) {
				return nil
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("the source is not connected: %+v", all)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// throughStore drives senders through a broker and adds the row of what was stored while it was measured. prepare returns how many readings
// were sent before.
func (b *bench) throughStore(ctx context.Context, g goal, what string, in *instance, senders []*sender, readings int64, window int64, payload func(*sender, []byte) []byte, prepare func(*throttled) error) error {
	t := &throttled{}
	life, end := context.WithCancel(ctx)
	defer end()
	followed := make(chan error, 1)
	go func() { followed <- t.follow(life, in) }()
	if prepare != nil {
		if err := prepare(t); err != nil {
			return err
		}
	}
	var from, to int64
	var began, finished time.Time
	defer b.perf(ctx, "sources", in.pid())()
	o, err := b.drive(ctx, in.pid(), senders, t.pattern(window, readings, payload), func(begins bool) error {
		if begins {
			from, began = t.stored.Load(), time.Now()
		} else {
			to, finished = t.stored.Load(), time.Now()
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := t.everything(ctx); err != nil {
		return err
	}
	end()
	if err := <-followed; err != nil {
		return err
	}
	if err := in.applied(ctx); err != nil {
		return err
	}
	var page struct {
		MeasurementEvents struct{ Pagination struct{ TotalRecords int64 } }
	}
	if err := in.query(ctx, "event-management", `{measurementEvents(criteria:{pageNumber:1,pageSize:1}){pagination{totalRecords}}}`, nil, &page); err != nil {
		return err
	}
	if got := page.MeasurementEvents.Pagination.TotalRecords; got != t.sent.Load() {
		return fmt.Errorf("LOSS: the broker has acknowledged %d readings, %d are there", t.sent.Load(), got)
	}
	if err := in.verifyLedger(ctx, false); err != nil {
		return err
	}
	b.judged(g, what, float64(to-from)/finished.Sub(began).Seconds(), "at most %s readings on their way; %.2f cores of the server%s; all are there", count(notStored), o.cpu, o.others())
	return nil
}

// besideBroker measures with an instance that reads mosquitto; where mosquitto cannot be had, the row says so.
func (b *bench) besideBroker(ctx context.Context, what string, as func(address) setup, measure func(*instance, address) error) error {
	broker, addr, err := b.foreignBroker(ctx)
	if err != nil {
		return err
	}
	if broker == nil {
		b.row(what, "not measured", "mosquitto cannot be had")
		return nil
	}
	defer broker.stop()
	in, err := b.ready(ctx, as(addr))
	if err != nil {
		return err
	}
	defer in.drop()
	return measure(in, addr)
}

// readMosquitto: events on the topics of Weir's own broker, published to mosquitto.
func readMosquitto(b *bench, ctx context.Context) error {
	const what = "mosquitto to stored, one reading a message, 64 publishers"
	as := func(addr address) setup {
		return setup{devices: sourcePublishers, config: fmt.Sprintf("external_mqtt:\n  sources:\n    - {id: plant, url: \"mqtt://%s\", tenant: %s, map: [{topic: \"weir/%s/devices/{device}/events\", decode: event}]}\n", addr, tenant, tenant)}
	}
	return b.besideBroker(ctx, what, as, func(in *instance, addr address) error {
		if err := in.isRead(ctx); err != nil {
			return err
		}
		senders, err := connectPlain(ctx, addr.String(), sourcePublishers)
		if err != nil {
			return err
		}
		defer closeAll(senders)
		return b.throughStore(ctx, atLeast(10_000, 25_000, perSecond), what, in, senders, 1, 20, func(s *sender, out []byte) []byte { return s.body.append(out) }, nil)
	})
}

// readSparkplug: nodes that are born once and then send all their metrics by alias.
func readSparkplug(b *bench, ctx context.Context) error {
	const what = "Sparkplug: readings of 500 nodes, NDATA of 100 aliased metrics, through mosquitto to stored"
	as := func(addr address) setup {
		return setup{devices: 1, config: fmt.Sprintf("sparkplug:\n  sources:\n    - {tenant: %s, broker: {url: \"tcp://%s\"}}\n", tenant, addr)}
	}
	return b.besideBroker(ctx, what, as, func(in *instance, addr address) error {
		if err := in.makeNodes(ctx, sparkplugNodes); err != nil {
			return err
		}
		if err := in.isRead(ctx); err != nil {
			return err
		}
		var senders []*sender
		defer func() { closeAll(senders) }()
		for i := range sparkplugNodes {
			c, err := dialMQTT(ctx, addr.String(), "node:"+deviceToken(i), "", "spBv1.0/g/NDATA/"+deviceToken(i))
			if err != nil {
				return err
			}
			senders = append(senders, &sender{client: c, body: newBody(live, uint64(i)), index: i, of: sparkplugNodes})
		}
		born := func(t *throttled) error {
			now := time.Now()
			for i, s := range senders {
				s.out = appendPublish(s.out[:0], "spBv1.0/g/NBIRTH/"+deviceToken(i), s.sent, nodeBirth(1, now))
				s.sent++
				t.sent.Add(metricsEach)
				if err := s.exchange(); err != nil {
					return err
				}
			}
			return t.everything(ctx)
		}
		return b.throughStore(ctx, atLeast(50_000, 150_000, perSecond), what, in, senders, metricsEach, 2, func(s *sender, out []byte) []byte { return nodeData(out, s.sent, time.Now()) }, born)
	})
}

const bornNodes = 1000

// bornAtOnce: nodes that are all born within a second, as after a power cut of a plant.
func bornAtOnce(b *bench, ctx context.Context) error {
	const what = "Sparkplug: 1,000 nodes × 100 metrics born within a second"
	as := func(addr address) setup {
		return setup{devices: 1, config: fmt.Sprintf("limits: {series_per_tenant: 1000000}\nsparkplug:\n  sources:\n    - {tenant: %s, broker: {url: \"tcp://%s\"}}\n", tenant, addr)}
	}
	return b.besideBroker(ctx, what, as, func(in *instance, addr address) error {
		if err := in.makeNodes(ctx, bornNodes); err != nil {
			return err
		}
		if err := in.restart(ctx); err != nil { // without the memory that creating the devices needed
			return err
		}
		if err := in.isRead(ctx); err != nil {
			return err
		}
		c, err := dialMQTT(ctx, addr.String(), "births", "", "")
		if err != nil {
			return err
		}
		s := &sender{client: c, body: newBody(live, 0), of: 1}
		defer closeAll([]*sender{s})
		idle, err := anonymous(in.pid())
		if err != nil {
			return err
		}
		began, most := time.Now(), idle
		for i := range bornNodes {
			s.out = appendPublish(s.out, "spBv1.0/g/NBIRTH/"+deviceToken(i), s.sent, nodeBirth(1, began))
			s.sent++
		}
		if err := s.exchange(); err != nil {
			return err
		}
		for end := began.Add(2 * time.Minute); ; {
			stored, err := in.metric(ctx, "weir_ingest_readings_stored_total")
			if err != nil {
				return err
			}
			present, err := in.metric(ctx, "weir_sparkplug_presence_emitted_total")
			if err != nil {
				return err
			}
			now, err := anonymous(in.pid())
			if err != nil {
				return err
			}
			if most = max(most, now); stored >= bornNodes*metricsEach && present >= bornNodes {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("after two minutes %.0f readings of %d are stored and %.0f nodes present", stored, bornNodes*metricsEach, present)
			}
			if err := pause(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
		b.judged(atMost(20_000, 5_000, millis), what+": all present and stored", float64(time.Since(began).Milliseconds()), "")
		b.judged(atMost(96, 48, mebibytes), what+": memory above idle", float64(most-idle)/(1<<20), "RSS without file pages")
		return in.verifyLedger(ctx, false)
	})
}

// makeNodes makes the devices of nodes, which are found by their external ids.
func (in *instance) makeNodes(ctx context.Context, n int) error {
	var nodes strings.Builder
	nodes.WriteString("token,externalId\n")
	for i := range n {
		fmt.Fprintf(&nodes, "node-%s,g/%[1]s\n", deviceToken(i))
	}
	site := filepath.Join(in.dir, "nodes.yaml")
	if err := errors.Join(os.WriteFile(filepath.Join(in.dir, "nodes.csv"), []byte(nodes.String()), 0o600),
		os.WriteFile(site, []byte("version: 1\ntenants: [{token: "+tenant+", devicesFrom: [{file: nodes.csv, deviceTypeToken: t}]}]\n"), 0o600)); err != nil {
		return err
	}
	return in.run(ctx, "", "site", "apply", site)
}

// What travels is written as Protocol Buffers lay it out: a key of field number and form, then the value.
const (
	doubleType = 10
	uint64Type = 8
)

func field(out []byte, number int, v uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(out, uint64(number)<<3), v)
}

func bytesField(out []byte, number int, v []byte) []byte {
	return append(binary.AppendUvarint(binary.AppendUvarint(out, uint64(number)<<3|2), uint64(len(v))), v...)
}

func doubleField(out []byte, number int, v float64) []byte {
	return binary.LittleEndian.AppendUint64(binary.AppendUvarint(out, uint64(number)<<3|1), math.Float64bits(v))
}

// nodeBirth is an NBIRTH with the sequence number 0.
func nodeBirth(session uint64, now time.Time) []byte {
	out := field(field(nil, 1, uint64(now.UnixMilli())), 3, 0)
	out = bytesField(out, 2, field(field(bytesField(nil, 1, []byte("bdSeq")), 4, uint64Type), 11, session))
	for i := range uint64(metricsEach) {
		m := bytesField(nil, 1, fmt.Appendf(nil, "line 1/sensor %d", i))
		out = bytesField(out, 2, doubleField(field(field(m, 2, i), 4, doubleType), 13, float64(i)))
	}
	return out
}

// nodeData appends the n-th message after a birth, an NDATA with every metric by its alias.
func nodeData(out []byte, n int64, now time.Time) []byte {
	out = field(field(out, 1, uint64(now.UnixMilli())), 3, uint64(n%256))
	var m [32]byte
	for i := range uint64(metricsEach) {
		out = bytesField(out, 2, doubleField(field(m[:0], 2, i), 13, float64(n)+float64(i)))
	}
	return out
}
