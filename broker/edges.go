package broker

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/prometheus/client_golang/prometheus"

	"weir/ingest"
	"weir/ingest/links"
	"weir/internal/edgewire"
	"weir/model"
)

// ErrNotBehind says that a device may not publish for another one.
var ErrNotBehind = errors.New("broker: the edge may not publish for the device")

// Edges knows which devices are edges: Weirs at sites, which publish for the devices there.
type Edges interface {
	// IsEdge reports whether a device is an edge. Each connection asks.
	IsEdge(ctx context.Context, device model.Binding) (bool, error)
	// Behind returns the device that an edge speaks for, whose token may be another than the name in a topic, with the row id 0 where there is none of that name. The error wraps ErrNotBehind
	// where the edge may not speak for it; any other one says that it could not be found out.
	Behind(ctx context.Context, edge model.Binding, device string) (model.Binding, error)
	// Devices returns devices for which an edge speaks, from behind after on, with their credentials as they are stored, and where the next page
	// begins, "" for the last one.
	Devices(ctx context.Context, edge model.Binding, after string) (page []edgewire.Device, next string, err error)
	// Site returns what the platform at the site of an edge is to follow.
	Site(ctx context.Context, edge model.Binding) (*edgewire.SiteDocument, error)
	// Said takes in what an edge says of itself. It returns the answer to a hello, without its time, and nil for all else.
	Said(ctx context.Context, edge model.Binding, h *edgewire.Hello) (*edgewire.Welcome, error)
}

// edgeReceiveMaximum is the Receive Maximum of an edge: over a slow link its window decides about the throughput.
const edgeReceiveMaximum = 4096

// receiveMaximum is how many publishes of the connection may wait for their acknowledgement.
func (c *conn) receiveMaximum() int {
	if c.edge {
		return max(edgeReceiveMaximum, c.b.cfg.ReceiveMaximum)
	}
	return c.b.cfg.ReceiveMaximum
}

// tellTime tells an edge the time of day, where it takes so large a packet.
func (c *conn) tellTime(p *packets.Properties) {
	const enough = 256
	if c.edge && (c.maxPacket == 0 || c.maxPacket >= enough) {
		p.User = append(p.User, packets.UserProperty{Key: edgewire.PropertyTime, Val: c.b.deps.Now().UTC().Format(time.RFC3339Nano)})
	}
}

// relayed is the number that an edge gives a message, see edgewire.PropertyNumber.
type relayed struct {
	link   string // edge:INSTALL:EPOCH
	number uint64
}

// relayedNumber reads the number of a publish. named is false where it has none; a nil relayed says that it is none.
func relayedNumber(props []byte) (r *relayed, named bool) {
	c := cursor{b: props}
	section := cursor{b: c.take(int(c.varint()))}
	for len(section.b) > 0 && !section.bad {
		id := section.varint()
		p, _ := propertyOf(id)
		if id != propUser {
			section.value(p.holds)
			continue
		}
		name, value := section.text(), section.text()
		if string(name) == edgewire.PropertyNumber {
			return parseRelayed(string(value)), true
		}
	}
	return nil, false
}

// installBytes is how long the id of an installation is.
const installBytes = 16

func parseRelayed(text string) *relayed {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return nil
	}
	install, epoch, ok := strings.Cut(text[:i], ":")
	raw, err := hex.DecodeString(install)
	if !ok || err != nil || len(raw) != installBytes || strings.ToLower(install) != install {
		return nil
	}
	e, err := strconv.ParseUint(epoch, 10, 32)
	if err != nil || strconv.FormatUint(e, 10) != epoch {
		return nil
	}
	n, err := strconv.ParseUint(text[i+1:], 10, 64)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != text[i+1:] {
		return nil
	}
	return &relayed{"edge:" + text[:i], n}
}

// deviceTopic returns the device of a tenant that a topic names, and what the topic is for.
func deviceTopic(instance, topic string) (tenant, device string, _ purpose) {
	parts := strings.Split(topic, "/")
	if len(parts) < 4 || parts[0] != instance || !model.ValidToken(parts[1]) {
		return "", "", forbidden
	}
	if tenant, device = parts[1], parts[3]; !model.ValidToken(device) {
		return tenant, "", forbidden
	}
	own := topicsOf(instance, tenant, device)
	return tenant, device, own.purpose(topic)
}

// relay takes a message that an edge relays for a device at its site. It reports false for one that is the edge's own, or on a topic of nobody.
func (d *devices) relay(c *conn, p *publish, number uint64) bool {
	r, numbered := relayedNumber(p.props)
	tenant, device, purpose := deviceTopic(d.b.cfg.InstanceID, p.topic)
	if purpose == forbidden || tenant != c.binding.Tenant || !numbered && device == c.binding.Device {
		return false
	}
	behind, err := d.b.deps.Edges.Behind(c.ctx, c.binding, device)
	if err != nil {
		d.refuseRelayed(c, p, number, err)
		return true
	}
	a := &ingest.Arrival{
		Transport: ingest.TransportUplink, Source: d.b.cfg.Source, Tenant: tenant, Topic: behind.Device, Body: p.payload, From: c.from,
		Conn: &behind, ClientID: c.clientID, PacketID: p.id, HoldFor: -1, CannotRefuse: c.version < mqtt5 || p.qos == 0,
	}
	switch {
	case r != nil:
		a.Link, a.Number = r.link, r.number
		d.uplinks.up(c, r.link)
	case numbered:
		a.Fault = "the user property " + edgewire.PropertyNumber + " is not INSTALL:EPOCH:NUMBER"
	default:
		a.Dup = c.mayRepeat(p)
	}
	purpose.shape(a)
	c.hand(a, p, number)
	return true
}

// refuseRelayed answers a message for a device that the edge may not speak for, or of which that cannot be found out: then the connection
// ends, so that the edge sends it again.
func (d *devices) refuseRelayed(c *conn, p *publish, number uint64, err error) {
	answer := ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonUnavailable}
	if errors.Is(err, ErrNotBehind) {
		answer.Reason, answer.Text = ingest.ReasonNotAuthorized, "this edge may not publish for the device"
	}
	d.b.refusals.Add(1)
	in := d.b.deps.Intake
	in.Refuse(in.Received(ingest.TransportUplink, d.b.cfg.Source, c.binding.Tenant, len(p.payload)), answer.Reason)
	if p.qos > 0 {
		c.acks.complete(number, c.verdictOn(answer))
	}
}

// uplinks counts over how many connections each link of an edge is up: a connection that takes over from another begins before that ends.
type uplinks struct {
	link      func(name string) links.Link
	connected prometheus.Gauge
	mu        sync.Mutex
	open      map[string]int
}

func newUplinks(link func(string) links.Link, connected prometheus.Gauge) *uplinks {
	return &uplinks{link: link, connected: connected, open: map[string]int{}}
}

// maxUplinks bounds the links of a connection: an edge has one, and another one after its log was lost.
const maxUplinks = 8

// up notes that messages of a link come over a connection. The goroutine that reads the connection calls it.
func (u *uplinks) up(c *conn, link string) {
	if slices.Contains(c.uplinks, link) {
		return
	}
	if u.link == nil || len(c.uplinks) >= maxUplinks {
		return
	}
	c.uplinks = append(c.uplinks, link)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open[link]++; u.open[link] == 1 {
		u.connected.Inc()
		u.link(link).Up()
	}
}

// down notes that a connection over which a link was up has ended.
func (u *uplinks) down(link string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open[link]--; u.open[link] == 0 {
		delete(u.open, link)
		u.connected.Dec()
		u.link(link).Down()
	}
}
