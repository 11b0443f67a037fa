package geometry

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weir/model"
)

// envelope is a polygon of these rings.
func envelope(rings string) string {
	return `{"kind": "POLYGON_2D", "geometry": {"type": "Polygon", "coordinates": [` + rings + `]}}`
}

const (
	square = `[[0,0],[10,0],[10,10],[0,10],[0,0]]`
	inner  = `[[2,2],[4,2],[4,4],[2,4],[2,2]]`
)

func TestAnEnvelopeIsReadInItsNormalForm(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		envelope(square): `{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[[0,0],[10,0],[10,10],[0,10],[0,0]]]}}`,
		" { \"geometry\" : {\"coordinates\":[" + square + "," + inner + `], "type": "Polygon"}, "kind":"POLYGON_2D" } `: `{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[[0,0],[10,0],[10,10],[0,10],[0,0]],[[2,2],[4,2],[4,4],[2,4],[2,2]]]}}`,
		envelope(`[[-0.0,0e5],[1e1,-0],[8.50,1.25e0],[0,0]]`):                                                           `{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[[0,0],[10,0],[8.5,1.25],[0,0]]]}}`,
	} {
		p, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if p.String() != want {
			t.Errorf("%s is stored as %s, want %s", text, p, want)
		}
	}
	p, err := Parse(envelope(square + "," + inner))
	if err != nil || p.Positions() != 10 {
		t.Errorf("%d positions, %v", p.Positions(), err)
	}
}

func TestARefusalNamesRingAndPosition(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{``, "is no well-formed JSON document"},
		{`{"kind":`, "is no well-formed JSON document"},
		{`{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[[0,0],[1,0`, "is no well-formed JSON document"},
		{`[]`, "the envelope must be an object"},
		{`{}`, `the envelope lacks the key "geometry"`},
		{`{"kind":"POLYGON_2D"}`, `the envelope lacks the key "geometry"`},
		{`{"type":"Polygon","coordinates":[` + square + `]}`, `the envelope has no key "type"; the form is {"kind": "POLYGON_2D"`},
		{`{"kind":"POLYGON_2D","kind":"POLYGON_2D"}`, `has the key "kind" twice`},
		{`{"Kind":"POLYGON_2D"}`, `has no key "Kind"`},
		{`{"kind":"POLYGON_2_5D"}`, `"POLYGON_2_5D" is reserved and not supported yet`},
		{`{"kind":"VOXEL_3D"}`, `"VOXEL_3D" is reserved`},
		{`{"kind":5}`, `kind: must be "POLYGON_2D"`},
		{`{"kind":"POLYGON_2D","geometry":null}`, "geometry must be an object"},
		{`{"kind":"POLYGON_2D","geometry":{"type":"Point"}}`, `geometry.type: must be "Polygon"`},
		{`{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[],"bbox":[]}}`, `coordinates: has no ring`},
		{`{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[` + square + `],"bbox":[]}}`, `geometry has no key "bbox"`},
		{envelope(square) + ` {}`, "has something after its end"},
		{envelope(`5`), "ring 1: must be a list of positions"},
		{envelope(square + `,[5]`), "ring 2, position 1: must be [longitude, latitude]"},
		{envelope(`[]`), "ring 1: has 0 positions, at least 4"},
		{envelope(`[[0,0],[1,0],[0,0]]`), "ring 1: has 3 positions, at least 4"},
		{envelope(`[[0,0],[1,0],[1,1],[0,1]]`), "ring 1: is not closed: position 4 must be the same as position 1"},
		{envelope(square + `,[[0,0],[1,0,5],[1,1],[0,0]]`), "ring 2, position 2: must be exactly [longitude, latitude], two numbers"},
		{envelope(`[[0,0],[1],[1,1],[0,0]]`), "ring 1, position 2: must be exactly [longitude, latitude]"},
		{envelope(`[[0,0],["1",0],[1,1],[0,0]]`), "ring 1, position 2: must be exactly"},
		{envelope(`[[0,0],[1,0],[47.3,180.5],[0,0]]`), "ring 1, position 3: latitude 180.5 is outside of -90 to 90"},
		{envelope(`[[0,0],[-180.1,0],[1,1],[0,0]]`), "ring 1, position 2: longitude -180.1 is outside of -180 to 180"},
		{envelope(`[[0,0],[1e999,0],[1,1],[0,0]]`), "ring 1, position 2: longitude 1e999 is outside"},
		{envelope(`[[0,0],[1,0],[0,0],[0,0]]`), "ring 1: has 2 different positions, at least 3"},
		{envelope(`[[0,90],[50,90],[100,90],[0,90]]`), "ring 1: has 1 different positions"},
		{envelope(`[[0,0],[180,0],[90,50],[0,0]]`), "ring 1, position 1: the next one is the opposite point of the globe"},
		{envelope(`[[0,0],[10,10],[10,0],[0,10],[0,0]]`), "ring 1, position 1: the edge from here meets the one from ring 1, position 3"},     // a bow tie
		{envelope(`[[0,0],[10,0],[5,0],[5,5],[0,0]]`), "meets the one from ring 1"},                                                           // turns back
		{envelope(`[[0,0],[0,10],[0,5],[5,5],[0,0]]`), "meets the one from ring 1"},                                                           // along a meridian
		{envelope(`[[33,1],[33,10],[33,5],[35,5],[33,1]]`), "meets the one from ring 1"},                                                      // along one whose plane is rounded
		{envelope(`[[0,0],[10,0],[10,10],[5,0],[0,10],[0,0]]`), "meets the one from ring 1"},                                                  // touches the first edge
		{envelope(`[[0,0],[4,0],[2,2],[4,4],[0,4],[2,2],[0,0]]`), "meets the one from ring 1"},                                                // a position twice
		{envelope(`[[170,0],[-170,0],[175,5],[-175,-5],[170,0]]`), "meets the one from ring 1"},                                               // over the antimeridian
		{envelope(square + `,[[8,8],[12,8],[12,9],[8,9],[8,8]]`), "ring 1, position 2: the edge from here meets the one from ring 2"},         // a hole over the edge
		{envelope(square + `,[[0,0],[4,2],[4,4],[2,4],[0,0]]`), "meets the one from ring 2"},                                                  // a hole that touches
		{envelope(square + `,` + square), "meets the one from ring 2"},                                                                        // the same ring
		{envelope(square + `,[[12,2],[14,2],[14,4],[12,4],[12,2]]`), "ring 2: a hole must be inside of ring 1"},                               // outside
		{envelope(inner + `,` + square), "ring 2: a hole must be inside of ring 1"},                                                           // around
		{envelope(square + `,` + inner + `,[[2.5,2.5],[3,2.5],[3,3],[2.5,2.5]]`), "ring 3: a hole must not be inside of another one, ring 2"}, // nested
	} {
		_, err := Parse(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) || model.CodeOf(err) != model.CodeInvalidInput || !strings.HasPrefix(err.Error(), "geometry: ") {
			t.Errorf("%.200s: %v, want %s", c.text, err, c.want)
		}
	}
}

// regular is a ring of n positions around a center.
func regular(n int, lon, lat, radius float64) string {
	var at []string
	for i := range n {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / float64(n))
		at = append(at, fmt.Sprintf("[%.9f,%.9f]", lon+radius*cos, lat+radius*sin))
	}
	return "[" + strings.Join(append(at, at[0]), ",") + "]"
}

func TestGeometriesAreBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, want string
	}{
		{envelope("[" + strings.Repeat("[1,1],", MaxPositions) + "[1,1]]"), "geoFencePositionCeiling: geometry: has more than 4096 positions"},
		{envelope(regular(1500, 8, 47, 1)), "as it is stored, at most 32768"},
	} {
		if _, err := Parse(c.text); model.CodeOf(err) != model.CodeLimitExceeded || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.100s: %v, want %s", c.text, err, c.want)
		}
	}
	if p, err := Parse(envelope(regular(511, 8, 47, 1))); err != nil || p.Positions() != 512 {
		t.Errorf("512 positions: %v", err)
	}
}

// Shapes that people draw: none of these is refused.
func TestOrdinaryShapesAreAccepted(t *testing.T) {
	t.Parallel()
	for _, rings := range []string{
		square, inner, square + "," + inner,
		square + "," + inner + ",[[6,6],[8,6],[8,8],[6,6]]",
		`[[0,0],[0,10],[10,10],[10,0],[0,0]]`,                                           // clockwise
		`[[0,0],[5,0],[10,0],[10,5],[10,10],[5,10],[0,10],[0,5],[0,3],[0,0]]`,           // positions on straight lines
		`[[33,1],[33,2],[33,3],[33,3.001],[33,5],[35,5],[35,1],[33,1]]`,                 // likewise, where the plane is rounded
		`[[0,0],[0,0],[1,0],[1,1],[1,1],[1,1],[0,0]]`,                                   // positions repeated
		`[[179,-1],[-179,-1],[-179,1],[179,1],[179,-1]]`,                                // over the antimeridian
		`[[0,80],[90,80],[180,80],[-90,80],[0,80]]`,                                     // around a pole
		`[[0,0],[120,0],[-120,0],[0,0]]`,                                                // half of the globe
		`[[8.5,47.3],[8.50000001,47.3],[8.50000001,47.30000001],[8.5,47.3]]`,            // of a millimetre
		`[[0,0],[10,0],[10,10],[6,10],[6,2],[4,2],[4,10],[0,10],[0,0]]`,                 // concave
		regular(500, 8.5, 47.3, 0.01), regular(300, 0, 0, 80), regular(60, -60, -80, 9), //
	} {
		if _, err := Parse(envelope(rings)); err != nil {
			t.Errorf("%.100s: %v", rings, err)
		}
	}
}

func TestWhatAPolygonContains(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rings       string
		in, outside [][2]float64
	}{
		{square, [][2]float64{{5, 5}, {1e-6, 1e-6}, {0, 0}, {0, 5}, {10, 10}, {5, 0}}, [][2]float64{{-1, 5}, {11, 5}, {5, -1e-6}, {5, 11}, {-175, -5}, {-5, -5}, {0, 90}, {0, -90}, {180, 0}}},
		{`[[0,0],[0,10],[10,10],[10,0],[0,0]]`, [][2]float64{{5, 5}}, [][2]float64{{-1, 5}, {-175, -5}}},
		{square + "," + inner, [][2]float64{{1, 1}, {5, 5}, {2, 3}, {4, 4}}, [][2]float64{{3, 3}, {3.9, 2.1}, {12, 3}}},
		{`[[179,-1],[-179,-1],[-179,1],[179,1],[179,-1]]`, [][2]float64{{180, 0}, {-180, 0.5}, {179.5, -0.5}, {-179.5, 0.9}}, [][2]float64{{178, 0}, {-178, 0}, {0, 0}, {1, 0}}},
		{`[[0,80],[90,80],[180,80],[-90,80],[0,80]]`, [][2]float64{{0, 90}, {77, 89}, {45, 83}}, [][2]float64{{45, 79}, {45, 80.5}, {0, 0}, {0, -90}}}, // the edge bulges to the pole
		{`[[0,0],[10,0],[10,10],[6,10],[6,2],[4,2],[4,10],[0,10],[0,0]]`, [][2]float64{{5, 1}, {2, 8}, {8, 8}}, [][2]float64{{5, 5}, {5, 9}}},
		{`[[0,60],[90,60],[0,0],[0,60]]`, [][2]float64{{45, 65}}, [][2]float64{{45, 70}}}, // a great circle, not the line of the map
	} {
		p, err := Parse(envelope(c.rings))
		if err != nil {
			t.Fatal(c.rings, err)
		}
		for _, at := range c.in {
			if !p.Contains(at[0], at[1]) {
				t.Errorf("%s does not contain %v", c.rings, at)
			}
		}
		for _, at := range c.outside {
			if p.Contains(at[0], at[1]) {
				t.Errorf("%s contains %v", c.rings, at)
			}
		}
	}
}

// A star around a center contains what is nearer to it than its edge in that direction, wherever on the globe it is.
func TestAStarContainsItsInside(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		center := Position{rapid.Float64Range(-180, 180).Draw(t, "lon"), rapid.Float64Range(-89.9, 89.9).Draw(t, "lat")}
		size := rapid.SampledFrom([]float64{1e-4, 1e-2, 0.1, 1}).Draw(t, "size")
		n := rapid.IntRange(3, 40).Draw(t, "corners")
		radius := make([]float64, n)
		for i := range radius {
			radius[i] = size * rapid.Float64Range(0.3, 1).Draw(t, "radius")
		}
		var at []string
		for i := range radius {
			p := away(center, 2*math.Pi*float64(i)/float64(n), radius[i])
			at = append(at, fmt.Sprintf("[%v,%v]", p.Lon, p.Lat))
		}
		if rapid.Bool().Draw(t, "clockwise") {
			slices.Reverse(at)
		}
		p, err := Parse(envelope("[" + strings.Join(append(at, at[0]), ",") + "]"))
		if err != nil {
			t.Fatal(err)
		}
		i := rapid.IntRange(0, n-1).Draw(t, "corner")
		inside, outside := away(center, 2*math.Pi*float64(i)/float64(n), radius[i]*0.95), away(center, 2*math.Pi*float64(i)/float64(n), radius[i]*1.05)
		if !p.Contains(center.Lon, center.Lat) || !p.Contains(inside.Lon, inside.Lat) {
			t.Errorf("%s does not contain its inside", p)
		}
		if opposite := away(center, 0, math.Pi); p.Contains(outside.Lon, outside.Lat) || p.Contains(opposite.Lon, opposite.Lat) {
			t.Errorf("%s contains what is outside", p)
		}
	})
}

// away is the position at a distance in radians.
func away(from Position, azimuth, distance float64) Position {
	lat, lon := from.Lat*math.Pi/180, from.Lon*math.Pi/180
	sin := math.Sin(lat)*math.Cos(distance) + math.Cos(lat)*math.Sin(distance)*math.Cos(azimuth)
	to := math.Asin(max(-1, min(1, sin)))
	east := lon + math.Atan2(math.Sin(azimuth)*math.Sin(distance)*math.Cos(lat), math.Cos(distance)-math.Sin(lat)*sin)
	degrees := math.Mod(east*180/math.Pi+540, 360) - 180
	return Position{degrees, to * 180 / math.Pi}
}

// Whatever a client sends: a refusal of the two codes, or a polygon whose normal form reads as itself.
func FuzzParse(f *testing.F) {
	for _, rings := range []string{square, square + "," + inner, `[[0,0],[10,10],[10,0],[0,10],[0,0]]`, `[[179,-1],[-179,-1],[-179,1],[179,1],[179,-1]]`,
		`[[0,80],[90,80],[180,80],[-90,80],[0,80]]`, `[[0,0],[180,0],[90,50],[0,0]]`, regular(12, 1, 2, 3)} {
		f.Add(envelope(rings))
	}
	f.Add(`{"kind":"VOXEL_3D"}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			if code := model.CodeOf(err); code != model.CodeInvalidInput && code != model.CodeLimitExceeded {
				t.Errorf("%v", err)
			}
			return
		}
		again, err := Parse(p.String())
		if err != nil || again.String() != p.String() || again.Positions() != p.Positions() || p.Positions() > MaxPositions || len(p.String()) > MaxStored {
			t.Errorf("%s reads as %s, %v", p, again, err)
		}
		for _, at := range p.rings[0] {
			if !p.Contains(at.Lon, at.Lat) {
				t.Errorf("%s does not contain its corner %v", p, at)
			}
		}
	})
}

func BenchmarkParseOf512Positions(b *testing.B) {
	text := envelope(regular(511, 8, 47, 1))
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
