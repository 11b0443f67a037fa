package web

import (
	"net"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// limitedListener holds at most as many open connections as there are slots, which it may share; further ones wait in the kernel's queue.
type limitedListener struct {
	net.Listener
	places  chan struct{}
	done    chan struct{}
	close   func() error
	metrics *listenerMetrics
}

// Bounded returns a listener that holds at most limit open connections, and shows how many as
// weir_<name>_connections. A nil registerer registers no metrics.
func Bounded(l net.Listener, limit int, name string, reg prometheus.Registerer) net.Listener {
	return limitListener(l, make(chan struct{}, limit), newListenerMetrics(name, limit, reg))
}

// listenerMetrics are the figures of a listener.
type listenerMetrics struct {
	connections prometheus.Gauge
	waits       prometheus.Counter
}

func newListenerMetrics(name string, limit int, reg prometheus.Registerer) *listenerMetrics {
	m := &listenerMetrics{
		connections: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_" + name + "_connections", Help: "Open connections of the listener."}),
		waits: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_" + name + "_connection_waits_total",
			Help: "Times that accept waited because the listener had its maximum of connections."}),
	}
	if reg != nil {
		reg.MustRegister(m.connections, m.waits, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_" + name + "_max_connections",
			Help: "Maximum number of connections of the listener."}, func() float64 { return float64(limit) }))
	}
	return m
}

func limitListener(l net.Listener, places chan struct{}, m *listenerMetrics) net.Listener {
	ll := &limitedListener{Listener: l, places: places, done: make(chan struct{}), metrics: m}
	ll.close = sync.OnceValue(func() error {
		close(ll.done)
		return l.Close()
	})
	return ll
}

func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	default:
		l.metrics.waits.Inc()
		select {
		case l.places <- struct{}{}:
		case <-l.done:
			return nil, net.ErrClosed
		}
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	l.metrics.connections.Inc()
	return &limitedConn{Conn: c, leave: sync.OnceFunc(func() {
		l.metrics.connections.Dec()
		<-l.places
	})}, nil
}

func (l *limitedListener) Close() error { return l.close() }

type limitedConn struct {
	net.Conn
	leave func()
}

func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
