package broker

import (
	"bytes"
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

// OnACLCheck allows a device to read its own commands. No publish of a client ever reaches mochi, so none is allowed.
func (h *hook) OnACLCheck(cl *mqtt.Client, topic string, write bool) bool {
	s := sessionOf(cl)
	return s != nil && !write && topic == s.topics.commands
}

// OnSessionEstablished is called when the CONNACK is written and before the first packet is read.
func (h *hook) OnSessionEstablished(cl *mqtt.Client, _ packets.Packet) {
	s := sessionOf(cl)
	if s == nil {
		return
	}
	cl.State.Inflight.ResetSendQuota(0) // its quota leaks; commands go one by one instead
	s.established, s.since = true, time.Now()
	s.expire = time.AfterFunc(s.lifetime(), func() { s.end(causeExpired) })
	if k := s.resumed; k != nil && k.subscribed > 0 {
		sub := packets.Subscription{Filter: s.topics.commands, Qos: byte(k.subscribed - 1)}
		h.broker.server.Topics.Subscribe(cl.ID, sub)
		cl.State.Subscriptions.Add(sub.Filter, sub)
		s.subscribed.Store(k.subscribed)
	}
	h.broker.metrics.connects.Inc()
	h.broker.log.Debug("an MQTT session began", "client", s.clientID, "version", s.version, "resumed", s.resumed != nil)
	s.resumed = nil
	s.stall.Reset(s.silence())
	defer s.stall.Stop()
	h.broker.keeper.arrived(s)
}

// lifetime is how long the session may last: at most the longest session, and not longer than its credential.
func (s *session) lifetime() time.Duration {
	d := s.b.cfg.MaxSession
	if s.proofEnds != 0 {
		d = min(d, s.proofEnds.Time().Sub(s.b.deps.Now()))
	}
	return max(d, 0)
}

// OnPacketRead hides the packet identifier of a SUBSCRIBE or UNSUBSCRIBE. mochi holds the identifiers of both directions
// in one table and would call it in use when a command of ours happens to be under way with the same number.
func (h *hook) OnPacketRead(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	s := sessionOf(cl)
	if s != nil && (pk.FixedHeader.Type == packets.Subscribe || pk.FixedHeader.Type == packets.Unsubscribe) {
		s.packetID, pk.PacketID, pk.FixedHeader.Qos = pk.PacketID, 0, 0
	}
	return pk, nil
}

// OnPacketEncode completes the packets that mochi leaves incomplete. It is called for the acknowledgements by the
// goroutine that reads the connection, so that packetID is the right one.
func (h *hook) OnPacketEncode(cl *mqtt.Client, pk packets.Packet) packets.Packet {
	s := sessionOf(cl)
	if s == nil {
		return pk
	}
	switch pk.FixedHeader.Type {
	case packets.Connack:
		pk.SessionPresent = s.resumed != nil
		s.connackProperties(&pk.Properties)
	case packets.Suback, packets.Unsuback:
		pk.PacketID = s.packetID
		pk.Properties = packets.Properties{} // it would echo the client's own
	}
	return pk
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

// OnSubscribed notes the subscription to the device's commands: it outlives the connection, and commands ask for it.
func (h *hook) OnSubscribed(cl *mqtt.Client, pk packets.Packet, codes []byte) {
	s := sessionOf(cl)
	if s == nil {
		return
	}
	for i, f := range pk.Filters {
		if f.Filter == s.topics.commands && i < len(codes) && codes[i] < codeUnspecified {
			s.subscribed.Store(int32(codes[i]) + 1)
		}
	}
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
