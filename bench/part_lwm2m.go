package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
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
	if err := in.makeMeters(ctx, n+updatedMeters); err != nil {
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
	if live, err := in.metric(ctx, "weir_lwm2m_active_sessions"); err != nil || live != float64(n) {
		return errors.Join(err, fmt.Errorf("%.0f of %d sessions are live", live, n))
	}
	b.judged(atLeast(500, 1500, perSecond), "LwM2M: handshakes with a pre-shared key, and registrations", float64(n)/time.Since(began).Seconds(), "%d devices, 64 at once", n)
	live, err := anonymous(in.pid())
	if err != nil {
		return err
	}
	b.judged(atMost(120, 60, kibibytesEach), "LwM2M: memory of a live session", float64(live-idle)/float64(n)/1024, "anonymous memory above that of the idle instance")
	if err := b.notifications(ctx, in, m); err != nil {
		return err
	}
	if err := b.lwm2mRestart(ctx, in, m, idle); err != nil {
		return err
	}
	m.close()
	m.all = nil
	return b.lwm2mFirmware(ctx, in, n)
}

// lwm2mConfig leaves room for n meters, all of them live: how many that may be depends on the memory.
func lwm2mConfig(n int) string {
	return fmt.Sprintf("limits: {memory: 64GiB}\nlwm2m:\n  enabled: true\n  max_sessions: %d\n  max_handshakes: 4096\n  handshakes_per_second: 100000\n  park_after: 1h\n", 2*n+1000)
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
	keys := filepath.Join(in.dir, "keys")
	if err := os.Mkdir(keys, 0o700); err != nil {
		return err
	}
	var site strings.Builder
	fmt.Fprintf(&site, "version: 1\ntenants:\n  - token: %s\n    devices:\n", tenant)
	for i := range n {
		name := meterName(i)
		fmt.Fprintf(&site, "      - token: %[1]s\n        externalId: %[1]s\n        deviceTypeToken: t\n        credentials: [{token: %[1]s-key, credentialType: PSK, credentialId: %[1]s, credentialValue_file: keys/%[1]s}]\n", name)
		if err := os.WriteFile(filepath.Join(keys, name), []byte(base64.StdEncoding.EncodeToString(meterKey(i))), 0o600); err != nil {
			return err
		}
	}
	file := filepath.Join(in.dir, "meters.yaml")
	if err := os.WriteFile(file, []byte(site.String()), 0o600); err != nil {
		return err
	}
	return in.run(ctx, "", "site", "apply", file)
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
	b.judged(atLeast(5000, 10_000, perSecond), "LwM2M: confirmable notifications to stored", float64(sent)/took.Seconds(), "%d devices with connection ids in turn, %d wait for an acknowledgement at a time; p50 %s, p99 %s",
		len(m.all), notifyAtOnce, short(h.quantile(0.5)), short(h.quantile(0.99)))
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

// notifyAtOnce is how many devices wait for an acknowledgement at a time: more than that fill the receive buffer of a UDP socket, and what is measured then
// is how long a device waits until it sends again.
const notifyAtOnce = 128

// notify has the devices notify in turn for a time, so many a second together; 0: as many as they can.
func (m *meters) notify(ctx context.Context, d time.Duration, rate float64) (sent int64, took time.Duration, h *hist, err error) {
	h = &hist{}
	var mu sync.Mutex
	var turn atomic.Int64
	began := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	for range min(notifyAtOnce, len(m.all)) {
		g.Go(func() error {
			own, n := &hist{}, int64(0)
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				h.merge(own)
				sent += n
			}()
			for time.Since(began) < d {
				i := turn.Add(1) - 1
				if rate > 0 {
					if err := pause(gctx, time.Until(began.Add(time.Duration(float64(i)/rate*float64(time.Second))))); err != nil {
						return err
					}
				}
				at := time.Now()
				ack, err := m.all[i%int64(len(m.all))].Notify(gctx, lwm2mObject, senMLJSON, temperature(i))
				if err != nil {
					return err
				}
				if ack.Type != 2 {
					return fmt.Errorf("a notification is answered by type %d", ack.Type)
				}
				own.add(time.Since(at), 1)
				n++
			}
			return nil
		})
	}
	err = g.Wait()
	return sent, time.Since(began), h, err
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

// updatedMeters is how many devices get firmware.
const updatedMeters = 50

// lwm2mFirmware gives a package of 1 MiB to devices that are the meters from first on: by push, in blocks of 1 KiB, as many at once as the configuration
// allows. Each device applies it, and says afterwards that it runs the new version.
func (b *bench) lwm2mFirmware(ctx context.Context, in *instance, first int) error {
	if err := in.signIn(ctx); err != nil {
		return err
	}
	const size = 1 << 20
	if err := in.putArtifact(ctx, "fw", "2.0", bytes.Repeat([]byte("firmware"), size/8)); err != nil {
		return err
	}
	machines := make([]*lwm2mpeer.Machine, updatedMeters)
	for i := range machines {
		d, c, err := in.connectMachine(ctx, first+i)
		if err != nil {
			return err
		}
		defer c.Close()
		machines[i] = d
	}
	began := time.Now()
	for i := range machines {
		var made struct {
			CreateCommand struct{ Rejection *struct{ Code string } }
		}
		if err := in.query(ctx, "command-delivery", `mutation($r:CommandCreateRequest!){createCommand(request:$r){rejection{code}}}`, map[string]any{"r": map[string]any{
			"token": fmt.Sprintf("fw-%d", i), "deviceToken": meterName(first + i), "name": "lwm2m.firmwareUpdate", "payload": `{"artifact":"fw"}`}}, &made); err != nil {
			return err
		}
		if r := made.CreateCommand.Rejection; r != nil {
			return fmt.Errorf("the update of %s is rejected: %s", meterName(first+i), r.Code)
		}
	}
	for end := began.Add(10 * time.Minute); ; {
		done, err := in.updated(ctx)
		if err != nil {
			return err
		}
		if done == updatedMeters {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d devices are updated after ten minutes", done, updatedMeters)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	took := time.Since(began)
	for i, d := range machines {
		if d.Lock(); len(d.Got) != size || d.Applied != 1 {
			return fmt.Errorf("device %d has %d bytes, and was told %d times to apply them", i, len(d.Got), d.Applied)
		}
		d.Unlock()
	}
	b.judged(atMost(120_000, 30_000, millis), "LwM2M: firmware of 1 MiB to 50 devices by push", inMillis(took), "blocks of 1 KiB, 8 devices at once")
	return nil
}

// connectMachine connects a device with a firmware object.
func (in *instance) connectMachine(ctx context.Context, i int) (*lwm2mpeer.Machine, *lwm2mpeer.Client, error) {
	d := &lwm2mpeer.Machine{Version: "1.0", Next: "2.0", Becomes: 1, Delivery: 1}
	c, err := lwm2mpeer.Dial(ctx, lwm2mpeer.Options{Server: in.setup.lwm2m, Identity: meterName(i), Key: meterKey(i), Timeout: 30 * time.Second, Handle: d.Handle})
	if err != nil {
		return nil, nil, fmt.Errorf("meter %d: %w", i, err)
	}
	register := func() error {
		_, err := c.Register(ctx, []string{"ep=" + meterName(i), "lt=86400", "lwm2m=1.1"}, "</3/0>,</5/0>")
		return err
	}
	d.Lock()
	d.Restart = func() {
		d.Lock()
		d.State, d.Result, d.Version = 0, d.Becomes, d.Next
		d.Unlock()
		_ = register() // an update that is not heard of does not end
	}
	d.Unlock()
	return d, c, register()
}

// putArtifact uploads a file.
func (in *instance) putArtifact(ctx context.Context, token, version string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, in.api+"/api/device-management/artifacts/"+token+"?version="+version, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+in.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("an artifact is answered %s", resp.Status)
	}
	return nil
}

// updated is how many updates have ended well. One that has failed is an error.
func (in *instance) updated(ctx context.Context) (n int, err error) {
	tokens := make([]string, updatedMeters)
	for i := range tokens {
		tokens[i] = fmt.Sprintf("fw-%d", i)
	}
	var got struct {
		CommandsByToken []struct{ Token, Status string }
	}
	if err := in.query(ctx, "command-delivery", `query($t:[String!]!){commandsByToken(tokens:$t){token status}}`, map[string]any{"t": tokens}, &got); err != nil {
		return 0, err
	}
	for _, c := range got.CommandsByToken {
		switch c.Status {
		case "SUCCESSFUL":
			n++
		case "FAILED", "CANCELLED", "EXPIRED":
			return n, fmt.Errorf("the update %s is %s", c.Token, c.Status)
		}
	}
	return n, nil
}
