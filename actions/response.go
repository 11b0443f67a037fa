package actions

import (
	"errors"

	"weir/command"
	"weir/model"
	"weir/store"
	"weir/store/outbox"
)

// answerTries is how often an answer to a command that is not there is tried.
const answerTries = 5

var (
	errNoCommand = errors.New("there is no command of that token")
	errNonce     = errors.New("the dispatchNonce is missing, or is of no dispatch of the command that may still be answered")
	errNoAnswer  = errors.New("the order holds no answer")
)

// Answers tries answers of devices again whose commands were not there when they came: what a device answers at once may be of a commit that a power
// cut took back, or be read before its command is there. One that finds none at last is a dead letter, which letter adds.
func Answers(a command.Answerer, letter func(store.Tx, *store.DeadLetter, *model.Response) error) Kind {
	return Kind{Name: outbox.Answer, Letters: store.DeadLetterResponse, Unordered: true,
		Inside: func(tx store.Tx, o *Order) error { return answer(tx, a, o) },
		Letter: func(tx store.Tx, o *Order, reason Reason, why string) error {
			r := o.Dispatch.Answer
			return letter(tx, &store.DeadLetter{Tenant: o.Tenant, Occurred: r.Received.Micros(), Reason: string(reason), Source: r.Source, Summary: why, Attempts: o.Attempts,
				Subject: o.Dispatch.Device, Epoch: r.Epoch, Offset: o.Order.Edge.Offset},
				&model.Response{Command: r.Command, Nonce: r.Nonce, Success: r.Success, Payload: r.Payload, Error: r.Error})
		}}
}

func answer(tx store.Tx, a command.Answerer, o *Order) error {
	r := o.Dispatch.Answer
	if r == nil {
		return Fail(Unprocessable, errNoAnswer)
	}
	response := command.Response{TenantID: o.TenantID, DeviceID: o.DeviceID, Token: r.Command, Nonce: r.Nonce, Success: r.Success, At: r.Received, Again: true}
	if r.Payload != "" {
		response.Payload = &r.Payload
	}
	if r.Error != "" {
		response.Error = &r.Error
	}
	switch did, err := a.Answer(tx, response); {
	case err != nil:
		return err
	case did == command.NoSuch:
		return &Failure{Reason: Again, Err: errNoCommand, Tries: answerTries}
	case did == command.BadNonce:
		return Fail(Unprocessable, errNonce)
	}
	return nil
}
