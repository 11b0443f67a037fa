package app

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"weir/model"
)

// smallCommand is what a command may bring without waiting for its place: the connections bound how many there are.
const smallCommand = 64 << 10

// commands bounds the bodies of the operator's commands that are read and carried out at one time. What does not fit waits.
type commands struct {
	most  int64
	bytes *semaphore.Weighted
	held  atomic.Int64
	waits prometheus.Counter
}

var errCommandsBusy = &model.Error{Code: model.CodeUnavailable, Message: "another large command is being carried out", Hint: "wait for it to end and try again"}

func newCommands(most int64, reg prometheus.Registerer) *commands {
	c := &commands{most: most, bytes: semaphore.NewWeighted(most), waits: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_socket_command_waits_total",
		Help: "Commands over 64 KiB that waited for others to complete."})}
	reg.MustRegister(c.waits,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_socket_command_bytes", Help: "Size of the command bodies over 64 KiB being read or executed."},
			func() float64 { return float64(c.held.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_socket_max_command_bytes", Help: "Maximum size of the command bodies over 64 KiB; further commands wait."},
			func() float64 { return float64(c.most) }))
	return c
}

// enter waits for room for a body of n bytes, of at most most when n is not known (-1), and returns what gives it back.
func (c *commands) enter(ctx context.Context, n, most int64) (leave func(), ok bool) {
	if n >= 0 && n <= smallCommand {
		return func() {}, true
	}
	if n < 0 || n > most {
		n = most
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
