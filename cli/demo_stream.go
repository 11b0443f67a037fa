package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"weir/model"
)

const (
	demoRenewEvery = 5 * time.Minute // access tokens live 15
	demoReelDelay  = 250 * time.Millisecond
)

// demoMoment is something that the subscriptions gave: a reading, or an edge of a rule.
type demoMoment struct {
	Occurred time.Time `json:"time"`
	Device   string    `json:"device"`
	Metric   string    `json:"metric,omitempty"` // of a reading
	Value    *float64  `json:"value"`
	Unit     string    `json:"unit,omitempty"`
	Rule     string    `json:"rule,omitempty"` // of an edge
	Edge     string    `json:"edge,omitempty"`
	Severity string    `json:"severity,omitempty"`

	arrived time.Time
}

// watch follows both subscriptions until ctx ends. One that is cut off, as a client is that reads too slowly, is begun
// again.
func (d *demo) watch(ctx context.Context, reel *demoReel) {
	var both sync.WaitGroup
	for _, s := range []demoSubscription{
		{"event-management", `subscription { measurementStream(name: "temp") { deviceToken occurredTime name value unit } }`, "measurementStream"},
		{"event-processing", `subscription { detectionStream(profileToken: "` + demoProfile + `") { ruleToken edge series occurredTime severity value } }`, "detectionStream"},
	} {
		both.Go(func() {
			for {
				err := d.follow(ctx, s, reel)
				if ctx.Err() != nil {
					return
				}
				d.printer.note(fmt.Sprintf("%s ended (%v); subscribing again", s.field, err))
				if !wait(ctx, time.Second) {
					return
				}
			}
		})
	}
	both.Wait()
}

type demoSubscription struct{ area, document, field string }

// demoMessage is a message of the subprotocol graphql-transport-ws.
type demoMessage struct {
	ID      string          `json:"id,omitempty"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// follow reads one subscription until it ends.
func (d *demo) follow(ctx context.Context, s demoSubscription, reel *demoReel) error {
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(d.api.base, "http")+"/api/"+s.area+"/graphql",
		&websocket.DialOptions{Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	if err := d.hello(ctx, conn, s); err != nil {
		return err
	}
	reading, stop := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { d.renew(reading, conn) })
	err = d.read(ctx, conn, s, reel)
	stop()
	renewing.Wait()
	return err
}

// read takes what comes until the subscription ends.
func (d *demo) read(ctx context.Context, conn *websocket.Conn, s demoSubscription, reel *demoReel) error {
	for {
		var m demoMessage
		if err := wsjson.Read(ctx, conn, &m); err != nil {
			return err
		}
		switch m.Type {
		case "next":
			moment, err := s.moment(m.Payload)
			if err != nil {
				return err
			}
			reel.add(moment)
		case "ping":
			if err := wsjson.Write(ctx, conn, demoMessage{Type: "pong"}); err != nil {
				return err
			}
		case "error", "complete":
			return fmt.Errorf("%s %s", m.Type, m.Payload)
		}
	}
}

// hello signs in and subscribes.
func (d *demo) hello(ctx context.Context, conn *websocket.Conn, s demoSubscription) error {
	auth, err := d.authorization(ctx)
	if err != nil {
		return err
	}
	if err := wsjson.Write(ctx, conn, demoMessage{Type: "connection_init", Payload: auth}); err != nil {
		return err
	}
	var m demoMessage
	if err := wsjson.Read(ctx, conn, &m); err != nil {
		return err
	}
	if m.Type != "connection_ack" {
		return fmt.Errorf("expected a connection_ack, got %s", m.Type)
	}
	payload, err := json.Marshal(map[string]string{"query": s.document})
	if err != nil {
		return err
	}
	return wsjson.Write(ctx, conn, demoMessage{ID: "1", Type: "subscribe", Payload: payload})
}

// authorization is the payload of a connection_init or a ping, with a token that lives long enough.
func (d *demo) authorization(ctx context.Context) (json.RawMessage, error) {
	token, err := d.api.fresh(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]string{"Authorization": "Bearer " + token})
}

// renew keeps a connection open past the life of its token: a ping with a newer one extends it. Where that fails the
// server ends the connection, which read notices.
func (d *demo) renew(ctx context.Context, conn *websocket.Conn) {
	for wait(ctx, demoRenewEvery) {
		payload, err := d.authorization(ctx)
		if err == nil {
			err = wsjson.Write(ctx, conn, demoMessage{Type: "ping", Payload: payload})
		}
		if err != nil {
			return
		}
	}
}

// moment reads the payload of a next.
func (s demoSubscription) moment(payload []byte) (demoMoment, error) {
	var p struct {
		Data map[string]struct {
			DeviceToken, Series, OccurredTime, Name, Unit, RuleToken, Edge, Severity string
			Value                                                                    *float64
		}
	}
	if err := json.Unmarshal(payload, &p); err != nil {
		return demoMoment{}, err
	}
	e, ok := p.Data[s.field]
	if !ok {
		return demoMoment{}, fmt.Errorf("%s gave %s", s.field, payload)
	}
	at, err := model.ParseTime(e.OccurredTime)
	return demoMoment{Occurred: at, Device: cmp.Or(e.DeviceToken, e.Series), Metric: e.Name, Value: e.Value, Unit: e.Unit, Rule: e.RuleToken,
		Edge: e.Edge, Severity: e.Severity}, err
}

// demoReel puts the moments of both subscriptions into one order. They come over two connections, so an edge may be here
// before its reading; each is held for demoReelDelay and shown in the order of what happened.
type demoReel struct {
	show func(demoMoment)

	mu      sync.Mutex
	pending []demoMoment
}

func newDemoReel(show func(demoMoment)) *demoReel { return &demoReel{show: show} }

func (r *demoReel) add(m demoMoment) {
	m.arrived = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = append(r.pending, m)
}

// run shows what is due until ctx ends, and then what is left.
func (r *demoReel) run(ctx context.Context) {
	tick := time.NewTicker(demoReelDelay / 5)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			r.flush(time.Time{})
			return
		case now := <-tick.C:
			r.flush(now.Add(-demoReelDelay))
		}
	}
}

// flush shows what arrived by then, and what happened before that; everything for the zero time.
func (r *demoReel) flush(by time.Time) {
	r.mu.Lock()
	slices.SortStableFunc(r.pending, func(a, b demoMoment) int {
		return cmp.Or(a.Occurred.Compare(b.Occurred), strings.Compare(a.Device, b.Device), cmp.Compare(len(a.Edge), len(b.Edge)))
	})
	n := len(r.pending)
	if !by.IsZero() {
		for n > 0 && r.pending[n-1].arrived.After(by) {
			n--
		}
	}
	due := slices.Clone(r.pending[:n])
	r.pending = slices.Delete(r.pending, 0, n)
	r.mu.Unlock()
	for _, m := range due {
		r.show(m)
	}
}
