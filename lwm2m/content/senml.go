package content

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// maxRelative is the first time of a record that is absolute (RFC 8428 section 4.5.3), maxAbsolute the last one that is believed.
const (
	maxRelative = 1 << 28
	maxAbsolute = 1 << 40
)

// senml is a record as it is written: of an absent member the pointer is nil.
type senml struct {
	BaseName    *string      `json:"bn,omitempty"`
	BaseTime    *json.Number `json:"bt,omitempty"`
	BaseValue   *json.Number `json:"bv,omitempty"`
	BaseVersion *json.Number `json:"bver,omitempty"`
	Name        *string      `json:"n,omitempty"`
	Time        *json.Number `json:"t,omitempty"`
	Value       *json.Number `json:"v,omitempty"`
	Bool        *bool        `json:"vb,omitempty"`
	Text        *string      `json:"vs,omitempty"`
	Data        *string      `json:"vd,omitempty"`
	Link        *string      `json:"vlo,omitempty"`
}

// pack resolves the records of a SenML pack, whose base members hold for those behind them.
type pack struct {
	models    *Models
	now       float64
	name      string
	time      float64
	base      float64
	hasBase   bool
	out       []Record
	composite bool // names without values are kept: the paths of a composite request
}

// resolved adds a record. v is its value, None for a record without one.
func (p *pack) resolved(name string, t float64, timed bool, v Value) error {
	if v.Kind == None && !p.composite {
		return nil // base members alone, or a resource that is named only
	}
	path, err := parseName(p.name + name)
	if err != nil {
		return err
	}
	if len(p.out) == MaxRecords {
		return bad("more than %d values", MaxRecords)
	}
	if n, ok := v.Number(); ok && p.hasBase && v.Kind != Boolean {
		v = Value{Kind: Float, Float: n + p.base}
	}
	r := Record{Path: path, Value: fitting(p.models.KindOf(path), v)}
	switch at := p.time + t; {
	case !timed:
	case at >= maxRelative && at < maxAbsolute:
		r.At, r.HasTime = at, true
	case at < maxRelative && at != 0 && at > -maxRelative: // relative to now
		r.At, r.HasTime = p.now+at, true
	}
	p.out = append(p.out, r)
	return nil
}

func (m *Models) decodeSenMLJSON(b []byte, now float64) ([]Record, error) {
	var records []senml
	if err := unmarshal(b, &records); err != nil {
		return nil, err
	}
	p := pack{models: m, now: now}
	for i := range records {
		s := &records[i]
		if s.BaseVersion != nil && s.BaseVersion.String() != "10" {
			return nil, bad("SenML of version %.20s", s.BaseVersion.String())
		}
		if s.BaseName != nil {
			p.name = *s.BaseName
		}
		if s.BaseTime != nil {
			p.time = float(s.BaseTime)
		}
		if s.BaseValue != nil {
			p.base, p.hasBase = float(s.BaseValue), true
		}
		v, err := s.value()
		if err != nil {
			return nil, err
		}
		name := ""
		if s.Name != nil {
			name = *s.Name
		}
		t := float(s.Time)
		if err := p.resolved(name, t, s.Time != nil || p.time != 0, v); err != nil {
			return nil, err
		}
	}
	return p.out, nil
}

// unmarshal reads one JSON document with nothing behind it.
func unmarshal(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return bad("JSON: %v", err)
	}
	if d.More() {
		return bad("JSON: something follows the document")
	}
	return nil
}

// float is a number of a document, 0 for nil and for one that is too large.
func float(n *json.Number) float64 {
	if n == nil {
		return 0
	}
	f, err := n.Float64()
	if err != nil {
		return 0
	}
	return f
}

func (s *senml) value() (Value, error) {
	switch {
	case s.Value != nil:
		return number(*s.Value)
	case s.Bool != nil:
		return Value{Kind: Boolean, Bool: *s.Bool}, nil
	case s.Text != nil:
		return Value{Kind: String, Text: *s.Text}, nil
	case s.Link != nil:
		if _, _, ok := linkParts(*s.Link); !ok {
			return Value{}, bad("%.40q is no object link", *s.Link)
		}
		return Value{Kind: Link, Text: *s.Link}, nil
	case s.Data != nil:
		raw, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(*s.Data, "="))
		if err != nil {
			return Value{}, bad("vd is no base64url")
		}
		return Value{Kind: Bytes, Bytes: raw}, nil
	}
	return Value{}, nil
}

// number reads a number as an integer where it is written as one.
func number(n json.Number) (Value, error) {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return Value{Kind: Integer, Int: i}, nil
	}
	f, err := n.Float64()
	if err != nil {
		return Value{}, bad("%.40s is no number of 64 bits", n.String())
	}
	return Value{Kind: Float, Float: f}, nil
}

func encodeSenMLJSON(records []Record) ([]byte, error) {
	all := make([]senml, len(records))
	for i, r := range records {
		name := r.Path.String()
		s := senml{Name: &name}
		v := r.Value
		switch v.Kind {
		case Integer, Time, Unsigned, Float:
			n := json.Number(FormatText(v))
			s.Value = &n
		case Boolean:
			s.Bool = &v.Bool
		case Bytes:
			text := base64.RawURLEncoding.EncodeToString(v.Bytes)
			s.Data = &text
		case Link:
			s.Link = &v.Text
		case String:
			s.Text = &v.Text
		}
		all[i] = s
	}
	return json.Marshal(all)
}

// The labels of SenML-CBOR (RFC 8428 section 6).
const (
	labelBaseVersion = -1
	labelBaseName    = -2
	labelBaseTime    = -3
	labelBaseValue   = -5
	labelName        = 0
	labelValue       = 2
	labelText        = 3
	labelBool        = 4
	labelTime        = 6
	labelData        = 8
	labelLink        = "vlo"
)

func (m *Models) decodeSenMLCBOR(b []byte, now float64) ([]Record, error) {
	r := reader{b: b}
	p := pack{models: m, now: now}
	major, info, n := r.head()
	if r.err == nil && major != cborArray {
		r.fail("SenML is an array")
	}
	if r.err != nil {
		return nil, r.err
	}
	count := r.enter(info, n)
	for i := 0; r.more(i, count); i++ {
		if err := p.recordCBOR(&r); err != nil {
			return nil, err
		}
	}
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes follow", len(r.b))
	}
	return p.out, r.err
}

// recordCBOR reads one record. Base members may stand behind the others of their record: they hold for it all the same.
func (p *pack) recordCBOR(r *reader) error {
	major, info, n := r.head()
	if r.err == nil && major != cborMap {
		r.fail("a SenML record is a map")
	}
	if r.err != nil {
		return r.err
	}
	name, at, timed := "", 0.0, false
	var v Value
	count := r.enter(info, n)
	for i := 0; r.more(i, count); i++ {
		key := r.item()
		switch {
		case r.err != nil:
			return r.err
		case key.Kind == String && key.Text == labelLink:
			if v = r.item(); v.Kind == String {
				v.Kind = Link
			}
			if _, _, ok := linkParts(v.Text); !ok {
				r.fail("an object link that is none")
			}
		case key.Kind != Integer:
			r.skip()
		default:
			switch key.Int {
			case labelBaseVersion:
				if version := r.item(); r.err == nil && (version.Kind != Integer || version.Int != 10) {
					r.fail("SenML of another version")
				}
			case labelBaseName:
				p.name = r.item().Text
			case labelBaseTime:
				p.time, _ = r.item().Number()
			case labelBaseValue:
				p.base, p.hasBase = r.item().Number()
			case labelName:
				name = r.item().Text
			case labelTime:
				at, timed = r.item().Number()
			case labelValue, labelText, labelBool, labelData:
				v = r.item()
			default:
				r.skip()
			}
		}
	}
	r.depth--
	if r.err != nil {
		return r.err
	}
	if math.IsNaN(at) || math.IsNaN(p.time) {
		return bad("a time that is no number")
	}
	return p.resolved(name, at, timed || p.time != 0, v)
}

func encodeSenMLCBOR(records []Record) []byte {
	out := appendCBORHead(nil, cborArray, uint64(len(records)))
	for _, r := range records {
		members := uint64(2)
		if r.Value.Kind == None {
			members = 1
		}
		out = appendCBORHead(out, cborMap, members)
		out = appendCBORText(appendCBORInt(out, labelName), r.Path.String())
		switch r.Value.Kind {
		case None:
			continue
		case Boolean:
			out = appendCBORInt(out, labelBool)
		case Bytes:
			out = appendCBORInt(out, labelData)
		case String:
			out = appendCBORInt(out, labelText)
		case Link:
			out = appendCBORText(out, labelLink)
		default:
			out = appendCBORInt(out, labelValue)
		}
		out = appendCBORValue(out, r.Value)
	}
	return out
}

// EncodePaths writes the paths of a composite request.
func EncodePaths(format uint16, paths []Path) []byte {
	if format == SenMLCBOR {
		records := make([]Record, len(paths))
		for i, p := range paths {
			records[i].Path = p
		}
		return encodeSenMLCBOR(records)
	}
	type named struct {
		Name string `json:"n"`
	}
	all := make([]named, len(paths))
	for i, p := range paths {
		all[i].Name = p.String()
	}
	b, _ := json.Marshal(all) // texts
	return b
}

// decodeJSON reads LwM2M JSON (OMA-TS-LightweightM2M 1.0, 6.4.4).
func (m *Models) decodeJSON(base Path, b []byte, now float64) ([]Record, error) {
	var doc struct {
		Base    *string      `json:"bn"`
		Time    *json.Number `json:"bt"`
		Entries []struct {
			Name   *string      `json:"n"`
			Time   *json.Number `json:"t"`
			Value  *json.Number `json:"v"`
			Text   *string      `json:"sv"`
			Bool   *bool        `json:"bv"`
			Object *string      `json:"ov"`
		} `json:"e"`
	}
	if err := unmarshal(b, &doc); err != nil {
		return nil, err
	}
	p := pack{models: m, now: now, name: base.String() + "/", time: float(doc.Time)}
	if doc.Base != nil {
		p.name = *doc.Base + "/"
	}
	for _, e := range doc.Entries {
		s := senml{Value: e.Value, Text: e.Text, Bool: e.Bool, Link: e.Object}
		v, err := s.value()
		if err != nil {
			return nil, err
		}
		name := ""
		if e.Name != nil {
			name = *e.Name
		}
		if err := p.resolved(name, float(e.Time), e.Time != nil || p.time != 0, v); err != nil {
			return nil, err
		}
	}
	return p.out, nil
}
