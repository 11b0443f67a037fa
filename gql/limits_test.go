package gql

import (
	"strconv"
	"testing"
	"time"

	"weir/internal/test/conformance"
)

func TestLimitsComeFromTheEnvironmentOrStayAtTheirDefaults(t *testing.T) {
	env := map[string]string{}
	getenv := func(name string) string { return env[name] }
	def := Limits{}.withDefaults()
	if got := LimitsFromEnv(getenv); got != def {
		t.Errorf("empty: %+v", got)
	}
	if def.BodyBytes != 4<<20 || def.QueryLength != 100_000 || def.Depth != 15 || def.QueryRootFields != 20 || def.MutationRootFields != 5 ||
		def.Selections != 2000 || def.Cost != 500_000 || def.Time != 30*time.Second || def.CredentialChecks != 1 ||
		def.ListArgument != 1000 || def.ResponseBytes != 32<<20 {
		t.Errorf("defaults: %+v", def)
	}
	names := []string{"BODY_BYTES", "QUERY_LENGTH", "DEPTH", "QUERY_ROOT_FIELDS", "MUTATION_ROOT_FIELDS", "SELECTIONS", "COST", "TIME", "CREDENTIAL_CHECKS"}
	for _, bad := range []string{"0", "-1", "x", " 7", "1.5", "99999999999999999999", "-5s"} {
		for _, name := range names {
			env["WEIR_GRAPHQL_MAX_"+name] = bad
		}
		if got := LimitsFromEnv(getenv); got != def {
			t.Errorf("%q: %+v", bad, got)
		}
	}
	for i, name := range names {
		env["WEIR_GRAPHQL_MAX_"+name] = strconv.Itoa(i + 1)
	}
	want := def
	want.BodyBytes, want.QueryLength, want.Depth, want.QueryRootFields, want.MutationRootFields, want.Selections, want.Cost, want.Time, want.CredentialChecks =
		1, 2, 3, 4, 5, 6, 7, 8*time.Second, 9
	if got := LimitsFromEnv(getenv); got != want {
		t.Errorf("set: %+v", got)
	}
	env["WEIR_GRAPHQL_MAX_TIME"] = "1m30s"
	if got := LimitsFromEnv(getenv).Time; got != 90*time.Second {
		t.Errorf("time: %v", got)
	}
}

func TestDevToolsAreOnOnlyForWhatIsABooleanTrue(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "1": true, "T": true, "TRUE": true, "false": false, "0": false, "": false,
		"yes": false, "on": false, "tRuE": false, " true": false} {
		on := DevTools(func(name string) string {
			if name == "WEIR_GRAPHQL_DEV_TOOLS" {
				return value
			}
			return ""
		})
		w := newWorld(t, Config{DevTools: on})
		got := w.do(nil, `{ __schema { queryType { name } } }`, ``)
		if answered := got == `{"data":{"__schema":{"queryType":{"name":"Query"}}}}`; answered != want {
			t.Errorf("%q: %s", value, got)
		}
	}
	conformance.Shown(t, "S3-107")
}
