package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"weir/internal/edgewire"
	"weir/internal/ranges"
	"weir/model"
	"weir/store"
	"weir/store/entity"
	"weir/store/installs"
)

// Findings about an edge.
const (
	// EdgeCloned: two edges have the same installation, or one goes on from an older copy of itself; the second was asked to begin as another one.
	EdgeCloned = "EdgeCloned"
	// EdgeReplaced: another installation has signed in as the device.
	EdgeReplaced = "EdgeReplaced"
	// EdgeGap: numbers have left the edge that are not here.
	EdgeGap = "EdgeGap"
)

// Bounds of what is kept of edges.
const (
	maxInstalls  = 16               // of a device; beyond that the one that was heard least recently is forgotten
	copiedLately = 10 * time.Minute // a new installation after a copy was noticed is that copy
)

// EdgeState is what is known of the installation that was heard last of an edge.
type EdgeState struct {
	InstallID string       `gql:"installId"`
	Epoch     int64        `gql:"epoch"`
	Version   string       `gql:"version"`
	Newest    string       `gql:"newestNumber"`
	Position  string       `gql:"position"`
	Waiting   string       `gql:"waiting"`
	Oldest    float64      `gql:"oldestSeconds"`
	Bytes     float64      `gql:"bytes"`
	MaxBytes  float64      `gql:"maxBytes"`
	Clock     bool         `gql:"clockKnown"`
	Gaps      []EdgeRange  `gql:"gaps"`
	Ranges    []EdgeRange  `gql:"ranges"`
	Findings  []string     `gql:"findings"`
	First     model.Micros `gql:"firstHeardTime"`
	Heard     model.Micros `gql:"lastHeardTime"`
}

// saidOf is what is stored of a hello.
type saidOf struct {
	edgewire.Hello
	Above ranges.Set `json:"above"` // numbers of the epoch that were here
}

// EdgeRange is a range of numbers of an edge.
type EdgeRange struct {
	First string `gql:"first"`
	Last  string `gql:"last"`
}

// Said takes in what an edge says of itself, and returns the answer to a hello. above are the numbers of its epoch that are here, and complete
// says that they are all. Errors are those of the store.
func (es *Edges) Said(ctx context.Context, edge model.Binding, h *edgewire.Hello, above ranges.Set, complete bool) (*edgewire.Welcome, error) {
	w := &edgewire.Welcome{
		Kind:       edgewire.KindWelcome,
		Nonce:      h.Nonce,
		Partitions: 1,
		Complete:   complete,
		Ranges:     above.Fold(edgewire.MaxRanges),
	}
	by := model.Service("edge", edge.Tenant, edge.TenantID, model.DeviceRead, model.DeviceWrite)
	var noted []string
	err := es.mutate(ctx, by, func(c *store.Change) error {
		// The change may be tried again.
		noted, w.Renew, w.Carried = nil, "", nil
		// Edges say something often, and the journal is for people.
		c.Unjournaled()
		now := c.At
		all, err := installs.Of(c, edge.DeviceID)
		if err != nil {
			return err
		}
		// Find the installation among those that have said something before.
		var mine *installs.Install
		for _, i := range all {
			if i.ID == h.Install {
				mine = i
			}
		}
		if h.Kind == edgewire.KindHello {
			if w.Renew = renews(h, mine, above); w.Renew != "" {
				if mine == nil {
					mine = installOf(edge, h, now)
				}
				mine.Copied = now
				noted = append(noted, EdgeCloned)
				return installs.Put(c, mine)
			}
		}
		if mine == nil {
			mine = installOf(edge, h, now)
			// A new one in place of another is worth a finding, unless it was asked to begin as another one.
			if len(all) > 0 && !wasCopiedLately(all, now) {
				mine.Replaced = now
				noted = append(noted, EdgeReplaced)
			}
			for len(all) >= maxInstalls {
				last := all[len(all)-1]
				all = all[:len(all)-1]
				if err := forgetInstall(c, last); err != nil {
					return err
				}
			}
		}
		mine.Machine, mine.Heard = cmp.Or(mine.Machine, h.Machine), now
		if h.Kind == edgewire.KindHello && complete {
			// Numbers that left the edge and are neither here nor on their way.
			gone, _ := edgewire.Lacking(h, w)
			gaps := encode(gone)
			if len(gone) > 0 && gaps != mine.Gaps {
				mine.Gap = now
				noted = append(noted, EdgeGap)
			}
			mine.Gaps = gaps
		}
		if h.Kind == edgewire.KindHello {
			if w.Carried, err = carriedOf(mine, h.Epoch); err != nil {
				return err
			}
		}
		// Keep what it said, for the status.
		said := saidOf{*h, above.Fold(edgewire.MaxRanges)}
		said.Nonce = ""
		if h.Kind == edgewire.KindHello {
			err = setJudgedRules(c, mine, h.Runs)
		} else {
			said.Runs, err = runsOf(mine) // only a hello waits until it is in force
		}
		if err != nil {
			return err
		}
		mine.Hello = encode(said)
		return installs.Put(c, mine)
	})
	if err != nil {
		return nil, err
	}
	// Counted only once it is committed.
	for _, finding := range noted {
		es.found.WithLabelValues(finding).Inc()
	}
	if h.Kind != edgewire.KindHello {
		return nil, nil
	}
	return w, nil
}

// forgetInstall forgets an installation, for another one. One that is forgotten judges nothing any more.
func forgetInstall(c *store.Change, i *installs.Install) error {
	if err := setJudgedRules(c, i, nil); err != nil {
		return err
	}
	return installs.Remove(c, i.DeviceID, i.ID)
}

// setJudgedRules makes known which rules an installation judges itself, from the offset of the change on, where that is not what it said before.
func setJudgedRules(c *store.Change, i *installs.Install, runs []edgewire.Runs) error {
	before, err := runsOf(i)
	if err != nil {
		return err
	}
	// A row of the view is made only where something changes.
	same := func(a, b edgewire.Runs) bool { return a.Profile == b.Profile && a.From == b.From && a.Until == b.Until }
	if slices.EqualFunc(before, runs, same) {
		return nil
	}
	v := entity.View{Kind: model.ViewSite, Key: idKey(i.TenantID) + "/" + i.ID}
	if len(runs) > 0 {
		body := model.SiteView{V: 1}
		for _, r := range runs {
			body.Runs = append(body.Runs, model.SiteRun{Profile: r.Profile, From: r.From, Until: r.Until})
		}
		v.Body = body
	}
	return entity.SetViews(c, v)
}

// runsOf is what an installation judges itself.
func runsOf(i *installs.Install) ([]edgewire.Runs, error) {
	var said saidOf
	err := json.Unmarshal([]byte(i.Hello), &said)
	return said.Runs, err
}

// endJudging ends what the installations of a device judge themselves.
func endJudging(c *store.Change, device int64) error {
	all, err := installs.Of(c, device)
	for _, i := range all {
		if err == nil {
			err = setJudgedRules(c, i, nil)
		}
	}
	return err
}

// renews returns why an edge is to begin as another installation, "" where it may go on.
func renews(h *edgewire.Hello, mine *installs.Install, above ranges.Set) string {
	switch {
	case above.Last() > h.Newest:
		return "numbers of this installation are above that it has not given: it goes on from an older copy, or another edge has a copy of it"
	case mine != nil && mine.Machine != "" && h.Machine != "" && mine.Machine != h.Machine:
		return "this installation was on another machine before: it is a copy, or was moved"
	}
	return ""
}

// wasCopiedLately reports whether a copy of an installation was noticed lately.
func wasCopiedLately(all []*installs.Install, now model.Micros) bool {
	for _, i := range all {
		if i.Copied != 0 && now.Time().Sub(i.Copied.Time()) < copiedLately {
			return true
		}
	}
	return false
}

func installOf(edge model.Binding, h *edgewire.Hello, now model.Micros) *installs.Install {
	return &installs.Install{
		DeviceID: edge.DeviceID,
		TenantID: edge.TenantID,
		ID:       h.Install,
		Machine:  h.Machine,
		Hello:    "{}",
		Gaps:     "null",
		Carried:  "{}",
		First:    now,
		Heard:    now,
	}
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "null" // a float that is none; the parser lets none through
	}
	return string(b)
}

// StateOf returns what is known of an edge's installation, nil where none has said anything yet.
func (es *Edges) StateOf(ctx context.Context, e *Edge) (*EdgeState, error) {
	var all []*installs.Install
	if err := store.Read(ctx, es.waiting, func(tx store.Tx) (err error) {
		all, err = installs.Of(tx, e.DeviceID)
		return err
	}); err != nil || len(all) == 0 {
		return nil, err
	}
	// The newest that was heard.
	i := all[0]
	var h saidOf
	var gaps ranges.Set
	if err := json.Unmarshal([]byte(i.Hello), &h); err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(i.Gaps), &gaps); err != nil {
		return nil, err
	}
	s := &EdgeState{
		InstallID: i.ID,
		Epoch:     int64(h.Epoch),
		Version:   h.Version,
		Newest:    number(h.Newest),
		Position:  number(h.Position),
		Waiting:   number(h.Waiting),
		Oldest:    h.OldestSeconds,
		Bytes:     float64(h.Bytes),
		MaxBytes:  float64(h.MaxBytes),
		Clock:     h.Time != nil,
		Gaps:      edgeRanges(gaps),
		Ranges:    edgeRanges(h.Above),
		Findings:  []string{},
		First:     i.First,
		Heard:     i.Heard,
	}
	for _, one := range all { // of any of its installations
		for _, f := range []struct {
			name string
			at   model.Micros
		}{{EdgeCloned, one.Copied}, {EdgeReplaced, one.Replaced}, {EdgeGap, one.Gap}} {
			if f.at != 0 && !slices.Contains(s.Findings, f.name) {
				s.Findings = append(s.Findings, f.name)
			}
		}
	}
	return s, nil
}

// edgeRanges shows numbers as the API does.
func edgeRanges(s ranges.Set) []EdgeRange {
	out := make([]EdgeRange, 0, len(s))
	for _, r := range s {
		out = append(out, EdgeRange{number(r[0]), number(r[1])})
	}
	return out
}

// number is a number as text: JSON has no integers of 64 bits.
func number(n uint64) string { return strconv.FormatUint(n, 10) }
