package rules

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"weir/rules/strict"
)

// bodyVersion is the version of what BodyHash covers. A change of it drops the state of every rule.
const bodyVersion = 1

// BodyHash identifies what a rule's state belongs to: the same stable id with another hash starts without state.
type BodyHash [16]byte

// wireDefinition is a definition as it is written: the fields in the order of the documentation, absent ones left out,
// the condition always there.
type wireDefinition struct {
	Name        string       `json:"name,omitempty"`
	Description string       `json:"description,omitempty"`
	Type        Type         `json:"type"`
	Severity    string       `json:"severity,omitempty"`
	Actions     []wireAction `json:"actions,omitempty"`
	wireBody
}

// wireBody are the fields that make a rule's body, apart from its type and its group scope.
type wireBody struct {
	When       wireCondition `json:"when"`
	Metric     string        `json:"metric,omitempty"`
	Window     string        `json:"window,omitempty"`
	Hold       string        `json:"hold,omitempty"`
	Timeout    string        `json:"timeout,omitempty"`
	Gap        string        `json:"gap,omitempty"`
	Count      int32         `json:"count,omitempty"`
	Rate       bool          `json:"rate,omitempty"`
	WindowMode string        `json:"windowMode,omitempty"`
	Agg        string        `json:"agg,omitempty"`
	Op         Op            `json:"op,omitempty"`
	Threshold  *float64      `json:"threshold,omitempty"`
	Clear      *float64      `json:"clear,omitempty"`
	AnchorType string        `json:"anchorType,omitempty"`
	MemberCap  int32         `json:"memberCap,omitempty"`
	Lateness   string        `json:"lateness,omitempty"`
}

type wireCondition struct {
	Metric        string   `json:"metric,omitempty"`
	Op            Op       `json:"op,omitempty"`
	Threshold     *float64 `json:"threshold,omitempty"`
	Clear         *float64 `json:"clear,omitempty"`
	ThresholdAttr string   `json:"thresholdAttr,omitempty"`
	CEL           string   `json:"cel,omitempty"`
}

type wireAction struct {
	Type        ActionType       `json:"type"`
	RaiseAlarm  *wireRaiseAlarm  `json:"raiseAlarm,omitempty"`
	SendCommand *wireSendCommand `json:"sendCommand,omitempty"`
	HTTPCall    *wireHTTPCall    `json:"httpCall,omitempty"`
	Publish     *wirePublish     `json:"publish,omitempty"`
	Guard       string           `json:"guard,omitempty"`
	MaxAge      string           `json:"maxAge,omitempty"`
}

type wireRaiseAlarm struct {
	AlarmKey         string `json:"alarmKey,omitempty"`
	AlarmKeyTemplate string `json:"alarmKeyTemplate,omitempty"`
}

type wireSendCommand struct {
	Command string `json:"command"`
	Payload string `json:"payload,omitempty"`
}

type wireHTTPCall struct {
	URL          string            `json:"url"`
	Headers      map[string]string `json:"headers,omitempty"`
	BodyTemplate string            `json:"bodyTemplate,omitempty"`
	SecretRef    string            `json:"secretRef,omitempty"`
	TimeoutMs    int32             `json:"timeoutMs,omitempty"`
}

type wirePublish struct {
	ConnectorRef    string `json:"connectorRef"`
	PayloadTemplate string `json:"payloadTemplate,omitempty"`
	TimeoutMs       int32  `json:"timeoutMs,omitempty"`
}

// Canonical writes the definition as JSON in its canonical form: known order, no white space, absent fields left out,
// durations as FormatDuration writes them. Decode of the result gives the same definition.
func (d *Definition) Canonical() []byte {
	w := wireDefinition{Name: d.Name, Description: d.Description, Type: d.Type, Severity: d.Severity, wireBody: d.body()}
	for i := range d.Actions {
		w.Actions = append(w.Actions, d.Actions[i].wire())
	}
	return encode(w)
}

// BodyHash is the hash over the fields whose change makes another rule of it, and over the group scope (token and
// version of the group, "" and 0 without one). Name, description, severity and actions are no part of it.
func (d *Definition) BodyHash(group string, groupVersion int) BodyHash {
	body := d.body()
	body.MemberCap = d.effectiveMemberCap()
	return hashBody(string(encode(struct {
		Type Type `json:"type"`
		wireBody
		Group        string `json:"group,omitempty"`
		GroupVersion int    `json:"groupVersion,omitempty"`
	}{d.Type, body, group, groupVersion})))
}

func hashBody(text string) BodyHash {
	sum := sha256.Sum256([]byte(strconv.Itoa(bodyVersion) + "\x00" + text))
	return BodyHash(sum[:16])
}

func (d *Definition) body() wireBody {
	return wireBody{
		When:   d.When.wire(),
		Metric: d.Metric,
		Window: formatSet(d.Window), Hold: formatSet(d.Hold), Timeout: formatSet(d.Timeout), Gap: formatSet(d.Gap),
		Count: d.Count, Rate: d.Rate, WindowMode: d.WindowMode, Agg: d.Agg, Op: d.Op, Threshold: strict.Unsigned(d.Threshold), Clear: strict.Unsigned(d.Clear),
		AnchorType: d.AnchorType, MemberCap: d.MemberCap, Lateness: formatPointer(d.Lateness),
	}
}

func (c *Condition) wire() wireCondition {
	w := wireCondition(*c)
	w.Threshold, w.Clear = strict.Unsigned(w.Threshold), strict.Unsigned(w.Clear)
	return w
}

func (a *Action) wire() wireAction {
	w := wireAction{Type: a.Type, Guard: a.Guard, MaxAge: formatPointer(a.MaxAge)}
	switch {
	case a.RaiseAlarm != nil:
		w.RaiseAlarm = new(wireRaiseAlarm(*a.RaiseAlarm))
	case a.SendCommand != nil:
		w.SendCommand = new(wireSendCommand(*a.SendCommand))
	case a.HTTPCall != nil:
		h := a.HTTPCall
		w.HTTPCall = &wireHTTPCall{h.URL, headerMap(h.Headers), h.BodyTemplate, h.SecretRef, h.TimeoutMs}
	case a.Publish != nil:
		w.Publish = new(wirePublish(*a.Publish))
	}
	return w
}

func headerMap(hs []Header) map[string]string {
	m := make(map[string]string, len(hs))
	for _, h := range hs {
		m[h.Name] = h.Value
	}
	return m
}

// Canonical writes the action as JSON in its canonical form, as it stands in that of a definition.
func (a *Action) Canonical() []byte { return encode(a.wire()) }

// content is the canonical text of the action without its age limit: what makes two actions the same.
func (a *Action) content() string {
	w := a.wire()
	w.MaxAge = ""
	return string(encode(w))
}

// encode marshals v without escaping what HTML would need. v is made of strings, numbers and such, so it cannot fail.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("rules: encode: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func formatSet(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return FormatDuration(d)
}

func formatPointer(d *time.Duration) string {
	if d == nil {
		return ""
	}
	return FormatDuration(*d)
}

// FormatDuration writes d as a Go duration string without the zero parts at its end: 10m, not 10m0s. It is the
// canonical form of durations in a definition.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-len("0s")]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-len("0m")]
	}
	return s
}
