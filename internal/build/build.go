// Package build knows from which commit this binary was made, and when: no time before that is a time of day.
package build

import (
	"runtime/debug"
	"time"
)

// stamp is set by the build, as RFC 3339. It is the time of the commit and not of the build, so that two builds of the
// same sources are equal.
var stamp string

// commit is set by the build where the build does not note it by itself: the hash, with -dirty after it where the tree had changes.
var commit string

// floor is a time before which no Weir was made.
var floor = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Commit returns the commit of the sources, with -dirty after it where they had changes; "" where that is not known.
func Commit() string {
	if commit != "" {
		return commit
	}
	if setting("vcs.modified") == "true" {
		return setting("vcs.revision") + "-dirty"
	}
	return setting("vcs.revision")
}

// Time returns when the sources were committed, or a time before it where that is not known.
func Time() time.Time { return latest(stamp, setting("vcs.time")) }

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

// setting is what a build inside of a repository notes by itself.
func setting(name string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == name {
				return s.Value
			}
		}
	}
	return ""
}
