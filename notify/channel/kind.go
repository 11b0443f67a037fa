package channel

import (
	"context"
	"errors"
	"slices"
	"strings"

	"weir/model"
	"weir/rules/strict"
)

// Kind describes a kind of channels: all that is to say of it is said here, and how a config is checked, what a form asks and the tables
// of the documentation follow from it. A new kind is a function that returns one, in a file of its own, and its place in kinds.
type Kind struct {
	ID          string
	Label       string
	Description string
	Fields      []strict.Field // of a config
	Secret      string         // what the secret is
	Recipients  bool           // a rule has to name recipients
	Example     string         // a config

	// check refuses fields that do not go together, and config and secret that do not.
	check func(v *strict.Values, hasSecret, enabled bool) error
	// checkSecret refuses a secret that cannot be sent. Its error does not show it.
	checkSecret func(secret string) error
	send        func(ctx context.Context, env *Env, v *strict.Values, secret string, m *Message) error
}

// Kinds returns the kinds of channels, in the order of their ids.
func Kinds() []*Kind { return []*Kind{smtpKind(), webhookKind()} }

// kindNamed returns a kind, nil for an unknown one.
func kindNamed(id string) *Kind {
	for _, k := range Kinds() {
		if k.ID == id {
			return k
		}
	}
	return nil
}

// maxConfig is the largest config in bytes.
const maxConfig = 64 << 10

func (k *Kind) parse(config string) (*strict.Values, error) {
	return strict.ReadFields(config, "config", maxConfig, k.Fields)
}

// Check refuses a channel that could not deliver, with INVALID_INPUT and the path of the field: channelType, config or config.<field>, secret.
func Check(typ, config string, hasSecret, enabled bool) error {
	k, err := mustKind(typ)
	if err != nil {
		return err
	}
	v, err := k.parse(config)
	if err == nil {
		err = k.check(v, hasSecret, enabled)
	}
	if err == nil {
		return nil
	}
	wrong, ok := errors.AsType[*strict.Error](err)
	switch {
	case !ok:
		return model.Invalid("config", "%v", err)
	case wrong.Field == "":
		return model.Invalid("config", "%s", reason(wrong))
	case wrong.Field == secretField:
		return model.Invalid(secretField, "%s", reason(wrong))
	}
	return model.Invalid("config."+wrong.Field, "%s", reason(wrong))
}

// secretField is the path of what is wrong with having or lacking a secret. No config has a field of that name.
const secretField = "secret"

// CheckSecret refuses a secret that the kind cannot send, with INVALID_INPUT about the field secret. The error does not show it.
func CheckSecret(typ, secret string) error {
	k, err := mustKind(typ)
	if err != nil {
		return err
	}
	if err := k.checkSecret(secret); err != nil {
		return model.Invalid(secretField, "%v", err)
	}
	return nil
}

func mustKind(typ string) (*Kind, error) {
	if k := kindNamed(typ); k != nil {
		return k, nil
	}
	var ids []string
	for _, k := range Kinds() {
		ids = append(ids, k.ID)
	}
	return nil, model.Invalid("channelType", "%.40q is none of %s", typ, strings.Join(ids, ", "))
}

// reason is what is wrong with a field, without its name, and what to write instead.
func reason(err *strict.Error) string {
	if advice := err.Advice(); advice != "" {
		return err.Reason + " (" + advice + ")"
	}
	return err.Reason
}

// noControls refuses texts that could break the line of a protocol.
func noControls(text string) error {
	if strings.ContainsFunc(text, isControl) {
		return errors.New("must not hold control characters or line breaks")
	}
	return nil
}

func isControl(r rune) bool {
	return r < ' ' || r >= 0x7f && r <= 0x9f || slices.Contains(lineBreaks, r)
}

// lineBreaks are those that are no control characters.
var lineBreaks = []rune{'\u2028', '\u2029'}
