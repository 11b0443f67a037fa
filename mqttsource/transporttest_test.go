package mqttsource

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"weir/ingest"
	"weir/ingest/links"
	"weir/ingest/transporttest"
	"weir/internal/setting"
	"weir/internal/test/mqttpeer"
	"weir/presence"
)

// TestTransport: a source shows what every transport must, to devices that publish to the broker that it reads. What a device is answered is the
// acknowledgement that the broker gets for its message.
func TestTransport(t *testing.T) {
	var mu sync.Mutex
	brokers := map[*transporttest.Instance]*suiteBroker{} // a broker outlives the transports that read it
	transporttest.Run(t, transporttest.Adapter{
		New: func(t *testing.T, in *transporttest.Instance) transporttest.Subject {
			mu.Lock()
			b := brokers[in]
			if b == nil {
				b = newSuiteBroker(t)
				brokers[in] = b
			}
			mu.Unlock()
			var cfg Settings
			setting.SetDefaults(&cfg)
			var s Source
			setting.SetDefaults(&s)
			s.ID, s.URL = transporttest.Source, "mqtt://127.0.0.1:"+b.Port()
			cfg.Sources = []Source{s}
			tr, err := New(Config{InstanceID: transporttest.InstanceID, Node: "n1", Settings: cfg, Timing: presence.Timing{Grace: time.Minute, Check: time.Hour}},
				Deps{Intake: in.Intake, Tenant: func(token string) (int64, bool, bool) { return 1, true, token == transporttest.Tenant },
					Link: links.New(func() time.Duration { return 0 }).Link, Dial: b.dial, Suspend: func(string) func() { return func() {} }, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			return transporttest.Subject{Transport: tr, Connect: func(device string) (transporttest.Peer, error) { return &suitePeer{b, device}, nil }}
		},
		Refusals: map[ingest.Reason]string{
			ingest.ReasonCeiling:     transporttest.Acknowledged, // it is dropped
			ingest.ReasonUnavailable: transporttest.Closed,       // a new session brings the message again
		},
		Holds: true,
	})
}

// suiteBroker is a broker that knows which message each acknowledgement is of.
type suiteBroker struct {
	*mqttpeer.Broker

	mu      sync.Mutex
	last    uint16
	waiting map[uint16]chan string
}

func newSuiteBroker(t *testing.T) *suiteBroker {
	b := &suiteBroker{waiting: map[uint16]chan string{}}
	b.Broker = mqttpeer.Start(t, &mqttpeer.Broker{OnAck: b.acked}, nil, false)
	return b
}

func (b *suiteBroker) acked(id uint16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if answer := b.waiting[id]; answer != nil {
		answer <- transporttest.Acknowledged
		delete(b.waiting, id)
	}
}

func (b *suiteBroker) publish(device, body string) <-chan string {
	b.mu.Lock()
	defer b.mu.Unlock()
	answer := make(chan string, 1)
	b.last++
	b.waiting[b.last] = answer
	if b.Deliver(mqttpeer.Delivery{Topic: "plant/" + transporttest.Tenant + "/devices/" + device + "/events", Payload: body, QoS: 1, PacketID: b.last}) == 0 {
		answer <- transporttest.Closed
		delete(b.waiting, b.last)
	}
	return answer
}

// dial connects the transport. What is not acknowledged when the connection ends is not answered any more.
func (b *suiteBroker) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &suiteConn{Conn: conn, b: b}, nil
}

type suiteConn struct {
	net.Conn
	b    *suiteBroker
	once sync.Once
}

// Close implements net.Conn. The broker has read every acknowledgement by the time it closes its side.
func (c *suiteConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		for c.b.Open() > 0 {
			time.Sleep(time.Millisecond)
		}
		c.b.mu.Lock()
		defer c.b.mu.Unlock()
		for id, answer := range c.b.waiting {
			answer <- transporttest.Closed
			delete(c.b.waiting, id)
		}
	})
	return err
}

// suitePeer is a device that publishes to the broker, with its credential in each event.
type suitePeer struct {
	b      *suiteBroker
	device string
}

func (p *suitePeer) Send(value float64) <-chan string {
	return p.b.publish(p.device, fmt.Sprintf(`{"credentialType":"ACCESS_TOKEN","credentialId":%q,"eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"%v"}}]}}`,
		transporttest.Token(p.device), value))
}

func (p *suitePeer) Garbage() <-chan string { return p.b.publish(p.device, "temp=21") }

func (*suitePeer) Close() {}
