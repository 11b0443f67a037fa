package edge

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/internal/edgewire"
	"weir/internal/test/mqttpeer"
)

// takesFrames has a Weir above take frames. refuse says with which code a message is refused; nil: with none.
func (w *weirAbove) takesFrames(t *testing.T, whole func(*edgewire.Frame) byte, refuse func(m *edgewire.FrameMessage) byte) (got func() []*edgewire.Frame) {
	w.frames = true
	var frames []*edgewire.Frame
	rest := w.OnPublish
	w.OnPublish = func(m mqttpeer.Message) (byte, bool) {
		if m.Topic != "weir/acme/edges/gw/frames" {
			return rest(m)
		}
		f, err := edgewire.ParseFrame([]byte(m.Payload))
		if err != nil {
			t.Error(err)
			return 0x99, true
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if whole != nil {
			if code := whole(f); code != 0 {
				return code, true
			}
		}
		frames = append(frames, f)
		said, refused := edgewire.Framed{Kind: edgewire.KindFramed, Frame: f.ID, Codes: make([]byte, len(f.Messages))}, false
		link := strings.TrimPrefix(f.Link(), "edge:")
		for i := range f.Messages {
			if refuse != nil {
				if code := refuse(&f.Messages[i]); code != 0 {
					said.Codes[i], refused = code, true
					continue
				}
			}
			s := w.have[link]
			s.Add(f.Messages[i].Number, 64)
			w.have[link] = s
		}
		if !refused {
			return 0, true
		}
		w.say(said)
		return edgewire.CodeSomeRefused, true
	}
	return func() []*edgewire.Frame {
		w.mu.Lock()
		defer w.mu.Unlock()
		return frames
	}
}

func withFrames(s *Settings) {
	s.AgentID, s.Uplink.Username, s.Uplink.Frames = "gw", "acme:secret", true
}

// backlogOf is the directory of an edge at which messages wait.
func backlogOf(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	s := openSite(t, dir, refusingAddress(t), nil, withFrames)
	for i := range n {
		s.take(t, event(i))
	}
	s.stop()
	return dir
}

// TestMessagesGoUpInFrames: what was refused of one becomes a dead letter, or is sent again, as its code says.
func TestMessagesGoUpInFrames(t *testing.T) {
	t.Parallel()
	const waiting = 300
	w := startWeirAbove(t)
	busy := map[uint64]bool{9: true}
	got := w.takesFrames(t, nil, func(m *edgewire.FrameMessage) byte {
		switch {
		case m.Number == 7:
			return 0x87
		case m.Number == 8:
			return 0x99
		case busy[m.Number]:
			delete(busy, m.Number)
			return 0x97
		}
		return 0
	})
	s := openSite(t, backlogOf(t, waiting), "127.0.0.1:"+w.Port(), nil, withFrames)
	s.drained(t)
	frames := got()
	if len(frames) > 8 || len(frames) < 2 {
		t.Errorf("%d frames", len(frames))
	}
	if f := frames[0]; f.Messages[0].Number != 1 || f.Messages[0].Device != "pump" || !strings.Contains(string(f.Messages[0].Payload), `"occurredTime":`) || strings.Contains(string(f.Messages[0].Payload), "altId") {
		t.Errorf("%+v %s", f.Messages[0], f.Messages[0].Payload)
	}
	if out := s.outcomes(t); out["stored"] != waiting-2 || out["dead-letter"] != 2 {
		t.Errorf("%v", out)
	}
	letters, err := s.DeadLetters(10)
	if err != nil || len(letters) != 2 || letters[0].Reason != "undecodable" || letters[1].Reason != "not-authorized" || !strings.HasSuffix(letters[1].Number, ":7") {
		t.Errorf("%+v, %v", letters, err)
	}
	if n := len(w.relayed()); n != 0 {
		t.Errorf("%d messages went up alone", n)
	}
}

// TestAFrameThatIsRefusedAlmostWhole: the names of so many messages fit into what an edge takes, and it sends them again.
func TestAFrameThatIsRefusedAlmostWhole(t *testing.T) {
	t.Parallel()
	const waiting = 2000
	w := startWeirAbove(t)
	frames := 0
	got := w.takesFrames(t, func(*edgewire.Frame) byte { frames++; return 0 }, func(m *edgewire.FrameMessage) byte {
		if frames == 1 && m.Number%3 != 0 {
			return 0x97
		}
		return 0
	})
	s := openSite(t, backlogOf(t, waiting), "127.0.0.1:"+w.Port(), nil, withFrames)
	s.drained(t)
	if n := len(got()[0].Messages); n < 1000 {
		t.Errorf("the first frame has %d messages", n)
	}
	if out := s.outcomes(t); out["stored"] != waiting || len(out) != 1 {
		t.Errorf("%v", out)
	}
}

// TestAFrameOfWhichNothingIsSaid: its messages are sent again, the numbers are known above.
func TestAFrameOfWhichNothingIsSaid(t *testing.T) {
	t.Parallel()
	now := framedWithin
	counted := prometheus.NewCounter(prometheus.CounterOpts{})
	f := &forwarder{e: &Edge{metrics: &metrics{errors: counted}, log: slog.New(slog.DiscardHandler), deps: Deps{Now: func() (time.Time, time.Duration) { return time.Time{}, now }}}}
	x := &flight{at: 1, number: 1, stage: sent}
	one := &frame{id: 1, flights: []*flight{x}, waits: true}
	f.framer, f.inFlight = &framer{sent: map[uint64]*frame{1: one, 2: {id: 2}}}, 1
	if f.overdue(); x.stage != sent {
		t.Error("it does not wait")
	}
	now++
	if f.overdue(); x.stage != queued || len(f.queue) != 1 || f.inFlight != 0 || len(f.framer.sent) != 1 || testutil.ToFloat64(counted) != 1 {
		t.Errorf("%+v, %d wait, %d in flight", x, len(f.queue), f.inFlight)
	}
}

// TestAWeirThatRefusesFrames gets the messages one by one.
func TestAWeirThatRefusesFrames(t *testing.T) {
	t.Parallel()
	for _, code := range []byte{0x87, 0x99} {
		w := startWeirAbove(t)
		w.takesFrames(t, func(*edgewire.Frame) byte { return code }, nil)
		s := openSite(t, backlogOf(t, 50), "127.0.0.1:"+w.Port(), nil, withFrames)
		s.drained(t)
		if n := len(w.relayed()); n != 50 {
			t.Errorf("%#x: %d messages went up alone", code, n)
		}
		if out := s.outcomes(t); out["stored"] != 50 || len(out) != 1 {
			t.Errorf("%v", out)
		}
	}
}

// TestAPeerThatDoesNotSayThatItTakesFrames gets none.
func TestAPeerThatDoesNotSayThatItTakesFrames(t *testing.T) {
	t.Parallel()
	w := startWeirAbove(t)
	s := openSite(t, backlogOf(t, 20), "127.0.0.1:"+w.Port(), nil, withFrames)
	s.drained(t)
	if n := len(w.relayed()); n != 20 {
		t.Errorf("%d messages went up alone", n)
	}
}

// TestReasonCodesOfTheBrokerAbove: what each code makes of a message.
func TestReasonCodesOfTheBrokerAbove(t *testing.T) {
	t.Parallel()
	for code, want := range map[byte]string{0x00: "stored", 0x10: "stored", 0x87: "not-authorized", 0x99: "undecodable", 0x90: "undecodable", 0x95: "too-large", 0x97: "stored", 0x83: "stored", 0x80: "stored", 0x91: "stored"} {
		t.Run(fmt.Sprintf("%#x", code), func(t *testing.T) {
			t.Parallel()
			first := true
			up := mqttpeer.Start(t, &mqttpeer.Broker{OnPublish: func(mqttpeer.Message) (byte, bool) {
				if first {
					first = false
					return code, true
				}
				return 0, true
			}}, nil, false)
			s := openSite(t, t.TempDir(), "127.0.0.1:"+up.Port(), nil, nil)
			s.take(t, event(1))
			s.take(t, event(2))
			s.drained(t)
			out := s.outcomes(t)
			letters, err := s.DeadLetters(10)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case want == "stored":
				if out["stored"] != 2 || len(letters) != 0 {
					t.Errorf("%v, %v", out, letters)
				}
			case out["stored"] != 1 || out["dead-letter"] != 1 || len(letters) != 1 || letters[0].Reason != want:
				t.Errorf("%v, %v", out, letters)
			}
		})
	}
}
