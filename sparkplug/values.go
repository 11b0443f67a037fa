package sparkplug

import (
	"hash/maphash"
	"strings"
	"time"
)

// Why a metric of a message is not stored.
const (
	SkippedNull     = "null"      // it has no value
	SkippedQuality  = "quality"   // its quality is given and not 192
	SkippedType     = "type"      // bytes, files and types that are not known
	SkippedValue    = "value"     // the value is none of its type, or not finite
	SkippedTooLarge = "too-large" // a text or a structure of more than 4 KiB
	SkippedTooMany  = "too-many"  // texts beyond those that are kept of a device
	SkippedUnknown  = "unknown"   // neither the birth nor the message says what it is
	SkippedFiltered = "filtered"  // the configuration does not want it
)

// SkippedReasons are all of them.
func SkippedReasons() []string {
	return []string{SkippedNull, SkippedQuality, SkippedType, SkippedValue, SkippedTooLarge, SkippedTooMany, SkippedUnknown, SkippedFiltered}
}

const (
	maxText   = 4 << 10 // bytes of a text
	maxTexts  = 500     // of a node or device
	textsPace = 10 * time.Second
)

// isControl reports whether a metric is a part of the protocol.
func isControl(name string) bool {
	return name == "bdSeq" || strings.HasPrefix(name, "Node Control/") || strings.HasPrefix(name, "Device Control/")
}

// values takes the metrics of a message in that a birth resolves: numbers become readings, texts attributes. It returns how many metrics the
// birth does not have.
func (m *Machine) values(n *node, b *birth, in *message) (unknown int) {
	samples := make([]Sample, 0, len(in.Metrics))
	for i := range in.Metrics {
		metric := &in.Metrics[i]
		name, kind := metric.Name, metric.Type
		def := b.resolve(metric)
		switch {
		case def != nil:
			name = def.name
			if def.kind != Unknown {
				kind = def.kind
			}
		case isControl(name):
			continue
		default:
			unknown++
		}
		if isControl(name) {
			continue
		}
		if why := m.value(b, in, metric, name, kind, &samples); why != "" {
			m.Counts.Skipped[why]++
		}
	}
	if len(samples) > 0 {
		m.emit(Effect{What: Readings, Node: n.id, Device: in.Device, Samples: samples, At: in.now, Kind: in.Kind, Body: in.body})
	}
	if len(b.texts.pending) > 0 {
		m.flush(n, b, in.now)
	}
	return unknown
}

// value takes one metric in and returns why it does not.
func (m *Machine) value(b *birth, in *message, metric *Metric, name string, kind DataType, samples *[]Sample) (why string) {
	switch {
	case name == "" || kind == Unknown:
		return SkippedUnknown
	case metric.Null || metric.Form == FormNone:
		return SkippedNull
	case !metric.Good:
		return SkippedQuality
	case m.rules.Keep != nil && !m.rules.Keep(name):
		return SkippedFiltered
	case kind.isNumber():
		v, ok := metric.number(kind)
		if !ok {
			return SkippedValue
		}
		at := int64(metric.Timestamp)
		if at == 0 {
			at = in.at()
		}
		*samples = append(*samples, Sample{Name: name, Value: v, At: at})
		return ""
	case kind.isText():
		if metric.Form != FormString {
			return SkippedValue
		}
		return m.text(b, name, text{value: metric.Text})
	case kind.isJSON():
		return m.structure(b, metric, name, kind)
	}
	return SkippedType
}

// structure takes a data set, a template or an array as a text in JSON.
func (m *Machine) structure(b *birth, metric *Metric, name string, kind DataType) (why string) {
	doc := metric.Text
	switch {
	case kind.isArray() && metric.Form == FormBytes:
		var ok bool
		if doc, ok = arrayJSON(kind, metric.Text); !ok {
			return SkippedValue
		}
	case kind.isArray() || metric.Form != FormJSON:
		return SkippedValue
	}
	if doc == "" {
		return SkippedTooLarge
	}
	return m.text(b, name, text{value: doc, json: true})
}

// text takes a text in that is to be reported if it has changed.
func (m *Machine) text(b *birth, name string, t text) (why string) {
	switch {
	case len(t.value) > maxText:
		return SkippedTooLarge
	case strings.IndexByte(t.value, 0) >= 0 || strings.IndexByte(name, 0) >= 0 || strings.TrimSpace(name) == "":
		return SkippedValue
	}
	reported, known := b.texts.reported[name]
	_, waits := b.texts.pending[name]
	switch {
	case known && reported == m.hash(t):
		delete(b.texts.pending, name) // back to what was reported
		return ""
	case !known && !waits && len(b.texts.reported)+len(b.texts.pending) >= maxTexts:
		return SkippedTooMany
	}
	if b.texts.pending == nil {
		b.texts.pending = map[string]text{}
	}
	b.texts.pending[name] = t
	return ""
}

func (m *Machine) hash(t text) uint64 {
	h := maphash.String(m.seed, t.value)
	if t.json {
		h++
	}
	return h
}

// flush reports the texts of a node or device that have changed, at most every 10 s.
func (m *Machine) flush(n *node, b *birth, now time.Time) {
	if b == nil || len(b.texts.pending) == 0 {
		return
	}
	t := b.texts
	if !t.last.IsZero() && now.Sub(t.last) < textsPace {
		n.textsWait = true
		m.busy[n.id] = n
		return
	}
	e := Effect{What: Attributes, Node: n.id, Device: b.device, At: now}
	if t.reported == nil {
		t.reported = map[string]uint64{}
	}
	for _, name := range sortedKeys(t.pending) {
		v := t.pending[name]
		t.reported[name] = m.hash(v)
		e.Texts = append(e.Texts, Attribute{Key: name, Value: v.value, JSON: v.json})
	}
	t.pending, t.last = nil, now
	m.emit(e)
}
