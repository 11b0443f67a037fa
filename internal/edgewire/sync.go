package edgewire

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Kinds of documents about the devices of a site.
const (
	KindSync    = "sync"    // up: asks for devices
	KindDevices = "devices" // down: answers that
	KindChanged = "changed" // down: devices or credentials have changed since the edge asked
)

// Bounds of a Devices.
const (
	maxSynced          = 1000 // devices of a document
	maxCredentialsEach = 256
	maxHashText        = 1024
)

// Sync asks for the devices for which the edge speaks, in the order of their tokens, from behind After on.
type Sync struct {
	Kind  string `json:"kind"`
	Nonce string `json:"nonce"`
	After string `json:"after,omitempty"`
}

// Devices is a page of them. Next is behind what the next page begins, "" for the last one. Refused says why there are none to be had.
type Devices struct {
	Kind    string   `json:"kind"`
	Nonce   string   `json:"nonce"`
	Devices []Device `json:"devices"`
	Next    string   `json:"next,omitempty"`
	Refused string   `json:"refused,omitempty"`
}

// Device is a device at the site, with its credentials that are enabled.
type Device struct {
	ID          int64        `json:"id"` // a number of the device: one that was made again under the same token has another
	Token       string       `json:"token"`
	Credentials []Credential `json:"credentials,omitempty"`
}

// Credential is a credential as it is stored: nothing of it lets a client sign in.
type Credential struct {
	ID       int64  `json:"id"`
	Type     string `json:"type"`
	IDHash   string `json:"idHash"`             // SHA-256 of the credential's id, hexadecimal
	Password string `json:"password,omitempty"` // its hash as a PHC string
	Expires  int64  `json:"expires,omitempty"`  // microseconds since 1970
}

// Changed says that the devices have changed.
type Changed struct {
	Kind string `json:"kind"`
}

func (s *Sync) check() string {
	if !validText(s.Nonce) || s.After != "" && !validToken(s.After) {
		return "nonce or after"
	}
	return ""
}

func (d *Devices) check() string {
	if !validText(d.Nonce) || !validText(d.Refused) || d.Next != "" && !validToken(d.Next) || len(d.Devices) > maxSynced {
		return "nonce, refused, next or too many devices"
	}
	before := ""
	for _, one := range d.Devices {
		if !validToken(one.Token) || one.Token <= before || one.ID <= 0 || len(one.Credentials) > maxCredentialsEach {
			return "devices are not in order"
		}
		before = one.Token
		for _, c := range one.Credentials {
			hash, err := hex.DecodeString(c.IDHash)
			if c.ID <= 0 || err != nil || len(hash) != 32 || !validText(c.Type) || len(c.Password) > maxHashText || c.Expires < 0 {
				return "a credential"
			}
		}
	}
	if d.Next != "" && d.Next < before {
		return "next"
	}
	return ""
}

// ParseDown reads a document from above: *Welcome, *Command, *Framed, *Devices, *Site or *Changed. The error is ErrDocument.
func ParseDown(b []byte) (any, error) {
	kind, err := kindOf(b)
	if err != nil {
		return nil, err
	}
	switch kind {
	case KindWelcome:
		return ParseWelcome(b)
	case KindCommand:
		return ParseCommand(b)
	case KindFramed:
		return parseFramed(b)
	case KindSite:
		return parseSite(b)
	case KindChanged:
		return &Changed{Kind: KindChanged}, nil
	case KindDevices:
		d := &Devices{}
		if err := json.Unmarshal(b, d); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDocument, err)
		}
		if why := d.check(); why != "" {
			return nil, fmt.Errorf("%w: %s", ErrDocument, why)
		}
		return d, nil
	}
	return nil, fmt.Errorf("%w: a kind that is not known", ErrDocument)
}
