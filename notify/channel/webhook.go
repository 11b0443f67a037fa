package channel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/textproto"

	"weir/internal/delivery"
	"weir/internal/guard"
	"weir/rules/strict"
)

// How a webhook is sent its secret.
const (
	authNone   = "none"
	authBearer = "bearer"
	authHeader = "header"
)

func webhookKind() *Kind {
	return &Kind{ID: "webhook", Label: "Webhook", Description: "Sends a request with a JSON body to a URL.",
		Fields: []strict.Field{
			{Name: "url", Kind: strict.TextField, Required: true, Max: 2048, Check: checkWebhookURL, Doc: "URL of the receiver, http or https, without user name and fragment."},
			{Name: "method", Kind: strict.TextField, Default: `"POST"`, Max: 8, OneOf: []string{"POST", "PUT", "PATCH"}, Doc: "Method of the request."},
			{Name: "headers", Kind: strict.MapField, Max: 4096, CheckPair: delivery.CheckHeader, Doc: "Headers by their names. Those that Weir or the protocol sets are reserved."},
			{Name: "auth", Kind: strict.TextField, Max: 16, OneOf: []string{authNone, authBearer, authHeader},
				Doc: "How the secret is sent: `none`; `bearer`: in `Authorization: Bearer`; `header`: as `authHeader` and `authScheme` say. Left out it is `header` when one of these is given, `bearer` when there is a secret, else `none`."},
			{Name: "authHeader", Kind: strict.TextField, Default: `"Authorization"`, Max: 256, Check: checkAuthHeader, Doc: "Header that holds the secret. Reserved names are refused, apart from `Authorization`."},
			{Name: "authScheme", Kind: strict.TextField, Default: `"Bearer"`, Max: 64, Check: delivery.CheckHeaderSecret, Doc: "Word before the secret; an empty one sends the secret alone."},
		},
		Secret:      "the token that is sent as `auth` says",
		Example:     `{"url": "https://hooks.example.com/weir", "headers": {"X-Site": "north"}, "auth": "bearer"}`,
		check:       checkWebhook,
		checkSecret: delivery.CheckHeaderSecret,
		send:        sendWebhook,
	}
}

func checkWebhookURL(text string) error {
	_, err := guard.CheckURL(text, "https", "http")
	return err
}

func checkAuthHeader(name string) error {
	if textproto.CanonicalMIMEHeaderKey(name) == "Authorization" {
		return nil
	}
	_, err := delivery.CheckHeader(name, "")
	return err
}

// authOf is how the secret is sent.
func authOf(v *strict.Values, hasSecret bool) string {
	switch {
	case v.Texts["auth"] != "":
		return v.Texts["auth"]
	case v.Given["authHeader"] || v.Given["authScheme"]:
		return authHeader
	case hasSecret:
		return authBearer
	}
	return authNone
}

func checkWebhook(v *strict.Values, hasSecret, _ bool) error {
	auth := authOf(v, hasSecret)
	if v.Given["auth"] && v.Texts["auth"] == "" {
		return strict.Refuse("auth", "must not be empty")
	}
	for _, field := range []string{"authHeader", "authScheme"} {
		if v.Given[field] && auth != authHeader {
			return strict.Refuse(field, "belongs to auth %q", authHeader)
		}
	}
	name := textproto.CanonicalMIMEHeaderKey(v.Texts["authHeader"])
	if _, twice := v.Maps["headers"][name]; twice && auth == authHeader {
		return strict.Refuse("authHeader", "is one of headers, too")
	}
	switch {
	case hasSecret && auth == authNone:
		return strict.Refuse(secretField, "is never sent with auth %q", authNone)
	case !hasSecret && auth != authNone:
		return strict.Refuse(secretField, "is required with auth %q", auth)
	}
	return nil
}

func sendWebhook(ctx context.Context, env *Env, v *strict.Values, secret string, m *Message) error {
	if err := checkWebhook(v, secret != "", true); err != nil {
		return delivery.Fail(delivery.Invalid, "the config of the channel is not valid: %v", err)
	}
	if err := delivery.CheckHeaderSecret(secret); err != nil {
		return delivery.Fail(delivery.Invalid, "the secret of the channel %v", err)
	}
	body, err := webhookBody(m, env)
	if err != nil {
		return delivery.Fail(delivery.Invalid, "the message cannot be written as JSON")
	}
	req, err := http.NewRequestWithContext(ctx, v.Texts["method"], v.Texts["url"], bytes.NewReader(body))
	if err != nil {
		return delivery.Fail(delivery.Invalid, "the request cannot be made of the config of the channel")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "weir")
	for name, value := range v.Maps["headers"] {
		req.Header.Set(name, value)
	}
	req.Header.Set(delivery.KeyHeader, m.Key)
	switch authOf(v, secret != "") {
	case authBearer:
		req.Header.Set("Authorization", "Bearer "+secret)
	case authHeader:
		if scheme := v.Texts["authScheme"]; scheme != "" {
			secret = scheme + " " + secret
		}
		req.Header.Set(v.Texts["authHeader"], secret)
	}
	resp, err := guard.TransportOver(env.Dial, guard.ClientTLS(env.Roots)).RoundTrip(req)
	if err != nil {
		return err
	}
	return delivery.Judge(resp, secret != "", env.Now())
}

// body is the body of a webhook that is about one alarm.
type body struct {
	Text string `json:"text"`
	Alarm
	Recipients []string `json:"recipients,omitempty"`
}

// digestBody is the body of one that is about several.
type digestBody struct {
	Text       string         `json:"text"`
	EventType  string         `json:"eventType"`
	Counts     map[string]int `json:"counts"`
	Total      int            `json:"total"`
	Alarms     []body         `json:"alarms"`
	Note       string         `json:"note,omitempty"`
	Tenant     string         `json:"tenant,omitempty"`
	Recipients []string       `json:"recipients,omitempty"`
}

// testBody is the body of one on demand.
type testBody struct {
	Text       string   `json:"text"`
	EventType  string   `json:"eventType"`
	Test       bool     `json:"test"`
	Tenant     string   `json:"tenant"`
	Instance   string   `json:"instance"`
	Recipients []string `json:"recipients,omitempty"`
}

// The events of messages that are about no single alarm.
const (
	eventDigest  = "DIGEST"
	eventMuteEnd = "MUTE_ENDED"
	eventTest    = "TEST"
)

func webhookBody(m *Message, env *Env) ([]byte, error) {
	var doc any
	switch m.Kind {
	case Single:
		doc = body{Text: m.subject(), Alarm: m.Alarms[0], Recipients: m.Recipients}
	case Digest, MuteEnd:
		d := digestBody{Text: m.summary(), EventType: eventDigest, Counts: m.Counts, Total: m.total(), Alarms: []body{}, Note: m.Note, Tenant: m.tenant(), Recipients: m.Recipients}
		if m.Kind == MuteEnd {
			d.EventType = eventMuteEnd
		}
		if d.Counts == nil {
			d.Counts = map[string]int{}
		}
		for _, a := range m.Alarms {
			one := Message{Kind: Single, Alarms: []Alarm{a}}
			d.Alarms = append(d.Alarms, body{Text: one.subject(), Alarm: a})
		}
		doc = d
	case Test:
		doc = testBody{Text: m.summary(), EventType: eventTest, Test: true, Tenant: m.Tenant, Instance: env.Instance, Recipients: m.Recipients}
	default:
		return nil, errors.New("channel: unknown kind of message")
	}
	return json.Marshal(doc)
}
