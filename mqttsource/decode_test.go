package mqttsource

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/setting"
	"weir/model"
)

// translated is what a source with one mapping makes of a message, on a line.
func translated(m Mapping, topic, payload string) string {
	s := &Source{ID: "s", Host: "h", Tenant: "acme", Attributes: true, Retained: "ignore", Map: []Mapping{m}}
	if m.TimeFormat == "" {
		s.Map[0].TimeFormat = "rfc3339"
	}
	text := s.Translate(topic, []byte(payload), false).String()
	return strings.TrimPrefix(text, topic+": ")
}

func fromHex(s string) string {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return string(b)
}

// decodings are payloads and what mappings make of them.
var decodings = []struct {
	name    string
	m       Mapping
	topic   string
	payload string
	want    string
}{
	{"a number", Mapping{Topic: "{device}/{metric}", Decode: "number"}, "d/t", " 21.5\n", "tenant acme, device d, t = 21.5"},
	{"a word", Mapping{Topic: "{device}/{metric}", Decode: "number"}, "d/door", "Closed", "tenant acme, device d, door = 0"},
	{"a word of its own", Mapping{Topic: "{device}/{metric}", Decode: "number", Words: setting.Texts{"Auf": "1"}}, "d/door", "AUF", "tenant acme, device d, door = 1"},
	{"no number", Mapping{Topic: "{device}/{metric}", Decode: "number"}, "d/t", "warm", "cannot be decoded: the payload is neither a number nor one of the words"},
	{"not a number", Mapping{Topic: "{device}/{metric}", Decode: "number"}, "d/t", "NaN", "cannot be decoded: the payload is neither a number nor one of the words"},
	{"hexadecimal", Mapping{Topic: "{device}/{metric}", Decode: "number"}, "d/t", "0x10", "cannot be decoded: the payload is neither a number nor one of the words"},
	{"a metric that is named", Mapping{Topic: "{device}/{node}/{x}", Decode: "number", Metric: "{node}.{x}"}, "d/n/y", "1", "tenant acme, device d, n.y = 1"},
	{"a device that is put together", Mapping{Topic: "{hall}/{device}", Decode: "number", Metric: "t", Device: "{hall}-{device}"}, "h1/d", "1", "tenant acme, device h1-d, t = 1"},

	{"all leaves", Mapping{Topic: "{device}", Decode: "json"}, "d", `{"b":{"c":1.5,"l":[1,{"x":true}]},"a":2,"n":null,"s":"text"}`,
		`tenant acme, device d, a = 2, b.c = 1.5, b.l.0 = 1, b.l.1.x = 1, attribute s = "text"`},
	{"some names", Mapping{Topic: "{device}", Decode: "json", Include: []string{"a*", "b"}, Exclude: []string{"ab"}}, "d", `{"a":1,"ab":2,"ac":3,"b":4,"c":5}`,
		"tenant acme, device d, a = 1, ac = 3, b = 4"},
	{"a prefix", Mapping{Topic: "{device}", Decode: "json", Metric: "env"}, "d", `{"t":1}`, "tenant acme, device d, env.t = 1"},
	{"a single value", Mapping{Topic: "{device}/{metric}", Decode: "json"}, "d/t", `3`, "tenant acme, device d, t = 3"},
	{"a single value without a name", Mapping{Topic: "{device}", Decode: "json"}, "d", `3`, "cannot be decoded: the payload is a single value: set metric, or a level {metric} in the topic"},
	{"too deep", Mapping{Topic: "{device}", Decode: "json"}, "d", strings.Repeat(`{"a":`, 9) + "1" + strings.Repeat("}", 9), "ignored, nothing of the payload is kept"},
	{"values at paths", Mapping{Topic: "{device}", Decode: "json", Values: setting.Texts{"t": "$.env['in temp']", "last": "$.l[-1]", "none": "$.x"}}, "d", `{"env":{"in temp":"21.5"},"l":[1,2]}`,
		"tenant acme, device d, last = 2, t = 21.5"},
	{"no number at a path", Mapping{Topic: "{device}", Decode: "json", Values: setting.Texts{"t": "$.t"}}, "d", `{"t":"warm"}`, "cannot be decoded: there is no number at $.t"},
	{"words in an object", Mapping{Topic: "{device}", Decode: "json", Words: setting.Texts{"ON": "1"}}, "d", `{"state":"on","mode":"auto"}`, `tenant acme, device d, state = 1, attribute mode = "auto"`},
	{"a device in the payload", Mapping{Topic: "up", Decode: "json", Device: "$.id"}, "up", `{"id":"d7","t":1}`, `tenant acme, device d7, t = 1, attribute id = "d7"`},
	{"no device in the payload", Mapping{Topic: "up", Decode: "json", Device: "$.id"}, "up", `{"t":1}`, "cannot be decoded: the payload has no device at $.id"},
	{"a time", Mapping{Topic: "{device}", Decode: "json", Time: "$.at"}, "d", `{"at":"2026-03-01T08:00:00.5+01:00","t":1}`, `tenant acme, device d, at 2026-03-01T07:00:00.5Z, t = 1, attribute at = "2026-03-01T08:00:00.5+01:00"`},
	{"a time in milliseconds", Mapping{Topic: "{device}", Decode: "json", Time: "$.at", TimeFormat: "unix_ms", Values: setting.Texts{"t": "$.t"}}, "d", `{"at":1772352000250,"t":1}`,
		"tenant acme, device d, at 2026-03-01T08:00:00.25Z, t = 1"},
	{"a time of another form", Mapping{Topic: "{device}", Decode: "json", Time: "$.at"}, "d", `{"at":5,"t":1}`, "cannot be decoded: the time at $.at is not of the form rfc3339"},
	{"no JSON", Mapping{Topic: "{device}", Decode: "json"}, "d", `{"a":1`, "cannot be decoded: the payload is not JSON"},
	{"two values", Mapping{Topic: "{device}", Decode: "json"}, "d", `{} {}`, "cannot be decoded: the payload is more than one JSON value"},
	{"a number that is too large", Mapping{Topic: "{device}", Decode: "json"}, "d", `{"a":1e999}`, "cannot be decoded: the number of a is too large"},

	{"CBOR", Mapping{Topic: "{device}", Decode: "cbor"}, "d", fromHex("a3 61 74 f9 4d60 02 20 61 6c 9f 01 f5 ff"), "tenant acme, device d, 2 = -1, l.0 = 1, l.1 = 1, t = 21.5"},
	{"CBOR with times", Mapping{Topic: "{device}", Decode: "cbor", Time: "$.at"}, "d", fromHex("bf 62 6174 c1 1a 69a3f200 61 76 fb 3ff8000000000000 ff"), "tenant acme, device d, at 2026-03-01T08:00:00Z, v = 1.5"},
	{"CBOR that ends early", Mapping{Topic: "{device}", Decode: "cbor"}, "d", fromHex("a1 61"), "cannot be decoded: the payload is not CBOR (RFC 8949)"},
	{"a lone stop code", Mapping{Topic: "{device}", Decode: "cbor"}, "d", fromHex("ff"), "cannot be decoded: the payload is not CBOR (RFC 8949)"},
	{"a CBOR text of 2^63 bytes", Mapping{Topic: "{device}", Decode: "cbor"}, "d", fromHex("7b 8000000000000000 61"), "cannot be decoded: the payload is not CBOR (RFC 8949)"},
	{"chunks", Mapping{Topic: "{device}", Decode: "cbor"}, "d", fromHex("a1 7f 61 61 61 62 ff 01"), "tenant acme, device d, ab = 1"},

	{"presence", Mapping{Topic: "{device}/lwt", Decode: "presence"}, "d/lwt", "Online", "tenant acme, device d, CONNECTED"},
	{"presence in an object", Mapping{Topic: "{device}/lwt", Decode: "presence"}, "d/lwt", `{"state":"offline"}`, "tenant acme, device d, DISCONNECTED"},
	{"presence in other words", Mapping{Topic: "{device}/lwt", Decode: "presence", Words: setting.Texts{"da": "CONNECTED"}}, "d/lwt", "Da", "tenant acme, device d, CONNECTED"},
	{"no presence", Mapping{Topic: "{device}/lwt", Decode: "presence"}, "d/lwt", "maybe", `cannot be decoded: "maybe" is none of the words`},

	{"Zigbee2MQTT", Mapping{Decode: "zigbee2mqtt"}, "zigbee2mqtt/hall/lamp", `{"state":"ON","brightness":254,"linkquality":120,"color":{"x":0.4},"update":{"installed_version":3},"last_seen":"2026-03-01T08:00:00Z"}`,
		"tenant acme, device hall/lamp, brightness = 254, color.x = 0.4, linkquality = 120, state = 1"},
	{"availability of Zigbee2MQTT", Mapping{Decode: "zigbee2mqtt"}, "zigbee2mqtt/hall/lamp/availability", `{"state":"online"}`, "tenant acme, device hall/lamp, CONNECTED"},
	{"the bridge of Zigbee2MQTT", Mapping{Decode: "zigbee2mqtt"}, "zigbee2mqtt/bridge/state", `{"state":"offline"}`, "tenant acme, device , DISCONNECTED"},
	{"the devices of Zigbee2MQTT", Mapping{Decode: "zigbee2mqtt"}, "zigbee2mqtt/bridge/devices", `[]`, "ignored, the preset leaves the topic out"},
	{"a command for Zigbee2MQTT", Mapping{Decode: "zigbee2mqtt"}, "zigbee2mqtt/hall/lamp/set", `{}`, "ignored, the preset leaves the topic out"},
	{"Zigbee2MQTT below another prefix", Mapping{Decode: "zigbee2mqtt", Prefix: "home/z2m"}, "home/z2m/lamp", `{"state":"OFF"}`, "tenant acme, device lamp, state = 0"},
	{"Tasmota", Mapping{Decode: "tasmota"}, "tele/plug/SENSOR", `{"Time":"2026-03-01T08:00:00","ENERGY":{"Power":12,"TotalStartTime":"2026-01-01T00:00:00"},"TempUnit":"C"}`,
		`tenant acme, device plug, ENERGY.Power = 12, attribute ENERGY.TotalStartTime = "2026-01-01T00:00:00"`},
	{"the state of Tasmota", Mapping{Decode: "tasmota"}, "tele/plug/STATE", `{"Time":"x","POWER":"ON","Wifi":{"RSSI":84}}`, "tenant acme, device plug, POWER = 1, Wifi.RSSI = 84"},
	{"the end of a Tasmota", Mapping{Decode: "tasmota"}, "tele/plug/LWT", "Offline", "tenant acme, device plug, DISCONNECTED"},
	{"ESPHome", Mapping{Decode: "esphome"}, "kitchen/sensor/temperature/state", "21.5", "tenant acme, device kitchen, temperature = 21.5"},
	{"a text of ESPHome", Mapping{Decode: "esphome"}, "kitchen/text_sensor/ip/state", "10.0.0.5", `tenant acme, device kitchen, attribute ip = "10.0.0.5"`},
	{"the status of ESPHome", Mapping{Decode: "esphome"}, "kitchen/status", "online", "tenant acme, device kitchen, CONNECTED"},
	{"Homie 4", Mapping{Decode: "homie"}, "homie/d/engine/temperature", "88", "tenant acme, device d, engine.temperature = 88"},
	{"Homie 5", Mapping{Decode: "homie"}, "homie/5/d/engine/on", "true", "tenant acme, device d, engine.on = 1"},
	{"the state of Homie", Mapping{Decode: "homie"}, "homie/d/$state", "lost", "tenant acme, device d, DISCONNECTED"},
}

func TestWhatMappingsMakeOfPayloads(t *testing.T) {
	t.Parallel()
	for _, c := range decodings {
		if got := translated(c.m, c.topic, c.payload); got != c.want {
			t.Errorf("%s: got\n  %s\nwant\n  %s", c.name, got, c.want)
		}
	}
}

// TestMappingsThatCannotBe names the key and the mistake.
func TestMappingsThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		m    Mapping
		want string
	}{
		{Mapping{Topic: "a/#", Decode: "json"}, "map[0].topic"},
		{Mapping{Topic: "a", Decode: "json"}, "map[0].device"},
		{Mapping{Topic: "{device}", Decode: "xml"}, "map[0].decode: must be one of event, json, number, cbor, presence, esphome, homie, tasmota, zigbee2mqtt"},
		{Mapping{Topic: "{device}", Decode: "number"}, "map[0].metric"},
		{Mapping{Topic: "{device}", Decode: "json", Device: "{other}"}, "map[0].device: {other} is no level"},
		{Mapping{Topic: "{device}", Decode: "number", Metric: "x", Device: "$.id"}, "map[0].device: can be a path for json and cbor only"},
		{Mapping{Topic: "{device}", Decode: "json", Values: setting.Texts{"t": "$..t"}}, "map[0].values.t: is no singular path"},
		{Mapping{Topic: "{device}", Decode: "json", Time: "at"}, "map[0].time"},
		{Mapping{Topic: "{device}", Decode: "presence", Words: setting.Texts{"up": "1"}}, "map[0].words.up: must be CONNECTED"},
		{Mapping{Topic: "{device}", Decode: "json", Words: setting.Texts{"up": "x"}}, "map[0].words.up: must be a number"},
		{Mapping{Topic: "x/{device}", Decode: "homie"}, "map[0].decode: is a preset"},
	} {
		s := &Source{ID: "s", Host: "h", Tenant: "acme", Map: []Mapping{c.m}}
		if _, faults := s.compile(""); len(faults) == 0 || !strings.HasPrefix(faults[0].Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.m, faults, c.want)
		}
	}
	s := &Source{ID: "s", Host: "h", Map: []Mapping{{Topic: "{device}", Decode: "json"}}}
	if _, faults := s.compile(""); len(faults) != 1 || faults[0].Key != "map[0].tenant" {
		t.Errorf("without a tenant: %v", faults)
	}
}

// TestManyReadingsBecomeSeveralMessages of at most 256.
func TestManyReadingsBecomeSeveralMessages(t *testing.T) {
	t.Parallel()
	d := &decoded{at: time.Unix(5, 0)}
	for i := range 600 {
		d.readings = append(d.readings, model.Reading{Metric: fmt.Sprint(i)})
	}
	all := d.messages()
	if len(all) != 3 || len(all[0].Measurements) != 256 || len(all[2].Measurements) != 88 || !all[1].HasOccurred {
		t.Errorf("%d messages", len(all))
	}
}

func FuzzPath(f *testing.F) {
	for _, p := range []string{"$", "$.a.b", "$['a b'][0]", "$[-1]", `$["x"].y`, "$..a", "$[*]"} {
		f.Add(p)
	}
	v, _ := parseJSON([]byte(`{"a":{"b":[1,2]},"a b":[3]}`))
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := parsePath(text); err == nil {
			p.find(v)
		}
	})
}

func FuzzPayloads(f *testing.F) {
	for _, c := range decodings {
		f.Add(c.topic, []byte(c.payload))
	}
	sources := map[string]*Source{}
	for name, m := range map[string]Mapping{"json": {Topic: "{device...}", Decode: "json", Time: "$.at", TimeFormat: "rfc3339"}, "cbor": {Topic: "{device...}", Decode: "cbor"},
		"zigbee2mqtt": {Decode: "zigbee2mqtt"}, "tasmota": {Decode: "tasmota"}, "esphome": {Decode: "esphome"}, "homie": {Decode: "homie"}} {
		sources[name] = &Source{ID: "s", Host: "h", Tenant: "acme", Attributes: true, Map: []Mapping{m}}
	}
	f.Fuzz(func(t *testing.T, topic string, payload []byte) {
		for name, s := range sources {
			all, faults := s.compile("")
			if len(faults) > 0 {
				t.Fatal(name, faults)
			}
			m, c := all.find(topic)
			if m == nil || m.settings.Decode == decodeIgnore {
				continue
			}
			if d, err := m.decode(c, payload); err == nil && (len(d.readings) > maxLeaves || len(d.attributes) > maxAttributes) {
				t.Errorf("%s: %d readings", name, len(d.readings))
			}
		}
	})
}
