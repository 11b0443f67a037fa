package model

// EventType is the kind of an event, with the numbers of the API.
type EventType uint8

// The event types. The platform makes the last three; they are refused from devices.
const (
	NewRelationship EventType = iota
	LocationEvent
	MeasurementEvent
	AlertEvent
	StateChange
	CommandInvocation
	CommandResponse
)

var eventTypeNames = [...]string{"NewRelationship", "Location", "Measurement", "Alert", "StateChange", "CommandInvocation", "CommandResponse"}

func (t EventType) String() string {
	if int(t) < len(eventTypeNames) {
		return eventTypeNames[t]
	}
	return "EventType(?)"
}

// MaxReadings is the maximum number of readings in one message, on every transport.
const MaxReadings = 256

// Message is an ingest event as a device sent it, decoded and checked for form. Exactly the slice that belongs to Type
// is filled. Times are as sent: their limits are checked against the receive time when the record is applied.
type Message struct {
	Type         EventType
	AltID        string
	Occurred     Nanos // of the event; valid when HasOccurred
	HasOccurred  bool
	Measurements []Reading
	Locations    []Location
	Alerts       []Alert
	Relationship *Relationship
}

// Readings is the number of readings: metric values, location entries or alert entries.
func (m *Message) Readings() int {
	return len(m.Measurements) + len(m.Locations) + len(m.Alerts)
}

// EntryTime is the time of one entry; Has is false when the entry has none and the event's time counts.
type EntryTime struct {
	At  Nanos
	Has bool
}

// Reading is one metric value. Readings of one entry share Entry and Time and are one sample to the rules.
type Reading struct {
	Entry  uint16
	Mark   RangeMark // given when the record is applied; not part of a record
	Metric string
	Value  float64
	Time   EntryTime
}

// Location is one position. Absent coordinates are NaN. Latitude and longitude in degrees, elevation and accuracy in
// metres, speed in metres per second, heading in degrees from north.
type Location struct {
	Latitude, Longitude, Elevation, Accuracy, Speed, Heading float64
	Time                                                     EntryTime
}

// Alert is one alert entry.
type Alert struct {
	Type, Message, Source string
	Level                 int32
	Time                  EntryTime
}

// Relationship is the payload of a NewRelationship event.
type Relationship struct {
	Type, TargetType, Target string
}
