package series

import (
	"encoding/binary"
	"math"

	"weir/internal/pack"
	"weir/model"
)

// stream contains open readings in memory: one after the other in the order of the log, a few numbers each. It is
// append-only, so that a reader with a slice of it and a count may read on while it grows. It is not a format on
// disk. For each reading:
//
//	zigzag of the difference of differences of event time
//	the value: ...0 scaled difference, .01 eight bytes follow, .11 number of decimals changes and a scaled one follows
//	zigzag of the difference of lags (receive time − event time)
//	difference of offsets
//	index and whether more follows (one bit); then the coded classifier and altId
type stream struct {
	buf  []byte
	room int32 // capacity of buf in bytes
	n    int32
	streamState
}

// streamState is the base of the next reading's encoding.
type streamState struct {
	decimals                       uint8
	time, step, lag, offset, value int64
}

const (
	rawValue     = 1
	moreDecimals = 3
)

// grow reserves space for one reading, so that append does not double a large buffer.
func (s *stream) grow(b int) {
	if cap(s.buf)-len(s.buf) >= b {
		return
	}
	s.room = int32(max(len(s.buf)+b, 48, cap(s.buf)+cap(s.buf)/2))
	next := make([]byte, len(s.buf), s.room)
	copy(next, s.buf)
	s.buf = next
}

// append adds a reading whose offset is not below the last one's.
func (s *stream) append(p *Point) {
	// The maximum size of one reading: five numbers, a raw value, the texts.
	s.grow(6*binary.MaxVarintLen64 + 8 + len(p.AltID))
	b := s.buf
	at, received := int64(p.Occurred), int64(p.Received)
	step := at - s.time
	b = binary.AppendUvarint(b, pack.Zigzag(step-s.step))
	s.time, s.step = at, step
	b = s.appendValue(b, p.Value)
	lag := received - at
	b = binary.AppendUvarint(b, pack.Zigzag(lag-s.lag))
	s.lag = lag
	b = binary.AppendUvarint(b, uint64(p.Offset)-uint64(s.offset))
	s.offset = int64(p.Offset)
	classifier := p.codedClassifier()
	if classifier == 0 && p.AltID == "" {
		b = binary.AppendUvarint(b, uint64(p.Index)<<1)
	} else {
		b = binary.AppendUvarint(b, uint64(p.Index)<<1|1)
		b = binary.AppendUvarint(b, uint64(classifier))
		b = pack.AppendText(b, p.AltID)
	}
	s.buf = b
	s.n++
}

func (s *stream) appendValue(b []byte, v float64) []byte {
	i, ok := pack.Scaled(v, int(s.decimals))
	for d := int(s.decimals) + 1; !ok && d <= pack.MaxDecimals; d++ {
		if i, ok = pack.Scaled(v, d); ok {
			s.decimals, s.value = uint8(d), 0
			b = append(b, byte(d<<2|moreDecimals))
		}
	}
	// A scaled difference has at most 61 bits besides its mark.
	if u := pack.Zigzag(i - s.value); ok && u < 1<<62 {
		s.value = i
		return binary.AppendUvarint(b, u<<1)
	}
	return binary.LittleEndian.AppendUint64(append(b, rawValue), math.Float64bits(v))
}

// decodeStream reads the first n readings of buf into c, in the order of arrival, up to and including offset upto.
func decodeStream(buf []byte, n int, upto model.Offset, c *columns) {
	c.resize(n)
	var s streamState
	for i := range n {
		var v uint64
		v, buf = take(buf)
		s.step += pack.Unzigzag(v)
		s.time += s.step
		buf = s.decodeValue(buf, &c.Values[i])
		v, buf = take(buf)
		s.lag += pack.Unzigzag(v)
		v, buf = take(buf)
		s.offset += int64(v)
		if model.Offset(s.offset) > upto {
			c.truncate(i)
			return
		}
		c.Times[i], c.Received[i], c.Offsets[i] = s.time, s.time+s.lag, s.offset
		v, buf = take(buf)
		c.Indexes[i] = int64(v >> 1)
		if v&1 != 0 {
			buf = decodeMore(buf, i, c)
		}
	}
}

func (c *columns) truncate(n int) {
	classifiers, altIDs := c.Classifiers, c.AltIDs
	c.resize(n)
	if classifiers != nil {
		c.Classifiers = classifiers[:n]
	}
	if altIDs != nil {
		c.AltIDs = altIDs[:n]
	}
}

func (s *streamState) decodeValue(buf []byte, v *float64) []byte {
	u, buf := take(buf)
	if u&moreDecimals == moreDecimals {
		s.decimals, s.value = uint8(u>>2), 0
		u, buf = take(buf)
	}
	if u&1 == rawValue {
		*v = math.Float64frombits(binary.LittleEndian.Uint64(buf))
		return buf[8:]
	}
	s.value += pack.Unzigzag(u >> 1)
	*v = pack.Unscaled(s.value, s.decimals)
	return buf
}

func decodeMore(buf []byte, i int, c *columns) []byte {
	classifier, buf := take(buf)
	if classifier != 0 {
		if c.Classifiers == nil {
			c.Classifiers = make([]int64, c.len())
		}
		c.Classifiers[i] = int64(classifier)
	}
	n, buf := take(buf)
	if n != 0 {
		if c.AltIDs == nil {
			c.AltIDs = make([]string, c.len())
		}
		c.AltIDs[i] = string(buf[:n])
	}
	return buf[n:]
}

// take reads a number that append has written in this process.
func take(buf []byte) (uint64, []byte) {
	v, n := binary.Uvarint(buf)
	return v, buf[n:]
}
