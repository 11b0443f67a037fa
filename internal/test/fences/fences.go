// Package fences reads geofences for the tests of packages below the one that reads them.
package fences

import "weir/registry/geometry"

// Area reads the geometry of a geofence.
func Area(text string) (*geometry.Polygon, error) { return geometry.Parse(text) }
