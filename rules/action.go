package rules

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/model"
	"weir/rules/strict"
)

// ActionType is what a rule does on a raised edge.
type ActionType string

// The action types.
const (
	ActionRaiseAlarm  ActionType = "raiseAlarm"
	ActionSendCommand ActionType = "sendCommand"
	ActionHTTPCall    ActionType = "httpCall"
	ActionPublish     ActionType = "publish"
)

var actionTypes = [...]ActionType{ActionRaiseAlarm, ActionSendCommand, ActionHTTPCall, ActionPublish}

// AtSite reports whether an action of a rule that is judged at a site is performed there. The others are performed once, by the Weir above.
func (t ActionType) AtSite() bool { return t == ActionRaiseAlarm || t == ActionSendCommand }

// ActionTypes are the types of actions that a definition may have.
func ActionTypes() []ActionType { return actionTypes[:] }

// Performed are the action types that Weir performs, wherever a rule is compiled.
func Performed() []ActionType { return ActionTypes() }

// MaxActions is the maximum number of actions of a rule.
const MaxActions = 8

// maxTimeoutMs is the longest timeout of a call to another system.
const maxTimeoutMs = 20000

// Action is one action of a rule. Exactly the variant that Type names is set.
type Action struct {
	Type        ActionType
	RaiseAlarm  *RaiseAlarm
	SendCommand *SendCommand
	HTTPCall    *HTTPCall
	Publish     *Publish
	Guard       string         // CEL, "" when the action always happens
	MaxAge      *time.Duration // nil: the type's default; 0: none
}

// RaiseAlarm raises an alarm and clears it on resolve. Without key and template the key is the rule's stable id.
type RaiseAlarm struct {
	AlarmKey         string
	AlarmKeyTemplate string // CEL over series
}

// SendCommand sends a command to the device. Payload is the text of a JSON object or "".
type SendCommand struct {
	Command string
	Payload string
}

// HTTPCall posts to a URL. Headers are sorted and have canonical names.
type HTTPCall struct {
	URL          string
	Headers      []Header
	BodyTemplate string // CEL; "" sends the detection event
	SecretRef    string // http/<token>
	TimeoutMs    int32
}

// Header is one header field of a call.
type Header struct{ Name, Value string }

// Publish sends a payload to a connector.
type Publish struct {
	ConnectorRef    string
	PayloadTemplate string // CEL; "" sends the detection event
	TimeoutMs       int32
}

// has reports whether the variant of a type is set.
func (a *Action) has(t ActionType) bool {
	switch t {
	case ActionRaiseAlarm:
		return a.RaiseAlarm != nil
	case ActionSendCommand:
		return a.SendCommand != nil
	case ActionHTTPCall:
		return a.HTTPCall != nil
	case ActionPublish:
		return a.Publish != nil
	}
	return false
}

// Check checks the action by itself, apart from its expressions. path is where it stands.
func (a *Action) Check(path string) *Error {
	if a.Type == "" {
		return refuse(strict.Join(path, "type"), "required")
	}
	for _, t := range actionTypes {
		switch {
		case t == a.Type && !a.has(t):
			return refuse(strict.Join(path, string(t)), "required")
		case t != a.Type && a.has(t):
			return refuse(strict.Join(path, string(t)), "does not belong to an action of type %s", a.Type)
		}
	}
	path = strict.Join(path, string(a.Type))
	switch a.Type {
	case ActionRaiseAlarm:
		return a.RaiseAlarm.checkForm(path)
	case ActionSendCommand:
		return a.SendCommand.checkForm(path)
	case ActionHTTPCall:
		return a.HTTPCall.checkForm(path)
	default:
		return a.Publish.checkForm(path)
	}
}

func (r *RaiseAlarm) checkForm(path string) *Error {
	if r.AlarmKey != "" && r.AlarmKeyTemplate != "" {
		return refuse(strict.Join(path, "alarmKeyTemplate"), "cannot stand together with alarmKey")
	}
	return nil
}

func (s *SendCommand) checkForm(path string) *Error {
	if s.Command == "" {
		return refuse(strict.Join(path, "command"), "required")
	}
	if s.Payload != "" && !isJSONObject(s.Payload) {
		return refuse(strict.Join(path, "payload"), "must be a string that holds a JSON object")
	}
	return nil
}

func (h *HTTPCall) checkForm(path string) *Error {
	if err := checkURL(strict.Join(path, "url"), h.URL); err != nil {
		return err
	}
	for i, hd := range h.Headers {
		if err := checkHeader(strict.Join(path, "headers"), hd); err != nil {
			return err
		}
		if i > 0 && h.Headers[i-1].Name == hd.Name {
			return refuse(strict.Join(path, "headers"), "%s is given twice", hd.Name)
		}
	}
	if ref := h.SecretRef; ref != "" {
		if token, ok := strings.CutPrefix(ref, "http/"); !ok || !model.ValidToken(token) {
			return refuse(strict.Join(path, "secretRef"), "%s must have the form http/<token>", strict.Quote(ref))
		}
	}
	return nil
}

func (p *Publish) checkForm(path string) *Error {
	if p.ConnectorRef == "" {
		return refuse(strict.Join(path, "connectorRef"), "required")
	}
	return nil
}

func checkURL(field, s string) *Error {
	if s == "" {
		return refuse(field, "required")
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return refuse(field, "%s is no URL", strict.Quote(s))
	case u.Scheme != "http" && u.Scheme != "https":
		return refuse(field, "the scheme must be http or https")
	case u.Hostname() == "":
		return refuse(field, "a host is required")
	case u.User != nil:
		return refuse(field, "user information is not allowed, use secretRef")
	case u.Fragment != "" || strings.HasSuffix(s, "#"):
		return refuse(field, "a fragment is not allowed")
	}
	return nil
}

// reservedHeaders are set by the delivery, never by a rule.
var reservedHeaders = [...]string{"Authorization", "Host", "Content-Length", "Transfer-Encoding", "Connection", "Te",
	"Trailer", "Upgrade", "Expect", "Keep-Alive"}

// reservedPrefixes are those of headers that only the delivery sets.
var reservedPrefixes = [...]string{"X-Weir-", "Proxy-"}

func checkHeader(field string, h Header) *Error {
	if !validHeaderName(h.Name) {
		return refuse(field, "%s is no header name", strict.Quote(h.Name))
	}
	if slices.Contains(reservedHeaders[:], h.Name) {
		return refuse(field, "%s is reserved", h.Name)
	}
	for _, p := range reservedPrefixes {
		if strings.HasPrefix(h.Name, p) {
			return refuse(field, "%s is reserved", h.Name)
		}
	}
	for i := range len(h.Value) {
		if c := h.Value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return refuse(field, "the value of %s holds a control character", h.Name)
		}
	}
	return nil
}

// validHeaderName reports whether s is a token of RFC 9110, section 5.6.2.
func validHeaderName(s string) bool {
	for i := range len(s) {
		if !isTchar(s[i]) {
			return false
		}
	}
	return s != ""
}

func isTchar(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// canonicalHeader writes a header name with a capital after each hyphen. Text that is no header name stays as it is.
func canonicalHeader(s string) string {
	if !validHeaderName(s) {
		return s
	}
	b := []byte(strings.ToLower(s))
	for i, c := range b {
		if c >= 'a' && c <= 'z' && (i == 0 || b[i-1] == '-') {
			b[i] = c - ('a' - 'A')
		}
	}
	return string(b)
}

func isJSONObject(s string) bool {
	return json.Valid([]byte(s)) && strings.HasPrefix(strings.TrimLeft(s, " \t\r\n"), "{")
}

// compileActions checks and compiles the expressions of the actions.
func (c *Compiler) compileActions(p *Program) ([]Warning, error) {
	var warnings []Warning
	p.acting = newActing(p.def)
	for i := range p.acting.actions {
		a := &p.acting.actions[i]
		if a.Type == ActionRaiseAlarm && p.uses.Keys != ByDevice {
			return nil, refuse(actionPath(i), "alarms are raised for devices: a rule of %s has no state for each device alone", p.uses.As)
		}
		readsValue := false
		for _, x := range a.expressions(c.envs, actionPath(i)) {
			if x.text == "" {
				continue
			}
			checked, cost, err := x.env.check(x.text, c.limits.MaxCost)
			if err != nil {
				return nil, refusedAt(x.field, err)
			}
			if err := a.prepare(&x, checked, cost); err != nil {
				return nil, err
			}
			r := readsOf(checked.NativeRep().Expr())
			readsValue = readsValue || r.vars[varValue] && !r.vars[varHasValue]
		}
		if readsValue && !p.uses.Value {
			warnings = append(warnings, warn(WarnValueNeverSet,
				"action "+strconv.Itoa(i)+" reads value, but no detection of this rule has one: it is always 0", strconv.Itoa(i)))
		}
	}
	return warnings, nil
}

type expression struct {
	field, text string
	env         *environment
	guards      bool // it is the action's guard
}

// expressions lists the expressions of an action in the order in which they are checked.
func (a *Action) expressions(envs *environments, path string) []expression {
	var xs []expression
	at := strict.Join(path, string(a.Type))
	switch {
	case a.RaiseAlarm != nil:
		xs = append(xs, expression{strict.Join(at, "alarmKeyTemplate"), a.RaiseAlarm.AlarmKeyTemplate, &envs.alarmKey, false})
	case a.HTTPCall != nil:
		xs = append(xs, expression{strict.Join(at, "bodyTemplate"), a.HTTPCall.BodyTemplate, &envs.template, false})
	case a.Publish != nil:
		xs = append(xs, expression{strict.Join(at, "payloadTemplate"), a.Publish.PayloadTemplate, &envs.template, false})
	}
	return append(xs, expression{strict.Join(path, "guard"), a.Guard, &envs.guard, true})
}
