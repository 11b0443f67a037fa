package mqttsource

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"weir/model"
)

var errCBOR = errors.New("the payload is not CBOR (RFC 8949)")

// parseCBOR parses a payload into what parseJSON makes, with int64, uint64 and float64 as numbers, and time.Time for the tags 0 and 1. The keys
// of maps are texts or integers. Byte strings are texts in base64url.
func parseCBOR(payload []byte) (any, error) {
	c := cbor{b: payload}
	v, err := c.value(0)
	if err == nil && len(c.b) > 0 {
		err = errors.New("the payload is more than one CBOR value")
	}
	return v, notBreak(err)
}

// cbor reads a payload. items bounds the values of it, since an item can be a single byte.
type cbor struct {
	b     []byte
	items int
}

// errBreak is the stop code of an indefinite length.
var errBreak = errors.New("break")

// Major types, RFC 8949 section 3.1.
const (
	cborUnsigned = 0
	cborNegative = 1
	cborBytes    = 2
	cborText     = 3
	cborArray    = 4
	cborMap      = 5
	cborTag      = 6
	cborSimple   = 7

	indefinite = math.MaxUint64 // in place of a length
)

// head reads the initial byte of an item and its argument.
func (c *cbor) head() (major, info byte, n uint64, err error) {
	if len(c.b) == 0 {
		return 0, 0, 0, errCBOR
	}
	major, info = c.b[0]>>5, c.b[0]&0x1f
	c.b = c.b[1:]
	size := 0
	switch {
	case info < 24:
		return major, info, uint64(info), nil
	case info < 28:
		size = 1 << (info - 24)
	case info == 31 && (major >= cborBytes && major <= cborMap):
		return major, info, indefinite, nil
	case info == 31 && major == cborSimple:
		return major, info, 0, errBreak
	default:
		return 0, 0, 0, errCBOR
	}
	if len(c.b) < size {
		return 0, 0, 0, errCBOR
	}
	for _, b := range c.b[:size] {
		n = n<<8 | uint64(b)
	}
	c.b = c.b[size:]
	if n == indefinite && major >= cborBytes && major <= cborMap { // no payload is that long
		return 0, 0, 0, errCBOR
	}
	return major, info, n, nil
}

// value reads one item.
func (c *cbor) value(depth int) (any, error) {
	if c.items++; c.items > 16*maxLeaves {
		return nil, fmt.Errorf("the payload has more than %d values", 16*maxLeaves)
	}
	if depth > maxNesting {
		return nil, fmt.Errorf("the payload is nested deeper than %d", maxNesting)
	}
	major, info, n, err := c.head()
	if err != nil {
		return nil, err
	}
	switch major {
	case cborUnsigned:
		return n, nil
	case cborNegative:
		if n > math.MaxInt64 {
			return -1 - float64(n), nil
		}
		return -1 - int64(n), nil
	case cborBytes:
		b, err := c.text(cborBytes, n)
		return base64.RawURLEncoding.EncodeToString(b), err
	case cborText:
		b, err := c.text(cborText, n)
		if err == nil && !utf8.Valid(b) {
			err = errCBOR
		}
		return string(b), err
	case cborArray:
		return c.array(n, depth)
	case cborMap:
		return c.object(n, depth)
	case cborTag:
		return c.tagged(n, depth)
	}
	return simple(info, n)
}

// text reads a byte string or text, or the chunks of one.
func (c *cbor) text(kind byte, n uint64) ([]byte, error) {
	if n != indefinite {
		if n > uint64(len(c.b)) {
			return nil, errCBOR
		}
		out := c.b[:n]
		c.b = c.b[n:]
		return out, nil
	}
	var out []byte
	for {
		major, _, n, err := c.head()
		if errors.Is(err, errBreak) {
			return out, nil
		}
		if err != nil || major != kind || n == indefinite {
			return nil, errCBOR
		}
		chunk, err := c.text(kind, n)
		if err != nil {
			return nil, err
		}
		out = append(out, chunk...)
	}
}

func (c *cbor) array(n uint64, depth int) (any, error) {
	list := []any{}
	for range n {
		v, err := c.value(depth + 1)
		if errors.Is(err, errBreak) && n == indefinite {
			return list, nil
		}
		if err != nil {
			return nil, notBreak(err)
		}
		list = append(list, v)
	}
	return list, nil
}

func (c *cbor) object(n uint64, depth int) (any, error) {
	object := map[string]any{}
	for range n {
		k, err := c.value(depth + 1)
		if errors.Is(err, errBreak) && n == indefinite {
			return object, nil
		}
		if err != nil {
			return nil, notBreak(err)
		}
		v, err := c.value(depth + 1)
		if err != nil {
			return nil, notBreak(err)
		}
		switch key := k.(type) {
		case string:
			object[key] = v
		case uint64:
			object[strconv.FormatUint(key, 10)] = v
		case int64:
			object[strconv.FormatInt(key, 10)] = v
		default:
			return nil, errors.New("the payload has a key that is neither a text nor an integer")
		}
	}
	return object, nil
}

// notBreak is the error of a stop code where none may stand.
func notBreak(err error) error {
	if errors.Is(err, errBreak) {
		return errCBOR
	}
	return err
}

// tagged reads the value of a tag. Those of times are times, others count for nothing.
func (c *cbor) tagged(tag uint64, depth int) (any, error) {
	v, err := c.value(depth + 1)
	if err != nil {
		return nil, notBreak(err)
	}
	switch tag {
	case 0:
		text, _ := v.(string)
		at, err := model.ParseTime(text)
		if err != nil {
			return nil, errors.New("the payload has a time that is not of RFC 3339")
		}
		return at, nil
	case 1:
		n, ok := numberOf(v)
		if !ok || math.Abs(n) > 1e11 {
			return nil, errors.New("the payload has a time that is no number of seconds")
		}
		whole, part := math.Modf(n)
		return time.Unix(int64(whole), int64(math.Round(part*1e6))*1000), nil
	}
	return v, nil
}

// simple is a simple value or a floating-point number.
func simple(info byte, n uint64) (any, error) {
	switch info {
	case 20, 21:
		return info == 21, nil
	case 22, 23: // null, undefined
		return nil, nil
	case 25:
		return finite(half(uint16(n)))
	case 26:
		return finite(float64(math.Float32frombits(uint32(n))))
	case 27:
		return finite(math.Float64frombits(n))
	}
	return nil, errCBOR
}

// finite leaves out what is no number.
func finite(f float64) (any, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, nil
	}
	return f, nil
}

// half is the value of a number of 16 bits, RFC 8949 appendix D.
func half(bits uint16) float64 {
	exponent, mantissa := int(bits>>10&0x1f), float64(bits&0x3ff)
	var v float64
	switch exponent {
	case 0:
		v = math.Ldexp(mantissa, -24)
	case 31:
		v = math.NaN()
		if mantissa == 0 {
			v = math.Inf(1)
		}
	default:
		v = math.Ldexp(mantissa+1024, exponent-25)
	}
	if bits&0x8000 != 0 {
		v = -v
	}
	return v
}
