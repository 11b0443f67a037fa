// Package eventfile reads events from a file, one JSON object a line, and runs a draft of a rule over them, without an instance:
//
//	{"device":"boiler-1","receivedTime":"2026-03-01T12:00:00Z","eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"81.5"}}]}}
//
// A line is an ingest event with its device, and receivedTime, when it was received. Unlike ingest, which takes what devices send, the
// reader is strict: a member that it does not know is refused.
//
//	eventfile.go  the reader
//	run.go        a draft over what it reads
package eventfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"weir/ingest"
	"weir/internal/jsonscan"
	"weir/internal/yamldoc"
	"weir/model"
)

// The bounds of a file.
const (
	MaxLine    = 1 << 20 // bytes
	MaxEvents  = 5_000_000
	MaxDevices = 100_000
)

// The limits of event times are those of ingest with its defaults: a time further after its receipt is replaced, an older one is refused.
const (
	maxFutureSkew = 5 * time.Minute
	maxAge        = 366 * 24 * time.Hour
)

// Error is what is wrong with a line.
type Error struct {
	Line int // 1 is the first
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// Event is a line.
type Event struct {
	Line     int
	Device   string
	Received model.Micros // never before that of the line before
	Message  model.Message
}

// Reader reads events. It keeps one line.
type Reader struct {
	lines    *bufio.Reader
	line     int
	events   int
	received model.Micros
	event    Event
	buffer   []byte
}

// NewReader returns a reader of a file.
func NewReader(r io.Reader) *Reader { return &Reader{lines: bufio.NewReaderSize(r, 64<<10)} }

// Next returns the next event, which is valid until the next call; io.EOF after the last. Any other error is an *Error, or that of reading.
func (r *Reader) Next() (*Event, error) {
	for {
		text, err := r.next()
		if err != nil {
			return nil, err
		}
		if r.line == 1 {
			text = bytes.TrimPrefix(text, []byte("\ufeff"))
		}
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		if r.events++; r.events > MaxEvents {
			return nil, r.refuse("there are more than %d events", MaxEvents)
		}
		return r.read(text)
	}
}

func (r *Reader) refuse(format string, args ...any) error {
	return &Error{r.line, fmt.Sprintf(format, args...)}
}

// next reads a line.
func (r *Reader) next() ([]byte, error) {
	r.buffer = r.buffer[:0]
	r.line++
	for {
		part, err := r.lines.ReadSlice('\n')
		r.buffer = append(r.buffer, part...)
		switch {
		case len(r.buffer) > MaxLine:
			return nil, r.refuse("is longer than %d KiB", MaxLine>>10)
		case err == nil, errors.Is(err, io.EOF) && len(r.buffer) > 0:
			return r.buffer, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// received is the member that an ingest event does not have.
const received = "receivedTime"

// members are those of a line.
var members = append(ingest.EventMembers(), received)

// read reads the event of a line.
func (r *Reader) read(text []byte) (*Event, error) {
	own, given, err := r.own(text)
	if err != nil {
		return nil, err
	}
	decoded, err := ingest.Decode(text)
	switch {
	case err != nil:
		return nil, r.refuse("%v", err)
	case decoded.Report != nil:
		return nil, r.refuse("this is a report of a device, not an event")
	case decoded.Device == "":
		return nil, r.refuse("member \"device\" is missing")
	}
	m := &decoded.Message
	switch {
	case given && own < r.received:
		return nil, r.refuse("was received at %s, before the line before it: events stand in the order in which they were received", own.Time().UTC().Format(time.RFC3339Nano))
	case given:
		r.received = own
	case m.HasOccurred:
		r.received = max(r.received, m.Occurred.Micros())
	case r.received == 0:
		return nil, r.refuse("neither %s nor occurredTime says when it was", received)
	}
	r.event = Event{Line: r.line, Device: decoded.Device, Received: r.received, Message: *m}
	return &r.event, nil
}

// own reads what a line has besides the event, and refuses what it does not know.
func (r *Reader) own(text []byte) (at model.Micros, given bool, _ error) {
	s := jsonscan.New(text)
	s.Object(func(name []byte) {
		switch {
		case string(name) == received:
			if given {
				s.Fail("member %q is given twice", received)
				return
			}
			given = true
			t, err := model.ParseTime(s.String(received))
			if s.Err() == nil && (err != nil || t.Year() < 1970 || t.Year() > 2200) {
				s.Fail("%s must be an RFC 3339 time from 1970 to 2200", received)
			}
			at = model.MicrosOf(t)
		case !slices.Contains(members, string(name)):
			hint := yamldoc.Suggest(string(name), members)
			if hint != "" {
				hint = " (" + hint + ")"
			}
			s.Fail("member %.64q is not known%s", name, hint)
		default:
			s.Skip()
		}
	})
	if err := s.End(); err != nil {
		return 0, false, r.refuse("%v", err)
	}
	return at, given, nil
}

// occurred is the event time of an entry.
func (e *Event) occurred(own model.EntryTime) (model.Micros, error) {
	t := e.Received
	switch {
	case own.Has:
		t = own.At.Micros()
	case e.Message.HasOccurred:
		t = e.Message.Occurred.Micros()
	}
	if t < e.Received-model.Micros(maxAge/time.Microsecond) {
		return 0, &Error{e.Line, "occurred more than 366 days before it was received"}
	}
	return min(t, e.Received+model.Micros(maxFutureSkew/time.Microsecond)), nil
}
