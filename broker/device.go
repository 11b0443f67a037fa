package broker

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"weir/ingest"
	"weir/internal/edgewire"
	"weir/presence"
)

// topics are the topics of a device. A connection may publish on all but the last two and subscribe to these.
type topics struct {
	events, telemetry, responses, reports, commands, attributes string
}

func topicsOf(instance, tenant, device string) topics {
	base := instance + "/" + tenant + "/"
	return topics{
		events:    base + "devices/" + device + "/events",
		telemetry: base + "devices/" + device + "/telemetry",
		responses: base + "command-responses/" + device,
		reports:   base + "device-reports/" + device,
		commands:  base + "device-commands/" + device,

		attributes: base + "device-attributes/" + device,
	}
}

// purpose is what a topic that a device publishes on is for.
type purpose uint8

const (
	forbidden    purpose = iota
	forEvents            // to the intake
	forTelemetry         // to the intake, as a flat body
	forReports           // to the intake, as a device report
	forAnswers           // to the intake, as the answer to a command
)

func (t *topics) purpose(topic string) purpose {
	switch topic {
	case t.events:
		return forEvents
	case t.telemetry:
		return forTelemetry
	case t.reports:
		return forReports
	case t.responses:
		return forAnswers
	}
	return forbidden
}

// shape says what the body of an arrival is, on a topic for the intake.
func (p purpose) shape(a *ingest.Arrival) {
	a.Flat, a.Reports, a.Answers = p == forTelemetry, p == forReports, p == forAnswers
}

// devices is the service for devices: what they publish goes to the intake, and they may subscribe to their own commands and
// attributes. Neither is kept for a disconnected device: the platform does that.
type devices struct {
	b          *Broker
	pubsub     *pubsub
	commands   *commands   // nil: there are none
	attributes *attributes // nil: there are none

	edgeCommands *edgeCommands // nil: there are none
	hands        *hands        // nil: no commands are handed on
	asking       asking
	uplinks      *uplinks
	wills        sync.WaitGroup // wills of kept sessions that are being published
	talks        sync.WaitGroup // documents of edges that are being handled
}

// maxOwnSubscriptions bounds the subscriptions of a connection: to the commands and the attributes of its device, and of an edge to what Weir says to it.
const maxOwnSubscriptions = 3

// maxCommands bounds the commands that a client may leave unacknowledged on one connection.
const maxCommands = 64

func newDevices(b *Broker) *devices {
	d := &devices{b: b, uplinks: newUplinks(b.deps.Link, b.metrics.uplinks)}
	m := newPubsubMetrics(nil)
	m.connections, m.kept, m.evicted = b.metrics.connections, b.metrics.kept, b.metrics.keptEvicted
	d.pubsub = newPubsub(d, limits{
		OpenConfig: OpenConfig{MaxSessions: b.cfg.MaxKeptSessions, MaxSubscriptions: maxOwnSubscriptions, MaxNodes: math.MaxInt, MaxQueued: maxCommands,
			MaxQueuedBytes: math.MaxInt64 / allQueues, MaxInflight: maxCommands},
		MaxConnections: func() int { return b.settings.Load().MaxConnections }, MaxPerDevice: b.cfg.MaxPerDevice, MaxQoS: 1,
		AllowQoS2: func() bool { return b.settings.Load().AllowQoS2 },
	}, m)
	d.hands = newHands(b, d.pubsub, b.deps.Listening)
	if b.deps.Desk != nil {
		d.commands = &commands{d: d, desk: b.deps.Desk, listeners: map[int64][]*conn{}}
	}
	if b.deps.Desk != nil && b.deps.Edges != nil {
		d.edgeCommands = &edgeCommands{d: d, desk: b.deps.Desk, through: map[int64]*conn{}, sites: map[*conn]*siteOf{}}
	}
	if b.deps.Attributes != nil {
		d.attributes = &attributes{d: d, source: b.deps.Attributes, listeners: map[int64][]*conn{}}
	}
	return d
}

func (d *devices) changed(c *conn) {
	d.hands.changed(c)
	if d.commands != nil {
		d.commands.changed(c)
	}
	if d.attributes != nil {
		d.attributes.changed(c)
	}
}

func (d *devices) idle(c *conn) {
	if d.attributes != nil {
		d.attributes.claim(c)
	}
	if d.commands != nil {
		d.commands.claim(c)
	}
}

func (d *devices) claims(p *connect) (identity, *refusal) {
	if r := p.forDevice(); r != nil {
		return identity{}, r
	}
	id, mistake := p.identify(d.b.cfg.InstanceID)
	switch {
	case mistake != "":
		return id, refuseIdentity
	case p.will != nil && p.will.qos == 2 && !d.pubsub.qos2():
		return id, refuseWillQoS
	}
	var r *refusal
	id.assigned, r = p.assign()
	return id, r
}

func (d *devices) verify(ctx context.Context, p *connect, id *identity) (Proof, *refusal) {
	id.claim.From = p.from
	proof, err := d.b.deps.Verifier.Verify(ctx, id.claim)
	if errors.Is(err, ErrBusy) {
		return Proof{}, refuseBusy
	}
	switch {
	case err != nil || proof.Tenant != id.tenant:
		return Proof{}, refuseCredential
	case !id.free && proof.Device != id.device:
		return Proof{}, refuseDevice
	}
	if d.b.deps.Edges != nil {
		if proof.edge, err = d.b.deps.Edges.IsEdge(ctx, proof.Binding); err != nil {
			return Proof{}, refuseBusy
		}
	}
	id.prove(p.clientID, d.b.cfg.InstanceID, proof.Device)
	if p.will != nil && id.topics.purpose(p.will.topic) == forbidden {
		return Proof{}, refuseWillTopic
	}
	if id.claim.Type == X509Certificate && (proof.Expires == 0 || p.shown.ends < proof.Expires) {
		proof.Expires = p.shown.ends
	}
	return proof, nil
}

// offers says what a device may not use: nearly all that is optional.
func (d *devices) offers(c *conn, p *packets.Properties) {
	p.MaximumQos, p.MaximumQosFlag = 1, !c.allowQoS2
	p.AssignedClientID = c.assigned
	c.tellTime(p)
	p.RetainAvailableFlag, p.WildcardSubAvailableFlag, p.SharedSubAvailableFlag, p.SubIDAvailableFlag = true, true, true, true
}

func (d *devices) begin(c *conn) {
	limit := d.b.cfg.MaxSession
	if c.edge {
		limit = math.MaxInt64
		c.talk.up, c.talk.down = edgewire.Topics(d.b.cfg.InstanceID, c.binding.Tenant, c.binding.Device)
		c.talk.frames = edgewire.FrameTopic(d.b.cfg.InstanceID, c.binding.Tenant, c.binding.Device)
	}
	c.expireAfter(c.proofLeft(limit))
	if c.suffixed {
		return
	}
	c.stall.begin(c.since)
	defer c.stall.over()
	c.number = d.b.tracker.Arrived(c.ctx, c.binding)
}

func (d *devices) ended(c *conn, why *cause) {
	for _, link := range c.uplinks {
		d.uplinks.down(link)
	}
	if d.edgeCommands != nil {
		d.edgeCommands.left(c)
	}
	d.asking.remove(c)
	if c.number == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(d.b.closing, presenceTimeout)
	defer cancel()
	by := presence.ByDevice
	if why.ours || why.kind == takenOver { // a takeover that fails to arrive must not leave the device connected for ever
		by = presence.ByWeir
	}
	d.b.tracker.Left(ctx, c.binding, c.number, why.word, by)
}

// presenceTimeout bounds the handing over of a transition.
const presenceTimeout = 10 * time.Second

func (d *devices) countRefused(c *conn, bytes int, why *cause) {
	reason := ReasonProtocol
	switch why {
	case causeQoS2:
		reason = ReasonQoS2
	case causeTooLarge:
		reason = ingest.ReasonTooLarge
	}
	c.countRefused(bytes, reason, "the packet was not read: "+why.word)
}

// permit grants a device its own commands and attributes. A wildcard or a shared subscription could also end the connection (sections
// 3.2.2.3.11 and 13); only the filter is refused.
func (d *devices) permit(c *conn, filter string) byte {
	if filter == c.topics.commands || filter == c.topics.attributes && d.attributes != nil || c.edge && filter == c.talk.down {
		return codeSuccess
	}
	switch group, filter, _ := splitShare(filter); {
	case group != "":
		return codeSharedNotSupported
	case strings.ContainsAny(filter, "+#"):
		return codeWildNotSupported
	}
	return codeNotAuthorized
}

func (d *devices) release(c *conn, id uint16) *cause { return c.acks.release(id) }

// publishWill hands a will to the intake, as a publish of its device, and counts how it ended: what cannot be stored is in the
// ledger with its reason. A full log is waited for, no longer than ConnectTimeout.
func (d *devices) publishWill(w *lastWill) {
	a := &ingest.Arrival{Transport: ingest.TransportMQTT, Source: d.b.cfg.Source, Tenant: w.binding.Tenant, Topic: w.binding.Device, Body: w.payload,
		Conn: w.binding, ClientID: w.clientID, HoldFor: -1, CannotRefuse: true} // the client is gone
	own := topicsOf(d.b.cfg.InstanceID, w.binding.Tenant, w.binding.Device)
	switch purpose := own.purpose(w.topic); {
	case w.revoked || purpose == forbidden:
		d.refuseWill(a, ingest.ReasonNotAuthorized)
		return
	default:
		purpose.shape(a)
	}
	ctx, cancel := context.WithTimeout(d.b.closing, d.b.cfg.ConnectTimeout)
	defer cancel()
	d.b.deps.Intake.Accept(ctx, a, func(answer ingest.Answer) { d.willEnded(a, answer) })
}

// sayWill publishes the will of a kept session. The intake may block, so a goroutine of its own calls it.
func (d *devices) sayWill(w *lastWill) { d.wills.Go(func() { d.publishWill(w) }) }

// refuseWill counts a will that does not become an arrival.
func (d *devices) refuseWill(a *ingest.Arrival, reason ingest.Reason) {
	in := d.b.deps.Intake
	in.Refuse(in.Received(a.Transport, a.Source, a.Tenant, len(a.Body)), reason)
	d.willEnded(a, ingest.Answer{Outcome: ingest.Refused, Reason: reason})
}

// willEnded counts how a will ended, and logs one that is not stored: no client is there to be answered.
func (d *devices) willEnded(a *ingest.Arrival, answer ingest.Answer) {
	d.b.metrics.wills.WithLabelValues(outcomeWord(answer.Outcome)).Inc()
	if answer.Outcome != ingest.Stored {
		d.b.log.Debug("a will was not stored", "client", a.ClientID, "outcome", outcomeWord(answer.Outcome), "reason", string(answer.Reason))
	}
}

func outcomeWord(o ingest.Outcome) string {
	switch o {
	case ingest.Stored:
		return "stored"
	case ingest.Refused:
		return "refused"
	case ingest.Dropped:
		return "dropped"
	}
	return "withheld"
}
