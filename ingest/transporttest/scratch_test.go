package transporttest_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/ingest"
	"weir/ingest/transporttest"
	"weir/model"
)

// scratch is a transport that Weir does not have: lines of "name value" in memory, which it decodes itself. A connection is
// verified once; a full log holds its peer.
type scratch struct {
	in   *transporttest.Instance
	shut chan struct{}
	once sync.Once
	work sync.WaitGroup

	mu       sync.Mutex
	peers    map[*scratchPeer]bool
	state    ingest.SourceState
	since    time.Time
	received int64
	last     time.Time
}

var _ ingest.Transport = (*scratch)(nil)

func (s *scratch) Name() string { return "scratch" }

func (s *scratch) Run(ctx context.Context) error {
	s.enter(ingest.SourceUp)
	select {
	case <-s.shut:
	case <-ctx.Done():
	}
	return nil
}

func (s *scratch) Close(context.Context) error {
	s.enter(ingest.SourceShut)
	s.once.Do(func() { close(s.shut) })
	s.work.Wait()
	s.Drop(func(model.Binding) bool { return true })
	return nil
}

func (s *scratch) Drop(match func(model.Binding) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.peers {
		if match(p.binding) {
			p.end()
		}
	}
}

func (s *scratch) Sources() []ingest.SourceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []ingest.SourceStatus{{ID: transporttest.Source, Kind: s.Name(), State: s.state, Since: s.since, LastMessage: s.last,
		Counts: ingest.SourceCounts{Connected: int64(len(s.peers)), Received: s.received}}}
}

func (s *scratch) enter(state ingest.SourceState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.since = state, time.Now()
}

func (s *scratch) connect(device string) (transporttest.Peer, error) {
	binding, ok := s.in.Verify(transporttest.Tenant, transporttest.Token(device))
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok || s.state == ingest.SourceShut {
		return nil, errors.New("turned away")
	}
	p := &scratchPeer{s: s, binding: binding}
	p.life, p.end = context.WithCancel(context.Background())
	s.peers[p] = true
	return p, nil
}

type scratchPeer struct {
	s       *scratch
	binding model.Binding
	life    context.Context
	end     context.CancelFunc
}

func (p *scratchPeer) Send(v float64) <-chan string {
	return p.line("temp " + strconv.FormatFloat(v, 'g', -1, 64))
}

func (p *scratchPeer) Garbage() <-chan string { return p.line(strings.Repeat("x", 200) + " 1") }

func (p *scratchPeer) Close() {
	p.end()
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	delete(p.s.peers, p)
}

// line decodes a line and hands it over.
func (p *scratchPeer) line(text string) <-chan string {
	answer := make(chan string, 1)
	if p.life.Err() != nil {
		answer <- transporttest.Closed
		return answer
	}
	name, value, _ := strings.Cut(text, " ")
	v, _ := strconv.ParseFloat(value, 64)
	a := &ingest.Arrival{Transport: p.s.Name(), Source: transporttest.Source, Tenant: p.binding.Tenant, Topic: p.binding.Device, Body: []byte(text), Conn: &p.binding,
		HoldFor: -1, Message: &model.Message{Type: model.MeasurementEvent, Measurements: []model.Reading{{Metric: name, Value: v}}}}
	p.s.mu.Lock()
	p.s.received, p.s.last = p.s.received+1, time.Now()
	p.s.mu.Unlock()
	p.s.work.Go(func() {
		answered := make(chan struct{})
		p.s.in.Intake.Accept(p.life, a, func(an ingest.Answer) {
			defer close(answered)
			switch an.Outcome {
			case ingest.Stored, ingest.Dropped:
				answer <- transporttest.Acknowledged
			case ingest.Refused:
				answer <- an.Text
			}
		})
		<-answered
	})
	return answer
}

// TestAScratchTransport: a transport that no package knows passes the suite: what it decodes is stored in a running instance,
// through kills and replays.
func TestAScratchTransport(t *testing.T) {
	transporttest.Run(t, transporttest.Adapter{
		New: func(_ *testing.T, in *transporttest.Instance) transporttest.Subject {
			s := &scratch{in: in, shut: make(chan struct{}), peers: map[*scratchPeer]bool{}, state: ingest.SourceDown}
			return transporttest.Subject{Transport: s, Connect: s.connect}
		},
		Refusals: map[ingest.Reason]string{
			ingest.ReasonUndecodable: "a metric's name must have 1 to 128 characters",
			ingest.ReasonCeiling:     "over the ingest ceiling",
		},
		Holds: true,
	})
}
