package actions

import (
	"cmp"
	"slices"
	"time"
)

// Standing is a target that stands still: it has failed several times in a row, and what is for it waits.
type Standing struct {
	Tenant   string    `json:"tenant"`
	Kind     string    `json:"kind"`
	Target   string    `json:"target,omitempty"`
	Since    time.Time `json:"since"`
	Rows     int64     `json:"rows"`
	Failures int       `json:"failures"` // in a row
	Next     time.Time `json:"nextAttempt"`
	Error    string    `json:"error"`
}

// Name names the target in a sentence.
func (s *Standing) Name() string {
	name := s.Tenant + " " + s.Kind
	if s.Target != "" {
		name += " " + s.Target
	}
	return name
}

// maxStanding is how many targets are shown.
const maxStanding = 100

// Standing returns the targets that stand still, the longest first, at most a hundred.
func (d *Drain) Standing() []Standing {
	if all := d.standings.Load(); all != nil {
		return *all
	}
	return nil
}

// show makes visible what stands still and how much waits.
func (d *Drain) show() {
	var all []Standing
	var rows, bytes int64
	for _, t := range d.ring {
		rows, bytes = rows+t.rows, bytes+t.bytes
		for _, q := range t.queues {
			if q.down() {
				all = append(all, Standing{Tenant: d.deps.Tenants.TokenOf(t.id), Kind: q.kind, Target: q.target, Since: q.since.UTC(), Rows: q.rows, Failures: q.failures,
					Next: q.paused.UTC(), Error: q.cause})
			}
		}
	}
	d.m.rows.Set(float64(max(rows, 0)))
	d.m.bytes.Set(float64(max(bytes, 0)))
	d.m.standing.Set(float64(len(all)))
	d.m.ending.Set(float64(len(d.unrecorded) + d.recording))
	slices.SortFunc(all, func(a, b Standing) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Target, b.Target))
	})
	all = all[:min(len(all), maxStanding)]
	d.standings.Store(&all)
}
