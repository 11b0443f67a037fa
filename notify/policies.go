package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"weir/model"
	"weir/notify/channel"
	"weir/rules/strict"
	"weir/store"
	"weir/store/entity"
)

// Policy says who is notified of which alarms.
type Policy struct {
	store.Row
	Token          string  `store:"token,token" gql:"token"`
	Name           *string `store:"name,clear,max=128" gql:"name"`
	Description    *string `store:"description,clear,max=1024" gql:"description"`
	DeviceType     *string `store:"device_type,immutable,filter" gql:"deviceTypeToken"` // always nil: a policy is for the whole tenant
	Throttle       *int64  `store:"throttle_seconds,clear,min=0,max=31536000" gql:"throttleSeconds"`
	EscalateAfter  *int64  `store:"escalate_after_seconds,clear,min=0,max=31536000" gql:"escalateAfterSeconds"`
	MaxEscalations *int64  `store:"max_escalations,clear,min=0,max=1000" gql:"maxEscalations"`
	Enabled        bool    `store:"enabled,required,filter" gql:"enabled"`
	Rules          string  `store:"rules,required,json,max=262144" gql:"rules"` // as requests give them, in their normal form
	Metadata       *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
	Bound          string  `store:"bound"` // see bound
}

// ruleRequest is a rule as requests and Policy.Rules have it.
type ruleRequest struct {
	Severity   string  `json:"severity"`
	Channel    string  `json:"channelToken"`
	Recipients *string `json:"recipients,omitempty"` // a JSON array of texts
}

// boundRule is a rule with its own id and that of its channel, which both stay when the channel is renamed.
type boundRule struct {
	ID       int64  `json:"id"`
	Severity string `json:"severity"`
	// Channel is the row id of the channel. The row may be gone: then nothing is delivered.
	Channel    int64   `json:"channel"`
	Token      string  `json:"token"` // of the channel, as it is now
	Recipients *string `json:"recipients,omitempty"`
}

func (r *boundRule) recipients() string {
	if r.Recipients == nil {
		return ""
	}
	return *r.Recipients
}

// bound is the form of Policy.Bound.
type bound struct {
	Next  int64       `json:"next"` // id of the next rule
	Rules []boundRule `json:"rules"`
}

// Bounds of a policy.
const (
	maxRules      = 100
	maxRecipients = 64 << 10 // bytes of the recipients of a rule
)

// anySeverity is the severity of rules for alarms of each.
const anySeverity = "*"

func (n *Notify) policies(b entity.Base) *entity.Kind[Policy] {
	return entity.New(b, entity.Desc[Policy]{
		Kind: "notification policy", Type: "NotificationPolicy", Plural: "notificationPolicies", Area: Area, Table: "notification_policies",
		Read: entity.Needs(model.NotifyRead), Write: entity.Needs(model.NotifyWrite),
		Prepare: preparePolicy,
		Valid:   (*Policy).valid,
		Check: func(_ store.Tx, row *Policy, changed store.Changed) error {
			if changed.Has("rules") && !changed.Has("bound") {
				row.Bound = "" // in memory alone: policyChanged binds them
			}
			return nil
		},
		Ceiling: &entity.Ceiling{
			Key:  "limits.notification_policies_per_tenant",
			Rows: func() int64 { return n.limits.PoliciesPerTenant },
		},
		Changed: n.policyChanged,
	})
}

// preparePolicy makes an empty list of rules that are null.
func preparePolicy(_ context.Context, _ *model.Principal, _ string, p store.Patch, create bool) error {
	if rules, named := p["rules"]; named && rules == nil && !create {
		p["rules"] = "[]"
	}
	return nil
}

func (p *Policy) valid() error {
	if p.DeviceType != nil && *p.DeviceType != "" {
		return model.Invalid("deviceTypeToken", "policies are for the whole tenant: leave it out")
	}
	p.DeviceType = nil
	rules, err := readRules(p.Rules)
	if err != nil {
		return err
	}
	text, err := json.Marshal(rules)
	p.Rules = string(text)
	return err
}

// readRules reads the rules of a request.
func readRules(text string) ([]ruleRequest, error) {
	rules := []ruleRequest{}
	d := strict.New([]byte(text))
	read := d.List(maxRules, "rules", func(_ int, path string) *strict.Error {
		r := ruleRequest{}
		set := map[string]strict.Setter{"severity": d.Text(&r.Severity), "channelToken": d.Text(&r.Channel), "recipients": func(path string) *strict.Error {
			var raw []byte
			err := d.Raw(&raw)(path)
			if err == nil && string(raw) != "null" && json.Unmarshal(raw, &r.Recipients) != nil {
				err = strict.Refuse(path, "must be a text that holds a JSON array of texts")
			}
			return err
		}}
		err := d.Object(path, set)
		rules = append(rules, r)
		return err
	})
	d.Note(read("rules"))
	if faults := d.Faults(); len(faults) > 0 {
		reason := faults[0].Reason
		if advice := faults[0].Advice(); advice != "" {
			reason += " (" + advice + ")"
		}
		return nil, model.Invalid(faults[0].Field, "%s", reason)
	}
	for i := range rules {
		if err := rules[i].check(fmt.Sprintf("rules[%d]", i)); err != nil {
			return nil, err
		}
	}
	return rules, nil
}

func (r *ruleRequest) check(path string) error {
	if r.Severity != anySeverity && !slices.Contains(model.AlarmSeverities(), r.Severity) {
		return model.Invalid(path+".severity", "%.40q is none of %s, %s", r.Severity, strings.Join(model.AlarmSeverities(), ", "), anySeverity)
	}
	if err := model.CheckToken(path+".channelToken", r.Channel); err != nil {
		return err
	}
	if r.Recipients != nil && len(*r.Recipients) > maxRecipients {
		return model.OverLimit(path+".recipients", "has more than %d bytes", maxRecipients)
	}
	return nil
}

// rules reads the rules as they are bound.
func (p *Policy) rules() (*bound, error) {
	b := &bound{Next: 1}
	if p.Bound == "" {
		return b, nil
	}
	if err := json.Unmarshal([]byte(p.Bound), b); err != nil {
		return nil, fmt.Errorf("%w: rules of the notification policy %d: %w", store.ErrDamaged, p.ID, err)
	}
	return b, nil
}

// bind sets the rules, in both of their forms.
func (p *Policy) bind(b *bound) error {
	rules := []ruleRequest{}
	for _, r := range b.Rules {
		rules = append(rules, ruleRequest{r.Severity, r.Token, r.Recipients})
	}
	text, err := json.Marshal(rules)
	if err != nil {
		return err
	}
	p.Rules = string(text)
	text, err = json.Marshal(b)
	p.Bound = string(text)
	return err
}

// policyChanged binds rules that a change has set to their channels.
func (n *Notify) policyChanged(c *store.Change, old, row *Policy) error {
	if row == nil {
		n.forget(c, old.TenantID)
		return nil
	}
	n.forget(c, row.TenantID)
	if row.Bound != "" {
		return nil
	}
	rules, err := readRules(row.Rules)
	if err != nil {
		return err
	}
	b := &bound{Next: 1}
	if old != nil {
		if b, err = old.rules(); err != nil {
			return err
		}
	}
	b.Rules = []boundRule{}
	for i, r := range rules {
		path := fmt.Sprintf("rules[%d]", i)
		to, err := n.Channels.Table.Get(c, row.TenantID, r.Channel)
		if err != nil {
			return err
		}
		if to == nil {
			return model.Invalid(path+".channelToken", "there is no notification channel %.80q", r.Channel)
		}
		rule := boundRule{ID: b.Next, Severity: r.Severity, Channel: to.ID, Token: to.Token, Recipients: r.Recipients}
		if _, err := channel.ParseRecipients(to.Type, rule.recipients()); err != nil {
			return below(path, err)
		}
		b.Rules, b.Next = append(b.Rules, rule), b.Next+1
	}
	if err := row.bind(b); err != nil {
		return err
	}
	return n.Policies.Table.Save(c, row, "bound")
}

// RuleView is a rule as it is shown. ID is unique among all rules.
type RuleView struct {
	ID           string
	Severity     string
	ChannelID    int64
	ChannelToken string // as it is now, or was when the channel was deleted
	Recipients   *string
}

// RulesOf returns the rules of a policy in their order.
func RulesOf(p *Policy) ([]RuleView, error) {
	b, err := p.rules()
	if err != nil {
		return nil, err
	}
	views := []RuleView{}
	for _, r := range b.Rules {
		views = append(views, RuleView{fmt.Sprintf("%d-%d", p.ID, r.ID), r.Severity, r.Channel, r.Token, r.Recipients})
	}
	return views, nil
}
