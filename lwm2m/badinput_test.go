package lwm2m

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/command"
	"weir/internal/test/lwm2mpeer"
	"weir/internal/test/poll"
)

// code is the code of an answer as it is written: 4.04.
func code(m *lwm2mpeer.Message) string { return fmt.Sprintf("%d.%02d", m.Code>>5, m.Code&31) }

// option numbers of RFC 7252 and RFC 7959.
const (
	ifMatch = 1
	uriPath = 11
	block1  = 27
)

func pathOf(segments ...string) (all []lwm2mpeer.Option) {
	for _, s := range segments {
		all = append(all, lwm2mpeer.Option{Number: uriPath, Value: []byte(s)})
	}
	return all
}

// TestWhatADeviceAsksWrongly gets its code, and the session goes on.
func TestWhatADeviceAsksWrongly(t *testing.T) {
	t.Parallel()
	in := &intakeOf{}
	s := live(t, in, &rowsOf{rows: map[int64]Registration{}}, Settings{MaxBody: 2048})
	c, err := lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: s.address, Identity: "meter", Key: []byte("0123456789abcdef"), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const post, put, get = 2, 3, 1
	long := strings.Repeat("x", 1024)
	block := func(number int, more bool) lwm2mpeer.Option { // of 1,024 bytes
		v := byte(number<<4) | 6
		if more {
			v |= 8
		}
		return lwm2mpeer.Option{Number: block1, Value: []byte{v}}
	}
	for _, one := range []struct {
		what    string
		code    byte
		options []lwm2mpeer.Option
		body    string
		want    string
	}{
		{"an unknown path", get, pathOf("well", "known"), "", "4.04"},
		{"an unknown method", get, pathOf("rd"), "", "4.05"},
		{"an unknown method of a registration", get, pathOf("rd", "x"), "", "4.05"},
		{"an unknown method of Send", put, pathOf("dp"), "", "4.05"},
		{"a critical option", post, append([]lwm2mpeer.Option{{Number: ifMatch, Value: []byte{1}}}, pathOf("rd")...), "</1/0>", "4.02"},
		{"the second block without the first", post, append(pathOf("rd"), block(1, true)), long, "4.08"},
		{"a body of several blocks", post, append(pathOf("rd"), block(0, true)), long, "2.31"},
		{"and its third block", post, append(pathOf("rd"), block(2, true)), long, "4.08"},
		{"a body that begins anew", post, append(pathOf("rd"), block(0, true)), long, "2.31"},
		{"its second block", post, append(pathOf("rd"), block(1, true)), long, "2.31"},
		{"and one beyond max_body", post, append(pathOf("rd"), block(2, true)), long, "4.13"},
		{"a Register without links", post, append(pathOf("rd"), query("ep=meter", "lt=300")...), "", "4.00"},
		{"a lifetime that is no number", post, append(pathOf("rd"), query("ep=meter", "lt=soon")...), "</1/0>", "4.00"},
		{"a version that is not known", post, append(pathOf("rd"), query("ep=meter", "lwm2m=2.0")...), "</1/0>", "4.12"},
		{"links that are none", post, append(pathOf("rd"), query("ep=meter")...), "</1/0", "4.00"},
		{"an Update of an unknown registration", post, pathOf("rd", "0123"), "", "4.04"},
		{"a De-register of an unknown registration", 4, pathOf("rd", "0123"), "", "4.04"},
		{"a Send of a device that is not registered", post, append(pathOf("dp"), lwm2mpeer.Option{Number: 12, Value: []byte{110}}), `[]`, "4.04"},
	} {
		answer, err := c.Ask(t.Context(), &lwm2mpeer.Message{Code: one.code, Token: "t", Options: one.options, Payload: []byte(one.body)})
		if err != nil {
			t.Fatalf("%s: %v", one.what, err)
		}
		if got := code(answer); got != one.want {
			t.Errorf("%s: %s, want %s", one.what, got, one.want)
		}
	}
	if _, err := c.Register(t.Context(), []string{"ep=meter", "lt=300", "lwm2m=1.1"}, "</1/0>"); err != nil {
		t.Fatalf("the session does not go on: %v", err)
	}
	for i := range 120 { // a body is one request, however small its blocks are
		v := byte(i<<4) | 8
		block := lwm2mpeer.Option{Number: block1, Value: []byte{byte(i >> 4), v}}
		answer, err := c.Ask(t.Context(), &lwm2mpeer.Message{Code: post, Token: "t", Options: append(pathOf("rd"), block), Payload: []byte("0123456789abcdef")})
		if err != nil || code(answer) != "2.31" {
			t.Fatalf("block %d of 16 bytes: %+v %v", i, answer, err)
		}
	}
	in.mu.Lock()
	in.ceiling = true
	in.mu.Unlock()
	if answer, err := c.Request(t.Context(), post, "/dp", nil, 110, []byte(`[{"n":"/3303/0/5700","v":3}]`)); err != nil || code(answer) != "4.29" || answer.Uint(14) != 3 {
		t.Errorf("a Send over the ceiling: %+v %v", answer, err)
	}
	in.mu.Lock()
	in.ceiling = false
	in.mu.Unlock()
	in.set(true)
	if answer, err := c.Request(t.Context(), post, "/dp", nil, 110, []byte(`[{"n":"/3303/0/5700","v":3}]`)); err != nil || code(answer) != "5.03" || answer.Uint(14) != 10 {
		t.Errorf("a Send at a full log: %+v %v", answer, err)
	}
}

func query(all ...string) (options []lwm2mpeer.Option) {
	for _, q := range all {
		options = append(options, lwm2mpeer.Option{Number: 15, Value: []byte(q)})
	}
	return options
}

// TestWhatADeviceNotifiesWrongly: a token that nothing observes is reset, what does not decode is acknowledged as a dead letter, and many readings are
// several messages.
func TestWhatADeviceNotifiesWrongly(t *testing.T) {
	t.Parallel()
	in := &intakeOf{}
	s := live(t, in, &rowsOf{rows: map[int64]Registration{}}, Settings{})
	relay, err := lwm2mpeer.NewRelay(s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	c := meterOf(t, relay, lwm2mpeer.Options{})
	if _, err := c.Register(t.Context(), []string{"ep=meter", "lt=300", "lwm2m=1.1"}, "</3303/0>"); err != nil {
		t.Fatal(err)
	}
	poll.True(t, "it is observed", func() bool { return c.Observed("/3303/0") })
	stray := c.Notification("/3303/0", 110, []byte(`[{"n":"/3303/0/5700","v":3}]`))
	stray.Token = "nobody"
	if answer, err := c.Ask(t.Context(), stray); err != nil || answer.Type != 3 {
		t.Errorf("a token that nothing observes: %+v %v", answer, err)
	}
	for format, body := range map[int]string{110: `[{"n":`, 112: "\xff", 11542: "\xc1"} {
		if answer, err := c.Notify(t.Context(), "/3303/0", format, []byte(body)); err != nil || answer.Type != 2 {
			t.Errorf("format %d that does not decode: %+v %v", format, answer, err)
		}
	}
	in.mu.Lock()
	if len(in.faults) != 3 || !strings.Contains(strings.Join(in.faults, " "), "/3303/0") {
		t.Errorf("dead letters: %q", in.faults)
	}
	in.mu.Unlock()
	for format, n := range map[string]float64{"senml-json": 1, "senml-cbor": 1, "tlv": 1} {
		if got := testutil.ToFloat64(s.metrics.decodeErrors.WithLabelValues(format)); got != n {
			t.Errorf("%v of %s do not decode", got, format)
		}
	}
	many := []string{`{"bn":"/3303/0/5700","v":300}`}
	for i := range 299 {
		many = append(many, fmt.Sprintf(`{"v":%d,"t":%d}`, i, -i-1))
	}
	if answer, err := c.Notify(t.Context(), "/3303/0", 110, []byte("["+strings.Join(many, ",")+"]")); err != nil || answer.Type != 2 {
		t.Fatalf("%+v %v", answer, err)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	large := slices.DeleteFunc(slices.Clone(in.sizes), func(n int) bool { return n == 1 }) // what answers the observation comes whenever it comes
	if len(large) != 2 || large[0]+large[1] != 300 {
		t.Errorf("300 readings are messages of %v", large)
	}
}

// TestADeviceThatSaysNothing: a command that it does not answer fails for want of an answer, and a format in which it says nothing is left for
// the next one.
func TestADeviceThatSaysNothing(t *testing.T) {
	t.Parallel()
	in := &intakeOf{}
	s := live(t, in, &rowsOf{rows: map[int64]Registration{}}, Settings{CommandTimeout: time.Second})
	var asked atomic.Int32
	c, err := lwm2mpeer.Dial(t.Context(), lwm2mpeer.Options{Server: s.address, Identity: "meter", Key: []byte("0123456789abcdef"), Timeout: time.Minute,
		Handle: func(m *lwm2mpeer.Message) *lwm2mpeer.Message {
			content := lwm2mpeer.Code2(2, 5)
			switch accept := m.Uint(17); {
			case m.Code == 5: // FETCH
				return nil
			case m.Path(uriPath) == "/1/0": // the first block, and no other
				if m.Uint(23) > 0 {
					return nil
				}
				return &lwm2mpeer.Message{Code: content, Options: []lwm2mpeer.Option{{Number: 12, Value: []byte{42}}, {Number: 23, Value: []byte{14}}}, Payload: make([]byte, 1024)}
			case m.Path(uriPath) != "/3303/0":
				return &lwm2mpeer.Message{Code: lwm2mpeer.Code2(4, 4)}
			case accept == 11542:
				return &lwm2mpeer.Message{Code: content, Options: []lwm2mpeer.Option{{Number: 12, Value: []byte{11542 >> 8, 11542 & 255}}}, Payload: []byte{0xe4, 0x16, 0x44, 0x41, 0xa8, 0, 0}}
			default:
				asked.Add(1)
				return &lwm2mpeer.Message{Code: content, Options: []lwm2mpeer.Option{{Number: 12, Value: []byte{byte(accept)}}}}
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Register(t.Context(), []string{"ep=meter", "lt=300", "lwm2m=1.1"}, "</3303/0>"); err != nil {
		t.Fatal(err)
	}
	poll.True(t, "the value is read as TLV", func() bool {
		in.mu.Lock()
		defer in.mu.Unlock()
		return len(in.readings) == 1 && in.readings[0] == 21
	})
	if asked.Load() < 2 {
		t.Errorf("%d formats were asked for before", asked.Load())
	}
	sess, r := s.reach(t.Context(), s.registered(7)), s.registered(7)
	for name, payload := range map[string]string{"lwm2m.readComposite": `{"paths":["/3303/0/5700"]}`, "lwm2m.read": `{"path":"/1/0"}`} {
		_, err := s.performed(sess, r, name, payload)
		if !errors.Is(err, errNoAnswer) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// performed performs a command.
func (l *life) performed(sess *session, r *registration, name, payload string) (string, error) {
	return l.perform(sess, r, command.Dispatch{Name: name, Payload: &payload})
}
