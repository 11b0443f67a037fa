package broker

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"weir/ingest"
)

// Site is what a broker at a site serves in place of devices with credentials of their own: clients that are let in by a user name and a
// password that all of them share, or by none, and may publish for any device.
type Site struct {
	// Admit reports whether user name and password are right.
	Admit func(user, password string) bool
	// OtherInstance is the reason of the ledger for topics of another instance id.
	OtherInstance ingest.Reason
}

// maxSiteID bounds the client ids of a site.
const maxSiteID = 256

// maxSiteSubscriptions bounds the subscriptions of a client of a site: a gateway takes the commands of the devices behind it.
const maxSiteSubscriptions = 256

// site is the service for the clients of a site. A client that was let in may publish on the topics of any device toward the platform, and subscribe
// to the commands of any.
type site struct {
	b      *Broker
	about  *Site
	pubsub *pubsub
	hands  *hands // nil: no commands are handed on
}

func newSite(b *Broker, about *Site) *site {
	s := &site{b: b, about: about}
	m := newPubsubMetrics(nil)
	m.connections = b.metrics.connections
	s.pubsub = newPubsub(s, limits{
		OpenConfig:     OpenConfig{MaxSubscriptions: maxSiteSubscriptions, MaxNodes: math.MaxInt, MaxQueued: maxCommands, MaxQueuedBytes: math.MaxInt64 / allQueues, MaxInflight: maxCommands},
		MaxConnections: func() int { return b.settings.Load().MaxConnections }, MaxQoS: 1,
		AllowQoS2: func() bool { return b.settings.Load().AllowQoS2 },
	}, m)
	s.hands = newHands(b, s.pubsub, b.deps.Listening)
	return s
}

// claims accepts every client id, and chooses one for a client that has none.
func (s *site) claims(p *connect) (id identity, r *refusal) {
	switch {
	case len(p.clientID) > maxSiteID:
		return id, refuseClientID
	case p.will != nil && p.will.retain && p.version == mqtt5:
		return id, refuseWillRetain
	case p.will != nil && p.will.qos == 2 && !s.pubsub.qos2():
		return id, refuseWillQoS
	}
	if p.will != nil {
		if _, _, purpose := s.read(p.will.topic); purpose == forbidden {
			return id, refuseWillTopic
		}
	}
	id.free = true // it leaves no session: nothing is kept for it
	id.assigned, r = p.assign()
	id.client = p.clientID
	return id, r
}

func (s *site) verify(_ context.Context, p *connect, _ *identity) (Proof, *refusal) {
	if !s.about.Admit(p.user, p.password) {
		return Proof{}, refuseIdentity
	}
	return Proof{}, nil
}

// read returns the device that a topic names, and what the topic is for.
func (s *site) read(topic string) (tenant, device string, _ purpose) {
	return deviceTopic(s.b.cfg.InstanceID, topic)
}

func (s *site) offers(c *conn, p *packets.Properties) {
	p.MaximumQos, p.MaximumQosFlag = 1, !c.allowQoS2
	p.AssignedClientID = c.assigned
	p.RetainAvailableFlag, p.WildcardSubAvailableFlag, p.SharedSubAvailableFlag, p.SubIDAvailableFlag = true, true, true, true
}

func (s *site) begin(*conn) {}

func (s *site) ended(*conn, *cause) {}

func (s *site) countRefused(c *conn, bytes int, why *cause) {
	reason := ReasonProtocol
	switch why {
	case causeQoS2:
		reason = ReasonQoS2
	case causeTooLarge:
		reason = ingest.ReasonTooLarge
	}
	c.countRefused(bytes, reason, "the packet was not read: "+why.word)
}

func (s *site) changed(c *conn) { s.hands.changed(c) }

func (s *site) idle(*conn) {}

func (s *site) permit(_ *conn, filter string) byte {
	if s.hands != nil {
		if _, device := s.hands.device(filter); device != "" {
			return codeSuccess
		}
	}
	switch group, filter, _ := splitShare(filter); {
	case group != "":
		return codeSharedNotSupported
	case strings.ContainsAny(filter, "+#"):
		return codeWildNotSupported
	}
	return codeNotAuthorized
}

func (s *site) release(c *conn, id uint16) *cause { return c.acks.release(id) }

// publish hands a message to the intake. One on a topic that is none of a device of this instance is counted: an MQTT 5.0 client is told
// at QoS 1, and any other client gets its acknowledgement, because it would only send the message again.
func (s *site) publish(c *conn, header byte, body []byte) *cause {
	p, ends := decodePublish(c.version, header, body, c.topics.events)
	if ends != nil {
		return ends
	}
	c.stall.begin(time.Now())
	defer c.stall.over()
	var number uint64
	if p.qos > 0 {
		var again bool
		number, again, ends = c.acks.open(p.id, p.qos, p.dup)
		switch {
		case ends == causeLost:
			return ends
		case again && ends == nil:
			return nil
		case ends != nil:
			c.countRefused(len(p.payload), ReasonProtocol, "the packet breaks the protocol")
			return ends
		}
	}
	tenant, device, purpose := s.read(p.topic)
	if purpose == forbidden {
		s.stray(c, &p, tenant)
		if p.qos > 0 {
			v := verdict{}
			if c.version == mqtt5 {
				v = verdict{code: codeNotAuthorized, reason: "not a topic of a device of this instance"}
			}
			c.acks.complete(number, v)
		}
		return nil
	}
	a := s.arrival(tenant, device, p.payload, c.clientID)
	a.From, a.PacketID, a.Dup, a.HoldFor, a.CannotRefuse = c.from, p.id, c.mayRepeat(&p), -1, c.version < mqtt5 || p.qos == 0
	purpose.shape(a)
	if p.qos == 0 {
		c.b.deps.Intake.Accept(c.ctx, a, func(ingest.Answer) {})
		return nil
	}
	c.b.deps.Intake.Accept(c.ctx, a, func(answer ingest.Answer) { c.acks.complete(number, c.verdictOn(answer)) })
	return nil
}

func (s *site) arrival(tenant, device string, body []byte, client string) *ingest.Arrival {
	return &ingest.Arrival{Transport: ingest.TransportMQTT, Source: s.b.cfg.Source, Tenant: tenant, Topic: device, Body: body, ClientID: client}
}

// stray counts a publish on a topic that is not forwarded.
func (s *site) stray(c *conn, p *publish, tenant string) {
	reason := ingest.ReasonNotAuthorized
	if first, _, _ := strings.Cut(p.topic, "/"); first != s.b.cfg.InstanceID {
		reason = s.about.OtherInstance
	}
	s.b.refusals.Add(1)
	in := s.b.deps.Intake
	in.Refuse(in.Received(ingest.TransportMQTT, s.b.cfg.Source, tenant, len(p.payload)), reason)
}

// publishWill hands a will to the intake.
func (s *site) publishWill(w *lastWill) {
	tenant, device, purpose := s.read(w.topic)
	if purpose == forbidden {
		return // claims has refused such a will
	}
	a := s.arrival(tenant, device, w.payload, w.clientID)
	a.HoldFor, a.CannotRefuse = -1, true // the client is gone
	purpose.shape(a)
	ctx, cancel := context.WithTimeout(s.b.closing, s.b.cfg.ConnectTimeout)
	defer cancel()
	s.b.deps.Intake.Accept(ctx, a, func(answer ingest.Answer) {
		s.b.metrics.wills.WithLabelValues(outcomeWord(answer.Outcome)).Inc()
	})
}

func (s *site) sayWill(w *lastWill) { s.b.devices.wills.Go(func() { s.publishWill(w) }) }
