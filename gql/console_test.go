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

// kindOfTheConsole is what the console knows of a kind: its lists, forms and actions are made of it and of the served schema.
type kindOfTheConsole struct {
	ID, Entry, In, Area, Type, List, Get, Create, Update, Delete, Question string
	Key, Columns, Actions, Bulk                                            []string
	Links                                                                  [][]string
	Configs                                                                *struct{ Query, ID, Type string }
}

// The names that the console has of kinds, operations, columns and keys are those of the API: a renamed operation fails here, without Node.
func TestTheKindsOfTheConsoleFitTheAPI(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../web/console/src/kinds.json")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []kindOfTheConsole
	if err := json.Unmarshal(raw, &kinds); err != nil {
		t.Fatal(err)
	}
	byPlace := map[string]kindOfTheConsole{}
	for _, k := range kinds {
		byPlace[k.Entry+"/"+k.ID] = k
	}
	if len(byPlace) != len(kinds) || len(kinds) < 30 {
		t.Errorf("%d kinds at %d places", len(kinds), len(byPlace))
	}
	schemas := map[string]*ast.Schema{}
	for _, k := range kinds {
		s := schemas[k.Area]
		if s == nil {
			sdl, err := gql.SDL(k.Area)
			if err != nil {
				t.Fatalf("%s: %v", k.ID, err)
			}
			if s, err = gqlparser.LoadSchema(&ast.Source{Name: k.Area, Input: sdl}); err != nil {
				t.Fatal(err)
			}
			schemas[k.Area] = s
		}
		if _, there := byPlace[k.Entry+"/"+k.In]; k.In != "" && !there {
			t.Errorf("%s lies below %s, which is none", k.ID, k.In)
		}
		typ := s.Types[k.Type]
		if typ == nil {
			t.Errorf("%s: no type %s", k.ID, k.Type)
			continue
		}
		if k.Question == "" || len(k.Columns) == 0 {
			t.Errorf("%s says nothing, or has no columns", k.ID)
		}
		keys := k.Key
		if len(keys) == 0 {
			keys = []string{"token"}
		}
		for _, f := range append(keys, k.Columns...) {
			if typ.Fields.ForName(f) == nil {
				t.Errorf("%s: %s has no field %s", k.ID, k.Type, f)
			}
		}
		for _, q := range []string{k.List, k.Get} {
			if q != "" && s.Query.Fields.ForName(q) == nil {
				t.Errorf("%s: no query %s", k.ID, q)
			}
		}
		if k.Configs != nil {
			if f := s.Query.Fields.ForName(k.Configs.Query); f == nil || s.Types[f.Type.Name()].Fields.ForName(k.Configs.ID) == nil || typ.Fields.ForName(k.Configs.Type) == nil {
				t.Errorf("%s: its configs are described nowhere", k.ID)
			}
		}
		for _, link := range k.Links {
			to := byPlace[k.Entry+"/"+link[0]]
			if list := s.Query.Fields.ForName(to.List); list == nil || s.Types[list.Arguments[0].Type.Name()].Fields.ForName(link[1]) == nil {
				t.Errorf("%s: its link to %s filters by %s, which is none", k.ID, link[0], link[1])
			}
		}
		for _, m := range append(append([]string{k.Create, k.Update, k.Delete}, k.Actions...), k.Bulk...) {
			if m != "" && s.Mutation.Fields.ForName(m) == nil {
				t.Errorf("%s: no mutation %s", k.ID, m)
			}
		}
		// What names a record is what its operations take.
		for _, m := range []string{k.Update, k.Delete} {
			f := s.Mutation.Fields.ForName(m)
			if f == nil {
				continue
			}
			for _, a := range f.Arguments {
				if a.Type.NonNull && a.Name != "request" && typ.Fields.ForName(a.Name) == nil {
					t.Errorf("%s: %s takes %s, which %s does not have", k.ID, m, a.Name, k.Type)
				}
			}
		}
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
