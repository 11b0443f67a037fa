package broker

import (
	"bytes"
	"strings"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

// hook is the one hook that mochi has: hooks are OR-ed there, a second one could only allow more. What it decides is
// little, because the guard has judged every packet before.
type hook struct {
	mqtt.HookBase
	broker *Broker
}

// ID names the hook.
func (h *hook) ID() string { return "weir" }

// Provides lists what mochi shall ask.
func (h *hook) Provides(b byte) bool {
	switch b {
	case mqtt.OnConnectAuthenticate, mqtt.OnACLCheck, mqtt.OnSessionEstablished, mqtt.OnPacketRead, mqtt.OnPacketEncode,
		mqtt.OnSubscribed, mqtt.OnUnsubscribed:
		return true
	case mqtt.OnPublish:
		return h.broker.cfg.HookPath
	}
	return false
}

// sessionOf returns the session behind mochi's client, nil for one that did not come through the door.
func sessionOf(cl *mqtt.Client) *session {
	if g, ok := cl.Net.Conn.(*guard); ok {
		return g.s
	}
	return nil
}

// OnConnectAuthenticate lets in who came through the door, which has verified it.
func (h *hook) OnConnectAuthenticate(cl *mqtt.Client, _ packets.Packet) bool {
	return sessionOf(cl) != nil
}

// OnACLCheck allows a device to read its own commands. Of writing it allows the one topic that every publish is shown under
// on the hook path; what the device may write is judged behind it, for an answer of mochi's would overtake others.
func (h *hook) OnACLCheck(cl *mqtt.Client, topic string, write bool) bool {
	s := sessionOf(cl)
	if s == nil {
		return false
	}
	if write {
		return h.broker.cfg.HookPath && topic == s.topics.events
	}
	return topic == s.topics.commands
}

// OnSessionEstablished is called before mochi reads its first packet.
func (h *hook) OnSessionEstablished(cl *mqtt.Client, _ packets.Packet) {
	s := sessionOf(cl)
	if s == nil {
		return
	}
	cl.State.Inflight.ResetSendQuota(0) // its quota leaks; commands go one by one instead
	if k := s.resumed; k != nil && k.subscribed > 0 {
		sub := packets.Subscription{Filter: s.topics.commands, Qos: byte(k.subscribed - 1)}
		h.broker.server.Topics.Subscribe(cl.ID, sub)
		cl.State.Subscriptions.Add(sub.Filter, sub)
		s.subscribed.Store(k.subscribed)
	}
	if !s.established {
		s.begin()
	}
}

// OnPacketRead hides what mochi would act upon. It holds the packet identifiers of both directions in one table: a
// SUBSCRIBE would be refused, and a publish would delete a command, when a command of ours happens to be under way with the
// same number. It would answer QoS 1 itself, and drop publishes on some topics without a word. So it is shown a publish at
// QoS 0 on the device's own topic, whatever came.
func (h *hook) OnPacketRead(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	s := sessionOf(cl)
	if s == nil {
		return pk, nil
	}
	switch pk.FixedHeader.Type {
	case packets.Subscribe, packets.Unsubscribe:
		s.packetID, pk.PacketID, pk.FixedHeader.Qos = pk.PacketID, 0, 0
	case packets.Publish:
		s.handled = publish{topic: pk.TopicName, id: pk.PacketID, qos: pk.FixedHeader.Qos, dup: pk.FixedHeader.Dup}
		pk.PacketID, pk.FixedHeader.Qos, pk.FixedHeader.Dup, pk.FixedHeader.Retain = 0, 0, false, false
		pk.TopicName = s.topics.events
	}
	return pk, nil
}

// OnPublish takes a publish where the fast path takes it. That of a device is always refused to mochi, which then neither
// answers nor delivers it: the gate's answer comes later, through the same queue. What is no device's goes down to one.
func (h *hook) OnPublish(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	s := sessionOf(cl)
	if s == nil {
		return pk, nil
	}
	p := s.handled
	p.payload, s.handled = pk.Payload, publish{}
	if ends := s.publish(p); ends != nil {
		_ = s.finalPacket(ends) // the session is over when it returns, and the guard reads no further
	}
	return pk, packets.ErrRejectPacket
}

// OnPacketEncode completes the packets that mochi leaves incomplete. It is called for the acknowledgements by the
// goroutine that reads the connection, so that packetID is the right one.
func (h *hook) OnPacketEncode(cl *mqtt.Client, pk packets.Packet) packets.Packet {
	s := sessionOf(cl)
	if s == nil {
		return pk
	}
	if pk.FixedHeader.Type == packets.Suback || pk.FixedHeader.Type == packets.Unsuback {
		pk.PacketID = s.packetID
		pk.Properties = packets.Properties{} // it would echo the client's own
	}
	return pk
}

// welcome writes the CONNACK.
func (s *session) welcome() error {
	pk := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Connack}, ProtocolVersion: s.version, SessionPresent: s.resumed != nil}
	s.connackProperties(&pk.Properties)
	var b bytes.Buffer
	if err := pk.ConnackEncode(&b); err != nil {
		return err
	}
	return s.write(b.Bytes())
}

// connackProperties says what the server offers, MQTT 5.0 section 3.2.2.3.
func (s *session) connackProperties(p *packets.Properties) {
	*p = packets.Properties{
		ReceiveMaximum: uint16(s.b.cfg.ReceiveMaximum), MaximumPacketSize: uint32(s.b.cfg.MaxPacket),
		ServerKeepAlive: uint16(s.keepAlive / time.Second), ServerKeepAliveFlag: true,
		MaximumQos: 1, MaximumQosFlag: !s.allowQoS2, RetainAvailableFlag: true,
		WildcardSubAvailableFlag: true, SharedSubAvailableFlag: true, SubIDAvailableFlag: true,
	}
	if s.expiry != s.asked {
		p.SessionExpiryInterval, p.SessionExpiryIntervalFlag = s.expiry, true
	}
}

// OnSubscribed notes the subscription to the device's commands: it outlives the connection, and commands ask for it. The
// SUBACK is made of codes: what is refused there says why. A wildcard or a shared subscription could also end the connection
// (sections 3.2.2.3.11 and 13); only what is asked for is refused.
func (h *hook) OnSubscribed(cl *mqtt.Client, pk packets.Packet, codes []byte) {
	s := sessionOf(cl)
	if s == nil {
		return
	}
	for i, f := range pk.Filters[:min(len(pk.Filters), len(codes))] {
		switch {
		case codes[i] < codeUnspecified:
			if f.Filter == s.topics.commands {
				s.subscribed.Store(int32(codes[i]) + 1)
			}
		case s.version == mqtt5:
			codes[i] = filterCode(f.Filter)
		}
	}
}

// filterCode is why a topic filter is refused, section 3.9.3.
func filterCode(filter string) byte {
	group, filter, ok := splitShare(filter)
	switch {
	case !ok || !soundFilter(filter):
		return codeTopicFilterInvalid
	case group != "":
		return codeSharedNotSupported
	case strings.ContainsAny(filter, "+#"):
		return codeWildNotSupported
	}
	return codeNotAuthorized
}

// OnUnsubscribed notes that the device does not want its commands any more.
func (h *hook) OnUnsubscribed(cl *mqtt.Client, pk packets.Packet) {
	s := sessionOf(cl)
	if s == nil || s.cause.Load() != nil { // mochi also unsubscribes who leaves
		return
	}
	for _, f := range pk.Filters {
		if f.Filter == s.topics.commands {
			s.subscribed.Store(0)
		}
	}
}

// connectForMochi is the CONNECT in our own words.
func (s *session) connectForMochi() ([]byte, error) {
	pk := packets.Packet{
		FixedHeader:     packets.FixedHeader{Type: packets.Connect},
		ProtocolVersion: s.version,
		Connect: packets.ConnectParams{ProtocolName: []byte("MQTT"), ClientIdentifier: s.clientID, Clean: true,
			Keepalive: uint16(s.keepAlive / time.Second)},
	}
	if s.version == mqtt5 {
		pk.Properties.MaximumPacketSize = s.maxPacket
		if !s.problemInfo {
			pk.Properties.RequestProblemInfoFlag = true
		}
	}
	var b bytes.Buffer
	if err := pk.ConnectEncode(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
