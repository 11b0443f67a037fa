// Package build knows when the sources of this binary were committed: no time before that is a time of day.
package build

import (
	"runtime/debug"
	"time"
)

// stamp is set by the build, as RFC 3339. It is the time of the commit and not of the build, so that two builds of the
// same sources are equal.
var stamp string

// floor is a time before which no Weir was made.
var floor = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Time returns when the sources were committed, or a time before it where that is not known.
func Time() time.Time { return latest(stamp, revision()) }

// latest is the later of the times that read, and at least the floor.
func latest(stamps ...string) time.Time {
	t := floor
	for _, s := range stamps {
		if at, err := time.Parse(time.RFC3339, s); err == nil && at.After(t) {
			t = at
		}
	}
	return t.UTC()
}

// revision is what a build inside of a repository notes by itself.
func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.time" {
				return s.Value
			}
		}
	}
	return ""
}
