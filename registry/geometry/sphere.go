package geometry

import (
	"math"
	"slices"
)

// Tolerances, in radians. Two points closer than touching are one point to the checks: 6 µm on the ground.
const (
	touching = 1e-12
	onEdge   = 1e-9 // a position that close to an edge is on it: 6 mm
)

// vec is a vector; positions are unit vectors.
type vec struct{ x, y, z float64 }

func (at Position) vec() vec {
	lon, lat := at.Lon*math.Pi/180, at.Lat*math.Pi/180
	sinLon, cosLon := math.Sincos(lon)
	sinLat, cosLat := math.Sincos(lat)
	return vec{cosLat * cosLon, cosLat * sinLon, sinLat}
}

func (a vec) add(b vec) vec { return vec{a.x + b.x, a.y + b.y, a.z + b.z} }

func (a vec) sub(b vec) vec { return vec{a.x - b.x, a.y - b.y, a.z - b.z} }

func (a vec) dot(b vec) float64 { return a.x*b.x + a.y*b.y + a.z*b.z }

func (a vec) cross(b vec) vec {
	return vec{a.y*b.z - a.z*b.y, a.z*b.x - a.x*b.z, a.x*b.y - a.y*b.x}
}

func (a vec) length() float64 { return math.Sqrt(a.dot(a)) }

func (a vec) unit() vec {
	n := a.length()
	return vec{a.x / n, a.y / n, a.z / n}
}

// edge is the shorter arc from a to b, which is shorter than half a circle.
type edge struct {
	a, b      vec
	n         vec // unit normal of its plane, on the left of the way from a to b
	ring      int // both counted from 1, as in the request
	position  int // of a
	low, high vec // of a box around the arc
}

// newEdge makes the arc of two points that are neither the same nor opposite. The normal is exact for short arcs, too: the
// difference of the points is.
func newEdge(a, b vec) edge {
	e := edge{a: a, b: b, n: b.add(a).cross(b.sub(a)).unit()}
	bulge := 1 - a.add(b).length()/2 + touching // the arc is no further from its chord
	e.low = vec{min(a.x, b.x) - bulge, min(a.y, b.y) - bulge, min(a.z, b.z) - bulge}
	e.high = vec{max(a.x, b.x) + bulge, max(a.y, b.y) + bulge, max(a.z, b.z) + bulge}
	return e
}

// near reports whether the boxes of two arcs meet.
func (e *edge) near(f *edge) bool {
	return e.low.x <= f.high.x && f.low.x <= e.high.x && e.low.y <= f.high.y && f.low.y <= e.high.y && e.low.z <= f.high.z && f.low.z <= e.high.z
}

// holds reports whether a point is on the arc, to a tolerance.
func (e *edge) holds(p vec, tolerance float64) bool {
	return math.Abs(e.n.dot(p)) <= tolerance && e.n.cross(e.a).dot(p) >= -tolerance && e.b.cross(e.n).dot(p) >= -tolerance && e.a.add(e.b).dot(p) > 0
}

// meets reports whether two arcs have a point in common.
func (e *edge) meets(f *edge) bool {
	return e.near(f) && (e.holds(f.a, touching) || e.holds(f.b, touching) || f.holds(e.a, touching) || f.holds(e.b, touching) ||
		crosses(beside(e.n, f.a), beside(e.n, f.b), beside(f.n, e.a), beside(f.n, e.b)))
}

// side is on which side of a plane a point is, -1 or 1. A point in the plane counts as on its left, for all arcs that end in it.
func side(normal, p vec) int {
	if normal.dot(p) < 0 {
		return -1
	}
	return 1
}

// beside is side, 0 for a point in the plane.
func beside(normal, p vec) int {
	if math.Abs(normal.dot(p)) <= touching {
		return 0
	}
	return side(normal, p)
}

// crosses reports whether the arcs ab and cd cross, from the sides of c and d on ab, and of a and b on cd: both pairs are
// divided, and in the same half of the globe.
func crosses(c, d, a, b int) bool { return d != 0 && c == -d && a == d && b == -d }

// shape is a ring without repeated positions.
type shape struct {
	edges []edge
	left  bool // the inside is on the left of the edges
}

// prepare makes the shapes, and refuses rings that do not bound an area.
func (p *Polygon) prepare() error {
	for i, ring := range p.rings {
		s, err := newShape(i+1, ring)
		if err != nil {
			return err
		}
		p.shapes = append(p.shapes, s)
	}
	if err := p.simple(); err != nil {
		return err
	}
	return p.nested()
}

func newShape(number int, ring []Position) (s shape, err error) {
	var points []vec
	var positions []int
	for i, at := range ring[:len(ring)-1] {
		v := at.vec()
		if len(points) > 0 && v.sub(points[len(points)-1]).length() <= touching {
			continue // the same position again
		}
		points, positions = append(points, v), append(positions, i+1)
	}
	for len(points) > 1 && points[len(points)-1].sub(points[0]).length() <= touching {
		points = points[:len(points)-1]
	}
	if len(points) < minRing-1 {
		return s, refuse("ring %d: has %d different positions, at least %d are needed", number, len(points), minRing-1)
	}
	for i, a := range points {
		b := points[(i+1)%len(points)]
		if a.add(b).length() <= onEdge {
			return s, refuse("ring %d, position %d: the next one is the opposite point of the globe, so that the edge may go any way; add a position between them", number, positions[i])
		}
		e := newEdge(a, b)
		e.ring, e.position = number, positions[i]
		s.edges = append(s.edges, e)
	}
	s.left = s.leftArea() <= 2*math.Pi
	return s, nil
}

// leftArea is the area on the left of the edges, of 4π for the whole globe.
func (s *shape) leftArea() (sum float64) {
	o := s.edges[0].a
	for _, e := range s.edges[1:] {
		det := o.dot(e.a.sub(o).cross(e.b.sub(o)))
		sum += 2 * math.Atan2(det, 1+o.dot(e.a)+e.a.dot(e.b)+e.b.dot(o))
	}
	if sum = math.Mod(sum, 4*math.Pi); sum < 0 {
		sum += 4 * math.Pi
	}
	return sum
}

// simple refuses edges that meet. Those that follow one another have their common position only.
func (p *Polygon) simple() error {
	var all []*edge
	for i := range p.shapes {
		for k := range p.shapes[i].edges {
			all = append(all, &p.shapes[i].edges[k])
		}
	}
	slices.SortStableFunc(all, func(e, f *edge) int {
		switch {
		case e.low.z < f.low.z:
			return -1
		case e.low.z > f.low.z:
			return 1
		}
		return 0
	})
	var open []*edge // those whose boxes are not below the present one
	for _, f := range all {
		open = slices.DeleteFunc(open, func(e *edge) bool { return e.high.z < f.low.z })
		for _, e := range open {
			if p.clash(e, f) {
				return refuse("ring %d, position %d: the edge from here meets the one from ring %d, position %d; rings must not cross or touch themselves or one another",
					e.ring, e.position, f.ring, f.position)
			}
		}
		open = append(open, f)
	}
	return nil
}

// clash reports whether two edges have more in common than they may.
func (p *Polygon) clash(e, f *edge) bool {
	switch {
	case e.ring == f.ring && e.b == f.a:
		return e.holds(f.b, touching) || f.holds(e.a, touching) // turns back on itself
	case e.ring == f.ring && f.b == e.a:
		return f.holds(e.b, touching) || e.holds(f.a, touching)
	}
	return e.meets(f)
}

// nested refuses holes outside of the outer ring or inside of another hole. Rings do not meet, so one position decides.
func (p *Polygon) nested() error {
	for i := 1; i < len(p.shapes); i++ {
		at := p.shapes[i].edges[0].a
		if !p.shapes[0].encloses(at) {
			return refuse("ring %d: a hole must be inside of ring 1", i+1)
		}
		for k := 1; k < len(p.shapes); k++ {
			if k != i && p.shapes[k].encloses(at) {
				return refuse("ring %d: a hole must not be inside of another one, ring %d", i+1, k+1)
			}
		}
	}
	return nil
}

// Contains reports whether a position, in degrees, is inside of the polygon. On an edge, of a hole too, is inside.
func (p *Polygon) Contains(lon, lat float64) bool {
	at := Position{lon, lat}.vec()
	for i := range p.shapes {
		if slices.ContainsFunc(p.shapes[i].edges, func(e edge) bool { return e.holds(at, onEdge) }) {
			return true
		}
	}
	if !p.shapes[0].encloses(at) {
		return false
	}
	for i := range p.shapes[1:] {
		if p.shapes[1+i].encloses(at) {
			return false
		}
	}
	return true
}

// encloses reports whether a point that is on no edge is inside of the ring: it follows the arc from the middle of an edge,
// where the inside is known, to the point, and changes sides at each edge on the way.
func (s *shape) encloses(p vec) bool {
	from := &s.edges[0]
	for i := range s.edges { // the edge whose plane is furthest from the point
		if e := &s.edges[i]; math.Abs(e.n.dot(p)) > math.Abs(from.n.dot(p)) {
			from = e
		}
	}
	middle := from.a.add(from.b).unit()
	inside := (from.n.dot(p) > 0) == s.left
	normal := p.add(middle).cross(middle.sub(p)) // p × middle
	for i := range s.edges {
		e := &s.edges[i]
		if e != from && crosses(side(normal, e.a), side(normal, e.b), side(e.n, p), side(e.n, middle)) {
			inside = !inside
		}
	}
	return inside
}
