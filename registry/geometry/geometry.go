// Package geometry reads the geometry of geofences: an envelope with a polygon of GeoJSON, on the sphere.
//
//	{"kind": "POLYGON_2D", "geometry": {"type": "Polygon", "coordinates": [[[8.5, 47.3], …]]}}
//
// Edges are arcs of great circles, the shorter way around the globe, so that an edge may cross the antimeridian. What a
// polygon encloses does not depend on the winding of its rings: the inside of a ring is the smaller of the two parts into
// which it divides the globe, and the first ring's inside without those of the others is that of the polygon.
package geometry

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"weir/model"
)

// Polygon2D is the kind of an envelope, the only one so far.
const Polygon2D = "POLYGON_2D"

// Bounds of an envelope.
const (
	MaxPositions = 4096     // over all rings, the closing ones counted; the ceiling of a tenant is lower or equal
	MaxStored    = 32 << 10 // bytes of the normal form
)

// field is the name of the geometry in requests.
const field = "geometry"

// Position is a point of the globe, in degrees.
type Position struct{ Lon, Lat float64 }

// Polygon is a geometry that has been checked. It is immutable and safe for concurrent use.
type Polygon struct {
	rings  [][]Position // closed; the first is the outer one
	shapes []shape
}

// Parse reads an envelope. Refusals name the ring and the position, both counted from 1.
func Parse(text string) (*Polygon, error) {
	p, err := read(text)
	if err != nil {
		return nil, err
	}
	return p, p.prepare()
}

// Outline returns the normal form of an envelope and the number of its positions, without a look at the shape that they make: unlike
// Parse, whose time grows with the square of the positions, it takes time in proportion to the text.
func Outline(text string) (normal string, positions int, err error) {
	p, err := read(text)
	if err != nil {
		return "", 0, err
	}
	return p.String(), p.Positions(), nil
}

func read(text string) (*Polygon, error) {
	r := newReader(text)
	p := &Polygon{}
	if err := r.envelope(p); err != nil {
		return nil, err
	}
	if n := len(p.String()); n > MaxStored {
		return nil, model.OverLimit(field, "takes %d bytes as it is stored, at most %d", n, MaxStored)
	}
	return p, nil
}

// Positions is the number of positions over all rings, the closing ones counted.
func (p *Polygon) Positions() (n int) {
	for _, ring := range p.rings {
		n += len(ring)
	}
	return n
}

// String is the normal form, as it is stored: no spaces, plain decimals, keys in one order. It reads as the same polygon.
func (p *Polygon) String() string {
	b := []byte(`{"kind":"` + Polygon2D + `","geometry":{"type":"Polygon","coordinates":[`)
	for i, ring := range p.rings {
		b = append(comma(b, i), '[')
		for k, at := range ring {
			b = append(comma(b, k), '[')
			b = append(strconv.AppendFloat(b, at.Lon, 'f', -1, 64), ',')
			b = append(strconv.AppendFloat(b, at.Lat, 'f', -1, 64), ']')
		}
		b = append(b, ']')
	}
	return string(append(b, "]}}"...))
}

func comma(b []byte, i int) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	return b
}

// reader reads the tokens of an envelope.
type reader struct {
	d         *json.Decoder
	positions int
}

func newReader(text string) *reader {
	r := &reader{d: json.NewDecoder(strings.NewReader(text))}
	r.d.UseNumber()
	return r
}

func refuse(format string, args ...any) error { return model.Invalid(field, format, args...) }

// next returns the next token.
func (r *reader) next() (json.Token, error) {
	token, err := r.d.Token()
	if err != nil {
		return nil, refuse("is no well-formed JSON document")
	}
	return token, nil
}

// envelope reads the whole text.
func (r *reader) envelope(p *Polygon) error {
	err := r.object("the envelope", map[string]func() error{
		"kind": r.kind,
		"geometry": func() error {
			return r.object("geometry", map[string]func() error{"type": r.typ, "coordinates": func() error { return r.rings(p) }})
		},
	})
	if err != nil {
		return err
	}
	if _, err := r.d.Token(); !errors.Is(err, io.EOF) {
		return refuse("has something after its end")
	}
	return nil
}

// object reads an object that has exactly these keys.
func (r *reader) object(what string, keys map[string]func() error) error {
	if token, err := r.next(); err != nil || token != json.Delim('{') {
		return orElse(err, refuse("%s must be an object", what))
	}
	var seen []string
	for r.d.More() {
		token, err := r.next()
		if err != nil {
			return err
		}
		key, _ := token.(string)
		read := keys[key]
		switch {
		case read == nil:
			return refuse(`%s has no key %.40q; the form is {"kind": "POLYGON_2D", "geometry": {"type": "Polygon", "coordinates": […]}}`, what, key)
		case slices.Contains(seen, key):
			return refuse("%s has the key %q twice", what, key)
		}
		seen = append(seen, key)
		if err := read(); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(seen, key) {
			return refuse("%s lacks the key %q", what, key)
		}
	}
	_, err := r.next()
	return err
}

func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

func (r *reader) kind() error {
	token, err := r.next()
	if err != nil {
		return err
	}
	switch token {
	case Polygon2D:
		return nil
	case "POLYGON_2_5D", "VOXEL_3D":
		return refuse("kind: %q is reserved and not supported yet, use %q", token, Polygon2D)
	}
	return refuse("kind: must be %q", Polygon2D)
}

func (r *reader) typ() error {
	if token, err := r.next(); err != nil || token != "Polygon" {
		return orElse(err, refuse(`geometry.type: must be "Polygon"`))
	}
	return nil
}

// rings reads the coordinates.
func (r *reader) rings(p *Polygon) error {
	if token, err := r.next(); err != nil || token != json.Delim('[') {
		return orElse(err, refuse("coordinates: must be a list of rings"))
	}
	for r.d.More() {
		ring, err := r.ring(len(p.rings) + 1)
		if err != nil {
			return err
		}
		p.rings = append(p.rings, ring)
	}
	if len(p.rings) == 0 {
		return refuse("coordinates: has no ring")
	}
	_, err := r.next()
	return err
}

// minRing is the length of a triangle.
const minRing = 4

func (r *reader) ring(number int) (ring []Position, err error) {
	if token, err := r.next(); err != nil || token != json.Delim('[') {
		return nil, orElse(err, refuse("ring %d: must be a list of positions", number))
	}
	for r.d.More() {
		if r.positions++; r.positions > MaxPositions {
			return nil, model.OverLimit("geoFencePositionCeiling", "%s: has more than %d positions over all rings", field, MaxPositions)
		}
		at, err := r.position(number, len(ring)+1)
		if err != nil {
			return nil, err
		}
		ring = append(ring, at)
	}
	if _, err := r.next(); err != nil {
		return nil, err
	}
	switch n := len(ring); {
	case n < minRing:
		return nil, refuse("ring %d: has %d positions, at least %d are needed: a triangle and its first position again", number, n, minRing)
	case ring[0] != ring[n-1]:
		return nil, refuse("ring %d: is not closed: position %d must be the same as position 1", number, n)
	}
	return ring, nil
}

func (r *reader) position(ring, number int) (at Position, err error) {
	bad := func(format string, args ...any) (Position, error) {
		return at, refuse("ring %d, position %d: "+format, append([]any{ring, number}, args...)...)
	}
	if token, err := r.next(); err != nil {
		return at, err
	} else if token != json.Delim('[') {
		return bad("must be [longitude, latitude]")
	}
	for _, axis := range []struct {
		name  string
		bound float64
		to    *float64
	}{{"longitude", 180, &at.Lon}, {"latitude", 90, &at.Lat}} {
		token, err := r.next()
		if err != nil {
			return at, err
		}
		digits, ok := token.(json.Number)
		if !ok {
			return bad("must be exactly [longitude, latitude], two numbers")
		}
		value, err := strconv.ParseFloat(string(digits), 64)
		if err != nil || value < -axis.bound || value > axis.bound {
			return bad("%s %.20s is outside of -%v to %v", axis.name, string(digits), axis.bound, axis.bound)
		}
		if value != 0 { // not -0
			*axis.to = value
		}
	}
	if token, err := r.next(); err != nil || token != json.Delim(']') {
		if err != nil {
			return at, err
		}
		return bad("must be exactly [longitude, latitude], two numbers")
	}
	return at, nil
}
