//go:build gateway

package connectors

import "context"

// openKafka is not in a program for gateways.
var openKafka func(context.Context, *egress, *config, string) (session, error)
