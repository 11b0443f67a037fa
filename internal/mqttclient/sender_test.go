package mqttclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"weir/internal/test/mqttpeer"
)

// TestASenderKeepsTheOrder: messages arrive in the order of the calls, without one waiting for another, and each gets its own code.
func TestASenderKeepsTheOrder(t *testing.T) {
	t.Parallel()
	b := mqttpeer.Start(t, &mqttpeer.Broker{OnPublish: func(m mqttpeer.Message) (byte, bool) {
		if m.Payload == "7" {
			return 0x97, true
		}
		return 0, true
	}}, nil, false)
	s, err := OpenSender(t.Context(), SenderOptions{Options: Options{URL: "tcp://127.0.0.1:" + b.Port(), Dial: dial, Username: "u", Password: "p"}, Window: 2000})
	if err != nil {
		t.Fatal(err)
	}
	const n = 1000
	var all sync.WaitGroup
	all.Add(n)
	var mu sync.Mutex
	codes := map[byte]int{}
	for i := range n {
		if err := s.Send(Message{Topic: "t", Payload: fmt.Append(nil, i), Properties: [][2]string{{"idempotency_key", "k"}}}, func(code byte) {
			mu.Lock()
			codes[code]++
			mu.Unlock()
			all.Done()
		}); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	got := b.Messages()
	if len(got) != n-1 || codes[0] != n-1 || codes[0x97] != 1 {
		t.Fatalf("%d messages, codes %v", len(got), codes)
	}
	for i, m := range got {
		want := i
		if i >= 7 {
			want++
		}
		if m.Payload != fmt.Sprint(want) || m.Key != "k" || m.QoS != 1 {
			t.Fatalf("message %d is %v", i, m)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Send(Message{Topic: "t"}, func(byte) {}); err == nil {
		t.Error("a closed sender sends")
	}
}

// answers plays a broker that answers the CONNECT with the given bytes, and nothing else.
func answers(says []byte) Dial {
	return func(context.Context, string, string) (net.Conn, error) {
		return &script{Reader: bytes.NewReader(says), closed: make(chan struct{})}, nil
	}
}

func TestWhatASenderIsGranted(t *testing.T) {
	t.Parallel()
	open := func(v311 bool, says ...byte) (*Sender, error) {
		return OpenSender(t.Context(), SenderOptions{Options: Options{URL: "tcp://h:1", Dial: answers(says), Timeout: time.Second}, V311: v311})
	}
	s, err := open(false, 0x20, 9, 0, 0, 6, 0x21, 0, 20, 0x13, 0, 7)
	if err != nil || s.Window() != 20 || s.pinging != 7*time.Second {
		t.Fatal(s, err)
	}
	_ = s.Close()
	if s, err = open(true, 0x20, 2, 0, 0); err != nil || s.V5() {
		t.Fatal(err)
	}
	_ = s.Close()
	for name, c := range map[string]struct {
		says []byte
		want error
	}{
		"3.1.1 only":           {[]byte{0x20, 2, 0, 1}, ErrNoMQTT5},
		"unsupported version":  {[]byte{0x20, 3, 0, 0x84, 0}, ErrNoMQTT5},
		"QoS 0 only":           {[]byte{0x20, 5, 0, 0, 2, 0x24, 0}, ErrQoS},
		"no CONNACK":           {[]byte{0x40, 2, 0, 1}, ErrMalformed},
		"a packet without end": {[]byte{0x20, 0xff, 0xff, 0xff, 0xff, 0x7f}, ErrMalformed},
		"a large packet":       {[]byte{0x20, 0xff, 0xff, 0x7f}, ErrMalformed},
		"properties that lie":  {[]byte{0x20, 5, 0, 0, 0xff, 0xff, 0x7f}, ErrMalformed},
	} {
		if _, err := open(false, c.says...); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	_, err = open(false, 0x20, 3, 0, 0x87, 0)
	if r, ok := errors.AsType[*Refused](err); !ok || r.Code != 0x87 {
		t.Error(err)
	}
}

// TestASenderWhoseBrokerIsGone: a broker that does not answer a ping is taken for lost, and one that says anything does not harm.
func TestASenderWhoseBrokerIsGone(t *testing.T) {
	t.Parallel()
	silent := answers([]byte{0x20, 3, 0, 0, 0})
	s, err := OpenSender(t.Context(), SenderOptions{Options: Options{URL: "tcp://h:1", Dial: silent, Timeout: 20 * time.Millisecond}, KeepAlive: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if !errors.Is(s.Err(), ErrLost) {
		t.Error(s.Err())
	}
	_ = s.Close()
	for _, says := range hostile {
		playSender(t, says)
	}
}

// playSender sends twice to a broker that says what it says.
func playSender(t testing.TB, says []byte) {
	conn := &script{Reader: bytes.NewReader(says), closed: make(chan struct{})}
	defer conn.Close()
	s, err := OpenSender(t.Context(), SenderOptions{Options: Options{URL: "tcp://h:1", Timeout: 20 * time.Millisecond,
		Dial: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}, KeepAlive: 20 * time.Millisecond})
	if err != nil {
		return
	}
	for range 2 {
		_ = s.Send(Message{Topic: "t"}, func(byte) {}) // the broker may have ended it
	}
	_ = s.Close()
}

func FuzzABrokerThatSaysAnythingToASender(f *testing.F) {
	for _, says := range hostile {
		f.Add(says)
	}
	f.Add([]byte{0x20, 3, 0, 0, 0, 0x40, 2, 0, 1, 0x40, 4, 0, 2, 0x97, 0, 0xd0, 0, 0xe0, 0})
	f.Fuzz(func(t *testing.T, says []byte) { playSender(t, says) })
}

// TestAMessageThatIsTooLargeForTheBroker is known before it is sent.
func TestAMessageThatIsTooLargeForTheBroker(t *testing.T) {
	t.Parallel()
	s, err := OpenSender(t.Context(), SenderOptions{Options: Options{URL: "tcp://h:1", Dial: answers([]byte{0x20, 8, 0, 0, 5, 0x27, 0, 0, 0, 100})}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	overhead := len(emptyPublish(t, "t", 1))
	if err := s.Send(Message{Topic: "t", Payload: make([]byte, 100-overhead)}, func(byte) {}); err != nil {
		t.Error(err)
	}
	if err := s.Send(Message{Topic: "t", Payload: make([]byte, 101-overhead)}, func(byte) {}); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

// emptyPublish is an empty message as the library writes it.
func emptyPublish(t *testing.T, topic string, id uint16) []byte {
	t.Helper()
	p := packets.NewControlPacket(packets.PUBLISH)
	c := p.Content.(*packets.Publish)
	c.Topic, c.QoS, c.PacketID = topic, 1, id
	var b bytes.Buffer
	if _, err := p.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
