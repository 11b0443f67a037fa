// Package vocabulary compares what a rule names with what there is. A name that is not known is no offence, since it may come to exist:
// it is a warning, with the nearest name that is.
package vocabulary

import (
	"fmt"
	"slices"
	"strings"

	"weir/internal/similar"
	"weir/model"
)

// Vocabulary are the names of what rules speak of: what a rule names, or what there is. Of what there is, a nil list is unknown.
type Vocabulary struct {
	Metrics    []string // of the profile; one that declares none takes any
	Commands   []string // of the profile
	Fences     []string // of the tenant
	Connectors []string // of the tenant
	// SourceNames are, of what there is, names under which readings are sent and not judged, each with the metric that they are judged under.
	SourceNames map[string]string
	// Ranges are, of what there is, the declared ranges of metrics that have one.
	Ranges map[string]Range
}

// Range is the declared range of a metric: its bounds, nil for none, and what becomes of a value outside them.
type Range struct {
	Min, Max   *float64
	OutOfRange string // model.OutOfRange…; "" is as REFUSE
}

// String is the range as a person reads it, "0..40".
func (r Range) String() string { return bound(r.Min) + ".." + bound(r.Max) }

func bound(x *float64) string {
	if x == nil {
		return ""
	}
	return fmt.Sprint(*x)
}

// beyond says what a rule sees of a value outside the range.
func (r Range) beyond() string {
	switch r.OutOfRange {
	case model.OutOfRangeFlag:
		return "only a value outside the range crosses it; outOfRange: FLAG keeps such a value and lets rules judge it"
	case model.OutOfRangeClamp:
		return "no value crosses it, because outOfRange: CLAMP replaces a value outside the range by the bound"
	}
	return "no value crosses it, because outOfRange: REFUSE makes a value outside the range a dead letter; FLAG would keep it"
}

// Outside warns of the threshold of a metric that lies outside its declared range.
func (there *Vocabulary) Outside(metric string, threshold float64) []Warning {
	r, ok := there.Ranges[metric]
	if !ok || (r.Min == nil || threshold >= *r.Min) && (r.Max == nil || threshold <= *r.Max) {
		return nil
	}
	at := fmt.Sprint(threshold)
	return []Warning{{ThresholdOutside, []string{metric, at, r.String()}, fmt.Sprintf("%s lies outside of the range of the metric %q, %s: %s", at, metric, r, r.beyond())}}
}

// Warning is an advisory finding on a rule that compiled.
type Warning struct {
	Code    string
	Params  []string // what the text interpolates, in a fixed order per code
	Message string   // English
}

// Codes of the warnings. Their params are the name, and the nearest one that there is, "" for none.
const (
	UnknownMetric    = "unknownMetric"
	UnknownCommand   = "unknownCommand"
	UnknownFence     = "unknownFence"
	UnknownConnector = "unknownConnector"
)

// ThresholdOutside is the code of a threshold outside the declared range of its metric. Its params are the metric, the threshold and the range.
const ThresholdOutside = "thresholdOutsideRange"

// Missing warns of each name that is not there.
func (there *Vocabulary) Missing(named Vocabulary) (ws []Warning) {
	if len(there.Metrics) > 0 {
		ws = missing(there.misnamed(&named), UnknownMetric, "the profile declares no metric", named.Metrics, there.Metrics)
	}
	ws = missing(ws, UnknownCommand, "the profile declares no command", named.Commands, there.Commands)
	ws = missing(ws, UnknownFence, "there is no geofence", named.Fences, there.Fences)
	return missing(ws, UnknownConnector, "there is no connector", named.Connectors, there.Connectors)
}

// misnamed warns of metrics that are named as devices send them, and takes them from what is named.
func (there *Vocabulary) misnamed(named *Vocabulary) (ws []Warning) {
	if len(there.SourceNames) == 0 {
		return nil
	}
	named.Metrics = slices.DeleteFunc(slices.Clone(named.Metrics), func(name string) bool {
		key, ok := there.SourceNames[name]
		if ok {
			ws = append(ws, Warning{UnknownMetric, []string{name, key}, fmt.Sprintf("%q is a source name of the metric %q: its readings are judged as %[2]q", name, key)})
		}
		return ok
	})
	return ws
}

func missing(ws []Warning, code, text string, named, there []string) []Warning {
	for _, name := range named {
		if there == nil || slices.Contains(there, name) {
			continue
		}
		near := similar.Nearest(name, there)
		message := fmt.Sprintf("%s %q", text, name)
		switch {
		case near != "":
			message += " (did you mean " + near + "?)"
		case len(there) > 0:
			message += " (there are " + shortened(strings.Join(there, ", ")) + ")"
		}
		ws = append(ws, Warning{code, []string{name, near}, message})
	}
	return ws
}

// shortened bounds a list in a text.
func shortened(list string) string {
	const limit = 200
	if len(list) <= limit {
		return list
	}
	return strings.ToValidUTF8(list[:limit], "") + "…"
}
