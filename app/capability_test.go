package app_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"weir/app"
	"weir/gql"
	"weir/ingest"
	"weir/model"
	"weir/operate"
	"weir/store"
	"weir/store/entity"
)

// note is a row of a kind that Weir does not have: what was written about a device.
type note struct {
	store.Row
	Token    string `store:"token,token" gql:"token"`
	DeviceID int64  `store:"device_id,required,ref=devices,filter" gql:"deviceToken"`
	Text     string `store:"text,required" gql:"text"`
}

const noteTables = `
CREATE TABLE scratch_notes (id INTEGER PRIMARY KEY AUTOINCREMENT, tenant_id INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
	token TEXT NOT NULL, device_id INTEGER NOT NULL REFERENCES devices (id), text TEXT NOT NULL, UNIQUE (tenant_id, token)) STRICT;
CREATE TABLE scratch_fired (n INTEGER NOT NULL) STRICT;
INSERT INTO scratch_fired (n) VALUES (0)`

const noteSDL = `
type Device { id: ID! token: String! }
type Note { id: ID! token: String! device: Device! text: String! createdAt: String updatedAt: String }
input NoteCreateRequest { token: String! deviceToken: String! text: String! }
input NoteUpdateRequest { deviceToken: String text: String }
type Query { notesById(ids: [ID!]!): [Note!]! notesByToken(tokens: [String!]!): [Note!]! }
type Mutation {
	createNote(request: NoteCreateRequest): Note! updateNote(token: String!, request: NoteUpdateRequest!): Note! deleteNote(token: String!): Boolean!
}`

// noteArea is the API of the notes.
const noteArea = "scratch-notes"

// notes is a capability that Weir does not have: a kind that refers to devices, an area of the API, and a result of the log that counts the
// edges of rules in their transaction.
func notes() app.Capability {
	var kinds *entity.Catalog
	return app.Capability{
		Name: "notes",
		Make: func(h app.Handed) {
			kinds = entity.NewCatalog(entity.New(h.Base, entity.Desc[note]{
				Kind:   "note",
				Type:   "Note",
				Plural: "notes",
				Area:   noteArea,
				Table:  "scratch_notes",
				Read:   entity.Needs(model.DeviceRead),
				Write:  entity.Needs(model.DeviceWrite),
			}))
		},
		Kinds: func() *entity.Catalog { return kinds },
		Areas: []app.Area{{
			AreaSpec: gql.AreaSpec{Area: noteArea, SDL: noteSDL, Example: `{ notesByToken(tokens: []) { token } }`},
			Register: func(g *gql.Area, k app.Known) { g.Entities(k.Catalog) },
		}},
		Results: func() []ingest.Projection { return []ingest.Projection{edgeCount{}} },
	}
}

// edgeCount counts edges of rules.
type edgeCount struct{ ingest.ProjectionBase }

// Edges implements ingest.EdgeFollower.
func (edgeCount) Edges(tx store.Tx, edges []model.Edge) error {
	_, err := tx.Exec(`UPDATE scratch_fired SET n = n + ?`, len(edges))
	return err
}

const noteSite = `version: 1
tenants:
  - token: acme
    deviceProfiles:
      - token: p
        detectionRules: [{token: hot, definition: {name: hot, type: threshold, when: {metric: x, op: gt, threshold: 1}}}]
    deviceTypes: [{token: t, profileToken: p}]
    devicesFrom: [{file: devices.csv, deviceTypeToken: t}]
`

// TestACapabilityFromOutsideSurvivesAKill kills an instance that has a capability which Weir does not know, and starts it again: its rows are
// there and keep their device, each edge was counted once, its API answers.
func TestACapabilityFromOutsideSurvivesAKill(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	cfg := kindConfig(dir)
	p := startKind(t, dir)
	applyRuleSite(t, cfg, noteSite)
	p.end(syscall.SIGTERM)
	inDatabase(t, dir, func(tx store.Tx) error {
		for statement := range strings.SplitSeq(noteTables, ";\n") {
			if _, err := tx.Exec(statement); err != nil {
				return err
			}
		}
		return nil
	})

	ask := func(area, query string) (string, error) {
		t.Helper()
		client, err := operate.Dial(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		resp, err := operate.RunGraphQL.Ask(t.Context(), client, operate.GraphQLRequest{Area: area, Tenant: "acme", Query: query})
		if err != nil {
			t.Fatal(err)
		}
		return string(resp.Data), resp.Err()
	}
	const kills, crossings = 3, 4
	for kill := range kills {
		p = startKind(t, dir, notesVar)
		for range crossings {
			p.send(0, "2")
			p.send(0, "0")
		}
		if _, err := ask(noteArea, fmt.Sprintf(`mutation { createNote(request: {token: "n%d", deviceToken: "d0", text: "seen"}) { token } }`, kill)); err != nil {
			t.Fatal(err)
		}
		p.end(syscall.SIGKILL)
	}
	p = startKind(t, dir, notesVar)
	p.applied(cfg)
	got, err := ask(noteArea, `{ notesByToken(tokens: ["n0", "n1", "n2"]) { token text device { token } } }`)
	if want := `{"notesByToken":[{"token":"n0","text":"seen","device":{"token":"d0"}},{"token":"n1","text":"seen","device":{"token":"d0"}},{"token":"n2","text":"seen","device":{"token":"d0"}}]}`; err != nil || got != want {
		t.Errorf("%s %v, want %s", got, err, want)
	}
	if _, err := ask("device-management", `mutation { deleteDevice(token: "d0") }`); model.CodeOf(err) != model.CodeInUse || !strings.Contains(err.Error(), "in use by a note") {
		t.Errorf("the delete of a device that a note is about: %v", err)
	}
	p.end(syscall.SIGTERM)
	edges := edgesOf(t, dir, "hot")
	if want := 2 * kills * crossings; len(edges) != want {
		t.Fatalf("%d edges, want %d", len(edges), want)
	}
	inDatabase(t, dir, func(tx store.Tx) error {
		var n int
		if err := tx.QueryRow(`SELECT n FROM scratch_fired`).Scan(&n); err != nil {
			return err
		}
		if n != len(edges) {
			t.Errorf("%d edges are counted of %d", n, len(edges))
		}
		return nil
	})
}
