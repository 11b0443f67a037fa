// Package engine executes GraphQL requests: it knows schemas, documents, values and limits, and neither HTTP nor what the
// fields mean. graphql-go executes; around it this package keeps absent, null and value apart in inputs, bounds what a
// request may cost, and writes plain selections without the executor.
//
// A schema is registered and built, and its engine executes requests:
//
//	runtime := engine.New(engine.Config{})
//	schema := runtime.Schema("things", sdl)
//	schema.Type("Thing", Thing{})                        // Go fields with a tag gql:"name"
//	schema.Field("Thing", "owner", engine.On(...))       // nested fields that need work
//	schema.Query("things", check, engine.Do(...))
//	schema.Subscription("thingStream", check, ...)
//	e, err := schema.Build()
//	response := e.Execute(ctx, request)
//
// The steps of a request: document (parse, measure, validate, convert; kept in a bounded cache) → inputs (variables and
// arguments, coerced; lists and cost within the limits) → for each step the plain path, else graphql-go with a document
// without arguments → response in document order.
package engine

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
)

// Config configures a Runtime.
type Config struct {
	Limits   Limits // zero fields take their defaults
	DevTools bool   // introspection is answered
	Log      *slog.Logger
	// Registerer receives the metrics; nil: they are not registered.
	Registerer prometheus.Registerer
	// RequestID returns the id of the request for the log and internal errors; nil: there is none.
	RequestID func(context.Context) string
}

// Runtime is what all engines of a server share: limits, document cache, bytes of the results, metrics.
type Runtime struct {
	limits    Limits
	devTools  bool
	log       *slog.Logger
	metrics   *metrics
	cache     *cache
	results   *results
	requestID func(context.Context) string
}

// New returns a runtime without engines.
func New(cfg Config) *Runtime {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.RequestID == nil {
		cfg.RequestID = func(context.Context) string { return "" }
	}
	m := newMetrics(cfg.Registerer)
	l := cfg.Limits.WithDefaults()
	r := &Runtime{limits: l, devTools: cfg.DevTools, log: cfg.Log, metrics: m, cache: newCache(l.CacheBytes, m),
		results: &results{maximum: l.ResultBytes, refused: m.resultsRefused}, requestID: cfg.RequestID}
	if cfg.Registerer != nil {
		r.registerBounds(cfg.Registerer)
	}
	return r
}
