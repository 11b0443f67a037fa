//go:build linux

package siege_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/test/loopback"
	"weir/internal/test/testweir"
)

// device is a known device and what it sent. A reading whose answer did not arrive is sent and not acknowledged.
type device struct {
	name               string
	address            string
	sent, acknowledged atomic.Int64
}

// pace is that of a device's readings: 60 a second of all of them.
const pace = 200 * time.Millisecond

// timeout is how long a client waits before it gives up; that is a fault.
const timeout = time.Minute

// clients are known clients at work.
type clients struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func (c *clients) stop() {
	c.cancel()
	c.wg.Wait()
}

// known starts the devices and users that must be served. Each has an address of its own.
func (x *target) known(t *testing.T, f *figures) *clients {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &clients{cancel: cancel}
	t.Cleanup(c.stop)
	source := 100 << 16
	next := func() string { source++; return loopback.Address(source) }
	play := func(name string, act func(ctx context.Context, d *device) error) {
		d := &device{name: name, address: next()}
		f.devices = append(f.devices, d)
		c.wg.Go(func() {
			if err := act(ctx, d); err != nil && ctx.Err() == nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	for _, name := range names("mqtt", mqttDevices) {
		play(name, func(ctx context.Context, d *device) error { return x.publishes(ctx, f, d) })
	}
	for i, name := range names("http", httpDevices) {
		play(name, func(ctx context.Context, d *device) error { return x.posts(ctx, f, d, i%2 == 0) })
	}
	play("visitor", func(ctx context.Context, d *device) error { return x.visits(ctx, f, d) })
	play("large", func(ctx context.Context, d *device) error { return x.postsLarge(ctx, f, d) })
	address := next()
	c.wg.Go(func() {
		if err := x.queries(ctx, f, address); err != nil && ctx.Err() == nil {
			t.Errorf("a signed-in user: %v", err)
		}
	})
	return c
}

// every does something at a pace until the context ends. A step that takes longer than the pace delays the following ones.
func every(ctx context.Context, pace time.Duration, do func(n int) error) error {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := 0; ; n++ {
		if err := do(n); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// reading is a message of a device with so many readings. With a credential it can be posted.
func (d *device) reading(n int, credential bool) []byte {
	b := []byte(`{"eventType":"Measurement",`)
	if credential {
		b = fmt.Appendf(b, `"credentialType":"ACCESS_TOKEN","credentialId":%q,`, secret(d.name))
	}
	b = append(b, `"payload":{"entries":[`...)
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"measurements":{"temp":"%d"}}`, d.sent.Add(1))
	}
	return append(b, `]}}`...)
}

func (d *device) join(ctx context.Context, x *target) (*testweir.MQTT, error) {
	conn, err := loopback.DialContext(ctx, d.address, x.MQTT)
	if err != nil {
		return nil, err
	}
	m, code, err := testweir.ConnectMQTTOver(conn, "weir:"+known+":"+d.name, known+":"+secret(d.name), "", 60)
	if err == nil && code != 0 {
		err = fmt.Errorf("CONNACK %d", code)
	}
	return m, err
}

// publish publishes a reading and waits for its PUBACK.
func (d *device) publish(m *testweir.MQTT, id uint16) error {
	if err := m.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if err := m.Publish("weir/"+known+"/devices/"+d.name+"/events", id, false, d.reading(1, false)); err != nil {
		return err
	}
	_, err := m.Puback()
	if err == nil {
		d.acknowledged.Add(1)
	}
	return err
}

// publishes is a device on one MQTT connection, which must not end.
func (x *target) publishes(ctx context.Context, f *figures, d *device) error {
	m, err := d.join(ctx, x)
	if err != nil {
		return err
	}
	defer m.Close()
	return every(ctx, pace, func(n int) error {
		return f.puback.time(func() error { return d.publish(m, uint16(n%65535)+1) })
	})
}

// visits is a device that connects for each of its readings.
func (x *target) visits(ctx context.Context, f *figures, d *device) error {
	return every(ctx, 5*pace, func(int) error {
		var m *testweir.MQTT
		err := f.connect.time(func() (err error) { m, err = d.join(ctx, x); return err })
		if err != nil {
			return err
		}
		return errors.Join(d.publish(m, 1), m.Close())
	})
}

// browser is an HTTP client with an address, and with one connection, or one for each request.
func browser(address string, keeps bool) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: !keeps, MaxIdleConnsPerHost: 1,
		DialContext: func(ctx context.Context, _, to string) (net.Conn, error) {
			return loopback.DialContext(ctx, address, to)
		}}}
}

// posts is a device that sends over HTTP.
func (x *target) posts(ctx context.Context, f *figures, d *device, keeps bool) error {
	c := browser(d.address, keeps)
	defer c.CloseIdleConnections()
	return every(ctx, pace, func(int) error { return x.post(ctx, c, &f.post, f, d, 1) })
}

// postsLarge is a device that now and then sends a body which needs one of the slots for large ones.
func (x *target) postsLarge(ctx context.Context, f *figures, d *device) error {
	c := browser(d.address, true)
	defer c.CloseIdleConnections()
	return every(ctx, 10*pace, func(int) error { return x.post(ctx, c, &f.large, f, d, 250) })
}

// post posts a message. Where its connection was closed before the answer it does what clients do: it sends again.
func (x *target) post(ctx context.Context, c *http.Client, times *delays, f *figures, d *device, readings int) error {
	return times.time(func() error {
		for tries := 1; ; tries++ {
			body := d.reading(readings, true)
			if readings > 1 { // to the size of a large one
				body = append(body, bytes.Repeat([]byte(" "), 100<<10)...)
			}
			status, text, err := send(ctx, c, x.Ingest+"/weir/"+known+"/events", body)
			switch {
			case err != nil && tries < 3 && ctx.Err() == nil:
				f.again.Add(1)
			case err != nil:
				return err
			case status != http.StatusAccepted:
				return fmt.Errorf("%d: %s", status, text)
			default:
				d.acknowledged.Add(int64(readings))
				return nil
			}
		}
	})
}

func send(ctx context.Context, c *http.Client, url string, body []byte) (int, string, error) {
	// What is on its way when the siege ends still gets its answer.
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, strings.TrimSpace(string(text)), errors.Join(err, resp.Body.Close())
}

// queries is a signed-in user who looks at the newest readings, in turns on a kept and on a new connection.
func (x *target) queries(ctx context.Context, f *figures, address string) error {
	cs := []*http.Client{browser(address, true), browser(address, false)}
	defer cs[0].CloseIdleConnections()
	return every(ctx, 2*pace, func(n int) error {
		return f.query.time(func() error {
			for tries := 1; ; tries++ {
				resp, text, err := testweir.GraphQL{API: x.API, Area: "event-management", Token: x.user, Client: cs[n%len(cs)],
					Query: `{measurementEvents(criteria:{pageNumber:1,pageSize:100}){results{id value}}}`}.Post(context.WithoutCancel(ctx))
				switch {
				case err != nil && tries < 3 && ctx.Err() == nil:
					f.again.Add(1)
				case err != nil:
					return err
				case resp.StatusCode != http.StatusOK || bytes.Contains(text, []byte(`"errors"`)):
					return fmt.Errorf("%s: %.300s", resp.Status, text)
				default:
					return nil
				}
			}
		})
	})
}
