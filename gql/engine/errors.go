package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/graphql-go/graphql/gqlerrors"
	gast "github.com/graphql-go/graphql/language/ast"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"weir/model"
)

// Error is one entry of a response's errors.
type Error struct {
	Message    string         `json:"message"`
	Locations  []Location     `json:"locations,omitempty"`
	Path       []any          `json:"path,omitempty"`
	Extensions map[string]any `json:"extensions,omitempty"`
}

// Location is a position in the query text. Line and column are counted from 1.
type Location struct {
	Line   int `json:"line"`
	Column int `json:"column"`
}

func (e *Error) Error() string { return e.Message }

// Code returns extensions.code.
func (e *Error) Code() model.Code {
	c, _ := e.Extensions["code"].(model.Code)
	return c
}

// Errorf returns an error with extensions.code, unless code is "".
func Errorf(code model.Code, format string, args ...any) *Error {
	e := &Error{Message: fmt.Sprintf(format, args...)}
	if code != "" {
		e.Extensions = map[string]any{"code": code}
	}
	return e
}

func (e *Error) at(pos *ast.Position) *Error {
	if pos != nil && pos.Line > 0 {
		e.Locations = append(e.Locations, Location{Line: pos.Line, Column: pos.Column})
	}
	return e
}

// LimitError returns LIMIT_EXCEEDED; name is the limit's name in the documentation.
func LimitError(name, format string, args ...any) *Error {
	e := Errorf(model.CodeLimitExceeded, format, args...)
	e.Extensions["limit"] = name
	return e
}

func timeError(limit time.Duration) *Error {
	return LimitError("time", "the request took longer than the time limit of %s", limit)
}

// fromParser converts an error of gqlparser. Its message may be shown: it quotes only the document.
func fromParser(err *gqlerror.Error, code model.Code) *Error {
	e := Errorf(code, "%s", err.Message)
	for _, l := range err.Locations {
		e.Locations = append(e.Locations, Location{Line: l.Line, Column: l.Column})
	}
	return e
}

// FromModel converts a refusal of the domain. Err and Hint are not shown to the caller.
func FromModel(err *model.Error) *Error {
	e := &Error{Message: err.Message, Extensions: make(map[string]any, 2+len(err.Ext))}
	maps.Copy(e.Extensions, err.Ext)
	e.Extensions["code"] = err.Code
	if err.Reason != "" {
		e.Extensions["reason"] = err.Reason
	}
	return e
}

// InternalError is what the caller sees of an error that is not a refusal.
func InternalError(requestID string) *Error {
	e := &Error{Message: "internal error"}
	if requestID != "" {
		e.Extensions = map[string]any{"requestId": requestID}
	}
	return e
}

// maxLoggedErrors bounds the log lines that one request can cause; the rest is counted in the last of them.
const maxLoggedErrors = 10

// translate converts a resolver's error into the caller's, and logs what the caller must not see.
func (sc *scope) translate(where string, err error) *Error {
	if e, ok := errors.AsType[*model.Error](err); ok {
		if e.Err != nil {
			sc.engine.log.Debug("graphql: refused", "request", sc.engine.requestID(sc.ctx), "field", where, "error", e.Err)
		}
		return FromModel(e)
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if sc.expired() && errors.Is(err, context.DeadlineExceeded) {
		return timeError(sc.op.within)
	}
	if sc.ctx.Err() == nil || !errors.Is(err, context.Canceled) { // a client that disconnected is not an internal error
		sc.logInternal(where, err, nil)
	}
	return InternalError(sc.engine.requestID(sc.ctx))
}

// masked is deferred around resolvers: it turns a panic into an internal error.
func (sc *scope) masked(where string, out *any, err *error) {
	if x := recover(); x != nil {
		sc.logInternal(where, fmt.Errorf("panic: %v", x), debug.Stack())
		*out, *err = nil, InternalError(sc.engine.requestID(sc.ctx))
	}
}

func (sc *scope) logInternal(where string, err error, stack []byte) {
	sc.engine.metrics.internal.WithLabelValues(sc.engine.name).Inc()
	n := sc.internal.Add(1)
	if n > maxLoggedErrors {
		return
	}
	attrs := []any{"request", sc.engine.requestID(sc.ctx), "area", sc.engine.name, "field", where, "error", err}
	if stack != nil {
		attrs = append(attrs, slog.String("stack", string(stack)))
	}
	if n == maxLoggedErrors {
		attrs = append(attrs, "note", "further errors of this request are not logged")
	}
	sc.engine.log.Error("graphql: internal error", attrs...)
}

// maxShownErrors bounds the errors of one response.
const maxShownErrors = 100

// collect converts graphql-go's errors, in document order.
func (sc *scope) collect(in []gqlerrors.FormattedError) []*Error {
	var out []*Error
	for _, fe := range in {
		node, cause := original(fe)
		shown, ok := errors.AsType[*Error](cause)
		if !ok {
			// An error of graphql-go itself: a null in a non-null field, a value of the wrong kind.
			sc.logInternal(fmt.Sprint(fe.Path), fe, nil)
			shown = InternalError(sc.engine.requestID(sc.ctx))
		}
		c := *shown // the same error may stand at many paths
		c.Path = fe.Path
		if pos := sc.op.positions[node]; pos != nil {
			c.Locations = []Location{{Line: pos.Line, Column: pos.Column}}
		}
		out = append(out, &c)
	}
	slices.SortStableFunc(out, compareErrors)
	if more := len(out) - maxShownErrors; more > 0 {
		out = append(out[:maxShownErrors:maxShownErrors], Errorf("", "%d more errors are not shown", more))
	}
	return out
}

func compareErrors(a, b *Error) int {
	la, lb := firstLocation(a), firstLocation(b)
	if c := cmp.Or(cmp.Compare(la.Line, lb.Line), cmp.Compare(la.Column, lb.Column)); c != 0 {
		return c
	}
	return slices.CompareFunc(a.Path, b.Path, func(x, y any) int {
		i, iok := x.(int)
		j, jok := y.(int)
		if iok && jok {
			return cmp.Compare(i, j)
		}
		return cmp.Compare(fmt.Sprint(x), fmt.Sprint(y))
	})
}

func firstLocation(e *Error) Location {
	if len(e.Locations) == 0 {
		return Location{}
	}
	return e.Locations[0]
}

// original returns the error that a resolver returned: graphql-go wraps it once for a field and twice for a thunk, in
// types without Unwrap.
func original(err error) (node *gast.Field, cause error) {
	for {
		var next error
		switch e := err.(type) {
		case gqlerrors.FormattedError:
			next = e.OriginalError()
		case *gqlerrors.Error:
			if len(e.Nodes) > 0 && node == nil {
				node, _ = e.Nodes[0].(*gast.Field)
			}
			next = e.OriginalError
		}
		if next == nil {
			return node, err
		}
		err = next
	}
}
