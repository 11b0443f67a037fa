package ingest

import (
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"weir/model"
)

// Limits of the ingest event.
const (
	maxAltID      = 128 // characters
	maxMetricName = 128
	maxCredential = 1024 // characters of a credential member
)

// The functions below hold the bounds and the form of a message: what can be checked without the device, the clock or the
// registry. Each returns what is wrong, "" when nothing is. The JSON decoder calls them where it reads the part in
// question; a message that a transport decoded goes through checkMessage, which calls the same ones.

// checkMessage checks a message that a transport decoded.
func checkMessage(m *model.Message) *DecodeError {
	if why := checkCount(m.Readings()); why != "" {
		return &DecodeError{Reason: ReasonTooManyReadings, Text: why}
	}
	if why := checkParts(m); why != "" {
		return &DecodeError{Reason: ReasonUndecodable, Text: why}
	}
	return nil
}

func checkParts(m *model.Message) (why string) {
	first := func(found string) {
		if why == "" {
			why = found
		}
	}
	first(checkText(m.AltID))
	first(checkBound("altId", m.AltID, maxAltID))
	first(checkType(m.Type.String()))
	first(checkSlices(m))
	if why != "" {
		return why
	}
	for i := range m.Measurements {
		first(checkReading(m.Measurements, i))
	}
	for i := range m.Locations {
		first(checkLocation(&m.Locations[i]))
	}
	for i := range m.Alerts {
		a := &m.Alerts[i]
		first(checkText(a.Type, a.Message, a.Source))
		first(checkAlert(a))
	}
	if m.Relationship != nil {
		first(checkText(m.Relationship.Type, m.Relationship.TargetType, m.Relationship.Target))
		first(checkRelationship(m.Relationship))
	}
	return why
}

// checkSlices checks that a message has the entries of its type and no others.
func checkSlices(m *model.Message) string {
	n := 0
	switch m.Type {
	case model.MeasurementEvent:
		n = len(m.Measurements)
	case model.LocationEvent:
		n = len(m.Locations)
	case model.AlertEvent:
		n = len(m.Alerts)
	}
	switch {
	case m.Type == model.NewRelationship && m.Relationship == nil:
		return relationshipIncomplete
	case (m.Type == model.NewRelationship) != (m.Relationship != nil), n != m.Readings():
		return "a message holds entries of its own type only"
	case m.Type != model.NewRelationship:
		return checkEntries(n)
	}
	return ""
}

// checkReading checks the i-th reading of a message: its name, its value, and that the readings of an entry come together.
func checkReading(all []model.Reading, i int) string {
	r, first := &all[i], i
	for first > 0 && all[first-1].Entry == r.Entry {
		first--
	}
	// Entries are numbered without gaps, in order.
	next := uint16(0)
	if first > 0 {
		next = all[first-1].Entry + 1
	}
	switch {
	case r.Entry != next:
		return "entries are numbered from 0, one after the other"
	case r.Time != all[first].Time:
		return "the readings of an entry have one time"
	}
	if why := checkText(r.Metric); why != "" {
		return why
	}
	if why := checkMetric(all[first:i], r.Metric); why != "" {
		return why
	}
	return checkFinite("the value of a metric", r.Value)
}

// checkType checks the name of an event type.
func checkType(name string) string {
	switch name {
	case "Measurement", "Location", "Alert", "NewRelationship":
		return ""
	case "StateChange", "CommandInvocation", "CommandResponse":
		return fmt.Sprintf("eventType %s is the platform's own", name)
	}
	return "eventType must be Measurement, Location, Alert or NewRelationship"
}

func checkCount(readings int) string {
	if readings > model.MaxReadings {
		return fmt.Sprintf("a message may carry at most %d readings", model.MaxReadings)
	}
	return ""
}

func checkEntries(n int) string {
	if n == 0 {
		return "entries must hold at least one entry"
	}
	return ""
}

// checkMetric checks the name of a metric against its bounds and against the readings of its entry before it.
func checkMetric(before []model.Reading, name string) string {
	if name == "" || utf8.RuneCountInString(name) > maxMetricName {
		return fmt.Sprintf("a metric's name must have 1 to %d characters", maxMetricName)
	}
	for i := range before {
		if before[i].Metric == name {
			return fmt.Sprintf("metric %q is given twice", name)
		}
	}
	return ""
}

func checkFinite(what string, v float64) string {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return what + " " + notFinite
	}
	return ""
}

const notFinite = "must be a string that holds a finite number"

// checkLocation returns what is out of range. A direction is stored to 4 decimals, so a value that would round to 360 is
// refused.
func checkLocation(l *model.Location) string {
	switch {
	case math.IsNaN(l.Latitude) || math.IsNaN(l.Longitude):
		return "latitude and longitude are required"
	case math.Abs(l.Latitude) > 90:
		return "latitude must lie in -90..90"
	case math.Abs(l.Longitude) > 180:
		return "longitude must lie in -180..180"
	case math.Abs(l.Elevation) > 99_999_999:
		return "elevation must lie in -99999999..99999999"
	case l.Accuracy < 0:
		return "accuracy must not be negative"
	case l.Speed < 0:
		return "speed must not be negative"
	case l.Heading < 0 || math.Round(l.Heading*1e4) >= 360e4:
		return "heading must lie in 0..360, 360 excluded"
	case math.IsInf(l.Accuracy, 1):
		return checkFinite("accuracy", l.Accuracy)
	case math.IsInf(l.Speed, 1):
		return checkFinite("speed", l.Speed)
	}
	return ""
}

func checkAlert(a *model.Alert) string {
	switch {
	case a.Level < 0:
		return levelRange
	case a.Type == "":
		return "type is required and must not be empty"
	}
	return ""
}

const (
	levelRange             = "level must be a whole number in 0..2147483647"
	relationshipIncomplete = "relationshipType, targetType and target are required"
)

func checkRelationship(r *model.Relationship) string {
	switch {
	case r.Type == "" || r.TargetType == "" || r.Target == "":
		return relationshipIncomplete
	case !slices.Contains([]string{"device", "asset", "area", "customer", "group"}, r.TargetType):
		return "targetType must be device, asset, area, customer or group"
	}
	return ""
}

func checkBound(what, s string, most int) string {
	if utf8.RuneCountInString(s) > most {
		return fmt.Sprintf("%s must have at most %d characters", what, most)
	}
	return ""
}

// checkText checks texts for what JSON cannot hold. The scanner has checked those of a JSON event.
func checkText(all ...string) string {
	for _, s := range all {
		if !utf8.ValidString(s) {
			return "string is not valid UTF-8"
		}
	}
	return ""
}
