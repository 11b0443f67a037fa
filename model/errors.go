package model

import (
	"errors"
	"fmt"
	"strings"
)

// Code is the machine-readable kind of a refusal, shown as extensions.code.
type Code string

// The codes of the API. Whatever carries none of them is shown as an internal error and logged whole.
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
	ReasonNotUnique  = "NOT_UNIQUE"
	ReasonStaleWrite = "STALE_WRITE"
)

// Error is a refusal that the caller may see. Message is English and names what was refused; Reason and Ext travel as
// extensions beside the code; Hint says what to do and is shown by the command line; Err is the cause, never shown.
type Error struct {
	Code    Code
	Reason  string
	Message string
	Hint    string
	Ext     map[string]any
	Err     error
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error of the code.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid is INVALID_INPUT about a field; the message begins with its name.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: CodeInvalidInput, Message: field + ": " + fmt.Sprintf(format, args...)}
}

// NotFound is NOT_FOUND, naming kind and token.
func NotFound(kind, token string) *Error {
	return Errorf(CodeNotFound, "%s %q does not exist", kind, token)
}

// NotUnique is CONFLICT with reason NOT_UNIQUE. Scripts look for the word "unique" outside quotes.
func NotUnique(kind, field, value string) *Error {
	return &Error{Code: CodeConflict, Reason: ReasonNotUnique,
		Message: fmt.Sprintf("conflict: %s of %s must be unique, %q is in use", field, withArticle(kind), value)}
}

// InUse is IN_USE: kind token cannot go while a referrer of the named kind exists.
func InUse(kind, token, referrer string) *Error {
	return Errorf(CodeInUse, "%s %q is in use by %s", kind, token, withArticle(referrer))
}

// Unauthenticated is the refusal of a caller who is nobody, or for whom no tenant is resolved.
func Unauthenticated(why string) *Error {
	return Errorf(CodeUnauthenticated, "unauthenticated: %s", why)
}

// Forbidden is the refusal of a caller who lacks an authority.
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
