package mqttsource

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"weir/model"
)

// mapping is a mapping of a source, ready to be used.
type mapping struct {
	source   *Source
	settings Mapping
	place    string // in the configuration: external_mqtt.sources[0].map[1]
	topic    *template
	device   *text
	metric   *text // nil: there is none

	devicePath path
	timePath   path
	values     []valuePath
	commands   *commands                      // nil: there are none
	numbers    map[string]float64             // words of numbers, in lower case
	ownWords   map[string]float64             // those that the mapping names
	states     map[string]model.PresenceState // words of presence, in lower case
}

// valuePath is a metric and where its value stands.
type valuePath struct {
	name, text string
	path       path
}

// Forms of payloads.
const (
	decodeEvent    = "event"
	decodeJSON     = "json"
	decodeNumber   = "number"
	decodeCBOR     = "cbor"
	decodePresence = "presence"
	decodeIgnore   = "ignore" // of presets: what they are not to take for readings
)

// mappings are those of a source, in the order in which they decide.
type mappings []*mapping

// Fault is what is wrong with a key of a source.
type Fault struct {
	Key    string // below the source: map[0].topic
	Reason string
}

func (f *Fault) Error() string { return f.Key + ": " + f.Reason }

// compile makes the mappings of a source. place is that of the source in the configuration. The errors are *Fault.
func (s *Source) compile(place string) (all mappings, faults []*Fault) {
	for i := range s.Map {
		key := fmt.Sprintf("map[%d]", i)
		several, err := expand(s.Map[i])
		if err != nil {
			faults = append(faults, &Fault{key + ".decode", err.Error()})
			continue
		}
		for _, one := range several {
			m := &mapping{source: s, settings: one, place: place + "." + key}
			if fault := m.compile(); fault != nil {
				fault.Key = key + "." + fault.Key
				faults = append(faults, fault)
				break
			}
			all = append(all, m)
		}
	}
	return all, faults
}

// expand returns the mappings that one with a preset stands for, or itself.
func expand(m Mapping) ([]Mapping, error) {
	if slices.Contains([]string{decodeEvent, decodeJSON, decodeNumber, decodeCBOR, decodePresence, decodeIgnore}, m.Decode) {
		return []Mapping{m}, nil
	}
	preset, ok := presets[m.Decode]
	if !ok {
		return nil, fmt.Errorf("must be one of event, json, number, cbor, presence, %s", strings.Join(slices.Sorted(maps.Keys(presets)), ", "))
	}
	if m.Topic != "" {
		return nil, errors.New("is a preset, which has topics of its own: leave topic out, or set prefix")
	}
	all := preset(strings.Trim(m.Prefix, "/"))
	for i := range all {
		all[i].Tenant = m.Tenant
		if m.Device != "" {
			all[i].Device = m.Device
		}
		if m.Commands.Topic != "" && all[i].Commands.Topic != "" {
			all[i].Commands = m.Commands
		}
		all[i].Include = m.Include
		all[i].Exclude = append(all[i].Exclude, m.Exclude...)
		all[i].Commands.Complete = cmp.Or(all[i].Commands.Complete, byResponse)
		if all[i].TimeFormat == "" {
			all[i].TimeFormat = "rfc3339"
		}
	}
	return all, nil
}

// compile parses what the settings say.
func (m *mapping) compile() *Fault {
	s := &m.settings
	var err error
	if m.topic, err = parseTemplate(s.Topic); err != nil {
		return &Fault{"topic", err.Error()}
	}
	if s.Decode == decodeIgnore {
		return nil
	}
	if s.Tenant == "" && m.source.Tenant == "" && !m.topic.captures(levelTenant) {
		return &Fault{"tenant", "must be set here, for the source, or as a level {tenant} of the topic"}
	}
	if fault := m.compileDevice(); fault != nil {
		return fault
	}
	if s.Metric != "" {
		if m.metric, err = parseText(s.Metric, m.topic); err != nil {
			return &Fault{"metric", err.Error()}
		}
	} else if m.topic.captures(levelMetric) {
		m.metric = &text{parts: []level{{name: levelMetric}}}
	}
	if s.Decode == decodeNumber && m.metric == nil {
		return &Fault{"metric", "must be set for number, or the topic must have a level {metric}"}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Values)) {
		p, err := parsePath(s.Values[name])
		if err != nil {
			return &Fault{"values." + name, err.Error()}
		}
		m.values = append(m.values, valuePath{name, s.Values[name], p})
	}
	if s.Time != "" {
		if m.timePath, err = parsePath(s.Time); err != nil {
			return &Fault{"time", err.Error()}
		}
	}
	if fault := m.compileCommands(); fault != nil {
		return fault
	}
	return m.compileWords()
}

// compileDevice finds out what names the device.
func (m *mapping) compileDevice() *Fault {
	s := &m.settings
	var err error
	switch {
	case s.Decode == decodePresence && s.All:
	case strings.HasPrefix(s.Device, "$"):
		if s.Decode != decodeJSON && s.Decode != decodeCBOR {
			return &Fault{"device", "can be a path for json and cbor only"}
		}
		if m.devicePath, err = parsePath(s.Device); err != nil {
			return &Fault{"device", err.Error()}
		}
	case s.Device != "":
		if m.device, err = parseText(s.Device, m.topic); err != nil {
			return &Fault{"device", err.Error()}
		}
	case !m.topic.captures(levelDevice):
		return &Fault{"device", "must be set, or the topic must have a level {device}"}
	default:
		m.device = &text{parts: []level{{name: levelDevice}}}
	}
	return nil
}

// compileWords parses the words.
func (m *mapping) compileWords() *Fault {
	if m.settings.Decode == decodePresence {
		m.states = map[string]model.PresenceState{"online": model.Connected, "offline": model.Disconnected, "true": model.Connected, "false": model.Disconnected,
			"connected": model.Connected, "disconnected": model.Disconnected}
		for word, value := range m.settings.Words {
			state, ok := map[string]model.PresenceState{"CONNECTED": model.Connected, "DISCONNECTED": model.Disconnected}[value]
			if !ok {
				return &Fault{"words." + word, "must be CONNECTED or DISCONNECTED"}
			}
			m.states[strings.ToLower(word)] = state
		}
		return nil
	}
	m.numbers, m.ownWords = maps.Clone(usualWords), map[string]float64{}
	for word, value := range m.settings.Words {
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return &Fault{"words." + word, "must be a number"}
		}
		m.numbers[strings.ToLower(word)], m.ownWords[strings.ToLower(word)] = n, n
	}
	return nil
}

// find returns the first mapping that takes a topic, and what it captures; nil for none.
func (all mappings) find(topic string) (*mapping, captured) {
	for _, m := range all {
		if c, ok := m.topic.match(topic); ok {
			return m, c
		}
	}
	return nil, nil
}

// tenantOf is the tenant of a topic.
func (m *mapping) tenantOf(c captured) string {
	switch {
	case m.settings.Tenant != "":
		return m.settings.Tenant
	case m.topic.captures(levelTenant):
		return c[levelTenant]
	}
	return m.source.Tenant
}

// decode decodes a payload, except that of an event.
func (m *mapping) decode(c captured, payload []byte) (d *decoded, err error) {
	switch m.settings.Decode {
	case decodeNumber:
		name := m.metric.fill(c)
		if d, err = m.decodeNumber(payload, name); err == nil && !m.keeps(name) {
			d.readings = nil
		}
	case decodePresence:
		d, err = m.decodePresence(payload)
	default:
		var v any
		if m.settings.Decode == decodeCBOR {
			v, err = parseCBOR(payload)
		} else {
			v, err = parseJSON(payload)
		}
		if err != nil {
			return nil, err
		}
		d, err = m.decodeValue(v, c)
	}
	if err == nil && d.device == "" && m.device != nil {
		d.device = m.device.fill(c)
	}
	return d, err
}

// deviceOf is the device that the topic names, "" when the payload does.
func (m *mapping) deviceOf(c captured) string {
	if m.device == nil {
		return ""
	}
	return m.device.fill(c)
}

// filters are what is subscribed to for the source.
func (s *Source) filters(all mappings) []string {
	if s.Topic != "" {
		var out []string
		for f := range strings.SplitSeq(s.Topic, ",") {
			if f = strings.TrimSpace(f); f != "" {
				out = append(out, f)
			}
		}
		for _, m := range all { // unless the topics cover it
			if m.commands != nil && m.commands.filter != "" && !slices.ContainsFunc(out, func(f string) bool { return covers(f, m.commands.filter) }) {
				out = append(out, m.commands.filter)
			}
		}
		return out
	}
	if len(all) == 0 {
		return []string{"+/#"}
	}
	var out []string
	for _, m := range all {
		if m.settings.Decode != decodeIgnore {
			out = append(out, m.topic.filter())
		}
		if m.commands != nil && m.commands.filter != "" {
			out = append(out, m.commands.filter)
		}
	}
	return withoutCovered(out)
}

// validFilter reports whether a text is a topic filter.
func validFilter(f string) bool {
	parts := strings.Split(f, "/")
	for i, p := range parts {
		if p != "+" && p != "#" && strings.ContainsAny(p, "+#\x00") || p == "#" && i < len(parts)-1 {
			return false
		}
	}
	return f != "" && len(f) <= 65535
}
