package broker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"weir/internal/transfers"
)

// reading is what one of the two readers makes of a packet.
type reading struct {
	sound   bool
	partial bool // the packet is not all there: nothing is known of it
	why     string
	kind    byte
	topic   string // and what follows, of a PUBLISH
	id      uint16
	qos     byte
	dup     bool
	payload []byte
}

func (r reading) String() string {
	return fmt.Sprintf("sound %v (%s) kind %d, topic %q, id %d, QoS %d, DUP %v, payload %x", r.sound, r.why, r.kind, r.topic, r.id, r.qos, r.dup, r.payload)
}

// ourLimit is the largest packet that is read: small, so that inputs are.
const ourLimit = 500

// ourReader is a connection that reads and does nothing: QoS 2 is allowed, so that it reads what the library reads.
func ourReader(version byte, stream []byte) *conn {
	cfg := Config{Settings: Settings{AllowQoS2: true}, MaxPacket: ourLimit}.withDefaults()
	b := &Broker{cfg: cfg, deps: Deps{Intake: &fakeIntake{}}, metrics: newMetrics(nil), large: transfers.New(1)}
	b.settings.Store(&cfg.Settings)
	d := newDevices(b)
	return &conn{b: b, service: d, pubsub: d.pubsub, version: version, allowQoS2: true, asked: 1, in: bufio.NewReaderSize(bytes.NewReader(stream), readBuffer), ctx: context.Background()}
}

// readOurs reads one packet as conn.next does.
func (c *conn) readOurs() reading {
	header, size, err := fixedHeader(c.in)
	if err != nil {
		return reading{partial: true}
	}
	r := reading{kind: header >> 4}
	refused := func(why *cause) reading { r.why = fmt.Sprintf("%s %#x", why.word, why.code); return r }
	if ends := c.judge(header, size); ends != nil {
		return refused(ends)
	}
	body, release, err := c.body(size)
	if err != nil {
		return reading{partial: true}
	}
	defer release()
	var ends *cause
	switch r.kind {
	case pktPublish:
		var p publish
		p, ends = decodePublish(c.version, header, body, theEvents)
		r.topic, r.id, r.qos, r.dup, r.payload = p.topic, p.id, p.qos, p.dup, bytes.Clone(p.payload)
	case pktDisconnect:
		if ends = c.goodbye(body); ends == causeGoodbye || ends == causeGoodbyeWill {
			ends = nil
		}
	default:
		if ends = checkForm(c.version, r.kind, body); ends == nil && (r.kind == pktSubscribe || r.kind == pktUnsubscribe) {
			var pk *packets.Packet
			if pk, ends = subscriptions(c.version, r.kind, body); ends == nil && len(pk.Properties.SubscriptionIdentifier) > 0 {
				ends = causeSubscriptionID
			}
		}
	}
	if ends != nil {
		return refused(ends)
	}
	r.sound = true
	return r
}

// readMochi reads one packet as the library does: its client reads and decodes, its server validates. A panic is a refusal.
func readMochi(version byte, in *bytes.Reader) (r reading) {
	defer func() {
		if p := recover(); p != nil {
			r.sound, r.partial, r.why = false, false, fmt.Sprint("panic: ", p)
		}
	}()
	header, err := in.ReadByte()
	if err != nil {
		return reading{partial: true}
	}
	pk := packets.Packet{ProtocolVersion: version}
	if err := pk.FixedHeader.Decode(header); err != nil {
		return reading{why: err.Error()}
	}
	pk.FixedHeader.Remaining, _, err = packets.DecodeLength(in)
	if err == io.EOF || err == nil && pk.FixedHeader.Remaining > in.Len() {
		return reading{partial: true}
	}
	if err != nil {
		return reading{why: err.Error()}
	}
	body := make([]byte, pk.FixedHeader.Remaining)
	_, _ = in.Read(body)
	if err := decodeAsMochi(&pk, body); err != nil {
		return reading{why: err.Error()}
	}
	r = reading{sound: true, kind: pk.FixedHeader.Type}
	if r.kind == pktPublish {
		r.topic, r.id, r.qos, r.dup, r.payload = pk.TopicName, pk.PacketID, pk.FixedHeader.Qos, pk.FixedHeader.Dup, pk.Payload
	}
	return r
}

func decodeAsMochi(pk *packets.Packet, body []byte) error {
	decode := map[byte]func([]byte) error{
		packets.Connect: pk.ConnectDecode, packets.Connack: pk.ConnackDecode, packets.Publish: pk.PublishDecode, packets.Puback: pk.PubackDecode,
		packets.Pubrec: pk.PubrecDecode, packets.Pubrel: pk.PubrelDecode, packets.Pubcomp: pk.PubcompDecode, packets.Subscribe: pk.SubscribeDecode,
		packets.Suback: pk.SubackDecode, packets.Unsubscribe: pk.UnsubscribeDecode, packets.Unsuback: pk.UnsubackDecode,
		packets.Disconnect: pk.DisconnectDecode, packets.Auth: pk.AuthDecode,
		packets.Pingreq: func([]byte) error { return nil }, packets.Pingresp: func([]byte) error { return nil },
	}[pk.FixedHeader.Type]
	if decode == nil {
		return fmt.Errorf("no packet of type %d", pk.FixedHeader.Type)
	}
	if err := decode(body); err != nil {
		return err
	}
	code := packets.CodeSuccess
	switch pk.FixedHeader.Type {
	case packets.Publish:
		code = pk.PublishValidate(0)
	case packets.Subscribe:
		code = pk.SubscribeValidate()
	case packets.Unsubscribe:
		code = pk.UnsubscribeValidate()
	}
	if code != packets.CodeSuccess {
		return code
	}
	return nil
}

// difference is where we refuse what the library takes, on purpose.
type difference struct {
	name   string // with the clause that the library lets pass
	is     func(*anatomy) bool
	seed   []byte
	seedIn byte
}

// differences are all of them.
var differences = []difference{
	{"a length in more bytes than needed, or than four [MQTT-1.5.5-1]", func(a *anatomy) bool { return a.longLength }, []byte{0xC0, 0x80, 0}, 4},
	{"a kind that no client sends after its CONNECT, or only where the server sends QoS 2 [MQTT-3.1.0-2, -4.13.1-1]",
		func(a *anatomy) bool {
			return !slices.Contains([]byte{pktPublish, pktPuback, pktPubrel, pktSubscribe, pktUnsubscribe, pktPingreq, pktDisconnect}, a.kind)
		}, pingresp, 5},
	{"bytes behind the end, or where there must be none [MQTT-4.13.1-1]", func(a *anatomy) bool { return a.behind }, []byte{0xC0, 1, 0}, 5},
	{"an identifier of 0 in an acknowledgement [MQTT-2.2.1-5]", func(a *anatomy) bool { return a.zeroID }, []byte{0x40, 2, 0, 0}, 4},
	{"a property given twice [section 2.2.2.2]", func(a *anatomy) bool { return a.twice }, publishWith(0, "a", 0, props(prop8(1, 1), prop8(1, 1)), ""), 5},
	{"properties that reach past their section, or the section past the packet [MQTT-2.2.2-1]", func(a *anatomy) bool { return a.reaches },
		publishWith(0, "a", 0, slices.Concat([]byte{1}, prop32(2, 1)), ""), 5},
	{"a response topic with a wildcard [MQTT-3.3.2-14]", func(a *anatomy) bool { return a.wildResponse }, publishWith(0, "a", 0, props(propText(8, "#")), ""), 5},
	{"a server reference from a client [section 3.14.2.2.5]", func(a *anatomy) bool { return a.kind == pktDisconnect && a.has[28] },
		packet(0xE0, slices.Concat([]byte{0}, props(propText(28, "x")))...), 5},
	{"a subscription identifier where none is available [section 3.2.2.3.12]", func(a *anatomy) bool { return a.kind == pktSubscribe && a.has[propSubscriptionID] },
		subscribeWith(1, props([]byte{propSubscriptionID, 1}), "a", 0), 5},
	{"reserved subscription options [MQTT-3.8.3-5]", func(a *anatomy) bool { return a.badOptions }, subscribeWith(1, []byte{0}, "a", 0x80), 5},
	{"no local on a shared subscription [MQTT-3.8.3-4]", func(a *anatomy) bool { return a.localShare }, subscribeWith(1, []byte{0}, "$share/g/a", 4), 5},
	{"a filter of no characters [MQTT-4.7.3-1]", func(a *anatomy) bool { return a.emptyFilter }, subscribePacket(4, 1, ""), 4},
	{"a packet that is larger than was told [MQTT-3.2.2-15]", func(a *anatomy) bool { return packetSize(a.size) > ourLimit },
		subscribePacket(4, 1, strings.Repeat("a", ourLimit)), 4},
}

// anatomy is what of a packet the differences look at, taken apart by a walk of its own.
type anatomy struct {
	kind, version byte
	size          int
	rest          []byte
	has           map[byte]bool

	longLength, behind, zeroID, twice, reaches, wildResponse, badOptions, localShare, emptyFilter bool
}

// dissect looks at a packet that the library has found sound.
func dissect(version byte, whole []byte) *anatomy {
	a := &anatomy{kind: whole[0] >> 4, version: version, rest: whole[1:], has: map[byte]bool{}}
	a.size = a.length()
	switch a.kind {
	case pktPublish:
		a.string()
		if whole[0]&6 != 0 {
			a.skip(2)
		}
		a.properties()
	case pktPuback, pktPubrel:
		a.zeroID = a.uint16() == 0
		if version == mqtt5 && len(a.rest) > 0 {
			a.skip(1)
			if len(a.rest) > 0 {
				a.properties()
			}
		}
		a.behind = len(a.rest) > 0
	case pktDisconnect:
		if version == mqtt5 && len(a.rest) > 0 {
			a.skip(1)
			if len(a.rest) > 0 {
				a.properties()
			}
		}
		a.behind = len(a.rest) > 0
	case pktPingreq:
		a.behind = len(a.rest) > 0
	case pktSubscribe, pktUnsubscribe:
		a.skip(2)
		a.properties()
		for len(a.rest) > 0 {
			filter := a.string()
			a.emptyFilter = a.emptyFilter || filter == ""
			if a.kind == pktSubscribe && len(a.rest) > 0 {
				o := a.rest[0]
				a.badOptions = a.badOptions || o&0xC0 != 0 || o&0x30 == 0x30
				a.localShare = a.localShare || o&4 != 0 && strings.HasPrefix(filter, "$share/")
				a.skip(1)
			}
		}
	}
	return a
}

func (a *anatomy) skip(n int) { a.rest = a.rest[min(n, len(a.rest)):] }

func (a *anatomy) uint16() int {
	if len(a.rest) < 2 {
		a.rest = nil
		return 0
	}
	n := binary.BigEndian.Uint16(a.rest)
	a.skip(2)
	return int(n)
}

func (a *anatomy) string() string {
	n := min(a.uint16(), len(a.rest))
	s := string(a.rest[:n])
	a.skip(n)
	return s
}

func (a *anatomy) length() int {
	n := 0
	for i := 0; len(a.rest) > 0; i++ {
		b := a.rest[0]
		a.skip(1)
		if i < 4 {
			n |= int(b&0x7f) << (7 * i)
		}
		if b < 0x80 {
			a.longLength = a.longLength || i > 0 && b == 0 || i > 3
			return n
		}
	}
	a.reaches = true
	return n
}

func (a *anatomy) properties() {
	if a.version != mqtt5 {
		return
	}
	n := a.length()
	a.reaches = a.reaches || n > len(a.rest)
	end := len(a.rest) - min(n, len(a.rest))
	for len(a.rest) > end {
		id := a.rest[0]
		a.skip(1)
		a.twice = a.twice || a.has[id] && id != propUser
		a.has[id] = true
		switch id {
		case 1:
			a.skip(1)
		case 2, propSessionExpiry:
			a.skip(4)
		case propTopicAlias:
			a.skip(2)
		case propSubscriptionID:
			a.length()
		case propUser:
			a.string()
			a.string()
		case 8:
			a.wildResponse = a.wildResponse || strings.ContainsAny(a.string(), "+#")
		default:
			a.string()
		}
	}
	a.reaches = a.reaches || len(a.rest) < end
}

// name is the difference that the packet shows, "" for none.
func (a *anatomy) name() string {
	for _, d := range differences {
		if d.is(a) {
			return d.name
		}
	}
	return ""
}

// compare reads a stream with both, packet by packet, up to the first that either refuses or that is not all there.
func compare(t testing.TB, version byte, stream []byte) (refused string) {
	t.Helper()
	ours, theirs := ourReader(version, stream), bytes.NewReader(stream)
	for {
		start := len(stream) - theirs.Len()
		us, them := ours.readOurs(), readMochi(version, theirs)
		whole := stream[start : len(stream)-theirs.Len()]
		switch {
		case us.sound && !them.sound:
			t.Fatalf("packet % x\nwe take it: %v\nthe library does not: %v", whole, us, them)
		case !us.sound && them.sound:
			name := dissect(version, whole).name()
			if name == "" {
				t.Fatalf("packet % x\nthe library takes it: %v\nwe do not: %v", whole, them, us)
			}
			return name
		case !us.sound:
			return ""
		case us.kind != them.kind || us.topic != them.topic || us.id != them.id || us.qos != them.qos || us.dup != them.dup || !bytes.Equal(us.payload, them.payload):
			t.Fatalf("packet % x\nwe:          %v\nthe library: %v", whole, us, them)
		case us.kind == pktDisconnect:
			return ""
		}
	}
}

// FuzzReaderAgainstMochi holds our reader of packets against the library's, on what comes after a CONNECT. They agree when
//
//   - a packet that we take, the library decodes and validates too, and a PUBLISH of the same topic, identifier, QoS, DUP and
//     payload, which is to say that its properties end at the same byte;
//   - a packet that the library takes, we take too, unless it shows one of the differences: there the library lets pass
//     what the standard forbids or what our CONNACK says is not to be had.
//
// Nothing is compared behind a packet that either refuses, because there the connection ends.
func FuzzReaderAgainstMochi(f *testing.F) {
	for _, d := range differences {
		f.Add(d.seedIn == mqtt5, d.seed)
	}
	for _, tc := range hostilePackets {
		f.Add(tc.version == mqtt5, tc.packet)
	}
	for _, v := range bothVersions {
		f.Add(v == mqtt5, everyPacket(v))
	}
	f.Add(true, []byte{0xE0, 2, 0, 0x80})
	f.Add(true, []byte{0xE0, 2, 0, 0x30}) // whose properties the library does not read
	f.Add(true, publishWith(qos1|dup, "t", 9, props(prop8(1, 1), prop32(2, 60), propText(3, "ct"), propText(8, "r"), propText(9, "c"), propText(propUser, "k", "v"), propText(propUser, "k", "v")), "p"))
	f.Fuzz(func(t *testing.T, new bool, stream []byte) {
		version := byte(mqtt311)
		if new {
			version = mqtt5
		}
		compare(t, version, stream)
	})
}

// everyPacket is each packet that a client sends after its CONNECT.
func everyPacket(v byte) []byte {
	return slices.Concat(publishPacket(v, 0, theEvents, 0, "0"), publishPacket(v, qos1, theEvents, 1, "1"), publishPacket(v, qos2|dup|1, theEvents, 2, "2"),
		[]byte{0x62, 2, 0, 2}, puback(5), subscribePacket(v, 3, theCommands, "#"), unsubscribePacket(v, 4, theCommands), pingreq, goodbye)
}

// Each difference is one: the library takes its seed, and we do not. One that goes with an upgrade is to be struck off.
func TestDifferencesFromMochiAreThere(t *testing.T) {
	t.Parallel()
	for _, d := range differences {
		if got := compare(t, d.seedIn, d.seed); got != d.name {
			t.Errorf("%s: its seed shows %q", d.name, got)
		}
	}
	for _, v := range bothVersions {
		if got := compare(t, v, everyPacket(v)); got != "" {
			t.Errorf("sound packets show %q", got)
		}
	}
}
