package gql_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	"weir/gql"
	"weir/internal/test/conformance"
	"weir/model"
)

func deviceManagementSchema(t testing.TB) *ast.Schema {
	t.Helper()
	sdl, err := gql.SDL("device-management")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := gqlparser.LoadSchema(&ast.Source{Name: "device-management.graphql", Input: sdl})
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// The description of each kind and the schema say the same: names, what may be null, what an update may change.
func TestDescriptionsAndSchemaAgree(t *testing.T) {
	t.Parallel()
	schema := deviceManagementSchema(t)
	kinds := described()
	if len(kinds) < 6 {
		t.Fatalf("only %d kinds are described", len(kinds))
	}
	for _, kind := range kinds {
		typ, fields := kind.Info().Type, kind.Info().Fields
		create, update := schema.Types[typ+"CreateRequest"], schema.Types[typ+"UpdateRequest"]
		var inCreate, inUpdate []string
		for _, f := range fields {
			if f.Name == "" || f.Hidden { // what only code sets
				continue
			}
			inCreate = append(inCreate, f.Name)
			if def := create.Fields.ForName(f.Name); def != nil && def.Type.NonNull != f.Required {
				t.Errorf("%s.%s is %s, but required is %v", create.Name, f.Name, def.Type, f.Required)
			}
			if f.Immutable {
				continue
			}
			inUpdate = append(inUpdate, f.Name)
			if f.Clear == (f.Required || f.Keep) {
				t.Errorf("%s.%s: null must either clear or be refused", typ, f.Name)
			}
			always := f.Required || f.Keep && !f.Nullable() // it has a value in every row
			if def := schema.Types[typ].Fields.ForName(f.Name); f.Ref == "" && !(def == nil && f.Secret) && (def == nil || def.Type.NonNull != always) {
				t.Errorf("%s.%s: %v does not show a field with required %v", typ, f.Name, def, f.Required)
			}
		}
		sameFields(t, create, inCreate)
		if update == nil && len(inUpdate) == 0 && schema.Mutation.Fields.ForName("update"+typ) == nil {
			continue // its rows are never changed
		}
		sameFields(t, update, inUpdate)
		for _, def := range update.Fields {
			if def.Type.NonNull || def.DefaultValue != nil {
				t.Errorf("%s.%s is %s with default %v: absent and null could not be told apart", update.Name, def.Name, def.Type, def.DefaultValue)
			}
		}
		arguments := schema.Mutation.Fields.ForName("update" + typ).Arguments
		if got := arguments.ForName("request").Type.String(); got != update.Name+"!" || arguments.ForName("token").Type.String() != "String!" {
			t.Errorf("update%s takes %s", typ, got)
		}
		if got := schema.Mutation.Fields.ForName("update" + typ).Type.String(); got != typ+"!" {
			t.Errorf("update%s returns %s", typ, got)
		}
	}
	conformance.Shown(t, "S3-045")
}

func sameFields(t *testing.T, def *ast.Definition, want []string) {
	t.Helper()
	var got []string
	for _, f := range def.Fields {
		got = append(got, f.Name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s has the fields %v, the description %v", def.Name, got, want)
	}
}

func TestOperationsAskForTheirAuthority(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	schema := deviceManagementSchema(t)
	ops := w.server.Operations()
	for _, op := range ops {
		want := model.DeviceRead
		if op.Kind == "mutation" || strings.HasPrefix(op.Name, "deviceCredentials") || op.Name == "deviceSnippets" {
			want = model.DeviceWrite
		}
		if op.Name == "auditEvents" {
			want = model.AuditRead
		}
		if strings.Contains(strings.ToLower(op.Name), "alarm") {
			want = map[string]model.Authority{"query": model.AlarmRead, "mutation": model.AlarmWrite, "subscription": model.AlarmRead}[op.Kind]
		}
		all := []model.Authority{want}
		if op.Name == "createGeoFence" || op.Name == "updateGeoFence" {
			all = append(all, model.LocationRead)
		}
		if !slices.Equal(op.Access.Authorities(), all) || !op.Access.NeedsTenant() || op.Access.Anonymous() {
			t.Errorf("%s %s asks for %v", op.Kind, op.Name, op.Access.Authorities())
		}
		root := schema.Query
		switch op.Kind {
		case "mutation":
			root = schema.Mutation
		case "subscription":
			root = schema.Subscription
		}
		if text := root.Fields.ForName(op.Name).Description; text != "" && !strings.HasPrefix(text, string(want)) {
			t.Errorf("%s %s is described as %q and asks for %s", op.Kind, op.Name, text, want)
		}
	}
	if len(ops) < 41 {
		t.Errorf("only %d operations are registered", len(ops))
	}
	for _, q := range []string{`{ deviceCredentials(criteria: {pageNumber: 1, pageSize: 1}) { pagination { totalRecords } } }`,
		`{ deviceCredentialsById(ids: ["1"]) { token } }`, `{ deviceCredentialsByToken(tokens: ["c"]) { token } }`} {
		w.refusesFor(reader, q, nil, model.CodeForbidden, "forbidden: device:write")
		w.ok(q, nil)
	}
	conformance.Shown(t, "S3-096")
	w.refusesFor(reader, `mutation { createDeviceType(request: {token: "x"}) { id } }`, nil, model.CodeForbidden, "forbidden: device:write")
	w.refusesFor(nil, `{ devicesByToken(tokens: ["d"]) { token } }`, nil, model.CodeUnauthenticated, "unauthenticated")
	w.refusesFor(member("", 0, model.DeviceRead), `{ devicesByToken(tokens: ["d"]) { token } }`, nil, model.CodeUnauthenticated, "unauthenticated")
}
