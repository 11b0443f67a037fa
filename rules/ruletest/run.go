package ruletest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/yamldoc"
	"weir/model"
	"weir/rules"
)

// Run runs the tests of a file. Problems are rules that are not there or do not compile; then nothing was run.
func (f *File) Run(c *rules.Compiler, around World) (Report, yamldoc.Problems) {
	report := Report{File: f.Name, Tests: []Result{}}
	worlds, problems := f.worlds(c, around)
	if len(problems) > 0 {
		return report, problems
	}
	for i, w := range worlds {
		t := &f.Tests[i]
		r := Result{Name: t.Name, Line: t.Line, Failure: w.run(t)}
		if r.Passed = r.Failure == nil; !r.Passed {
			report.Failed++
		}
		report.Tests = append(report.Tests, r)
	}
	return report, nil
}

// String is the failure as a line for people, after the place of the test.
func (f *Failure) String() string {
	switch {
	case len(f.Came) > 0:
		return fmt.Sprintf("%s: instead came %s", f.Expected, strings.Join(f.Came, "; "))
	default:
		return f.Expected + ": nothing came"
	}
}

// worlds prepares an engine for each test.
func (f *File) worlds(c *rules.Compiler, around World) (worlds []*world, problems yamldoc.Problems) {
	known := map[string]error{} // what was found wrong with a definition; each is compiled once
	check := func(use ruleUse, r Rule) bool {
		err, checked := known[r.Group+"\x00"+r.Definition]
		if !checked {
			_, _, faults := c.Inspect(r.Definition, rules.Options{GroupScoped: r.Group != ""})
			for _, fault := range faults {
				err = errors.Join(err, fault)
			}
			known[r.Group+"\x00"+r.Definition] = err
		}
		if err != nil && !checked {
			problems = append(problems, use.place.Problem("", false, "", "rule %s: %s", use.token, strings.ReplaceAll(err.Error(), "\n", "; ")))
		}
		return err == nil
	}
	work, read := 0, areas{around.Area, map[string]readArea{}}
	for i := range f.Tests {
		t := &f.Tests[i]
		w := &world{compiler: c, begin: f.begin, devices: map[string]*device{}, pages: map[string]rules.Page{}, fences: map[string]string{}, areas: map[string]Area{},
			stable: map[string]string{}, alarms: map[model.EdgeID][]string{}}
		for _, use := range t.rules {
			r := Rule{Definition: use.definition, Group: use.group}
			if use.definition == "" {
				var err error
				if r, err = around.Rule(use.token); err != nil {
					problems = append(problems, use.place.Problem("", false, "", "%v", err))
					continue
				}
			}
			if !check(use, r) {
				continue
			}
			w.use(use, r, &problems)
		}
		for _, s := range t.steps {
			if s.verb == publish {
				check(s.rule, Rule{Definition: s.rule.definition, Group: s.rule.group})
			}
		}
		positions := w.readFences(t, f.fences, &read, &problems)
		for j := range t.steps {
			if t.steps[j].where != nil {
				work += t.steps[j].records() * len(t.rules) * (1 + positions/16)
			}
		}
		worlds = append(worlds, w)
	}
	if work > MaxSteps {
		problems = append(problems, f.Tests[0].place.Problem("", false, "divide it into files, or use fewer positions", "positions times rules times the size of the geofences are too much"))
	}
	return worlds, problems
}

// use adds a rule to the world, with the geofences that its tenant declares.
func (w *world) use(use ruleUse, r Rule, problems *yamldoc.Problems) {
	group := 0
	if r.Group != "" {
		group = 1
	}
	w.views = append(w.views, model.RuleView{Token: use.token, Definition: r.Definition, Group: r.Group, GroupVersion: group})
	w.stable[model.RuleStableID(profile.Token, use.token)] = cmp.Or(r.Stable, model.RuleStableID(profile.Token, use.token))
	for token, geometry := range r.Fences {
		if other, known := w.fences[token]; known && other != geometry {
			*problems = append(*problems, use.place.Problem("", false, "test them apart", "the rules of the test are of two tenants, which both have a geofence %s", token))
			return
		}
		w.fences[token] = geometry
	}
}

// profile is that of every test.
var profile = rules.ProfileRef{ProfileKey: rules.ProfileKey{Tenant: 1, Profile: 1}, TenantToken: "test", Token: "test", Version: 1}

// start is the listening time at the begin of a test: none is 0, which says that a key waits for nothing.
const start = rules.Listening(time.Hour)

// world is an engine with the bookkeeping of a log around it.
type world struct {
	compiler *rules.Compiler
	engine   *rules.Engine
	begin    time.Time
	offset   model.Offset
	now      time.Duration
	views    []model.RuleView
	version  int
	devices  map[string]*device
	pages    map[string]rules.Page
	edges    []model.Edge
	alarms   map[model.EdgeID][]string // keys of what an edge raises, sorted
	stable   map[string]string         // ids of the rules elsewhere, by those in the test
	fences   map[string]string         // geometries of the geofences that there are, by token
	areas    map[string]Area           // by geometry
	boots    uint64
}

// device is what the registry would know of one.
type device struct {
	rules.Device
	anchors    []model.Anchor
	attributes map[string]float64
}

func (w *world) emit(e model.Edge) { w.edges = append(w.edges, e) }

// Contribute is rules.Acts: it keeps which alarms an edge raises.
func (w *world) Contribute(c model.Contribution) {
	if c.Kind != model.ContributeRaise {
		return
	}
	var keys []string
	for _, k := range c.Keys {
		keys = append(keys, cmp.Or(w.stable[k.Key], k.Key))
	}
	slices.Sort(keys)
	w.alarms[c.Edge] = keys
}

// Order is rules.Acts. Weir performs nothing but alarms yet, so no rule orders anything.
func (w *world) Order(model.Order) {}

// Stale is rules.Acts.
func (w *world) Stale(int64, model.EdgeID) {}

// newEngine begins with an engine that knows nothing.
func (w *world) newEngine() {
	w.engine = rules.NewEngine(w.compiler, nil)
	w.engine.Perform(w)
}

// run runs the steps and returns the first failure.
func (w *world) run(t *Test) *Failure {
	w.newEngine()
	w.install()
	for i := range t.steps {
		if fail := w.step(&t.steps[i]); fail != nil {
			return fail
		}
	}
	if len(w.edges) > 0 {
		return &Failure{Line: t.Line, Expected: "nothing more at the end of the test", Came: w.came()}
	}
	for _, h := range w.engine.Health(profile.ProfileKey) {
		if h.RefusedKeys > 0 { // an instance has room for more: what came says nothing
			return &Failure{Line: t.Line, Expected: fmt.Sprintf("at most %d samples in the windows of the test", maxSamples), Came: []string{"more"}}
		}
	}
	return nil
}

func (w *world) install() {
	w.version++
	ref := profile
	ref.Version = w.version
	w.engine.Install(w.record(w.now), ref, w.views, w.emit)
}

// facts answers what rules ask about devices. It is rules.Facts as of the step that runs.
type facts struct{ w *world }

func (f facts) byID(id int64) *device {
	for _, d := range f.w.devices {
		if d.ID == id {
			return d
		}
	}
	return &device{}
}

func (f facts) Number(id int64, key string) (float64, bool) {
	n, ok := f.byID(id).attributes[key]
	return n, ok
}

func (f facts) Numbers(id int64) map[string]float64 { return f.byID(id).attributes }

func (f facts) InGroup(_, id int64, token string, _ int) (member, known bool) {
	return slices.Contains(f.byID(id).anchors, model.Anchor{Type: "group", Token: token}), true
}

// record is the position of the next record, at a time of the test. The engine has advanced to it.
func (w *world) record(at time.Duration) rules.Position {
	w.offset++
	w.now = at
	p := rules.Position{Epoch: 1, Offset: w.offset, Received: model.Nanos(w.begin.Add(at).UnixNano()), Listening: start + rules.Listening(at)}
	w.engine.Advance(p, w.emit)
	return p
}

func (w *world) micros(at time.Duration) model.Micros {
	return model.Micros(w.begin.Add(at).UnixMicro())
}

func (w *world) device(token string) *device {
	d := w.devices[token]
	if d == nil {
		d = &device{Device: rules.Device{ID: int64(len(w.devices) + 1), Type: 1, Token: token}}
		w.devices[token] = d
	}
	return d
}

func (w *world) step(s *step) *Failure {
	switch s.verb {
	case expectEdges:
		return w.expect(s.expects)
	case wait:
		w.record(s.at.from)
	case restart:
		w.restart(s.at.from, s.grace)
	case fence:
		w.record(s.at.from)
		w.fences = maps.Clone(w.fences)
		w.fences[s.fence.token] = s.fence.geometry
	case refuse:
		w.engine.Hold(profile.Tenant, w.record(s.at.from).Listening)
	case accept:
		w.engine.Release(profile.Tenant, w.record(s.at.from).Listening)
	case publish:
		w.now = s.at.from
		i := slices.IndexFunc(w.views, func(v model.RuleView) bool { return v.Token == s.rule.token })
		w.views = slices.Clone(w.views)
		w.views[i].Definition = s.rule.definition
		if s.rule.group != "" {
			w.views[i].Group, w.views[i].GroupVersion = s.rule.group, 1
		}
		w.install()
	case create, remove, join, leave, attribute:
		w.change(s)
	default:
		w.send(s)
	}
	return nil
}

// restart stores the state and begins again from it, as a start of the program does. With a grace the time of each device stands
// still until it is heard.
func (w *world) restart(at, grace time.Duration) {
	w.record(at)
	for _, pg := range w.engine.Freeze() {
		if w.pages[pg.ID] = pg; pg.Data == nil {
			delete(w.pages, pg.ID)
		}
	}
	w.newEngine()
	if err := w.engine.Load(slices.Collect(maps.Values(w.pages))); err != nil {
		panic(fmt.Sprintf("ruletest: the engine does not read its own pages: %v", err))
	}
	ref := profile
	ref.Version = w.version
	w.engine.Install(rules.Position{Epoch: 1, Offset: w.offset}, ref, w.views, w.emit)
	if grace > 0 {
		w.boots++
		w.record(at)
		w.engine.Boot(w.boots, rules.Listening(grace))
	}
}

func (w *world) change(s *step) {
	at, d := w.record(s.at.from), w.device(s.device)
	i := slices.Index(d.anchors, s.anchor)
	switch {
	case s.verb == create:
		w.engine.Enroll(at, profile.ProfileKey, d.Device, w.emit)
	case s.verb == remove:
		w.engine.RemoveDevice(at, d.ID, w.emit)
		d.anchors, d.attributes = nil, nil
	case s.verb == attribute:
		d.attributes = maps.Clone(d.attributes)
		if d.attributes == nil {
			d.attributes = map[string]float64{}
		}
		if delete(d.attributes, s.name); s.value != nil {
			d.attributes[s.name] = *s.value
		}
	case s.verb == join && i < 0:
		d.anchors = append(d.anchors, s.anchor)
	case s.verb == leave && i >= 0:
		d.anchors = slices.Delete(slices.Clone(d.anchors), i, i+1)
		w.engine.Leave(at, d.ID, s.anchor, w.emit)
		w.engine.Rescope(at, d.ID, facts{w}, w.emit)
	}
}

// send applies the samples of a step.
func (w *world) send(s *step) {
	for i := range s.records() {
		at := s.at.from
		if s.at.every > 0 {
			at = s.at.at(i)
		}
		occurred := at - s.age
		if s.taken != nil {
			occurred = s.taken.at(min(i, s.taken.count()-1))
		}
		d := w.device(s.device)
		in := &rules.Input{Position: w.record(at), Profile: profile.ProfileKey, Device: d.Device, Kind: rules.Bare, Occurred: w.micros(occurred), Anchors: d.anchors, Facts: facts{w}}
		switch {
		case s.verb == transition:
			in.Kind, in.Presence, in.Reason = rules.Transition, s.presence, s.reason
		case s.where != nil:
			in.Kind, in.Where = rules.Location, s.where
		case len(s.readings) > 0:
			in.Kind, in.Readings = rules.Measurement, s.readings
		}
		w.engine.Apply(in, w.emit)
	}
}

// expect compares what came since the last block of expectations.
func (w *world) expect(block []expectation) *Failure {
	for _, x := range block {
		switch {
		case x.figure != "":
			if got := w.figure(&x); got != x.number {
				return &Failure{Line: x.line, Expected: x.text, Came: []string{x.figure + " " + x.rule + " " + strconv.FormatInt(got, 10)}}
			}
		case x.nothing:
			if len(w.edges) > 0 {
				return &Failure{Line: x.line, Expected: x.text, Came: w.came()}
			}
		case len(w.edges) == 0 || !w.is(&x, &w.edges[0]):
			return &Failure{Line: x.line, Expected: x.text, Came: w.came()}
		default:
			w.edges = w.edges[1:]
		}
	}
	if last := block[len(block)-1]; len(w.edges) > 0 {
		if last.figure != "" && !slices.ContainsFunc(block, func(x expectation) bool { return x.figure == "" }) {
			return nil // only figures were asked for
		}
		return &Failure{Line: last.line, Expected: "nothing after " + last.text, Came: w.came()}
	}
	return nil
}

// figures are what can be expected of the health of a rule.
var figures = map[string]func(*rules.Health) int64{
	"late":    func(h *rules.Health) int64 { return h.LateSamples },
	"failed":  func(h *rules.Health) int64 { return h.EvalErrors },
	"missing": func(h *rules.Health) int64 { return h.Lacking },
}

func (w *world) figure(x *expectation) int64 {
	for _, h := range w.engine.Health(profile.ProfileKey) {
		if h.Token == x.rule {
			return figures[x.figure](&h)
		}
	}
	return 0
}

// is reports whether an edge is what a line expects.
func (w *world) is(x *expectation, e *model.Edge) bool {
	switch {
	case e.Signal != x.signal || e.Rule != x.rule || e.Series != x.key:
		return false
	case x.severity != "" && x.severity != e.Severity:
		return false
	case x.at != nil && w.micros(*x.at) != e.Occurred:
		return false
	case x.noValue && e.HasValue:
		return false
	case (x.noAlarm || x.alarms != nil) && !slices.Equal(x.alarms, w.alarms[e.ID]):
		return false
	}
	return x.value == nil || e.HasValue && *x.value == e.Value
}

// maxCame bounds the edges of a failure.
const maxCame = 10

// came describes the edges that no line has expected yet, in the words of the language.
func (w *world) came() []string {
	var out []string
	for i := range w.edges {
		if i == maxCame {
			return append(out, fmt.Sprintf("and %d more", len(w.edges)-i))
		}
		e := &w.edges[i]
		words := []string{strings.ToLower(fmt.Sprint(e.Signal)), e.Rule, e.Series}
		if e.Severity != "" {
			words = append(words, "severity", e.Severity)
		}
		words = append(words, "at", e.Occurred.Time().Sub(w.begin).String())
		if e.HasValue {
			words = append(words, "value", strconv.FormatFloat(e.Value, 'g', -1, 64))
		}
		for _, key := range w.alarms[e.ID] {
			words = append(words, "alarm", key)
		}
		out = append(out, strings.Join(words, " "))
	}
	return out
}
