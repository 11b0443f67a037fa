package operate

import (
	"errors"

	"weir/model"
)

// wireError is a refusal on its way over the socket. The other end is the operator: he is told everything.
type wireError struct {
	Code    model.Code `json:"code,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message"`
	Hint    string     `json:"hint,omitempty"`
}

func wireErrorOf(err error) wireError {
	if e, ok := errors.AsType[*model.Error](err); ok {
		return wireError{e.Code, e.Reason, e.Message, e.Hint}
	}
	return wireError{Message: err.Error()}
}

// err is the refusal at the other end.
func (e wireError) err() error {
	if e.Code == "" {
		return errors.New(e.Message)
	}
	return &model.Error{Code: e.Code, Reason: e.Reason, Message: e.Message, Hint: e.Hint}
}
