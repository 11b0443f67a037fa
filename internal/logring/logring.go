// Package logring keeps the newest lines of the log of a process in memory, and lets the level of one component differ from that of the
// others for a while.
package logring

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of what is kept: the oldest lines make room.
const (
	MaxLines  = 5000
	MaxBytes  = 1 << 20
	maxText   = 2 << 10 // of the message of a line, and of its attributes
	lineExtra = 96      // what a line takes besides its texts

	// MaxOverrides is how many components may have a level of their own at a time.
	MaxOverrides = 32
)

// Line is one line of the log.
type Line struct {
	ID        uint64 // counts from 1 since the process started
	Time      time.Time
	Level     slog.Level
	Component string // the package that wrote it, such as ingest or store/sqlite
	Message   string
	Detail    string // the attributes, as name=value
}

func (l *Line) bytes() int { return len(l.Message) + len(l.Detail) + lineExtra }

// Override is the level of a component until a time.
type Override struct {
	Component string
	Level     slog.Level
	Until     time.Time
}

// Ring keeps lines. Its methods may be called from any goroutine.
type Ring struct {
	now       func() time.Time
	overrides atomic.Pointer[[]Override] // replaced, never changed

	mu    sync.Mutex
	lines []Line
	size  int
	last  uint64
}

// New returns an empty ring. now is the clock by which overrides end.
func New(now func() time.Time) *Ring { return &Ring{now: now} }

// Handler returns a handler that keeps what next takes, and more or less of a component that has a level of its own.
func (r *Ring) Handler(next slog.Handler) slog.Handler { return &handler{ring: r, next: next} }

// Held returns how many lines are kept and how many bytes they take.
func (r *Ring) Held() (lines, bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.lines), r.size
}

// SetLevel gives a component a level until a time, in place of the one that it had; a time that has passed ends that. It reports false
// where MaxOverrides other components have one.
func (r *Ring) SetLevel(component string, level slog.Level, until time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	all := slices.DeleteFunc(r.Overrides(), func(o Override) bool { return o.Component == component })
	if until.After(now) {
		if len(all) >= MaxOverrides {
			return false
		}
		all = append(all, Override{component, level, until})
	}
	if len(all) == 0 {
		r.overrides.Store(nil)
		return true
	}
	r.overrides.Store(&all)
	return true
}

// Overrides returns the levels of components that apply now.
func (r *Ring) Overrides() []Override {
	all := r.overrides.Load()
	if all == nil {
		return nil
	}
	now := r.now()
	return slices.DeleteFunc(slices.Clone(*all), func(o Override) bool { return !o.Until.After(now) })
}

func (r *Ring) add(l Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	l.ID = r.last
	r.lines = append(r.lines, l)
	r.size += l.bytes()
	over := 0
	for len(r.lines)-over > MaxLines || r.size > MaxBytes {
		r.size -= r.lines[over].bytes()
		r.lines[over] = Line{}
		over++
	}
	r.lines = r.lines[over:] // append moves the rest once the array ends
}

// Query selects lines. An empty field restricts nothing.
type Query struct {
	After     uint64 // only later ones; 0: the newest
	Level     slog.Level
	Component string // itself, and what is below it: store is store/sqlite, too
	Contains  string // in the message or the attributes, whatever the case
	Limit     int
}

func (q *Query) takes(l *Line) bool {
	if l.Level < q.Level || q.Component != "" && l.Component != q.Component && !strings.HasPrefix(l.Component, q.Component+"/") {
		return false
	}
	return q.Contains == "" || containsFold(l.Message, q.Contains) || containsFold(l.Detail, q.Contains)
}

func containsFold(s, part string) bool {
	return strings.Contains(strings.ToLower(s), strings.ToLower(part))
}

// Found is what a query has found.
type Found struct {
	Lines []Line // oldest first
	// Next is what After is to be to go on from here.
	Next uint64
	// Missed is how many lines after After are not kept any more.
	Missed uint64
	// Components are those of all lines that are kept, sorted.
	Components []string
}

// Find returns lines: with After the first of those that came later, otherwise the newest.
func (r *Ring) Find(q Query) Found {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := Found{Next: r.last}
	seen := map[string]bool{}
	for i := range r.lines {
		seen[r.lines[i].Component] = true
	}
	for c := range seen {
		f.Components = append(f.Components, c)
	}
	slices.Sort(f.Components)
	if q.After == 0 || q.After > r.last { // beyond the last: the process has started again since
		for i := len(r.lines) - 1; i >= 0 && len(f.Lines) < q.Limit; i-- {
			if q.takes(&r.lines[i]) {
				f.Lines = append(f.Lines, r.lines[i])
			}
		}
		slices.Reverse(f.Lines)
		return f
	}
	if len(r.lines) > 0 && r.lines[0].ID > q.After+1 {
		f.Missed = r.lines[0].ID - q.After - 1
	}
	for i := range r.lines {
		l := &r.lines[i]
		if l.ID <= q.After || !q.takes(l) {
			continue
		}
		if len(f.Lines) == q.Limit {
			f.Next = f.Lines[len(f.Lines)-1].ID
			break
		}
		f.Lines = append(f.Lines, *l)
	}
	return f
}

// handler is the handler of a ring, with the attributes and groups that a logger has collected.
type handler struct {
	ring   *Ring
	next   slog.Handler
	detail string // of the attributes so far
	group  string // with a point at the end
}

// Enabled implements slog.Handler. Which component writes is known once the line is there.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	if h.next.Enabled(ctx, level) {
		return true
	}
	if all := h.ring.overrides.Load(); all != nil {
		now := h.ring.now()
		for _, o := range *all {
			if level >= o.Level && o.Until.After(now) {
				return true
			}
		}
	}
	return false
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, rec slog.Record) error {
	component := componentOf(rec.PC)
	if !h.wanted(ctx, component, rec.Level) {
		return nil
	}
	detail := []byte(h.detail)
	rec.Attrs(func(a slog.Attr) bool {
		detail = appendAttr(detail, h.group, a)
		return len(detail) < maxText
	})
	h.ring.add(Line{Time: rec.Time, Level: rec.Level, Component: component, Message: cut(rec.Message), Detail: strings.TrimPrefix(cut(string(detail)), " ")})
	return h.next.Handle(ctx, rec)
}

// wanted reports whether a line of a component is written: by the level of the component where it has one, otherwise by that of all.
func (h *handler) wanted(ctx context.Context, component string, level slog.Level) bool {
	if all := h.ring.overrides.Load(); all != nil {
		now := h.ring.now()
		for _, o := range *all {
			if o.Until.After(now) && (o.Component == component || strings.HasPrefix(component, o.Component+"/")) {
				return level >= o.Level
			}
		}
	}
	return h.next.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	detail := []byte(h.detail)
	for _, a := range attrs {
		detail = appendAttr(detail, h.group, a)
	}
	return &handler{h.ring, h.next.WithAttrs(attrs), cut(string(detail)), h.group}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &handler{h.ring, h.next.WithGroup(name), h.detail, h.group + name + "."}
}

func appendAttr(b []byte, group string, a slog.Attr) []byte {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, of := range v.Group() {
			b = appendAttr(b, group, of)
		}
		return b
	}
	if a.Equal(slog.Attr{}) {
		return b
	}
	b = append(append(append(b, ' '), group...), a.Key...)
	b = append(b, '=')
	text := v.String()
	if v.Kind() == slog.KindAny {
		text = fmt.Sprintf("%+v", v.Any())
	}
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '"' || r == '=' }) {
		return strconv.AppendQuote(b, text)
	}
	return append(b, text...)
}

// cut bounds a text, at the beginning of a character.
func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

// componentOf is the package of the function that wrote a line, without the name of the module.
func componentOf(pc uintptr) string {
	if pc == 0 {
		return ""
	}
	f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	name := f.Function
	last := strings.LastIndexByte(name, '/') + 1
	if i := strings.IndexByte(name[last:], '.'); i >= 0 {
		name = name[:last+i]
	}
	return strings.TrimPrefix(name, "weir/")
}
