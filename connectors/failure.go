package connectors

import (
	"errors"
	"fmt"

	"weir/internal/delivery"
	"weir/internal/guard"
	"weir/internal/mqttclient"
)

// Outcome is what a delivery came to.
type Outcome = delivery.Outcome

// The outcomes.
const (
	Sent        = delivery.Sent
	Retry       = delivery.Retry
	Unreachable = delivery.Unreachable
	Invalid     = delivery.Invalid
	Unsupported = delivery.Unsupported
	Blocked     = delivery.Blocked
	RateLimited = delivery.RateLimited
)

// Failure is a delivery that failed.
type Failure = delivery.Failure

func fail(o Outcome, format string, args ...any) *Failure { return delivery.Fail(o, format, args...) }

// fewTries is how often is tried what the target will hardly take later.
const fewTries = delivery.FewTries

// failureOf makes a failure of any error, nil of nil.
func failureOf(err error) *Failure {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	if f := answered(err); f != nil {
		return f
	}
	if errors.Is(err, mqttclient.ErrLost) {
		return delivery.Connection(guard.OutcomeReset, err)
	}
	return delivery.Of(err)
}

// answered is the failure of an error that is an answer of an MQTT broker, nil for any other.
func answered(err error) *Failure {
	if r, ok := errors.AsType[*mqttclient.Refused](err); ok {
		f := &Failure{Outcome: Retry, Text: fmt.Sprintf("the broker answered %s 0x%02x", r.Packet, r.Code)}
		if meaning := reasonCodes[r.Code]; meaning != "" {
			f.Text += " (" + meaning + ")"
			f.Tries = fewTries
		}
		return f
	}
	if no, ok := errors.AsType[*mqttclient.NoWebSocket](err); ok {
		return &Failure{Outcome: Retry, Text: fmt.Sprintf("the broker answered HTTP %d instead of WebSocket", no.Status)}
	}
	switch {
	case errors.Is(err, mqttclient.ErrQoS):
		return fail(Invalid, "the broker does not support the QoS of the connector")
	case errors.Is(err, mqttclient.ErrTooLarge):
		return fail(Invalid, "the message is larger than the broker takes")
	case errors.Is(err, mqttclient.ErrMalformed):
		return &Failure{Outcome: Retry, Text: "the other side does not speak MQTT 5", Cause: err}
	}
	return nil
}

// reasonCodes are the reason codes of MQTT 5 that another attempt will hardly change.
var reasonCodes = map[byte]string{0x84: "unsupported protocol version", 0x85: "client identifier not valid", 0x86: "bad user name or password", 0x87: "not authorized", 0x8a: "banned",
	0x8c: "bad authentication method", 0x90: "topic name invalid", 0x95: "packet too large", 0x99: "payload format invalid", 0x9b: "QoS not supported"}

// detail is what the operator may read besides. Other errors may quote what was read.
func detail(f *Failure) string {
	if errors.Is(f.Cause, mqttclient.ErrMalformed) {
		return f.Cause.Error()
	}
	return f.Detail()
}
