package eventfile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"weir/ingest/eventfile"
	"weir/model"
	"weir/rules"
	"weir/rules/preview"
)

// measured is a line with a value of temp, received at a second of an hour.
func measured(device string, second int, value float64, more string) string {
	return fmt.Sprintf(`{"device":%q,"receivedTime":"2026-03-01T12:%02d:%02dZ","eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"%g"}}]}%s}`,
		device, second/60, second%60, value, more)
}

// files are what a reader reads, and what it says of it: the number of events, or the error.
var files = []struct{ text, want string }{
	{"", "0"},
	{"\n\n", "0"},
	{"\ufeff" + measured("a", 0, 1, ""), "1"},
	{measured("a", 0, 1, "") + "\r\n" + measured("a", 0, 1, "") + "\n\n", "2"},
	{measured("a", 5, 1, "") + "\n" + measured("a", 4, 1, ""), "line 2: was received at 2026-03-01T12:00:04Z, before the line before it: events stand in the order in which they were received"},
	{measured("a", 0, 1, `,"tempo":1`), `line 1: member "tempo" is not known`},
	{measured("a", 0, 1, `,"occuredTime":"x"`), `line 1: member "occuredTime" is not known (did you mean occurredTime?)`},
	{measured("a", 0, 1, `,"receivedTime":"2026-03-01T12:00:00Z"`), `line 1: member "receivedTime" is given twice`},
	{measured("a", 0, 1, "") + "\n{", "line 2: "},
	{measured("a", 0, 1, "") + " x", "line 1: "},
	{"[]", "line 1: "},
	{`{"receivedTime":"2026-03-01T12:00:00Z","eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"1"}}]}}`, `line 1: member "device" is missing`},
	{`{"device":"a","eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"1"}}]}}`, "line 1: neither receivedTime nor occurredTime says when it was"},
	{`{"device":"a","occurredTime":"2026-03-01T12:00:00Z","eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"1"}}]}}`, "1"},
	{`{"device":"a","receivedTime":"yesterday","eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"1"}}]}}`, "line 1: receivedTime must be an RFC 3339 time"},
	{`{"device":"a","receivedTime":"2026-03-01T12:00:00Z","eventType":"StateChange","payload":{}}`, "line 1: "},
	{`{"device":"a","receivedTime":"2026-03-01T12:00:00Z","eventType":"Location","payload":{"entries":[{"latitude":"1","longitude":"2"}]}}`, "1"},
	{`{"device":"a","receivedTime":"2026-03-01T12:00:00Z","eventType":"Alert","payload":{"entries":[{"type":"x"}]}}`, "1"},
	{strings.Repeat(" ", eventfile.MaxLine-1) + "\n", "0"},
	{strings.Repeat(" ", eventfile.MaxLine+1), "line 1: is longer than 1024 KiB"},
}

func TestLinesAreReadStrictly(t *testing.T) {
	t.Parallel()
	for _, f := range files {
		got := ""
		n, err := count(strings.NewReader(f.text))
		if got = fmt.Sprint(n); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, f.want) {
			t.Errorf("%.200q: %s, want %s", f.text, got, f.want)
		}
	}
}

func count(file io.Reader) (n int, _ error) {
	r := eventfile.NewReader(file)
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if n++; e.Device == "" || e.Line < n {
			return n, fmt.Errorf("event %d: %+v", n, e)
		}
	}
}

// FuzzLines: whatever a file holds, each line is an event or an error with its number, and a draft runs over it.
func FuzzLines(f *testing.F) {
	for _, x := range files {
		if len(x.text) < 1000 {
			f.Add(x.text)
		}
	}
	c, d := draft(f, `{"name":"n","type":"absence","timeout":"1m"}`)
	f.Fuzz(func(t *testing.T, text string) {
		n, err := count(strings.NewReader(text))
		if bad, ok := errors.AsType[*eventfile.Error](err); err != nil && (!ok || bad.Line < 1 || bad.Line > strings.Count(text, "\n")+1) {
			t.Fatalf("%v", err)
		}
		out, ran := eventfile.Run(t.Context(), strings.NewReader(text), c, d, preview.Window{}, nil)
		if err != nil && ran == nil || ran == nil && out.Scanned == 0 && n > 0 && !strings.Contains(text, "NewRelationship") {
			t.Fatalf("%d events, %v; ran %+v, %v", n, err, out, ran)
		}
	})
}

func draft(t testing.TB, definition string) (*rules.Compiler, *preview.Draft) {
	t.Helper()
	c, err := rules.NewCompiler(rules.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	c = c.ForPreviews()
	d, found := (&preview.Request{Definition: &definition}).Draft(c, nil)
	if d == nil {
		t.Fatal(found)
	}
	return c, d
}

func TestADraftRunsOverAFile(t *testing.T) {
	t.Parallel()
	at := func(second int) model.Micros {
		return model.MicrosOf(time.Date(2026, time.March, 1, 12, 0, second, 0, time.UTC))
	}
	lines := []string{measured("b", 0, 60, ""), measured("a", 1, 60, ""), measured("a", 20, 70, ""), measured("b", 30, 10, ""), measured("a", 40, 10, `,"occurredTime":"2026-03-01T12:00:39Z"`)}
	text := strings.Join(lines, "\n")
	for _, q := range []struct {
		definition string
		window     preview.Window
		want       string
	}{
		{`{"name":"n","type":"threshold","when":{"metric":"temp","op":"gt","threshold":50}}`, preview.Window{}, "12:00:00 b raised 60|12:00:01 a raised 60|12:00:30 b resolved 0|12:00:39 a resolved 0"},
		{`{"name":"n","type":"threshold","when":{"metric":"temp","op":"gt","threshold":50}}`, preview.Window{From: at(1), To: at(30)}, "12:00:01 a raised 60|12:00:30 b resolved 0"},
		{`{"name":"n","type":"duration","hold":"25s","lateness":"0s","when":{"metric":"temp","op":"gt","threshold":50}}`, preview.Window{},
			"12:00:25 b raised 0 timer|12:00:26 a raised 0 timer|12:00:30 b resolved 0|12:00:39 a resolved 0"},
		{`{"name":"n","type":"absence","timeout":"1m","lateness":"0s"}`, preview.Window{}, ""},
		{`{"name":"n","type":"absence","timeout":"1m","lateness":"0s"}`, preview.Window{To: at(95)}, "12:01:30 b raised 0 timer"},
		{`{"name":"n","type":"aggregate","windowMode":"count","count":2,"agg":"sum","metric":"temp","op":"gt","threshold":100}`, preview.Window{}, "12:00:20 a raised 130"},
	} {
		c, d := draft(t, q.definition)
		out, err := eventfile.Run(t.Context(), strings.NewReader(text), c, d, q.window, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range out.Firings {
			timer := ""
			if f.Timer {
				timer = " timer"
			}
			got = append(got, fmt.Sprintf("%s %s %s %g%s", f.Occurred.Time().UTC().Format("15:04:05"), f.Series, f.Signal, f.Value, timer))
		}
		if text := strings.Join(got, "|"); text != q.want || out.Devices != 2 || out.Scanned != 5 || out.First != at(0) || out.Why() != "" {
			t.Errorf("%s:\ngot  %s\nwant %s\n%+v", q.definition, text, q.want, out)
		}
	}
	c, d := draft(t, `{"name":"n","type":"threshold","when":{"cel":"m.temp > 50.0 && m.none > 1.0"}}`)
	if out, err := eventfile.Run(t.Context(), strings.NewReader(text), c, d, preview.Window{}, nil); err != nil || !strings.HasPrefix(out.Why(), "evaluation errors: 3") {
		t.Errorf("%+v %v", out, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := eventfile.Run(gone, strings.NewReader(strings.Repeat(lines[0]+"\n", 2000)), c, d, preview.Window{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that was ended: %v", err)
	}
	if _, err := eventfile.Run(t.Context(), strings.NewReader(lines[0]+"\n"+measured("a", 1, 60, `,"payload":1`)), c, d, preview.Window{}, nil); err == nil || !strings.HasPrefix(err.Error(), "line 2: ") {
		t.Errorf("%v", err)
	}
}

func TestADraftThatAsksForMoreThanAFileHasIsRefused(t *testing.T) {
	t.Parallel()
	for definition, want := range map[string]string{
		`"type":"threshold","when":{"metric":"temp","op":"gt","thresholdAttr":"limit"}`:                  "the attributes limit",
		`"type":"threshold","when":{"cel":"geo.inFence('yard')"}`:                                        "the geofences yard",
		`"type":"threshold","when":{"cel":"has(m.temp) && 'area' in anchors && anchors.area == 'hall'"}`: "the anchors area",
		`"type":"connectivity"`: "the presence of the devices",
		`"type":"correlation","anchorType":"area","count":2,"window":"30s","when":{"metric":"temp","op":"gt","threshold":1}`: "the anchors of the devices",
		`"type":"threshold","when":{"metric":"temp","op":"gt","threshold":1}`:                                                "",
	} {
		c, d := draft(t, `{"name":"n",`+definition+`}`)
		err := eventfile.Fits(c, d)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", definition, err, want)
		}
	}
}
