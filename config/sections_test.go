package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/setting"
)

const twoSources = `external_mqtt:
  publish_window: 64
  sources:
    - id: plant
      url: mqtts://broker:8883
      tenant: acme
      username: weir
      password_env: PLANT_PASSWORD
      tls: {ca_file: /etc/ca.pem}
      map:
        - topic: "{device}/{metric}"
          decode: number
          words: {Auf: 1, zu: 0}
        - topic: x/{device}
          values: {"in temp": $.t}
    - id: hall
      host: 10.0.0.2
      session_expiry: 0s
`

func TestAListOfSections(t *testing.T) {
	t.Parallel()
	c, err := load(twoSources, "PLANT_PASSWORD=hush-hush", "WEIR_EXTERNAL_MQTT_SOURCES_1_USERNAME=weir", "WEIR_EXTERNAL_MQTT_SOURCES_1_PASSWORD=other", "WEIR_EXTERNAL_MQTT_SOURCES_2_TENANT=acme", "WEIR_EXTERNAL_MQTT_SOURCES_2_ID=yard",
		"WEIR_EXTERNAL_MQTT_SOURCES_2_HOST=10.0.0.3", "WEIR_EXTERNAL_MQTT_SOURCES_2_MAP_0_TOPIC=y/{device}")
	if err != nil {
		t.Fatal(err)
	}
	s := c.MQTTSource.Sources
	if len(s) != 3 || s[0].Password.Reveal() != "hush-hush" || s[1].Password.Reveal() != "other" || s[0].SessionExpiry != 24*time.Hour || s[1].SessionExpiry != 0 ||
		s[0].TLS.CA != "/etc/ca.pem" || len(s[0].Map) != 2 || s[0].Map[0].Words["Auf"] != "1" || s[0].Map[1].Values["in temp"] != "$.t" || s[0].Map[1].Decode != "json" ||
		s[2].Port != 1883 || len(s[2].Map) != 1 || s[2].Map[0].Topic != "y/{device}" {
		t.Errorf("read as %+v", s)
	}
	for key, want := range map[string]string{"external_mqtt.sources[0].map[1].topic": "weir.yaml:14", "external_mqtt.sources[1].host": "weir.yaml:17",
		"external_mqtt.sources[2].id": "WEIR_EXTERNAL_MQTT_SOURCES_2_ID", "external_mqtt.sources[1].port": "default"} {
		if got := c.Origins(key)[0].String(); got != want {
			t.Errorf("%s comes from %s, not %s", key, got, want)
		}
	}
	if yaml := c.YAML(); strings.Contains(yaml, "hush-hush") || !strings.Contains(yaml, "    - id: \"plant\"\n      url: ") {
		t.Error(yaml)
	}
}

// TestAListOfSectionsIsWrittenAsItIsRead: what config show prints is a configuration, secrets aside.
func TestAListOfSectionsIsWrittenAsItIsRead(t *testing.T) {
	t.Parallel()
	c, err := load(strings.Replace(twoSources, "      password_env: PLANT_PASSWORD\n", "", 1))
	if err != nil {
		t.Fatal(err)
	}
	again, err := load(document(c.keys(), func(b *strings.Builder, indent string, k key) {
		if !k.secret() {
			b.WriteString(indent + k.name() + ": " + k.yaml() + "\n")
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c.MQTTSource, again.MQTTSource) {
		t.Errorf("got\n%+v\nwant\n%+v", again.MQTTSource, c.MQTTSource)
	}
	if d := Diff(c, again); len(d) > 0 {
		t.Errorf("they differ in %v", d)
	}
	tree := c.Tree()["external_mqtt"].(map[string]any)["sources"].([]any)
	if len(tree) != 2 || tree[0].(map[string]any)["map"].([]any)[1].(map[string]any)["topic"] != "x/{device}" {
		t.Errorf("as a tree: %v", tree)
	}
}

// TestTheLastFileDecidesAListOfSections: nothing of the members of an earlier one is left, not even a secret that waits.
func TestTheLastFileDecidesAListOfSections(t *testing.T) {
	t.Parallel()
	d := disk{"weir.yaml": {text: strings.Replace(twoSources, "password_env: PLANT_PASSWORD", "password_file: none.txt", 1)},
		"conf.d/a.yaml": {text: "external_mqtt:\n  sources:\n    - {id: only, host: h}\n"}}
	c, err := Load(d.source("external_mqtt.sources[0].qos=0", ""))
	if err != nil {
		t.Fatal(err)
	}
	if s := c.MQTTSource.Sources; len(s) != 1 || s[0].ID != "only" || s[0].URL != "" || len(s[0].Map) != 0 || s[0].QoS != 0 || c.MQTTSource.PublishWindow != 64 {
		t.Errorf("%+v", s)
	}
	var paths []string
	before, _ := load("")
	for _, change := range Diff(before, c) {
		paths = append(paths, change.Path)
	}
	if want := []string{"external_mqtt.publish_window", "external_mqtt.sources[0].id", "external_mqtt.sources[0].host", "external_mqtt.sources[0].qos"}; !slices.Equal(paths, append(want[:3:3], paths[3:]...)) {
		t.Errorf("the changes are %v", paths)
	}
	if taken := Take(before, c); len(taken.MQTTSource.Sources) != 0 {
		t.Error("a source is taken by a reload")
	}
}

func TestMistakesInAListOfSectionsAreReportedWithTheirPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ yaml, place, says string }{
		{"external_mqtt: {sources: {id: a}}\n", "1:17: external_mqtt.sources", "must be a list of sections"},
		{"external_mqtt:\n  sources:\n    - a\n", "3:7: external_mqtt.sources[0]", "must be a mapping of keys"},
		{"external_mqtt:\n  sources:\n    - {id: a, hots: b}\n", "3:15: external_mqtt.sources[0].hots", "did you mean host?"},
		{"external_mqtt:\n  sources:\n    - {id: a, host: b}\n    - id: b\n      qos: 2\n", "5:7: external_mqtt.sources[1].qos", "must lie in 0..1"},
		{"external_mqtt:\n  sources:\n    - id: a\n      map:\n        - {topic: a, words: on}\n", "5:22: external_mqtt.sources[0].map[0].words", "must be a mapping of names and texts"},
		{"external_mqtt:\n  sources:\n    - id: a\n      host: b\n      password_file: none\n", "5:22: external_mqtt.sources[0].password_file", "cannot be read"},
		{"external_mqtt:\n  sources:\n    - id: a\n      url: local\n", "4:7: external_mqtt.sources[0].url", "is the open topics of this instance, which has none: set broker.open_topics"},
		{"sparkplug:\n  sources:\n    - tenant: a\n      broker:\n        url: local\n", "5:9: sparkplug.sources[0].broker.url", "which has none: set broker.open_topics"},
		{"broker: {open_topics: \"127.0.0.1:0\"}\nsparkplug:\n  sources:\n    - tenant: a\n      broker:\n        url: local\n        username: me\n", "7:9: sparkplug.sources[0].broker.username", "has no use with url: local"},
	} {
		r := thorough(c.yaml)
		text := r.Problems.Error()
		if r.Problems == nil || !strings.Contains(text, c.place) || !strings.Contains(text, c.says) {
			t.Errorf("%s: got\n%s\nwant %s and %s", c.yaml, text, c.place, c.says)
		}
	}
	if _, err := load("externalMqtt: {publishWindow: 7}\nexternal_mqtt: {publish_window: 8}\n"); err == nil {
		t.Error("two values of one key are taken")
	}
	if c, err := load("externalMqtt: {publishWindow: 7}\n"); err != nil || c.MQTTSource.PublishWindow != 7 {
		t.Error(err)
	}
	if !setting.IsSections(reflect.ValueOf(Default().MQTTSource.Sources)) {
		t.Error("it is no list of sections")
	}
}
