package mqttsource

import (
	"cmp"

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
// may have several levels.
func zigbee2mqtt(prefix string) []Mapping {
	p := cmp.Or(prefix, "zigbee2mqtt")
	onOff := setting.Texts{"ON": "1", "OFF": "0"}
	return []Mapping{
		{Topic: p + "/bridge/state", Decode: decodePresence, All: true},
		{Topic: p + "/bridge/{device...}", Decode: decodeIgnore},
		{Topic: p + "/{device...}/availability", Decode: decodePresence},
		{Topic: p + "/{device...}/set", Decode: decodeIgnore},
		{Topic: p + "/{device...}/get", Decode: decodeIgnore},
		{Topic: p + "/{device...}", Decode: decodeJSON, Words: onOff, Exclude: []string{"last_seen", "update.*", "update_available"}},
	}
}

// tasmota is what Tasmota publishes as telemetry. Its times are local ones, and are not used.
func tasmota(prefix string) []Mapping {
	p := cmp.Or(prefix, "tele")
	onOff := setting.Texts{"ON": "1", "OFF": "0"}
	return []Mapping{
		{Topic: p + "/{device}/LWT", Decode: decodePresence},
		{Topic: p + "/{device}/SENSOR", Decode: decodeJSON, Words: onOff, Exclude: []string{"Time", "TempUnit", "PressureUnit", "SpeedUnit"}},
		{Topic: p + "/{device}/STATE", Decode: decodeJSON, Words: onOff, Exclude: []string{"Time", "Uptime"}},
		{Topic: p + "/{device}/+", Decode: decodeIgnore},
	}
}

// esphome is what ESPHome publishes: a value in each topic, and the status of the device.
func esphome(prefix string) []Mapping {
	p := ""
	if prefix != "" {
		p = prefix + "/"
	}
	return []Mapping{
		{Topic: p + "{device}/status", Decode: decodePresence},
		{Topic: p + "{device}/{component}/{metric}/state", Decode: decodeNumber, texts: true, Metric: "{metric}"},
	}
}

// homie is the convention of Homie, versions 4 and 5: the properties of the nodes of a device, and its state.
func homie(prefix string) []Mapping {
	p := cmp.Or(prefix, "homie")
	states := setting.Texts{"init": "CONNECTED", "ready": "CONNECTED", "alert": "CONNECTED", "sleeping": "CONNECTED", "lost": "DISCONNECTED", "disconnected": "DISCONNECTED"}
	return []Mapping{
		{Topic: p + "/5/{device}/$state", Decode: decodePresence, Words: states},
		{Topic: p + "/5/{device}/{node}/{metric}", Decode: decodeNumber, texts: true, Metric: "{node}.{metric}"},
		{Topic: p + "/{device}/$state", Decode: decodePresence, Words: states},
		{Topic: p + "/{device}/{node}/{metric}", Decode: decodeNumber, texts: true, Metric: "{node}.{metric}"},
	}
}
