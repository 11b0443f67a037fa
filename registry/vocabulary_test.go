package registry

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"weir/model"
	"weir/store"
)

const valveParameters = `[{"name":"level","dataType":"INT","required":true,"minValue":0,"maxValue":100},{"name":"mode","dataType":"STRING","enum":["slow","fast"]}]`

// commands gives profile "p" two commands.
func (b *bench) commands() {
	b.Helper()
	for _, p := range []store.Patch{
		{"token": "c-valve", "commandKey": "valve", "name": "Valve", "description": "Opens it", "parameterSchema": valveParameters},
		{"token": "c-reboot", "commandKey": "reboot", "metadata": `{"not":"frozen"}`},
	} {
		p["deviceProfileToken"] = "p"
		must(b.Commands.Create(b.Context(), acme, p))(b)
	}
}

// The text is that of the formats: the first is written as long as there are no commands.
func TestTheSnapshotOfAProfileIsFrozen(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	publish := func() { must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t) }
	publish()
	b.views()
	b.fillDraft()
	publish()
	b.commands()
	publish()
	rule := `"rules":[{"token":"r0","definition":"{\"broken\":true}","enabled":false},` +
		`{"token":"r1","definition":"RULE","name":"Hot","enabled":true},{"token":"r2","definition":"RULE","enabled":true}]`
	rule = strings.ReplaceAll(rule, "RULE", strings.ReplaceAll(ruleText, `"`, `\"`))
	metrics := `"metrics":[{"key":"mode","dataType":"STRING","enum":["on","off"],"token":"m-mode","name":"Mode"},` +
		`{"key":"temp","dataType":"DOUBLE","unit":"Cel","min":-40,"max":125,"token":"m-temp"}],`
	rest := `"inactivityTimeoutSeconds":90,"location":{"expectedAccuracyMeters":2.5}}`
	commands := `,"commands":[{"token":"c-reboot","commandKey":"reboot"},{"token":"c-valve","commandKey":"valve","name":"Valve","description":"Opens it","parameterSchema":"` +
		strings.ReplaceAll(valveParameters, `"`, `\"`) + `"}],`
	want := []string{`{"v":1}`, `{"v":1,` + metrics + rule + `,` + rest, `{"v":2,` + metrics + rule + commands + rest}
	if got := b.rows(`SELECT snapshot FROM device_profile_versions ORDER BY version`); !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A version that an older Weir published is read, rolled back to and compared with the draft: an upgrade leaves nothing
// unpublished.
func TestAVersionOfTheFirstFormatIsReadForEver(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	b.fillDraft()
	must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
	old := b.rows(`SELECT snapshot FROM device_profile_versions`)[0]
	if !strings.HasPrefix(old, `{"v":1,`) {
		t.Fatal(old)
	}
	if differs, next, err := b.Profiles.Unpublished(ctx, acme, "p"); differs || next != 2 || err != nil {
		t.Errorf("a draft as it was published: %v %d %v", differs, next, err)
	}
	vocabulary := func(constrained bool, keys ...string) {
		t.Helper()
		v := must(b.Vocabularies.Of(ctx, acme, "d"))(t)
		got := []string{}
		for _, c := range v.Commands {
			got = append(got, c.Key)
		}
		if v.Constrained != constrained || !slices.Equal(got, append([]string{}, keys...)) {
			t.Errorf("constrained %v, %v, want %v, %v", v.Constrained, got, constrained, keys)
		}
	}
	vocabulary(false)
	b.commands()
	vocabulary(false) // of the draft
	if differs, _, err := b.Profiles.Unpublished(ctx, acme, "p"); !differs || err != nil {
		t.Errorf("a draft with commands: %v %v", differs, err)
	}
	must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
	vocabulary(true, "reboot", "valve")
	must(b.Commands.Delete(ctx, acme, "c-valve"))(t)
	vocabulary(true, "reboot", "valve")
	must(b.Profiles.Rollback(ctx, acme, "p", 1))(t)
	vocabulary(false)
	must(b.Profiles.Rollback(ctx, acme, "p", 2))(t)
	vocabulary(true, "reboot", "valve")
	if drafted := must(b.Commands.By(ctx, acme, "profile_id", int64(1)))(t); len(drafted) != 1 {
		t.Errorf("a rollback changed the draft: %d commands", len(drafted))
	}
	if v, err := b.Vocabularies.Of(ctx, acme, "nowhere"); v != nil || err != nil {
		t.Errorf("of an unknown device: %v %v", v, err)
	}
	if v, err := b.Vocabularies.Of(ctx, other, "d"); v != nil || err != nil {
		t.Errorf("of another tenant's device: %v %v", v, err)
	}
	if _, err := decodeSnapshot(`{"v":5}`); err == nil {
		t.Error("a newer format is read")
	}
}

func TestACommandIsCheckedAgainstTheActiveVersion(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	must(b.Types.Create(ctx, acme, store.Patch{"token": "free"}))(t)
	must(b.Devices.Create(ctx, acme, store.Patch{"token": "any", "deviceTypeToken": "free"}))(t)
	must(b.Devices.Create(ctx, acme, store.Patch{"token": "e", "deviceTypeToken": "t"}))(t)
	b.commands()
	must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
	devices := []string{"e", "nowhere", "any", "d", "e", "zz"}
	for _, c := range []struct {
		key     string
		payload *string
		want    string // device:code of the refused
	}{
		{"valve", new(`{"level": 50}`), "nowhere:DEVICE_NOT_FOUND zz:DEVICE_NOT_FOUND"},
		{"valve", new(`{"level": 500}`), "e:PAYLOAD_SCHEMA_VIOLATION nowhere:DEVICE_NOT_FOUND d:PAYLOAD_SCHEMA_VIOLATION zz:DEVICE_NOT_FOUND"},
		{"valve", nil, "e:PAYLOAD_SCHEMA_VIOLATION nowhere:DEVICE_NOT_FOUND d:PAYLOAD_SCHEMA_VIOLATION zz:DEVICE_NOT_FOUND"},
		{"Valve", nil, "e:COMMAND_NOT_IN_VOCABULARY nowhere:DEVICE_NOT_FOUND d:COMMAND_NOT_IN_VOCABULARY zz:DEVICE_NOT_FOUND"},
		{"reboot", new(` {"any": "thing"}`), "nowhere:DEVICE_NOT_FOUND zz:DEVICE_NOT_FOUND"},
		{"reboot", new(`[1, "anything"]`), "e:PAYLOAD_SCHEMA_VIOLATION nowhere:DEVICE_NOT_FOUND any:PAYLOAD_SCHEMA_VIOLATION d:PAYLOAD_SCHEMA_VIOLATION zz:DEVICE_NOT_FOUND"},
		{"reboot", new(`{"a":"` + strings.Repeat("x", model.MaxCommandPayload) + `"}`), "e:COMMAND_REJECTED nowhere:COMMAND_REJECTED any:COMMAND_REJECTED d:COMMAND_REJECTED zz:COMMAND_REJECTED"},
		{strings.Repeat("é", maxCommandKey+1), nil, "e:COMMAND_NOT_IN_VOCABULARY nowhere:DEVICE_NOT_FOUND any:COMMAND_NOT_IN_VOCABULARY d:COMMAND_NOT_IN_VOCABULARY zz:DEVICE_NOT_FOUND"},
		{"reboot", nil, "nowhere:DEVICE_NOT_FOUND zz:DEVICE_NOT_FOUND"},
		{"reboot", new(`{`), "e:PAYLOAD_NOT_JSON nowhere:PAYLOAD_NOT_JSON any:PAYLOAD_NOT_JSON d:PAYLOAD_NOT_JSON zz:PAYLOAD_NOT_JSON"},
		{"reboot", new(``), "e:PAYLOAD_NOT_JSON nowhere:PAYLOAD_NOT_JSON any:PAYLOAD_NOT_JSON d:PAYLOAD_NOT_JSON zz:PAYLOAD_NOT_JSON"},
		{"", nil, "e:COMMAND_NOT_IN_VOCABULARY nowhere:DEVICE_NOT_FOUND any:COMMAND_NOT_IN_VOCABULARY d:COMMAND_NOT_IN_VOCABULARY zz:DEVICE_NOT_FOUND"},
	} {
		var got []string
		for _, r := range must(b.Vocabularies.Refused(ctx, acme, devices, c.key, c.payload))(t) {
			if got = append(got, r.Device+":"+r.Code); r.Reason == "" {
				t.Errorf("%s: no reason", r.Device)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s %v: %v, want %s", c.key, text(c.payload), got, c.want)
		}
	}
	for _, r := range must(b.Vocabularies.Refused(ctx, other, []string{"d"}, "valve", nil))(t) {
		if r.Code != RefusedDevice {
			t.Errorf("another tenant's device: %v", r)
		}
	}
	many := make([]string, MaxCommandBatch+1)
	for i := range many {
		many[i] = fmt.Sprint("n", i)
	}
	_, err := b.Vocabularies.Refused(ctx, acme, many, "valve", nil)
	b.refused("too many", err, model.CodeLimitExceeded, "deviceTokens")
	if n := len(must(b.Vocabularies.Refused(ctx, acme, many[1:], "valve", nil))(t)); n != MaxCommandBatch {
		t.Errorf("%d of %d unknown devices are refused", n, MaxCommandBatch)
	}
}

func TestACommandKeyIsUniqueInItsProfile(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{CommandsPerProfile: 2})
	ctx := t.Context()
	b.seed()
	must(b.Profiles.Create(ctx, acme, store.Patch{"token": "q"}))(t)
	b.commands()
	create := func(token, profile, key string, schema any) error {
		_, err := b.Commands.Create(ctx, acme, store.Patch{"token": token, "deviceProfileToken": profile, "commandKey": key, "parameterSchema": schema})
		return err
	}
	if err := create("q-valve", "q", "valve", nil); err != nil {
		t.Fatal(err)
	}
	b.unchanged("refused", func() {
		b.refused("one more than a profile has", create("c3", "p", "third", nil), model.CodeLimitExceeded, "at most 2 command definitions")
		b.refused("key twice", create("c3", "q", "valve", nil), model.CodeConflict, "commandKey of a command definition must be unique")
		b.refused("no key", create("c3", "q", "", nil), model.CodeInvalidInput, "commandKey")
		b.refused("a schema that is none", create("c3", "q", "k", `{"type":"object"}`), model.CodeInvalidInput, "parameterSchema: must be a JSON array")
		b.refused("a parameter without a type", create("c3", "q", "k", `[{"name":"x"}]`), model.CodeInvalidInput, `parameterSchema: "x": dataType`)
		must(b.Commands.Delete(ctx, acme, "nowhere"))(t)
	})
	must(b.Commands.Delete(ctx, acme, "c-reboot"))(t)
	b.unchanged("moved onto a key in use", func() {
		_, err := b.Commands.Update(ctx, acme, "q-valve", store.Patch{"deviceProfileToken": "p"})
		b.refused("moved", err, model.CodeConflict, "unique")
	})
	must(b.Commands.Update(ctx, acme, "q-valve", store.Patch{"deviceProfileToken": "p", "commandKey": "valve2"}))(t)
	foreign(b, b.Commands, "c-valve", 1, store.Patch{"name": "x"}, store.Patch{"token": "n", "deviceProfileToken": "p", "commandKey": "k"})
	b.seedless("p")
	if rows := b.rows(`SELECT token FROM command_definitions`); len(rows) != 0 {
		t.Errorf("commands outlive their profile: %v", rows)
	}
}

// seedless removes device d, type t and the profile.
func (b *bench) seedless(profile string) {
	b.Helper()
	must(b.Devices.Delete(b.Context(), acme, "d"))(b)
	must(b.Types.Delete(b.Context(), acme, "t"))(b)
	must(b.Profiles.Delete(b.Context(), acme, profile))(b)
}

func TestReferencesThatExist(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	for _, kind := range []string{"asset", "area", "customer"} {
		must(b.Kinds.Of(kind+"_types").Create(ctx, acme, store.Patch{"token": "t"}))(t)
		must(b.Kinds.Of(map[string]string{"asset": "assets", "area": "areas", "customer": "customers"}[kind]).Create(ctx, acme, store.Patch{"token": kind, kind + "TypeToken": "t"}))(t)
	}
	asked := []EntityRef{{"customer", "customer"}, {"device", "nowhere"}, {"area", "area"}, {"device", "d"}, {"area", "customer"}, {"asset", "asset"}, {"device", "d"}, {"device", ""}}
	want := []EntityRef{{"customer", "customer"}, {"area", "area"}, {"device", "d"}, {"asset", "asset"}, {"device", "d"}}
	if got := must(b.ExistingRefs(ctx, acme, asked))(t); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := must(b.ExistingRefs(ctx, other, asked))(t); len(got) != 0 {
		t.Errorf("another tenant sees %v", got)
	}
	_, err := b.ExistingRefs(ctx, acme, []EntityRef{{"planet", "x"}})
	b.refused("no type", err, model.CodeInvalidInput, "area, asset, customer, device, group")
}

func TestFacetKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{DeviceSettings: DeviceSettings{FacetKeysPerTenant: 2}})
	ctx := t.Context()
	set := func(member, key, typ string, more ...any) (*FacetKey, error) {
		p := store.Patch{"memberType": member, "key": key, "valueType": typ}
		for i := 0; i < len(more); i += 2 {
			p[more[i].(string)] = more[i+1]
		}
		return b.FacetKeys.Set(ctx, acme, p)
	}
	made := must(set("device", "floor", "LONG", "values", []any{"1", "2"}, "label", "Floor"))(t)
	if made.Source != FacetAttribute || *made.Label != "Floor" || !slices.Equal(made.Values, []string{"1", "2"}) {
		t.Errorf("made %+v", made)
	}
	again := must(set("device", "floor", "STRING"))(t)
	if again.ID != made.ID || again.ValueType != "STRING" || again.Label != nil || len(again.Values) != 0 || again.UpdatedAt <= made.UpdatedAt {
		t.Errorf("replaced by %+v", again)
	}
	must(set("asset", "floor", "LONG"))(t)
	b.unchanged("refused", func() {
		for what, err := range map[string]error{
			"no member type":  second(set("group", "x", "LONG")),
			"no value type":   second(set("device", "x", "NUMBER")),
			"no key":          second(set("device", "", "LONG")),
			"too long a key":  second(set("device", strings.Repeat("x", 129), "LONG")),
			"a source":        second(set("device", "x", "LONG", "source", "system")),
			"values that are": second(set("device", "x", "LONG", "values", "one")),
		} {
			b.refused(what, err, model.CodeInvalidInput, "")
		}
		b.refused("a third", second(set("area", "floor", "LONG")), model.CodeLimitExceeded, "limits.facet_keys_per_tenant")
		if must(b.FacetKeys.Unset(ctx, other, "device", "floor"))(t) || must(b.FacetKeys.Unset(ctx, acme, "device", "none"))(t) {
			t.Error("what is not there is deleted")
		}
	})
	rows, total, err := b.FacetKeys.List(ctx, acme, store.Page{}, must(b.FacetKeys.Info().Criteria(ctx, acme, map[string]any{"memberType": "asset"}))(t)...)
	if err != nil || total != 1 || rows[0].MemberType != "asset" {
		t.Errorf("%v, %d, %v", rows, total, err)
	}
	if _, total, err := b.FacetKeys.List(ctx, other, store.Page{}); err != nil || total != 0 {
		t.Errorf("another tenant has %d, %v", total, err)
	}
	of := func(source string) {
		t.Helper()
		if err := b.db.Write(ctx, store.Results, func(tx store.Tx) error {
			_, err := tx.Exec(`UPDATE facet_keys SET source = ? WHERE member_type = 'asset'`, source)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	of(FacetSystem)
	b.unchanged("a key of the system", func() {
		b.refused("written", second(set("asset", "floor", "LONG")), model.CodeInvalidInput, "reserved")
		b.refused("deleted", second(b.FacetKeys.Unset(ctx, acme, "asset", "floor")), model.CodeInvalidInput, "reserved")
	})
	of(FacetAttribute)
	b.compareBytes(t)
	if !must(b.FacetKeys.Unset(ctx, acme, "device", "floor"))(t) {
		t.Error("not deleted")
	}
	b.compareBytes(t)
	reader := model.Service("test", acme.Tenant, acme.TenantID, model.DeviceRead)
	_, err = b.FacetKeys.Set(ctx, reader, store.Patch{})
	b.refused("by one who reads", err, model.CodeForbidden, "device:write")
	_, err = b.FacetKeys.Unset(ctx, reader, "device", "floor")
	b.refused("by one who reads", err, model.CodeForbidden, "device:write")
}

func second[T any](_ T, err error) error { return err }
