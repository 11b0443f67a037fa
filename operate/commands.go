package operate

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"weir/model"
)

// smallCommand is what a command may bring without waiting: the connections bound how many there are.
const smallCommand = 64 << 10

// commands bounds the bodies of the operator's commands that are read and carried out at one time. What does not fit waits.
type commands struct {
	max   int64
	bytes *semaphore.Weighted
	held  atomic.Int64
	waits prometheus.Counter
}

var errCommandsBusy = &model.Error{Code: model.CodeUnavailable, Message: "another large command is being carried out", Hint: "wait for it to end and try again"}

func newCommands(maximum int64, reg prometheus.Registerer) *commands {
	c := &commands{max: maximum, bytes: semaphore.NewWeighted(maximum), waits: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_socket_command_waits_total",
		Help: "Large commands that waited for others to end."})}
	reg.MustRegister(c.waits,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_socket_command_bytes", Help: "Bodies over 64 KiB of commands that are read or carried out."},
			func() float64 { return float64(c.held.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_socket_max_command_bytes", Help: "Most bytes of such bodies at a time; others wait."},
			func() float64 { return float64(c.max) }))
	return c
}

// enter waits for space for a body of n bytes, of at most limit when n is not known (-1), and returns what gives it back.
func (c *commands) enter(ctx context.Context, n, limit int64) (leave func(), ok bool) {
	if n >= 0 && n <= smallCommand {
		return func() {}, true
	}
	if n < 0 || n > limit {
		n = limit
	}
	if !c.bytes.TryAcquire(n) {
		c.waits.Inc()
		if c.bytes.Acquire(ctx, n) != nil {
			return nil, false
		}
	}
	c.held.Add(n)
	return func() { c.held.Add(-n); c.bytes.Release(n) }, true
}
