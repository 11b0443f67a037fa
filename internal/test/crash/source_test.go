package crash_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"weir/internal/test/testweir"
)

// source sends the values base+1, base+2, … of the metric n and never gives up on a message: what was not acknowledged when
// the process died is sent again, as the same message, before anything new. So an instance must hold a prefix of its
// messages, each value once: all that were acknowledged, and at most those that were sent.
type source struct {
	tenant, device, token string
	client                string // what its client id has behind the device: with it, the device may have other sessions

	http  bool
	per   int           // readings in a message
	base  int           // of its values
	ago   time.Duration // its events happened so long before
	wave  bool          // with a second metric, on which the rules of the tenant fire
	swing bool          // the second metric is high and low in turn

	acked int      // messages up to here were acknowledged
	sent  int      // messages up to here were sent at least once
	at    []string // time of the events of each message sent: with the altId it is what makes a retry the same event
}

// waveOf is the second metric of a value.
func waveOf(value int) int { return value % 100 }

// window is how many messages an MQTT source has in flight.
const window = 16

func (s *source) body(n int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"eventType":"Measurement","payload":{"entries":[`)
	for i := range s.per {
		if i > 0 {
			b.WriteByte(',')
		}
		value := s.base + (n-1)*s.per + i + 1
		fmt.Fprintf(&b, `{"measurements":{"n":"%d"`, value)
		switch {
		case s.wave:
			fmt.Fprintf(&b, `,"wave":"%d"`, waveOf(value))
		case s.swing:
			fmt.Fprintf(&b, `,"wave":"%d"`, value%2*99)
		}
		b.WriteString("}}")
	}
	b.WriteString("]}")
	if s.http {
		for len(s.at) < n {
			s.at = append(s.at, time.Now().Add(-s.ago).UTC().Format(time.RFC3339Nano))
		}
		fmt.Fprintf(&b, `,"altId":"n%d","occurredTime":%q,"credentialType":"ACCESS_TOKEN","credentialId":%q`, s.base+n, s.at[n-1], s.token)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// run sends up to most new messages, until stop is closed or the process is gone. What was begun before is brought to its
// end first.
func (s *source) run(p *testweir.Proc, most int, stop <-chan struct{}, r *rand.Rand) {
	if s.http {
		s.runHTTP(p, s.acked+most, stop, r)
		return
	}
	s.runMQTT(p, s.acked+most, stop)
}

func (s *source) runMQTT(p *testweir.Proc, end int, stop <-chan struct{}) {
	m, err := testweir.DialMQTT(p.MQTT, "weir", s.tenant, s.device+s.client, s.token)
	if err != nil {
		return // the process is gone already
	}
	defer m.Close()
	topic := "weir/" + s.tenant + "/devices/" + s.device + "/events"
	id := func(n int) uint16 { return uint16(n%60000 + 1) }
	next := s.acked + 1
	for {
		select {
		case <-stop:
			end = 0
		default:
		}
		last := min(s.acked+window, max(end, s.sent))
		if s.acked >= last {
			return
		}
		for ; next <= last; next++ {
			if err := m.Publish(topic, id(next), next <= s.sent, s.body(next)); err != nil {
				return
			}
			s.sent = max(s.sent, next)
		}
		got, err := m.Puback()
		if err != nil {
			return
		}
		if got != id(s.acked+1) {
			panic(fmt.Sprintf("%s: PUBACK %d out of order, expected %d", s.device, got, id(s.acked+1)))
		}
		s.acked++
	}
}

func (s *source) runHTTP(p *testweir.Proc, end int, stop <-chan struct{}, r *rand.Rand) {
	c := &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
	defer c.CloseIdleConnections()
	for s.acked < max(end, s.sent) {
		select {
		case <-stop:
			if s.acked == s.sent {
				return
			}
		default:
		}
		s.sent = s.acked + 1
		if !s.post(c, p, s.sent) {
			return
		}
		s.acked++
		if r.IntN(8) == 0 && !s.post(c, p, s.acked) { // again, on purpose
			return
		}
	}
}

func (s *source) post(c *http.Client, p *testweir.Proc, n int) bool {
	return post(c, p, s.tenant, s.body(n))
}

func post(c *http.Client, p *testweir.Proc, tenant string, body []byte) bool {
	return postTo(c, p, tenant+"/events", "", body)
}

// report posts a device report.
func report(c *http.Client, p *testweir.Proc, tenant, device, token, body string) bool {
	return postTo(c, p, tenant+"/device-reports/"+device, token, []byte(body))
}

func postTo(c *http.Client, p *testweir.Proc, path, token string, body []byte) bool {
	req, err := http.NewRequest(http.MethodPost, p.Ingest+"/weir/"+path, bytes.NewReader(body))
	if err != nil {
		return false
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(req)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusAccepted
}

// fires are how often the rules must have fired on the first messages of a source.
func (s *source) fires(messages int, rules map[string]int, into map[string]int) {
	if !s.wave {
		return
	}
	for rule, limit := range rules {
		raised := false
		for v := s.base + 1; v <= s.base+messages*s.per; v++ {
			if hit := waveOf(v) > limit; hit != raised {
				raised = hit
				into[rule]++
			}
		}
	}
}

func (s *source) String() string { return strings.Join([]string{s.tenant, s.device}, "/") }
