// Package coap reads and writes CoAP messages over UDP (RFC 7252), with the options of Observe (RFC 7641) and block-wise transfer
// (RFC 7959). It holds no state: who sends what again is decided by its user.
package coap

import (
	"errors"
	"fmt"
	"slices"
)

// Type is the type of a message (RFC 7252 section 3).
type Type uint8

// The types.
const (
	Confirmable     Type = 0
	NonConfirmable  Type = 1
	Acknowledgement Type = 2
	Reset           Type = 3
)

// Code is a method or the code of a response: class and detail, such as 2.05.
type Code uint8

// The methods (RFC 7252 section 12.1.1, RFC 8132).
const (
	Empty  Code = 0
	GET    Code = 1
	POST   Code = 2
	PUT    Code = 3
	DELETE Code = 4
	FETCH  Code = 5
	PATCH  Code = 6
	IPATCH Code = 7
)

// The response codes that are used here.
const (
	Created            Code = 2<<5 | 1
	Deleted            Code = 2<<5 | 2
	Valid              Code = 2<<5 | 3
	Changed            Code = 2<<5 | 4
	Content            Code = 2<<5 | 5
	Continue           Code = 2<<5 | 31
	BadRequest         Code = 4 << 5
	Unauthorized       Code = 4<<5 | 1
	BadOption          Code = 4<<5 | 2
	Forbidden          Code = 4<<5 | 3
	NotFound           Code = 4<<5 | 4
	MethodNotAllowed   Code = 4<<5 | 5
	NotAcceptable      Code = 4<<5 | 6
	Incomplete         Code = 4<<5 | 8
	PreconditionFailed Code = 4<<5 | 12
	TooLarge           Code = 4<<5 | 13
	BadFormat          Code = 4<<5 | 15
	TooManyRequests    Code = 4<<5 | 29
	InternalError      Code = 5 << 5
	NotImplemented     Code = 5<<5 | 1
	Unavailable        Code = 5<<5 | 3
)

// String returns the code as people write it: 4.04.
func (c Code) String() string { return fmt.Sprintf("%d.%02d", c>>5, c&31) }

// IsRequest reports whether the code is a method.
func (c Code) IsRequest() bool { return c > 0 && c < 1<<5 }

// IsResponse reports whether the code is that of a response.
func (c Code) IsResponse() bool { return c >= 2<<5 }

// Success reports whether the code is of the class 2.
func (c Code) Success() bool { return c>>5 == 2 }

// The numbers of options.
const (
	IfMatch       = 1
	URIHost       = 3
	ETag          = 4
	IfNoneMatch   = 5
	Observe       = 6
	URIPort       = 7
	LocationPath  = 8
	URIPath       = 11
	ContentFormat = 12
	MaxAge        = 14
	URIQuery      = 15
	Accept        = 17
	LocationQuery = 20
	Block2        = 23
	Block1        = 27
	Size2         = 28
	Size1         = 60
)

// Option is an option of a message.
type Option struct {
	Number uint16
	Value  []byte
}

// Critical reports whether a message with the option must be refused by who does not know it.
func (o Option) Critical() bool { return o.Number&1 == 1 }

// Message is a CoAP message. Options are in the order of their numbers.
type Message struct {
	Type    Type
	Code    Code
	ID      uint16
	Token   []byte
	Options []Option
	Payload []byte
}

// ErrFormat says that bytes are no CoAP message: they are passed over or, where they are confirmable, reset.
var ErrFormat = errors.New("coap: malformed message")

// maxOptions bounds the options of a message: one of 1,200 bytes could have as many.
const maxOptions = 64

// Parse reads a message. The result refers to b.
func Parse(b []byte) (m Message, err error) {
	if len(b) < 4 || b[0]>>6 != 1 {
		return m, ErrFormat
	}
	length := int(b[0] & 15)
	m = Message{Type: Type(b[0] >> 4 & 3), Code: Code(b[1]), ID: uint16(b[2])<<8 | uint16(b[3])}
	if m.Code == Empty && (len(b) > 4 || length > 0) { // RFC 7252 section 4.1
		return m, ErrFormat
	}
	b = b[4:]
	if length > 8 || len(b) < length {
		return m, ErrFormat
	}
	m.Token, b = b[:length:length], b[length:]
	number := 0
	for len(b) > 0 {
		if b[0] == 0xff {
			if len(b) == 1 {
				return m, ErrFormat // a marker without a payload
			}
			m.Payload = b[1:]
			return m, nil
		}
		delta, size := int(b[0]>>4), int(b[0]&15)
		b = b[1:]
		if delta, b, err = extended(delta, b); err != nil {
			return m, err
		}
		if size, b, err = extended(size, b); err != nil {
			return m, err
		}
		number += delta
		if number > 0xffff || size > len(b) || len(m.Options) == maxOptions {
			return m, ErrFormat
		}
		m.Options = append(m.Options, Option{uint16(number), b[:size:size]})
		b = b[size:]
	}
	return m, nil
}

// extended reads the bytes that follow a nibble of 13 or 14 (RFC 7252 section 3.1).
func extended(nibble int, b []byte) (int, []byte, error) {
	switch {
	case nibble < 13:
		return nibble, b, nil
	case nibble == 13 && len(b) >= 1:
		return 13 + int(b[0]), b[1:], nil
	case nibble == 14 && len(b) >= 2:
		return 269 + int(b[0])<<8 + int(b[1]), b[2:], nil
	}
	return 0, nil, ErrFormat
}

// Append writes a message behind b. A token has at most 8 bytes.
func Append(b []byte, m *Message) []byte {
	b = append(b, 1<<6|byte(m.Type)<<4|byte(len(m.Token)&15), byte(m.Code), byte(m.ID>>8), byte(m.ID))
	b = append(b, m.Token...)
	last := 0
	for _, o := range m.Options {
		delta, deltaMore := nibble(int(o.Number) - last)
		size, sizeMore := nibble(len(o.Value))
		b = append(b, delta<<4|size)
		b = append(append(b, deltaMore...), sizeMore...)
		b = append(b, o.Value...)
		last = int(o.Number)
	}
	if len(m.Payload) > 0 {
		b = append(append(b, 0xff), m.Payload...)
	}
	return b
}

func nibble(n int) (byte, []byte) {
	switch {
	case n < 13:
		return byte(n), nil
	case n < 269:
		return 13, []byte{byte(n - 13)}
	}
	n -= 269
	return 14, []byte{byte(n >> 8), byte(n)}
}

// Add adds an option behind those of the same number.
func (m *Message) Add(number uint16, value []byte) {
	at := len(m.Options)
	for at > 0 && m.Options[at-1].Number > number {
		at--
	}
	m.Options = slices.Insert(m.Options, at, Option{number, value})
}

// AddUint adds an option whose value is a number, in as few bytes as it takes.
func (m *Message) AddUint(number uint16, v uint32) {
	var b []byte
	for shift := 24; shift >= 0; shift -= 8 {
		if c := byte(v >> shift); c != 0 || len(b) > 0 {
			b = append(b, c)
		}
	}
	m.Add(number, b)
}

// AddPath adds an Uri-Path or a Location-Path: an option for each segment.
func (m *Message) AddPath(number uint16, segments ...string) {
	for _, s := range segments {
		m.Add(number, []byte(s))
	}
}

// Get returns the first option with a number.
func (m *Message) Get(number uint16) (value []byte, ok bool) {
	for _, o := range m.Options {
		if o.Number == number {
			return o.Value, true
		}
	}
	return nil, false
}

// Uint returns the first option with a number as an unsigned number of at most 4 bytes.
func (m *Message) Uint(number uint16) (v uint32, ok bool) {
	b, ok := m.Get(number)
	if !ok || len(b) > 4 {
		return 0, false
	}
	for _, c := range b {
		v = v<<8 | uint32(c)
	}
	return v, true
}

// Texts returns the values of all options with a number.
func (m *Message) Texts(number uint16) (all []string) {
	for _, o := range m.Options {
		if o.Number == number {
			all = append(all, string(o.Value))
		}
	}
	return all
}

// Unknown returns the number of the first critical option that is none of the known ones, 0 when there is none.
func (m *Message) Unknown(known ...uint16) uint16 {
	for _, o := range m.Options {
		if o.Critical() && !slices.Contains(known, o.Number) {
			return o.Number
		}
	}
	return 0
}

// Block is the value of a Block option (RFC 7959 section 2.2).
type Block struct {
	Number uint32
	More   bool
	Size   int // in bytes: a power of two in 16..1024
}

// Block returns the first Block option with a number. ok is false when there is none, or one that may not be.
func (m *Message) Block(number uint16) (block Block, ok bool) {
	v, ok := m.Uint(number)
	if b, _ := m.Get(number); !ok || len(b) > 3 || v&7 == 7 {
		return Block{}, false
	}
	return Block{Number: v >> 4, More: v&8 != 0, Size: 16 << (v & 7)}, true
}

// AddBlock adds a Block option.
func (m *Message) AddBlock(number uint16, b Block) {
	exponent := uint32(0)
	for 16<<exponent < b.Size && exponent < 6 {
		exponent++
	}
	v := b.Number<<4 | exponent
	if b.More {
		v |= 8
	}
	m.AddUint(number, v)
}

// Newer reports whether an Observe number is newer than the one before it: it counts in 24 bits (RFC 7641 section 3.4). That a
// notification which comes late enough is newer in any case is up to the caller.
func Newer(before, now uint32) bool {
	const half = 1 << 23
	return before < now && now-before < half || before > now && before-now > half
}
