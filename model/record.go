package model

import "strconv"

// RecordKind is the kind of a record of the log. The numbers are frozen.
type RecordKind uint8

// The kinds of records.
const (
	KindMessage         RecordKind = 1  // a decoded message
	KindRaw             RecordKind = 2  // a message that did not decode; its bytes sealed with the root key
	KindPresence        RecordKind = 3  // a device connected or disconnected
	KindControl         RecordKind = 4  // a metadata change
	KindClock           RecordKind = 5  // only advances the time
	KindTimeMap         RecordKind = 6  // maps a boot's monotonic time to wall time
	KindEpochJump       RecordKind = 7  // the log was lost; offsets continue above the results
	KindCommandResponse RecordKind = 8  // what a device answers to a command
	KindDeviceReport    RecordKind = 9  // attributes that a device reports of itself
	KindFiring          RecordKind = 10 // an edge of a rule that a site has judged
)

// ClockState is the reliability of a stamp's wall time.
type ClockState uint8

// The clock states. The first three are written; ClockUnset becomes ClockGuessed when the wall time of its boot will
// never be known.
const (
	ClockSure    ClockState = 0
	ClockUnset   ClockState = 1 // no time of day was known yet: the time map of the boot gives it
	ClockBehind  ClockState = 2 // the wall clock went far back: Shown is its time, Wall advances slowly
	ClockGuessed ClockState = 3
)

// Stamp is when Weir received something. Wall never decreases from one record to the next.
type Stamp struct {
	Boot  uint64 // random id of the process start that received it
	Mono  int64  // nanoseconds of monotonic time since that start
	Wall  Nanos  // ClockUnset: the newest stamp before the start plus the time since
	Clock ClockState
	Shown Nanos // ClockBehind: time of the wall clock; 0 when that was no time of day either
	// Counted is the wall time by which the ledger counted the record, if the time map has changed Wall since; 0: Wall. It
	// is not part of a record.
	Counted Nanos
}

// Hour is the hour of the ledger in which the stamp counts: that of its original wall time.
func (s Stamp) Hour() int64 {
	if s.Counted != 0 {
		return s.Counted.Hour()
	}
	return s.Wall.Hour()
}

// TimeMap maps a moment of a boot's monotonic time to wall time.
type TimeMap struct {
	Boot uint64
	Mono int64
	Wall Nanos
	// Guessed: the wall time of the boot is unknown; its stamps keep their original values.
	Guessed bool
}

// At returns the wall time of a receipt at mono.
func (m TimeMap) At(mono int64) Nanos { return m.Wall - Nanos(m.Mono-mono) }

// Verdict is the intake's result of checking the credentials of a message. It takes effect when the record is applied.
type Verdict uint8

// The verdicts. Only VerdictOK lets a message through.
const (
	VerdictOK           Verdict = 0 // verified, or none needed
	VerdictMissing      Verdict = 1 // none presented though one is required
	VerdictBad          Verdict = 2 // presented, but wrong, disabled or expired
	VerdictOtherDevice  Verdict = 3 // valid, but of another device than the named one
	VerdictNotSupported Verdict = 4 // a proof that this transport cannot verify, such as a certificate id in a body
)

// Record is one entry of the log, decoded.
type Record struct {
	Kind      RecordKind
	Transport string // transport, the ledger's key: mqtt, http, …
	Source    string // event source id: mqtt1, http1, …
	Tenant    string // as named by the sender
	Account   string // tenant whose ledger counted it as received; "" for unknown tenants
	Device    string // as named, or that of the credential
	Received  Stamp
	// Credential is the row id of the credential that proved DeviceID, 0 when none was verified.
	Credential int64
	DeviceID   int64 // row id of the device that the credential belongs to
	Verdict    Verdict
	Partial    bool   // readings over a series limit become a dead letter, the others are stored
	PacketZero bool   // PacketID 0 is an id (CoAP); otherwise 0 means none
	ClientID   string // client of the transport; packet ids belong to it
	PacketID   uint16
	Dup        bool     // the sender marked it as possibly repeated
	Hash       [16]byte // first half of SHA-256 of the payload; identifies a repeat
	Bytes      uint32   // size of the payload as sent
	Relay      *Relay   // nil when the sender reached this instance itself

	Message  *Message  // KindMessage
	Raw      []byte    // KindRaw: sealed payload
	Why      string    // KindRaw: why it did not decode
	Report   *Report   // KindDeviceReport
	Response *Response // KindCommandResponse
	Presence *Presence // KindPresence
	Control  *Control  // KindControl
	Firing   *Firing   // KindFiring
	TimeMap  *TimeMap  // KindTimeMap
}

// Relay is the link over which an edge relayed a record, and its number there.
type Relay struct {
	Link   string
	Number uint64
}

// Firing is an edge of a rule of the record's device that a site has judged.
type Firing struct {
	Profile, Rule string // tokens
	Signal        EdgeSignal
	Occurred      Micros
	Value         float64
	HasValue      bool
}

// FiringLink is the link under which the ids of the firings of an epoch of an installation are known, as the numbers of messages are under theirs.
func FiringLink(install string, epoch uint32) string {
	return "firings:" + install + ":" + strconv.FormatUint(uint64(epoch), 10)
}

// PresenceState is the state of a device that a transport reports.
type PresenceState uint8

// The presence states.
const (
	Connected    PresenceState = 1
	Disconnected PresenceState = 2
	Demoted      PresenceState = 3
)

func (s PresenceState) String() string {
	switch s {
	case Connected:
		return "CONNECTED"
	case Disconnected:
		return "DISCONNECTED"
	case Demoted:
		return "DEMOTED"
	}
	return "PresenceState(?)"
}

// Presence is a transition that a transport asserts.
type Presence struct {
	State    PresenceState
	Reason   string
	Session  uint64 // nanoseconds at connection start, at least the stored one + 1
	Expected uint64 // see the claim order of the wire formats; 0 when not given
	Occurred Nanos
}

// Control is a metadata change or a part of one. A change larger than one record is split into several records of one
// Sequence and is effective from the last.
type Control struct {
	Sequence uint64
	Part     uint16 // from 0
	Parts    uint16
	Body     []byte // part of the encoded []ViewChange
}

// Readings is the number of readings the record carries, 0 for all kinds but decoded messages.
func (r *Record) Readings() int {
	if r.Message == nil {
		return 0
	}
	return r.Message.Readings()
}

// Taken is how many readings the record takes from the ceiling of its tenant: an attribute of a device report counts as one, and what
// carries none counts as one.
func (r *Record) Taken() int {
	if r.Report != nil {
		return max(1, len(r.Report.Attributes))
	}
	return max(1, r.Readings())
}
