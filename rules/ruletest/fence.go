package ruletest

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"weir/internal/yamldoc"
	"weir/model"
)

// fenceUse is a geofence from somewhere in a test on.
type fenceUse struct {
	token    string
	geometry string // as the API takes it; "": there is none any more
	place    yamldoc.Position
}

// declareFence reads a geofence that stands from the begin of the tests on.
func (p *parser) declareFence() {
	into := &p.file.fences
	if p.test != nil {
		into = &p.test.fences
	}
	f, ok := p.fence(false)
	switch {
	case !ok:
	case slices.ContainsFunc(*into, func(o fenceUse) bool { return o.token == f.token }):
		p.problemAt(f.place.Column, "a fence that changes has its time: at 10s fence "+f.token+" …", "the fence %s is declared already", f.token)
	default:
		*into = append(*into, f)
	}
}

// fence reads the token of a geofence and its geometry: as the API takes it, or as positions.
//
//	fence yard 8.5,47.3 8.6,47.3 8.6,47.4 hole 8.58,47.32 8.59,47.32 8.59,47.33
func (p *parser) fence(mayEnd bool) (f fenceUse, ok bool) {
	p.next()
	f.place = yamldoc.Position{File: p.source, Line: p.line, Column: p.end}
	if len(p.words) > 0 {
		f.place.Column = p.words[0].column
	}
	if f.token = p.peek(); !model.ValidToken(f.token) {
		p.problem("for example fence yard 8.5,47.3 8.6,47.3 8.6,47.4", "%q is no token of a fence", f.token)
		p.words = nil
		return f, false
	}
	p.next()
	switch {
	case mayEnd && p.take("none"):
		return f, true
	case strings.HasPrefix(p.peek(), "{"):
		f.geometry, ok = p.object("geometry")
		return f, ok
	}
	before := len(p.problems)
	f.geometry = p.rings()
	return f, len(p.problems) == before
}

// rings reads positions: the outer ring, and each hole after the word hole. A ring closes by itself.
func (p *parser) rings() string {
	rings := [][][2]float64{nil}
	for len(p.words) > 0 {
		last := &rings[len(rings)-1]
		if p.peek() == "hole" {
			p.closes(*last)
			p.next()
			rings = append(rings, nil)
			continue
		}
		if at := p.position(); at != nil {
			*last = append(*last, [2]float64{at.Longitude, at.Latitude})
		}
	}
	p.closes(rings[len(rings)-1])
	for i, ring := range rings {
		if n := len(ring); n > 0 && ring[0] != ring[n-1] {
			rings[i] = append(ring, ring[0])
		}
	}
	b, err := json.Marshal(map[string]any{"kind": "POLYGON_2D", "geometry": map[string]any{"type": "Polygon", "coordinates": rings}})
	if err != nil { // finite numbers can be written
		p.problem("", "the geometry cannot be written: %v", err)
	}
	return string(b)
}

func (p *parser) closes(ring [][2]float64) {
	if len(ring) < 3 {
		p.problem("for example 8.5,47.3 8.6,47.3 8.6,47.4", "a ring has at least 3 positions")
	}
}

// position reads LON,LAT. It returns nil for what is none.
func (p *parser) position() *model.Location {
	east, north, ok := strings.Cut(p.peek(), ",")
	lon, err := strconv.ParseFloat(east, 64)
	lat, err2 := strconv.ParseFloat(north, 64)
	switch {
	case !ok || err != nil || err2 != nil:
		p.problem("longitude and latitude: 8.55,47.35", "%q is no position", p.peek())
	case !(math.Abs(lon) <= 180 && math.Abs(lat) <= 90): // NaN is neither
		p.problem("longitude comes first, from -180 to 180, then latitude, from -90 to 90", "%q is not on the globe", p.peek())
	default:
		p.next()
		return &model.Location{Longitude: lon, Latitude: lat}
	}
	p.next()
	return nil
}

// areas reads the geofences of tests, each geometry once.
type areas struct {
	read  func(string) (Area, error)
	known map[string]readArea
}

type readArea struct {
	Area
	err error
}

func (a *areas) of(geometry string) (Area, error) {
	r, known := a.known[geometry]
	switch {
	case a.read == nil:
		return nil, errors.New("geofences cannot be read here")
	case !known:
		r.Area, r.err = a.read(geometry)
		a.known[geometry] = r
	}
	return r.Area, r.err
}

// readFences reads the geofences that a test has at its begin and those that come, and returns how many positions there are.
func (w *world) readFences(t *Test, declared []fenceUse, a *areas, problems *yamldoc.Problems) (positions int) {
	read := func(f *fenceUse) {
		if f.geometry == "" {
			return
		}
		area, err := a.of(f.geometry)
		if err != nil {
			*problems = append(*problems, f.place.Problem("", false, "", "fence %s: %v", f.token, err))
			return
		}
		w.areas[f.geometry] = area
		positions += area.Positions()
	}
	fences := maps.Clone(w.fences) // of the site files
	for token, geometry := range w.fences {
		read(&fenceUse{token: token, geometry: geometry, place: t.rules[0].place})
	}
	for _, f := range slices.Concat(declared, t.fences) {
		read(&f)
		fences[f.token] = f.geometry
	}
	for i := range t.steps {
		if t.steps[i].verb == fence {
			read(&t.steps[i].fence)
		}
	}
	w.fences = fences
	return positions
}

// Inside is rules.Facts.
func (f facts) Inside(_ int64, fence string, lon, lat float64) (inside, known bool) {
	geometry := f.w.fences[fence]
	if geometry == "" {
		return false, false
	}
	return f.w.areas[geometry].Contains(lon, lat), true
}
