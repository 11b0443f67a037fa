// Package vocabulary compares what a rule names with what there is. A name that is not known is no offence, since it may come to exist:
// it is a warning, with the nearest name that is.
package vocabulary

import (
	"fmt"
	"slices"
	"strings"

	"weir/internal/similar"
)

// Vocabulary are the names of what rules speak of: what a rule names, or what there is. Of what there is, a nil list is unknown.
type Vocabulary struct {
	Metrics    []string // of the profile; one that declares none takes any
	Commands   []string // of the profile
	Fences     []string // of the tenant
	Connectors []string // of the tenant
	// SourceNames are, of what there is, names under which readings are sent and not judged, each with the metric that they are judged under.
	SourceNames map[string]string
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
