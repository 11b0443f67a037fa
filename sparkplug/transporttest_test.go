package sparkplug

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/ingest"
	"weir/ingest/links"
	"weir/ingest/transporttest"
	"weir/internal/test/mqttpeer"
	"weir/model"
	"weir/presence"
	"weir/registry"
)

// TestTransport: a host shows what every transport must, to nodes at the broker that it reads. A node is never answered, so what a peer of the suite is
// told is what the intake has told the host: stored, or why not.
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
			tr := New(Config{InstanceID: transporttest.InstanceID, Node: "1", Timing: presence.Timing{Grace: time.Hour, Check: time.Hour},
				Settings: Settings{Sources: []Source{{Tenant: transporttest.Tenant, HostID: "weir", Broker: Broker{URL: "tcp://127.0.0.1:" + b.Port()}, RebirthsPerSecond: 10}}}},
				Deps{Intake: suiteIntake{in.Intake, b}, Tenant: func(token string) (int64, bool, bool) { return 1, true, token == transporttest.Tenant }, Accepting: func() bool { return true },
					Adopt: func(_ context.Context, a registry.Adoption) (model.Binding, bool, error) {
						device := strings.TrimPrefix(a.ExternalID, "g/")
						bound, ok := in.Verify(a.Tenant, transporttest.Token(device))
						if !ok {
							return bound, false, registry.ErrNotAdopted
						}
						return bound, false, nil
					},
					Link: links.New(func() time.Duration { return 0 }).Link, Dial: (&net.Dialer{}).DialContext})
			return transporttest.Subject{Transport: tr, Connect: b.connect}
		},
		Refusals: map[ingest.Reason]string{
			ingest.ReasonCeiling:      string(ingest.ReasonCeiling),
			ingest.ReasonBackpressure: string(ingest.ReasonBackpressure),
			ingest.ReasonUnavailable:  string(ingest.ReasonUnavailable),
		},
		Source: "sparkplug:weir",
		Extra:  2, // the own STATE, and a birth
	})
}

// suiteIntake tells the peers of the suite what became of their messages. A host judges the messages of a source in their order, one after the other.
type suiteIntake struct {
	*ingest.Intake
	b *suiteBroker
}

func (i suiteIntake) Accept(ctx context.Context, a *ingest.Arrival, done func(ingest.Answer)) {
	answer := i.b.next()
	i.Intake.Accept(ctx, a, func(got ingest.Answer) {
		done(got)
		if got.Outcome == ingest.Stored {
			answer <- transporttest.Acknowledged
		} else {
			answer <- string(got.Reason)
		}
	})
}

func (i suiteIntake) Drop(p ingest.Packet, reason ingest.Reason) {
	i.Intake.Drop(p, reason)
	i.b.next() <- string(reason)
}

// suiteBroker is a broker to which nodes publish.
type suiteBroker struct {
	*mqttpeer.Broker

	mu      sync.Mutex
	session uint64
	waiting []chan string // of what was published and not yet judged
}

func newSuiteBroker(t *testing.T) *suiteBroker {
	b := &suiteBroker{}
	b.Broker = &mqttpeer.Broker{OnPublish: func(m mqttpeer.Message) (byte, bool) {
		if strings.Contains(m.Topic, "/STATE/") && strings.Contains(m.Payload, `"online":true`) {
			go b.Deliver(mqttpeer.Delivery{Topic: m.Topic, Payload: m.Payload})
		}
		return 0, true
	}}
	mqttpeer.Start(t, b.Broker, nil, false)
	return b
}

func (b *suiteBroker) next() chan string {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := b.waiting[0]
	b.waiting = b.waiting[1:]
	return first
}

// connect gives birth to a node, whose name is that of the device. Its metric has no value yet: a birth is no reading.
func (b *suiteBroker) connect(device string) (transporttest.Peer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session++
	e := newEdge()
	e.node, e.bdSeq, e.at = device, b.session, uint64(time.Now().UnixMilli())
	body := e.next().msg(2, pb{}.text(1, "bdSeq").varint(4, uint64(Int64)).varint(11, e.bdSeq)).
		msg(2, pb{}.text(1, "temp").varint(2, alias("", "temp")).varint(4, uint64(Double)).varint(7, 1))
	if b.Deliver(mqttpeer.Delivery{Topic: "spBv1.0/g/NBIRTH/" + device, Payload: string(body)}) == 0 {
		return nil, errors.New("nobody reads the broker")
	}
	return &suitePeer{b, e}, nil
}

// suitePeer is a node.
type suitePeer struct {
	b *suiteBroker
	e *edge
}

func (p *suitePeer) Send(value float64) <-chan string {
	return p.publish(func() []byte { return p.e.data("", "temp", value).body })
}

func (p *suitePeer) Garbage() <-chan string {
	return p.publish(func() []byte { p.e.seq++; return []byte{0xff} })
}

func (*suitePeer) Close() {}

func (p *suitePeer) publish(body func() []byte) <-chan string {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	answer := make(chan string, 1)
	p.b.waiting = append(p.b.waiting, answer)
	if p.b.Deliver(mqttpeer.Delivery{Topic: "spBv1.0/g/NDATA/" + p.e.node, Payload: string(body())}) == 0 {
		p.b.waiting = p.b.waiting[:len(p.b.waiting)-1]
		answer <- transporttest.Closed
	}
	return answer
}
