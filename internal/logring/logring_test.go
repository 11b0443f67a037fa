package logring

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// world is a logger at a ring, over a text handler at level info.
type world struct {
	*Ring
	*slog.Logger
	out bytes.Buffer
	now time.Time
}

func newWorld() *world {
	w := &world{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	w.Ring = New(func() time.Time { return w.now })
	w.Logger = slog.New(w.Ring.Handler(slog.NewTextHandler(&w.out, nil)))
	return w
}

func messages(f Found) string {
	var all []string
	for _, l := range f.Lines {
		all = append(all, l.Message)
	}
	return strings.Join(all, ",")
}

func TestLinesAreKeptWithTheirComponentAndAttributes(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.With("node", "a b").WithGroup("g").Info("hello", "n", 3, slog.Group("h", "x", time.Second), "empty", "")
	w.Debug("not at this level")
	f := w.Find(Query{Level: slog.LevelDebug, Limit: 10})
	if len(f.Lines) != 1 || f.Lines[0].Component != "internal/logring" || f.Lines[0].Detail != `node="a b" g.n=3 g.h.x=1s g.empty=""` || f.Lines[0].ID != 1 || f.Next != 1 {
		t.Errorf("%+v", f)
	}
	if !strings.Contains(w.out.String(), "msg=hello") {
		t.Errorf("the log itself has %q", w.out.String())
	}
}

func TestALineIsFoundByLevelComponentAndText(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.Info("one", "device", "Boiler")
	w.Warn("two")
	w.Error("three", "device", "pump")
	for _, c := range []struct {
		q    Query
		want string
	}{
		{Query{Limit: 10}, "one,two,three"},
		{Query{Limit: 2}, "two,three"},
		{Query{Limit: 10, Level: slog.LevelWarn}, "two,three"},
		{Query{Limit: 10, Component: "internal"}, "one,two,three"},
		{Query{Limit: 10, Component: "inter"}, ""},
		{Query{Limit: 10, Contains: "boiler"}, "one"},
		{Query{Limit: 10, Contains: "THREE"}, "three"},
		{Query{Limit: 1, After: 1}, "two"},
		{Query{Limit: 10, After: 3}, ""},
		{Query{Limit: 1, After: 99}, "three"},
	} {
		if got := messages(w.Find(c.q)); got != c.want {
			t.Errorf("%+v: %s, want %s", c.q, got, c.want)
		}
	}
	if f := w.Find(Query{Limit: 1, After: 1}); f.Next != 2 {
		t.Errorf("goes on after %d", f.Next)
	}
}

func TestTheOldestLinesMakeRoom(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for i := range MaxLines + 10 {
		w.add(Line{Message: fmt.Sprint(i)})
	}
	if n, _ := w.Held(); n != MaxLines {
		t.Errorf("%d lines are kept", n)
	}
	if f := w.Find(Query{After: 3, Limit: 1}); f.Missed != 7 || messages(f) != "10" {
		t.Errorf("missed %d, then %s", f.Missed, messages(f))
	}
	long := strings.Repeat("ä", maxText)
	for range MaxLines {
		w.Info(long, "also", long)
	}
	n, size := w.Held()
	if size > MaxBytes || n < MaxBytes/(2*maxText+lineExtra+16) {
		t.Errorf("%d lines of %d bytes", n, size)
	}
	if f := w.Find(Query{Limit: 1}); len(f.Lines[0].Message) > maxText+4 {
		t.Errorf("a message of %d bytes", len(f.Lines[0].Message))
	}
}

func TestAComponentHasALevelOfItsOwnForAWhile(t *testing.T) {
	t.Parallel()
	w := newWorld()
	debug := func() string {
		w.out.Reset()
		w.Debug("quiet")
		w.Info("usual")
		return strings.TrimSpace(strings.ReplaceAll(w.out.String(), "time="+time.Now().Format("2006"), ""))
	}
	has := func(want ...bool) {
		t.Helper()
		got := debug()
		for i, word := range []string{"quiet", "usual"} {
			if strings.Contains(got, word) != want[i] {
				t.Errorf("%s: %s", word, got)
			}
		}
	}
	has(false, true)
	w.SetLevel("internal", slog.LevelDebug, w.now.Add(time.Minute))
	has(true, true)
	w.SetLevel("internal", slog.LevelError, w.now.Add(time.Minute))
	has(false, false)
	w.SetLevel("internal", slog.LevelDebug, w.now.Add(time.Minute))
	if all := w.Overrides(); len(all) != 1 || all[0].Level != slog.LevelDebug {
		t.Errorf("%+v", all)
	}
	w.now = w.now.Add(2 * time.Minute)
	has(false, true)
	if len(w.Overrides()) != 0 {
		t.Error("an override outlives its time")
	}
	w.SetLevel("other", slog.LevelDebug, w.now.Add(time.Minute))
	has(false, true)
	w.SetLevel("other", slog.LevelDebug, w.now)
	if w.Enabled(context.Background(), slog.LevelDebug) {
		t.Error("an override that was ended still costs")
	}
	for i := range MaxOverrides {
		w.SetLevel(fmt.Sprint(i), slog.LevelDebug, w.now.Add(time.Minute))
	}
	if w.SetLevel("one too many", slog.LevelDebug, w.now.Add(time.Minute)) {
		t.Error("more overrides than there may be")
	}
	if !w.SetLevel("1", slog.LevelWarn, w.now.Add(time.Minute)) {
		t.Error("one that is there cannot be changed")
	}
}
