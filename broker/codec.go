package broker

import (
	"bytes"
	"strings"

	"github.com/mochi-mqtt/server/v2/packets"
)

// The mochi library is the codec of the packets that manage a session: it encodes CONNACK, SUBACK and UNSUBACK, and decodes
// SUBSCRIBE and UNSUBSCRIBE once checkForm has found them well-formed. Such packets are rare, so its cost does not count.
// The rest is ours: CONNECT, which anyone may send, and PUBLISH with its acknowledgements, which are the traffic. There the
// library's decoders serve as the oracle of a fuzz test (FuzzReaderAgainstMochi).

// encoded returns the packet as bytes. kind selects the encoder.
func encoded(kind byte, pk *packets.Packet) []byte {
	pk.FixedHeader.Type = kind
	var b bytes.Buffer
	encode := pk.ConnackEncode
	switch kind {
	case pktSuback:
		encode = pk.SubackEncode
	case pktUnsuback:
		encode = pk.UnsubackEncode
	}
	_ = encode(&b) // these three have no error
	return b.Bytes()
}

// subscriptions decodes a SUBSCRIBE or an UNSUBSCRIBE. The body must have passed checkForm: the library reads past the end
// of some packets that would not.
func subscriptions(version, kind byte, body []byte) (*packets.Packet, *cause) {
	pk := &packets.Packet{ProtocolVersion: version, FixedHeader: packets.FixedHeader{Type: kind, Remaining: len(body)}}
	decode := pk.SubscribeDecode
	if kind == pktUnsubscribe {
		decode = pk.UnsubscribeDecode
	}
	if decode(body) != nil {
		return nil, causeMalformed
	}
	for i := range pk.Filters {
		pk.Filters[i].Filter = strings.Clone(pk.Filters[i].Filter) // it points into the read buffer
	}
	return pk, nil
}
