package connectors

import (
	"context"
	"errors"
	"slices"
	"strings"

	"weir/internal/build"
	"weir/model"
	"weir/rules/strict"
)

// Type describes a type of connectors: all that is to say of it is said here, and how a config is checked, what a form asks and the
// tables of the documentation follow from it. A new type is a function that returns one, in a file of its own, and its place in types.
type Type struct {
	Name    string
	Summary string
	Fields  []Field // of a config
	Secret  string  // what the secret is; "" for types that have none
	Needs   bool    // the secret must be there for a publish
	// NeedsWith is the field with which the secret must be there; "": none.
	NeedsWith string
	Example   string // a config
	// Refused says why no connector may have the type; "": it may.
	Refused string

	// check refuses fields that do not go together; nil: none.
	check func(c *config) error
	// open connects. session is what deliveries of one version of a connector share.
	open func(ctx context.Context, e *egress, c *config, secret string) (session, error)
}

// Field describes a member of a config.
type Field = strict.Field

// types are the types that are known, in the order of their names.
var types = []*Type{snsType(), sqsType(), pubsubType(), kafkaType(), mqttType()}

// Types are the types that are known, those included of which no connector can be made; in the order of their names.
func Types() []*Type { return types }

// TypeNames are the types of which connectors can be made, in order.
func TypeNames() (names []string) {
	for _, t := range types {
		if t.Refused == "" {
			names = append(names, t.Name)
		}
	}
	return names
}

// typeNamed returns a type, nil for an unknown one.
func typeNamed(name string) *Type {
	if name == pubsubAlias {
		name = pubsubName
	}
	i := slices.IndexFunc(types, func(t *Type) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return types[i]
}

// leftOut is why a type is refused by a program for gateways.
const leftOut = "are not in this program: it is the one for gateways, which is built without kafka, aws_sns and aws_sqs"

// inFull is a type that the program for gateways does not have: it is described there, too, and refused.
func inFull(t *Type) *Type {
	if build.Gateway {
		t.Refused, t.open = leftOut, nil
	}
	return t
}

// config is a config that was read.
type config = strict.Values

// MaxConfig is the largest config in bytes.
const MaxConfig = 64 << 10

// parse reads a config. Its error names the first field that is wrong.
func (t *Type) parse(text string) (*config, error) {
	c, err := strict.ReadFields(text, "config", MaxConfig, t.Fields)
	if err == nil && t.check != nil {
		err = t.check(c)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// needsSecret reports whether nothing can be delivered without a secret.
func (t *Type) needsSecret(c *config) bool {
	return t.Needs || t.NeedsWith != "" && c.Given[t.NeedsWith]
}

// checkType refuses a type of which no connector may be made.
func checkType(name string) error {
	t := typeNamed(name)
	switch {
	case t == nil:
		return model.Invalid("type", "%.40q is none of %s", name, strings.Join(TypeNames(), ", "))
	case t.Refused != "":
		return &model.Error{Code: model.CodeUnsupported, Message: "unsupported: connectors of the type " + t.Name + " " + t.Refused}
	}
	return nil
}

// checkConfig refuses a config that the type does not have.
func checkConfig(name, text string) (*config, error) {
	c, err := typeNamed(name).parse(text)
	if wrong, ok := errors.AsType[*strict.Error](err); ok && wrong.Field != "" {
		return nil, model.Invalid("config."+wrong.Field, "%s", withAdvice(wrong))
	}
	if err != nil {
		return nil, model.Invalid("config", "%v", err)
	}
	return c, nil
}

func withAdvice(err *strict.Error) string {
	if advice := err.Advice(); advice != "" {
		return err.Reason + " (" + advice + ")"
	}
	return err.Reason
}
