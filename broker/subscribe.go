package broker

import (
	"strings"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// subscribe handles a SUBSCRIBE: it answers with a code for each filter and then sends what is retained.
func (c *conn) subscribe(body []byte) *cause {
	pk, ends := subscriptions(c.version, pktSubscribe, body)
	if ends != nil {
		return ends
	}
	if len(pk.Properties.SubscriptionIdentifier) > 0 && !c.pubsub.limits.Identifiers {
		return causeSubscriptionID // the CONNACK said so, section 3.2.2.3.12
	}
	c.answer(nil) // from here on the outbox has space for an answer
	c.pubsub.mu.Lock()
	at := len(c.out)
	codes := make([]byte, 0, len(pk.Filters))
	for i := range pk.Filters {
		code := c.pubsub.subscribe(c, &pk.Filters[i])
		if code >= codeUnspecified && c.version < mqtt5 {
			code = codeUnspecified
		}
		codes = append(codes, code)
	}
	suback := encoded(pktSuback, &packets.Packet{ProtocolVersion: c.version, PacketID: pk.PacketID, ReasonCodes: codes})
	c.pubsub.gauge()
	if c.maxPacket > 0 && len(suback) > int(c.maxPacket) { // MQTT-3.1.2-24
		c.pubsub.mu.Unlock()
		return causeAnswerTooLarge
	}
	c.out = append(c.out[:at], suback...) // before what is retained: that is in the queue, after every answer
	c.flush()
	return nil
}

// subscribe is one filter of a SUBSCRIBE; it returns the code for the SUBACK. It needs the lock.
func (p *pubsub) subscribe(c *conn, asked *packets.Subscription) byte {
	s := c.session
	group, plain, sound := splitShare(asked.Filter)
	if !sound || !soundFilter(plain) {
		return codeTopicFilterInvalid
	}
	if code := c.service.permit(c, asked.Filter); code != codeSuccess {
		return code
	}
	old := s.subs[asked.Filter]
	if old == nil && (len(s.subs) >= p.limits.MaxSubscriptions || p.tree.nodes+levelsOf(plain) > p.limits.MaxNodes) || levelsOf(plain) > maxLevels {
		p.metrics.refused.WithLabelValues(openSubsFull).Inc()
		return codeQuotaExceeded
	}
	var retained []*message
	if group == "" && (asked.RetainHandling == 0 || asked.RetainHandling == 1 && old == nil) { // MQTT-3.3.1-9 to -11
		now := time.Now()
		p.tree.matchRetained(plain, func(m *message) {
			if !m.expired(now) {
				retained = append(retained, m)
			}
		})
	}
	if !p.hasRoomFor(s, retained) {
		p.metrics.refused.WithLabelValues(openQueueFull).Inc()
		return codeQuotaExceeded
	}
	sub := &subscription{session: s, group: group, qos: min(asked.Qos, p.limits.MaxQoS), noLocal: c.bridge || asked.NoLocal,
		asPublished: c.bridge || asked.RetainAsPublished, id: uint32(asked.Identifier)}
	if old == nil {
		p.subscriptions++
	}
	if s.subs == nil {
		s.subs = map[string]*subscription{}
	}
	s.subs[asked.Filter] = sub
	p.tree.subscribe(plain, sub)
	p.service.changed(c)
	for _, m := range retained {
		d := sub.delivery(m)
		d.retain = true // MQTT-3.3.1-8
		s.queue = append(s.queue, d)
		p.account(s, d.message, 1)
	}
	return sub.qos
}

// hasRoomFor reports whether a client's queue takes all of these: else the subscription is refused, for it would begin with
// a gap.
func (p *pubsub) hasRoomFor(s *session, all []*message) bool {
	var bytes int64
	for _, m := range all {
		bytes += m.size()
	}
	return len(all) == 0 || len(s.queue)+len(all) <= p.limits.MaxQueued && s.bytes+bytes <= p.limits.MaxQueuedBytes && p.queuedBytes+bytes <= allQueues*p.limits.MaxQueuedBytes
}

// unsubscribe handles an UNSUBSCRIBE. What its subscriptions have put into the queue is still delivered (section 3.10.4).
func (c *conn) unsubscribe(body []byte) *cause {
	pk, ends := subscriptions(c.version, pktUnsubscribe, body)
	if ends != nil {
		return ends
	}
	codes := make([]byte, 0, len(pk.Filters))
	c.pubsub.mu.Lock()
	for _, f := range pk.Filters {
		code := byte(codeNoSubscription)
		if sub := c.session.subs[f.Filter]; sub != nil {
			delete(c.session.subs, f.Filter)
			c.pubsub.tree.unsubscribe(sub)
			c.pubsub.subscriptions--
			c.service.changed(c)
			code = codeSuccess
		}
		codes = append(codes, code)
	}
	c.pubsub.gauge()
	c.pubsub.mu.Unlock()
	c.answer(encoded(pktUnsuback, &packets.Packet{ProtocolVersion: c.version, PacketID: pk.PacketID, ReasonCodes: codes}))
	return nil
}

// splitShare takes the group off the filter of a shared subscription. ok is false for one of bad form.
func splitShare(filter string) (group, rest string, ok bool) {
	after, shared := strings.CutPrefix(filter, sharePrefix)
	if !shared {
		return "", filter, true
	}
	group, rest, ok = strings.Cut(after, "/")
	return group, rest, ok && group != "" && rest != "" && !strings.ContainsAny(group, "+#") // MQTT-4.8.2-1, -2
}

// soundFilter reports whether the wildcards of a filter stand where they may (section 4.7.1).
func soundFilter(filter string) bool {
	for level := range strings.SplitSeq(filter, "/") {
		if len(level) > 1 && strings.ContainsAny(level, "+#") {
			return false
		}
	}
	at := strings.IndexByte(filter, '#')
	return at < 0 || at == len(filter)-1
}
