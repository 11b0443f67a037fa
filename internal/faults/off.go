//go:build !faults

package faults

import "time"

// Point is a place at which the program may be ended on purpose.
func Point(string) {}

// Keep keeps a file that is about to be removed: it does nothing.
func Keep(string) {}

// Wait returns how long a wait with a name is: as long as usual.
func Wait(_ string, usual time.Duration) time.Duration { return usual }
