package broker

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"weir/model"
	"weir/provision"
)

// Provisioner gives devices their credentials.
type Provisioner interface {
	// Throttled counts a request of an address and returns in how many seconds it may be repeated, 0 when it is admitted.
	Throttled(from netip.Addr) (retryAfter int)
	// Admit checks a provision key and its secret. Its error is a *provision.Reply.
	Admit(ctx context.Context, key, secret string) (*provision.Grant, error)
	// Enroll answers a body.
	Enroll(ctx context.Context, g *provision.Grant, body []byte) *provision.Reply
}

// Bounds of provisioning connections.
const (
	maxProvisioning  = 100
	provisioningTime = 60 * time.Second
	provisioningSubs = 1
)

// provisioning is the service for devices that have no credential yet: a connection publishes what it asks and gets the answer on its
// own topic, and nothing else. Its connections are apart from those of the devices, and so are those of two provision keys with the
// same client id: no answer reaches another connection than the one that asked.
type provisioning struct {
	b      *Broker
	pubsub *pubsub
}

func newProvisioning(b *Broker) *provisioning {
	s := &provisioning{b: b}
	m := newPubsubMetrics(nil)
	m.connections = b.metrics.provisioning
	s.pubsub = newPubsub(s, limits{
		OpenConfig:     OpenConfig{MaxSubscriptions: provisioningSubs, MaxNodes: math.MaxInt, MaxQueued: maxCommands, MaxQueuedBytes: math.MaxInt64 / allQueues, MaxInflight: maxCommands},
		MaxConnections: func() int { return maxProvisioning }, MaxQoS: 1, AllowQoS2: func() bool { return false },
	}, m)
	return s
}

// provisions reports whether a CONNECT is of a provisioning connection: its user name has no tenant, only a key.
func (p *connect) provisions() bool { return len(p.user) > 1 && p.user[0] == ':' }

// claims counts the address before anything of the CONNECT is looked at.
func (s *provisioning) claims(p *connect) (identity, *refusal) {
	if s.b.deps.Provision.Throttled(p.from) > 0 {
		return identity{}, refuseBusy
	}
	if r := p.forDevice(); r != nil {
		return identity{}, r
	}
	if !model.ValidToken(p.clientID) {
		return identity{}, refuseIdentity
	}
	if p.will != nil {
		return identity{}, refuseWillTopic
	}
	return identity{free: true}, nil
}

// verify checks key and secret.
func (s *provisioning) verify(ctx context.Context, p *connect, id *identity) (Proof, *refusal) {
	key := strings.TrimPrefix(p.user, ":")
	g, err := s.b.deps.Provision.Admit(ctx, key, p.password)
	if err != nil {
		if r, ok := errors.AsType[*provision.Reply](err); ok && r.Status == http.StatusForbidden {
			return Proof{}, refuseIdentity
		}
		return Proof{}, refuseBusy
	}
	topic := s.b.cfg.InstanceID + "/provision"
	id.topics = topics{events: topic, commands: topic + "/" + p.clientID}
	id.client, id.admitted = key+"/"+p.clientID, g
	return Proof{}, nil
}

func (s *provisioning) offers(_ *conn, p *packets.Properties) {
	p.MaximumQos, p.MaximumQosFlag = 1, true
	p.RetainAvailableFlag, p.WildcardSubAvailableFlag, p.SharedSubAvailableFlag, p.SubIDAvailableFlag = true, true, true, true
}

func (s *provisioning) begin(c *conn) { c.expireAfter(provisioningTime) }

func (s *provisioning) ended(*conn, *cause) {}

func (s *provisioning) countRefused(c *conn, _ int, _ *cause) { c.b.refusals.Add(1) }

func (s *provisioning) changed(*conn) {}

func (s *provisioning) idle(*conn) {}

// permit grants the topic of the answer. Any other filter ends the connection.
func (s *provisioning) permit(c *conn, filter string) byte {
	if filter == c.topics.commands {
		return codeSuccess
	}
	c.end(causeForbiddenFilter)
	return codeNotAuthorized
}

func (s *provisioning) release(c *conn, id uint16) *cause { return c.acks.release(id) }

func (s *provisioning) publishWill(*lastWill) {}

func (s *provisioning) sayWill(*lastWill) {}

// publish has the request answered: the PUBACK says that it was read, the answer follows on its topic. A publish to another topic
// ends the connection.
func (s *provisioning) publish(c *conn, header byte, body []byte) *cause {
	p, ends := decodePublish(c.version, header, body, c.topics.events)
	if ends != nil {
		return ends
	}
	if p.topic != c.topics.events {
		return causeForbidden
	}
	c.stall.begin(time.Now())
	defer c.stall.over()
	var number uint64
	if p.qos > 0 {
		var again bool
		if number, again, ends = c.acks.open(p.id, p.qos, p.dup); ends != nil || again {
			return ends
		}
	}
	reply := s.b.deps.Provision.Enroll(c.ctx, c.admitted, p.payload)
	if p.qos > 0 {
		c.acks.complete(number, verdict{})
	}
	s.answer(c, reply.Body())
	return nil
}

// answer sends an answer to the connection that asked, if it has subscribed to it.
func (s *provisioning) answer(c *conn, body []byte) {
	s.pubsub.mu.Lock()
	defer s.pubsub.mu.Unlock()
	if sub := c.session.subs[c.topics.commands]; sub != nil {
		s.pubsub.enqueue(c.session, sub.delivery(&message{topic: c.topics.commands, payload: body, qos: 1}))
	}
}
