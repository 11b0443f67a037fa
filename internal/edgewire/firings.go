package edgewire

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// KindFirings is up: rules that the site runs have fired. Its acknowledgement says that all of it is on disk above.
const KindFirings = "firings"

// Bounds of Firings and of Runs.
const (
	MaxFirings = 200
	MaxRuns    = 256
)

// Firings are edges of rules that a site runs, in their order.
type Firings struct {
	Kind    string   `json:"kind"`
	Install string   `json:"installId"`
	Epoch   uint32   `json:"epoch"`
	Firings []Firing `json:"firings"`
}

// Signals of a Firing.
const (
	SignalRaised   = "RAISED"
	SignalResolved = "RESOLVED"
)

// Firing is an edge of a rule. ID is its number in the epoch, which increases; it is taken once.
type Firing struct {
	ID       uint64    `json:"id,string"`
	Device   string    `json:"device"`
	Profile  string    `json:"profile"`
	Rule     string    `json:"rule"`
	Signal   string    `json:"signal"`
	Occurred time.Time `json:"occurredTime"`
	Value    *float64  `json:"value,omitempty"`
}

func parseFirings(b []byte) (*Firings, error) {
	f := &Firings{}
	if err := json.Unmarshal(b, f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	if !ValidID(f.Install) || f.Epoch == 0 || len(f.Firings) == 0 || len(f.Firings) > MaxFirings {
		return nil, fmt.Errorf("%w: the installation, or %d firings: 1 to %d are allowed", ErrDocument, len(f.Firings), MaxFirings)
	}
	before := uint64(0)
	for i := range f.Firings {
		one := &f.Firings[i]
		if why := one.check(before); why != "" {
			return nil, fmt.Errorf("%w: firing %d: %s", ErrDocument, i, why)
		}
		before = one.ID
	}
	return f, nil
}

// check returns what is wrong with a firing that comes after another one, "" for nothing.
func (f *Firing) check(before uint64) string {
	const first, last = 2000, 2200 // years
	switch {
	case f.ID <= before || f.ID > math.MaxInt64:
		return "the ids do not increase"
	case !validToken(f.Device) || !validToken(f.Profile) || !validToken(f.Rule):
		return "device, profile or rule is no token"
	case f.Signal != SignalRaised && f.Signal != SignalResolved:
		return "the signal is not known"
	case f.Occurred.Year() < first || f.Occurred.Year() > last:
		return "the time is no time of day"
	}
	return ""
}

// Runs says which messages of an installation a profile's rules have judged at the site: those whose number is From or higher, and lower than Until where
// that is not 0. Version is that of the profile at the site, for people.
type Runs struct {
	Profile string `json:"profile"`
	Version int    `json:"version"`
	From    uint64 `json:"from"`
	Until   uint64 `json:"until,omitempty"`
}

func checkRuns(all []Runs) string {
	if len(all) > MaxRuns {
		return "it runs too many profiles"
	}
	for _, r := range all {
		if !validToken(r.Profile) || r.From == 0 || r.Until != 0 && r.Until < r.From {
			return "what it runs is no profile, or no range of numbers"
		}
	}
	return ""
}
