package edge

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"weir/ingest"
	"weir/model"
)

// kind is what a message is: it decides the topic. The numbers are frozen.
type kind uint8

const (
	kindEvents    kind = 0
	kindTelemetry kind = 1
	kindResponses kind = 2
	kindReports   kind = 3
)

// record is a message in the log of an edge: as it came, with where it goes and when it came.
type record struct {
	control *model.Control // of a change of a platform's registry, until it is looked at

	kind      kind
	transport string
	tenant    string
	device    string
	wall      model.Nanos // receive time; doubtful: the newest one known, plus the time since the start
	doubtful  bool        // the time of day was not known: boot and mono give it once it is
	boot      uint64
	mono      int64  // nanoseconds since the start boot
	sender    uint64 // hash of the client id and the packet identifier; 0: the sender waits for no answer
	payload   []byte
}

// Format 1 of a record:
//
//	1   format: 1
//	1   bits 0-2 kind, bit 3 doubtful, bit 4 has a sender, bits 5-7 transport: 0 named below, 1 mqtt, 2 http
//	8   receive time, nanoseconds since 1970
//	16  boot and monotonic time, when doubtful
//	8   sender, when it has one
//	    transport if it is named here, tenant, device: a byte with the length, and the text
//	    the message, as it came
const (
	recordFormat  = 1
	kindBits      = 0x07
	doubtfulBit   = 0x08
	senderBit     = 0x10
	transportBits = 5
)

var transports = [...]string{1: ingest.TransportMQTT, 2: ingest.TransportHTTP}

// errRecord says that a record of the log is none of an edge.
var errRecord = errors.New("edge: the record is not one of an edge")

// appendRecord appends the record in format 1.
func appendRecord(b []byte, r *record) []byte {
	flags := byte(r.kind) & kindBits
	if r.doubtful {
		flags |= doubtfulBit
	}
	if r.sender != 0 {
		flags |= senderBit
	}
	named := true
	for i, name := range transports {
		if name != "" && name == r.transport {
			flags |= byte(i) << transportBits
			named = false
		}
	}
	b = append(b, recordFormat, flags)
	b = binary.BigEndian.AppendUint64(b, uint64(r.wall))
	if r.doubtful {
		b = binary.BigEndian.AppendUint64(b, r.boot)
		b = binary.BigEndian.AppendUint64(b, uint64(r.mono))
	}
	if r.sender != 0 {
		b = binary.BigEndian.AppendUint64(b, r.sender)
	}
	if named {
		b = append(append(b, byte(len(r.transport))), r.transport...)
	}
	b = append(append(b, byte(len(r.tenant))), r.tenant...)
	b = append(append(b, byte(len(r.device))), r.device...)
	return append(b, r.payload...)
}

// decodeRecord decodes a record. Its payload shares the memory of b.
func decodeRecord(b []byte) (r record, err error) {
	c := cursor{b: b}
	if format := c.byte(); format != recordFormat {
		return r, fmt.Errorf("%w: format %d", errRecord, format)
	}
	flags := c.byte()
	r.kind = kind(flags & kindBits)
	r.wall = model.Nanos(c.uint64())
	if r.doubtful = flags&doubtfulBit != 0; r.doubtful {
		r.boot, r.mono = c.uint64(), int64(c.uint64())
	}
	if flags&senderBit != 0 {
		r.sender = c.uint64()
	}
	if t := int(flags >> transportBits); t == 0 {
		r.transport = c.text()
	} else if t < len(transports) {
		r.transport = transports[t]
	} else {
		c.bad = true
	}
	r.tenant, r.device = c.text(), c.text()
	if c.bad || r.kind > kindReports {
		return r, errRecord
	}
	r.payload = c.b
	return r, nil
}

// cursor reads from a record.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if n > len(c.b) {
		c.bad, c.b = true, nil
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) byte() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) uint64() uint64 {
	if b := c.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (c *cursor) text() string { return string(c.take(int(c.byte()))) }

// topic is where the message goes: where it came in over MQTT.
func (r *record) topic(instance string) string {
	base := instance + "/" + r.tenant + "/"
	switch r.kind {
	case kindTelemetry:
		return base + "devices/" + r.device + "/telemetry"
	case kindResponses:
		return base + "command-responses/" + r.device
	case kindReports:
		return base + "device-reports/" + r.device
	}
	return base + "devices/" + r.device + "/events"
}

// repeat is by what a repeat of the message is known, zero for a message that cannot be repeated.
func (r *record) repeat() (key [2]uint64) {
	if r.sender == 0 {
		return key
	}
	sum := sha256.Sum256(r.payload)
	return [2]uint64{r.sender, binary.BigEndian.Uint64(sum[:])}
}

// senderOf is the sender of an arrival, 0 for one that waits for no answer.
func senderOf(a *ingest.Arrival) uint64 {
	if a.PacketID == 0 {
		return 0
	}
	sum := sha256.Sum256(append([]byte(a.ClientID), 0, byte(a.PacketID>>8), byte(a.PacketID)))
	return binary.BigEndian.Uint64(sum[:]) | 1
}
