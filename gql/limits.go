package gql

import (
	"strconv"
	"time"

	"weir/gql/engine"
)

// Limits bounds what one request and all of them together may cost. A zero or negative field takes its default: no
// setting removes a limit.
type Limits struct {
	engine.Limits

	BodyBytes    int64 // HTTP body and WebSocket message, 4 MiB
	PendingBytes int64 // bodies being read and run at one time, 64 MiB; admission.go divides it

	Connections            int // WebSocket connections of the instance, 1,000
	ConnectionsPerIdentity int // 16
	Subscriptions          int // per connection, 32
	// SubscriptionsPerIdentity is how many an identity has over all of its connections, 128: each event is held against each of them.
	SubscriptionsPerIdentity int
}

func (l Limits) withDefaults() Limits {
	l.Limits = l.Limits.WithDefaults()
	orDefault(&l.BodyBytes, 4<<20)
	orDefault(&l.PendingBytes, 64<<20)
	orDefault(&l.Connections, 1_000)
	orDefault(&l.ConnectionsPerIdentity, 16)
	orDefault(&l.Subscriptions, 32)
	orDefault(&l.SubscriptionsPerIdentity, 128)
	// A body that is larger than what may be pending at all could never be admitted.
	l.PendingBytes = max(l.PendingBytes, l.BodyBytes)
	return l
}

func orDefault[T int | int64](field *T, def T) {
	if *field <= 0 {
		*field = def
	}
}

// LimitsFromEnv reads the WEIR_GRAPHQL_MAX_* variables through getenv. A value that is unreadable, zero or
// negative leaves the default.
func LimitsFromEnv(getenv func(string) string) Limits {
	number := func(name string) int {
		n, err := strconv.ParseInt(getenv("WEIR_GRAPHQL_MAX_"+name), 10, 32)
		if err != nil {
			return 0
		}
		return int(n)
	}
	return Limits{
		BodyBytes: int64(number("BODY_BYTES")),
		Limits: engine.Limits{
			QueryLength:        number("QUERY_LENGTH"),
			Depth:              number("DEPTH"),
			QueryRootFields:    number("QUERY_ROOT_FIELDS"),
			MutationRootFields: number("MUTATION_ROOT_FIELDS"),
			Selections:         number("SELECTIONS"),
			Cost:               number("COST"),
			Time:               secondsOf(getenv("WEIR_GRAPHQL_MAX_TIME")),
			CredentialChecks:   number("CREDENTIAL_CHECKS"),
		},
	}.withDefaults()
}

// secondsOf reads a Go duration ("45s") or a whole number of seconds.
func secondsOf(s string) time.Duration {
	if n, err := strconv.ParseInt(s, 10, 32); err == nil {
		return time.Duration(n) * time.Second
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0
	}
	return d
}

// DevToolsVariable is the variable that turns introspection and the explorer on.
const DevToolsVariable = "WEIR_GRAPHQL_DEV_TOOLS"

// DevTools reads WEIR_GRAPHQL_DEV_TOOLS as strconv.ParseBool does; a value that it cannot read means false.
func DevTools(getenv func(string) string) bool {
	on, err := strconv.ParseBool(getenv(DevToolsVariable))
	return err == nil && on
}
