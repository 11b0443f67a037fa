package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/test/lwm2mpeer"
)

// A meter has one temperature, and notifies it in SenML-JSON.
const (
	lwm2mLinks  = "</3303/0>"
	lwm2mObject = "/3303/0"
	senMLJSON   = 110
)

// meters are devices that are registered and observed, each over a DTLS session of its own with a connection id.
type meters struct {
	all []*lwm2mpeer.Client
}

// lwm2m measures the LwM2M server: handshakes, notifications, what a session takes, and a restart that no device is to notice. The clients run in this
// process, on the same machine.
func (b *bench) lwm2m(ctx context.Context) error {
	n := 500
	if b.all {
		n = 10_000
	}
	port, err := freeUDPPort()
	if err != nil {
		return err
	}
	in, err := b.ready(ctx, setup{devices: 1, lwm2m: fmt.Sprintf("127.0.0.1:%d", port), config: lwm2mConfig(n)})
	if err != nil {
		return err
	}
	defer in.drop()
	if err := in.makeMeters(ctx, n); err != nil {
		return err
	}
	idle, err := anonymous(in.pid())
	if err != nil {
		return err
	}
	began := time.Now()
	m, err := in.connectMeters(ctx, n)
	if err != nil {
		return err
	}
	defer m.close()
	b.judged(atLeast(500, 1500, perSecond), "LwM2M: handshakes with a pre-shared key, and registrations", float64(n)/time.Since(began).Seconds(), "%d devices, 64 at once", n)
	live, err := anonymous(in.pid())
	if err != nil {
		return err
	}
	b.judged(atMost(120, 60, kibibytesEach), "LwM2M: memory of a live session", float64(live-idle)/float64(n)/1024, "anonymous memory above that of the idle instance")
	if err := b.notifications(ctx, in, m); err != nil {
		return err
	}
	return b.lwm2mRestart(ctx, in, m, idle)
}

// lwm2mConfig has a key for each of n meters.
func lwm2mConfig(n int) string {
	var s strings.Builder
	fmt.Fprintf(&s, "lwm2m:\n  enabled: true\n  max_sessions: %d\n  max_handshakes: 4096\n  handshakes_per_second: 100000\n  park_after: 1h\n  identities:\n", 2*n+1000)
	for i := range n {
		fmt.Fprintf(&s, "    - {identity: %[1]q, psk: %[2]q, tenant: %[3]s, external_id: %[1]q}\n", meterName(i), base64.StdEncoding.EncodeToString(meterKey(i)), tenant)
	}
	return s.String()
}

func meterName(i int) string { return fmt.Sprintf("meter-%05d", i) }

func meterKey(i int) []byte { return fmt.Appendf(nil, "key-of-meter%04x", i) }

// kibibytesEach writes a number of KiB.
func kibibytesEach(v float64) string { return fmt.Sprintf("%.1f KiB", v) }

// freeUDPPort returns a port that is free now: devices find the server there again after a restart.
func freeUDPPort() (int, error) {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	return c.LocalAddr().(*net.UDPAddr).Port, c.Close()
}

// makeMeters makes the devices, which are found by their external ids.
func (in *instance) makeMeters(ctx context.Context, n int) error {
	var rows strings.Builder
	rows.WriteString("token,externalId\n")
	for i := range n {
		fmt.Fprintf(&rows, "%s,%[1]s\n", meterName(i))
	}
	site := filepath.Join(in.dir, "meters.yaml")
	if err := errors.Join(os.WriteFile(filepath.Join(in.dir, "meters.csv"), []byte(rows.String()), 0o600),
		os.WriteFile(site, []byte("version: 1\ntenants: [{token: "+tenant+", devicesFrom: [{file: meters.csv, deviceTypeToken: t}]}]\n"), 0o600)); err != nil {
		return err
	}
	return in.run(ctx, "", "site", "apply", site)
}

// connectMeters shakes hands and registers, each device from an address of its own: one address may begin 50 handshakes a second.
func (in *instance) connectMeters(ctx context.Context, n int) (*meters, error) {
	m := &meters{all: make([]*lwm2mpeer.Client, n)}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(64)
	for i := range n {
		g.Go(func() error {
			c, err := lwm2mpeer.Dial(gctx, lwm2mpeer.Options{Server: in.setup.lwm2m, Identity: meterName(i), Key: meterKey(i), Timeout: 30 * time.Second,
				Local: fmt.Sprintf("127.1.%d.%d:0", i/200, 1+i%200), Handle: meterAnswers})
			if err != nil {
				return fmt.Errorf("meter %d: %w", i, err)
			}
			m.all[i] = c
			_, err = c.Register(gctx, []string{"ep=" + meterName(i), "lt=86400", "lwm2m=1.1"}, lwm2mLinks)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		m.close()
		return nil, err
	}
	return m, m.observed(ctx)
}

// meterAnswers answers the server: with a temperature, or that there is nothing.
func meterAnswers(m *lwm2mpeer.Message) *lwm2mpeer.Message {
	if m.Path(11) != lwm2mObject {
		return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(4, 4)}
	}
	return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(2, 5), Options: []lwm2mpeer.Option{{Number: 12, Value: []byte{senMLJSON}}}, Payload: temperature(20)}
}

func temperature(v int64) []byte { return fmt.Appendf(nil, `[{"n":"/3303/0/5700","v":%d}]`, v) }

func (m *meters) close() {
	for _, c := range m.all {
		if c != nil {
			_ = c.Close()
		}
	}
}

// observed waits until all devices are observed.
func (m *meters) observed(ctx context.Context) error {
	for end := time.Now().Add(2 * time.Minute); ; {
		left := 0
		for _, c := range m.all {
			if !c.Observed(lwm2mObject) {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("after two minutes %d of %d meters are not observed", left, len(m.all))
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// notifications measures confirmable notifications: as many as there can be, and 1,000 a second. Each is acknowledged once it is on disk.
func (b *bench) notifications(ctx context.Context, in *instance, m *meters) error {
	defer b.perf(ctx, "lwm2m", in.pid())()
	before, err := in.metric(ctx, "weir_ingest_readings_stored_total")
	if err != nil {
		return err
	}
	sent, took, h, err := m.notify(ctx, b.seconds, 0)
	if err != nil {
		return err
	}
	b.judged(atLeast(5000, 10_000, perSecond), "LwM2M: confirmable notifications to stored", float64(sent)/took.Seconds(), "%d devices with connection ids, each waits for its acknowledgement; p50 %s, p99 %s",
		len(m.all), short(h.quantile(0.5)), short(h.quantile(0.99)))
	if err := in.applied(ctx); err != nil {
		return err
	}
	after, err := in.metric(ctx, "weir_ingest_readings_stored_total")
	if err != nil {
		return err
	}
	if after-before < float64(sent) {
		return fmt.Errorf("LOSS: %d notifications are acknowledged, %.0f are stored", sent, after-before)
	}
	_, _, h, err = m.notify(ctx, b.seconds/2, 1000)
	if err != nil {
		return err
	}
	b.judged(atMost(60, 15, millis), "LwM2M: acknowledged, p99 at 1,000 notifications/s", inMillis(h.quantile(0.99)), "p50 %s", short(h.quantile(0.5)))
	return nil
}

// notify has the devices notify for a time, so many a second together; 0: as many as they can.
func (m *meters) notify(ctx context.Context, d time.Duration, rate float64) (sent int64, took time.Duration, h *hist, err error) {
	h = &hist{}
	var mu sync.Mutex
	var count atomic.Int64
	began := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	for i, c := range m.all {
		g.Go(func() error {
			own := &hist{}
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				h.merge(own)
			}()
			every := time.Duration(0)
			if rate > 0 {
				every = time.Duration(float64(len(m.all)) / rate * float64(time.Second))
			}
			next := began.Add(every * time.Duration(i) / time.Duration(len(m.all)))
			for v := int64(0); time.Since(began) < d; v++ {
				if every > 0 {
					if err := pause(gctx, time.Until(next)); err != nil {
						return err
					}
					next = next.Add(every)
				}
				at := time.Now()
				ack, err := c.Notify(gctx, lwm2mObject, senMLJSON, temperature(v))
				if err != nil {
					return err
				}
				if ack.Type != 2 {
					return fmt.Errorf("a notification is answered by type %d", ack.Type)
				}
				own.add(time.Since(at), 1)
				count.Add(1)
			}
			return nil
		})
	}
	err = g.Wait()
	return count.Load(), time.Since(began), h, err
}

// lwm2mRestart kills the program. No device shakes hands or registers again.
func (b *bench) lwm2mRestart(ctx context.Context, in *instance, m *meters, idle int64) error {
	if err := in.kill(); err != nil {
		return err
	}
	began := time.Now()
	if err := in.start(ctx); err != nil {
		return err
	}
	parked, err := anonymous(in.pid())
	if err != nil {
		return err
	}
	b.judged(atMost(20, 4, kibibytesEach), "LwM2M: memory of a parked session", max(0, float64(parked-idle)/float64(len(m.all))/1024), "after a start with %d of them, above the idle instance", len(m.all))
	var first atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	for _, c := range m.all {
		g.Go(func() error {
			_, err := c.Notify(gctx, lwm2mObject, senMLJSON, temperature(1))
			first.CompareAndSwap(0, int64(time.Since(began)))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	b.judged(atMost(3000, 1000, millis), "LwM2M: killed, start to the first notification acknowledged", inMillis(time.Duration(first.Load())), "%d sessions", len(m.all))
	b.judged(atMost(20_000, 5000, millis), "LwM2M: killed, start to all heard again", inMillis(time.Since(began)), "")
	shaken, err := in.metric(ctx, "weir_lwm2m_registrations_total")
	if err != nil {
		return err
	}
	if shaken > 0 {
		return fmt.Errorf("%.0f devices have registered again after the kill", shaken)
	}
	return nil
}
