package broker

import (
	"context"
	"errors"
	"math"
	"regexp"
	"strings"

	"github.com/mochi-mqtt/server/v2/packets"
)

// OpenConfig is about the open topics: general publish and subscribe on a listener of its own (Listener.Open), for bridges,
// nodes of a site and conformance suites. They are apart from the devices: nothing published there is stored, and no topic of
// a device can be published there. Zero values mean the defaults named here.
type OpenConfig struct {
	OpenSettings
	MaxConnections   int   // 1,000; beyond it a CONNECT is refused as busy
	MaxSessions      int   // 1,000 sessions are kept for clients that are away; those that left first go
	MaxSubscriptions int   // 1,000 of one client; beyond it a SUBSCRIBE is refused with 0x97
	MaxNodes         int   // 200,000 levels of all filters and retained names together; beyond it 0x97
	MaxRetained      int   // 10,000 retained messages; beyond it a publish that would be retained is refused with 0x97
	MaxRetainedBytes int64 // 8 MiB of them, likewise
	MaxQueued        int   // 10,000 messages wait for one client; beyond it what comes is dropped for that client
	MaxQueuedBytes   int64 // 16 MiB wait for one client, likewise; four times that for all of them together
	MaxInflight      int   // 64 exchanges at QoS 1 and 2 with one client, or fewer if its receive maximum says so
}

func (c OpenConfig) withDefaults() OpenConfig {
	for v, d := range map[*int]int{&c.MaxConnections: 1000, &c.MaxSessions: 1000, &c.MaxSubscriptions: 1000, &c.MaxNodes: 200_000,
		&c.MaxRetained: 10_000, &c.MaxQueued: 10_000, &c.MaxInflight: 64} {
		if *v <= 0 {
			*v = d
		}
	}
	for v, d := range map[*int64]int64{&c.MaxRetainedBytes: 8 << 20, &c.MaxQueuedBytes: 16 << 20} {
		if *v <= 0 {
			*v = d
		}
	}
	return c
}

const (
	openAliases = 16  // topic aliases of one connection, in each direction
	maxLevels   = 128 // of a topic name or filter
	maxOpenID   = 256 // bytes of a client id
	maxOpenQoS2 = 4096
	allQueues   = 4 // times MaxQueuedBytes are what all queues may hold
)

// Reasons for which an open topic refuses or drops.
const (
	openDeviceTopic  = "device-topic"
	openReserved     = "reserved-topic"
	openRetainedFull = "retained-full"
	openSubsFull     = "subscriptions-full"
	openQueueFull    = "queue-full"
	openExpired      = "expired"
	openRevoked      = "will-revoked"
	openStopping     = "will-at-the-stop"
	openTooLarge     = "too-large-for-the-client"
)

// openTopics is the service for open topics: what a client publishes goes to the clients that subscribed to it.
type openTopics struct {
	b       *Broker
	pubsub  *pubsub
	metrics *pubsubMetrics
	cfg     OpenConfig
	devices *regexp.Regexp // topics of devices
}

func newOpenTopics(b *Broker, cfg OpenConfig) *openTopics {
	const one = `/[^/]+/`
	cfg = cfg.withDefaults()
	o := &openTopics{b: b, cfg: cfg, metrics: newPubsubMetrics(b.deps.Registerer),
		devices: regexp.MustCompile(`^` + regexp.QuoteMeta(b.cfg.InstanceID) + one +
			`(devices/[^/]+/(events|telemetry)|command-responses/[^/]+|device-reports/[^/]+|device-(commands|attributes)/[^/]+)$`)}
	o.pubsub = newPubsub(o, limits{OpenConfig: cfg, MaxConnections: func() int { return cfg.MaxConnections }, MaxQoS: 2, MaxAliases: openAliases,
		Identifiers: true, KeepsMessages: true, AllowQoS2: func() bool { return true }}, o.metrics)
	return o
}

var (
	refuseOpenTopic = &refusal{code: codeNotAuthorized, v3: connackNotAuthorized, why: "will-topic"}
	causeOpenDevice = &cause{word: "forbidden-publish", code: codeNotAuthorized,
		text: "topics of devices are served, and readings stored, by the broker for devices only (listeners.mqtt, mqtts, mqtt_ws, mqtt_wss)"}
	causeOpenQuota = &cause{word: "quota-exceeded", code: codeQuotaExceeded, text: "too many messages are retained"}
)

// claims accepts every client id, and chooses one for a client that has none.
func (o *openTopics) claims(p *connect) (id identity, r *refusal) {
	switch {
	case len(p.clientID) > maxOpenID:
		return id, refuseClientID
	case p.will != nil && !o.soundWill(p.will):
		return id, refuseOpenTopic
	}
	id.assigned, r = p.assign()
	id.client = p.clientID
	return id, r
}

func (o *openTopics) soundWill(w *will) bool {
	return w.topic != "" && !strings.ContainsAny(w.topic, "+#") && levelsOf(w.topic) <= maxLevels && o.forbidden(w.topic) == ""
}

// verify verifies a credential of the tenant.
func (o *openTopics) verify(ctx context.Context, p *connect, _ *identity) (Proof, *refusal) {
	if o.cfg.OpenTopicsAnonymous || p.local {
		return Proof{}, nil
	}
	tenant, credential, _ := strings.Cut(p.user, ":")
	claim := Claim{Tenant: tenant, Type: AccessToken, ID: credential, From: p.from}
	if p.password != "" {
		claim.Type, claim.Secret = MQTTBasic, p.password
	}
	if o.cfg.OpenTopicsTenant == "" || tenant != o.cfg.OpenTopicsTenant || credential == "" {
		return Proof{}, refuseIdentity
	}
	proof, err := o.b.deps.Verifier.Verify(ctx, claim)
	if errors.Is(err, ErrBusy) {
		return Proof{}, refuseBusy
	}
	if err != nil || proof.Tenant != tenant {
		return Proof{}, refuseIdentity
	}
	return proof, nil
}

// offers is all of MQTT, within bounds.
func (o *openTopics) offers(c *conn, p *packets.Properties) {
	p.TopicAliasMaximum, p.AssignedClientID = openAliases, c.assigned
}

func (o *openTopics) begin(c *conn) {
	if c.proofEnds != 0 {
		c.expireAfter(c.proofLeft(math.MaxInt64))
	}
}

func (o *openTopics) ended(*conn, *cause) {}

func (o *openTopics) countRefused(*conn, int, *cause) {}

func (o *openTopics) changed(*conn) {}

func (o *openTopics) idle(*conn) {}

func (o *openTopics) permit(*conn, string) byte { return codeSuccess }

// bridgeStates is where bridges publish whether they are connected; of the reserved topics these are open to clients.
const bridgeStates = "$SYS/broker/connection/"

// forbidden returns why no client may publish on a topic, "" when every client may.
func (o *openTopics) forbidden(topic string) string {
	switch {
	case o.devices.MatchString(topic):
		return openDeviceTopic
	case strings.HasPrefix(topic, "$SYS/") && !strings.HasPrefix(topic, bridgeStates), strings.HasPrefix(topic, sharePrefix):
		return openReserved
	}
	return ""
}

// publishWill publishes a will. A refused will is counted: no client remains to be answered.
func (o *openTopics) publishWill(w *lastWill) {
	o.pubsub.mu.Lock()
	defer o.pubsub.mu.Unlock()
	o.sayWill(w)
	o.pubsub.gauge()
}

// sayWill publishes a will, or counts one that is withheld: a client that lost the right to publish loses its will too, and
// when Weir stops no client is left to read it.
func (o *openTopics) sayWill(w *lastWill) {
	switch {
	case w.revoked:
		o.metrics.refused.WithLabelValues(openRevoked).Inc()
	case o.pubsub.closing:
		o.metrics.refused.WithLabelValues(openStopping).Inc()
	default:
		o.metrics.wills.Inc()
		o.pubsub.publishLocked(w.message())
	}
}
