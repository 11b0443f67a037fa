package gql_test

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator/rules"

	"weir/gql"
	"weir/ingest"
	"weir/internal/hub"
	"weir/model"
	"weir/series"
)

// Every document of the console is one of the API as it is published: a change of the API that breaks the console fails without Node.
func TestTheDocumentsOfTheConsoleFitTheAPI(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../web/console/operations.json")
	if err != nil {
		t.Fatal(err)
	}
	var areas map[string]map[string]string
	if err := json.Unmarshal(raw, &areas); err != nil {
		t.Fatal(err)
	}
	n := 0
	for area, documents := range areas {
		sdl, err := gql.SDL(area)
		if err != nil {
			t.Fatal(err)
		}
		schema, err := gqlparser.LoadSchema(&ast.Source{Name: area, Input: sdl})
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range documents {
			n++
			doc, errs := gqlparser.LoadQueryWithRules(schema, text, rules.NewDefaultRules())
			if len(errs) > 0 {
				t.Errorf("%s, %s: %v", area, name, errs)
				continue
			}
			if len(doc.Operations) != 1 || doc.Operations[0].Name != name {
				t.Errorf("%s, %s: the operation has another name", area, name)
			}
		}
	}
	if n < 20 {
		t.Errorf("%d documents", n)
	}
}

// A subscriber of messageStream hears of its tenant alone.
func TestTheStreamOfMessagesKeepsTenantsApart(t *testing.T) {
	t.Parallel()
	tap := ingest.NewTap(func() model.Nanos { return 1 }, nil)
	s := gql.New(gql.Config{})
	gql.RegisterEvents(s.Area("event-management", gql.TenantPlane), gql.EventDeps{Readings: hub.New[series.Point]("m", nil),
		Messages: gql.MessageDeps{Tap: tap, MaxSkew: func() time.Duration { return time.Minute }}})
	if err := s.Build(); err != nil {
		t.Fatal(err)
	}
	listen := func(tenant string, id int64, args string) *websocket.Conn {
		t.Helper()
		server := httptest.NewServer(s.Handler("event-management", as(member(tenant, id, model.EventRead))))
		t.Cleanup(server.Close)
		conn, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), &websocket.DialOptions{Subprotocols: []string{"graphql-transport-ws"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.CloseNow() })
		query, err := json.Marshal("subscription { messageStream" + args + " { leftOut messages { deviceToken outcome reason connection values offset } } }")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []string{`{"type":"connection_init"}`, `{"type":"subscribe","id":"1","payload":{"query":` + string(query) + `}}`} {
			if err := conn.Write(t.Context(), websocket.MessageText, []byte(m)); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := conn.Read(t.Context()); err != nil { // connection_ack
			t.Fatal(err)
		}
		return conn
	}
	next := func(conn *websocket.Conn) string {
		t.Helper()
		_, b, err := conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := next(listen("acme", 1, `(outcome: "kept")`)); !strings.Contains(got, "INVALID_INPUT") || !strings.Contains(got, "dead-letter") {
		t.Errorf("an outcome that is none: %s", got)
	}
	acme, globex := listen("acme", 1, `(deviceToken: "d", unnamed: true)`), listen("globex", 2, "")
	// Each is subscribed once it hears its own: acme's messages are told until it does, globex's last.
	heard := make(chan string)
	go func() { heard <- next(acme) }()
	for told := ""; told == ""; {
		tap.ConnectionRefused("mqtt", "mqtt1", "acme", "d", "not-authorized", "", true)
		tap.ConnectionRefused("mqtt", "mqtt1", "acme", "e", "not-authorized", "", true)
		select {
		case told = <-heard:
			if !strings.Contains(told, `"deviceToken":"d","outcome":"refused","reason":"not-authorized","connection":true,"values":[],"offset":null`) || strings.Contains(told, `"e"`) {
				t.Errorf("acme hears %s", told)
			}
		default:
		}
	}
	go func() { heard <- next(globex) }()
	for told := ""; told == ""; {
		tap.ConnectionRefused("mqtt", "mqtt1", "acme", "d", "not-authorized", "", true)
		tap.ConnectionRefused("mqtt", "mqtt1", "globex", "", "bad-credential", "", true)
		select {
		case told = <-heard:
			if !strings.Contains(told, `"deviceToken":null`) || !strings.Contains(told, "bad-credential") || strings.Contains(told, "not-authorized") {
				t.Errorf("globex hears %s", told)
			}
		default:
		}
	}
}
