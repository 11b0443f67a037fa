package rules

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"weir/model"
)

// Acts receives what the actions of edges come to, right after each edge and in the order of the actions. It must not call
// the engine.
type Acts interface {
	// Contribute receives what a rule contributes to the alarms of a device.
	Contribute(model.Contribution)
	// Order receives an action that is to be performed once.
	Order(model.Order)
	// Stale is called for each action that is left out because its edge is older than the action's maxAge.
	Stale(tenant int64, edge model.EdgeID)
}

// Perform sets what receives the actions of edges; nil: nothing does, and no guard or template is evaluated.
func (e *Engine) Perform(a Acts) { e.acts = a }

// commandMaxAge is the maxAge of a sendCommand that does not say one.
const commandMaxAge = 10 * time.Minute

// maxActionCost bounds a guard or template when it runs. The static worst case assumes sizes, which a text may exceed.
const maxActionCost = 1000

// acting is what the rule does on its edges: its actions, compiled.
type acting struct {
	actions  []compiledAction
	metric   string
	severity string // upper case
	alarms   bool   // one of the actions raises an alarm
}

// compiledAction is an action with its expressions.
type compiledAction struct {
	*Action
	guard    cel.Program // nil: the action always happens
	template cel.Program // of the alarm's key, the body or the payload; nil for none
	content  []byte      // what the idempotency key covers besides the edge

	guardCost, templateCost uint64 // static worst cases
}

// prepare compiles an expression of an action that was checked.
func (a *compiledAction) prepare(x *expression, checked *cel.Ast, cost uint64) error {
	program, err := x.env.env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxActionCost))
	if err != nil {
		return refuse(x.field, "%v", err)
	}
	if x.guards {
		a.guard, a.guardCost = program, cost
	} else {
		a.template, a.templateCost = program, cost
	}
	return nil
}

// firing is the edge as guards and templates read it.
func firing(e *model.Edge) map[string]any {
	value := e.Value
	if !e.HasValue {
		value = 0
	}
	return map[string]any{varSeries: e.Series, varValue: value, varHasValue: e.HasValue}
}

// holds asks the guard. ok is false when it fails.
func (a *compiledAction) holds(vars map[string]any) (holds, ok bool) {
	if a.guard == nil {
		return true, true
	}
	out, _, err := a.guard.Eval(vars)
	b, isBool := out.(types.Bool)
	return bool(b), err == nil && isBool
}

// Guard is the guard of an action, or a part of one, compiled by itself.
type Guard struct{ program cel.Program }

// CompileGuard compiles a guard, as Compile does one of a definition.
func (c *Compiler) CompileGuard(text string) (*Guard, error) {
	checked, _, err := c.envs.guard.check(text, c.limits.MaxCost)
	if err != nil {
		return nil, err
	}
	program, err := c.envs.guard.env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxActionCost))
	return &Guard{program}, err
}

// Holds asks the guard about an edge. The error says why it fails.
func (g *Guard) Holds(edge *model.Edge) (bool, error) {
	out, _, err := g.program.Eval(firing(edge))
	b, isBool := out.(types.Bool)
	if err == nil && !isBool {
		err = errors.New("it gives no truth value")
	}
	return err == nil && bool(b), err
}

// The reasons why an action is skipped at an edge, other than that its guard does not hold.
var (
	ErrGuardFails    = errors.New("the guard fails")
	ErrTemplateFails = errors.New("the template fails")
	ErrStale         = errors.New("the edge is older than maxAge")
)

// WouldPerform says of each action of the definition whether it is performed at a raised edge. The error says why not where its guard is
// not the reason.
func (p *Program) WouldPerform(edge *model.Edge, each func(i int, performed bool, why error)) {
	vars := firing(edge)
	for i := range p.acting.actions {
		a := &p.acting.actions[i]
		switch holds, ok := a.holds(vars); {
		case !ok:
			each(i, false, ErrGuardFails)
		case !holds:
			each(i, false, nil)
		case a.stale(edge):
			each(i, false, ErrStale)
		case a.Type == ActionRaiseAlarm:
			_, ok := a.alarmKey("stable", vars)
			each(i, ok, failing(ok))
		default:
			_, ok := a.order(edge, vars)
			each(i, ok, failing(ok))
		}
	}
}

func failing(ok bool) error {
	if ok {
		return nil
	}
	return ErrTemplateFails
}

// render evaluates the template. ok is false when it fails.
func (a *compiledAction) render(vars map[string]any) (text string, ok bool) {
	out, _, err := a.template.Eval(vars)
	s, isString := out.(types.String)
	return string(s), err == nil && isString
}

// alarmKey is the key of the alarm that a raiseAlarm raises for a series.
func (a *compiledAction) alarmKey(stable string, vars map[string]any) (key string, ok bool) {
	if a.template == nil {
		return cmp.Or(a.RaiseAlarm.AlarmKey, stable), true
	}
	key, ok = a.render(vars)
	return key, ok && model.ValidToken(key)
}

// maxAge is how far an edge may lie before its record, 0 for any age.
func (a *Action) maxAge() time.Duration {
	switch {
	case a.MaxAge != nil:
		return *a.MaxAge
	case a.Type == ActionSendCommand:
		return commandMaxAge
	}
	return 0
}

// stale reports whether an edge lies further before its record than the action allows. Alarms have no such age.
func (a *compiledAction) stale(edge *model.Edge) bool {
	age := a.maxAge()
	return a.Type != ActionRaiseAlarm && age > 0 && edge.Occurred < edge.Received.Micros()-model.Micros(age/time.Microsecond)
}

// act gives what an edge of a rule comes to. Other actions than raiseAlarm happen on raised edges only, and no guard is
// asked for a resolved one. The contributions of a rule that does not run are resolved, too: what it raised before is known
// to the alarms alone.
func (e *Engine) act(p *profile, r *rule, edge *model.Edge) {
	switch {
	case e.acts == nil:
	case edge.Signal == model.Resolved:
		if r.program == nil || r.program.acting.alarms {
			e.acts.Contribute(r.contribution(model.ContributeResolve, edge))
		}
	case len(r.program.acting.actions) > 0:
		e.perform(p, r, edge)
	}
}

// perform gives what the actions of a raised edge come to. A guard or template that fails skips its action and counts like a
// sample that the rule could not evaluate; the others go on.
func (e *Engine) perform(p *profile, r *rule, edge *model.Edge) {
	acts, vars := &r.program.acting, firing(edge)
	raise := r.contribution(model.ContributeRaise, edge)
	for i := range acts.actions {
		a := &acts.actions[i]
		holds, ok := a.holds(vars)
		if ok && holds {
			ok = e.performOne(r, a, edge, vars, &raise)
		}
		if !ok {
			r.EvalErrors++
			p.rulesDirty = true
			e.metrics.evalErrors.Inc()
		}
	}
	if len(raise.Keys) > 0 {
		e.acts.Contribute(raise)
	}
}

// performOne performs an action whose guard holds. It returns false when a template fails.
func (e *Engine) performOne(r *rule, a *compiledAction, edge *model.Edge, vars map[string]any, raise *model.Contribution) bool {
	if a.Type == ActionRaiseAlarm {
		key, ok := a.alarmKey(r.stable, vars)
		if ok {
			raise.Keys = addKey(raise.Keys, model.AlarmKey{Key: key, Guarded: a.guard != nil})
		}
		return ok
	}
	if e.foreign && a.Type.AtSite() {
		return true // it was performed there
	}
	if a.stale(edge) {
		e.acts.Stale(edge.TenantID, edge.ID)
		return true
	}
	o, ok := a.order(edge, vars)
	if ok {
		e.acts.Order(o)
	}
	return ok
}

// addKey adds a key. Two actions with one key are one contribution, which is guarded when both are.
func addKey(keys []model.AlarmKey, k model.AlarmKey) []model.AlarmKey {
	for i := range keys {
		if keys[i].Key == k.Key {
			keys[i].Guarded = keys[i].Guarded && k.Guarded
			return keys
		}
	}
	return append(keys, k)
}

func (r *rule) contribution(kind model.ContributionKind, edge *model.Edge) model.Contribution {
	c := model.Contribution{Kind: kind, Edge: edge.ID, TenantID: edge.TenantID, DeviceID: edge.Device, Device: edge.Series, Rule: r.stable,
		Occurred: edge.Occurred, Received: edge.Received, Value: edge.Value, HasValue: edge.HasValue}
	if r.program != nil {
		c.Metric, c.Severity = r.program.acting.metric, r.program.acting.severity
	}
	return c
}

// order is the action as it is to be performed. ok is false when its template fails.
func (a *compiledAction) order(edge *model.Edge, vars map[string]any) (o model.Order, ok bool) {
	o = model.Order{Edge: edge.ID, TenantID: edge.TenantID, Key: a.idempotencyKey(&edge.ID), Kind: string(a.Type), DeviceID: edge.Device,
		Occurred: edge.Occurred, Received: edge.Received}
	d := model.Dispatch{Kind: o.Kind, Tenant: edge.Tenant, Device: edge.Series, Rule: edge.RuntimeID(), Edge: edge.Signal.String(),
		Occurred: edge.Occurred.String(), Key: o.Key}
	switch a.Type {
	case ActionSendCommand:
		d.Payload, d.Command = a.SendCommand.Payload, &model.DispatchCommand{Command: a.SendCommand.Command}
		if age := a.maxAge(); age > 0 {
			o.Expires = edge.Occurred + model.Micros(age/time.Microsecond)
			d.Command.Expires, d.Command.DefaultAge = o.Expires.String(), a.MaxAge == nil
		}
	case ActionHTTPCall:
		o.Target = hostAndPort(a.HTTPCall.URL)
		d.HTTPCall = &model.DispatchCall{URL: a.HTTPCall.URL, Method: "POST", SecretRef: a.HTTPCall.SecretRef, TimeoutMs: a.HTTPCall.TimeoutMs}
		for _, h := range a.HTTPCall.Headers {
			d.HTTPCall.Headers = append(d.HTTPCall.Headers, [2]string{h.Name, h.Value})
		}
		d.Payload, ok = a.payload(edge, vars)
	case ActionPublish:
		o.Target = a.Publish.ConnectorRef
		d.Publish = &model.DispatchPublish{ConnectorRef: a.Publish.ConnectorRef, TimeoutMs: a.Publish.TimeoutMs}
		d.Payload, ok = a.payload(edge, vars)
	}
	if !ok && a.Type != ActionSendCommand {
		return o, false
	}
	var err error
	o.Body, err = json.Marshal(d)
	return o, err == nil
}

// hostAndPort is the destination of a URL that was checked: calls to one host and port are of one target.
func hostAndPort(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443"}[u.Scheme]
	}
	return strings.ToLower(u.Hostname()) + ":" + cmp.Or(port, "80")
}

// payload is the rendered text, or the detection where there is no template.
func (a *compiledAction) payload(edge *model.Edge, vars map[string]any) (string, bool) {
	if a.template != nil {
		return a.render(vars)
	}
	b, err := json.Marshal(edge.Detection())
	return string(b), err == nil
}

// idempotencyKey is the hash over the edge's id and the action's content, each part ended by NUL. The order of the actions is
// no part of it.
func (a *compiledAction) idempotencyKey(id *model.EdgeID) string {
	b := nulEnded(nil, strconv.FormatUint(uint64(id.Epoch), 10), strconv.FormatUint(uint64(id.Offset), 10), strconv.FormatUint(uint64(id.Index), 10),
		id.Rule, id.Key, strconv.FormatUint(uint64(id.N), 10))
	sum := sha256.Sum256(append(b, a.content...))
	return hex.EncodeToString(sum[:])
}

// contentOf is the content of an action: its type, its fields and its guard. maxAge is no part of it.
func (a *Action) contentOf() []byte {
	b := nulEnded(nil, string(a.Type))
	switch a.Type {
	case ActionRaiseAlarm:
		b = nulEnded(b, a.RaiseAlarm.AlarmKey, a.RaiseAlarm.AlarmKeyTemplate)
	case ActionSendCommand:
		b = nulEnded(b, a.SendCommand.Command, a.SendCommand.Payload)
	case ActionHTTPCall:
		h := a.HTTPCall
		b = nulEnded(b, h.URL, "POST", strconv.Itoa(len(h.Headers)))
		for _, f := range h.Headers { // sorted, with canonical names
			b = nulEnded(b, f.Name, f.Value)
		}
		b = nulEnded(b, h.BodyTemplate, h.SecretRef, strconv.Itoa(int(h.TimeoutMs)))
	case ActionPublish:
		b = nulEnded(b, a.Publish.ConnectorRef, a.Publish.PayloadTemplate, strconv.Itoa(int(a.Publish.TimeoutMs)))
	}
	if a.Guard != "" {
		b = nulEnded(b, a.Guard)
	}
	return b
}

func nulEnded(b []byte, parts ...string) []byte {
	for _, p := range parts {
		b = append(append(b, p...), 0)
	}
	return b
}

// sameAlarms reports whether two versions of a rule contribute to the same alarms with the same severity. A rule that does not
// run changes nothing; what one that did not run contributes to is not known.
func sameAlarms(old, next *rule) bool {
	if next.program == nil {
		return true
	}
	if old.program == nil {
		return false
	}
	a, b := &old.program.acting, &next.program.acting
	if !a.alarms && !b.alarms {
		return true
	}
	return a.severity == b.severity && slices.Equal(a.alarmKeys(), b.alarmKeys())
}

// alarmKeys are the keys and templates of the alarms, sorted.
func (a *acting) alarmKeys() (keys []string) {
	for _, x := range a.actions {
		if r := x.RaiseAlarm; r != nil {
			keys = append(keys, r.AlarmKey+"\x00"+r.AlarmKeyTemplate)
		}
	}
	return sortedUnique(keys...)
}

// replaceContributions gives what raised keys contribute to alarms from a version on that gives a rule another severity or
// other alarms, and leaves its body as it was.
func (e *Engine) replaceContributions(p *profile, old []*rule, moved []int32, at Position) {
	if e.acts == nil {
		return
	}
	changed := make([]int32, len(p.rules)) // -1 for a rule that changes nothing, as raised wants it
	for i, to := range moved {
		if to >= 0 && !sameAlarms(old[i], p.rules[to]) {
			changed[to] = -1
		}
	}
	for _, x := range p.raised(changed) {
		r, k := p.rules[x.rule], &x.device.keys[x.key]
		edge := p.edge(x.device, k, at, e.ending(x.device, k, at))
		c := r.contribution(model.ContributeReplace, &edge)
		vars := firing(&edge)
		for i := range r.program.acting.actions {
			a := &r.program.acting.actions[i]
			if a.Type != ActionRaiseAlarm {
				continue
			}
			if key, ok := a.alarmKey(r.stable, vars); ok {
				c.Keys = addKey(c.Keys, model.AlarmKey{Key: key, Guarded: a.guard != nil})
			}
		}
		e.acts.Contribute(c)
	}
}

// ending is an edge that no sample causes, at the device's own time, never the wall clock's.
func (e *Engine) ending(d *device, k *key, at Position) Firing {
	return Firing{Signal: model.Resolved, At: max(k.lastEdge, d.clock(d.own(at.Listening)).Time())}
}

// newActing prepares the actions of a definition; their expressions follow.
func newActing(d *Definition) acting {
	a := acting{metric: cmp.Or(d.Metric, d.When.Metric), severity: strings.ToUpper(d.Severity), actions: make([]compiledAction, len(d.Actions))}
	for i := range d.Actions {
		a.actions[i] = compiledAction{Action: &d.Actions[i], content: d.Actions[i].contentOf()}
		a.alarms = a.alarms || d.Actions[i].Type == ActionRaiseAlarm
	}
	return a
}
