package actions

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"weir/command"
	"weir/internal/test/domain"
	"weir/internal/test/draws"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/registry"
	"weir/rules"
	"weir/store"
	"weir/store/outbox"
)

// judging is a drain with the commands and the devices of an instance: the judge is the one that an instance has.
type judging struct {
	*world
	registry *registry.Registry
	commands *command.Service
	by       *model.Principal
	profiles int
	codes    map[string]int // how often each was the verdict
}

func judgingBubble(t *testing.T, test func(j *judging)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		j := &judging{world: &world{T: t, db: fixture.Store(t), deleted: map[int64]bool{}}, codes: map[string]int{},
			by: fixture.Member("ann", "t1", 1, model.DeviceRead, model.DeviceWrite)}
		writer := store.Direct{Store: j.db, Now: time.Now}
		j.registry = domain.New(t, domain.Config{Store: j.db, Writer: writer, Clock: time.Now}).Registry
		j.commands = command.New(command.Settings{PresenceGated: true}, command.Deps{Store: j.db, Writer: writer, Now: time.Now, Ceiling: func(int64) int64 { return 1 << 40 },
			Judge: func(tx store.Tx, tenant int64, devices []string, name string, payload *string) (all []command.Verdict, err error) {
				judged, err := j.registry.Vocabularies.Judge(tx, tenant, devices, name, payload)
				for _, d := range judged {
					all = append(all, command.Verdict{Device: d.Device, DeviceID: d.ID, Rejection: command.Rejection{Code: d.Code, Reason: d.Reason}})
				}
				return all, err
			}})
		j.kinds = []Kind{Commands(j.commands)}
		j.start()
		test(j)
		j.stop()
	})
}

// The verdicts on a command, by who asked: the code of a rejection, "" for one that is taken.

func (j *judging) validated(device, key string, payload *string) string {
	refused, err := j.registry.Vocabularies.Refused(j.Context(), j.by, []string{device}, key, payload)
	j.must(err)
	if len(refused) == 0 {
		return ""
	}
	return refused[0].Code
}

func (j *judging) created(token, device, key string, payload *string) string {
	_, refused, err := j.commands.Order(j.Context(), j.by, command.Order{Token: token, Device: device, Name: key, Payload: payload})
	j.must(err)
	if refused == nil {
		return ""
	}
	return refused.Code
}

func (j *judging) batched(token, device, key string, payload *string) string {
	_, refused, err := j.commands.OrderBatch(j.Context(), j.by, command.BatchOrder{Token: token, Devices: []string{device}, Name: key, Payload: payload})
	j.must(err)
	switch {
	case refused == nil:
		return ""
	case refused.Code == command.BatchPartial:
		return refused.Refusals[0].Code
	}
	return refused.Code
}

// acted is what becomes of the order of a rule.
func (j *judging) acted(key, device, name string, payload *string) string {
	d := model.Dispatch{Kind: string(rules.ActionSendCommand), Tenant: "t1", Device: device, Rule: "t1/p/1/r", Key: key, Command: &model.DispatchCommand{Command: name, DefaultAge: true}}
	if payload != nil {
		d.Payload = *payload
	}
	o := model.Order{TenantID: 1, Kind: d.Kind, Key: key, Received: model.NanosOf(time.Now()), Occurred: model.MicrosOf(time.Now()),
		Expires: model.MicrosOf(time.Now().Add(10 * time.Minute))}
	var err error
	o.Body, err = json.Marshal(d)
	j.must(err)
	j.must(j.db.Write(j.Context(), store.Results, func(tx store.Tx) (err error) {
		if o.DeviceID, err = store.DeviceNamed(tx, 1, device); err != nil {
			return err
		}
		return outbox.Add(tx, &o)
	}))
	j.drain.Wake()
	j.after(0)
	if rows := j.waiting(); len(rows) > 0 {
		j.Fatalf("the order waits: %s", rows[0].Error)
	}
	if len(fixture.Rows(j, j.db, `SELECT id FROM commands WHERE token = ?`, key)) == 1 {
		return ""
	}
	letters := fixture.Rows(j, j.db, `SELECT reason, summary FROM dead_letters WHERE correlation = ?`, key)
	if len(letters) == 0 {
		return command.NoDevice // nothing is left of what was ordered for a device that is gone
	}
	code, ok := strings.CutPrefix(letters[0], "unprocessable ")
	code, _, said := strings.Cut(code, ":")
	if !ok || !said {
		j.Fatalf("the order became %q", letters[0])
	}
	return code
}

// profile publishes a profile with commands, "" for one without parameters, and returns the token of a device of it.
func (j *judging) profile(schemas map[string]string) (device string) {
	j.profiles++
	name, ctx := fmt.Sprintf("p%d", j.profiles), j.Context()
	made := func(_ any, err error) { j.must(err) }
	made(j.registry.Profiles.Create(ctx, j.by, store.Patch{"token": name}))
	for key, schema := range schemas {
		p := store.Patch{"token": name + "-" + key, "deviceProfileToken": name, "commandKey": key}
		if schema != "" {
			p["parameterSchema"] = schema
		}
		made(j.registry.Commands.Create(ctx, j.by, p))
	}
	made(j.registry.Profiles.Publish(ctx, j.by, name, nil, nil))
	made(j.registry.Types.Create(ctx, j.by, store.Patch{"token": name, "profileToken": name}))
	made(j.registry.Devices.Create(ctx, j.by, store.Patch{"token": name, "deviceTypeToken": name}))
	return name
}

var names = []string{"a", "b", "c"}

// schemas are parameters as users declare them, which are small, so that many payloads fit.
func schemas(depth int) *rapid.Generator[[]map[string]any] {
	return rapid.Custom(func(t *rapid.T) (params []map[string]any) {
		for _, name := range names[:rapid.IntRange(0, len(names)).Draw(t, "parameters")] {
			p := map[string]any{"name": name, "required": rapid.Bool().Draw(t, "required")}
			params = append(params, p)
			if depth > 0 && rapid.IntRange(0, 3).Draw(t, "object") == 0 {
				p["kind"], p["parameters"] = "OBJECT", schemas(depth-1).Draw(t, "parameters")
				continue
			}
			p["dataType"] = rapid.SampledFrom([]string{"DOUBLE", "INT", "BOOLEAN", "STRING"}).Draw(t, "type")
			switch numeric := p["dataType"] == "DOUBLE" || p["dataType"] == "INT"; rapid.IntRange(0, 2).Draw(t, "bounds") {
			case 1:
				if numeric {
					p["minValue"], p["maxValue"] = rapid.IntRange(-2, 0).Draw(t, "min"), rapid.IntRange(0, 2).Draw(t, "max")
				}
			case 2:
				if numeric {
					p["enum"] = []any{0, "1"}
				} else if p["dataType"] == "STRING" {
					p["enum"] = []any{"x", "y"}
				}
			}
		}
		return params
	})
}

// value is one that a parameter takes, and now and then another.
func value(t *rapid.T, p map[string]any) any {
	if rapid.IntRange(0, 9).Draw(t, "wrong") == 0 {
		return rapid.SampledFrom([]any{nil, true, "x", 1, 1.5, []any{}, map[string]any{"a": 1}, "1", json.Number("1e999"), -3}).Draw(t, "value")
	}
	switch p["dataType"] {
	case "DOUBLE", "INT":
		return rapid.SampledFrom([]any{0, 1, json.Number("1.0"), json.Number("10e-1")}).Draw(t, "number")
	case "BOOLEAN":
		return rapid.Bool().Draw(t, "boolean")
	case "STRING":
		return rapid.SampledFrom([]string{"x", "y"}).Draw(t, "text")
	}
	params, _ := p["parameters"].([]map[string]any)
	return object(t, params)
}

func object(t *rapid.T, params []map[string]any) map[string]any {
	o := map[string]any{}
	for _, p := range params {
		if p["required"] == true && rapid.IntRange(0, 19).Draw(t, "left out") > 0 || rapid.Bool().Draw(t, "given") {
			o[p["name"].(string)] = value(t, p)
		}
	}
	if rapid.IntRange(0, 19).Draw(t, "undeclared") == 0 {
		o["other"] = 1
	}
	return o
}

// payloads are such as a schema takes, and what no command takes.
func payload(t *rapid.T, params []map[string]any) *string {
	bad := []string{"{", `{"a":1} {}`, "[1]", "1", `"text"`, "null", "{}", " {}\n", `{"a":1,"a":1}`, `{"a":"` + strings.Repeat("x", model.MaxCommandPayload) + `"}`,
		strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000), `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, "\x00", `{"a":01}`}
	switch i := rapid.IntRange(0, 40).Draw(t, "payload"); {
	case i < len(bad):
		return &bad[i]
	case i == len(bad):
		return nil
	}
	text, err := json.Marshal(object(t, params))
	if err != nil {
		t.Fatal(err)
	}
	return new(string(text))
}

// TestEveryoneJudgesACommandAlike lets who checks a command beforehand, who makes one, who makes a batch and the action of a rule judge random
// commands by random definitions: they say the same, by code.
func TestEveryoneJudgesACommandAlike(t *testing.T) {
	judgingBubble(t, func(j *judging) {
		n := 0
		rapid.Check(t, func(t *rapid.T) {
			declared := map[string][]map[string]any{}
			texts := map[string]string{}
			for _, key := range []string{"open", "shut", "Open"}[:rapid.IntRange(0, 3).Draw(t, "commands")] {
				declared[key] = schemas(2).Draw(t, "schema")
				if rapid.IntRange(0, 4).Draw(t, "with parameters") == 0 {
					texts[key] = ""
					continue
				}
				text, err := json.Marshal(append([]map[string]any{}, declared[key]...))
				if err != nil {
					t.Fatal(err)
				}
				texts[key] = string(text)
			}
			own := j.profile(texts)
			for range 10 {
				n++
				device := rapid.SampledFrom([]string{own, own, own, own, "none", "no token"}).Draw(t, "device")
				key := rapid.SampledFrom([]string{"open", "open", "open", "shut", "Open", "reboot", "", strings.Repeat("k", 129)}).Draw(t, "key")
				payload := payload(t, declared[key])
				want := j.validated(device, key, payload)
				j.codes[want]++
				for who, got := range map[string]string{
					"createCommand":        j.created(fmt.Sprintf("c%d", n), device, key, payload),
					"createCommandBatch":   j.batched(fmt.Sprintf("b%d", n), device, key, payload),
					"the action of a rule": j.acted(fmt.Sprintf("r%d", n), device, key, payload),
				} {
					if got != want {
						shown := "none"
						if payload != nil {
							shown = fmt.Sprintf("%.100q", *payload)
						}
						t.Errorf("%s says %q, validateCommandEnqueue %q: device %q, command %.20q, payload %s, definitions %v", who, got, want, device, key, shown, texts)
					}
				}
			}
		})
		for _, code := range []string{"", command.NotJSON, command.Rejected, command.NoDevice, command.NotInVocabulary, command.BadParameters} {
			if draws.All() && j.codes[code] < n/100 {
				t.Errorf("%q was the verdict %d times of %d", code, j.codes[code], n)
			}
		}
	})
}
