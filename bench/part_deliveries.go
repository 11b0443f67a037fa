package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	deliveryDevices = 1000 // that order deliveries
	deliveriesEach  = 8    // of each that are under way
	// deliveryCeilings lets what goes out take as much as the machine has.
	deliveryCeilings = stormy + "connectors: {max_concurrent_sends: 128, per_destination: 128, outbox_max_rows: 10000000}\n"
)

// way is a kind of deliveries and how it is measured.
type way struct {
	what, kind string
	goal       goal
	target     func(context.Context, func(device []byte, at time.Time)) (target, error)
	action     func(port int) string
	connector  func(port int) string // config of the connector that the action names; nil: it names none
	typ        string
}

// ways are the kinds of deliveries that are measured.
var ways = []way{
	{what: "webhooks", kind: "httpCall", goal: atLeast(3000, 6000, perSecond), target: sinkOf(webhook), action: callOf},
	{what: "MQTT publishes at QoS 1", kind: "publish", goal: atLeast(10_000, 20_000, perSecond), target: sinkOf(broker5), action: publishOf, typ: "mqtt", connector: func(port int) string {
		return fmt.Sprintf(`{"urls":["mqtt://127.0.0.1:%d"],"topic":"alerts","qos":1}`, port)
	}},
	{what: "Kafka records", kind: "publish", goal: atLeast(5000, 10_000, perSecond), target: newCluster, action: publishOf, typ: "kafka", connector: func(port int) string {
		return fmt.Sprintf(`{"addresses":["127.0.0.1:%d"],"topic":%q}`, port, benchTopic)
	}},
}

// callOf and publishOf are actions that deliver the token of the device.
func callOf(port int) string {
	return fmt.Sprintf(`{"type":"httpCall","httpCall":{"url":"http://127.0.0.1:%d/alerts","bodyTemplate":"series"}}`, port)
}

func publishOf(int) string {
	return `{"type":"publish","publish":{"connectorRef":"c","payloadTemplate":"series"}}`
}

// deliveryRule fires on each second reading.
func deliveryRule(action string) string {
	return fmt.Sprintf(`{"name":"n","type":"threshold","severity":"minor","when":{"metric":"temp","op":"gt","threshold":%d},"actions":[%s]}`, ruleThreshold, action)
}

// deliveries measures what goes out to other systems, from the reading that orders it until its end is recorded.
func (b *bench) deliveries(ctx context.Context) error {
	for i := range ways {
		if err := b.deliver(ctx, &ways[i]); err != nil {
			return fmt.Errorf("%s: %w", ways[i].what, err)
		}
	}
	return b.each(ctx, threeTargets, manyConnectors)
}

// outgoing is an instance whose devices order deliveries, and what has come of them.
type outgoing struct {
	in     *instance
	byName map[string]*orderer
	all    []*orderer
	each   int

	enough atomic.Bool
	timed  atomic.Bool
	n      atomic.Int64 // arrived
	mu     sync.Mutex
	lat    hist
	failed chan error
}

// orderer is a device whose readings order deliveries.
type orderer struct {
	*client
	mu   sync.Mutex
	body *body
	due  []time.Time
	sent int64
	out  []byte
}

// order sends two readings, the first of which orders a delivery.
func (o *orderer) order() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.due, o.out = append(o.due, time.Now()), o.out[:0]
	for range 2 {
		o.out = appendPublish(o.out, o.topic, o.sent, o.body.append(nil))
		o.sent++
	}
	_, err := o.Write(o.out)
	return err
}

// came notes a delivery, and lets its device order the next one.
func (g *outgoing) came(device []byte, at time.Time) {
	o := g.byName[string(device)]
	if o == nil {
		return
	}
	o.mu.Lock()
	var due time.Time
	if len(o.due) > 0 { // one that comes twice was counted
		due, o.due = o.due[0], o.due[1:]
	}
	o.mu.Unlock()
	g.n.Add(1)
	if g.timed.Load() && !due.IsZero() {
		g.mu.Lock()
		g.lat.add(at.Sub(due), 1)
		g.mu.Unlock()
	}
	if g.each > 0 && !g.enough.Load() {
		if err := o.order(); err != nil {
			g.fail(err)
		}
	}
}

func (g *outgoing) fail(err error) {
	select {
	case g.failed <- err:
	default: // one is enough
	}
}

// outbound furnishes an instance whose tenant has no ceiling of what goes out.
func (b *bench) outbound(ctx context.Context, s setup, ports ...int) (*instance, error) {
	allowed := make([]string, len(ports))
	for i, p := range ports {
		allowed[i] = fmt.Sprintf(`"127.0.0.1/32:%d"`, p)
	}
	s.config += "egress: {allowed_destinations: [" + strings.Join(allowed, ", ") + "]}\n"
	in, err := b.ready(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := in.run(ctx, "", "api", "user-management-admin",
		`mutation{updateTenant(token:"`+tenant+`",request:{outboundMessagesPerSecond:10000000,outboundBurst:10000000}){token}}`); err != nil {
		in.drop()
		return nil, err
	}
	return in, nil
}

// connectOrderers connects devices that order, each of them so many deliveries at first.
func (g *outgoing) connectOrderers(ctx context.Context, n int) error {
	g.byName, g.failed = map[string]*orderer{}, make(chan error, 1)
	senders, err := g.in.connect(ctx, n, flap)
	if err != nil {
		return err
	}
	for i, s := range senders {
		o := &orderer{client: s.client, body: s.body}
		g.byName[deviceToken(i)] = o
		g.all = append(g.all, o)
		go func() {
			for acked := int64(0); ; {
				k, err := o.acks(acked)
				if err != nil {
					return // the connection was closed, or the load says that nothing comes
				}
				acked += int64(k)
			}
		}()
	}
	for _, o := range g.all {
		for range g.each {
			if err := o.order(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *outgoing) close() {
	for _, o := range g.all {
		_ = o.Close() // what was ordered was counted
	}
}

// ended is how many orders of a kind were performed, and have their end recorded.
func (g *outgoing) ended(ctx context.Context, kind string) (int64, error) {
	n, err := g.in.metric(ctx, fmt.Sprintf(`weir_actions_orders_total{end="performed",kind=%q}`, kind))
	return int64(n), err
}

// connectorNamed makes and publishes a connector.
func (in *instance) connectorNamed(ctx context.Context, token, typ, config string) error {
	return in.query(ctx, "outbound-connectors", `mutation($r:ConnectorCreateRequest!,$t:String!){createConnector(request:$r){id} publishConnector(token:$t){version}}`,
		map[string]any{"t": token, "r": map[string]any{"token": token, "type": typ, "config": config}}, nil)
}

// deliver measures the deliveries of a kind: as many as it takes, and then at half of that what readings of others have of it.
func (b *bench) deliver(ctx context.Context, w *way) error {
	const conns = 50
	g := &outgoing{each: deliveriesEach}
	s, err := w.target(ctx, g.came)
	if err != nil {
		return err
	}
	defer s.Close()
	if g.in, err = b.outbound(ctx, setup{devices: deliveryDevices + conns, rules: 1, define: func(int) string { return deliveryRule(w.action(s.port())) }, config: deliveryCeilings}, s.port()); err != nil {
		return err
	}
	defer g.in.drop()
	if w.connector != nil {
		if err := g.in.connectorNamed(ctx, "c", w.typ, w.connector(s.port())); err != nil {
			return err
		}
	}
	if err := b.quiet(ctx); err != nil {
		return err
	}
	if err := g.connectOrderers(ctx, deliveryDevices); err != nil {
		return err
	}
	defer g.close()
	o, err := g.rate(ctx, b, w.kind)
	if err != nil {
		return err
	}
	g.enough.Store(true)
	if err := g.settled(ctx, w.kind); err != nil {
		return err
	}
	b.judged(w.goal, fmt.Sprintf("%s of a rule over %d devices with %d under way for each, from the edge to the recorded outcome", w.what, deliveryDevices, deliveriesEach), o.rate,
		"from the reading to the target p50 %s, p99 %s; server %.0f µs CPU for each, %.2f cores%s", short(g.lat.quantile(0.5)), short(g.lat.quantile(0.99)), o.micro, o.cpu, o.others())
	return g.beside(ctx, b, w, o.rate/2)
}

// rate measures how many ends are recorded in the time of the bench.
func (g *outgoing) rate(ctx context.Context, b *bench, kind string) (*outcome, error) {
	if err := pause(ctx, b.warmup); err != nil {
		return nil, err
	}
	g.timed.Store(true)
	defer g.timed.Store(false)
	defer b.perf(ctx, "deliveries-"+kind, g.in.pid())()
	return b.recorded(ctx, g.in.pid(), g.failed, func() (int64, error) { return g.ended(ctx, kind) })
}

// settled waits until everything that was ordered has arrived, and its end is recorded.
func (g *outgoing) settled(ctx context.Context, kind string) error {
	orders := int64(0)
	for end := time.Now().Add(grace); ; {
		n, err := g.ended(ctx, kind)
		if err != nil {
			return err
		}
		orders = 0
		for _, o := range g.all {
			o.mu.Lock()
			orders += o.sent / 2
			o.mu.Unlock()
		}
		if n == orders && g.n.Load() == orders {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d deliveries ordered, %d arrived, %d recorded", orders, g.n.Load(), n)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// paced orders deliveries at a rate until stop.
func (g *outgoing) paced(rate float64, stop <-chan struct{}) {
	every := time.Duration(float64(time.Second) / rate)
	next := time.Now()
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(time.Until(next)):
		}
		for now := time.Now(); !next.After(now); next = next.Add(every) {
			if err := g.all[n%len(g.all)].order(); err != nil {
				g.fail(err)
				return
			}
			n++
		}
	}
}

// beside measures the acknowledgement of readings beside deliveries at a rate.
func (g *outgoing) beside(ctx context.Context, b *bench, w *way, rate float64) error {
	const conns, readings = 50, 20_000
	senders, err := g.in.connect(ctx, deliveryDevices+conns, live)
	if err != nil {
		return err
	}
	closeAll(senders[:deliveryDevices])
	others := senders[deliveryDevices:]
	defer closeAll(others)
	measure := func() (hist, error) {
		for i, s := range others {
			s.index, s.of, s.lat = i, conns, hist{}
			s.timed.Store(false)
		}
		o, err := b.drive(ctx, g.in.pid(), others, paced(readings), nil)
		if err != nil {
			return hist{}, err
		}
		return o.lat, nil
	}
	alone, err := measure()
	if err != nil {
		return err
	}
	g.close()
	g.each, g.all = 0, nil
	if err := g.connectOrderers(ctx, deliveryDevices); err != nil {
		return err
	}
	before, err := g.ended(ctx, w.kind)
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	var ordering sync.WaitGroup
	ordering.Go(func() { g.paced(rate, stop) })
	began := time.Now()
	beside, err := measure()
	after, e := g.ended(ctx, w.kind)
	took := time.Since(began)
	close(stop)
	ordering.Wait()
	if err := errors.Join(err, e); err != nil {
		return err
	}
	b.judged(within(2, times), fmt.Sprintf("PUBACK p99 at %s beside half as many %s", perSecond(readings), w.what), inMillis(beside.quantile(0.99))/max(inMillis(alone.quantile(0.99)), 0.001),
		"%s beside %s, %s alone; p50 %s and %s", short(beside.quantile(0.99)), perSecond(float64(after-before)/took.Seconds()), short(alone.quantile(0.99)), short(beside.quantile(0.5)), short(alone.quantile(0.5)))
	return nil
}

// threeTargets measures a fast target beside one that hangs and one that refuses, with the places of the defaults.
func threeTargets(b *bench, ctx context.Context) error {
	const rate = 50
	var sinks [3]*sink
	var g [3]*outgoing
	ports := make([]int, len(sinks))
	for i, manner := range []int32{answers, hangs, refuses} {
		var err error
		g[i] = &outgoing{}
		if sinks[i], err = newSink(webhook, func(device []byte, at time.Time) { g[i].came(device, at) }); err != nil {
			return err
		}
		defer sinks[i].Close()
		sinks[i].manner.Store(manner)
		ports[i] = sinks[i].port()
	}
	define := func(i int) string { return deliveryRule(callOf(ports[i])) }
	measure := func(targets int) (hist, error) {
		in, err := b.outbound(ctx, setup{devices: 100, rules: targets, define: define, config: stormy}, ports...)
		if err != nil {
			return hist{}, err
		}
		defer in.drop()
		f := &outgoing{in: in}
		g[0] = f
		if err := f.connectOrderers(ctx, 100); err != nil {
			return hist{}, err
		}
		defer f.close()
		stop := make(chan struct{})
		var ordering sync.WaitGroup
		ordering.Go(func() { f.paced(rate, stop) })
		err = pause(ctx, b.warmup+2*time.Second)
		f.timed.Store(true)
		if err == nil {
			err = pause(ctx, b.seconds)
		}
		f.timed.Store(false)
		close(stop)
		ordering.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.lat, err
	}
	alone, err := measure(1)
	if err != nil {
		return err
	}
	together, err := measure(3)
	if err != nil {
		return err
	}
	b.judged(within(2, times), fmt.Sprintf("a fast target beside one that hangs and one that refuses, %d deliveries a second to each: p99", rate),
		inMillis(together.quantile(0.99))/max(inMillis(alone.quantile(0.99)), 0.001), "%s together, %s alone; p50 %s and %s; at the default ceilings",
		short(together.quantile(0.99)), short(alone.quantile(0.99)), short(together.quantile(0.5)), short(alone.quantile(0.5)))
	return nil
}

// manyConnectors measures the memory of a thousand published connectors of which ten deliver.
func manyConnectors(b *bench, ctx context.Context) error {
	const connectors, busy, rate = 1000, 10, 100
	g := &outgoing{}
	s, err := newSink(broker5, func(device []byte, at time.Time) { g.came(device, at) })
	if err != nil {
		return err
	}
	defer s.Close()
	measure := func(n int) (int64, error) {
		in, err := b.outbound(ctx, setup{devices: 100, rules: busy, config: stormy, define: func(i int) string {
			return deliveryRule(fmt.Sprintf(`{"type":"publish","publish":{"connectorRef":"c%d","payloadTemplate":"series"}}`, i))
		}}, s.port())
		if err != nil {
			return 0, err
		}
		defer in.drop()
		for i := range n {
			if err := in.connectorNamed(ctx, fmt.Sprint("c", i), "mqtt", fmt.Sprintf(`{"urls":["mqtt://127.0.0.1:%d"],"topic":"alerts/%d"}`, s.port(), i)); err != nil {
				return 0, err
			}
		}
		if err := in.restart(ctx); err != nil { // without the memory that making them needed
			return 0, err
		}
		g.in, g.all = in, nil
		if err := g.connectOrderers(ctx, 100); err != nil {
			return 0, err
		}
		defer g.close()
		stop := make(chan struct{})
		var ordering sync.WaitGroup
		if n > 0 {
			ordering.Go(func() { g.paced(rate/busy, stop) })
		}
		err = pause(ctx, b.seconds)
		close(stop)
		ordering.Wait()
		if err != nil {
			return 0, err
		}
		return anonymous(in.pid())
	}
	none, err := measure(0)
	if err != nil {
		return err
	}
	all, err := measure(connectors)
	if err != nil {
		return err
	}
	b.judged(atMost(30, 20, mebibytes), fmt.Sprintf("memory of %s connectors of which %d deliver", count(connectors), busy), float64(all-none)/(1<<20), "%.1f MiB without; %d deliveries a second", float64(none)/(1<<20), rate)
	return nil
}
