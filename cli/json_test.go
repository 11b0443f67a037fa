package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestKeysOfAnswersHaveOneSpelling reads the tags of what commands answer with: camelCase, and one name for the time at which
// a message occurred and was received.
func TestKeysOfAnswersHaveOneSpelling(t *testing.T) {
	t.Parallel()
	camel := regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)
	another := map[string]string{"occurred": "occurredTime", "receivedAt": "receivedTime", "occurredAt": "occurredTime", "created": "createdAt", "updated": "updatedAt"}
	seen := 0
	for _, pattern := range []string{"*.go", "../operate/*.go", "../ingest/trace/*.go", "../health/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, key := range jsonKeys(t, file) {
				seen++
				if !camel.MatchString(key) {
					t.Errorf("%s: the key %q is not camelCase", file, key)
				}
				if better := another[key]; better != "" {
					t.Errorf("%s: %q is called %q elsewhere", file, key, better)
				}
			}
		}
	}
	if seen < 200 {
		t.Errorf("only %d keys seen", seen)
	}
}

// jsonKeys are the keys in the tags of a file's structs.
func jsonKeys(t *testing.T, file string) (keys []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok || field.Tag == nil {
			return true
		}
		text, err := strconv.Unquote(field.Tag.Value)
		if err != nil {
			t.Fatal(err)
		}
		if key, _, _ := strings.Cut(reflect.StructTag(text).Get("json"), ","); key != "" && key != "-" {
			keys = append(keys, key)
		}
		return true
	})
	return keys
}
