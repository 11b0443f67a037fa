package httpingest_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"weir/httpingest"
	"weir/ingest"
	"weir/ingest/transporttest"
)

// TestTransport: HTTP shows what every transport must. It verifies each message by itself, so a connection proves nothing.
func TestTransport(t *testing.T) {
	transporttest.Run(t, transporttest.Adapter{
		New: func(t *testing.T, in *transporttest.Instance) transporttest.Subject {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			h, err := httpingest.New(httpingest.Config{InstanceID: transporttest.InstanceID, Source: transporttest.Source},
				httpingest.Deps{Intake: in.Intake, Listeners: []httpingest.Listener{{Listener: ln}}})
			if err != nil {
				t.Fatal(err)
			}
			url := fmt.Sprintf("http://%s/%s/%s/events", ln.Addr(), transporttest.InstanceID, transporttest.Tenant)
			return transporttest.Subject{Transport: h, Connect: func(device string) (transporttest.Peer, error) {
				return &peer{url: url, device: device, client: &http.Client{Transport: new(http.Transport)}}, nil
			}}
		},
		Refusals: map[ingest.Reason]string{
			ingest.ReasonUndecodable:     "400 expected an object at byte 0",
			ingest.ReasonCeiling:         "429 1 the tenant is over its ingest ceiling",
			ingest.ReasonUnauthenticated: "429 1 over the ingest ceiling",
			ingest.ReasonBackpressure:    "503 10 the instance has no room for new events",
			ingest.ReasonUnavailable:     "503 the event could not be stored",
		},
	})
}

// peer posts events over a client of its own.
type peer struct {
	url, device string
	client      *http.Client
}

func (p *peer) Send(value float64) <-chan string {
	return p.post(fmt.Sprintf(`{"device":%q,"credentialType":"ACCESS_TOKEN","credentialId":%q,"eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"%v"}}]}}`,
		p.device, transporttest.Token(p.device), value))
}

func (p *peer) Garbage() <-chan string { return p.post("temp=21") }

func (p *peer) Close() { p.client.CloseIdleConnections() }

func (p *peer) post(body string) <-chan string {
	answer := make(chan string, 1)
	go func() {
		res, err := p.client.Post(p.url, "application/json", strings.NewReader(body))
		if err != nil {
			answer <- transporttest.Closed
			return
		}
		defer res.Body.Close()
		var text bytes.Buffer
		_, _ = text.ReadFrom(res.Body) // what is missing of it does not compare
		if res.StatusCode == http.StatusAccepted {
			answer <- transporttest.Acknowledged
			return
		}
		answer <- strings.Join(strings.Fields(fmt.Sprintf("%d %s %s", res.StatusCode, res.Header.Get("Retry-After"), text.String())), " ")
	}()
	return answer
}
