package gql_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/gql"
	"weir/gql/engine"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	"weir/store/entity"
	"weir/store/sqlite"
)

// These kinds exist in this test alone: a garden that beds lie in, beds that are published with their plants (which are
// parts of them), and labels whose rollback restores the draft.

type garden struct {
	store.Row
	Token string  `store:"token,token" gql:"token"`
	Name  *string `store:"name,clear,max=8" gql:"name"`
}

type bed struct {
	store.Row
	Token    string   `store:"token,token" gql:"token"`
	GardenID int64    `store:"garden_id,required,ref=gardens,filter=garden" gql:"gardenToken"`
	Name     *string  `store:"name,clear,max=8,filter" gql:"name"`
	Length   *float64 `store:"length,clear,min=0" gql:"length"`
	Sunny    bool     `store:"sunny,required" gql:"sunny"`
	Tags     []string `store:"tags,clear,list,max=3" gql:"tags"`
	Key      *string  `store:"key,clear,emptyclears,secret" gql:"key"`
	Active   *int64   `store:"active_version" gql:"activeVersion"`
}

type plant struct {
	store.Row
	Token string  `store:"token,token" gql:"token"`
	BedID int64   `store:"bed_id,required,ref=beds,parent,filter=bed" gql:"bedToken"`
	Name  *string `store:"name,clear,max=8" gql:"name"`
}

type label struct {
	store.Row
	Token string `store:"token,token" gql:"token"`
	Text  string `store:"text,required,nonempty,max=16" gql:"text"`
}

// bedBody is what a publish of a bed freezes, labelBody that of a label.
type (
	bedBody struct {
		Name   string   `json:"name"`
		Plants []string `json:"plants"`
	}
	labelBody struct {
		Text string `json:"text"`
	}
)

const scratchTables = `
CREATE TABLE gardens (id INTEGER PRIMARY KEY AUTOINCREMENT, tenant_id INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
	token TEXT NOT NULL, name TEXT, UNIQUE (tenant_id, token)) STRICT;
CREATE TABLE beds (id INTEGER PRIMARY KEY AUTOINCREMENT, tenant_id INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
	token TEXT NOT NULL, garden_id INTEGER NOT NULL REFERENCES gardens (id), name TEXT, length REAL, sunny INTEGER NOT NULL, tags TEXT NOT NULL,
	key TEXT, active_version INTEGER, UNIQUE (tenant_id, token)) STRICT;
CREATE TABLE plants (id INTEGER PRIMARY KEY AUTOINCREMENT, tenant_id INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
	token TEXT NOT NULL, bed_id INTEGER NOT NULL REFERENCES beds (id), name TEXT, UNIQUE (tenant_id, token)) STRICT;
CREATE TABLE labels (id INTEGER PRIMARY KEY AUTOINCREMENT, tenant_id INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
	token TEXT NOT NULL, text TEXT NOT NULL, UNIQUE (tenant_id, token)) STRICT;
CREATE TABLE bed_versions (id INTEGER PRIMARY KEY AUTOINCREMENT, tenant_id INTEGER NOT NULL, bed_id INTEGER NOT NULL REFERENCES beds (id),
	version INTEGER NOT NULL, label TEXT, description TEXT, published_at INTEGER NOT NULL, published_by TEXT, snapshot TEXT NOT NULL,
	UNIQUE (bed_id, version)) STRICT;
CREATE TABLE label_versions (id INTEGER PRIMARY KEY AUTOINCREMENT, tenant_id INTEGER NOT NULL, label_id INTEGER NOT NULL REFERENCES labels (id),
	version INTEGER NOT NULL, label TEXT, description TEXT, published_at INTEGER NOT NULL, published_by TEXT, snapshot TEXT NOT NULL,
	UNIQUE (label_id, version)) STRICT`

const scratchSDL = `
type SearchResultsPagination { pageStart: Int pageEnd: Int totalRecords: Int }
type Garden { id: ID! createdAt: String updatedAt: String deletedAt: String token: String! name: String }
input GardenCreateRequest { token: String! name: String }
input GardenUpdateRequest { name: String }
input GardenSearchCriteria { pageNumber: Int! pageSize: Int! }
type GardenSearchResults { results: [Garden!]! pagination: SearchResultsPagination! }
type Bed { id: ID! createdAt: String updatedAt: String token: String! garden: Garden! name: String length: Float sunny: Boolean! tags: [String!]!
	key: String activeVersion: Int plants: [Plant!]! }
input BedCreateRequest { token: String! gardenToken: String! name: String length: Float sunny: Boolean! tags: [String!] key: String }
input BedUpdateRequest { gardenToken: String name: String length: Float sunny: Boolean tags: [String!] key: String }
input BedSearchCriteria { pageNumber: Int! pageSize: Int! garden: String name: String }
type BedSearchResults { results: [Bed!]! pagination: SearchResultsPagination! }
type BedVersion { version: Int! label: String description: String publishedAt: String! publishedBy: String }
type Plant { id: ID! token: String! bed: Bed! name: String createdAt: String updatedAt: String }
input PlantCreateRequest { token: String! bedToken: String! name: String }
input PlantUpdateRequest { bedToken: String name: String }
input PlantSearchCriteria { pageNumber: Int! pageSize: Int! bed: String }
type PlantSearchResults { results: [Plant!]! pagination: SearchResultsPagination! }
type Label { id: ID! token: String! text: String! createdAt: String updatedAt: String }
input LabelCreateRequest { token: String! text: String! }
input LabelUpdateRequest { text: String }
type LabelVersion { version: Int! label: String description: String publishedAt: String! publishedBy: String }
type Query {
	gardensById(ids: [ID!]!): [Garden!]! gardensByToken(tokens: [String!]!): [Garden!]! gardens(criteria: GardenSearchCriteria!): GardenSearchResults!
	bedsById(ids: [ID!]!): [Bed!]! bedsByToken(tokens: [String!]!): [Bed!]! beds(criteria: BedSearchCriteria!): BedSearchResults!
	bedVersions(token: String!): [BedVersion!]!
	plantsById(ids: [ID!]!): [Plant!]! plantsByToken(tokens: [String!]!): [Plant!]! plants(criteria: PlantSearchCriteria!): PlantSearchResults!
	label(token: String!): Label labelVersions(token: String!): [LabelVersion!]!
}
type Mutation {
	createGarden(request: GardenCreateRequest): Garden! updateGarden(token: String!, request: GardenUpdateRequest!): Garden! deleteGarden(token: String!): Boolean!
	createBed(request: BedCreateRequest): Bed! updateBed(token: String!, request: BedUpdateRequest!, expectedUpdatedAt: String): Bed!
	renameBed(token: String!, newToken: String!): Bed! deleteBed(token: String!): Boolean!
	publishBed(token: String!, label: String, description: String): BedVersion! rollbackBed(token: String!, version: Int!): Bed!
	createPlant(request: PlantCreateRequest): Plant! updatePlant(token: String!, request: PlantUpdateRequest!): Plant! deletePlant(token: String!): Boolean!
	createLabel(request: LabelCreateRequest!): Label! updateLabel(token: String!, request: LabelUpdateRequest!): Label!
	publishLabel(token: String!, label: String, description: String): LabelVersion! rollbackLabel(token: String!, version: Int!): Label!
	deleteLabel(token: String!): Boolean!
}`

// scratchKinds describes the kinds, as the files of a package would.
func scratchKinds(base entity.Base) *entity.Catalog {
	read, write := entity.Needs(model.DashboardRead), entity.Needs(model.DashboardWrite)
	gardens := entity.New(base, entity.Desc[garden]{Kind: "garden", Type: "Garden", Plural: "gardens", Area: "scratch", Table: "gardens", Read: read, Write: write})
	plants := entity.New(base, entity.Desc[plant]{Kind: "plant", Type: "Plant", Plural: "plants", Area: "scratch", Table: "plants", Read: read, Write: write})
	versions := &entity.Versions[bed, bedBody]{Kind: "bed version", Table: "bed_versions", Owner: "bed_id",
		Active: func(b *bed) **int64 { return &b.Active }, ActiveColumn: "active_version",
		Freeze: func(tx store.Tx, b *bed) (*bedBody, error) {
			body := &bedBody{}
			if b.Name != nil {
				body.Name = *b.Name
			}
			rows, err := plants.Table.By(tx, b.TenantID, "bed_id", b.ID)
			for _, p := range rows {
				body.Plants = append(body.Plants, p.Token)
			}
			return body, err
		},
		Validate: func(_ context.Context, _ *model.Principal, _ *bed, body *bedBody) ([]entity.Remark, error) {
			if len(body.Plants) == 0 {
				return nil, model.Invalid("plants", "an empty bed cannot be published")
			}
			return nil, nil
		},
		Encode: encodeJSON[bedBody], Decode: decodeJSON[bedBody],
		Views: func(_ *store.Change, b *bed, body *bedBody, version int64) []entity.View {
			return []entity.View{{Kind: "scratch-bed", Key: b.Token, Body: body}}
		}}
	beds := entity.New(base, entity.Desc[bed]{Kind: "bed", Type: "Bed", Plural: "beds", Area: "scratch", Table: "beds", Read: read, Write: write,
		Versions: versions,
		Rename: func(_ store.Tx, b *bed) error {
			if b.Active != nil {
				return model.InUse("bed", b.Token, "published version")
			}
			return nil
		},
		Check: func(_ store.Tx, b *bed, _ store.Changed) error {
			if b.Length != nil && *b.Length > 100 {
				return model.Invalid("length", "no bed is that long")
			}
			return nil
		},
		Views: func(_ *store.Change, old, b *bed) []entity.View {
			if b == nil {
				return []entity.View{{Kind: "scratch-bed", Key: old.Token}}
			}
			return nil
		}})
	labels := entity.New(base, entity.Desc[label]{Kind: "label", Type: "Label", Plural: "labels", Area: "scratch", Table: "labels", Read: read, Write: write,
		Delete: entity.Needs(model.DashboardWrite, model.DeviceWrite),
		Versions: &entity.Versions[label, labelBody]{Kind: "label version", Table: "label_versions", Owner: "label_id",
			Freeze: func(_ store.Tx, l *label) (*labelBody, error) { return &labelBody{l.Text}, nil },
			Encode: encodeJSON[labelBody], Decode: decodeJSON[labelBody],
			Restore: func(l *label, body *labelBody) []string {
				l.Text = body.Text
				return []string{"text"}
			}}})
	return entity.NewCatalog(gardens, beds, plants, labels)
}

func encodeJSON[S any](body *S) (string, error) {
	b, err := json.Marshal(body)
	return string(b), err
}

func decodeJSON[S any](text string) (*S, error) {
	var body S
	return &body, json.Unmarshal([]byte(text), &body)
}

// gardener may do everything in the scratch area, visitor may look, and neighbours are another tenant.
var (
	gardener   = member("acme", 1, model.DashboardRead, model.DashboardWrite, model.DeviceWrite)
	visitor    = member("acme", 1, model.DashboardRead)
	stranger   = member("acme", 1, model.DeviceRead, model.DeviceWrite)
	neighbours = member("other", 2, model.DashboardRead, model.DashboardWrite, model.DeviceWrite)
)

type scratch struct {
	testing.TB
	server  *gql.Server
	catalog *entity.Catalog
	db      *sqlite.DB
	writer  store.Writer
}

func newScratch(t testing.TB) *scratch {
	t.Helper()
	db := fixture.Store(t)
	if err := db.Write(t.Context(), store.Durable, func(tx store.Tx) (err error) {
		for statement := range strings.SplitSeq(scratchTables, ";") {
			_, e := tx.Exec(statement)
			err = errors.Join(err, e)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var clock atomic.Int64
	clock.Store(1_700_000_000_000_000)
	s := &scratch{TB: t, db: db, server: gql.New(gql.Config{}), writer: store.Direct{Store: db, Now: func() time.Time { return time.UnixMicro(clock.Add(1000)) }}}
	s.catalog = scratchKinds(entity.Base{Store: db, Writer: s.writer})
	s.server.AreaOf("scratch", gql.TenantPlane, scratchSDL).Entities(s.catalog)
	if err := s.server.Build(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *scratch) as(p *model.Principal, query string) *engine.Response {
	return s.server.Engine("scratch").Execute(gql.WithCall(s.Context(), gql.Call{Principal: p, Transport: gql.HTTP}), engine.Request{Query: query})
}

// gives runs a request of the gardener's and compares the whole answer.
func (s *scratch) gives(query, want string) {
	s.Helper()
	b, err := json.Marshal(s.as(gardener, query))
	if err != nil {
		s.Fatal(err)
	}
	if got := string(b); got != `{"data":`+want+`}` {
		s.Errorf("%s\ngives %s\nwant  %s", query, got, want)
	}
}

// refuses runs a request that must be refused with the code and a message that holds the text, and change nothing.
func (s *scratch) refuses(by *model.Principal, query string, code model.Code, text string) {
	s.Helper()
	before := s.rows()
	resp := s.as(by, query)
	if len(resp.Errors) == 0 || resp.Errors[0].Code() != code || !strings.Contains(resp.Errors[0].Message, text) {
		s.Errorf("%s: %+v, want %s with %q", query, resp.Errors, code, text)
	}
	if after := s.rows(); after != before {
		s.Errorf("%s: refused, but rows changed\nfrom %s\nto   %s", query, before, after)
	}
}

// rows is all that the kinds have stored, with the journal and the metadata changes.
func (s *scratch) rows() string {
	s.Helper()
	var all strings.Builder
	for _, q := range []string{"id, token, name FROM gardens", "id, token, garden_id, name, length, sunny, tags, key, active_version FROM beds",
		"id, token, bed_id, name FROM plants", "id, token, text FROM labels", "bed_id, version, snapshot FROM bed_versions",
		"label_id, version, snapshot FROM label_versions", "id, operation, table_name, entity_label FROM audit_events", "sequence, body FROM control"} {
		for _, row := range fixture.Rows(s, s.db, "SELECT "+q+" ORDER BY 1, 2") {
			fmt.Fprintf(&all, "%s [%s]\n", q, row)
		}
	}
	return all.String()
}

func (s *scratch) journal() (entries []string) {
	s.Helper()
	err := s.db.Read(s.Context(), func(tx store.Tx) error {
		events, _, err := store.ListAudit(tx, store.Page{Size: 1000}, store.AuditFilter{})
		for _, e := range slices.Backward(events) {
			if e.Actor != "ada" || e.TenantID != 1 || e.Rows != 1 {
				s.Errorf("journal row %+v", e)
			}
			entries = append(entries, e.Operation+" "+e.Table+" "+e.Label)
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return entries
}

// furnish makes a garden with a bed of two plants.
func (s *scratch) furnish() {
	s.Helper()
	s.gives(`mutation { a: createGarden(request: {token: "g"}) { token } b: createGarden(request: {token: "h", name: "H"}) { token name }
		c: createBed(request: {token: "b", gardenToken: "g", sunny: true}) { token name length sunny tags key activeVersion garden { token } } }`,
		`{"a":{"token":"g"},"b":{"token":"h","name":"H"},"c":{"token":"b","name":null,"length":null,"sunny":true,"tags":[],"key":null,"activeVersion":null,"garden":{"token":"g"}}}`)
	s.gives(`mutation { a: createPlant(request: {token: "p1", bedToken: "b"}) { token } b: createPlant(request: {token: "p2", bedToken: "b"}) { bed { token } } }`,
		`{"a":{"token":"p1"},"b":{"bed":{"token":"b"}}}`)
}

// A kind that is described in a test alone has the whole life of an entity over GraphQL: every verb, and the three states
// of every field.
func TestAKindNeedsNothingButItsDescription(t *testing.T) {
	t.Parallel()
	s := newScratch(t)
	s.furnish()
	for _, c := range []struct{ request, want string }{
		{`name: "N", length: 2.5, tags: ["x", "y"], key: "k"`, `"name":"N","length":2.5,"sunny":true,"tags":["x","y"],"key":null`},
		{`sunny: false`, `"name":"N","length":2.5,"sunny":false,"tags":["x","y"],"key":null`},
		{`name: null, tags: null`, `"name":null,"length":2.5,"sunny":false,"tags":[],"key":null`},
		{``, `"name":null,"length":2.5,"sunny":false,"tags":[],"key":null`},
	} {
		s.gives(`mutation { u: updateBed(token: "b", request: {`+c.request+`}) { name length sunny tags key } }`, `{"u":{`+c.want+`}}`)
	}
	for request, text := range map[string]string{`sunny: null`: "sunny: null", `gardenToken: null`: "gardenToken: null", `gardenToken: "no"`: "gardenToken",
		`name: "longer than 8"`: "name", `length: -1`: "length", `length: 101`: "no bed is that long", `tags: ["1", "2", "3", "4"]`: "tags"} {
		s.refuses(gardener, `mutation { updateBed(token: "b", request: {`+request+`}) { token } }`, model.CodeInvalidInput, text)
	}
	s.gives(`mutation { u: updateBed(token: "b", request: {gardenToken: "h"}) { garden { token } } }`, `{"u":{"garden":{"token":"h"}}}`)
	s.gives(`mutation { u: updateBed(token: "b", request: {gardenToken: "g"}) { garden { token } } }`, `{"u":{"garden":{"token":"g"}}}`)

	s.gives(`{ beds(criteria: {pageNumber: 1, pageSize: 5, garden: "g"}) { results { token plants { token bed { token } } } pagination { pageStart pageEnd totalRecords } }
		none: beds(criteria: {pageNumber: 1, pageSize: 5, garden: "h"}) { pagination { totalRecords } }
		named: beds(criteria: {pageNumber: 1, pageSize: 5, name: "N"}) { pagination { totalRecords } }
		bedsById(ids: ["1", "99"]) { id token } plantsByToken(tokens: ["p2", "none"]) { token } gardensByToken(tokens: []) { token } }`,
		`{"beds":{"results":[{"token":"b","plants":[{"token":"p2","bed":{"token":"b"}},{"token":"p1","bed":{"token":"b"}}]}],`+
			`"pagination":{"pageStart":1,"pageEnd":1,"totalRecords":1}},"none":{"pagination":{"totalRecords":0}},"named":{"pagination":{"totalRecords":0}},`+
			`"bedsById":[{"id":"1","token":"b"}],"plantsByToken":[{"token":"p2"}],"gardensByToken":[]}`)

	s.refuses(gardener, `mutation { renameBed(token: "b", newToken: " ") { token } }`, model.CodeInvalidInput, "newToken")
	s.refuses(gardener, `mutation { renameBed(token: "no", newToken: "b2") { token } }`, model.CodeNotFound, `bed "no"`)
	s.gives(`mutation { renameBed(token: "b", newToken: "b2") { token } }`, `{"renameBed":{"token":"b2"}}`)
	s.gives(`mutation { renameBed(token: "b2", newToken: "b2") { token } }`, `{"renameBed":{"token":"b2"}}`)

	s.refuses(gardener, `mutation { deleteGarden(token: "g") }`, model.CodeInUse, "a bed")
	s.gives(`mutation { a: deleteBed(token: "b2") b: deleteBed(token: "b2") c: deleteGarden(token: "g") }`, `{"a":true,"b":false,"c":true}`)
	s.gives(`{ plants(criteria: {pageNumber: 1, pageSize: 5}) { pagination { totalRecords } } }`, `{"plants":{"pagination":{"totalRecords":0}}}`)
	want := []string{"create gardens g", "create gardens h", "create beds b", "create plants p1", "create plants p2", "update beds b", "update beds b",
		"update beds b", "update beds b", "update beds b", "update beds b2", "delete plants p1", "delete plants p2", "delete beds b2", "delete gardens g"}
	if got := s.journal(); !slices.Equal(got, want) {
		t.Errorf("journal %q\nwant    %q", got, want)
	}
}

func TestADescribedKindIsPublishedAndRolledBack(t *testing.T) {
	t.Parallel()
	s := newScratch(t)
	s.furnish()
	const bedNow = `{ bedsByToken(tokens: ["b"]) { name activeVersion } }`
	versions := s.catalog.Of("beds").Versions()
	unpublished := func(want bool, wantNext int64) {
		t.Helper()
		if differs, next, err := versions.Unpublished(t.Context(), gardener, "b"); differs != want || next != wantNext || err != nil {
			t.Errorf("unpublished %v, next %d, %v; want %v, %d", differs, next, err, want, wantNext)
		}
	}
	unpublished(true, 1)
	s.gives(`mutation { publishBed(token: "b", label: "one") { version label description publishedBy } }`,
		`{"publishBed":{"version":1,"label":"one","description":null,"publishedBy":"ada"}}`)
	unpublished(false, 2)
	s.gives(bedNow, `{"bedsByToken":[{"name":null,"activeVersion":1}]}`)
	s.refuses(gardener, `mutation { renameBed(token: "b", newToken: "c") { token } }`, model.CodeInUse, "published version")
	s.gives(`mutation { a: updateBed(token: "b", request: {name: "two"}) { name } b: deletePlant(token: "p1") c: publishBed(token: "b") { version } }`,
		`{"a":{"name":"two"},"b":true,"c":{"version":2}}`)
	s.gives(`mutation { rollbackBed(token: "b", version: 1) { name activeVersion } }`, `{"rollbackBed":{"name":"two","activeVersion":1}}`)
	unpublished(true, 3)
	s.gives(`{ bedVersions(token: "b") { version label } }`, `{"bedVersions":[{"version":2,"label":null},{"version":1,"label":"one"}]}`)
	s.gives(`{ bedVersions(token: "no") { version } }`, `{"bedVersions":[]}`)
	s.refuses(gardener, `mutation { rollbackBed(token: "b", version: 3) { token } }`, model.CodeNotFound, `bed version "b@3"`)
	s.gives(`mutation { deletePlant(token: "p2") }`, `{"deletePlant":true}`)
	s.refuses(gardener, `mutation { publishBed(token: "b") { version } }`, model.CodeInvalidInput, "an empty bed")

	s.gives(`mutation { a: createLabel(request: {token: "l", text: "first"}) { text } b: publishLabel(token: "l") { version }
		c: updateLabel(token: "l", request: {text: "second"}) { text } d: rollbackLabel(token: "l", version: 1) { text } }`,
		`{"a":{"text":"first"},"b":{"version":1},"c":{"text":"second"},"d":{"text":"first"}}`)
	s.gives(`{ label(token: "l") { text } none: label(token: "no") { text } }`, `{"label":{"text":"first"},"none":null}`)
	s.gives(`mutation { a: deleteBed(token: "b") b: deleteLabel(token: "l") }`, `{"a":true,"b":true}`)
	if got := s.rows(); strings.Contains(got, "snapshot FROM bed_versions") || strings.Contains(got, "snapshot FROM label_versions") {
		t.Errorf("versions are left: %s", got)
	}
	var views []string
	err := s.db.Read(t.Context(), func(tx store.Tx) error {
		controls, err := store.PendingControl(tx, 0, 100)
		for _, c := range controls {
			changes, e := store.DecodeViewChanges(c.Body)
			err = errors.Join(err, e)
			for _, v := range changes {
				views = append(views, fmt.Sprintf("%s %s %s", v.Kind, v.Key, v.Body))
			}
		}
		return err
	})
	if want := []string{`scratch-bed b {"name":"","plants":["p1","p2"]}`, `scratch-bed b {"name":"two","plants":["p2"]}`,
		`scratch-bed b {"name":"","plants":["p1","p2"]}`, `scratch-bed b `}; !slices.Equal(views, want) || err != nil {
		t.Errorf("metadata changes %q, %v\nwant %q", views, err, want)
	}
}

// A precondition compares instants; without one the last write wins.
func TestAWriteMayExpectTheRowAsItWas(t *testing.T) {
	t.Parallel()
	s := newScratch(t)
	s.furnish()
	row, err := s.catalog.Of("beds").ByToken(t.Context(), gardener, []string{"b"})
	if err != nil || len(row) != 1 {
		t.Fatal(row, err)
	}
	at := s.catalog.Of("beds").Head(row[0]).UpdatedAt
	update := func(at any) string {
		return fmt.Sprintf(`mutation { u: updateBed(token: "b", request: {name: "x"}, expectedUpdatedAt: "%v") { name } }`, at)
	}
	s.refuses(gardener, update("soon"), model.CodeInvalidInput, "expectedUpdatedAt")
	s.gives(update(at), `{"u":{"name":"x"}}`)
	s.refuses(gardener, update(at), model.CodeConflict, "conflict:")
	s.refuses(gardener, strings.Replace(update(at), `name: "x"`, ``, 1), model.CodeConflict, "conflict:") // though it names nothing
}

// What a description demands is demanded of every caller: through the API, and of whoever calls the verbs themselves.
func TestADescribedKindDemandsItsAuthority(t *testing.T) {
	t.Parallel()
	s := newScratch(t)
	s.furnish()
	s.gives(`mutation { createLabel(request: {token: "l", text: "t"}) { token } }`, `{"createLabel":{"token":"l"}}`)
	ops := s.server.Operations()
	if len(ops) != 29 {
		t.Errorf("%d operations", len(ops))
	}
	calls := map[string]string{"query": `{ %s { __typename } }`, "mutation": `mutation { %s { __typename } }`}
	for _, op := range ops {
		want, by := model.DashboardRead, stranger
		if op.Kind == "mutation" {
			want, by = model.DashboardWrite, visitor
		}
		call := fmt.Sprintf(calls[op.Kind], op.Name+scratchArgs(op.Name))
		if strings.HasPrefix(op.Name, "delete") {
			call = strings.Replace(call, " { __typename } }", " }", 1)
		}
		s.refuses(by, call, model.CodeForbidden, string(want))
		s.refuses(nil, call, model.CodeUnauthenticated, "a token is required")
		s.refuses(member("", 0, model.DashboardRead, model.DashboardWrite, model.DeviceWrite), call, model.CodeUnauthenticated, "no tenant is resolved")
		if resp := s.as(neighbours, call); strings.Contains(fmt.Sprint(resp), `token":"b"`) {
			t.Errorf("%s shows another tenant's rows", op.Name)
		}
	}
	s.refuses(member("acme", 1, model.DashboardWrite), `mutation { deleteLabel(token: "l") }`, model.CodeForbidden, string(model.DeviceWrite))
	if _, err := s.catalog.Of("labels").Delete(t.Context(), member("acme", 1, model.DashboardWrite), "l"); model.CodeOf(err) != model.CodeForbidden {
		t.Errorf("a delete without its own authority: %v", err)
	}
	for _, kind := range s.catalog.All() {
		s.verbsRefuse(kind)
	}
}

// scratchArgs are the arguments of an operation of the scratch area.
func scratchArgs(name string) string {
	switch {
	case strings.HasSuffix(name, "ById"):
		return `(ids: ["1"])`
	case strings.HasSuffix(name, "ByToken"):
		return `(tokens: ["b"])`
	case strings.HasPrefix(name, "create"):
		return map[string]string{"createGarden": `(request: {token: "n"})`, "createBed": `(request: {token: "n", gardenToken: "g", sunny: true})`,
			"createPlant": `(request: {token: "n", bedToken: "b"})`, "createLabel": `(request: {token: "n", text: "t"})`}[name]
	case name == "updateLabel":
		return `(token: "l", request: {text: "t"})`
	case strings.HasPrefix(name, "update"):
		return `(token: "b", request: {name: "n"})`
	case strings.HasPrefix(name, "rename"):
		return `(token: "b", newToken: "n")`
	case strings.HasPrefix(name, "rollback"):
		return `(token: "b", version: 1)`
	case name == "label" || strings.HasSuffix(name, "Versions") || strings.HasPrefix(name, "delete") || strings.HasPrefix(name, "publish"):
		return `(token: "b")`
	}
	return `(criteria: {pageNumber: 1, pageSize: 1})`
}

// verbsRefuse calls every verb of a kind as those who may not.
func (s *scratch) verbsRefuse(kind entity.Any) {
	s.Helper()
	ctx := s.Context()
	read := func(by *model.Principal) []error {
		_, err1 := kind.ByID(ctx, by, []int64{1})
		_, err2 := kind.ByToken(ctx, by, []string{"b"})
		_, err3 := kind.By(ctx, by, "id", int64(1))
		_, _, err4 := kind.List(ctx, by, store.Page{})
		errs := []error{err1, err2, err3, err4}
		if v := kind.Versions(); v != nil {
			_, err5 := v.History(ctx, by, "b", 1000, 0)
			_, _, err6 := v.Unpublished(ctx, by, "b")
			errs = append(errs, err5, err6)
		}
		return errs
	}
	write := func(by *model.Principal) []error {
		_, err1 := kind.Create(ctx, by, store.Patch{"token": "n"})
		_, err2 := kind.Update(ctx, by, "b", store.Patch{})
		_, err3 := kind.Rename(ctx, by, "b", "n")
		_, err4 := kind.Delete(ctx, by, "b")
		errs := []error{err1, err2, err3, err4}
		if v := kind.Versions(); v != nil {
			_, err5 := v.Publish(ctx, by, "b", nil, nil)
			_, err6 := v.Rollback(ctx, by, "b", 1)
			errs = append(errs, err5, err6)
		}
		return errs
	}
	before := s.rows()
	for who, c := range map[string]struct {
		errs []error
		code model.Code
	}{
		"a reader without dashboard:read":  {read(stranger), model.CodeForbidden},
		"a writer without dashboard:write": {write(visitor), model.CodeForbidden},
		"a reader without a token":         {read(&model.Principal{}), model.CodeUnauthenticated},
		"a writer without a token":         {write(nil), model.CodeUnauthenticated},
	} {
		for i, err := range c.errs {
			if model.CodeOf(err) != c.code {
				s.Errorf("%s, %s, verb %d: %v", kind.Info().Kind, who, i, err)
			}
		}
	}
	if after := s.rows(); after != before {
		s.Errorf("%s: refused, but rows changed\nfrom %s\nto   %s", kind.Info().Kind, before, after)
	}
}

// Verbs of several kinds that are called with the context of a change are one transaction.
func TestVerbsOfManyKindsAreOneChange(t *testing.T) {
	t.Parallel()
	s := newScratch(t)
	before := s.rows()
	takenBack := errors.New("taken back")
	change := func(end error) error {
		return s.writer.Mutate(t.Context(), gardener, func(c *store.Change) error {
			ctx := c.Context()
			_, err1 := s.catalog.Of("gardens").Create(ctx, gardener, store.Patch{"token": "g"})
			_, err2 := s.catalog.Of("beds").Create(ctx, gardener, store.Patch{"token": "b", "gardenToken": "g", "sunny": true})
			_, err3 := s.catalog.Of("plants").Create(ctx, gardener, store.Patch{"token": "p", "bedToken": "b"})
			_, err4 := s.catalog.Of("beds").Versions().Publish(ctx, gardener, "b", nil, nil)
			rows, err5 := s.catalog.Of("plants").ByToken(ctx, gardener, []string{"p"})
			if len(rows) != 1 {
				t.Errorf("inside the change there are %d plants", len(rows))
			}
			return errors.Join(err1, err2, err3, err4, err5, end)
		})
	}
	if err := change(takenBack); !errors.Is(err, takenBack) {
		t.Fatal(err)
	}
	if after := s.rows(); after != before {
		t.Errorf("a change that was taken back left %s", after)
	}
	if err := change(nil); err != nil {
		t.Fatal(err)
	}
	s.gives(`{ bedsByToken(tokens: ["b"]) { activeVersion plants { token } } }`, `{"bedsByToken":[{"activeVersion":1,"plants":[{"token":"p"}]}]}`)
}

// A schema that says something else than the descriptions is found when the server is built, and named.
func TestASchemaThatDiffersFromTheDescriptionIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to, want string }{
		{"input BedUpdateRequest { gardenToken: String name", "input BedUpdateRequest { name", "BedUpdateRequest has the fields"},
		{"input BedCreateRequest { token: String! gardenToken: String!", "input BedCreateRequest { token: String! gardenToken: String", "BedCreateRequest.gardenToken"},
		{"input GardenUpdateRequest { name: String }", `input GardenUpdateRequest { name: String = "x" }`, "GardenUpdateRequest.name"},
		{"pageSize: Int! bed: String }", "pageSize: Int! plant: String }", "PlantSearchCriteria has the fields"},
		{"renameBed(token: String!, newToken: String!): Bed!", "", "renameBed"},
		{"type Label {", "type Sticker {", "Label"},
		{"token: String! text: String! createdAt", "token: String! createdAt", "Label"},
		{"sunny: Boolean! tags", "tags", "Bed"},
		{"label(token: String!): Label ", "label(token: String!): Label compost: Int ", "Query.compost has no resolver"},
	} {
		server := gql.New(gql.Config{})
		server.AreaOf("scratch", gql.TenantPlane, strings.Replace(scratchSDL, c.from, c.to, 1)).Entities(scratchKinds(entity.Base{}))
		err := server.Build()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s → %s: %v, want %q", c.from, c.to, err, c.want)
		}
		if !strings.Contains(scratchSDL, c.from) {
			t.Errorf("the schema has no %s", c.from)
		}
	}
}

// What rows refer to and what is part of them is read at once, by the plain path as by the executor, and shown alike.
func TestRowsThatReferAreReadAtOnce(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	for _, c := range []struct {
		fields string
		reads  int64
	}{
		{`devices(criteria: {pageNumber: 1, pageSize: 10}) { results { token deviceType { token name } __typename } pagination { totalRecords } }`, 2},
		{`deviceTypes(criteria: {pageNumber: 1, pageSize: 10}) { results { token profile { token name } deletedAt } }`, 2},
		{`deviceProfiles(criteria: {pageNumber: 1, pageSize: 10}) { results { token metricDefinitions { token unit } detectionRules { token } } }`, 3},
		{`devices(criteria: {pageNumber: 1, pageSize: 10}) { results { token deviceType { token profile { token } } } }`, 3},
		{`devicesByToken(tokens: ["d", "e"]) { id deviceType { id } }`, 2},
		{`assets(criteria: {pageNumber: 1, pageSize: 10, assetTypeToken: "AssetType-1"}) { results { token assetType { token } } }`, 2},
	} {
		show := func(query string) string {
			b, err := json.Marshal(w.as(writer, query, map[string]any{"yes": true}))
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		before := w.reads.Load()
		plain := show(`{ ` + c.fields + ` }`)
		if got := w.reads.Load() - before; got != c.reads {
			t.Errorf("%s: %d reads, want %d", c.fields, got, c.reads)
		}
		if executed := show(`query ($yes: Boolean!) { ... @include(if: $yes) { ` + c.fields + ` } }`); executed != plain || strings.Contains(plain, "errors") {
			t.Errorf("%s\nplain    %s\nexecuted %s", c.fields, plain, executed)
		}
	}
}
