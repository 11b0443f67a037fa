package model

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// Code is the machine-readable kind of a refusal, extensions.code in the API.
type Code string

// The codes of the API. An error without a code is shown as an internal error and logged with its details.
const (
	CodeUnauthenticated       Code = "UNAUTHENTICATED"
	CodeForbidden             Code = "FORBIDDEN"
	CodeInvalidInput          Code = "INVALID_INPUT"
	CodeNotFound              Code = "NOT_FOUND"
	CodeConflict              Code = "CONFLICT"
	CodeInUse                 Code = "IN_USE"
	CodeUnsupported           Code = "UNSUPPORTED"
	CodeTooManyRootFields     Code = "TOO_MANY_ROOT_FIELDS"
	CodeTooManyCredentials    Code = "TOO_MANY_CREDENTIAL_CHECKS"
	CodeThrottled             Code = "THROTTLED"
	CodeUnavailable           Code = "UNAVAILABLE"
	CodeIntrospectionDisabled Code = "INTROSPECTION_DISABLED"
	CodeLimitExceeded         Code = "LIMIT_EXCEEDED"
)

// Reasons of CodeConflict.
const (
	ReasonNotUnique     = "NOT_UNIQUE"
	ReasonTokenReserved = "TOKEN_RESERVED" // by what is deleted and not erased yet
	ReasonStaleWrite    = "STALE_WRITE"
)

// Error is a refusal that the caller may see. Message is English and names what was refused; Reason and Ext travel as
// extensions besides the code; Hint says what to do and is shown by the command line; Err is the cause, never shown.
//
// The subject of an error is in its fields: no code parses messages, which may be reworded at any time.
type Error struct {
	Code    Code
	Reason  string
	Message string
	Hint    string
	Ext     map[string]any
	Err     error

	Field string   // path of the input field, or configuration key of the limit; "" for none
	Kind  string   // kind of entity
	Token string   // which one of the kind
	All   []*Error // the refusals that this one combines, in their order

	text string // the message without what names the field
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Text returns what is wrong without the name of the field, for callers that show Field themselves.
func (e *Error) Text() string { return cmp.Or(e.text, e.Message) }

// Errorf makes an Error of the code.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid is INVALID_INPUT about a field; the message begins with its name.
func Invalid(field, format string, args ...any) *Error {
	return aboutField(CodeInvalidInput, field, fmt.Sprintf(format, args...))
}

// OverLimit is LIMIT_EXCEEDED about a field, or about the configuration key of the limit; the message begins with its
// name.
func OverLimit(field, format string, args ...any) *Error {
	return aboutField(CodeLimitExceeded, field, fmt.Sprintf(format, args...))
}

func aboutField(code Code, field, text string) *Error {
	return &Error{Code: code, Field: field, Message: field + ": " + text, text: text}
}

// NotFound is NOT_FOUND, naming kind and token.
func NotFound(kind, token string) *Error {
	return &Error{Code: CodeNotFound, Kind: kind, Token: token, Message: fmt.Sprintf("%s %q does not exist", kind, token)}
}

// NotUnique is CONFLICT with reason NOT_UNIQUE. Scripts look for the word "unique" outside quotes.
func NotUnique(kind, field, value string) *Error {
	text := fmt.Sprintf("%s of %s must be unique, %q is in use", field, withArticle(kind), value)
	return &Error{Code: CodeConflict, Reason: ReasonNotUnique, Kind: kind, Field: field, Message: "conflict: " + text, text: text}
}

// InUse is IN_USE: kind token cannot be deleted while a referrer of the named kind exists.
func InUse(kind, token, referrer string) *Error {
	return &Error{Code: CodeInUse, Kind: kind, Token: token, Message: fmt.Sprintf("%s %q is in use by %s", kind, token, withArticle(referrer))}
}

// Unauthenticated is the refusal of a caller without a principal, or without a tenant that could be resolved.
func Unauthenticated(why string) *Error {
	return Errorf(CodeUnauthenticated, "unauthenticated: %s", why)
}

// Forbidden is the refusal of a caller without an authority.
func Forbidden(a Authority) *Error {
	return Errorf(CodeForbidden, "forbidden: %s is required", a)
}

// CodeOf returns the code of err, or "" for an internal error.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

func withArticle(noun string) string {
	if noun != "" && strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}
