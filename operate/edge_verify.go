package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"weir/edge"
	"weir/internal/edgewire"
	"weir/internal/ranges"
	"weir/model"
	"weir/store"
	"weir/store/installs"
)

// EdgeVerification compares what an installation of an edge has handed over of an epoch with what is above.
type EdgeVerification struct {
	Tenant    string     `json:"tenant,omitempty"`
	Edge      string     `json:"edge,omitempty"` // the device as which it signs in
	InstallID string     `json:"installId"`
	Epoch     uint32     `json:"epoch"`
	AsOf      *time.Time `json:"asOf,omitempty"` // when the edge said what it has handed over, or the Weir above what it has; nil: never
	// Through is the highest number up to which everything was handed over.
	Through uint64 `json:"through"`
	// HandedOver is how many messages that were; Above how many of them are there. Dead letters of the edge and what it has dropped are not among
	// them.
	HandedOver uint64 `json:"handedOver"`
	Above      uint64 `json:"above"`
	// Missing are numbers that were handed over and are not above. Named are those of them that both sides have named as a gap.
	Missing []string `json:"missing"`
	Named   []string `json:"named,omitempty"`
	// Carried is how many messages were carried by hand, Ahead how many are above behind Through.
	Carried uint64 `json:"carried,omitempty"`
	Ahead   uint64 `json:"ahead,omitempty"`
	Agree   bool   `json:"agree"`
}

// EdgesVerified is what was found of all edges, or of the one that was asked.
type EdgesVerified struct {
	Agree bool               `json:"agree"`
	Edges []EdgeVerification `json:"edges"`
	// Complete says that everything that was acknowledged before is looked at.
	Complete bool `json:"complete"`
}

// VerifyEdges compares what edges have handed over with what is above. On an edge it is what the Weir above said last.
var VerifyEdges = Verb[None, *EdgesVerified]{Name: "edge-verify", running: (*Operator).verifyEdges, edge: (*EdgeOperator).verifyEdges}

// compare fills in what follows from the numbers of both sides.
func (v *EdgeVerification) compare(first, through uint64, absent, above, gaps ranges.Set) {
	v.Through = through
	if first <= through {
		handed := ranges.Lacking(first, through, absent)
		missing := ranges.Lacking(first, through, absent, above)
		unnamed := ranges.Lacking(first, through, absent, above, gaps)
		v.HandedOver, v.Above = handed.Count(), handed.Count()-missing.Count()
		v.Missing, v.Agree = shownRanges(missing), len(missing) == 0
		if len(unnamed) == 0 {
			v.Named = v.Missing
		} else if named := ranges.Lacking(first, through, absent, above, unnamed); len(named) > 0 {
			v.Named = shownRanges(named)
		}
	} else {
		v.Missing, v.Agree = []string{}, true
	}
	_, ahead := above.Split(through + 1)
	v.Ahead = ahead.Count()
}

func shownRanges(s ranges.Set) []string {
	out := make([]string, 0, len(s))
	for _, r := range s {
		out = append(out, fmt.Sprintf("%d-%d", r[0], r[1]))
	}
	return out
}

func (o *Operator) verifyEdges(ctx context.Context, _ None) (*EdgesVerified, error) {
	var all []*installs.Named
	if err := store.Read(ctx, o.deps.Store, func(tx store.Tx) (err error) {
		all, err = installs.All(tx)
		return err
	}); err != nil {
		return nil, err
	}
	out := &EdgesVerified{Agree: true, Complete: true, Edges: []EdgeVerification{}}
	for _, i := range all {
		var h edgewire.Hello
		var gaps ranges.Set
		carried := map[uint32]ranges.Set{}
		for text, into := range map[string]any{i.Hello: &h, i.Gaps: &gaps, i.Carried: &carried} {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				return nil, fmt.Errorf("what is kept of the installation %s: %w", i.ID, err)
			}
		}
		h.Install = i.ID
		above, complete := o.deps.Relayed(ctx, i.Tenant, h.Link())
		out.Complete = out.Complete && complete
		v := EdgeVerification{Tenant: i.Tenant, Edge: i.Device, InstallID: i.ID, Epoch: h.Epoch, Carried: carried[h.Epoch].Count()}
		if h.Epoch > 0 {
			v.AsOf = new(i.Heard.Time().UTC())
		}
		v.compare(max(h.First, 1), h.Position, h.Absent, above, gaps)
		out.Agree = out.Agree && v.Agree
		out.Edges = append(out.Edges, v)
	}
	if o.deps.Uplink != nil {
		if v := handedOver(o.deps.Uplink); v != nil {
			out.Agree, out.Edges = out.Agree && v.Agree, append(out.Edges, *v)
		}
	}
	return out, nil
}

func (o *EdgeOperator) verifyEdges(context.Context, None) (*EdgesVerified, error) {
	v := handedOver(o.deps.Edge)
	if v == nil {
		return nil, &model.Error{Code: model.CodeConflict, Message: "no Weir above has said which messages it has since this edge was started", Hint: "weir edge status shows the uplink; a plain broker above keeps no numbers"}
	}
	return &EdgesVerified{Agree: v.Agree, Complete: true, Edges: []EdgeVerification{*v}}, nil
}

// handedOver compares what an edge has handed over with what the Weir above said last, nil where none has said anything.
func handedOver(e *edge.Edge) *EdgeVerification {
	n := e.HandedOver()
	if n.At.IsZero() {
		return nil
	}
	v := &EdgeVerification{InstallID: n.Install, Epoch: n.Epoch, AsOf: &n.At, Carried: n.Carried.Count()}
	v.compare(n.First, n.Position, n.Absent, n.Above, n.Gaps)
	return v
}
