package model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"weir/internal/wire"
)

// Format versions that a record begins with. Format 2 has 16 bits of flags where format 1 has 8, and the fields that
// belong to the upper ones. It is written only for a record that needs one of them, so that others stay small.
const (
	recordVersion1 = 1
	recordVersion  = 2
)

// ErrRecord is returned when a record does not have the form that Weir writes.
var ErrRecord = errors.New("record is damaged")

// ErrRecordVersion is returned when a newer Weir wrote the record.
var ErrRecordVersion = errors.New("record has a newer format")

const (
	flagDup         = 1 << 0
	flagCredential  = 1 << 1
	flagTransport   = 1 << 2 // client id, packet id
	flagHash        = 1 << 3
	flagAccount     = 1 << 4 // Account is Tenant; else Account is written out
	flagUnset       = 1 << 5 // the clock was not set: Received.Wall is an estimate until the time map of the boot is known
	flagBehind      = 1 << 6 // the wall clock had gone back: Received.Shown is written out
	flagWide        = 1 << 7 // the first that does not fit in format 1, which read its flags as a uvarint; never set
	flagPartial     = 1 << 8
	flagPacketZero  = 1 << 9
	flagRelay       = 1 << 10 // link, number
	msgHasOccurred  = 1 << 0
	msgHasAltID     = 1 << 1
	entryHasOwnTime = 1 << 0

	knownFlags = flagDup | flagCredential | flagTransport | flagHash | flagAccount | flagUnset | flagBehind | flagPartial | flagPacketZero | flagRelay
)

// size estimates the encoded size of a record, so that memory is allocated once: a little too large for a message with
// measurements, perhaps too small for others.
func (r *Record) size() int {
	n := 96 + len(r.Transport) + len(r.Source) + len(r.Tenant) + len(r.Device) + len(r.ClientID) + len(r.Raw)
	if r.Report != nil {
		for i := range r.Report.Attributes {
			n += 8 + len(r.Report.Attributes[i].Key) + len(r.Report.Attributes[i].Value)
		}
	}
	if a := r.Response; a != nil {
		n += 16 + len(a.Command) + len(a.Nonce) + len(a.Payload) + len(a.Error)
	}
	if r.Message == nil {
		return n
	}
	n += len(r.Message.AltID)
	for i := range r.Message.Measurements {
		n += 12 + len(r.Message.Measurements[i].Metric)
	}
	return n
}

// AppendRecord appends r in its frozen form: version, kind, flags, the common fields, then the body of its kind. Anchor
// set, fence-set version, profile version and group ids are not part of it: they are resolved when the record is applied;
// a record that must carry them gets a flag of its own.
func AppendRecord(b []byte, r *Record) []byte {
	flags := r.flags()
	b = slices.Grow(b, r.size())
	if flags < flagWide {
		b = append(b, recordVersion1, byte(r.Kind), byte(flags))
	} else {
		b = binary.LittleEndian.AppendUint16(append(b, recordVersion, byte(r.Kind)), flags)
	}
	b = binary.LittleEndian.AppendUint64(b, r.Received.Boot)
	b = binary.AppendVarint(b, r.Received.Mono)
	b = binary.AppendVarint(b, int64(r.Received.Wall))
	if flags&flagBehind != 0 {
		b = binary.AppendVarint(b, int64(r.Received.Shown))
	}
	b = wire.AppendString(b, r.Transport)
	b = wire.AppendString(b, r.Source)
	b = wire.AppendString(b, r.Tenant)
	if flags&flagAccount == 0 {
		b = wire.AppendString(b, r.Account)
	}
	b = wire.AppendString(b, r.Device)
	b = append(b, byte(r.Verdict))
	b = binary.AppendUvarint(b, uint64(r.Bytes))
	if flags&flagCredential != 0 {
		b = binary.AppendVarint(b, r.Credential)
		b = binary.AppendVarint(b, r.DeviceID)
	}
	if flags&flagTransport != 0 {
		b = wire.AppendString(b, r.ClientID)
		b = binary.LittleEndian.AppendUint16(b, r.PacketID)
	}
	if flags&flagHash != 0 {
		b = append(b, r.Hash[:]...)
	}
	if flags&flagRelay != 0 {
		b = wire.AppendString(b, r.Relay.Link)
		b = binary.AppendUvarint(b, r.Relay.Number)
	}
	switch r.Kind {
	case KindMessage:
		b = appendMessage(b, r.Message)
	case KindRaw:
		b = wire.AppendString(b, r.Why)
		b = wire.AppendBytes(b, r.Raw)
	case KindPresence:
		p := r.Presence
		b = append(b, byte(p.State))
		b = wire.AppendString(b, p.Reason)
		b = binary.AppendUvarint(b, p.Session)
		b = binary.AppendUvarint(b, p.Expected)
		b = binary.AppendVarint(b, int64(p.Occurred))
	case KindDeviceReport:
		b = appendReport(b, r.Report)
	case KindFiring:
		f := r.Firing
		b = wire.AppendString(b, f.Profile)
		b = wire.AppendString(b, f.Rule)
		b = append(b, byte(f.Signal))
		b = binary.AppendVarint(b, int64(f.Occurred))
		if f.HasValue {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f.Value))
		}
	case KindCommandResponse:
		b = appendResponse(b, r.Response)
	case KindControl:
		c := r.Control
		b = binary.AppendUvarint(b, c.Sequence)
		b = binary.AppendUvarint(b, uint64(c.Part))
		b = binary.AppendUvarint(b, uint64(c.Parts))
		b = wire.AppendBytes(b, c.Body)
	case KindTimeMap:
		m := r.TimeMap
		b = binary.LittleEndian.AppendUint64(b, m.Boot)
		b = binary.AppendVarint(b, m.Mono)
		b = binary.AppendVarint(b, int64(m.Wall))
		guessed := byte(0)
		if m.Guessed {
			guessed = 1
		}
		b = append(b, guessed)
	}
	return b
}

// flags returns the set of the record's optional fields.
func (r *Record) flags() (flags uint16) {
	if r.Dup {
		flags |= flagDup
	}
	if r.Credential != 0 || r.DeviceID != 0 {
		flags |= flagCredential
	}
	if r.ClientID != "" || r.PacketID != 0 {
		flags |= flagTransport
	}
	if r.Hash != [16]byte{} {
		flags |= flagHash
	}
	if r.Account == r.Tenant {
		flags |= flagAccount
	}
	switch r.Received.Clock {
	case ClockUnset, ClockGuessed:
		flags |= flagUnset
	case ClockBehind:
		flags |= flagBehind
	}
	if r.Partial {
		flags |= flagPartial
	}
	if r.PacketZero {
		flags |= flagPacketZero
	}
	if r.Relay != nil {
		flags |= flagRelay
	}
	return flags
}

func appendMessage(b []byte, m *Message) []byte {
	var flags byte
	if m.HasOccurred {
		flags |= msgHasOccurred
	}
	if m.AltID != "" {
		flags |= msgHasAltID
	}
	b = append(b, byte(m.Type), flags)
	if m.HasOccurred {
		b = binary.AppendVarint(b, int64(m.Occurred))
	}
	if m.AltID != "" {
		b = wire.AppendString(b, m.AltID)
	}
	b = binary.AppendUvarint(b, uint64(m.Readings()))
	switch m.Type {
	case MeasurementEvent:
		for i := range m.Measurements {
			v := &m.Measurements[i]
			b = binary.AppendUvarint(b, uint64(v.Entry))
			b = appendEntryTime(b, v.Time)
			b = wire.AppendString(b, v.Metric)
			b = wire.AppendFloat(b, v.Value)
		}
	case LocationEvent:
		for i := range m.Locations {
			l := &m.Locations[i]
			b = appendEntryTime(b, l.Time)
			for _, f := range [...]float64{l.Latitude, l.Longitude, l.Elevation, l.Accuracy, l.Speed, l.Heading} {
				b = wire.AppendFloat(b, f)
			}
		}
	case AlertEvent:
		for i := range m.Alerts {
			a := &m.Alerts[i]
			b = appendEntryTime(b, a.Time)
			b = wire.AppendString(b, a.Type)
			b = binary.AppendVarint(b, int64(a.Level))
			b = wire.AppendString(b, a.Message)
			b = wire.AppendString(b, a.Source)
		}
	case NewRelationship:
		b = wire.AppendString(b, m.Relationship.Type)
		b = wire.AppendString(b, m.Relationship.TargetType)
		b = wire.AppendString(b, m.Relationship.Target)
	}
	return b
}

func appendReport(b []byte, r *Report) []byte {
	b = binary.AppendUvarint(b, uint64(len(r.Attributes)))
	for i := range r.Attributes {
		a := &r.Attributes[i]
		b = append(wire.AppendString(b, a.Key), byte(a.Type))
		if a.Type != ReportedNull {
			b = wire.AppendString(b, a.Value)
		}
	}
	return b
}

func appendResponse(b []byte, a *Response) []byte {
	success := byte(0)
	if a.Success {
		success = 1
	}
	b = append(b, success)
	for _, text := range [...]string{a.Command, a.Nonce, a.Payload, a.Error} {
		b = wire.AppendString(b, text)
	}
	return b
}

func appendEntryTime(b []byte, t EntryTime) []byte {
	if !t.Has {
		return append(b, 0)
	}
	return binary.AppendVarint(append(b, entryHasOwnTime), int64(t.At))
}

// DecodeRecord reads a record. The error wraps ErrRecord or ErrRecordVersion.
func DecodeRecord(b []byte) (*Record, error) { return new(RecordDecoder).Decode(b) }

// RecordDecoder reads records one after the other, at a lower cost than DecodeRecord: repeated names are kept once, and
// memory is allocated for many records at a time. It is used by one goroutine.
type RecordDecoder struct {
	names  *wire.Texts
	buffer []messageRecord
	free   []messageRecord // the unused part of buffer
}

// messageRecord is a record of one reading, in one allocation.
type messageRecord struct {
	Record
	message  Message
	readings [1]Reading
}

// Expect prepares memory for n records and uses that of the records expected before again. Those records must not be used
// any more; their strings may be.
func (d *RecordDecoder) Expect(n int) {
	if d.names == nil {
		d.names = new(wire.Texts)
	}
	if cap(d.buffer) < n {
		d.buffer = make([]messageRecord, n)
	}
	d.free = d.buffer[:n]
}

func (d *RecordDecoder) take() *messageRecord {
	if len(d.free) == 0 {
		return new(messageRecord)
	}
	m := &d.free[0]
	d.free = d.free[1:]
	*m = messageRecord{}
	return m
}

// Decode reads a record. The error wraps ErrRecord or ErrRecordVersion.
func (d *RecordDecoder) Decode(b []byte) (*Record, error) {
	r := wire.NewReaderWith(b, d.names)
	version := r.Byte()
	switch {
	case version > recordVersion:
		return nil, fmt.Errorf("%w: version %d, this Weir knows %d", ErrRecordVersion, version, recordVersion)
	case version < recordVersion1:
		return nil, fmt.Errorf("%w: version %d", ErrRecord, version)
	}
	kept := d.take()
	rec := &kept.Record
	rec.Kind = RecordKind(r.Byte())
	flags := uint16(r.Byte())
	if version == recordVersion {
		flags |= uint16(r.Byte()) << 8
	}
	if flags&^knownFlags != 0 || flags&flagUnset != 0 && flags&flagBehind != 0 {
		r.Fail(wire.ErrForm)
	}
	rec.Dup, rec.Partial, rec.PacketZero = flags&flagDup != 0, flags&flagPartial != 0, flags&flagPacketZero != 0
	rec.Received = Stamp{Boot: r.Uint64(), Mono: r.Varint(), Wall: Nanos(r.Varint())}
	switch {
	case flags&flagUnset != 0:
		rec.Received.Clock = ClockUnset
	case flags&flagBehind != 0:
		rec.Received.Clock, rec.Received.Shown = ClockBehind, Nanos(r.Varint())
	}
	rec.Transport, rec.Source, rec.Tenant = r.Name(), r.Name(), r.Name()
	if rec.Account = rec.Tenant; flags&flagAccount == 0 {
		rec.Account = r.Name()
	}
	rec.Device = r.Name()
	rec.Verdict = Verdict(r.Byte())
	rec.Bytes = uint32(r.Uvarint())
	if flags&flagCredential != 0 {
		rec.Credential, rec.DeviceID = r.Varint(), r.Varint()
	}
	if flags&flagTransport != 0 {
		rec.ClientID = r.Name()
		if p := r.Take(2); p != nil {
			rec.PacketID = binary.LittleEndian.Uint16(p)
		}
	}
	if flags&flagHash != 0 {
		copy(rec.Hash[:], r.Take(16))
	}
	if flags&flagRelay != 0 {
		rec.Relay = &Relay{Link: r.Name(), Number: r.Uvarint()}
	}
	switch rec.Kind {
	case KindMessage:
		rec.Message = kept.readMessage(r)
	case KindRaw:
		rec.Why, rec.Raw = r.String(), r.Bytes()
	case KindPresence:
		rec.Presence = &Presence{State: PresenceState(r.Byte()), Reason: r.String(), Session: r.Uvarint(),
			Expected: r.Uvarint(), Occurred: Nanos(r.Varint())}
	case KindDeviceReport:
		rec.Report = readReport(r)
	case KindFiring:
		f := &Firing{Profile: r.Name(), Rule: r.Name(), Signal: EdgeSignal(r.Byte()), Occurred: Micros(r.Varint())}
		if f.Signal != Raised && f.Signal != Resolved {
			r.Fail(wire.ErrForm)
		}
		if f.HasValue = r.Len() > 0; f.HasValue {
			f.Value = math.Float64frombits(r.Uint64())
		}
		rec.Firing = f
	case KindCommandResponse:
		rec.Response = readResponse(r)
	case KindControl:
		rec.Control = &Control{Sequence: r.Uvarint(), Part: uint16(r.Uvarint()), Parts: uint16(r.Uvarint()), Body: r.Bytes()}
	case KindTimeMap:
		m := &TimeMap{Boot: r.Uint64(), Mono: r.Varint(), Wall: Nanos(r.Varint())}
		guessed := r.Byte()
		if guessed > 1 {
			r.Fail(wire.ErrForm)
		}
		m.Guessed = guessed == 1
		rec.TimeMap = m
	case KindClock, KindEpochJump:
	default:
		r.Fail(fmt.Errorf("kind %d", rec.Kind))
	}
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	return rec, nil
}

// PeekRecord returns the kind of an encoded record and the boot that stamped it, and whether that had no time of day. It
// reads nothing else, for callers that look far ahead without decoding the records between.
func PeekRecord(b []byte) (kind RecordKind, boot uint64, unset bool) {
	if len(b) == 0 || b[0] < recordVersion1 || b[0] > recordVersion {
		return 0, 0, false
	}
	at := 2 + int(b[0]) // after version, kind, and one or two bytes of flags
	if len(b) < at+8 {
		return 0, 0, false
	}
	return RecordKind(b[1]), binary.LittleEndian.Uint64(b[at : at+8]), b[2]&flagUnset != 0
}

func (kept *messageRecord) readMessage(r *wire.Reader) *Message {
	m := &kept.message
	m.Type = EventType(r.Byte())
	flags := r.Byte()
	if m.HasOccurred = flags&msgHasOccurred != 0; m.HasOccurred {
		m.Occurred = Nanos(r.Varint())
	}
	if flags&msgHasAltID != 0 {
		m.AltID = r.String()
	}
	n := r.Count(2)
	switch m.Type {
	case MeasurementEvent:
		if m.Measurements = kept.readings[:]; n != 1 {
			m.Measurements = make([]Reading, n)
		}
		for i := range m.Measurements {
			m.Measurements[i] = Reading{Entry: uint16(r.Uvarint()), Time: readEntryTime(r), Metric: r.Name(), Value: r.Float()}
		}
	case LocationEvent:
		m.Locations = make([]Location, n)
		for i := range m.Locations {
			l := &m.Locations[i]
			l.Time = readEntryTime(r)
			for _, f := range [...]*float64{&l.Latitude, &l.Longitude, &l.Elevation, &l.Accuracy, &l.Speed, &l.Heading} {
				*f = r.Float()
			}
		}
	case AlertEvent:
		m.Alerts = make([]Alert, n)
		for i := range m.Alerts {
			m.Alerts[i] = Alert{Time: readEntryTime(r), Type: r.String(), Level: int32(r.Varint()), Message: r.String(), Source: r.String()}
		}
	case NewRelationship:
		m.Relationship = &Relationship{Type: r.String(), TargetType: r.String(), Target: r.String()}
	default:
		r.Fail(fmt.Errorf("event type %d", m.Type))
	}
	return m
}

func readReport(r *wire.Reader) *Report {
	p := &Report{Attributes: make([]Reported, r.Count(2))}
	for i := range p.Attributes {
		a := &p.Attributes[i]
		a.Key, a.Type = r.Name(), ReportedType(r.Byte())
		switch {
		case a.Type > ReportedJSON:
			r.Fail(fmt.Errorf("value type %d", a.Type))
		case a.Type != ReportedNull:
			a.Value = r.String()
		}
	}
	return p
}

func readResponse(r *wire.Reader) *Response {
	success := r.Byte()
	if success > 1 {
		r.Fail(wire.ErrForm)
	}
	return &Response{Success: success == 1, Command: r.String(), Nonce: r.String(), Payload: r.String(), Error: r.String()}
}

func readEntryTime(r *wire.Reader) EntryTime {
	if r.Byte()&entryHasOwnTime == 0 {
		return EntryTime{}
	}
	return EntryTime{At: Nanos(r.Varint()), Has: true}
}
