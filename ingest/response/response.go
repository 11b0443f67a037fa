// Package response reads what devices send about their commands: the answer to one, as JSON, and who sends it where the transport
// does not say so. Its bounds are in one place: an answer that a transport decoded from a format of its own is held against the same ones.
package response

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"weir/internal/jsonscan"
	"weir/model"
)

// Bounds of an answer.
const (
	MaxNonce      = 128      // characters
	MaxError      = 4 << 10  // bytes
	MaxPayload    = 64 << 10 // bytes of its JSON text
	maxCredential = 1024     // characters of a credential member
)

// Sender is what a body says of its sender: the device, and the credential that it presents. All of it may be absent.
type Sender struct {
	Device                    string
	Credential                Credential
	device, typ, id, isSecret bool // were given
}

// Credential is what a body presents.
type Credential struct{ Type, ID, Secret string }

// Member takes the value of a member if it is one of the sender's, and reports whether it was. A member may be given once; null is as
// if it were absent.
func (s *Sender) Member(d *jsonscan.Scanner, name []byte) bool {
	var into *string
	var given *bool
	switch string(name) {
	case "device":
		into, given = &s.Device, &s.device
	case "credentialType":
		into, given = &s.Credential.Type, &s.typ
	case "credentialId":
		into, given = &s.Credential.ID, &s.id
	case "credentialSecret":
		into, given = &s.Credential.Secret, &s.isSecret
	default:
		return false
	}
	if once(d, given, name); d.Null() {
		return true
	}
	*into = d.String(string(name))
	switch {
	case d.Err() != nil:
	case into == &s.Device && !model.ValidToken(*into):
		d.Fail("device is not a device token")
	case utf8.RuneCountInString(*into) > maxCredential:
		d.Fail("%s must have at most %d characters", name, maxCredential)
	}
	return true
}

// once notes that a member was given and fails when it was given before.
func once(d *jsonscan.Scanner, given *bool, name []byte) {
	if *given {
		d.Fail("member %q is given twice", name)
	}
	*given = true
}

// Decode reads {"commandToken", "success", "dispatchNonce"?, "payload"?, "error"?}, with the members of the sender in it. Unknown
// members are ignored; a known one may be given once. The text of an error is one line, fit to be sent to the device.
func Decode(body []byte) (*model.Response, Sender, error) {
	d := decoder{Scanner: jsonscan.New(bytes.TrimRight(body, "\x00"))}
	d.Object(d.member)
	switch {
	case !d.command:
		d.Fail("commandToken is required")
	case !d.success:
		d.Fail("success is required")
	}
	if d.answer.Success {
		d.answer.Error = "" // kept of a failure only
	}
	if why := Check(&d.answer); why != "" {
		d.Fail("%s", why)
	}
	if err := d.End(); err != nil {
		return nil, Sender{}, err
	}
	return &d.answer, d.sender, nil
}

type decoder struct {
	jsonscan.Scanner
	sender                                 Sender
	answer                                 model.Response
	command, success, nonce, payload, fail bool // were given
}

func (d *decoder) member(name []byte) {
	switch string(name) {
	case "commandToken":
		once(&d.Scanner, &d.command, name)
		d.answer.Command = d.String("commandToken")
	case "success":
		once(&d.Scanner, &d.success, name)
		d.answer.Success = d.Bool("success")
	case "dispatchNonce":
		if once(&d.Scanner, &d.nonce, name); !d.Null() {
			d.answer.Nonce = d.String("dispatchNonce")
		}
	case "payload":
		if once(&d.Scanner, &d.payload, name); !d.Null() {
			d.answer.Payload = d.value()
		}
	case "error":
		if once(&d.Scanner, &d.fail, name); !d.Null() {
			d.answer.Error = d.String("error")
		}
	default:
		if !d.sender.Member(&d.Scanner, name) {
			d.Skip()
		}
	}
}

// value takes any JSON value as a JSON text without the space between its parts: what is a string and holds a JSON text is that text.
func (d *decoder) value() string {
	if d.Peek() == '"' {
		text := d.String("payload")
		if s := jsonscan.New([]byte(text)); documented(&s) {
			return compact([]byte(text))
		}
		quoted, err := json.Marshal(text)
		if err != nil { // the scanner has read it
			d.Fail("payload: %v", err)
		}
		return string(quoted)
	}
	return compact(d.Raw())
}

// documented reports whether a JSON text is all that a scanner reads.
func documented(s *jsonscan.Scanner) bool {
	s.Skip()
	return s.End() == nil
}

// compact returns a JSON document without the space between its parts.
func compact(doc []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, doc) != nil { // the scanner has read it
		return string(doc)
	}
	return b.String()
}

// Check returns what is wrong with an answer that a transport decoded, "" when nothing is.
func Check(r *model.Response) string {
	payload := jsonscan.New([]byte(r.Payload))
	switch {
	case !model.ValidToken(r.Command):
		return "commandToken is not the token of a command"
	case utf8.RuneCountInString(r.Nonce) > MaxNonce:
		return fmt.Sprintf("dispatchNonce must have at most %d characters", MaxNonce)
	case len(r.Payload) > MaxPayload:
		return fmt.Sprintf("payload is larger than %d bytes", MaxPayload)
	case len(r.Error) > MaxError:
		return fmt.Sprintf("error is larger than %d bytes", MaxError)
	case !storable(r.Nonce) || !storable(r.Payload) || !storable(r.Error):
		return "a text holds a character that cannot be stored"
	case r.Payload != "" && !documented(&payload):
		return "payload is no JSON text"
	case r.Success && r.Error != "":
		return "error belongs to an answer without success"
	}
	return ""
}

func storable(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }
