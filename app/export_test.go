package app

import "github.com/prometheus/client_golang/prometheus"

// Registry returns the registry that the metrics listener exports.
func (in *Instance) Registry() *prometheus.Registry { return in.metrics }

// Older is what is said of a database that is older than its log.
var Older = older
