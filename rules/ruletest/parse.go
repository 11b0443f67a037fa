package ruletest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/yamldoc"
	"weir/model"
	"weir/rules"
)

// Parse reads a file of tests. With problems the file has its sources only, as far as they were read.
func Parse(name string, text []byte) (*File, yamldoc.Problems) {
	p := &parser{source: yamldoc.FileOf(name, text), file: &File{Name: name, begin: Begin}}
	switch {
	case len(text) > MaxFile:
		p.problem("", "is larger than %d KiB", MaxFile>>10)
	case !utf8.Valid(text):
		p.problem("save it as UTF-8", "this is not UTF-8")
	default:
		p.read(string(bytes.TrimPrefix(text, []byte("\ufeff"))))
	}
	if len(p.problems) > 0 {
		return &File{Name: name, Sources: p.file.Sources}, p.problems
	}
	return p.file, nil
}

// maxProblems is how many mistakes are reported at once.
const maxProblems = 50

type parser struct {
	source   *yamldoc.File
	file     *File
	test     *Test // the one that is read, nil before the first
	problems yamldoc.Problems
	rest     string // of the text
	line     int    // of the statement, 1 is the first
	more     int    // lines that the statement has after it
	words    []word // of the statement that were not read yet
	end      int    // column after the statement
	records  int
	latest   time.Duration // of the test
}

// word is one word of a statement and its column.
type word struct {
	text   string
	column int
}

// problem notes a mistake at the next word, or at the end of the statement.
func (p *parser) problem(hint, format string, args ...any) {
	column := p.end
	if len(p.words) > 0 {
		column = p.words[0].column
	}
	p.problemAt(column, hint, format, args...)
}

func (p *parser) problemAt(column int, hint, format string, args ...any) {
	at := yamldoc.Position{File: p.source, Line: p.line, Column: column}
	if len(p.problems) < maxProblems {
		p.problems = append(p.problems, at.Problem("", false, hint, format, args...))
	}
}

// read reads the statements, each as far as it can be.
func (p *parser) read(text string) {
	p.rest = text
	for p.rest != "" && len(p.problems) < maxProblems {
		var statement string
		statement, p.rest, _ = strings.Cut(p.rest, "\n")
		p.line, p.more = p.line+p.more+1, 0
		p.split(statement)
		p.statement(strings.TrimRight(statement, " \r\t"))
	}
	if p.words = nil; len(p.problems) == 0 && len(p.file.Tests) == 0 {
		p.problem(`write "test" and a name, and the statements of the test below it`, "there is no test")
	}
	for i := range p.file.Tests {
		if t := &p.file.Tests[i]; len(t.rules) == 0 {
			t.rules = p.file.rules
		}
	}
	if len(p.problems) == 0 {
		p.checkTests()
	}
}

// split divides a statement into words. A word that begins with # begins a comment. Blanks inside of quotes with which a word begins belong to it.
func (p *parser) split(statement string) {
	p.words = nil
	column, inWord, quoted, escaped := 0, false, false, false
	for _, r := range statement {
		column++
		blank := r == ' ' || r == '\t' || r == '\r'
		switch {
		case blank && !quoted:
			inWord = false
		case !inWord && r == '#':
			p.end = column
			return
		case !inWord:
			p.words, inWord, quoted = append(p.words, word{string(r), column}), true, r == '"'
		default:
			p.words[len(p.words)-1].text += string(r)
			quoted = quoted && (escaped || r != '"')
			escaped = quoted && !escaped && r == '\\'
		}
	}
	p.end = column + 1
}

// next takes the next word, "" when there is none.
func (p *parser) next() string {
	if len(p.words) == 0 {
		return ""
	}
	w := p.words[0].text
	p.words = p.words[1:]
	return w
}

func (p *parser) peek() string {
	if len(p.words) == 0 {
		return ""
	}
	return p.words[0].text
}

// take takes the next word if it is this one.
func (p *parser) take(text string) bool {
	if p.peek() != text {
		return false
	}
	p.next()
	return true
}

var headers = []string{"rules", "begin", "lateness", "rule", "fence", "test"}

var statements = []string{"rule", "fence", "at", "expect", "test"}

func (p *parser) statement(line string) {
	switch keyword := p.peek(); {
	case keyword == "":
		return
	case keyword == "test":
		p.begins(line)
		return
	case keyword == "rule":
		p.rule()
	case keyword == "fence":
		p.declareFence()
	case p.test == nil && keyword == "rules":
		p.from()
	case p.test == nil && keyword == "begin":
		p.begin()
	case p.test == nil && keyword == "lateness":
		p.next()
		p.file.lateness = p.positive()
	case p.test != nil && keyword == "at":
		p.at()
	case p.test != nil && keyword == "expect":
		p.expect(line)
	default:
		p.unknown(keyword)
		return
	}
	if len(p.words) > 0 {
		p.problem("", "%q is not understood here", p.peek())
	}
}

// unknown is about a line that begins with no statement that may stand there.
func (p *parser) unknown(keyword string) {
	known, where := statements, "in a test"
	if p.test == nil {
		known, where = headers, "before the first test"
	}
	p.problem(hintOf(keyword, known), "%q begins no statement %s", keyword, where)
}

// hintOf is the nearest of the known words, or all of them.
func hintOf(word string, known []string) string {
	return cmp.Or(yamldoc.Suggest(word, known), "known are "+strings.Join(known, ", "))
}

func (p *parser) begins(line string) {
	column := p.words[0].column
	p.next()
	name := ""
	if len(p.words) > 0 { // the name is the rest of the line, as it stands
		name = strings.TrimSpace(string([]rune(line)[p.words[0].column-1:]))
	}
	switch {
	case name == "":
		p.problem("", "the test has no name")
	case len(p.file.Tests) == MaxTests:
		p.problemAt(column, "", "a file has at most %d tests", MaxTests)
	case slices.ContainsFunc(p.file.Tests, func(t Test) bool { return t.Name == name }):
		p.problem("", "there is a test of this name already")
	}
	p.file.Tests = append(p.file.Tests, Test{Name: name, Line: p.line, place: yamldoc.Position{File: p.source, Line: p.line, Column: column}})
	p.test, p.latest, p.words = &p.file.Tests[len(p.file.Tests)-1], 0, nil
}

func (p *parser) from() {
	at := yamldoc.Position{File: p.source, Line: p.line, Column: p.words[0].column}
	p.next()
	if p.peek() == "" {
		p.problem("", "the path of a file with rules is missing")
		return
	}
	for p.peek() != "" {
		p.file.Sources = append(p.file.Sources, Source{p.next(), at})
	}
}

func (p *parser) begin() {
	p.next()
	t, err := model.ParseTime(p.peek())
	if err != nil || t.Year() < 1970 || t.Year() > 2200 {
		p.problem("for example 2026-01-01T00:00:00Z", "%q is no time", p.peek())
	}
	p.next()
	p.file.begin = t
}

// rule reads a rule that is used, and its definition if one follows.
func (p *parser) rule() {
	p.next()
	into := &p.file.rules
	if p.test != nil {
		into = &p.test.rules
	}
	r, ok := p.use()
	switch {
	case !ok:
	case slices.ContainsFunc(*into, func(o ruleUse) bool { return o.token == r.token }):
		p.problemAt(r.place.Column, "", "the rule %s is named already", r.token)
	case len(*into) == MaxRules:
		p.problemAt(r.place.Column, "", "a test has at most %d rules", MaxRules)
	default:
		*into = append(*into, r)
	}
}

// use reads the name of a rule and the JSON after it.
func (p *parser) use() (ruleUse, bool) {
	if len(p.words) == 0 {
		p.problem("", "the token of a rule is missing")
		return ruleUse{}, false
	}
	r := ruleUse{token: p.words[0].text, place: yamldoc.Position{File: p.source, Line: p.line, Column: p.words[0].column}}
	if !validRule(r.token) {
		p.problem("", "%q is no token of a rule", r.token)
		return r, false
	}
	p.next()
	if p.take("group") {
		if r.group = p.peek(); !model.ValidToken(r.group) {
			p.problem("for example rule too-hot group boilers {…}", "%q is no token of a group", r.group)
			return r, false
		}
		if p.next(); p.peek() == "" {
			p.problem("a rule of a file has the scope that the file says", "the definition of the rule is missing")
			return r, false
		}
	}
	if p.peek() == "" {
		return r, true
	}
	var ok bool
	r.definition, ok = p.object("definition")
	return r, ok
}

// validRule reports whether a text is the token of a rule, with those of its profile and tenant before it if it needs them.
func validRule(name string) bool {
	parts := strings.Split(name, "/")
	return len(parts) <= 3 && !slices.ContainsFunc(parts, func(s string) bool { return !model.ValidToken(s) })
}

// object reads a JSON object that begins in this line and may take more.
func (p *parser) object(what string) (string, bool) {
	if !strings.HasPrefix(p.peek(), "{") {
		p.problem("a "+what+" is a JSON object: {…}", "%q is not understood here", p.peek())
		p.words = nil
		return "", false
	}
	here := strings.Split(p.source.Line(p.line), "")
	text := strings.Join(here[min(p.words[0].column-1, len(here)):], "") + "\n" + p.rest[:min(len(p.rest), rules.MaxDefinition)]
	d := json.NewDecoder(strings.NewReader(text))
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		p.problem("", "the %s is not valid JSON: %v", what, err)
		p.words = nil
		return "", false
	}
	tail, _, _ := strings.Cut(text[d.InputOffset():], "\n")
	p.words, p.more = nil, strings.Count(text[:d.InputOffset()], "\n")
	for range p.more {
		_, p.rest, _ = strings.Cut(p.rest, "\n")
	}
	if tail = strings.TrimSpace(tail); tail != "" && tail[0] != '#' {
		p.problem("", "there is something after the %s", what)
		return "", false
	}
	return string(raw), true
}

// period reads a duration, from another time of the test.
func (p *parser) period() time.Duration {
	text := p.peek()
	d, err := time.ParseDuration(text)
	switch {
	case text == "":
		p.problem("for example 90s or 1h30m", "a time is missing")
	case err != nil:
		p.problem("for example 90s or 1h30m", "%q is no time", text)
	case d.Abs() > MaxPeriod || d%time.Microsecond != 0:
		p.problem("", "a time is at most %d days, and a number of microseconds", int(MaxPeriod.Hours()/24))
		d = 0
	}
	p.next()
	return d
}

func (p *parser) positive() time.Duration {
	column := p.end
	if len(p.words) > 0 {
		column = p.words[0].column
	}
	before := len(p.problems)
	d := p.period()
	if d <= 0 && len(p.problems) == before {
		p.problemAt(column, "", "must be longer than zero")
	}
	return max(d, 1)
}

// times reads T, or T..T every T.
func (p *parser) times() times {
	from, to, several := strings.Cut(p.peek(), "..")
	if !several {
		d := p.period()
		return times{d, d, 0}
	}
	w := p.words[0]
	p.words[0].text = from
	t := times{from: p.period()}
	p.words = append([]word{{to, w.column + len(from) + 2}}, p.words...)
	t.to = p.period()
	if !p.take("every") {
		p.problem("for example 0s..60s every 10s", "a distance is missing")
		return t
	}
	if t.every = p.positive(); t.to < t.from {
		p.problemAt(w.column, "", "the times end before they begin")
		t.to = t.from
	}
	return t
}

func (p *parser) at() {
	p.next()
	s := step{line: p.line}
	if len(p.words) == 0 {
		p.problem("for example 90s or 1h30m", "a time is missing")
		return
	}
	column := p.words[0].column
	s.at = p.times()
	if s.at.from < p.latest {
		p.problemAt(column, "what a device sends late has its own time: taken 5s, or old 10s", "time does not go back: it is %s", p.latest)
	}
	p.latest = max(p.latest, s.at.to)
	switch p.peek() {
	case "":
	case "restart":
		p.next()
		if s.verb = restart; p.take("grace") {
			s.grace = p.positive()
		}
	case "publish":
		p.next()
		s.verb = publish
		r, ok := p.use()
		if s.rule = r; ok && r.definition == "" {
			p.problem("", "the new definition is missing")
		}
	case "fence":
		s.verb = fence
		s.fence, _ = p.fence(true)
	case "refuse":
		p.next()
		s.verb = refuse
	case "accept":
		p.next()
		s.verb = accept
	default:
		p.deviceStep(&s)
	}
	p.count(&s, column)
	p.test.steps = append(p.test.steps, s)
}

// count bounds the records of a file.
func (p *parser) count(s *step, column int) {
	n := s.at.count()
	if s.taken != nil && s.taken.count() > 1 {
		if n > 1 {
			p.problemAt(column, "", "only one of arrival and taken can be several times")
		}
		n = s.taken.count()
	}
	if n > 1 && s.verb != apply && s.verb != transition {
		p.problemAt(column, "", "only what a device sends is repeated")
	}
	if p.records = min(p.records+min(n, MaxRecords+1), MaxRecords+1); p.records > MaxRecords { // capped: a sum of such does not overflow
		p.problemAt(column, "", "a file has at most %d samples, repetitions counted", MaxRecords)
	}
}

var presences = map[string]model.PresenceState{"connected": model.Connected, "disconnected": model.Disconnected, "demoted": model.Demoted}

// deviceWords may follow the token of a device.
var deviceWords = []string{"created", "deleted", "joins", "leaves", "attribute", "position", "connected", "disconnected", "demoted", "taken", "old"}

func (p *parser) deviceStep(s *step) {
	if s.device = p.peek(); !model.ValidToken(s.device) {
		p.problem("", "%q is no token of a device", s.device)
	}
	p.next()
	s.verb = apply
	switch w := p.peek(); w {
	case "created":
		p.next()
		s.verb = create
	case "deleted":
		p.next()
		s.verb = remove
	case "joins", "leaves":
		p.next()
		if s.verb = join; w == "leaves" {
			s.verb = leave
		}
		p.anchor(s)
	case "attribute":
		p.next()
		s.verb = attribute
		p.attribute(s)
	case "position":
		p.next()
		s.where = p.position()
		p.own(s)
	case "connected", "disconnected", "demoted":
		p.next()
		s.verb, s.presence = transition, presences[w]
		if next := p.peek(); w == "demoted" && next != "" && next != "taken" && next != "old" {
			s.reason = p.next()
		}
		p.own(s)
	default:
		p.readings(s)
		p.own(s)
	}
}

// anchorTypes are what a device can be related to.
var anchorTypes = []string{"area", "customer", "asset", "device", "group"}

func (p *parser) anchor(s *step) {
	kind, token, ok := strings.Cut(p.peek(), "/")
	switch {
	case !ok || !model.ValidToken(token):
		p.problem("for example area/hall", "%q is no anchor", p.peek())
	case !slices.Contains(anchorTypes, kind):
		p.problem(hintOf(kind, anchorTypes), "%q is no kind of anchor", kind)
	}
	p.next()
	s.anchor = model.Anchor{Type: kind, Token: token}
}

// attribute reads NAME=VALUE, or NAME none.
func (p *parser) attribute(s *step) {
	name, value, given := strings.Cut(p.peek(), "=")
	v, err := strconv.ParseFloat(value, 64)
	switch {
	case name == "" || len(name) > model.MaxToken:
		p.problem("for example attribute limit=80", "%q is no attribute", p.peek())
	case given && (err != nil || math.IsInf(v, 0) || math.IsNaN(v)):
		p.problem("", "%q is no number", value)
	case given:
		s.value = &v
	}
	p.next()
	if s.name = name; !given && !p.take("none") {
		p.problem("write limit=80, or limit none", "the value of the attribute is missing")
	}
}

// metricName is the name of a metric as a word has it: in quotes, where it holds blanks.
func metricName(word string) (name string, ok bool) {
	if word[0] != '"' {
		return word, true
	}
	name, err := strconv.Unquote(word)
	return name, err == nil && name != ""
}

func (p *parser) readings(s *step) {
	for w := p.peek(); w != "" && w != "taken" && w != "old"; w = p.peek() {
		i := strings.LastIndexByte(w, '=')
		if i <= 0 {
			p.problem(cmp.Or(yamldoc.Suggest(w, deviceWords), "write metric=number"), "%q is no reading", w)
			p.words = nil
			return
		}
		name, known := metricName(w[:i])
		v, err := strconv.ParseFloat(w[i+1:], 64)
		switch {
		case !known:
			p.problem(`for example "Node Temperature"=21`, "%s is no name in quotes", w[:i])
		case err != nil || math.IsInf(v, 0) || math.IsNaN(v):
			p.problem("", "%q is no number", w[i+1:])
		case utf8.RuneCountInString(name) > model.MaxToken:
			p.problem("", "the name of the metric is longer than %d characters", model.MaxToken)
		case slices.ContainsFunc(s.readings, func(r model.Reading) bool { return r.Metric == name }):
			p.problem("", "the sample has %s twice", name)
		case len(s.readings) == maxMetrics:
			p.problem("", "a sample has at most %d metrics", maxMetrics)
		default:
			s.readings = append(s.readings, model.Reading{Metric: name, Value: v})
		}
		p.next()
	}
}

// own reads the event time of a sample.
func (p *parser) own(s *step) {
	switch {
	case p.take("taken"):
		s.taken = new(p.times())
	case p.take("old"):
		s.age = p.period()
	}
}

func (p *parser) expect(line string) {
	x := expectation{line: p.line, text: strings.TrimSpace(line)}
	if i := strings.Index(x.text, " #"); i >= 0 {
		x.text = strings.TrimSpace(x.text[:i])
	}
	p.next()
	switch w := p.peek(); w {
	case "nothing":
		p.next()
		x.nothing = true
	case "raised", "resolved":
		p.next()
		if x.signal = model.Raised; w == "resolved" {
			x.signal = model.Resolved
		}
		p.edge(&x)
	case "late", "failed", "missing":
		p.next()
		x.figure, x.rule = w, p.next()
		n, err := strconv.ParseInt(p.peek(), 10, 64)
		if err != nil || n < 0 {
			p.problem("for example expect late too-hot 2", "%q is no number", p.peek())
		}
		p.next()
		x.number = n
	default:
		known := []string{"raised", "resolved", "nothing", "late", "failed", "missing"}
		p.problem(yamldoc.Suggest(w, known), "%q is none of %s", w, strings.Join(known, ", "))
		p.words = nil
	}
	if n := len(p.test.steps); n > 0 && p.test.steps[n-1].verb == expectEdges {
		p.test.steps[n-1].expects = append(p.test.steps[n-1].expects, x)
		return
	}
	p.test.steps = append(p.test.steps, step{verb: expectEdges, line: p.line, expects: []expectation{x}})
}

func (p *parser) edge(x *expectation) {
	if x.rule, x.key = p.next(), p.next(); x.key == "" {
		p.problem("for example expect raised too-hot boiler-1", "the rule and its device or anchor are missing")
		return
	}
	for len(p.words) > 0 {
		switch w := p.peek(); w {
		case "severity":
			p.next()
			p.severity(x)
		case "at":
			p.next()
			x.at = new(p.period())
		case "value":
			p.next()
			p.value(x)
		case "alarm":
			p.next()
			p.alarm(x)
		default:
			p.problem(yamldoc.Suggest(w, edgeWords), "%q is none of %s, which an edge has", w, strings.Join(edgeWords, ", "))
			p.words = nil
		}
	}
}

// edgeWords are what an expected edge may say.
var edgeWords = []string{"severity", "at", "value", "alarm"}

func (p *parser) severity(x *expectation) {
	if x.severity = p.peek(); !slices.Contains(rules.SeverityNames(), x.severity) {
		p.problem(hintOf(x.severity, rules.SeverityNames()), "%q is no severity", x.severity)
	}
	p.next()
}

func (p *parser) value(x *expectation) {
	if p.take("none") {
		x.noValue = true
		return
	}
	v, err := strconv.ParseFloat(p.peek(), 64)
	if err != nil {
		p.problem("a number, or none", "%q is no value", p.peek())
	}
	p.next()
	x.value = &v
}

// alarm reads the key of an alarm, or none.
func (p *parser) alarm(x *expectation) {
	switch key := p.peek(); {
	case x.signal != model.Raised:
		p.problem("what is resolved ends all that its rule contributes to", "only a raised edge raises alarms")
	case key == "":
		p.problem("write the key of an alarm, or none", "the key of the alarm is missing")
	case p.take("none"):
		x.noAlarm = true
		return
	default:
		x.alarms = append(x.alarms, key)
		slices.Sort(x.alarms)
	}
	p.next()
}

// checkTests checks what can be said of whole tests.
func (p *parser) checkTests() {
	p.words = nil
	steps := 0
	for i := range p.file.Tests {
		t := &p.file.Tests[i]
		p.line, p.end = t.Line, 1
		if len(t.rules) == 0 {
			p.problem(`name one: "rule" and its token`, "the test names no rule")
		}
		if !slices.ContainsFunc(t.steps, func(s step) bool { return s.verb == expectEdges }) {
			p.problem("", "the test expects nothing: write expect nothing, or what shall come")
		}
		for j := range t.steps {
			p.checkStep(t, &t.steps[j])
			steps += t.steps[j].records() * len(t.rules)
		}
	}
	if p.line, p.end = 0, 0; steps > MaxSteps {
		p.problem("divide it into files", "samples times rules are %d, at most %d", steps, MaxSteps)
	}
}

// checkBare refuses an event that is probably a misspelt word: nothing else names its device, and a word of the language is near.
func (p *parser) checkBare(t *Test, s *step) {
	named := 0
	for i := range t.steps {
		if t.steps[i].device == s.device {
			named++
		}
		for _, x := range t.steps[i].expects {
			if x.key == s.device {
				named++
			}
		}
	}
	if near := yamldoc.Suggest(s.device, []string{"restart", "publish", "fence", "refuse", "accept"}); named == 1 && near != "" {
		p.line = s.line
		p.problem(near, "nothing else in the test names a device %q", s.device)
	}
}

// checkStep refuses rules that the test does not have.
func (p *parser) checkStep(t *Test, s *step) {
	has := func(line int, rule string) {
		if slices.ContainsFunc(t.rules, func(r ruleUse) bool { return r.token == rule }) {
			return
		}
		names := make([]string, len(t.rules))
		for i, r := range t.rules {
			names[i] = r.token
		}
		p.line = line
		p.problem(cmp.Or(yamldoc.Suggest(rule, names), "its rules are "+strings.Join(names, ", ")), "the test has no rule %q", rule)
	}
	if s.verb == publish {
		has(s.line, s.rule.token)
	}
	if s.verb == apply && s.readings == nil && s.where == nil {
		p.checkBare(t, s)
	}
	for _, x := range s.expects {
		if !x.nothing {
			has(x.line, x.rule)
		}
	}
}
