package edge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"time"

	"weir/internal/mqttclient"
	"weir/internal/ranges"
)

// window311 is how many messages may be unacknowledged at a broker of MQTT 3.1.1, which names no number.
const window311 = 256

// While the clock is not plausible it is looked at every clockTick, and a Weir above is asked for the time every askEvery.
const (
	clockTick = time.Second
	askEvery  = 10 * time.Second
)

// uplink is the connection to the broker above.
type uplink struct {
	e *Edge

	mu        sync.Mutex
	connected bool
	since     time.Time // of connected
	refused   string    // the broker above refuses the edge: why
	lastError string
	v311      bool
	current   *connection
	weir      bool       // the peer has answered a hello
	gaps      ranges.Set // see UplinkStatus
	window    int
	failures  int // attempts since a record was taken
}

// connect connects, as often as it takes. It returns nil when ctx ends, and the error of fed when reading the log ends.
func (u *uplink) connect(ctx context.Context, fed <-chan error) (*connection, error) {
	for {
		conn, err := u.knowTime(ctx, fed)
		if err != nil || ctx.Err() != nil && conn == nil {
			return nil, err
		}
		if conn == nil {
			conn, err = u.try(ctx)
		}
		if ctx.Err() != nil {
			if conn != nil {
				_ = conn.Close() // nothing was sent on it
			}
			return nil, nil
		}
		if err == nil {
			return conn, nil
		}
		pause := u.failed(err)
		if ok, err := sleep(ctx, fed, pause); !ok {
			return nil, err
		}
	}
}

// knowTime waits until the time of day is known: by the wall clock, or from a Weir above, of which it returns the connection.
func (u *uplink) knowTime(ctx context.Context, fed <-chan error) (*connection, error) {
	e := u.e
	next := e.deps.elapsed()
	for e.clock.doubt() {
		if now := e.deps.elapsed(); now >= next {
			if conn := u.askTime(ctx); conn != nil {
				return conn, nil
			}
			next = now + askEvery
		}
		if ok, err := sleep(ctx, fed, clockTick); !ok {
			return nil, err
		}
	}
	return nil, nil
}

// askTime connects to learn the time of day, and keeps the connection to a broker that tells it.
func (u *uplink) askTime(ctx context.Context) *connection {
	conn, err := u.open(ctx)
	if err != nil {
		u.e.log.Warn("the time of day is not known, and the broker above cannot be asked for it", "broker", shown(u.e.cfg.Uplink.BrokerURL), "error", err)
		return nil
	}
	at := conn.PeerTime()
	if !u.e.clock.learn(at) {
		_ = conn.Close() // nothing was sent on it
		u.e.log.Warn("the time of day is not known, and the broker above does not tell it; set the clock of this machine", "broker", shown(u.e.cfg.Uplink.BrokerURL))
		return nil
	}
	u.e.log.Warn("the clock of this machine is wrong: the time of day is that of the Weir above", "time", at.UTC())
	u.opened(conn)
	return conn
}

// open connects once, with MQTT 3.1.1 where the broker does not speak 5.0.
func (u *uplink) open(ctx context.Context) (*connection, error) {
	s := &u.e.cfg.Uplink
	c := &connection{down: make(chan mqttclient.Incoming, maxDown)}
	o := mqttclient.SenderOptions{Options: mqttclient.Options{URL: s.BrokerURL, Dial: u.e.deps.Dial, ClientID: u.e.clientID(), Username: s.Username, Password: s.Password.Reveal(), Timeout: s.ConnectTimeout},
		KeepAlive: s.KeepAlive, Window: int(s.Window), MaxPacket: maxFromAbove, Receive: c.received}
	if u.e.cfg.TLS != nil {
		var err error
		if o.TLS, err = u.e.cfg.TLS(); err != nil {
			return nil, err
		}
		o.TLS.Time = u.e.clock.forCertificates
	}
	conn, err := mqttclient.OpenSender(ctx, o)
	if errors.Is(err, mqttclient.ErrNoMQTT5) {
		o.V311, o.Window = true, min(o.Window, window311)
		conn, err = mqttclient.OpenSender(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	c.Sender, c.options = conn, o
	return c, nil
}

// try connects once, and notes it.
func (u *uplink) try(ctx context.Context) (*connection, error) {
	conn, err := u.open(ctx)
	if err != nil {
		return nil, err
	}
	u.opened(conn)
	return conn, nil
}

// opened notes a connection.
func (u *uplink) opened(conn *connection) {
	s, o := &u.e.cfg.Uplink, &conn.options
	u.mu.Lock()
	defer u.mu.Unlock()
	u.current = conn
	u.connected, u.since, u.refused, u.v311, u.window = true, time.Now(), "", o.V311, conn.Window()
	u.e.metrics.connected.Set(1)
	u.e.metrics.turnedAway.Set(0)
	u.e.log.Info("the uplink is connected", "broker", shown(s.BrokerURL), "client", o.ClientID, "window", conn.Window(), "mqtt5", conn.V5())
}

// failed notes why an attempt failed, and returns how long to wait before the next.
func (u *uplink) failed(err error) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := &u.e.cfg.Uplink
	u.lastError = err.Error()
	u.failures++
	pause := s.BackoffMax
	if shift := u.failures - 1; shift < 20 {
		pause = min(s.BackoffMin<<shift, s.BackoffMax)
	}
	if r, ok := errors.AsType[*mqttclient.Refused](err); ok && r.Packet == "CONNACK" && credentialCode(r.Code) {
		u.refused = fmt.Sprintf("the broker above refuses the edge (%s): its user name, password, certificate or client id", r)
		pause = s.BackoffMax
		u.e.metrics.turnedAway.Set(1)
	}
	pause = pause/2 + rand.N(pause/2+1)
	u.e.metrics.errors.Inc()
	u.e.log.Warn("the broker above cannot be reached", "broker", shown(s.BrokerURL), "error", err, "retry_in", pause.Round(time.Millisecond).String())
	return pause
}

// credentialCode reports whether a CONNACK says that the edge itself is not let in. Up to 5 they are those of MQTT 3.1.1.
func credentialCode(code byte) bool {
	switch code {
	case 2, 4, 5, 0x85, 0x86, 0x87, 0x8a, 0x8c:
		return true
	}
	return false
}

// greeted notes whether the peer is a Weir.
func (u *uplink) greeted(conn *connection) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.weir = conn.weir
}

// took notes that the broker above has taken a record: the next attempt to connect does not wait for what failed before.
func (u *uplink) took() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failures = 0
}

// lost ends a connection.
func (u *uplink) lost(conn *connection, stopping bool) {
	err := conn.Err()
	_ = conn.Close() // it is over either way
	u.mu.Lock()
	defer u.mu.Unlock()
	u.connected, u.since, u.current = false, time.Now(), nil
	u.e.metrics.connected.Set(0)
	if stopping || err == nil {
		return
	}
	u.lastError = err.Error()
	u.e.metrics.errors.Inc()
	u.e.log.Warn("the uplink is lost", "error", err)
}

// sleep waits, and reports false when ctx or reading the log ends before.
func sleep(ctx context.Context, fed <-chan error, d time.Duration) (bool, error) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true, nil
	case <-ctx.Done():
		return false, nil
	case err := <-fed:
		return false, err
	}
}

// CheckURL returns what is wrong with the URL of a broker above, "" for nothing.
func CheckURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "must be a URL such as tcp://broker.example.org:1883"
	case u.Scheme != "tcp" && u.Scheme != "ssl" && u.Scheme != "tls":
		return "must begin with tcp://, ssl:// or tls://"
	case u.Hostname() == "" || u.Port() == "":
		return "must name a host and a port, such as tcp://broker.example.org:1883"
	case u.User != nil:
		return "must hold no user name and password: they are edge.uplink.username and edge.uplink.password"
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return "must hold nothing after the port"
	}
	return ""
}

// Secure reports whether the URL of a broker above is one of TLS.
func Secure(broker string) bool {
	return strings.HasPrefix(broker, "ssl://") || strings.HasPrefix(broker, "tls://")
}

// shown is a URL without what it may hide.
func shown(broker string) string {
	u, err := url.Parse(broker)
	if err != nil {
		return "?"
	}
	return u.Redacted()
}
