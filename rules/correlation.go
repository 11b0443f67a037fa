package rules

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"weir/model"
	"weir/rules/window"
)

// Correlation raises when count distinct devices under one anchor satisfy the condition within the window.
const Correlation Type = "correlation"

// DefaultMemberCap is the maximum of members that a correlation counts when its definition does not say.
const DefaultMemberCap = 1024

type correlationKind struct{}

func (correlationKind) Type() Type { return Correlation }

func (correlationKind) Uses(*Definition) (Uses, *Error) {
	return Uses{Needs: []string{"anchorType", "count", "window"}, May: []string{"when", "memberCap"}, NoActions: true, NoGroup: true,
		Retains: true, Keys: ByAnchor}, nil
}

func (correlationKind) Check(d *Definition) *Error {
	if limit := d.effectiveMemberCap(); d.Count > limit {
		return refuse("memberCap", "%d is below count, which is %d", limit, d.Count)
	}
	return nil
}

// effectiveMemberCap is memberCap with its default, 0 for the other kinds.
func (d *Definition) effectiveMemberCap() int32 {
	if d.Type == Correlation && d.MemberCap == 0 {
		return DefaultMemberCap
	}
	return d.MemberCap
}

func (correlationKind) Compile(d *Definition, when *Predicate) (Judge, *Error) {
	return &correlation{when: when, lateness: d.late(), window: micros(d.Window), count: int(d.Count), limit: int(d.effectiveMemberCap())}, nil
}

func (correlationKind) explain(d *Definition) Times {
	return Times{
		Judged: d.inTurn() + ", by the clock of its own device: the others of the anchor count with a match less than " +
			FormatDuration(d.Window) + " before it",
		Late:    "a match that is not older than the window counts from the next sample on; otherwise " + d.setAside(),
		Missing: d.thenNothing() + "; a device that leaves the anchor or the profile no longer counts, which can resolve",
		Keeps:   fmt.Sprintf("for each anchor at most %d devices, with the newest %d matches of each", d.effectiveMemberCap(), keptMatches),
	}
}

func (correlationKind) Decode(b []byte) (Memory, error) {
	r := window.Reader{B: b}
	m := &members{list: make([]member, r.Count(len(b)))}
	var id int64
	for i := range m.list {
		step := r.Signed()
		r.Must(i == 0 || step > 0)
		id += step
		m.list[i] = member{id, *r.Line()}
	}
	if r.Bad || len(r.B) > 0 || len(m.list) == 0 || !bytes.Equal(m.Append(nil), b) {
		return nil, window.ErrDamaged
	}
	return m, nil
}

// correlation judges the samples of each member in the order of their event times, when the member's own clock passes
// them. A device becomes a member with its first match.
type correlation struct {
	when     *Predicate
	lateness model.Micros
	window   model.Micros
	count    int
	limit    int // of members
}

// members are the devices under an anchor that matched, by id.
type members struct{ list []member }

type member struct {
	id int64
	window.Line
}

// The matches that a member keeps: the newest. More than one is needed because the clocks of members differ.
const keptMatches = 8

// perMember is what a member counts for in the budget of samples besides those that it retains.
const perMember = 4

// Append implements Memory.
func (m *members) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(m.list)))
	var last int64
	for i := range m.list {
		b = binary.AppendVarint(b, m.list[i].id-last)
		last = m.list[i].id
		b = m.list[i].Line.Append(b)
	}
	return b
}

// Retained implements Retainer.
func (m *members) Retained() int {
	n := perMember * len(m.list)
	for i := range m.list {
		n += m.list[i].Retained()
	}
	return n
}

// Has implements Gathering.
func (m *members) Has(device int64) bool {
	_, known := m.find(device)
	return known
}

// Devices implements Gathering.
func (m *members) Devices() []int64 {
	ids := make([]int64, len(m.list))
	for i := range m.list {
		ids[i] = m.list[i].id
	}
	return ids
}

func (m *members) find(id int64) (int, bool) {
	return slices.BinarySearchFunc(m.list, id, func(x member, id int64) int { return cmp.Compare(x.id, id) })
}

// Judge implements Judge.
func (j *correlation) Judge(st *State, s *Sample, out *Verdict) {
	m, ok := st.Own.(*members)
	if !ok {
		m = new(members)
	}
	switch {
	case s.Kind == Left:
		j.leave(st, m, s, out)
	case s.Kind == Timer:
		j.passed(st, m, s.Clock.Now, out)
	default:
		j.arrive(st, m, s, out)
	}
	if len(m.list) == 0 {
		st.Own, st.Due = nil, 0
		return
	}
	st.Own = m
	st.wait(j.due(m), s.Kind == Timer)
}

func (j *correlation) arrive(st *State, m *members, s *Sample, out *Verdict) {
	match := j.when.Test(s)
	if match.Failed {
		out.Failed = true
		return
	}
	smp := retain(s, match, "").Bare()
	at, known := m.find(s.Device.ID)
	switch {
	case !known && !match.Holds:
		return
	case s.Full, !known && !j.admit(m, smp.At()):
		out.Refused = true
		return
	case !known:
		at, _ = m.find(s.Device.ID) // admit removes members
		m.list = slices.Insert(m.list, at, member{s.Device.ID, *window.New()})
	}
	x := &m.list[at]
	arrival := x.Arrive(smp.At(), s.Clock.Now, j.lateness)
	if arrival == window.SetBack {
		out.SetBack = true
	}
	switch {
	case arrival != window.Late && smp.At() >= x.Judged:
		x.Hold(smp)
	case match.Holds && (x.Judged == window.Never || smp.At() > x.Judged-j.window):
		x.keep(smp)
	default:
		out.skip()
	}
	j.judge(st, m, at, x.Clock(s.Clock.Now, j.lateness), out)
}

// admit makes room for a member; when all places are taken, those without a match in the window go.
func (j *correlation) admit(m *members, at model.Micros) bool {
	if len(m.list) < j.limit {
		return true
	}
	m.list = slices.DeleteFunc(m.list, func(x member) bool {
		kept := x.Kept()
		return len(x.Waiting()) == 0 && (len(kept) == 0 || kept[len(kept)-1].At() <= at-j.window)
	})
	return len(m.list) < j.limit
}

func (x *member) keep(s window.Sample) {
	x.Keep(s)
	x.Drop(max(0, len(x.Kept())-keptMatches))
}

// judge judges what waits at a member, through an event time.
func (j *correlation) judge(st *State, m *members, i int, through model.Micros, out *Verdict) {
	x := &m.list[i]
	for s, ok := x.Pop(through); ok; s, ok = x.Pop(through) {
		if x.Judged = s.At(); s.Is(window.Holds) {
			x.keep(s)
		}
		switch n := j.counted(m, s.At()); {
		case n >= j.count:
			st.Latch(true, Firing{At: s.At()}, out)
		case st.Raised && s.At() > st.LastEdge:
			st.Latch(false, Firing{At: s.At()}, out)
		}
	}
}

// counted is the number of members with a match in the window that ends at an event time.
func (j *correlation) counted(m *members, at model.Micros) (n int) {
	for i := range m.list {
		kept := m.list[i].Kept()
		for k := len(kept) - 1; k >= 0; k-- {
			if t := kept[k].At(); t <= at {
				if t > at-j.window {
					n++
				}
				break
			}
		}
	}
	return n
}

// passed judges what the clocks of members have passed, in the order of listening time, then of event time, then of members.
func (j *correlation) passed(st *State, m *members, now Listening, out *Verdict) {
	for {
		first, due := -1, Listening(math.MaxInt64)
		for i := range m.list {
			w := m.list[i].Waiting()
			if len(w) == 0 {
				continue
			}
			at := m.list[i].Reaches(w[0].At(), j.lateness)
			if at < due || at == due && w[0].At() < m.list[first].Waiting()[0].At() {
				first, due = i, at
			}
		}
		if first < 0 || due > now {
			return
		}
		j.judge(st, m, first, m.list[first].Waiting()[0].At(), out)
	}
}

func (j *correlation) due(m *members) (due Listening) {
	for i := range m.list {
		if w := m.list[i].Waiting(); len(w) > 0 {
			if at := m.list[i].Reaches(w[0].At(), j.lateness); due == 0 || at < due {
				due = at
			}
		}
	}
	return due
}

// waitsFor implements stamps.
func (j *correlation) waitsFor(st *State) (at model.Micros, ok bool) {
	m, _ := st.Own.(*members)
	for i := 0; m != nil && i < len(m.list); i++ {
		if w := m.list[i].Waiting(); len(w) > 0 && (!ok || w[0].At() < at) {
			at, ok = w[0].At(), true
		}
	}
	return at, ok
}

// leave removes a member. Below count the key resolves, at the member's own time.
func (j *correlation) leave(st *State, m *members, s *Sample, out *Verdict) {
	i, known := m.find(s.Device.ID)
	if !known {
		return
	}
	own := m.list[i].Clock(s.Clock.Now, 0)
	m.list = slices.Delete(m.list, i, i+1)
	if at := max(st.LastEdge, own); st.Raised && j.newest(m, at) < j.count {
		st.Latch(false, Firing{At: at}, out)
	}
}

// newest is the number of members whose newest match lies in the window before an event time, or after it.
func (j *correlation) newest(m *members, at model.Micros) (n int) {
	for i := range m.list {
		if kept := m.list[i].Kept(); len(kept) > 0 && kept[len(kept)-1].At() > at-j.window {
			n++
		}
	}
	return n
}
