package mqttsource

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"weir/internal/mqttclient"
)

// Shown is what a source reads, as it can be shown.
type Shown struct {
	ID       string   `json:"id"`
	Broker   string   `json:"broker"`
	Protocol string   `json:"protocol"`
	Filters  []string `json:"filters"`
	Mappings []Shape  `json:"mappings"`
	Faults   []*Fault `json:"faults,omitempty"`
}

// Shape is a mapping as it is used, also one that a preset stands for.
type Shape struct {
	Topic  string `json:"topic"`
	Decode string `json:"decode"`
	Tenant string `json:"tenant,omitempty"`
	Device string `json:"device,omitempty"`
	Metric string `json:"metric,omitempty"`
	// Commands is where commands are published and what completes them, "" for none.
	Commands string `json:"commands,omitempty"`
}

// Show returns what the source reads.
func (s *Source) Show() Shown {
	all, faults := s.compile("")
	out := Shown{ID: s.ID, Broker: s.address(), Protocol: s.Protocol, Filters: s.filters(all), Mappings: []Shape{}, Faults: faults}
	for _, m := range all {
		shape := Shape{Topic: m.settings.Topic, Decode: m.settings.Decode, Tenant: m.settings.Tenant, Device: m.settings.Device, Metric: m.settings.Metric}
		if m.settings.All {
			shape.Decode += ", of all devices"
		}
		if c := m.settings.Commands; c.Topic != "" {
			shape.Commands = fmt.Sprintf("to %s, completed by %s", c.Topic, c.Complete)
			if c.Response != "" {
				shape.Commands += " on " + c.Response
			}
		}
		out.Mappings = append(out.Mappings, shape)
	}
	return out
}

// Tried is what the mappings of a source make of a message.
type Tried struct {
	Topic      string             `json:"topic"`
	Mapping    string             `json:"mapping,omitempty"` // the template; "" for none
	Ignored    string             `json:"ignored,omitempty"` // why
	Fault      string             `json:"fault,omitempty"`   // why it cannot be decoded
	Tenant     string             `json:"tenant,omitempty"`
	Device     string             `json:"device,omitempty"`
	Time       *time.Time         `json:"time,omitempty"`
	Event      bool               `json:"event,omitempty"` // the payload is an ingest event, which the intake decodes
	Readings   map[string]float64 `json:"readings,omitempty"`
	Attributes map[string]string  `json:"attributes,omitempty"`
	Presence   string             `json:"presence,omitempty"`
}

// Translate returns what the mappings make of a message. Nothing is looked up and nothing is stored.
func (s *Source) Translate(topic string, payload []byte, retained bool) Tried {
	t := Tried{Topic: topic}
	all, faults := s.compile("")
	if len(faults) > 0 {
		t.Fault = faults[0].Error()
		return t
	}
	if len(all) == 0 {
		var ok bool
		if t.Tenant, t.Device, ok = eventTopic(topic); !ok {
			t.Ignored = "it is no topic of events: {x}/{tenant}/devices/{device}/events"
		}
		t.Event = ok
		return t
	}
	m, c := all.find(topic)
	if m == nil {
		t.Ignored = "no mapping takes the topic"
		return t
	}
	t.Mapping = m.settings.Topic
	switch {
	case m.settings.Decode == decodeIgnore:
		t.Ignored = "the preset leaves the topic out"
		return t
	case retained && s.Retained != "keep" && m.settings.Decode != decodePresence:
		t.Ignored = "it is retained: it was published before the subscription (retained: keep)"
		return t
	}
	t.Tenant, t.Device = m.tenantOf(c), m.deviceOf(c)
	if m.settings.Decode == decodeEvent {
		t.Event = true
		return t
	}
	d, err := m.decode(c, payload)
	if err != nil {
		t.Fault = err.Error()
		return t
	}
	t.Device = d.device
	if !d.at.IsZero() {
		t.Time = new(d.at.UTC())
	}
	if d.asserts {
		t.Presence = d.presence.String()
	}
	for _, r := range d.readings {
		if t.Readings == nil {
			t.Readings = map[string]float64{}
		}
		t.Readings[r.Metric] = r.Value
	}
	for _, a := range d.attributes {
		if t.Attributes == nil {
			t.Attributes = map[string]string{}
		}
		t.Attributes[a.Key] = a.Value
	}
	if !d.asserts && len(d.readings)+len(d.attributes) == 0 {
		t.Ignored = "nothing of the payload is kept"
	}
	return t
}

// Try connects under an identifier of its own, with a session that the broker does not keep, and writes what the broker says and what the mappings
// make of the first messages. The error is why there is no connection or no subscription.
func (s *Source) Try(ctx context.Context, instance string, dial mqttclient.Dial, wait time.Duration, messages int, out io.Writer) error {
	if s.IsLocal() {
		return errors.New("url: local is read by the running instance alone: weir source show says what it does, weir source try what the mappings make of a message")
	}
	o, err := s.sessionOptions(ClientID(instance, s.ID, "check-"+strings.ToLower(rand.Text()[:8])), dial)
	if err != nil {
		return err
	}
	o.Clean, o.Expiry = true, 0
	arrived := make(chan *mqttclient.Delivery, 64)
	o.OnMessage = func(d *mqttclient.Delivery) {
		select {
		case arrived <- d:
		case <-d.Session.Done():
		}
	}
	session, err := s.openAny(ctx, o)
	if err != nil {
		return err
	}
	defer session.Close()
	fmt.Fprintf(out, "connected to %s with MQTT %s as %s\n", s.address(), map[byte]string{mqttclient.MQTT5: "5.0", mqttclient.MQTT311: "3.1.1"}[session.Version()], o.ClientID)
	all, faults := s.compile("")
	if len(faults) > 0 {
		return faults[0]
	}
	filters := s.filters(all)
	subs := make([]mqttclient.Subscription, len(filters))
	for i, f := range filters {
		subs[i] = mqttclient.Subscription{Filter: f, QoS: byte(s.QoS)}
	}
	limited, cancel := context.WithTimeout(ctx, subscribeWait)
	defer cancel()
	granted, err := session.Subscribe(limited, subs...)
	if err != nil {
		return err
	}
	for i, qos := range granted {
		fmt.Fprintf(out, "subscribed to %s at QoS %d\n", filters[i], qos)
	}
	limit := time.After(wait)
	for n := range messages {
		select {
		case d := <-arrived:
			fmt.Fprintln(out, s.Translate(d.Topic, d.Payload, d.Retained))
			d.Ack()
		case <-limit:
			fmt.Fprintf(out, "%d messages within %v\n", n, wait)
			return nil
		case <-session.Done():
			return errors.Join(mqttclient.ErrEnded, session.Err())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// openAny opens a session with the version of the settings, or with the one that the broker speaks.
func (s *Source) openAny(ctx context.Context, o mqttclient.SessionOptions) (*mqttclient.Session, error) {
	session, err := mqttclient.Open(ctx, o)
	if err != nil && s.Protocol == "auto" && mqttclient.IsOtherVersion(err) {
		o.Version = mqttclient.MQTT311
		return mqttclient.Open(ctx, o)
	}
	return session, err
}

// String is one line.
func (t Tried) String() string {
	var b strings.Builder
	b.WriteString(t.Topic + ": ")
	switch {
	case t.Ignored != "":
		return b.String() + "ignored, " + t.Ignored
	case t.Fault != "":
		return b.String() + "cannot be decoded: " + t.Fault
	}
	fmt.Fprintf(&b, "tenant %s, device %s", t.Tenant, t.Device)
	switch {
	case t.Event:
		b.WriteString(", an ingest event")
	case t.Presence != "":
		b.WriteString(", " + t.Presence)
	}
	if t.Time != nil {
		b.WriteString(", at " + t.Time.Format(time.RFC3339Nano))
	}
	for _, name := range sortedKeys(t.Readings) {
		b.WriteString(", " + name + " = " + strconv.FormatFloat(t.Readings[name], 'g', -1, 64))
	}
	for _, name := range sortedKeys(t.Attributes) {
		fmt.Fprintf(&b, ", attribute %s = %q", name, t.Attributes[name])
	}
	return b.String()
}
