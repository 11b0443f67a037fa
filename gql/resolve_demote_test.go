package gql

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/gql/engine"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/presence"
	"weir/registry"
	"weir/store"
)

// someAsserted are states by device row id, whose devices are d1, d2, …; it notes what is demoted.
type someAsserted struct {
	someStates
	now     model.Micros
	fails   error
	demoted []string
	reason  string
}

func (s *someAsserted) ByToken(_ context.Context, _ *model.Principal, tokens []string) (ds []*registry.Device, err error) {
	for _, token := range tokens {
		var id int64
		if _, err := fmt.Sscanf(token, "d%d", &id); err == nil {
			ds = append(ds, &registry.Device{Row: store.Row{ID: id}, Token: token})
		}
	}
	return ds, nil
}

func (s *someAsserted) Now() model.Micros { return s.now }

func (s *someAsserted) Demote(_ context.Context, by *model.Principal, source, reason string, devices []presence.Asserted) error {
	s.reason = reason
	for _, d := range devices {
		if d.Binding.Tenant != by.Tenant || d.Binding.TenantID != by.TenantID {
			return fmt.Errorf("a device of %s", d.Binding.Tenant)
		}
		s.demoted = append(s.demoted, fmt.Sprintf("%s %s %d %d", source, d.Binding.Device, d.Binding.DeviceID, d.Session))
	}
	return s.fails
}

// demoting sends the mutation with these arguments and returns the counts, or the refusal.
func demoting(t *testing.T, d StateDeps, args map[string]any, as ...model.Authority) string {
	t.Helper()
	server := New(Config{})
	RegisterState(server.Area("device-state", TenantPlane), d)
	if err := server.Build(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(args)) {
		value, err := json.Marshal(args[name])
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name+": "+string(value))
	}
	answer := server.Engine("device-state").Execute(WithCall(t.Context(), Call{Principal: fixture.Member("ada", "acme", 1, as...), Transport: HTTP}),
		engine.Request{Query: `mutation { demoteAssertedPresence(` + strings.Join(names, ", ") + `) { scanned demoted skipped lastId } }`})
	if len(answer.Errors) > 0 {
		return string(answer.Errors[0].Code()) + " " + answer.Errors[0].Message
	}
	b, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Data map[string]struct {
			Scanned, Demoted, Skipped int
			LastID                    *string
		}
	}
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	v, last := out.Data["demoteAssertedPresence"], "-"
	if v.LastID != nil {
		last = *v.LastID
	}
	return fmt.Sprintf("%d %d %d %s", v.Scanned, v.Demoted, v.Skipped, last)
}

// TestEachLineOfTheContractOfDemotions holds demoteAssertedPresence against the reference.
func TestEachLineOfTheContractOfDemotions(t *testing.T) {
	t.Parallel()
	states := func() *someAsserted {
		asserted := func(id int64, source string, at model.Micros, has bool) *store.DeviceState {
			return &store.DeviceState{TenantID: 1, DeviceID: id, Asserted: true, Source: source, State: model.Connected, Session: uint64(100 + id), PresenceTime: at, HasPresence: has}
		}
		return &someAsserted{now: 1000, someStates: someStates{rows: []*store.DeviceState{asserted(1, "a", 10, true), asserted(2, "b", 10, true), asserted(3, "a", 999, true),
			{TenantID: 1, DeviceID: 4, Source: "a", HasPresence: true, PresenceTime: 10}, asserted(5, "a", 1000, true), asserted(6, "a", 2000, true), asserted(7, "a", 0, false), asserted(8, "a", 10, true)}}}
	}
	for name, c := range map[string]struct {
		args    map[string]any
		want    string // scanned, demoted, skipped, last id; or the refusal
		demoted string
	}{
		"the whole source":           {map[string]any{}, "6 3 3 8", "a d1 1 101, a d3 3 103, a d8 8 108"},
		"null is the whole source":   {map[string]any{"deviceTokens": nil, "afterId": nil}, "6 3 3 8", "a d1 1 101, a d3 3 103, a d8 8 108"},
		"no device":                  {map[string]any{"deviceTokens": []any{}}, "0 0 0 -", ""},
		"some devices":               {map[string]any{"deviceTokens": []any{"d8", "d2", "d4", "d1", "nope"}}, "2 2 0 8", "a d1 1 101, a d8 8 108"},
		"the first page":             {map[string]any{"limit": 2}, "2 2 0 3", "a d1 1 101, a d3 3 103"},
		"the next page, all skipped": {map[string]any{"limit": 2, "afterId": "3"}, "2 0 2 6", ""},
		"the last page":              {map[string]any{"limit": 4, "afterId": "6"}, "2 1 1 8", "a d8 8 108"},
		"after the end":              {map[string]any{"afterId": "8"}, "0 0 0 -", ""},
		"an unknown source":          {map[string]any{"source": "c"}, "0 0 0 -", ""},
		"no source":                  {map[string]any{"source": " "}, "source: must not be empty", ""},
		"a blank reason":             {map[string]any{"reason": "\t "}, "reason: must not be empty", ""},
		"a long reason":              {map[string]any{"reason": strings.Repeat("é", 257)}, "reason: is longer than 256 characters", ""},
		"a limit of 0":               {map[string]any{"limit": 0}, "limit: must lie in 1..1000", ""},
		"a limit of 1001":            {map[string]any{"limit": 1001}, "limit: must lie in 1..1000", ""},
		"an id that is none":         {map[string]any{"afterId": "x"}, `afterId: "x" is not a row id`, ""},
		"a reason of 256":            {map[string]any{"reason": strings.Repeat("é", 256), "limit": 1000}, "6 3 3 8", "a d1 1 101, a d3 3 103, a d8 8 108"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := states()
			d := StateDeps{States: s, Devices: s, Demoter: s, Listening: func() int64 { return 0 }, Silence: func() time.Duration { return time.Minute }}
			args := map[string]any{"source": "a", "reason": "why", "limit": 10}
			maps.Copy(args, c.args)
			got := demoting(t, d, args, model.StateDemote)
			if !strings.Contains(got, c.want) || strings.Join(s.demoted, ", ") != c.demoted {
				t.Errorf("%s, demoted %q; want %s and %q", got, s.demoted, c.want, c.demoted)
			}
			if len(s.demoted) > 0 && s.reason != args["reason"] {
				t.Errorf("the reason is %q", s.reason)
			}
		})
	}
}

func TestADemotionThatIsRefusedReportsNoCounts(t *testing.T) {
	t.Parallel()
	s := &someAsserted{now: 9, fails: model.Errorf(model.CodeThrottled, "throttled"), someStates: someStates{rows: []*store.DeviceState{{DeviceID: 1, Asserted: true, Source: "a", HasPresence: true, PresenceTime: 1}}}}
	args := map[string]any{"source": "a", "reason": "why", "limit": 10}
	running := StateDeps{States: s, Devices: s, Demoter: s}
	if got := demoting(t, running, args, model.StateDemote); !strings.HasPrefix(got, string(model.CodeThrottled)) {
		t.Error(got)
	}
	if got := demoting(t, StateDeps{States: s, Devices: s}, args, model.StateDemote); !strings.HasPrefix(got, string(model.CodeUnavailable)) {
		t.Errorf("where nothing runs: %s", got)
	}
	s.demoted = nil
	for _, as := range [][]model.Authority{{model.AllAuthorities}, {model.StateRead, model.DeviceWrite}} {
		if got := demoting(t, running, args, as...); got != "FORBIDDEN forbidden: state:demote is required" || len(s.demoted) > 0 {
			t.Errorf("with %v: %s, %q", as, got, s.demoted)
		}
	}
}
