package gql

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	"weir/gql/engine"
	"weir/internal/test/conformance"
)

func TestEventSourcesAnswersWithAPlaceholder(t *testing.T) {
	s := New(Config{})
	RegisterPlaceholder(s.Area("event-sources", TenantPlane))
	if err := s.Build(); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{`{ _empty }`: `{"data":{"_empty":null}}`, `mutation { _empty }`: `{"data":{"_empty":null}}`} {
		if b, err := s.Engine("event-sources").Execute(t.Context(), engine.Request{Query: query}).MarshalJSON(); err != nil || string(b) != want {
			t.Errorf("%s: %s %v", query, b, err)
		}
	}
	conformance.Shown(t, "S3-006")
}

func TestEverySchemaFileLoadsAndOpensWithItsPlane(t *testing.T) {
	files, err := fs.Glob(schemaFiles, "schema/*.graphql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "schema/"), ".graphql")
		sdl, err := SDL(name)
		if err != nil {
			t.Fatal(err)
		}
		if schema, err := gqlparser.LoadSchema(&ast.Source{Name: file, Input: sdl}); err != nil || schema.Query == nil {
			t.Errorf("%s: %v", name, err)
		}
		head, _, _ := strings.Cut(sdl, "\n\n")
		for _, word := range []string{"# Area: ", "# Plane: ", "# Endpoint: {base_url}/api/", "# Token: "} {
			if !strings.HasPrefix(head, "#") || !strings.Contains(head, word) {
				t.Errorf("%s does not open with a comment that has %q", name, word)
			}
		}
		if strings.Contains(sdl, "= null") {
			t.Errorf("%s has a default of null, which erases the difference to absent", name)
		}
	}
}
