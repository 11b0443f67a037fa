package mqttsource

import (
	"cmp"
	"strings"

	"weir/internal/setting"
)

// presets are mappings by the name of the program whose topics they are, for a prefix; "" is its usual one.
var presets = map[string]func(prefix string) []Mapping{
	"zigbee2mqtt": zigbee2mqtt,
	"tasmota":     tasmota,
	"esphome":     esphome,
	"homie":       homie,
}

// zigbee2mqtt is what Zigbee2MQTT publishes: an object of a device below the prefix, its availability, the state of the bridge. Friendly names
// may have several levels. The payload of a command is published as it is, and completed by the state that the device reports next.
func zigbee2mqtt(prefix string) []Mapping {
	p := cmp.Or(prefix, "zigbee2mqtt")
	c := Commands{Topic: p + "/{device}/set", Payload: "$.payload", Response: p + "/{device}", Complete: byValue}
	onOff := setting.Texts{"ON": "1", "OFF": "0"}
	return []Mapping{
		{Topic: p + "/bridge/state", Decode: decodePresence, All: true},
		{Topic: p + "/bridge/{device...}", Decode: decodeIgnore},
		{Topic: p + "/{device...}/availability", Decode: decodePresence, Commands: c},
		{Topic: p + "/{device...}/set", Decode: decodeIgnore},
		{Topic: p + "/{device...}/get", Decode: decodeIgnore},
		{Topic: p + "/{device...}", Decode: decodeJSON, Words: onOff, Exclude: []string{"last_seen", "update.*", "update_available"}, Commands: c},
	}
}

// tasmota is what Tasmota publishes as telemetry. Its times are local ones, and are not used. The name of a command is that
// of Tasmota, such as POWER1.
func tasmota(prefix string) []Mapping {
	p := cmp.Or(prefix, "tele")
	var c Commands
	if before, ok := strings.CutSuffix(p, "tele"); ok && (before == "" || strings.HasSuffix(before, "/")) {
		c = Commands{Topic: before + "cmnd/{device}/{$.name}", Payload: "$.payload.value", Response: before + "stat/{device}/RESULT", Complete: byValue}
	}
	onOff := setting.Texts{"ON": "1", "OFF": "0"}
	return []Mapping{
		{Topic: p + "/{device}/LWT", Decode: decodePresence, Commands: c},
		{Topic: p + "/{device}/SENSOR", Decode: decodeJSON, Words: onOff, Exclude: []string{"Time", "TempUnit", "PressureUnit", "SpeedUnit"}, Commands: c},
		{Topic: p + "/{device}/STATE", Decode: decodeJSON, Words: onOff, Exclude: []string{"Time", "Uptime"}, Commands: c},
		{Topic: p + "/{device}/+", Decode: decodeIgnore},
	}
}

// esphome is what ESPHome publishes: a value in each topic, and the status of the device. The payload of a command names component and id, and has the
// value.
func esphome(prefix string) []Mapping {
	p := ""
	if prefix != "" {
		p = prefix + "/"
	}
	c := Commands{Topic: p + "{device}/{$.payload.component}/{$.payload.id}/command", Payload: "$.payload.value", Response: p + "{device}/{$.payload.component}/{$.payload.id}/state", Complete: byValue}
	return []Mapping{
		{Topic: p + "{device}/status", Decode: decodePresence, Commands: c},
		{Topic: p + "{device}/{component}/{metric}/state", Decode: decodeNumber, texts: true, Metric: "{metric}", Commands: c},
	}
}

// homie is the convention of Homie, versions 4 and 5: the properties of the nodes of a device, and its state. The payload of a command names node and
// property, and has the value.
func homie(prefix string) []Mapping {
	p := cmp.Or(prefix, "homie")
	to := func(p string) Commands {
		const property = "/{device}/{$.payload.node}/{$.payload.property}"
		return Commands{Topic: p + property + "/set", Payload: "$.payload.value", Response: p + property, Complete: byValue}
	}
	states := setting.Texts{"init": "CONNECTED", "ready": "CONNECTED", "alert": "CONNECTED", "sleeping": "CONNECTED", "lost": "DISCONNECTED", "disconnected": "DISCONNECTED"}
	return []Mapping{
		{Topic: p + "/5/{device}/$state", Decode: decodePresence, Words: states, Commands: to(p + "/5")},
		{Topic: p + "/5/{device}/{node}/{metric}", Decode: decodeNumber, texts: true, Metric: "{node}.{metric}", Commands: to(p + "/5")},
		{Topic: p + "/{device}/$state", Decode: decodePresence, Words: states, Commands: to(p)},
		{Topic: p + "/{device}/{node}/{metric}", Decode: decodeNumber, texts: true, Metric: "{node}.{metric}", Commands: to(p)},
	}
}
