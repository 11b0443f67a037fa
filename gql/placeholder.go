package gql

import (
	"context"

	"weir/gql/engine"
)

// RegisterPlaceholder registers the area event-sources, which has a route but no operations: devices send by transports.
func RegisterPlaceholder(a *Area) {
	null := func(context.Context, any, engine.Args) (any, error) { return nil, nil }
	a.Query("_empty", Anonymous(), null)
	a.Mutation("_empty", Anonymous(), null)
}
