package sparkplug

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
)

// HostState is the payload of STATE: whether a host is online, and since when in milliseconds since 1970.
type HostState struct {
	Online    bool
	Timestamp int64
}

// Append appends the JSON of a STATE message: exactly two members (tck-id-host-topic-phid-birth-payload, -death-payload).
func (s HostState) Append(b []byte) []byte {
	b = append(b, `{"online":`...)
	b = strconv.AppendBool(b, s.Online)
	b = append(b, `,"timestamp":`...)
	b = strconv.AppendInt(b, s.Timestamp, 10)
	return append(b, '}')
}

// ErrState is returned for a payload that is no STATE message of Sparkplug 3.0.
var ErrState = errors.New(`sparkplug: a STATE message is {"online": true or false, "timestamp": milliseconds}`)

// maxState is the largest STATE message in bytes that is read.
const maxState = 1 << 10

// ParseState reads the payload of STATE. Members that the specification does not name are ignored.
func ParseState(b []byte) (HostState, error) {
	if len(b) > maxState {
		return HostState{}, ErrState
	}
	var in struct {
		Online    *bool  `json:"online"`
		Timestamp *int64 `json:"timestamp"`
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&in); err != nil || in.Online == nil || in.Timestamp == nil {
		return HostState{}, ErrState
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return HostState{}, ErrState
	}
	return HostState{Online: *in.Online, Timestamp: *in.Timestamp}, nil
}
