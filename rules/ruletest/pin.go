package ruletest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/model"
	"weir/rules"
)

// MaxPinned is how many samples a test that is made of history has, at most.
const MaxPinned = 10_000

// Recorder writes down the samples that a rule is given, and what the registry said of their devices then, as statements of a test. Watch
// sees the samples in their order.
type Recorder struct {
	Device  string      // only this device, "" for all
	Group   string      // to which the rule is scoped, "" for none
	Version int         // of the group
	Reads   rules.Reads // what the rule reads of the registry

	begin   model.Micros
	text    strings.Builder
	samples int
	devices map[string]*pinned
	err     error
}

// Recording is what a Recorder has written down.
type Recording struct {
	Begin      model.Micros `json:"begin"`
	Statements string       `json:"statements"`
	Samples    int          `json:"samples"`
}

// Recording returns what was written down, or why a test of it cannot be.
func (p *Recorder) Recording() (*Recording, error) {
	switch {
	case p.err != nil:
		return nil, p.err
	case p.samples == 0:
		return nil, errors.New("nothing was received from the devices: there is nothing to pin")
	}
	return &Recording{p.begin, p.text.String(), p.samples}, nil
}

// Pin is a test that is made of history.
type Pin struct {
	Recording
	Test   string // its name
	Source string // path of the file with the rule, as the test is to name it; "": the test holds the definition
	Rule   string // the name of the rule there
	Draft  Rule
	From   model.Micros // the edges from then on are known
	To     model.Micros // to then; time goes on until then
	Had    []Edge       // those edges
}

// pinned is what the test has said of a device.
type pinned struct {
	attributes map[string]float64
	anchors    []model.Anchor
}

// Watch takes in a sample, which it does not keep.
func (p *Recorder) Watch(in *rules.Input) {
	if p.err != nil || p.Device != "" && in.Device.Token != p.Device {
		return
	}
	if p.samples++; p.samples > MaxPinned {
		p.err = fmt.Errorf("the window and the time before it hold more than %d samples: choose a shorter one, or one device", MaxPinned)
		return
	}
	if p.devices == nil {
		p.devices, p.begin = map[string]*pinned{}, in.Received.Micros()
		p.begin -= p.begin % 1_000_000 // times are read more easily that begin with a second
	}
	d := p.devices[in.Device.Token]
	if d == nil {
		d = &pinned{attributes: map[string]float64{}}
		p.devices[in.Device.Token] = d
	}
	p.registry(in, d)
	p.sample(in)
}

// period is a time as a period since the begin of the test.
func (p *Recorder) period(at model.Micros) string {
	return (time.Duration(at-p.begin) * time.Microsecond).String()
}

func (p *Recorder) line(in *rules.Input, format string, args ...any) {
	fmt.Fprintf(&p.text, "  at %s %s", p.period(in.Received.Micros()), in.Device.Token)
	fmt.Fprintf(&p.text, format, args...)
	p.text.WriteByte('\n')
}

// registry says what has changed about a device since its last sample, as far as the rule reads it.
func (p *Recorder) registry(in *rules.Input, d *pinned) {
	if in.Facts == nil {
		return
	}
	names, numbers := p.Reads.Attributes, map[string]float64(nil)
	if slices.Contains(p.Reads.Entire, "attr") {
		numbers = in.Facts.Numbers(in.Device.ID)
		names = slices.Clone(names)
		for name := range numbers {
			names = append(names, name)
		}
		for name := range d.attributes {
			names = append(names, name)
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	for _, name := range names {
		now, has := in.Facts.Number(in.Device.ID, name)
		was, had := d.attributes[name]
		switch {
		case has && (!had || was != now):
			d.attributes[name] = now
			p.line(in, " attribute %s=%s", p.word(name), number(now))
		case had && !has:
			delete(d.attributes, name)
			p.line(in, " attribute %s none", p.word(name))
		}
	}
	p.anchors(in, d)
}

// anchors says to what a device belongs. The group to which the rule is scoped counts as one.
func (p *Recorder) anchors(in *rules.Input, d *pinned) {
	now := slices.Clone(in.Anchors)
	if g := p.Group; g != "" {
		group := model.Anchor{Type: model.GroupAnchor, Token: g}
		now = slices.DeleteFunc(now, func(a model.Anchor) bool { return a == group })
		if member, _ := in.Facts.InGroup(in.Profile.Tenant, in.Device.ID, g, p.Version); member {
			now = append(now, group)
		}
	}
	for _, a := range d.anchors {
		if !slices.Contains(now, a) {
			p.line(in, " leaves %s/%s", a.Type, a.Token)
		}
	}
	for _, a := range now {
		if !slices.Contains(d.anchors, a) {
			p.line(in, " joins %s/%s", a.Type, a.Token)
		}
	}
	d.anchors = now
}

// word is a name as the language can write it.
func (p *Recorder) word(name string) string {
	if p.err == nil && (name == "" || strings.ContainsAny(name, " \t\r\n") || name[0] == '#') {
		p.err = fmt.Errorf("the name %q cannot be written in a rule test", name)
	}
	return name
}

// metricWord writes the name of a metric, in quotes where it holds blanks or begins with what begins something else.
func metricWord(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' }) || strings.HasPrefix(name, "#") || strings.HasPrefix(name, `"`) {
		return strconv.Quote(name)
	}
	return name
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func (p *Recorder) sample(in *rules.Input) {
	var b strings.Builder
	switch in.Kind {
	case rules.Measurement:
		for _, r := range in.Readings {
			b.WriteString(" " + metricWord(r.Metric) + "=" + number(r.Value))
		}
	case rules.Location:
		b.WriteString(" position " + number(in.Where.Longitude) + "," + number(in.Where.Latitude))
	case rules.Transition:
		b.WriteString(" " + map[model.PresenceState]string{model.Connected: "connected", model.Disconnected: "disconnected", model.Demoted: "demoted"}[in.Presence])
		if in.Presence == model.Demoted && in.Reason != "" {
			b.WriteString(" " + p.word(in.Reason))
		}
	}
	if in.Occurred != in.Received.Micros() {
		b.WriteString(" taken " + p.period(in.Occurred))
	}
	p.line(in, "%s", b.String())
}

// Edge is an edge that the history has had.
type Edge struct {
	Occurred model.Micros
	Series   string
	Signal   model.EdgeSignal
}

// Write returns the test, which passes: it expects what the engine makes of its samples. It is refused where that is not what the history has
// had: a rule test does not know how long a device could not be heard.
func (p *Pin) Write(c *rules.Compiler, around World) (string, error) {
	var head strings.Builder
	if p.Source != "" {
		fmt.Fprintf(&head, "rules %s\n", p.Source)
	}
	fmt.Fprintf(&head, "begin %s\n\ntest %s\n  rule %s", p.Begin.Time().UTC().Format(time.RFC3339), p.Test, p.Rule)
	if p.Source == "" {
		if p.Draft.Group != "" {
			head.WriteString(" group " + p.Draft.Group)
		}
		head.WriteString(" " + p.Draft.Definition)
	}
	text := head.String() + "\n" + p.Statements
	end := fmt.Sprintf("  at %s\n", time.Duration(max(p.To-p.Begin, p.latest()))*time.Microsecond+p.settles(c))
	edges, alarms, begin, err := run(text+end+"  expect nothing\n", c, around)
	if err != nil {
		return "", err
	}
	var got []Edge
	for _, e := range edges {
		if e.Occurred >= p.From && e.Occurred <= p.To {
			got = append(got, Edge{e.Occurred, e.Series, e.Signal})
		}
	}
	had := slices.Clone(p.Had)
	for _, all := range [][]Edge{got, had} {
		slices.SortStableFunc(all, func(a, b Edge) int {
			return cmp.Or(cmp.Compare(a.Occurred, b.Occurred), strings.Compare(a.Series, b.Series), cmp.Compare(a.Signal, b.Signal))
		})
	}
	if !slices.Equal(got, had) {
		return "", fmt.Errorf("a rule test of the window has %d edges and not the %d that were fired: devices could not be heard in it for a time, or what it depends on is not in a test; choose another window", len(got), len(had))
	}
	out := []string{text + end}
	for i := range edges {
		out = append(out, "  expect "+expected(&edges[i], p.Rule, begin, alarms[edges[i].ID])+"\n")
	}
	if len(edges) == 0 {
		out = append(out, "  expect nothing\n")
	}
	text = strings.Join(out, "")
	return text, passes(text, c, around)
}

// settles is how long after the last sample the rule has judged all: its lateness, and a second.
func (p *Pin) settles(c *rules.Compiler) time.Duration {
	lateness := c.Limits().Lateness
	if d, err := c.Decode([]byte(p.Draft.Definition)); err == nil && d.Lateness != nil {
		lateness = *d.Lateness
	}
	return lateness + time.Second
}

// latest is when the last sample was received, since the begin.
func (p *Pin) latest() (at model.Micros) {
	lines := strings.Split(strings.TrimSpace(p.Statements), "\n")
	words := strings.Fields(lines[len(lines)-1])
	if len(words) > 1 {
		d, _ := time.ParseDuration(words[1]) // as it was written
		at = model.Micros(d / time.Microsecond)
	}
	return at
}

// expected is an edge in the words of the language.
func expected(e *model.Edge, rule string, begin time.Time, alarms []string) string {
	words := []string{e.Signal.String(), rule, e.Series}
	if e.Severity != "" {
		words = append(words, "severity", e.Severity)
	}
	words = append(words, "at", e.Occurred.Time().Sub(begin).String())
	if e.HasValue {
		words = append(words, "value", number(e.Value))
	}
	for _, key := range alarms {
		words = append(words, "alarm", key)
	}
	return strings.Join(words, " ")
}

// run runs the only test of a text and returns its edges, whatever it expects.
func run(text string, c *rules.Compiler, around World) (edges []model.Edge, alarms map[model.EdgeID][]string, begin time.Time, _ error) {
	f, problems := Parse("pinned"+Extension, []byte(text))
	var worlds []*world
	if len(problems) == 0 {
		worlds, problems = f.worlds(c, around)
	}
	if len(problems) > 0 {
		return nil, nil, begin, fmt.Errorf("%s", problems[0].String())
	}
	w := worlds[0]
	w.newEngine()
	w.install()
	for i := range f.Tests[0].steps {
		if s := &f.Tests[0].steps[i]; s.verb != expectEdges {
			w.step(s)
		}
	}
	return w.edges, w.alarms, f.begin, nil
}

// passes returns why the only test of a text does not pass.
func passes(text string, c *rules.Compiler, around World) error {
	f, problems := Parse("pinned"+Extension, []byte(text))
	var report Report
	if len(problems) == 0 {
		report, problems = f.Run(c, around)
	}
	switch {
	case len(problems) > 0:
		return fmt.Errorf("%s", problems[0].String())
	case report.Failed > 0:
		return fmt.Errorf("the test does not pass: %s", report.Tests[0].Failure)
	}
	return nil
}
