package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// Response is the answer to one request. Data is null when a request was refused or a null reached the root.
type Response struct {
	Errors []*Error

	data  map[string]any
	shape *shape
	limit int
	early bool // refused before anything ran
	hints []string

	results *results // which count its bytes until Done
	held    int64
}

// Refuse returns the response to a request of which nothing was executed.
func Refuse(errs ...*Error) *Response { return &Response{Errors: errs, early: true} }

// Refused reports whether nothing was executed.
func (r *Response) Refused() bool { return r.early }

// Done subtracts the response from the bytes of all results. It is called after the response was written.
func (r *Response) Done() {
	if r.results != nil {
		r.results.give(r.held)
		r.results = nil
	}
}

// MarshalJSON writes {"data": …, "errors": […], "extensions": {"hints": […]}}: keys in the order of the request, without
// data when nothing was executed, without errors and extensions when there are none.
func (r *Response) MarshalJSON() ([]byte, error) {
	b, err := r.append(nil)
	if err != nil { // only a result over the limit
		over := Refuse(responseLimit(r.limit))
		return over.append(nil)
	}
	return b, nil
}

func (r *Response) append(b []byte) ([]byte, error) {
	b = append(b, '{')
	if !r.early {
		b = append(b, `"data":`...)
		if r.data == nil {
			b = append(b, "null"...)
		} else {
			w := jsonWriter{buf: b, limit: r.limit}
			if w.object(r.data, r.shape); w.over {
				return nil, responseLimit(r.limit)
			}
			b = w.buf
		}
	}
	if len(r.Errors) > 0 {
		if !r.early {
			b = append(b, ',')
		}
		errs, err := json.Marshal(r.Errors)
		if err != nil { // an extension without a JSON form
			return nil, fmt.Errorf("engine: encode errors: %w", err)
		}
		b = append(append(b, `"errors":`...), errs...)
	}
	if len(r.hints) > 0 {
		b = append(b, `,"extensions":{"hints":[`...)
		for i, text := range r.hints {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, text)
		}
		b = append(b, "]}"...)
	}
	return append(b, '}'), nil
}

// jsonWriter encodes results in the order of their shape and stops when they grow over the limit.
type jsonWriter struct {
	buf   []byte
	limit int
	over  bool
}

func (w *jsonWriter) object(m map[string]any, s *shape) {
	w.buf = append(w.buf, '{')
	first := true
	for _, k := range s.keys {
		v, ok := m[k.name]
		if !ok || w.over {
			continue
		}
		if !first {
			w.buf = append(w.buf, ',')
		}
		first = false
		w.buf = append(w.buf, k.start...)
		w.value(v, k.below)
	}
	w.buf = append(w.buf, '}')
}

func (w *jsonWriter) value(v any, s *shape) {
	if len(w.buf) > w.limit {
		w.over = true
		return
	}
	switch v := v.(type) {
	case nil:
		w.buf = append(w.buf, "null"...)
	case string:
		w.buf = appendString(w.buf, v)
	case int:
		w.buf = strconv.AppendInt(w.buf, int64(v), 10)
	case float64:
		w.buf = appendFloat(w.buf, v)
	case bool:
		w.buf = strconv.AppendBool(w.buf, v)
	case map[string]any:
		w.object(v, s)
	case encoded:
		w.buf = append(w.buf, v...)
		w.over = len(w.buf) > w.limit
	case []any:
		w.buf = append(w.buf, '[')
		for i, x := range v {
			if i > 0 {
				w.buf = append(w.buf, ',')
			}
			if w.value(x, s); w.over {
				return
			}
		}
		w.buf = append(w.buf, ']')
	default:
		w.buf = append(w.buf, "null"...) // leaf types return no other types
	}
}

// appendFloat writes finite floats as encoding/json does.
func appendFloat(b []byte, f float64) []byte {
	if abs := math.Abs(f); abs == 0 || abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(b, f, 'f', -1, 64)
	}
	enc, err := json.Marshal(f)
	if err != nil {
		return append(b, "null"...)
	}
	return append(b, enc...)
}

// appendString writes a JSON string. Invalid UTF-8 becomes U+FFFD; characters that are unsafe in HTML or JavaScript are
// escaped.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			enc, err := json.Marshal(s)
			if err != nil {
				return append(b, `""`...)
			}
			return append(b, enc...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
