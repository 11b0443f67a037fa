package main

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// body makes the messages of one device, one after the other, and keeps the sums that must be found again.
type body struct {
	kind      bodyKind
	r         *rand.Rand
	level     int64     // of the walk, in hundredths
	at        time.Time // event time of the next reading; zero: as base says
	base      time.Time // event time of the first reading; zero: now
	step      time.Duration
	perMsg    int
	altEvery  int64
	token     string // credential in the body; "": none
	second    int64  // whose text stands in stamp
	stamp     []byte
	number    int64 // of the next reading
	sum       float64
	edges     int64
	over      int64 // rules whose threshold the last value was above
	lastMicro int64
	late      bool // the reading is out of order
	spiked    bool // the one before was a spike
}

type bodyKind uint8

const (
	live   bodyKind = iota // 20.00 to 23.99, each 10,000th reading 30.00: one rule of ten raises and resolves on it
	sensor                 // a walk in hundredths
	noise                  // float64 without any pattern
	frost                  // the same below zero: no rule is met
	swing                  // 0.00 to 99.99 in no order: all over the limits of a storm
	mixed                  // 20.00 to 23.99 in no order, one of spikesEvery 30.00; one of lateEvery is older than the one before it
	flap                   // 30.00, 20.00, 30.00 …, or the other way round
)

const (
	spikesEvery = 3300
	lateEvery   = 100
	lateBy      = 500 * time.Millisecond
)

// ruleThreshold is what one of the ten rules compares with; the others are never reached.
const ruleThreshold = 25

// ruleLimit is what a rule compares with.
func ruleLimit(i int) float64 {
	if i == 0 {
		return ruleThreshold
	}
	return float64(1000 + i)
}

// stormLimit is what a rule of a storm compares with.
func stormLimit(i int) float64 { return float64(60 + 5*i) }

func newBody(kind bodyKind, seed uint64) *body {
	return &body{kind: kind, r: rand.New(rand.NewPCG(7, seed)), level: 2150, perMsg: 1}
}

// append appends the next message.
func (b *body) append(out []byte) []byte {
	out = append(out, '{')
	if b.token != "" {
		out = append(out, `"credentialType":"ACCESS_TOKEN","credentialId":"`...)
		out = append(append(out, b.token...), `",`...)
	}
	out = append(out, `"eventType":"Measurement",`...)
	if b.altEvery > 0 && b.number%b.altEvery == 0 {
		out = append(out, `"altId":"m`...)
		out = append(strconv.AppendInt(out, b.number, 10), `",`...)
	}
	if b.perMsg == 1 {
		out = append(b.appendTime(out), `,"payload":{"entries":[{"measurements":{"temp":"`...)
		return append(b.appendValue(out), `"}}]}}`...)
	}
	out = append(out, `"payload":{"entries":[`...)
	for i := range b.perMsg {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(b.appendTime(append(out, '{')), `,"measurements":{"temp":"`...)
		out = append(b.appendValue(out), `"}}`...)
	}
	return append(out, `]}}`...)
}

// appendTime appends the reading's event time, in microseconds: no two readings of a device have the same.
func (b *body) appendTime(out []byte) []byte {
	var t time.Time
	switch {
	case !b.at.IsZero():
		t = b.at
	case b.base.IsZero():
		t = time.UnixMicro(max(time.Now().UnixMicro(), b.lastMicro+1))
		// What is late has no spike, and none before it: a rule would be raised and resolved in another order.
		if b.late = b.kind == mixed && !b.late && !b.spiked && b.r.IntN(lateEvery) == 0; b.late && b.number > 0 {
			t = time.UnixMicro(b.lastMicro).Add(-lateBy)
			break
		}
		b.lastMicro = t.UnixMicro()
	default:
		t = b.base.Add(time.Duration(b.number)*b.step + time.Duration(b.r.Int64N(100_000))*time.Microsecond)
	}
	out = append(out, `"occurredTime":"`...)
	if s := t.Unix(); s != b.second || len(b.stamp) == 0 {
		b.second, b.stamp = s, t.UTC().AppendFormat(b.stamp[:0], "2006-01-02T15:04:05.")
	}
	out = append(out, b.stamp...)
	for us, div := t.Nanosecond()/1000, 100_000; div > 0; div /= 10 {
		out = append(out, byte('0'+us/div%10))
	}
	return append(out, `Z"`...)
}

// judge counts the edges that a value brings about. The limits of a storm rise with the rules: each that lies between the value
// and the one before is crossed.
func (b *body) judge(v float64) {
	over := int64(0)
	if b.kind != swing && v > ruleThreshold {
		over = 1
	}
	for i := 0; b.kind == swing && i < rulesPerReading && v > stormLimit(i); i++ {
		over++
	}
	b.edges += max(over-b.over, b.over-over)
	b.over = over
}

func (b *body) appendValue(out []byte) []byte {
	var v float64
	switch b.kind {
	case live:
		v = 20 + float64(b.number%400)/100
		if b.number%10_000 == 9_999 {
			v = 30
		}
	case sensor:
		b.level = min(max(b.level+b.r.Int64N(21)-10, -2000), 6000)
		v = float64(b.level) / 100
	case noise, frost:
		v = math.Float64frombits(b.r.Uint64()&^(0x7ff<<52) | uint64(1020+b.r.Uint64N(8))<<52)
		if b.kind == frost {
			v = -math.Abs(v)
		}
	case swing:
		v = float64(b.r.Int64N(10_000)) / 100
	case mixed:
		v = 20 + float64(b.r.Int64N(400))/100
		if b.spiked = !b.late && b.r.IntN(spikesEvery) == 0; b.spiked {
			v = 30
		}
	case flap:
		v = 30 - 10*float64((b.number+b.level)%2)
	}
	b.number++
	b.sum += v
	b.judge(v)
	if b.kind == noise || b.kind == frost {
		return strconv.AppendFloat(out, v, 'g', -1, 64)
	}
	return strconv.AppendFloat(out, v, 'f', 2, 64)
}
