package gql

import (
	"net/http"
	"testing"

	"github.com/coder/websocket"
)

const countsQuery = `subscription { counts }`

// TestAConnectionIsAuthenticatedInEverySpellingThatClientsUse: each of these must open a subscription that an anonymous
// connection is refused.
func TestAConnectionIsAuthenticatedInEverySpellingThatClientsUse(t *testing.T) {
	for name, c := range map[string]struct{ header, payload string }{
		"Authorization with Bearer":           {"", `{"Authorization":"Bearer good"}`},
		"Authorization without Bearer":        {"", `{"Authorization":"good"}`},
		"authorization":                       {"", `{"authorization":"Bearer good"}`},
		"AUTHORIZATION, bearer in lower case": {"", `{"AUTHORIZATION":"bearer  good "}`},
		"token":                               {"", `{"token":"good"}`},
		"Token with Bearer":                   {"", `{"Token":"Bearer good"}`},
		"accessToken":                         {"", `{"accessToken":"good"}`},
		"accesstoken with Bearer":             {"", `{"accesstoken":"Bearer good"}`},
		"headers.Authorization":               {"", `{"headers":{"Authorization":"Bearer good"}}`},
		"headers.authorization":               {"", `{"Headers":{"authorization":"good"}}`},
		"the same token twice":                {"", `{"Authorization":"Bearer good","authToken":"x","token":"good"}`},
		"an empty one beside it":              {"", `{"Authorization":"","token":"good","headers":"none"}`},
		"the header of the upgrade":           {"Bearer good", ``},
		"the header, with an empty payload":   {"bearer good", `{}`},
		"the header without Bearer":           {"good", `null`},
		"the payload before the header":       {"Bearer bad", `{"token":"good"}`},
		"the payload beside a proxy's scheme": {"Basic Z29vZDpnb29k", `{"token":"good"}`},
	} {
		t.Run(name, func(t *testing.T) {
			inSocketWorld(t, Config{}, func(t *testing.T, w *socketWorld) {
				s := w.begin(t, c.header, c.payload)
				s.expect(`{"type":"connection_ack"}`)
				s.subscribe("1", `{ free }`)
				s.expect(`{"id":"1","type":"next","payload":{"data":{"free":"ada"}}}`, `{"id":"1","type":"complete"}`)
			})
		})
	}
}

func TestAnUpgradeHeaderThatIsNoTokenLeavesTheConnectionAnonymous(t *testing.T) {
	inSocketWorld(t, Config{}, func(t *testing.T, w *socketWorld) {
		s := w.begin(t, "Basic Z29vZDpnb29k", "")
		s.expect(`{"type":"connection_ack"}`)
		s.subscribe("1", countsQuery)
		s.expect(`{"id":"1","type":"error","payload":[{"message":"unauthenticated: a token is required","extensions":{"code":"UNAUTHENTICATED"}}]}`)
	})
}

func TestABadTokenInTheUpgradeHeaderEndsTheConnection(t *testing.T) {
	inSocketWorld(t, Config{}, func(t *testing.T, w *socketWorld) {
		w.begin(t, "Bearer bad", "").expectClose(closeUnauthorized)
	})
}

// TestAPageOfAnotherHostNeedsAToken: it could try passwords from inside of the network of its reader.
func TestAPageOfAnotherHostNeedsAToken(t *testing.T) {
	inSocketWorld(t, Config{}, func(t *testing.T, w *socketWorld) {
		from := http.Header{"Origin": {"http://evil.example"}}
		w.beginWith(t, from, "").expectClose(closeUnauthorized)
		w.beginWith(t, from, `{"Authorization":"Bearer good"}`).expect(`{"type":"connection_ack"}`)
	})
}

// begin dials with an Authorization header and sends connection_init with a payload; "" leaves either out.
func (w *socketWorld) begin(t *testing.T, header, payload string) *testSocket {
	t.Helper()
	h := http.Header{}
	if header != "" {
		h.Set("Authorization", header)
	}
	return w.beginWith(t, h, payload)
}

// beginWith is begin with any headers.
func (w *socketWorld) beginWith(t *testing.T, h http.Header, payload string) *testSocket {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), "ws://weir/graphql", &websocket.DialOptions{HTTPClient: w.client, Subprotocols: []string{subprotocol}, HTTPHeader: h})
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	s := &testSocket{t: t, conn: conn}
	if payload != "" {
		payload = `,"payload":` + payload
	}
	s.send(`{"type":"connection_init"` + payload + `}`)
	return s
}
