package model

import (
	"errors"
	"strings"
	"time"
)

// ErrTime is returned for a text that is no time of RFC 3339.
var ErrTime = errors.New("is no RFC 3339 time, such as 2026-03-01T08:00:00Z")

// ParseTime reads a time of RFC 3339, section 5.6, to the microsecond. It is the one parser of times that come in. T and Z may be lower case,
// and a leap second (5.7), 23:59:60 UTC at the end of a month, is the second after it, as clocks without leap seconds have it. The offset is
// below 24 hours, a fraction begins with a point. time.Parse agrees with none of these.
func ParseTime(text string) (time.Time, error) {
	const (
		upToSeconds = len("2006-01-02T15:04:05")
		seconds     = len("2006-01-02T15:04:")
	)
	if len(text) <= upToSeconds || text[10] != 'T' && text[10] != 't' || strings.ContainsRune(text, ',') {
		return time.Time{}, ErrTime
	}
	text = strings.ToUpper(text)
	zone := strings.LastIndexAny(text, "Z+-")
	if offset := text[max(zone, 0):]; zone < upToSeconds || offset != "Z" && (len(offset) != len("+00:00") || offset[1:3] > "23" || offset[4:6] > "59") {
		return time.Time{}, ErrTime
	}
	leap := text[seconds:upToSeconds] == "60"
	if leap {
		text = text[:seconds] + "59" + text[upToSeconds:]
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, ErrTime
	}
	t = t.Truncate(time.Microsecond)
	if leap {
		t = t.Add(time.Second)
		if begins := t.UTC().Truncate(time.Second); begins.Day() != 1 || begins.Hour() != 0 || begins.Minute() != 0 || begins.Second() != 0 {
			return time.Time{}, ErrTime
		}
	}
	return t, nil
}
