package provision

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"weir/model"
)

// Bounds of a request.
const (
	MaxBody     = 64 << 10
	maxName     = 128 // characters
	maxMetadata = 4 << 10
)

// Request is what a device asks. Of MQTT key and secret are in the CONNECT.
type Request struct {
	Key      string          `json:"provisionKey"`
	Secret   string          `json:"provisionSecret"`
	Device   string          `json:"deviceToken"`
	Name     *string         `json:"name"`
	Metadata json.RawMessage `json:"metadata"`
}

// Answer is what a device gets.
type Answer struct {
	Tenant         string `json:"tenant"`
	Device         string `json:"deviceToken"`
	CredentialType string `json:"credentialType"`
	CredentialID   string `json:"credentialId"`
	Created        bool   `json:"created"` // the device was made by this request
}

// Reply is how a request ends: with an Answer, or as an error with a status of HTTP and a line of text.
type Reply struct {
	Status     int
	Answer     *Answer // of status 200
	Text       string  // of any other
	RetryAfter int     // seconds, 0 for none

	outcome string
	err     error // what is behind a status of 500 and above
}

func (r *Reply) Error() string { return r.Text }

// Unwrap returns what is behind the reply, which no client is shown.
func (r *Reply) Unwrap() error { return r.err }

// Body is the reply as a device gets it: the answer, or its status.
func (r *Reply) Body() []byte {
	var v any = r.Answer
	if r.Answer == nil {
		v = map[string]int{"status": r.Status}
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts and numbers have a JSON form
	}
	return b
}

// refused is the one refusal: its text is the same whatever the outcome that is counted.
func refused(outcome string) *Reply {
	return &Reply{Status: 403, Text: "the device is not provisioned", outcome: outcome, err: errSecret}
}

func malformed(format string, args ...any) *Reply {
	return &Reply{Status: 400, Text: fmt.Sprintf(format, args...), outcome: outcomeMalformed}
}

func tooMany(outcome string, wait time.Duration) *Reply {
	return &Reply{Status: 429, Text: "too many requests", RetryAfter: seconds(wait), outcome: outcome}
}

// ParseRequest reads the body of a request. Members that it does not know are left out, as everywhere where devices send.
func ParseRequest(body []byte) (*Request, error) {
	if len(body) > MaxBody {
		return nil, malformed("the body is larger than %d bytes", MaxBody)
	}
	if !utf8.Valid(body) {
		return nil, malformed("the body is no text in UTF-8")
	}
	q := new(Request)
	if !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) || json.Unmarshal(body, q) != nil {
		return nil, malformed("the body is no JSON object of a provisioning request")
	}
	switch {
	case !model.ValidToken(q.Device):
		return nil, malformed("deviceToken: must be 1 to 128 letters, digits, - and _, the first a letter or a digit")
	case q.Name != nil && utf8.RuneCountInString(*q.Name) > maxName:
		return nil, malformed("name: is longer than %d characters", maxName)
	case q.Name != nil && strings.ContainsRune(*q.Name, 0):
		return nil, malformed("name: holds a character that cannot be stored")
	}
	return q, q.readMetadata()
}

// readMetadata puts the metadata into the form in which the API has it: JSON as text. A text is taken as the JSON that it holds.
func (q *Request) readMetadata() error {
	var text string
	switch {
	case len(q.Metadata) == 0 || string(q.Metadata) == "null":
		q.Metadata = nil
		return nil
	case json.Unmarshal(q.Metadata, &text) == nil:
		q.Metadata = json.RawMessage(text)
	}
	switch {
	case len(q.Metadata) > maxMetadata:
		return malformed("metadata: is larger than %d bytes", maxMetadata)
	case !json.Valid(q.Metadata) || strings.TrimSpace(string(q.Metadata)) == "null":
		return malformed("metadata: is no JSON document")
	}
	return nil
}

// Provision answers a request whose body holds key and secret. Throttled has admitted its address.
func (p *Provision) Provision(ctx context.Context, body []byte) *Reply {
	q, err := ParseRequest(body)
	if err != nil {
		return replyOf(p.failed(err))
	}
	if q.Key == "" || q.Secret == "" {
		return replyOf(p.failed(malformed("provisionKey and provisionSecret are required")))
	}
	g, err := p.Admit(ctx, q.Key, q.Secret)
	if err != nil {
		return replyOf(err)
	}
	return p.enroll(ctx, g, q)
}

// Enroll answers a request of a client that Admit has admitted.
func (p *Provision) Enroll(ctx context.Context, g *Grant, body []byte) *Reply {
	q, err := ParseRequest(body)
	if err != nil {
		return replyOf(p.failed(err))
	}
	return p.enroll(ctx, g, q)
}
