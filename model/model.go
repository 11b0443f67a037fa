// Package model holds the types of the domain: tokens, times, events and readings, the records of the log, principals
// and authorities, and the errors with a code. It does no I/O and imports no package of Weir, so that every package may
// use it.
package model

import (
	"math"
	"time"
)

// Offset is the number of a record in the log. Offsets start at 1 and never decrease; 0 means "before everything".
type Offset uint64

// Nanos is an instant in nanoseconds since the Unix epoch, in UTC. Instants that do not fit (before 1678, after 2262)
// become the nearest end of the range: every use of them has a limit that refuses or clamps them.
type Nanos int64

// Micros is an instant in microseconds since the Unix epoch: the precision in which times are stored.
type Micros int64

// NanosOf converts t, saturating.
func NanosOf(t time.Time) Nanos {
	switch sec := t.Unix(); {
	case sec > math.MaxInt64/int64(time.Second)-1:
		return math.MaxInt64
	case sec < math.MinInt64/int64(time.Second)+1:
		return math.MinInt64
	}
	return Nanos(t.UnixNano())
}

// Time returns n as a time.Time in UTC.
func (n Nanos) Time() time.Time { return time.Unix(0, int64(n)).UTC() }

// Micros rounds n down to the stored precision.
func (n Nanos) Micros() Micros { return Micros(floorDiv(int64(n), 1000)) }

// Hour returns the UTC hour that n lies in, counted from the epoch; the ledger is kept by it.
func (n Nanos) Hour() int64 { return floorDiv(int64(n), int64(time.Hour)) }

// MicrosOf converts t.
func MicrosOf(t time.Time) Micros { return Micros(t.UnixMicro()) }

// Time returns m as a time.Time in UTC.
func (m Micros) Time() time.Time { return time.UnixMicro(int64(m)).UTC() }

// Nanos returns m in nanoseconds.
func (m Micros) Nanos() Nanos { return Nanos(m) * 1000 }

// String returns m as the API shows it: RFC 3339 in UTC, without trailing zeros of the fraction.
func (m Micros) String() string { return m.Time().Format(time.RFC3339Nano) }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}
