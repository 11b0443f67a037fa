package mqttsource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"weir/model"
)

// decoded is what a mapping makes of a payload.
type decoded struct {
	device     string // when the payload names it
	readings   []model.Reading
	attributes []model.Reported
	at         time.Time // zero: the payload has none
	presence   model.PresenceState
	asserts    bool // presence holds
}

// Bounds of what is decoded.
const (
	maxDepth      = 8    // of objects and arrays whose leaves become readings
	maxLeaves     = 4096 // of a payload
	maxAttributes = 64   // of a payload: as of a device report
	maxNesting    = 64   // of a payload that is parsed
)

// parseJSON parses a payload into maps, lists, json.Number, string, bool and nil.
func parseJSON(payload []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, errors.New("the payload is not JSON")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the payload is more than one JSON value")
	}
	return v, nil
}

// numberOf returns the number of a leaf: a boolean is 1 or 0.
func numberOf(v any) (float64, bool) {
	switch x := v.(type) {
	case json.Number:
		f, err := strconv.ParseFloat(string(x), 64)
		return f, err == nil
	case float64:
		return x, !math.IsNaN(x) && !math.IsInf(x, 0)
	case int64:
		return float64(x), true
	case uint64:
		return float64(x), true
	case bool:
		if x {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// usualWords are the words that stand for 1 and 0 unless a mapping names its own, in lower case.
var usualWords = map[string]float64{"on": 1, "off": 0, "true": 1, "false": 0, "open": 1, "closed": 0, "online": 1, "offline": 0}

// decodeNumber decodes a number, or a word that stands for one.
func (m *mapping) decodeNumber(payload []byte, name string) (*decoded, error) {
	text := strings.TrimSpace(string(payload))
	if value, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(value) && !math.IsInf(value, 0) && !strings.ContainsAny(text, "xX_") {
		return &decoded{readings: []model.Reading{{Metric: name, Value: value}}}, nil
	}
	if value, ok := m.word(text); ok {
		return &decoded{readings: []model.Reading{{Metric: name, Value: value}}}, nil
	}
	if m.settings.texts {
		d := &decoded{}
		m.attribute(d, name, text)
		return d, nil
	}
	return nil, errors.New("the payload is neither a number nor one of the words")
}

// word returns the number that a word stands for.
func (m *mapping) word(text string) (float64, bool) {
	v, ok := m.numbers[strings.ToLower(text)]
	return v, ok
}

// decodeValue decodes a parsed payload: the values at the paths, or all leaves.
func (m *mapping) decodeValue(v any, c captured) (*decoded, error) {
	d := &decoded{}
	prefix := ""
	if m.metric != nil {
		prefix = m.metric.fill(c)
	}
	if m.devicePath != nil {
		found, _ := m.devicePath.find(v)
		if d.device = textOf(found); d.device == "" {
			return nil, fmt.Errorf("the payload has no device at %s", m.settings.Device)
		}
	}
	if m.timePath != nil {
		if found, ok := m.timePath.find(v); ok && found != nil {
			at, err := m.parseTime(found)
			if err != nil {
				return nil, err
			}
			d.at = at
		}
	}
	if len(m.values) == 0 {
		w := &walk{m: m, d: d}
		w.leaves(prefix, v, 0)
		return d, w.err
	}
	for _, value := range m.values {
		found, ok := value.path.find(v)
		if !ok || found == nil {
			continue
		}
		n, isNumber := m.looseNumber(found)
		if !isNumber {
			return nil, fmt.Errorf("there is no number at %s", value.text)
		}
		d.readings = append(d.readings, model.Reading{Metric: joined(prefix, value.name), Value: n})
	}
	return d, nil
}

// looseNumber is the number of a value that a path names: also one that stands in a text, or a word.
func (m *mapping) looseNumber(v any) (float64, bool) {
	if n, ok := numberOf(v); ok {
		return n, true
	}
	text, ok := v.(string)
	if !ok {
		return 0, false
	}
	if n, err := strconv.ParseFloat(strings.TrimSpace(text), 64); err == nil && !math.IsNaN(n) && !math.IsInf(n, 0) {
		return n, true
	}
	return m.word(text)
}

// textOf is a text or a number as a text, "" for anything else.
func textOf(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case json.Number:
		return string(x)
	case int64:
		return strconv.FormatInt(x, 10)
	case uint64:
		return strconv.FormatUint(x, 10)
	}
	return ""
}

// walk collects the leaves of a value.
type walk struct {
	m   *mapping
	d   *decoded
	n   int
	err error
}

func (w *walk) leaves(name string, v any, depth int) {
	if w.n++; w.n > maxLeaves {
		w.err = fmt.Errorf("the payload has more than %d values", maxLeaves)
	}
	if w.err != nil {
		return
	}
	switch x := v.(type) {
	case map[string]any:
		if depth >= maxDepth {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(x)) {
			w.leaves(joined(name, key), x[key], depth+1)
		}
	case []any:
		if depth >= maxDepth {
			return
		}
		for i, item := range x {
			w.leaves(joined(name, strconv.Itoa(i)), item, depth+1)
		}
	case nil, time.Time:
	case string:
		if n, ok := w.m.ownWords[strings.ToLower(x)]; ok {
			w.reading(name, n)
			return
		}
		w.m.attribute(w.d, name, x)
	default:
		n, ok := numberOf(x)
		if !ok {
			w.err = fmt.Errorf("the number of %s is too large", name)
			return
		}
		w.reading(name, n)
	}
}

func (w *walk) reading(name string, value float64) {
	switch {
	case name == "":
		w.err = errors.New("the payload is a single value: set metric, or a level {metric} in the topic")
	case w.m.keeps(name):
		w.d.readings = append(w.d.readings, model.Reading{Metric: name, Value: value})
	}
}

// joined is the name of a leaf below another name.
func joined(before, name string) string {
	if before == "" {
		return name
	}
	if name == "" {
		return before
	}
	return before + "." + name
}

// attribute keeps a text as a client attribute, where the source does.
func (m *mapping) attribute(d *decoded, name, value string) {
	if m.source.Attributes && name != "" && m.keeps(name) && len(d.attributes) < maxAttributes && len(name) <= 128 && utf8.ValidString(value) {
		d.attributes = append(d.attributes, model.Reported{Key: name, Type: model.ReportedString, Value: value})
	}
}

// keeps reports whether include and exclude let a name through.
func (m *mapping) keeps(name string) bool {
	in := func(globs []string) bool {
		return slices.ContainsFunc(globs, func(g string) bool { return matches(g, name) })
	}
	return (len(m.settings.Include) == 0 || in(m.settings.Include)) && !in(m.settings.Exclude)
}

// matches compares a name with a pattern in which * is any text and ? any character.
func matches(pattern, name string) bool {
	p, n := []rune(pattern), []rune(name)
	star, back := -1, 0
	i, j := 0, 0
	for j < len(n) {
		switch {
		case i < len(p) && p[i] == '*':
			star, back = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == n[j]):
			i++
			j++
		case star >= 0:
			back++
			i, j = star+1, back
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

// parseTime parses the time of a payload.
func (m *mapping) parseTime(v any) (time.Time, error) {
	if at, ok := v.(time.Time); ok { // of CBOR
		return at, nil
	}
	wrong := fmt.Errorf("the time at %s is not of the form %s", m.settings.Time, m.settings.TimeFormat)
	if m.settings.TimeFormat == "rfc3339" {
		text, ok := v.(string)
		if !ok {
			return time.Time{}, wrong
		}
		at, err := model.ParseTime(text)
		if err != nil {
			return time.Time{}, wrong
		}
		return at, nil
	}
	n, ok := numberOf(v)
	if text, isText := v.(string); isText {
		var err error
		n, err = strconv.ParseFloat(text, 64)
		ok = err == nil
	}
	if m.settings.TimeFormat == "unix_ms" {
		n /= 1000
	}
	if !ok || math.Abs(n) > 1e11 {
		return time.Time{}, wrong
	}
	whole, part := math.Modf(n)
	return time.Unix(int64(whole), int64(math.Round(part*1e6))*1000), nil
}

// decodePresence decodes a word, or the member state of an object.
func (m *mapping) decodePresence(payload []byte) (*decoded, error) {
	text := strings.TrimSpace(string(payload))
	if strings.HasPrefix(text, "{") {
		v, err := parseJSON(payload)
		if err != nil {
			return nil, err
		}
		found, _ := path{{name: "state"}}.find(v)
		text = textOf(found)
	}
	state, ok := m.states[strings.ToLower(text)]
	if !ok {
		return nil, fmt.Errorf("%.40q is none of the words", text)
	}
	return &decoded{presence: state, asserts: true}, nil
}

// messages cuts what was decoded into messages of as many readings as one may have.
func (d *decoded) messages() (all []*model.Message) {
	for readings := range slices.Chunk(d.readings, model.MaxReadings) {
		m := &model.Message{Type: model.MeasurementEvent, Measurements: readings}
		if !d.at.IsZero() {
			m.Occurred, m.HasOccurred = model.NanosOf(d.at), true
		}
		all = append(all, m)
	}
	return all
}

// report is the device report of the attributes, nil without any.
func (d *decoded) report() *model.Report {
	if len(d.attributes) == 0 {
		return nil
	}
	return &model.Report{Attributes: d.attributes}
}

// sortedKeys are the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
