package site

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"time"

	"weir/model"
	"weir/registry/geometry"
	"weir/rules"
	"weir/rules/preview"
	"weir/rules/ruletest"
)

// Pinned is history that is to become a rule test: what a rule was given in a window, and what it fired.
type Pinned struct {
	ruletest.Recording
	From     model.Micros   `json:"from"` // the window, by event time
	To       model.Micros   `json:"to"`
	Firings  []PinnedFiring `json:"firings"`
	Degraded []string       `json:"degraded,omitempty"`
}

// PinnedFiring is an edge.
type PinnedFiring struct {
	Occurred model.Micros     `json:"occurred"`
	Series   string           `json:"series"`
	Signal   model.EdgeSignal `json:"signal"`
}

// Recorder returns what records the samples of a rule: of one device, or of all where it is "".
func Recorder(c *rules.Compiler, p *rules.Program, group string, version int, device string) *ruletest.Recorder {
	return &ruletest.Recorder{Device: device, Group: group, Version: version, Reads: c.Explain(p).Reads}
}

// PinnedOf is what was recorded, with what was fired.
func PinnedOf(r *ruletest.Recorder, w preview.Window, out *preview.Result) (*Pinned, error) {
	recording, err := r.Recording()
	if err != nil {
		return nil, model.Errorf(model.CodeInvalidInput, "%v", err)
	}
	p := &Pinned{Recording: *recording, From: w.From, To: w.To, Firings: []PinnedFiring{}, Degraded: out.Degraded}
	for _, f := range out.Firings {
		if r.Device == "" || f.Series == r.Device {
			p.Firings = append(p.Firings, PinnedFiring{f.Occurred, f.Series, f.Signal})
		}
	}
	return p, nil
}

// PinEvents records what a file of events gives to a draft.
func PinEvents(ctx context.Context, d *RuleDraft, name string, file io.Reader, from, to time.Time, device string) (*Pinned, error) {
	compiler, err := newCompiler()
	if err != nil {
		return nil, err
	}
	draft, _, err := d.compile(compiler, false)
	if err != nil {
		return nil, err
	}
	r := Recorder(compiler, draft.Program, d.Group, 0, device)
	out, _, err := d.judge(ctx, name, file, from, to, false, r.Watch)
	if err != nil {
		return nil, err
	}
	w := preview.Window{From: out.First, To: out.Last}
	if !from.IsZero() {
		w.From = model.MicrosOf(from)
	}
	if !to.IsZero() {
		w.To = model.MicrosOf(to)
	}
	return PinnedOf(r, w, &out.Result)
}

// PinTest writes the rule test that history comes to. The rule is that of the draft in the file named source; the test, in the file named
// output, names that file, or holds the definition where the source is a canvas.
func PinTest(src Source, p *Pinned, d *RuleDraft, test, source, output string) (string, error) {
	pin := ruletest.Pin{Recording: p.Recording, Test: test, Rule: d.Rule, Draft: ruletest.Rule{Definition: d.Definition, Group: d.Group}, From: p.From, To: p.To}
	for _, f := range p.Firings {
		pin.Had = append(pin.Had, ruletest.Edge{Occurred: f.Occurred, Series: f.Series, Signal: f.Signal})
	}
	var declared []DeclaredRule
	if d.Graph != "" {
		pin.Rule = "pinned"
	} else {
		var err error
		if declared, _, err = ReadRules(src, source); err != nil {
			return "", err
		}
		if pin.Source, err = relativeTo(source, output); err != nil {
			return "", err
		}
	}
	f := ruletest.File{}
	compiler, err := rules.NewCompiler(f.Limits())
	if err != nil {
		return "", err
	}
	text, err := pin.Write(compiler, ruletest.World{
		Rule: func(token string) (ruletest.Rule, error) { return ruleOf(declared, token) },
		Area: func(text string) (ruletest.Area, error) { return geometry.Parse(text) },
	})
	if err != nil {
		return "", model.Errorf(model.CodeInvalidInput, "%v", err)
	}
	return text, nil
}

// relativeTo is the path of a file as another one names it.
func relativeTo(file, other string) (string, error) {
	path, err := filepath.Rel(filepath.Dir(other), file)
	if err != nil {
		path = file
	}
	if path = filepath.ToSlash(path); strings.ContainsAny(path, " \t") {
		return "", model.Errorf(model.CodeInvalidInput, "the path %q has a blank, with which a rule test cannot name it", path)
	}
	return path, nil
}
