package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	commandDevices = 500 // that answer
	commandsQueued = 4   // for each
	// commandCeilings lets a tenant have as many undelivered commands, and its rules as many edges, as the loads need.
	commandCeilings = stormy + "commands: {sweep_interval: 5s, hold_check_interval: 5s}\n"
	successes       = `weir_commanddelivery_moves_total{state="SUCCESSFUL"}`
)

// commandRule sends a command when a reading is above the threshold.
func commandRule(int) string {
	return fmt.Sprintf(`{"name":"n","type":"threshold","severity":"minor","when":{"metric":"temp","op":"gt","threshold":%d},"actions":[{"type":"sendCommand","sendCommand":{"command":"go"}}]}`, ruleThreshold)
}

// commands measures what becomes of commands: of those of rules until their answers are recorded, of those of operators until they are with the
// device, and of those of a tenant beside another one.
func (b *bench) commands(ctx context.Context) error {
	return b.each(ctx, roundTrips, ordersOfOperators, deadDevices)
}

// waiting measures commands for devices that are away: what they cost others, and how soon they are delivered.
func (b *bench) waiting(ctx context.Context) error { return b.each(ctx, heldCommands, comeBack) }

func (b *bench) each(ctx context.Context, measure ...func(*bench, context.Context) error) error {
	for _, m := range measure {
		if err := m(b, ctx); err != nil {
			return err
		}
	}
	return nil
}

// roundTrips measures commands of rules over devices that answer at once.
func roundTrips(b *bench, ctx context.Context) error {
	in, err := b.ready(ctx, setup{devices: commandDevices, rules: 1, define: commandRule, config: commandCeilings})
	if err != nil {
		return err
	}
	defer in.drop()
	if err := b.quiet(ctx); err != nil {
		return err
	}
	w := &agentWork{}
	f, err := in.agents(ctx, commandDevices, 0, w)
	if err != nil {
		return err
	}
	defer func() { _ = f.close() }()
	for i, a := range f.all {
		a.body = newBody(flap, uint64(i))
		for range commandsQueued {
			a.order()
		}
		f.begin(a)
	}
	defer b.perf(ctx, "commands", in.pid())()
	o, err := b.answered(ctx, in, f, w)
	if err != nil {
		return err
	}
	w.enough.Store(true)
	orders := func() (n int64) {
		for _, a := range f.all {
			n += a.body.number / 2
		}
		return n
	}
	if err := f.until(ctx, grace, func() (bool, error) {
		n, err := in.metric(ctx, successes)
		return err == nil && int64(n) == w.commands.Load() && pause(ctx, 50*time.Millisecond) == nil && int64(n) == orders(), err
	}); err != nil {
		return fmt.Errorf("%d commands ordered, %d taken: %w", orders(), w.commands.Load(), err)
	}
	if err := f.close(); err != nil {
		return err
	}
	want := kept{}
	for _, a := range f.all {
		want.readings += a.body.number
		want.sum += a.body.sum
		o.lat.merge(&a.lat)
	}
	if err := in.verify(ctx, want); err != nil {
		return err
	}
	what := fmt.Sprintf("commands of a rule over %d devices with %d queued for each, from the edge to the recorded answer", commandDevices, commandsQueued)
	b.judged(atLeast(2000, 4000, perSecond), what, o.rate, "from the reading to the command at the device p50 %s, p99 %s; server %.0f µs CPU for each, %.2f cores%s",
		short(o.lat.quantile(0.5)), short(o.lat.quantile(0.99)), o.micro, o.cpu, o.others())
	return nil
}

// answered measures the rate of recorded answers.
func (b *bench) answered(ctx context.Context, in *instance, f *fleetOfAgents, w *agentWork) (*outcome, error) {
	if err := pause(ctx, b.warmup); err != nil {
		return nil, err
	}
	w.timed.Store(true)
	return b.recorded(ctx, in.pid(), f.failed, func() (int64, error) {
		n, err := in.metric(ctx, successes)
		return int64(n), err
	})
}

// recorded measures how many of what count counts come in the time of the bench, and what the process takes for them.
func (b *bench) recorded(ctx context.Context, pid int, failed <-chan error, count func() (int64, error)) (*outcome, error) {
	read := func() (meter, error) {
		m, err := readMeter(pid, nil)
		if err != nil {
			return m, err
		}
		m.acked, err = count()
		return m, err
	}
	before, err := read()
	if err != nil {
		return nil, err
	}
	select {
	case err := <-failed:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(b.seconds):
	}
	after, err := read()
	o := &outcome{}
	o.between(before, after)
	return o, err
}

// ordered are commands that operators order one by one, and when they have reached their devices.
type ordered struct {
	in     *instance
	token  string // of the caller
	prefix string
	began  []atomic.Int64 // by number, nanoseconds
	made   atomic.Int64

	mu      sync.Mutex
	arrived hist
}

const orderDocument = `mutation($r:CommandCreateRequest!){createCommand(request:$r){command{status} rejection{code}}}`

// newOrdered is for at most so many commands.
func newOrdered(in *instance, prefix string, most int) *ordered {
	return &ordered{in: in, token: in.token, prefix: prefix, began: make([]atomic.Int64, most)}
}

// taken notes that a command has come.
func (o *ordered) taken(token []byte, at time.Time) {
	var n int
	if _, err := fmt.Sscanf(string(token), o.prefix+"%d", &n); err != nil || n >= len(o.began) {
		return
	}
	o.mu.Lock()
	o.arrived.add(time.Duration(at.UnixNano()-o.began[n].Load()), 1)
	o.mu.Unlock()
}

// run orders commands for devices in turn, so many a second, for a time. The delay of each is counted from when it was due.
func (o *ordered) run(ctx context.Context, perSecond float64, length time.Duration, device func(n int) string) (answers hist, err error) {
	began := time.Now()
	var next atomic.Int64
	first := o.made.Load()
	failed := make(chan error, registryClients)
	var all [registryClients]hist
	var wg sync.WaitGroup
	for i := range registryClients {
		wg.Go(func() {
			c := newAPIClient(o.in)
			c.area, c.token = "command-delivery", o.token
			for ctx.Err() == nil {
				k := next.Add(1) - 1
				due := began.Add(time.Duration(float64(k) / perSecond * float64(time.Second)))
				if due.Sub(began) >= length {
					return
				}
				n := int(first + k)
				if n >= len(o.began) {
					failed <- fmt.Errorf("more than %d commands", len(o.began))
					return
				}
				time.Sleep(time.Until(due))
				o.began[n].Store(due.UnixNano())
				if _, err := c.ask(ctx, requestBody(orderDocument, map[string]any{"r": map[string]any{"token": fmt.Sprint(o.prefix, n), "deviceToken": device(n), "name": "go"}})); err != nil {
					failed <- err
					return
				}
				o.made.Add(1)
				all[i].add(time.Since(due), 1)
			}
		})
	}
	wg.Wait()
	close(failed)
	for i := range all {
		answers.merge(&all[i])
	}
	return answers, firstOf(failed)
}

// ordersOfOperators measures the way of single commands to devices that are there, and how long a batch for ten thousand that are not takes.
func ordersOfOperators(b *bench, ctx context.Context) error {
	const rate = 200
	devices := 10_000
	in, err := b.ready(ctx, setup{devices: devices, config: commandCeilings})
	if err != nil {
		return err
	}
	defer in.drop()
	if err := b.quiet(ctx); err != nil {
		return err
	}
	o := newOrdered(in, "one-", int((b.seconds+b.warmup).Seconds()*rate)+2*rate)
	w := &agentWork{taken: o.taken}
	f, err := in.agents(ctx, 50, 0, w)
	if err != nil {
		return err
	}
	defer func() { _ = f.close() }()
	for _, a := range f.all {
		f.begin(a)
	}
	device := func(n int) string { return deviceToken(n % len(f.all)) }
	if _, err := o.run(ctx, rate, b.warmup, device); err != nil {
		return err
	}
	o.mu.Lock()
	o.arrived = hist{}
	o.mu.Unlock()
	stop := b.perf(ctx, "orders", in.pid())
	answers, err := o.run(ctx, rate, b.seconds, device)
	stop()
	if err != nil {
		return err
	}
	if err := f.until(ctx, grace, func() (bool, error) { return w.commands.Load() == o.made.Load(), nil }); err != nil {
		return fmt.Errorf("%d commands made, %d taken: %w", o.made.Load(), w.commands.Load(), err)
	}
	if err := f.close(); err != nil {
		return err
	}
	b.judged(within(10, millis), fmt.Sprintf("createCommand at %d/s, until the command is in the device's socket: p99", rate), inMillis(o.arrived.quantile(0.99)),
		"p50 %s, longest %s of %s; the caller has its answer p50 %s, p99 %s", short(o.arrived.quantile(0.5)), short(o.arrived.quantile(1)), count(float64(o.arrived.n)),
		short(answers.quantile(0.5)), short(answers.quantile(0.99)))

	var took hist
	for n := range 3 {
		each, err := in.batchOf(ctx, fmt.Sprint("fleet-", n), devices)
		if err != nil {
			return err
		}
		took.add(each, 1)
	}
	b.judged(within(2000, millis), fmt.Sprintf("createCommandBatch for %s devices, until it is answered", count(float64(devices))), inMillis(took.quantile(0.5)), "the middle of 3, the longest %s", short(took.quantile(1)))
	return nil
}

// batchOf makes a batch for the first n devices.
func (in *instance) batchOf(ctx context.Context, token string, n int) (time.Duration, error) {
	devices := make([]string, n)
	for i := range devices {
		devices[i] = deviceToken(i)
	}
	began := time.Now()
	var got struct {
		CreateCommandBatch struct {
			Batch     *struct{ Accepted int }
			Rejection *struct{ Code, Reason string }
		}
	}
	err := in.query(ctx, "command-delivery", `mutation($r:CommandBatchCreateRequest!){createCommandBatch(request:$r){batch{accepted} rejection{code reason}}}`,
		map[string]any{"r": map[string]any{"token": token, "name": "go", "deviceTokens": devices, "allowPartial": false}}, &got)
	switch r := got.CreateCommandBatch; {
	case err != nil:
	case r.Rejection != nil:
		err = fmt.Errorf("%s: %s", r.Rejection.Code, r.Rejection.Reason)
	case r.Batch == nil || r.Batch.Accepted != n:
		err = fmt.Errorf("the batch %s was not made for all", token)
	}
	return time.Since(began), err
}

// heldCommands measures what commands that wait cost the acknowledgement of readings while sweeps go on.
func heldCommands(b *bench, ctx context.Context) error {
	const rate = 2_000
	devices, batches := 10_000, 5
	if !b.all {
		devices /= 10
	}
	in, err := b.ready(ctx, setup{devices: devices, config: commandCeilings})
	if err != nil {
		return err
	}
	defer in.drop()
	conns := min(50, devices)
	alone, err := b.load(ctx, in, "commands-none", conns, paced(rate), kept{}, nil)
	if err != nil {
		return err
	}
	want := kept{readings: alone.acked, sum: alone.sum}
	for n := range batches {
		if _, err := in.batchOf(ctx, fmt.Sprint("held-", n), devices); err != nil {
			return err
		}
	}
	if err := in.holds(ctx, devices*batches); err != nil {
		return err
	}
	beside, err := b.load(ctx, in, "commands-held", conns, paced(rate), want, nil)
	if err != nil {
		return err
	}
	b.judged(within(50, millis), fmt.Sprintf("longest PUBACK at %s beside %s HELD commands and a sweep each 5 s", perSecond(rate), count(float64(devices*batches))), inMillis(beside.lat.quantile(1)),
		"%s without; p99 %s, %s without; p50 %s, %s without%s", short(alone.lat.quantile(1)), short(beside.lat.quantile(0.99)), short(alone.lat.quantile(0.99)),
		short(beside.lat.quantile(0.5)), short(alone.lat.quantile(0.5)), beside.others())
	return nil
}

// holds waits until so many commands are HELD.
func (in *instance) holds(ctx context.Context, n int) error {
	for end := time.Now().Add(2 * grace); ; {
		held, err := in.metric(ctx, `weir_commanddelivery_open{state="HELD"}`)
		if err != nil || int(held) == n {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%.0f commands are held, %d expected", held, n)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// comeBack measures a fleet that comes back within a minute, with a held command for each device.
func comeBack(b *bench, ctx context.Context) error {
	devices, length := 10_000, time.Minute
	if !b.all {
		devices, length = devices/10, length/10
	}
	in, err := b.ready(ctx, setup{devices: devices, config: commandCeilings})
	if err != nil {
		return err
	}
	defer in.drop()
	if _, err := in.batchOf(ctx, "back", devices); err != nil {
		return err
	}
	if err := in.holds(ctx, devices); err != nil {
		return err
	}
	if err := b.quiet(ctx); err != nil {
		return err
	}
	w := &agentWork{silent: true}
	began := time.Now()
	f, err := in.agents(ctx, devices, float64(devices)/(0.95*length.Seconds()), w)
	defer func() { _ = f.close() }()
	if err != nil {
		return err
	}
	connected := time.Since(began)
	if err := f.until(ctx, grace, func() (bool, error) { return w.commands.Load() == int64(devices), nil }); err != nil {
		return fmt.Errorf("%d of %d commands were taken: %w", w.commands.Load(), devices, err)
	}
	took := time.Since(began)
	b.judged(within(length.Seconds()*1000, millis), fmt.Sprintf("%s devices come back within %s, each with a HELD command, until all have it", count(float64(devices)), length),
		inMillis(took), "the last one connected after %s", short(connected))
	return nil
}

// deadDevices measures the commands of a tenant beside one whose devices take none: its ceiling, its outbox and its dead letters are full.
func deadDevices(b *bench, ctx context.Context) error {
	const (
		rate, dead, most = 50, 20, 2000
		bounds           = commandCeilings + "governance: {ingest_messages_per_second: 100000, ingest_burst: 100000, held_command_ceiling: %[1]d}\nconnectors: {outbox_max_rows: %[1]d}\n" +
			"limits: {outgoing_dead_letters_per_tenant: %[1]d}\n"
	)
	in, err := b.ready(ctx, setup{devices: dead, rules: 1, define: commandRule, config: fmt.Sprintf(bounds, most), bounded: true})
	if err != nil {
		return err
	}
	defer in.drop()
	quiet, err := in.makeNeighbour(ctx)
	if err != nil {
		return err
	}
	if err := quiet.Close(); err != nil {
		return err
	}
	if err := in.signInTo(ctx, neighbourTenant); err != nil {
		return err
	}
	o := newOrdered(in, "one-", int(2*(b.seconds+b.warmup).Seconds()*rate)+4*rate)
	if err := in.signIn(ctx); err != nil {
		return err
	}
	w := &agentWork{taken: o.taken}
	a, err := in.dialAgent(ctx, neighbourTenant, neighbourDevice, accessToken(0), 0, w)
	if err != nil {
		return err
	}
	f := &fleetOfAgents{all: []*agent{a}, failed: make(chan error, 1)}
	defer func() { _ = f.close() }()
	f.begin(a)
	device := func(int) string { return neighbourDevice }
	measure := func() (hist, error) {
		if _, err := o.run(ctx, rate, b.warmup, device); err != nil {
			return hist{}, err
		}
		o.mu.Lock()
		o.arrived = hist{}
		o.mu.Unlock()
		if _, err := o.run(ctx, rate, b.seconds, device); err != nil {
			return hist{}, err
		}
		err := f.until(ctx, grace, func() (bool, error) { return w.commands.Load() == o.made.Load(), nil })
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.arrived, err
	}
	alone, err := measure()
	if err != nil {
		return err
	}
	senders, err := in.connect(ctx, dead, flap)
	if err != nil {
		return err
	}
	defer closeAll(senders)
	var stop atomic.Bool
	ended := make(chan error, dead)
	for _, s := range senders {
		go func() { ended <- paced(1000)(s, &stop) }()
	}
	if err := f.until(ctx, 3*grace, func() (bool, error) {
		n, err := in.metric(ctx, `weir_actions_orders_total{end="shed",kind="sendCommand"}`)
		return n > most, err // as many dead letters as may be
	}); err != nil {
		return fmt.Errorf("the neighbour is not full: %w", err)
	}
	beside, err := measure()
	stop.Store(true)
	for range senders {
		if e := <-ended; err == nil {
			err = e
		}
	}
	if err != nil {
		return err
	}
	shed, err := in.metric(ctx, `weir_actions_orders_total{end="shed",kind="sendCommand"}`)
	if err != nil {
		return err
	}
	b.judged(within(max(2*inMillis(alone.quantile(0.99)), 10), millis), fmt.Sprintf("createCommand at %d/s until the socket, p99, beside a tenant whose ceiling, outbox and dead letters are full", rate),
		inMillis(beside.quantile(0.99)), "%s alone; p50 %s and %s, longest %s and %s; the other tenant has %d connected devices that take no command, 1,000 readings and 500 edges a second, %s orders shed", short(alone.quantile(0.99)),
		short(beside.quantile(0.5)), short(alone.quantile(0.5)), short(beside.quantile(1)), short(alone.quantile(1)), dead, count(shed))
	return nil
}
