package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

const (
	// crowdRules is how many rules the tenant at its ceilings has: the default of detection.max_rules_per_tenant.
	crowdRules      = 500
	neighbourTenant = "beta"
	neighbourDevice = "quiet"
	// neighbourEvery is how often the neighbour sends a reading: more often than once a second, for more samples.
	neighbourEvery = 250 * time.Millisecond
)

// crowdLimit is what a rule of that tenant compares with: values from 0 to 100 in no order cross some 220 of the 500 each time.
func crowdLimit(i int) float64 { return 20 + 60*float64(i)/crowdRules }

// neighbour measures how late one tenant's readings are visible beside a tenant that sends more than all its ceilings allow, at their
// defaults and without a ceiling for readings.
func (b *bench) neighbour(ctx context.Context) error {
	for _, c := range []struct {
		what    string
		bounded bool
	}{{"at all its default ceilings", true}, {"without a ceiling for readings", false}} {
		if err := b.beside(ctx, c.what, c.bounded); err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
	}
	return nil
}

func (b *bench) beside(ctx context.Context, what string, bounded bool) error {
	const clients, posters = 20, 8
	long := *b
	long.seconds = 3 * b.seconds
	in, err := b.ready(ctx, setup{devices: clients + posters, rules: crowdRules, limit: crowdLimit, bounded: bounded})
	if err != nil {
		return err
	}
	defer in.drop()
	quiet, err := in.makeNeighbour(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = quiet.Close() }()
	w := &watchNeighbour{in: in, ctx: ctx, sender: quiet}
	if err := w.first(); err != nil {
		return err
	}
	if err := b.quiet(ctx); err != nil { // before the connections: silent ones are closed
		return err
	}
	senders, err := in.connect(ctx, clients, swing)
	if err != nil {
		return err
	}
	defer func() { closeAll(senders) }()
	for i := range posters {
		s, err := in.poster(ctx, clients+i)
		if err != nil {
			return err
		}
		s.body.kind = swing
		senders = append(senders, s)
	}
	defer b.perf(ctx, "neighbour", in.pid())()
	var refused atomic.Int64
	mqtt, post := closedLoop(20, false), postsAtCeiling(in.ingest, &refused)
	o, err := long.drive(ctx, in.pid(), senders, func(s *sender, stop *atomic.Bool) error {
		if s.index >= clients {
			return post(s, stop)
		}
		return mqtt(s, stop)
	}, w.watch)
	if err != nil {
		return err
	}
	if err := in.applied(ctx); err != nil {
		return err
	}
	if err := in.verifyLedger(ctx, true); err != nil {
		return err
	}
	b.judged(atMost(1000, 100, millis), "a neighbour's reading, from its PUBACK until a query returns it, beside a tenant "+what+": longest", inMillis(w.visible.quantile(1)),
		"p50 %s, p99 %s of %d readings; their PUBACK p99 %s; the tenant: %d rules, %d MQTT clients × 20 in flight and %d posters of arrays of 100 for %s, acknowledged %s, %s posts answered 429 or 503; server %.2f cores%s",
		short(w.visible.quantile(0.5)), short(w.visible.quantile(0.99)), w.visible.n, short(w.acked.quantile(0.99)), crowdRules, clients, posters, long.seconds,
		perSecond(o.rate), count(float64(refused.Load())), o.cpu, o.others())
	return nil
}

// makeNeighbour makes a second tenant with one device, signs in to it and connects the device.
func (in *instance) makeNeighbour(ctx context.Context) (*sender, error) {
	if err := in.run(ctx, "", "tenant", "create", neighbourTenant); err != nil {
		return nil, err
	}
	site, secret := filepath.Join(in.dir, "neighbour.yaml"), accessToken(0)
	text := fmt.Sprintf("version: 1\ntenants: [{token: %s, deviceTypes: [{token: t}], devicesFrom: [{file: neighbour.csv, deviceTypeToken: t}]}]\n", neighbourTenant)
	if err := errors.Join(os.WriteFile(filepath.Join(in.dir, "neighbour.csv"), []byte("token,accessToken\n"+neighbourDevice+","+secret+"\n"), 0o600),
		os.WriteFile(site, []byte(text), 0o600)); err != nil {
		return nil, err
	}
	if err := in.run(ctx, "", "site", "apply", site); err != nil {
		return nil, err
	}
	c, err := dialMQTT(ctx, in.mqtt, "weir:"+neighbourTenant+":"+neighbourDevice, neighbourTenant+":"+secret, "weir/"+neighbourTenant+"/devices/"+neighbourDevice+"/events")
	if err != nil {
		return nil, err
	}
	return &sender{client: c, body: newBody(sensor, 1), of: 1}, nil
}

// watchNeighbour sends the neighbour's readings and waits until each is visible.
type watchNeighbour struct {
	in     *instance
	ctx    context.Context
	sender *sender
	every  time.Duration // 0: neighbourEvery
	stop   atomic.Bool
	done   chan error

	acked, visible hist // from the PUBLISH to its PUBACK; from there until a query returns the reading
}

// first sends a reading before the load: the neighbour was there before.
func (w *watchNeighbour) first() error {
	if err := w.in.signInTo(w.ctx, neighbourTenant); err != nil {
		return err
	}
	if err := w.one(); err != nil {
		return err
	}
	w.acked, w.visible = hist{}, hist{}
	return w.in.signIn(w.ctx)
}

func (w *watchNeighbour) watch(begins bool) error {
	if !begins {
		w.stop.Store(true)
		err := <-w.done
		return errors.Join(err, w.in.signIn(w.ctx))
	}
	if err := w.in.signInTo(w.ctx, neighbourTenant); err != nil {
		return err
	}
	w.done = make(chan error, 1)
	go func() { w.done <- w.run() }()
	return nil
}

func (w *watchNeighbour) run() error {
	for next := time.Now(); !w.stop.Load(); next = next.Add(cmp.Or(w.every, neighbourEvery)) {
		if err := pause(w.ctx, time.Until(next)); err != nil {
			return err
		}
		if err := w.one(); err != nil {
			return err
		}
	}
	return nil
}

func (w *watchNeighbour) one() error {
	s := w.sender
	before := s.body.sum
	payload := s.body.append(nil)
	value := s.body.sum - before
	sent := time.Now()
	if err := s.patient(sent); err != nil {
		return err
	}
	if _, err := s.Write(appendPublish(nil, s.topic, s.sent, payload)); err != nil {
		return err
	}
	if _, err := s.acks(s.sent); err != nil {
		return err
	}
	s.sent++
	acked := time.Now()
	w.acked.add(acked.Sub(sent), 1)
	for {
		n, last, err := w.in.readingsOf(w.ctx, neighbourDevice)
		if err != nil {
			return err
		}
		if n >= s.sent {
			if last-value > 0.005 || value-last > 0.005 {
				return fmt.Errorf("LOSS: the neighbour's newest reading is %v, %v was acknowledged", last, value)
			}
			w.visible.add(time.Since(acked), 1)
			return nil
		}
		if time.Since(acked) > grace {
			return fmt.Errorf("the neighbour's reading is not visible after %s", grace)
		}
		if err := pause(w.ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}

// readingsOf returns how many readings of a device are visible, and the newest.
func (in *instance) readingsOf(ctx context.Context, device string) (n int64, newest float64, err error) {
	var page struct {
		MeasurementEvents struct {
			Results    []struct{ Value float64 }
			Pagination struct{ TotalRecords int64 }
		}
	}
	err = in.query(ctx, "event-management", fmt.Sprintf(`{measurementEvents(criteria:{pageNumber:1,pageSize:1,deviceToken:%q}){results{value} pagination{totalRecords}}}`, device), nil, &page)
	if r := page.MeasurementEvents.Results; len(r) > 0 {
		newest = r[0].Value
	}
	return page.MeasurementEvents.Pagination.TotalRecords, newest, err
}

// postsAtCeiling posts arrays of 100 events; those that are over the ceiling or find no room are not counted, and after a pause
// the next is sent.
func postsAtCeiling(host string, refused *atomic.Int64) pattern {
	return func(s *sender, stop *atomic.Bool) error {
		var payload []byte
		for !stop.Load() {
			before := *s.body
			payload = appendEvents(payload[:0], s.body, 100)
			err := s.post(host, payload)
			if e, ok := errors.AsType[*statusError](err); ok && (e.code == http.StatusTooManyRequests || e.code == http.StatusServiceUnavailable) {
				*s.body = before
				refused.Add(1)
				time.Sleep(10 * time.Millisecond)
				continue
			}
			if err != nil {
				return err
			}
			s.sent += 100
			s.acked.Add(100)
		}
		return nil
	}
}
