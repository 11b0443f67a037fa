package broker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"weir/ingest"
	"weir/ingest/transporttest"
)

// TestTransport: the broker shows what every transport must, to devices that speak MQTT 5 over TCP.
func TestTransport(t *testing.T) {
	transporttest.Run(t, transporttest.Adapter{
		New: func(t *testing.T, in *transporttest.Instance) transporttest.Subject {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			b, err := New(Config{InstanceID: transporttest.InstanceID, Source: transporttest.Source}, Deps{Intake: in.Intake, Verifier: suiteVerifier{in}})
			if err != nil {
				t.Fatal(err)
			}
			b.Listen(ln, Listener{})
			return transporttest.Subject{Transport: b, Connect: func(device string) (transporttest.Peer, error) { return dialPeer(ln.Addr().String(), device) }}
		},
		Refusals: map[ingest.Reason]string{
			ingest.ReasonUndecodable: "0x99 expected an object at byte 0",
			ingest.ReasonCeiling:     "0x97 over the ingest ceiling",
			ingest.ReasonUnavailable: transporttest.Closed, // only on a new connection may a client send again
		},
		Holds: true,
	})
}

// suiteVerifier verifies the devices of the suite.
type suiteVerifier struct{ in *transporttest.Instance }

func (v suiteVerifier) Verify(_ context.Context, c Claim) (Proof, error) {
	b, ok := v.in.Verify(c.Tenant, c.ID)
	if !ok || c.Type != AccessToken {
		return Proof{}, errors.New("not authorized")
	}
	return Proof{Binding: b}, nil
}

// suitePeer is a device that publishes at QoS 1.
type suitePeer struct {
	conn  net.Conn
	topic string

	mu      sync.Mutex
	last    uint16
	waiting map[uint16]chan string
	ended   bool
}

func dialPeer(addr, device string) (*suitePeer, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	id := transporttest.InstanceID + ":" + transporttest.Tenant + ":" + device
	_, _ = conn.Write(connectPacket(mqtt5, func(h *hello) { h.clientID, h.user = id, transporttest.Tenant+":"+transporttest.Token(device) }))
	in := bufio.NewReader(conn)
	kind, body, err := nextPacket(in)
	if err != nil || kind != pktConnack || body[1] != codeSuccess {
		conn.Close()
		return nil, fmt.Errorf("CONNACK % x: %w", body, err)
	}
	p := &suitePeer{conn: conn, topic: topicsOf(transporttest.InstanceID, transporttest.Tenant, device).events, waiting: map[uint16]chan string{}}
	go p.read(in)
	return p, nil
}

func nextPacket(in *bufio.Reader) (kind byte, body []byte, err error) {
	header, size, err := fixedHeader(in)
	if err != nil {
		return 0, nil, err
	}
	body = make([]byte, size)
	_, err = io.ReadFull(in, body)
	return header >> 4, body, err
}

// read gives each PUBACK to the send that waits for it.
func (p *suitePeer) read(in *bufio.Reader) {
	for {
		kind, body, err := nextPacket(in)
		p.mu.Lock()
		if err != nil {
			p.ended = true
			p.conn.Close()
			for _, answer := range p.waiting {
				answer <- transporttest.Closed
			}
			p.mu.Unlock()
			return
		}
		if kind == pktPuback {
			id := uint16(body[0])<<8 | uint16(body[1])
			p.waiting[id] <- pubackWord(body)
			delete(p.waiting, id)
		}
		p.mu.Unlock()
	}
}

// pubackWord is the code and the reason string of a PUBACK that refuses.
func pubackWord(body []byte) string {
	if len(body) < 3 {
		return transporttest.Acknowledged
	}
	return fmt.Sprintf("%#x %s", body[2], body[7:])
}

func (p *suitePeer) Send(value float64) <-chan string {
	return p.publish(fmt.Sprintf(`{"eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"%v"}}]}}`, value))
}

func (p *suitePeer) Garbage() <-chan string { return p.publish("temp=21") }

func (p *suitePeer) Close() { p.conn.Close() }

func (p *suitePeer) publish(payload string) <-chan string {
	answer := make(chan string, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		answer <- transporttest.Closed
		return answer
	}
	p.last++
	p.waiting[p.last] = answer
	_, _ = p.conn.Write(publishPacket(mqtt5, qos1, p.topic, p.last, payload)) // read notices when the connection has ended
	return answer
}
