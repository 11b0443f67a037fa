package mqttsource

import (
	"time"

	"weir/internal/mqttclient"
	"weir/internal/setting"
)

// Settings are the keys of the section external_mqtt.
type Settings struct {
	//limit:what messages of an external source that wait for the log
	//limit:chapter Connections
	//limit:bound {}
	//limit:level weir_source_publish_window_used weir_source_unacked
	//limit:then decoding waits; with those in decode it is the Receive Maximum that MQTT 5 brokers are given
	//limit:cost of what the broker sends
	PublishWindow int           `yaml:"publish_window" default:"128" min:"1" max:"60000" doc:"Maximum number of messages of a source that wait for the log. With those in decode (105) it is the Receive Maximum. Alias: externalMqtt.publishWindow."`
	OnRefused     string        `yaml:"on_refused" default:"stop" enum:"stop wait" doc:"What a subscription that a broker refuses does: stop closes every transport until it is granted; wait leaves the others open."`
	TakeoverRetry time.Duration `yaml:"takeover_retry" default:"15s" min:"1s" doc:"How long a source whose broker could not be reached is left to other nodes before this one tries again."`
	Sources       []Source      `yaml:"sources" doc:"Brokers that Weir reads, see docs/transports/external-mqtt.md." example:"id: plant; url: mqtts://broker.example.org:8883; username: weir; password_file: /etc/weir/plant.password"`
}

// Source is a broker and what is read there.
type Source struct {
	ID       string `yaml:"id" doc:"Name of the event source: letters, digits, - _ and :, unique in the instance."`
	URL      string `yaml:"url" doc:"Broker: mqtt:// or tcp://, over TLS mqtts://, ssl:// or tls://, over WebSocket ws:// and wss://; or local, the open topics of this instance (broker.open_topics). In place of host and port."`
	Host     string `yaml:"host" doc:"Host of the broker, without TLS."`
	Port     int    `yaml:"port" default:"1883" min:"1" max:"65535" doc:"Port of host."`
	Topic    string `yaml:"topic" doc:"Topic filters that are subscribed to, with commas between; empty: +/#, or those of map."`
	Username string `yaml:"username" doc:"User name at the broker."`

	Password      setting.Secret      `yaml:"password" doc:"Password of username."`
	Protocol      string              `yaml:"protocol" default:"auto" enum:"auto 5 3.1.1" doc:"Version of MQTT; auto begins with 5 and goes on with 3.1.1 where the broker refuses it."`
	SessionExpiry time.Duration       `yaml:"session_expiry" default:"24h" doc:"How long the broker keeps the session of a disconnected instance; 0s: it keeps none."`
	KeepAlive     time.Duration       `yaml:"keep_alive" default:"30s" min:"5s" doc:"Interval of the keep-alive."`
	QoS           int                 `yaml:"qos" default:"1" min:"0" max:"1" doc:"QoS of the subscription."`
	Retained      string              `yaml:"retained" default:"ignore" enum:"ignore keep" doc:"Whether retained messages are kept, which were published before the subscription, or ignored."`
	TLS           mqttclient.TLSFiles `yaml:"tls"`

	Tenant       string `yaml:"tenant" doc:"Tenant of the messages that a mapping takes."`
	DeviceType   string `yaml:"device_type_token" doc:"Device type of the devices that auto_register makes."`
	AutoRegister bool   `yaml:"auto_register" doc:"Whether devices that do not exist are made from the messages that a mapping takes."`

	//limit:what devices of a tenant that messages of external sources have made
	//limit:chapter Connections
	//limit:bound {} each source may make, 100 a second
	//limit:level weir_source_devices_made_total
	//limit:met weir_source_dropped_total{reason="unknown-device",source="plant"}
	//limit:then the message is dropped and counted; `weir source show` lists the first 100 external ids
	//limit:cost a device
	MaxDevices int       `yaml:"max_devices" default:"10000" min:"1" doc:"Maximum number of devices of the tenant that sources have made."`
	Attributes bool      `yaml:"attributes" doc:"Whether texts become client attributes of the device."`
	Map        []Mapping `yaml:"map" doc:"Mappings of topics; the first that matches decides. Empty: the topics of Weir's own broker."`
}

// Commands says how commands reach the devices of a mapping.
type Commands struct {
	Topic    string `yaml:"topic" doc:"Where commands are published at QoS 1: a topic with {device} and the levels that name it in braces, and paths into the message of the command such as {$.name}; empty: the devices take none. Presets have their own."`
	Payload  string `yaml:"payload" doc:"Path of what is published, such as $.payload; empty: the message as Weir's own broker delivers it."`
	Response string `yaml:"response" doc:"Topic of what completes a command."`
	Complete string `yaml:"complete" default:"response" enum:"response value published" doc:"What completes a command: response, a message on that topic with the response of the device; value, the next message on it; published, the acknowledgement of the broker."`
}

// Mapping says what the messages of a topic are.
type Mapping struct {
	Topic      string        `yaml:"topic" doc:"Template of the topic, with the levels {device}, {device...}, {metric}, {name}, {tenant} and +."`
	Tenant     string        `yaml:"tenant" doc:"Tenant, in place of that of the source."`
	Device     string        `yaml:"device" doc:"Device: a text with the levels of the template in braces, or for json and cbor a path that begins with $; empty: {device}."`
	Decode     string        `yaml:"decode" default:"json" doc:"Form of the payload: event, json, number, cbor, presence, or a preset: zigbee2mqtt, tasmota, esphome, homie."`
	Prefix     string        `yaml:"prefix" doc:"First levels of the topics of a preset; empty: its usual ones."`
	Metric     string        `yaml:"metric" doc:"Name of the metric of number; empty: {metric}. With json and cbor it goes before the names, with a point."`
	Values     setting.Texts `yaml:"values" doc:"Metrics and their paths, such as temperature: $.env.t; empty: every number and boolean."`
	Include    []string      `yaml:"include" doc:"Patterns of the names of metrics that are kept; empty: all."`
	Exclude    []string      `yaml:"exclude" doc:"Patterns of the names of metrics that are left out."`
	Time       string        `yaml:"time" doc:"Path of the time of the message; empty: when it was received."`
	TimeFormat string        `yaml:"time_format" default:"rfc3339" enum:"rfc3339 unix unix_ms" doc:"Form of that time."`
	Words      setting.Texts `yaml:"words" doc:"Words of number and presence and the values that they stand for, such as running: 1; presence: online: CONNECTED."`
	All        bool          `yaml:"all" doc:"Whether presence is that of every device of the source."`
	Commands   Commands      `yaml:"commands"`

	texts bool // of number, in presets: a text is an attribute, not a mistake
}
