package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weir/model"
	"weir/rules"
)

// rules measures the detection engine alone, on keys at random.
func (b *bench) rules(ctx context.Context) error {
	keys := 1_000_000
	if !b.all {
		keys /= 10
	}
	for _, measure := range []func(*bench, context.Context, int) error{ruleSpeed, ruleMemory, sampleMemory, ruleSnapshots} {
		if err := b.quiet(ctx); err != nil {
			return err
		}
		if err := measure(b, ctx, keys); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// judging is an engine with one profile, which the bench calls as the applier does.
type judging struct {
	*rules.Engine
	in      rules.Input
	reading [1]model.Reading
	edges   int
}

const judgedMetric = "temp"

// newJudging installs rules on an engine that has room for so many keys. What is asked of it is not its limits.
func newJudging(keys int, definitions ...string) (*judging, error) {
	c, err := rules.NewCompiler(rules.Limits{Settings: rules.Settings{MaxKeys: 4*keys + 1000, MaxSamples: 100*keys + 1000, MaxEdges: 1_000_000_000}})
	if err != nil {
		return nil, err
	}
	j := &judging{Engine: rules.NewEngine(c, nil)}
	ref := rules.ProfileRef{ProfileKey: rules.ProfileKey{Tenant: 1, Profile: 1}, TenantToken: tenant, Token: "p", Version: 1}
	views := make([]model.RuleView, len(definitions))
	for i, d := range definitions {
		views[i] = model.RuleView{Token: fmt.Sprintf("r%d", i), Definition: d}
	}
	j.in.Epoch, j.in.Profile = 1, ref.ProfileKey
	j.Install(j.in.Position, ref, views, j.emit)
	for _, h := range j.Health(ref.ProfileKey) {
		if h.Status != rules.Active {
			return nil, fmt.Errorf("rule %s does not run: %s", h.Token, h.Message)
		}
	}
	return j, nil
}

func (j *judging) emit(model.Edge) { j.edges++ }

// next goes to the next place in the log, at which it is so many seconds of listening and event time.
func (j *judging) next(d rules.Device, second int64) {
	j.in.Offset++
	j.in.Received, j.in.Listening = model.Nanos(second)*1e9, rules.Listening(second)*1e9
	j.in.Device, j.in.Kind, j.in.Occurred = d, rules.Measurement, model.Micros(second)*1e6
}

// apply judges a reading of the i-th device.
func (j *judging) apply(i int, token string, second int64, metric string, value float64) {
	j.next(numbered(i, token), second)
	j.judge(metric, value)
}

// numbered is the i-th device.
func numbered(i int, token string) rules.Device {
	return rules.Device{ID: int64(i + 1), Type: 1, Token: token}
}

func (j *judging) judge(metric string, value float64) {
	j.reading[0] = model.Reading{Metric: metric, Value: value}
	j.in.Readings = j.reading[:]
	j.Advance(j.in.Position, j.emit)
	j.Apply(&j.in, j.emit)
}

// manyTokens are the tokens of devices or anchors, in their order. They are made before anything is measured: the registry has them anyway.
func manyTokens(n int) []string {
	tokens := make([]string, n)
	for i := range tokens {
		tokens[i] = fmt.Sprintf("d%07d", i)
	}
	return tokens
}

// threadTime is what this thread has had of the processors. The caller is locked to it.
func threadTime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}

const (
	comparison = `{"name":"n","type":"threshold","when":{"metric":"temp","op":"gt","threshold":80}}`
	expression = `{"name":"n","type":"threshold","when":{"cel":"\"temp\" in m && m[\"temp\"] > 80.0"}}`
)

// ruleSpeed measures a reading against a rule whose key is any of many: both look-ups, the latch, the counters. Processor time
// of the thread counts, so that the figure is that of a core whatever else the machine does.
func ruleSpeed(b *bench, ctx context.Context, keys int) error {
	tokens := manyTokens(keys)
	for _, c := range []struct {
		what, rule string
		goal       goal
	}{
		{"a comparison", comparison, least(3_000_000, perSecond)},
		{"the same as CEL", expression, least(1_500_000, perSecond)},
	} {
		j, err := newJudging(keys, c.rule)
		if err != nil {
			return err
		}
		for i, t := range tokens {
			j.apply(i, t, 1, judgedMetric, 90) // raised: from here on each device has a key
		}
		if got := j.Stats().Keys; got != keys || j.edges != keys {
			return fmt.Errorf("%d keys after %d edges, %d expected", got, j.edges, keys)
		}
		runtime.GC()
		rate, wall, err := randomReadings(ctx, j, tokens, b.seconds)
		if err != nil {
			return err
		}
		b.judged(c.goal, fmt.Sprintf("%s, one rule, %s keys at random: readings judged per core", c.what, count(float64(keys))), rate,
			"the engine alone, one goroutine, by processor time; %s by the clock on the wall; each reading finds its device and its raised key; as in a batch of the log, the engine knows the next %d devices", perSecond(wall), rules.Group)
	}
	return nil
}

// randomReadings judges readings of devices in no order for so long, and returns how many a second of processor time, and of time. They
// are drawn in advance, so that what is measured is the engine.
func randomReadings(ctx context.Context, j *judging, tokens []string, long time.Duration) (rate, wall float64, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	edges, began, judged, r := j.edges, time.Now(), j.Worked().Judged, rand.New(rand.NewPCG(1, 2))
	next := make([]rules.Device, 1_000_000)
	var ids [rules.Group]int64
	var took, cpu time.Duration
	for {
		for i := range next {
			n := r.IntN(len(tokens))
			next[i] = rules.Device{ID: int64(n + 1), Type: 1, Token: tokens[n]}
		}
		at := time.Now()
		before, err := threadTime()
		if err != nil {
			return 0, 0, err
		}
		for i, d := range next {
			if rest := next[i:]; i%rules.Group == 0 && len(rest) >= rules.Group && j.Expects() {
				for k := range ids {
					ids[k] = rest[k].ID
				}
				j.Expect(&ids) // as the applier does for the records of a batch
			}
			j.next(d, 2)
			j.judge(judgedMetric, 91)
		}
		after, err := threadTime()
		if err != nil {
			return 0, 0, err
		}
		cpu, took = cpu+after-before, took+time.Since(at)
		if time.Since(began) >= long || ctx.Err() != nil {
			break
		}
	}
	if j.edges != edges {
		return 0, 0, fmt.Errorf("%d edges, none expected", j.edges-edges)
	}
	done := float64(j.Worked().Judged - judged)
	return done / cpu.Seconds(), done / took.Seconds(), nil
}

// heapKind is a kind of rule and how its keys come to be.
type heapKind struct {
	name, rule string
	key        func(j *judging, i int, token string)
	enrolls    bool // a device has a key as soon as it is known
	shared     bool // the keys are those of anchors, all of a rule in one list
}

// rulesOfKeys is how many rules of a kind each device has a key of. The first key of a device lies with its clock; more of them do not.
const rulesOfKeys = 3

// heapKinds are all kinds, each in the state that remembers most.
func heapKinds() []heapKind {
	reading := func(v float64) func(*judging, int, string) {
		return func(j *judging, i int, t string) { j.apply(i, t, 2, judgedMetric, v) }
	}
	aggregate := func(mode, more string) string {
		return `{"name":"n","type":"aggregate","lateness":"0s","windowMode":"` + mode + `","agg":"avg","metric":"temp","op":"gt","threshold":80,` + more + `}`
	}
	return []heapKind{
		{"threshold", comparison, reading(90), false, false},
		{"deltaRate", `{"name":"n","type":"deltaRate","lateness":"0s","metric":"temp","op":"gt","threshold":80}`, reading(90), false, false},
		{"repeating", `{"name":"n","type":"repeating","lateness":"0s","count":3,"window":"1h","when":{"metric":"temp","op":"gt","threshold":80}}`, reading(90), false, false},
		{"duration", `{"name":"n","type":"duration","lateness":"0s","hold":"1h","when":{"metric":"temp","op":"gt","threshold":80}}`, reading(90), false, false},
		{"tumbling", aggregate(rules.Tumbling, `"window":"1h"`), reading(90), false, false},
		{"sliding", aggregate(rules.Sliding, `"window":"1h"`), reading(90), false, false},
		{"session", aggregate(rules.Session, `"gap":"1h"`), reading(90), false, false},
		{"count window", aggregate(rules.CountWindow, `"count":9`), reading(90), false, false},
		{"absence", `{"name":"n","type":"absence","lateness":"0s","timeout":"1h"}`, func(j *judging, i int, t string) {
			j.next(numbered(i, t), 2)
			j.Enroll(j.in.Position, j.in.Profile, j.in.Device, j.emit)
		}, true, false},
		{"connectivity", `{"name":"n","type":"connectivity"}`, func(j *judging, i int, t string) {
			j.next(numbered(i, t), 2)
			j.in.Kind, j.in.Presence = rules.Transition, model.Disconnected
			j.Apply(&j.in, j.emit)
			j.next(numbered(i, t), 2)
			j.in.Kind, j.in.Presence, j.in.Reason = rules.Transition, model.Demoted, rules.ReasonSourceGone
			j.Apply(&j.in, j.emit)
		}, false, false},
		{"correlation", `{"name":"n","type":"correlation","lateness":"0s","anchorType":"asset","count":2,"window":"1h","when":{"metric":"temp","op":"gt","threshold":80}}`,
			func(j *judging, i int, t string) {
				j.in.Anchors = append(j.in.Anchors[:0], model.Anchor{Type: "asset", Token: t})
				j.apply(i, t, 2, judgedMetric, 90)
			}, false, true},
	}
}

// sampleSize is what a retained sample takes where nothing is lost around it. It is taken off what a key takes.
const sampleSize = 16

// ruleMemory measures what the heap has for each key, of each kind in the state that remembers most. Samples that a kind retains even
// then count as what they are; the clocks of the devices were there before.
func ruleMemory(b *bench, ctx context.Context, keys int) error {
	tokens := manyTokens(keys)
	var device, first, worst float64
	var all []string
	which := ""
	for _, k := range heapKinds() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		key, clock, err := heapOf(k, tokens, first)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		first = cmp.Or(first, clock)
		if device = max(device, clock); key > worst {
			worst, which = key, k.name
		}
		all = append(all, fmt.Sprintf("%s %.0f", k.name, key))
	}
	b.judged(within(200, bytesEach), fmt.Sprintf("memory of a key, %s of them, the worst kind", count(float64(keys))), worst,
		"%s; its timer included, less %d bytes for each sample that it retains; %d keys of a device; %s; the clock and the look-up of a device, which its rules share, take %.0f at most",
		which, sampleSize, rulesOfKeys, strings.Join(all, ", "), device)
	return nil
}

// heapOf returns the bytes of a key of a kind, and of a device before it has one. Where it has one at once, its clock takes as much as is said.
func heapOf(k heapKind, tokens []string, clock float64) (key, device float64, err error) {
	of := rulesOfKeys
	if k.shared {
		of = 1
	}
	tokens = tokens[:len(tokens)/of]
	j, err := newJudging(of*len(tokens), slices.Repeat([]string{k.rule}, of)...)
	if err != nil {
		return 0, 0, err
	}
	empty := heap()
	clocks := empty + int64(clock*float64(len(tokens)))
	if !k.enrolls {
		for i, t := range tokens {
			j.apply(i, t, 1, "other", 0)
		}
		clocks = heap()
	}
	if got := j.Stats().Keys; got > 0 {
		return 0, 0, fmt.Errorf("%d keys before the first", got)
	}
	for i, t := range tokens {
		k.key(j, i, t)
	}
	after, s := heap(), j.Stats()
	if s.Keys != of*len(tokens) {
		return 0, 0, fmt.Errorf("%d keys, %d expected", s.Keys, of*len(tokens))
	}
	runtime.KeepAlive(j)
	return float64(after-clocks-sampleSize*int64(s.Samples)) / float64(s.Keys), float64(clocks-empty) / float64(len(tokens)), nil
}

// heap is what the heap of this process holds.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// sampleMemory measures what the heap has for each sample of a window: the slack of growing buffers, and what a window leaves behind
// as it moves.
func sampleMemory(b *bench, ctx context.Context, keys int) error {
	var worst float64
	var all []string
	for _, length := range []int{3, 60, 1000} {
		each, err := heapOfSamples(ctx, keys/length, length)
		if err != nil {
			return err
		}
		worst = max(worst, each)
		all = append(all, fmt.Sprintf("%.1f of %d", each, length))
	}
	b.judged(within(24, bytesEach), "memory of a retained sample, the worst of three lengths", worst, "sliding windows that have moved by twice their length, %s samples in all: %s",
		count(float64(keys)), strings.Join(all, ", "))
	return nil
}

func heapOfSamples(ctx context.Context, devices, length int) (float64, error) {
	rule := fmt.Sprintf(`{"name":"n","type":"aggregate","lateness":"0s","windowMode":"sliding","window":"%ds","agg":"avg","metric":"temp","op":"gt","threshold":80,
		"when":{"metric":"temp","op":"gt","threshold":0}}`, length)
	j, err := newJudging(devices*length, rule)
	if err != nil {
		return 0, err
	}
	tokens := manyTokens(devices)
	for i, t := range tokens {
		j.apply(i, t, 0, judgedMetric, -1) // a key without samples
	}
	without := heap()
	for second := range int64(3 * length) {
		for i, t := range tokens {
			j.apply(i, t, second, judgedMetric, 20)
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
	after, s := heap(), j.Stats()
	if s.Samples != devices*length || s.Keys != devices {
		return 0, fmt.Errorf("%d samples of %d keys, %d of %d expected", s.Samples, s.Keys, devices*length, devices)
	}
	runtime.KeepAlive(j)
	return float64(after-without) / float64(s.Samples), nil
}

// ruleSnapshots measures what it takes to encode the state of all keys after all have changed, of a kind that only latches and of one
// that remembers more.
func ruleSnapshots(b *bench, ctx context.Context, keys int) error {
	tokens := manyTokens(keys)
	kinds := heapKinds()
	var worst, held time.Duration
	var all, steps []string
	for _, k := range []heapKind{kinds[0], kinds[3]} {
		s, err := snapshotOf(k, tokens)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		worst, held = max(worst, s.work), max(held, s.held)
		all = append(all, fmt.Sprintf("%s %s, %.0f bytes a key with the clock of its device", k.name, short(s.work), s.each))
		steps = append(steps, fmt.Sprintf("%s %s steps, the longest %s, the cut %s", k.name, count(float64(s.steps)), short(s.longest), short(s.cut)))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	what := fmt.Sprintf("snapshot of %s keys that have all changed: ", count(float64(keys)))
	b.judged(within(1000, millis), what+"work in all", inMillis(worst), "processor time of the thread that encodes; %s", strings.Join(all, "; "))
	b.judged(within(50, millis), what+"longest that a record waits for it", inMillis(held),
		"between two steps the applier has the engine; messages are acknowledged and the registry is changed without it; %s", strings.Join(steps, "; "))
	return nil
}

// snapshotted is what a snapshot took.
type snapshotted struct {
	work, held   time.Duration // in all; and the longest for which nothing could be judged
	cut, longest time.Duration // of the marking of what has changed, and of one step of the encoding
	steps        int
	each         float64 // bytes of a key
}

// snapshotOf encodes keys that have changed since the last snapshot.
func snapshotOf(k heapKind, tokens []string) (s snapshotted, err error) {
	j, err := newJudging(len(tokens), k.rule)
	if err != nil {
		return s, err
	}
	for i, t := range tokens {
		k.key(j, i, t)
	}
	j.Freeze()
	for i, t := range tokens {
		j.apply(i, t, 3, judgedMetric, 70) // released, or its hold has ended
		j.apply(i, t, 4, judgedMetric, 90)
	}
	runtime.GC()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	last, err := threadTime()
	if err != nil {
		return s, err
	}
	took := func() time.Duration {
		now, e := threadTime()
		d := now - last
		last, err = now, errors.Join(err, e)
		s.work, s.held = s.work+d, max(s.held, d)
		return d
	}
	bytes := 0
	of := func(pages []rules.Page) {
		for _, p := range pages {
			bytes += len(p.Data)
		}
	}
	snapshot := j.Cut()
	s.cut = took()
	for more := true; more; s.steps++ {
		var pages []rules.Page
		pages, more = snapshot.Next()
		s.longest = max(s.longest, took())
		of(pages)
	}
	for _, pages := range [][]rules.Page{j.FreezeCeilings(0), j.FreezeOwed(), j.FreezeClocks()} {
		of(pages)
	}
	took()
	s.each = float64(bytes) / float64(len(tokens))
	return s, err
}
