// Package config reads the configuration: one Config from YAML files, WEIR_* variables and flags, checked as a whole before a
// listener opens. All mistakes are reported together, each with its line, its column and a suggestion.
//
// A key exists only when code applies it: a key of a later version is an unknown key, so that no accepted setting is without
// effect.
package config

import (
	"time"

	"weir/actions"
	"weir/alarm"
	"weir/auth"
	"weir/broker"
	"weir/command"
	"weir/connectors"
	"weir/dashboard"
	"weir/edge"
	"weir/govern"
	"weir/httpingest"
	"weir/inference"
	"weir/ingest"
	"weir/internal/certs"
	"weir/internal/guard"
	"weir/internal/setting"
	"weir/lwm2m"
	"weir/mqttsource"
	"weir/notify"
	"weir/presence"
	"weir/provision"
	"weir/registry"
	"weir/rules"
	"weir/series"
	"weir/sparkplug"
	"weir/spool"
	"weir/web"
)

// Config is everything that can be set. A key is declared once, next to the code that applies it: a package of a lower layer
// declares its keys in a struct of its own, which a section embeds and app passes to that package; the keys that app and the
// layers above it apply are declared here. Package setting describes the tags.
type Config struct {
	Role     Role     `yaml:"role" default:"platform" enum:"platform edge" doc:"platform: everything. edge: the listeners for devices, the durable log, and an uplink to a broker above; no rules, no API, nothing of the platform."`
	Instance Instance `yaml:"instance"`
	DataDir  string   `yaml:"data_dir" default:"./weir-data" doc:"Directory of all data. A relative path is relative to the working directory."`
	web.URLs
	Site       []string            `yaml:"site" doc:"Site files that are applied at every start, before the listeners open; relative to this file."`
	Listeners  Listeners           `yaml:"listeners"`
	TLS        certs.Files         `yaml:"tls"`
	Auth       Auth                `yaml:"auth"`
	Ingest     Ingest              `yaml:"ingest"`
	Spool      Spool               `yaml:"spool"`
	Governance govern.Settings     `yaml:"governance"`
	Broker     Broker              `yaml:"broker"`
	MQTTSource mqttsource.Settings `yaml:"external_mqtt"`
	Sparkplug  sparkplug.Settings  `yaml:"sparkplug"`
	LwM2M      lwm2m.Settings      `yaml:"lwm2m"`
	Limits     Limits              `yaml:"limits"`
	Presence   Presence            `yaml:"presence"`
	Detection  rules.Settings      `yaml:"detection"`
	History    History             `yaml:"history"`
	Commands   command.Settings    `yaml:"commands"`
	Connectors actions.Settings    `yaml:"connectors"`
	Notify     notify.Settings     `yaml:"notifications"`
	Egress     guard.Settings      `yaml:"egress"`
	Secrets    Secrets             `yaml:"secrets"`
	Backup     Backup              `yaml:"backup"`
	AI         inference.Settings  `yaml:"ai"`
	Console    Console             `yaml:"console"`
	Metrics    Metrics             `yaml:"metrics"`
	Logging    Logging             `yaml:"logging"`
	Files      Files               `yaml:"config"`
	Edge       edge.Settings       `yaml:"edge"`

	from *provenance // where it was read; nil for one that was not
}

// Role is what an instance does.
type Role string

// The roles.
const (
	RolePlatform Role = "platform"
	RoleEdge     Role = "edge"
)

// Instance names this instance.
type Instance struct {
	ID   string `yaml:"id" default:"weir" doc:"First level of MQTT topics and first path segment of HTTP ingest; an entity token."`
	Node string `yaml:"node" doc:"Name of this node in each line of the log; empty: no name."`
}

// Listeners are addresses; an empty one is not opened.
type Listeners struct {
	API            string `yaml:"api" format:"address" default:":8080" doc:"GraphQL, schema files, health."`
	Ingest         string `yaml:"ingest" format:"address" default:":8081" doc:"HTTP ingest, without TLS; a reverse proxy can add it."`
	MQTT           string `yaml:"mqtt" format:"address" default:":1883" doc:"Broker for devices, without TLS."`
	MQTTS          string `yaml:"mqtts" format:"address" default:":8883" doc:"Broker for devices over TLS; opened when tls has a certificate."`
	LwM2M          string `yaml:"lwm2m" format:"address" default:":5684" doc:"LwM2M over CoAP and DTLS, UDP; opened as lwm2m.enabled says."`
	LwM2MBootstrap string `yaml:"lwm2m_bootstrap" format:"address" doc:"LwM2M bootstrap over CoAP and DTLS, UDP, for devices with a credential of type BOOTSTRAP_PSK; needs lwm2m.public_uri."`
	Metrics        string `yaml:"metrics" format:"address" default:"127.0.0.1:9090" doc:"/metrics in the text exposition format."`

	APITLS    string `yaml:"api_tls" format:"address" doc:"The same as listeners.api, over TLS; needs a certificate in tls."`
	IngestTLS string `yaml:"ingest_tls" format:"address" doc:"HTTP ingest over TLS; needs a certificate in tls."`
	MQTTWS    string `yaml:"mqtt_ws" format:"address" doc:"Broker for devices over WebSocket at /mqtt, without TLS."`
	MQTTWSS   string `yaml:"mqtt_wss" format:"address" doc:"Broker for devices over WebSocket with TLS at /mqtt; needs a certificate in tls."`
}

// Secure are the listeners that speak TLS, by their keys.
func (l Listeners) Secure() map[string]string {
	return map[string]string{"listeners.mqtts": l.MQTTS, "listeners.api_tls": l.APITLS, "listeners.ingest_tls": l.IngestTLS, "listeners.mqtt_wss": l.MQTTWSS}
}

// Auth is about people, programs and what a device must prove.
type Auth struct {
	auth.Settings
	ingest.AuthSettings
}

// Ingest is about what devices send.
type Ingest struct {
	ingest.TimeSettings
	httpingest.Settings
	spool.Capacity
	ingest.DedupeSettings
}

// Spool is about the durable log.
type Spool struct {
	spool.CommitSettings
	spool.BudgetSettings
	ingest.CheckpointSettings
	ingest.DiskSettings
}

// Broker is the MQTT broker for devices.
type Broker struct {
	Enabled bool `yaml:"enabled" default:"true" doc:"Whether the broker listens."`
	ingest.HoldSettings
	broker.Settings
	broker.OpenSettings
}

// Limits bound memory and cardinality.
type Limits struct {
	Memory setting.Memory `yaml:"memory" doc:"Memory of the process: a size, or auto: from the limit of the container or machine. It determines the sizes of caches and queues."`
	series.Settings
	registry.DeviceSettings
	dashboard.DashboardSettings
	provision.ProfileSettings
	auth.ClientSettings
	alarm.TenantSettings
	ingest.DeadLetterSettings
	actions.LetterSettings
	connectors.ConnectorSettings
	notify.LimitSettings
}

// Console is the web application at /.
type Console struct{ web.ConsoleSettings }

// Presence is about which devices are connected.
type Presence struct {
	Broker bool `yaml:"broker" default:"true" doc:"Whether connections to the broker set the presence of devices."`
	presence.Timing
	SourceBackstop    time.Duration `yaml:"source_backstop" default:"15m" doc:"When devices return to inferred presence whose event source is gone, in listening time; 0s: never." reload:"yes"`
	InactivityTimeout time.Duration `yaml:"inactivity_timeout" default:"10m" zero:"no" doc:"A device with inferred presence is inactive this long after its last message." reload:"yes"`
}

// History says how long things are kept.
type History struct {
	//limit:what history
	//limit:chapter What is kept
	//limit:bound forever by default
	//limit:keys history.location_retention_days history.audit_retention
	//limit:level weir_store_bytes
	//limit:met weir_history_removed_total{kind="readings"} weir_history_removed_total{kind="audit"}
	//limit:then older rows are removed by whole UTC days; the disk reserve refuses messages before the disk is full, and free pages of
	//limit:then the database go back to a disk of which less than one and a half times the reserve is free
	//limit:cost disk
	EventRetentionDays    int           `yaml:"event_retention_days" min:"0" max:"36500" doc:"How many days readings, alerts, state changes and detections are kept; 0: for ever."`
	LocationRetentionDays int           `yaml:"location_retention_days" min:"0" max:"36500" doc:"How many days locations are kept; 0: as long as events."`
	AuditRetention        time.Duration `yaml:"audit_retention" doc:"How long the audit journal is kept; 0s: for ever."`
	DeadLetterRetention   time.Duration `yaml:"dead_letter_retention" default:"720h" doc:"How long a dead letter is kept; 0s: for ever." reload:"yes"`

	//limit:what history of alarms
	//limit:chapter What is kept
	//limit:bound {}, the newest 1,000 events of an alarm
	//limit:level weir_alarm_moves_total{move="RAISED"}
	//limit:met weir_history_removed_total{kind="alarm_events"}
	//limit:then the oldest are removed
	//limit:cost about 250 bytes of disk each
	AlarmEventRetention time.Duration `yaml:"alarm_event_retention" default:"2160h" doc:"How long the history of alarms is kept; 0s: for ever. An alarm keeps its newest 1000 events."`

	//limit:what commands that have ended
	//limit:chapter What is kept
	//limit:bound {}
	//limit:level weir_commanddelivery_moves_total
	//limit:met weir_history_removed_total{kind="commands"}
	//limit:then the oldest are removed, and batches without commands
	//limit:cost about 500 bytes of disk each, and the payload
	CommandRetention time.Duration `yaml:"command_retention" default:"2160h" doc:"How long commands are kept after they ended, and their batches; 0s: for ever."`
}

// Secrets is about the root key.
type Secrets struct {
	RootKeyFile string `yaml:"root_key_file" doc:"File of the root key; empty: root.key in data_dir."`
}

// Backup is about the copies that the instance makes of itself.
type Backup struct {
	Directory string        `yaml:"directory" doc:"Directory of the backups that the instance makes; empty: backups in data_dir. A directory on another disk or machine survives the loss of this one." reload:"yes"`
	Every     time.Duration `yaml:"every" doc:"How often the instance makes a backup by itself; 0s: never." reload:"yes"`

	//limit:what backups that the instance makes by itself
	//limit:chapter The API and the operator
	//limit:bound {}; one is made or verified at a time
	//limit:keys backup.every backup.directory
	//limit:level weir_backup_running
	//limit:met weir_backups_total{outcome="failed"}
	//limit:then older ones are deleted after a newer one is there; none is begun that would not leave 128 MiB, or a tenth of a smaller
	//limit:then disk, free
	//limit:cost disk
	Keep int `yaml:"keep" default:"7" min:"1" max:"1000" doc:"How many of the backups that the instance made by itself are kept: older ones are deleted after a newer one is there. Others stay." reload:"yes"`
}

// Metrics is about /metrics.
type Metrics struct {
	Enabled bool `yaml:"enabled" default:"true" doc:"Whether the metrics listener opens."`
}

// Logging is about the log on stderr.
type Logging struct {
	Level  string `yaml:"level" default:"info" doc:"debug, info, warn or error." enum:"debug info warn error" reload:"yes"`
	Format string `yaml:"format" default:"auto" doc:"text, json, or auto: text on a terminal, otherwise json." enum:"auto text json"`
}

// Files is about the files of the configuration themselves.
type Files struct {
	Watch bool `yaml:"watch" doc:"Whether a change of a configuration file is applied as by weir reload." reload:"yes"`
}

// Default returns the defaults.
func Default() (c Config) {
	setting.SetDefaults(&c)
	return c
}
