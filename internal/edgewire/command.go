package edgewire

import (
	"encoding/json"
	"fmt"
	"time"
)

// Kinds of documents about commands.
const (
	KindListening = "listening" // up: which devices at the site take commands now
	KindDelivered = "delivered" // up: how a command ended that was handed to the edge
	KindCommand   = "command"   // down
)

// MaxDevices is how many devices a document names at most.
const MaxDevices = 1000

// maxCommand bounds the body of a command.
const maxCommand = 128 << 10

// Listening says which devices at the site have begun to take commands and which take none any more, by their tokens. All says that no other
// device than those that begin takes any.
type Listening struct {
	Kind  string   `json:"kind"`
	All   bool     `json:"all,omitempty"`
	Begin []string `json:"begin,omitempty"`
	End   []string `json:"end,omitempty"`
}

// Command is a command for a device at the site. Body is what the device gets.
type Command struct {
	Kind    string          `json:"kind"`
	Device  string          `json:"device"`
	Nonce   string          `json:"nonce"` // of the dispatch
	Body    json.RawMessage `json:"body"`
	Expires *time.Time      `json:"expires,omitempty"` // after that it is not handed on
}

// How a command ended that was handed to the edge.
const (
	EndAcknowledged  = "acknowledged"  // the device has it
	EndUnconfirmed   = "unconfirmed"   // it was written, at QoS 0
	EndAbsent        = "absent"        // the device takes none now, its connection ended before it had the command, or the command has expired
	EndUnwritten     = "unwritten"     // the device refused the packet
	EndUndeliverable = "undeliverable" // it never takes it
)

// Delivered says how a command ended.
type Delivered struct {
	Kind  string `json:"kind"`
	Nonce string `json:"nonce"`
	End   string `json:"end"`
	Text  string `json:"text,omitempty"` // of EndUndeliverable: why
}

// ParseUp reads a document that an edge publishes: *Hello, *Listening, *Delivered, *Presence, *AskSite, *Firings or *Sync. Members that it does not know are left out, so that an edge may
// be newer. The error is ErrDocument.
func ParseUp(b []byte) (any, error) {
	kind, err := kindOf(b)
	if err != nil {
		return nil, err
	}
	switch kind {
	case KindListening:
		l := &Listening{}
		if err := json.Unmarshal(b, l); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDocument, err)
		}
		if len(l.Begin)+len(l.End) > MaxDevices {
			return nil, fmt.Errorf("%w: it names more than %d devices", ErrDocument, MaxDevices)
		}
		for _, names := range [][]string{l.Begin, l.End} {
			for _, device := range names {
				if !validToken(device) {
					return nil, fmt.Errorf("%w: a device is no token", ErrDocument)
				}
			}
		}
		return l, nil
	case KindDelivered:
		d := &Delivered{}
		if err := json.Unmarshal(b, d); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDocument, err)
		}
		switch d.End {
		case EndAcknowledged, EndUnconfirmed, EndAbsent, EndUnwritten, EndUndeliverable:
		default:
			return nil, fmt.Errorf("%w: the end of a command is not known", ErrDocument)
		}
		if !validText(d.Nonce) || !validText(d.Text) {
			return nil, fmt.Errorf("%w: a text has control characters or more than %d bytes", ErrDocument, maxText)
		}
		return d, nil
	}
	switch kind {
	case KindPresence:
		return parsePresence(b)
	case KindAskSite:
		return parseAskSite(b)
	case KindFirings:
		return parseFirings(b)
	}
	if kind == KindSync {
		s := &Sync{}
		if err := json.Unmarshal(b, s); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDocument, err)
		}
		if why := s.check(); why != "" {
			return nil, fmt.Errorf("%w: %s", ErrDocument, why)
		}
		return s, nil
	}
	return ParseHello(b)
}

// ParseCommand reads a command.
func ParseCommand(b []byte) (*Command, error) {
	kind, err := kindOf(b)
	if err != nil {
		return nil, err
	}
	c := &Command{}
	switch err := json.Unmarshal(b, c); {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	case kind != KindCommand:
		return nil, fmt.Errorf("%w: kind is not %s", ErrDocument, KindCommand)
	case !validToken(c.Device), !validText(c.Nonce), c.Nonce == "":
		return nil, fmt.Errorf("%w: device or nonce", ErrDocument)
	case len(c.Body) == 0 || len(c.Body) > maxCommand || c.Body[0] != '{':
		return nil, fmt.Errorf("%w: body is not an object of at most %d bytes", ErrDocument, maxCommand)
	}
	return c, nil
}
