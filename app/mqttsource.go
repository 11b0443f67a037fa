package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"weir/config"
	"weir/ingest"
	"weir/model"
	"weir/mqttsource"
)

// mqttSourceTransport reads the brokers of others.
var mqttSourceTransport = Transport{Name: ingest.TransportExternalMQTT, New: newMQTTSource,
	Owns: func(c config.Config, source string) bool { return c.MQTTSource.Owns(source) }}

func newMQTTSource(d TransportDeps) (Served, error) {
	c := d.Config
	if len(c.MQTTSource.Sources) == 0 {
		return Served{}, nil
	}
	// Alone: no other process uses this store, so a lease of another run is that of one which has ended.
	t, err := mqttsource.New(mqttsource.Config{
		InstanceID: c.Instance.ID,
		Node:       nodeName(c),
		Alone:      true,
		Settings:   c.MQTTSource,
		Timing:     c.Presence.Timing,
	}, mqttsource.Deps{
		Intake:     d.Intake,
		Adopter:    d.Registry.Adoptions,
		Tenant:     d.Tenant,
		Presence:   d.Presence,
		Store:      d.Store,
		Link:       d.Link,
		Dial:       d.Dial,
		DialLocal:  d.DialOpen,
		Desk:       d.Desk,
		Suspend:    d.Suspend,
		Logger:     d.Logger,
		Registerer: d.Registerer,
	})
	if err != nil {
		return Served{}, err
	}
	return Served{Transport: t, Carrier: t.Commands(), Reload: func(c *config.Config) { t.Set(c.Presence.Timing) }}, nil
}

// nodeName is the name of this node in client identifiers: instance.node, or else the name of the host.
func nodeName(c config.Config) string {
	host, _ := os.Hostname() // none is not a reason to read nothing
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune("+#/:", r) {
			return '-'
		}
		return r
	}, cmp.Or(c.Instance.Node, host, "node"))
}

// SourceNamed finds an event source of the configuration that reads a broker.
func SourceNamed(c *config.Config, id string) (*mqttsource.Source, error) {
	// Collect the names that exist, for the hint of the error.
	var names []string
	for i := range c.MQTTSource.Sources {
		s := &c.MQTTSource.Sources[i]
		if s.ID == id {
			return s, nil
		}
		names = append(names, s.ID)
	}
	if len(names) == 0 {
		return nil, &model.Error{Code: model.CodeNotFound, Message: "the configuration names no source under external_mqtt.sources"}
	}
	return nil, &model.Error{Code: model.CodeNotFound, Message: fmt.Sprintf("external_mqtt.sources has no source %q; there are %s", id, strings.Join(names, ", "))}
}

// ShownSource is what a source reads; TriedMessage is what its mappings make of a message.
type (
	ShownSource  = mqttsource.Shown
	TriedMessage = mqttsource.Tried
)

// ShowSource returns what a source subscribes to and its mappings, those of presets included.
func ShowSource(s *mqttsource.Source) ShownSource { return s.Show() }

// CheckSource connects to the broker of a source under an identifier of its own, and writes what the broker says, and what the mappings make of
// the first messages within wait. Nothing is stored.
func CheckSource(ctx context.Context, c *config.Config, s *mqttsource.Source, wait time.Duration, messages int, out io.Writer) error {
	return s.Try(ctx, c.Instance.ID, dialOperators, wait, messages, out)
}

// TrySource returns what the mappings of a source make of a message.
func TrySource(s *mqttsource.Source, topic string, payload []byte) TriedMessage {
	return s.Translate(topic, payload, false)
}
