package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"weir/internal/jsonscan"
)

// Request is a client's request. Variables are as decoded from JSON with UseNumber.
type Request struct {
	Query         string
	OperationName string
	Variables     map[string]any
}

// ParseRequest reads the envelope {"query", "variables", "operationName"}. Other keys are ignored; an array, a second
// value or a member of the wrong kind is an error with a text that may be shown to the client.
func ParseRequest(body []byte) (Request, error) {
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		return Request{}, errors.New("batches of requests are not supported")
	}
	if err := jsonscan.Text(body); err != nil {
		return Request{}, fmt.Errorf("the body contains %w: send it as UTF-8", err)
	}
	var envelope map[string]json.RawMessage // a map, because encoding/json matches the fields of a struct without case
	if err := json.Unmarshal(body, &envelope); err != nil || envelope == nil {
		return Request{}, errors.New("the body is no JSON object")
	}
	return RequestOf(envelope)
}

// RequestOf reads the members of an envelope.
func RequestOf(envelope map[string]json.RawMessage) (Request, error) {
	var req Request
	var query, name *string
	if err := member(envelope, "query", &query); err != nil {
		return Request{}, err
	}
	if query == nil {
		return Request{}, errors.New(`the member "query" is missing`)
	}
	if err := member(envelope, "operationName", &name); err != nil {
		return Request{}, err
	}
	if err := member(envelope, "variables", &req.Variables); err != nil {
		return Request{}, err
	}
	req.Query = *query
	if name != nil {
		req.OperationName = *name
	}
	return req, nil
}

func member(envelope map[string]json.RawMessage, name string, into any) error {
	raw, ok := envelope[name]
	if !ok {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(into) != nil {
		return fmt.Errorf("the member %q has the wrong type", name)
	}
	return nil
}
