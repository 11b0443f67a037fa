package content

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decodeText reads a value in text. One of unknown type is a number if it reads as one.
func (m *Models) decodeText(base Path, b []byte) Value {
	s := string(b)
	trimmed := strings.TrimSpace(s)
	kind := m.KindOf(base)
	switch kind {
	case Integer, Time:
		if n, err := strconv.ParseInt(trimmed, 10, 64); err == nil {
			return Value{Kind: kind, Int: n}
		}
		fallthrough // a client that writes 5.0 for an integer
	case Float, None:
		if n, err := strconv.ParseFloat(trimmed, 64); err == nil && !math.IsInf(n, 0) && !math.IsNaN(n) {
			return Value{Kind: Float, Float: n}
		}
	case Unsigned:
		if n, err := strconv.ParseUint(trimmed, 10, 64); err == nil {
			return Value{Kind: kind, Int: int64(n)}
		}
	case Boolean:
		switch strings.ToLower(trimmed) {
		case "1", "true":
			return Value{Kind: Boolean, Bool: true}
		case "0", "false":
			return Value{Kind: Boolean}
		}
	case Bytes:
		if raw, err := base64.StdEncoding.DecodeString(trimmed); err == nil {
			return Value{Kind: Bytes, Bytes: raw}
		}
	case Link:
		if _, _, ok := linkParts(trimmed); ok {
			return Value{Kind: Link, Text: trimmed}
		}
	}
	if utf8.ValidString(s) {
		return Value{Kind: String, Text: s}
	}
	return Value{Kind: Bytes, Bytes: b}
}

// FormatText writes a value as text, bytes as base64.
func FormatText(v Value) string {
	switch v.Kind {
	case Integer, Time:
		return strconv.FormatInt(v.Int, 10)
	case Unsigned:
		return strconv.FormatUint(uint64(v.Int), 10)
	case Float:
		return strconv.FormatFloat(v.Float, 'g', -1, 64)
	case Boolean:
		if v.Bool {
			return "1"
		}
		return "0"
	case Bytes:
		return base64.StdEncoding.EncodeToString(v.Bytes)
	}
	return v.Text
}

func encodePlain(format uint16, v Value) ([]byte, error) {
	switch format {
	case Text:
		return []byte(FormatText(v)), nil
	case Opaque:
		if v.Kind != Bytes {
			return nil, fmt.Errorf("only bytes are opaque")
		}
		return v.Bytes, nil
	}
	return appendCBORValue(nil, v), nil
}

// linkParts reads an object link, "object:instance".
func linkParts(s string) (object, instance uint16, ok bool) {
	a, b, found := strings.Cut(s, ":")
	x, errA := strconv.ParseUint(a, 10, 16)
	y, errB := strconv.ParseUint(b, 10, 16)
	return uint16(x), uint16(y), found && errA == nil && errB == nil
}

// As returns a value as one of another type, as a device sends an integer where a float is declared. ok is false where that loses
// something.
func As(kind Kind, v Value) (Value, bool) {
	switch {
	case kind == None || v.Kind == kind:
		return v, true
	case kind == Float:
		n, ok := v.Number()
		return Value{Kind: Float, Float: n}, ok && v.Kind != Boolean
	case (kind == Integer || kind == Time || kind == Unsigned) && v.Kind == Float:
		if v.Float != math.Trunc(v.Float) || math.Abs(v.Float) >= 1<<63 || kind == Unsigned && v.Float < 0 {
			return v, false
		}
		return Value{Kind: kind, Int: int64(v.Float)}, true
	case (kind == Integer || kind == Time || kind == Unsigned) && (v.Kind == Integer || v.Kind == Unsigned || v.Kind == Time):
		if v.Int < 0 && (kind == Unsigned || v.Kind == Unsigned) {
			return v, false
		}
		return Value{Kind: kind, Int: v.Int}, true
	case kind == Boolean:
		n, ok := v.Number()
		return Value{Kind: Boolean, Bool: n == 1}, ok && (n == 0 || n == 1)
	case kind == String && v.Kind == Link:
		return Value{Kind: String, Text: v.Text}, true
	case kind == Link && v.Kind == String:
		_, _, ok := linkParts(v.Text)
		return Value{Kind: Link, Text: v.Text}, ok
	case kind == Bytes && v.Kind == String:
		raw, err := base64.StdEncoding.DecodeString(v.Text)
		return Value{Kind: Bytes, Bytes: raw}, err == nil
	}
	return v, false
}
