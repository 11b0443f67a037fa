package edgewire

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/internal/ranges"
)

// Topics returns the topics on which an edge and a Weir above speak to one another: up from the edge, down to it. device is the token of
// the device as which the edge signs in.
func Topics(instance, tenant, device string) (up, down string) {
	base := instance + "/" + tenant + "/edges/" + device
	return base + "/up", base + "/down"
}

// Bounds of the documents.
const (
	// MaxDocument is the largest document, in bytes.
	MaxDocument = 256 << 10
	// MaxRanges is how many ranges of numbers a document has at most.
	MaxRanges = 64
	maxText   = 256
	idBytes   = 16
)

// Kinds of documents.
const (
	KindHello   = "hello"   // up: who the edge is and what it has; a Welcome answers it
	KindState   = "state"   // up: the same, of a connection that stands; nothing answers it
	KindWelcome = "welcome" // down
)

// ErrDocument says that a document does not have the form of its kind.
var ErrDocument = errors.New("edgewire: not a document of an edge")

// Hello says who an edge is and what it has. Numbers are those of Epoch.
type Hello struct {
	Kind    string `json:"kind"`
	Install string `json:"installId"` // 32 lower-case hexadecimal digits
	Epoch   uint32 `json:"epoch"`
	Boot    string `json:"boot"` // random, of this start of the edge
	// Nonce is repeated by the answer.
	Nonce string `json:"nonce,omitempty"`
	// Machine is a hash of the machine's id and the installation's; "": the machine has none.
	Machine string `json:"machineId,omitempty"`
	Version string `json:"version"`
	// First is the first number of the epoch, Newest the highest one that was given: First-1 for none. Everything up to Position has left the edge;
	// Oldest is the lowest one that the edge could send again.
	First    uint64 `json:"first"`
	Newest   uint64 `json:"newest"`
	Position uint64 `json:"position"`
	Oldest   uint64 `json:"oldest"`
	// Absent are numbers up to Position that were never taken above: dead letters of the edge, and what it dropped.
	Absent ranges.Set `json:"absent,omitempty"`
	// What waits.
	Waiting       uint64  `json:"waiting"`
	OldestSeconds float64 `json:"oldestSeconds"`
	Bytes         int64   `json:"bytes"`
	MaxBytes      int64   `json:"maxBytes"`
	// Runs are the profiles whose rules with placement EDGE the site runs. What it says is in force above before the answer: messages that follow it are
	// not judged there by these rules.
	Runs []Runs `json:"runs,omitempty"`
	// Time is the time of day by the edge, nil where it does not know it.
	Time *time.Time `json:"time,omitempty"`
}

// Link is the name under which the numbers of an epoch are kept above.
func (h *Hello) Link() string {
	return "edge:" + h.Install + ":" + strconv.FormatUint(uint64(h.Epoch), 10)
}

// Welcome answers a hello.
type Welcome struct {
	Kind  string    `json:"kind"`
	Nonce string    `json:"nonce"`
	Time  time.Time `json:"time"`
	// Partitions is into how many sequences the numbers are divided; always 1.
	Partitions int `json:"partitions"`
	// Complete says that Ranges are all numbers of the epoch that are above; else it is not known now.
	Complete bool       `json:"complete"`
	Ranges   ranges.Set `json:"ranges"`
	// Frames says that frames are taken (FrameTopic).
	Frames bool `json:"frames,omitempty"`
	// Carried are numbers of the epoch that were carried by hand: messages that are above without having been sent. They are exact, where Ranges may
	// hold more than there is.
	Carried ranges.Set `json:"carried,omitempty"`
	// CarryKey is the key to which a file is sealed that is carried by hand, "" for none.
	CarryKey string `json:"carryKey,omitempty"`
	// Renew says why the edge is to begin as another installation before it sends, "" when it may go on: its numbers may already be those of
	// other messages.
	Renew string `json:"renew,omitempty"`
}

// Lacking returns the numbers that have left the edge and are not above, although they should be: gone are those that the edge has no more,
// wanted those that it can send again. Both sides compute the same.
func Lacking(h *Hello, w *Welcome) (gone, wanted ranges.Set) {
	if !w.Complete || h.First > h.Position {
		return nil, nil
	}
	return ranges.Lacking(h.First, h.Position, w.Ranges, h.Absent).Split(h.Oldest)
}

// kindOf returns the kind of a document.
func kindOf(b []byte) (string, error) {
	if len(b) > MaxDocument {
		return "", fmt.Errorf("%w: %d bytes, at most %d", ErrDocument, len(b), MaxDocument)
	}
	var d struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(b, &d); err != nil {
		return "", fmt.Errorf("%w: %w", ErrDocument, err)
	}
	return d.Kind, nil
}

// ParseHello reads a hello or a state. Members that it does not know are left out, so that an edge may be newer.
func ParseHello(b []byte) (*Hello, error) {
	kind, err := kindOf(b)
	if err != nil {
		return nil, err
	}
	if kind != KindHello && kind != KindState {
		return nil, fmt.Errorf("%w: kind is not %s or %s", ErrDocument, KindHello, KindState)
	}
	h := &Hello{}
	if err := json.Unmarshal(b, h); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	if why := h.check(); why != "" {
		return nil, fmt.Errorf("%w: %s", ErrDocument, why)
	}
	return h, nil
}

func (h *Hello) check() string {
	const most = 1 << 62
	switch {
	case !ValidID(h.Install):
		return "installId is not 32 lower-case hexadecimal digits"
	case h.Machine != "" && !ValidID(h.Machine):
		return "machineId is not 32 lower-case hexadecimal digits"
	case h.Epoch == 0:
		return "epoch is 0"
	case !validText(h.Boot) || !validText(h.Nonce) || !validText(h.Version):
		return "a text has control characters or more than 256 bytes"
	case h.First == 0 || h.Newest > most || h.Newest < h.First-1 || h.Position > h.Newest || h.Oldest == 0 || h.Oldest > h.Newest+1:
		return "first, position, oldest and newest are not in order"
	case h.Waiting > most || h.Bytes < 0 || h.MaxBytes < 0 || h.OldestSeconds < 0:
		return "an amount is out of range"
	case h.Absent.Check(MaxRanges) != nil || h.Absent.Last() > h.Newest:
		return "absent are not ranges in order"
	}
	return checkRuns(h.Runs)
}

// ParseWelcome reads a welcome.
func ParseWelcome(b []byte) (*Welcome, error) {
	kind, err := kindOf(b)
	if err != nil {
		return nil, err
	}
	w := &Welcome{}
	switch err := json.Unmarshal(b, w); {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	case kind != KindWelcome:
		return nil, fmt.Errorf("%w: kind is not %s", ErrDocument, KindWelcome)
	case !validText(w.Nonce) || !validText(w.Renew) || !validText(w.CarryKey):
		return nil, fmt.Errorf("%w: a text has control characters or more than 256 bytes", ErrDocument)
	case w.Partitions != 1:
		return nil, fmt.Errorf("%w: %d partitions, this edge knows one", ErrDocument, w.Partitions)
	case w.Ranges.Check(MaxRanges) != nil, w.Carried.Check(MaxRanges) != nil:
		return nil, fmt.Errorf("%w: ranges are not in order", ErrDocument)
	}
	return w, nil
}

// ValidID reports whether a text is the id of an installation.
func ValidID(text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && len(b) == idBytes && strings.ToLower(text) == text
}

func validText(s string) bool {
	return len(s) <= maxText && strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0
}

// validToken reports whether a text is an entity token, as model.ValidToken does, which is not known here.
func validToken(s string) bool {
	const longest = 128
	return s != "" && len(s) <= longest && s[0] != '-' && s[0] != '_' && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}) < 0
}
