// Package channel sends what notifications say to people: by mail (smtp) and to a URL (webhook).
//
//	channel.go     what is sent, over what, and Send
//	kind.go        what a kind of channels is: its fields, from which validation, documentation and forms follow
//	webhook.go     the kind webhook
//	smtp.go        the kind smtp
//	session.go     a session with an SMTP server, which is not trusted
//	mail.go        a mail as bytes: headers, encodings
//	text.go        what messages say to people
//	recipients.go  addresses of mails
//
// Nothing here retries and nothing is kept between two messages: the caller's outbox does both. A message is sent at least once, and each
// attempt carries the same key, as the Message-ID of a mail and the header X-Weir-Idempotency-Key of a webhook.
package channel

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"time"

	"weir/internal/delivery"
)

// Alarm is what a message says of one alarm. Its JSON form is the body of a webhook, and what an outbox may keep.
type Alarm struct {
	EventType        string    `json:"eventType"` // RAISED, ESCALATED: its severity; RENOTIFIED: it was not acknowledged in time
	AlarmToken       string    `json:"alarmToken"`
	AlarmKey         string    `json:"alarmKey"`
	OriginatorType   string    `json:"originatorType"`
	OriginatorID     string    `json:"originatorId"`
	Severity         string    `json:"severity"`
	State            string    `json:"state"`
	Acknowledged     bool      `json:"acknowledged"`
	RaisedTime       time.Time `json:"raisedTime"`
	OccurredTime     time.Time `json:"occurredTime"`
	MetricKey        string    `json:"metricKey,omitempty"`
	PreviousSeverity string    `json:"previousSeverity,omitempty"`
	Value            *float64  `json:"value,omitempty"`
	Message          string    `json:"message,omitempty"`

	// Of RENOTIFIED; of other events they are not sent.
	Escalation        int       `json:"escalation,omitempty"` // level, from 1 on
	NotifyCount       int       `json:"notifyCount,omitempty"`
	FirstNotifiedTime time.Time `json:"firstNotifiedTime,omitzero"`
	LastNotifiedTime  time.Time `json:"lastNotifiedTime,omitzero"`

	// What people call it, where it is known.
	OriginatorName  string `json:"originatorName,omitempty"`
	RuleName        string `json:"ruleName,omitempty"`
	RuleDescription string `json:"ruleDescription,omitempty"` // what to do
	Tenant          string `json:"tenant,omitempty"`
	Link            string `json:"link,omitempty"` // to the alarm; "" without a base_url
}

// Events of an Alarm.
const (
	Raised     = "RAISED"
	Escalated  = "ESCALATED"
	Renotified = "RENOTIFIED"
)

// MessageKind is what a message is about.
type MessageKind string

// The kinds of messages.
const (
	Single  MessageKind = "single"   // one alarm
	Digest  MessageKind = "digest"   // several, gathered
	Test    MessageKind = "test"     // marked, on demand
	MuteEnd MessageKind = "mute_end" // what a mute has held back and is still active
)

// MaxAlarms is the maximum number of alarms that a message lists.
const MaxAlarms = 50

// Message is what is delivered in one go.
type Message struct {
	Kind   MessageKind
	Alarms []Alarm // of Single one; of Digest and MuteEnd the first MaxAlarms, the gravest first; further ones are left out
	// Counts has the number of alarms by severity, of Digest and MuteEnd. nil: those of Alarms.
	Counts     map[string]int
	Recipients []string // as ParseRecipients returned them
	Key        string   // idempotency key: the same at every attempt, of no other message
	Tenant     string   // of Test; elsewhere that of the alarms is shown
	Note       string   // a sentence of the caller: of Test which channel, of MuteEnd which mute; optional
}

// Channel is a channel as it is stored.
type Channel struct{ Type, Config, Secret string }

// Env is what sending needs of the instance.
type Env struct {
	// Dial makes every connection: that of the destination guard, for the tenant.
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	Roots    *x509.CertPool // certificate authorities; nil: those of the system
	Instance string         // id of the instance
	BaseURL  string         // optional: its host is how Weir introduces itself to a mail server
	Now      func() time.Time
}

// maxTime bounds an attempt where the context does not.
const maxTime = 30 * time.Second

// Failure is a message that was not taken.
type Failure = delivery.Failure

// The outcomes of failures.
const (
	Retry       = delivery.Retry
	Unreachable = delivery.Unreachable
	Invalid     = delivery.Invalid
	Unsupported = delivery.Unsupported
	Blocked     = delivery.Blocked
)

// Undelivered is the failure of a message that some recipients have got. A further attempt is for the others alone.
type Undelivered struct {
	Failure    *delivery.Failure
	Recipients []string // who have not got it, as they stood in the message
}

func (u *Undelivered) Error() string { return u.Failure.Text }

// Unwrap returns the failure.
func (u *Undelivered) Unwrap() error { return u.Failure }

// Send delivers a message; nil: it was taken. The error is a *delivery.Failure, or an *Undelivered that wraps one. Its text holds neither a secret nor what was
// found at the destination.
func Send(ctx context.Context, env Env, c Channel, m Message) error {
	k := kindNamed(c.Type)
	if k == nil {
		return delivery.Fail(delivery.Unsupported, "nothing delivers to channels of the type %.40q", c.Type)
	}
	v, err := k.parse(c.Config)
	if err != nil {
		return &delivery.Failure{Outcome: delivery.Invalid, Text: "the config of the channel is not valid: " + err.Error()}
	}
	if m.Kind == Single && len(m.Alarms) != 1 {
		return delivery.Fail(delivery.Invalid, "the message names no alarm")
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	err = k.send(ctx, &env, v, c.Secret, m.normal())
	if _, ok := errors.AsType[*Undelivered](err); ok || err == nil {
		return err
	}
	return delivery.Of(err)
}

// normal returns the message with what does not belong into its kind left out, and all times in UTC.
func (m Message) normal() *Message {
	alarms := make([]Alarm, 0, min(len(m.Alarms), MaxAlarms))
	for i, a := range m.Alarms {
		if m.Counts == nil && i == 0 {
			m.Counts = map[string]int{}
			for _, a := range m.Alarms {
				m.Counts[a.Severity]++
			}
		}
		if len(alarms) < MaxAlarms {
			alarms = append(alarms, a.normal())
		}
	}
	m.Alarms = alarms
	return &m
}

func (a Alarm) normal() Alarm {
	if a.EventType != Renotified {
		a.Escalation, a.NotifyCount, a.FirstNotifiedTime, a.LastNotifiedTime = 0, 0, time.Time{}, time.Time{}
	}
	if a.Value != nil && *a.Value-*a.Value != 0 { // neither JSON nor people can read NaN and infinities
		a.Value = nil
	}
	for _, t := range []*time.Time{&a.RaisedTime, &a.OccurredTime, &a.FirstNotifiedTime, &a.LastNotifiedTime} {
		*t = t.UTC().Truncate(time.Microsecond)
	}
	return a
}

// tenant is whose message it is, "" when no part says it.
func (m *Message) tenant() string {
	if len(m.Alarms) > 0 && m.Alarms[0].Tenant != "" {
		return m.Alarms[0].Tenant
	}
	return m.Tenant
}

// total is the number of alarms that the message is about, those included that it does not list.
func (m *Message) total() (n int) {
	for _, count := range m.Counts {
		n += count
	}
	return max(n, len(m.Alarms))
}
