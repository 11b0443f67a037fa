package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir/config"
	"weir/store"
)

// Registry returns the registry that the metrics listener exports.
func (in *Instance) Registry() *prometheus.Registry { return in.metrics }

// Registry returns the registry that the metrics listener exports.
func (in *Edge) Registry() *prometheus.Registry { return in.metrics }

// Older is what is said of a database that is older than its log.
var Older = explainOlderStore

// Store returns the database of a running instance.
func (in *Instance) Store() store.Driver { return in.store.db }

// Reporting reports what an instance waits for until the function that it returns is called.
func Reporting(cfg config.Config, opt Options, during string, what func() string) (done func()) {
	return newBase(cfg, opt).reporting(during, what)
}
