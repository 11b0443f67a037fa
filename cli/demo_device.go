package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"weir/internal/mqttclient"
)

const (
	demoInterval  = time.Second     // between two readings of a device
	demoReconnect = 2 * time.Second // how long a device waits before it connects again
)

// demoWave is a temperature that goes over the threshold and back.
type demoWave struct{ lag float64 } // behind the first device, 0 to 1 of half a period

const demoPeriod = 20 * time.Second

// at is the temperature in °C, to a tenth. Every wave begins below the threshold; one without lag passes it in the third
// second.
func (w demoWave) at(since time.Duration) float64 {
	x := 2 * math.Pi * (since.Seconds()/demoPeriod.Seconds() - w.lag/2)
	return math.Round((72+12*math.Sin(x)+0.4*math.Sin(7.3*x))*10) / 10
}

// demoDevice is a simulated device: an MQTT 5 client like any other.
type demoDevice struct {
	token, secret  string
	instance, addr string
	wave           demoWave

	sent    atomic.Int64 // messages that were acknowledged
	refused atomic.Int64
}

// run connects and sends a reading each second until ctx ends. A lost connection is made again.
func (d *demoDevice) run(ctx context.Context, start time.Time) error {
	// The devices share the second between them, so that the lines come evenly.
	if !wait(ctx, time.Duration(d.wave.lag*float64(demoInterval))) {
		return nil
	}
	for {
		err := d.session(ctx, start)
		if ctx.Err() != nil {
			return nil
		}
		if !wait(ctx, demoReconnect) {
			return nil
		}
		if d.sent.Load() == 0 { // never once: that will not get better
			return fmt.Errorf("device %s: %w", d.token, err)
		}
	}
}

// session is one connection. It returns when ctx ends or the connection does.
func (d *demoDevice) session(ctx context.Context, start time.Time) error {
	client, err := mqttclient.Connect(ctx, mqttclient.Options{URL: "mqtt://" + d.addr, Dial: (&net.Dialer{}).DialContext, ClientID: d.instance + ":" + demoTenant + ":" + d.token,
		Username: demoTenant + ":" + d.secret})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // a connection that is lost needs no goodbye
	tick := time.NewTicker(demoInterval)
	defer tick.Stop()
	for {
		if err := d.publish(ctx, client, start); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-client.Done():
			return client.Err()
		case <-tick.C:
		}
	}
}

// publish sends a reading and waits for its PUBACK. A refused message is counted; the device continues.
func (d *demoDevice) publish(ctx context.Context, client *mqttclient.Client, start time.Time) error {
	now := time.Now()
	temp := d.wave.at(now.Sub(start))
	payload, err := demoEvent(now, map[string]float64{"temp": temp, "pressure": 1 + temp/100})
	if err != nil {
		return err
	}
	// Begun is finished, so that what the ledger has is what the device knows.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = client.Publish(ctx, mqttclient.Message{QoS: 1, Payload: payload, Topic: d.instance + "/" + demoTenant + "/devices/" + d.token + "/events"})
	if _, refused := errors.AsType[*mqttclient.Refused](err); refused {
		d.refused.Add(1)
		return nil
	}
	if err != nil {
		return err
	}
	d.sent.Add(1)
	return nil
}

// demoEvent is an ingest event: values travel as strings.
func demoEvent(at time.Time, values map[string]float64) ([]byte, error) {
	m := map[string]string{}
	for name, v := range values {
		m[name] = strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
	}
	return json.Marshal(map[string]any{"eventType": "Measurement", "occurredTime": at.UTC().Format(time.RFC3339Nano),
		"payload": map[string]any{"entries": []any{map[string]any{"measurements": m}}}})
}

// wait sleeps and reports false when ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
