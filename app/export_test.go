package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir/store"
)

// Registry returns the registry that the metrics listener exports.
func (in *Instance) Registry() *prometheus.Registry { return in.metrics }

// Older is what is said of a database that is older than its log.
var Older = older

// Store returns the database of a running instance.
func (in *Instance) Store() store.Driver { return in.store.db }
