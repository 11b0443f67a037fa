package lwm2m

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"weir/ingest"
	"weir/ingest/transporttest"
	"weir/internal/test/lwm2mpeer"
	"weir/presence"
)

// TestTransport: the server shows what every transport must, to devices that register and send what they have (POST /dp).
func TestTransport(t *testing.T) {
	var mu sync.Mutex
	stores := map[*transporttest.Instance]*rowsOf{} // what is stored outlives the transports
	transporttest.Run(t, transporttest.Adapter{
		New: func(t *testing.T, in *transporttest.Instance) transporttest.Subject {
			mu.Lock()
			rows := stores[in]
			if rows == nil {
				rows = &rowsOf{rows: map[int64]Registration{}}
				stores[in] = rows
			}
			mu.Unlock()
			socket, err := net.ListenPacket("udp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s, err := New(Config{Settings: Settings{ConnectionIDLength: 8}, Timing: presence.Timing{Grace: time.Hour, Check: time.Hour}},
				Deps{Listen: func() (net.PacketConn, error) { return socket, nil }, Intake: in.Intake, Keys: suiteKeys{in}, Store: rows})
			if err != nil {
				t.Fatal(err)
			}
			return transporttest.Subject{Transport: s, Connect: func(device string) (transporttest.Peer, error) {
				return suiteConnect(s, in, socket.LocalAddr().String(), device)
			}}
		},
		Refusals: map[ingest.Reason]string{
			ingest.ReasonUndecodable:  "4.00",
			ingest.ReasonCeiling:      "4.29",
			ingest.ReasonBackpressure: "5.03",
			ingest.ReasonUnavailable:  "5.03",
		},
		Source: "lwm2m",
	})
}

// suiteKeys are the keys of the devices of the suite: each is made of the token that proves the device.
type suiteKeys struct{ in *transporttest.Instance }

func suiteKey(device string) []byte {
	sum := sha256.Sum256([]byte(transporttest.Token(device)))
	return sum[:16]
}

func (k suiteKeys) Key(_ context.Context, identity string) (Key, error) {
	bound, ok := k.in.Verify(transporttest.Tenant, transporttest.Token(identity))
	if !ok {
		return Key{}, ErrUnknown
	}
	return Key{Binding: bound, Secret: suiteKey(identity)}, nil
}

// suitePeer is a registered device of the suite.
type suitePeer struct {
	*lwm2mpeer.Client
	ctx context.Context
	end context.CancelFunc
}

// suiteConnect connects and registers a device. One that will not be let in is answered with silence: it waits for less.
func suiteConnect(s *Server, in *transporttest.Instance, address, device string) (transporttest.Peer, error) {
	o := lwm2mpeer.Options{Server: address, Identity: device, Key: suiteKey(device), Timeout: time.Minute}
	if _, ok := in.Verify(transporttest.Tenant, transporttest.Token(device)); !ok || s.closing.Load() {
		o.Timeout = time.Second
	}
	c, err := lwm2mpeer.Dial(context.Background(), o)
	if err != nil {
		return nil, err
	}
	p := &suitePeer{Client: c}
	p.ctx, p.end = context.WithCancel(context.Background())
	if _, err := c.Register(p.ctx, []string{"ep=" + device, "lt=300", "lwm2m=1.1"}, "</1/0>"); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *suitePeer) Send(value float64) <-chan string {
	return p.send(fmt.Sprintf(`[{"n":"/3303/0/5700","v":%g}]`, value))
}

func (p *suitePeer) Garbage() <-chan string { return p.send(`[{"n":`) }

func (p *suitePeer) Close() {
	p.end()
	_ = p.Client.Close()
}

func (p *suitePeer) send(body string) <-chan string {
	answer := make(chan string, 1)
	go func() {
		m, err := p.Request(p.ctx, 2, "/dp", nil, 110, []byte(body))
		switch {
		case err != nil:
			answer <- transporttest.Closed
		case m.Code == lwm2mpeer.Code2(2, 4):
			answer <- transporttest.Acknowledged
		default:
			answer <- fmt.Sprintf("%d.%02d", m.Code>>5, m.Code&31)
		}
	}()
	return answer
}
