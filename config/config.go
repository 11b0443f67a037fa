// Package config is what an operator may set: one Config, read from a YAML file and from WEIR_* variables, checked as a
// whole before anything listens. Every mistake is reported at once, each with its line, its column and what was meant.
//
// A key exists when something applies it. A key of a later version is unknown until then, so that no setting is accepted
// that does nothing.
package config

import (
	"time"

	"weir/internal/certs"
)

// Config is everything that can be set. The tags of a field are all that is said of its key, once for the loader, the
// reference, the schema and what weir init writes:
//
//	yaml    the key
//	doc     what it is for
//	enum    the words that it may be, apart by blanks
//	min     the smallest number that it may be, max the largest
//	reload  "yes": a running instance takes it from a reload; else it waits for a restart
//
// A field is a string, a bool, a whole number, a number, a duration, a list of strings, a type with UnmarshalText, or a
// Secret, which may be given in more ways (fieldKind).
type Config struct {
	Instance   Instance   `yaml:"instance"`
	DataDir    string     `yaml:"data_dir" doc:"Where everything is kept. Relative paths start where weir was started."`
	BaseURL    string     `yaml:"base_url" doc:"Public URL of the API; empty: taken from the request." reload:"yes"`
	DocsURL    string     `yaml:"docs_url" doc:"Public URL of the schema files; empty: base_url." reload:"yes"`
	Site       []string   `yaml:"site" doc:"Site files that are applied at every start, before the listeners open; relative to this file."`
	Listeners  Listeners  `yaml:"listeners"`
	TLS        TLS        `yaml:"tls"`
	Auth       Auth       `yaml:"auth"`
	Ingest     Ingest     `yaml:"ingest"`
	Spool      Spool      `yaml:"spool"`
	Governance Governance `yaml:"governance"`
	Broker     Broker     `yaml:"broker"`
	Limits     Limits     `yaml:"limits"`
	Presence   Presence   `yaml:"presence"`
	Detection  Detection  `yaml:"detection"`
	History    History    `yaml:"history"`
	Secrets    Secrets    `yaml:"secrets"`
	Metrics    Metrics    `yaml:"metrics"`
	Logging    Logging    `yaml:"logging"`
	Files      Files      `yaml:"config"`

	from *provenance // where it was read; nil for one that was not
}

// Instance names this instance.
type Instance struct {
	ID   string `yaml:"id" doc:"First level of MQTT topics and first path segment of HTTP ingest; an entity token."`
	Node string `yaml:"node" doc:"Name of this node in each line of the log; empty: none is named."`
}

// Listeners are addresses; an empty one is not opened.
type Listeners struct {
	API     string `yaml:"api" doc:"GraphQL, schema files, health."`
	Ingest  string `yaml:"ingest" doc:"HTTP ingest; plain HTTP, TLS by what stands in front."`
	MQTT    string `yaml:"mqtt" doc:"Broker for devices, without TLS."`
	MQTTS   string `yaml:"mqtts" doc:"Broker for devices over TLS; opened when tls has a certificate."`
	Metrics string `yaml:"metrics" doc:"/metrics in the text exposition format."`

	APITLS    string `yaml:"api_tls" doc:"What listeners.api carries, over TLS; needs a certificate in tls."`
	IngestTLS string `yaml:"ingest_tls" doc:"HTTP ingest over TLS; needs a certificate in tls."`
	MQTTWS    string `yaml:"mqtt_ws" doc:"Broker for devices over WebSocket at /mqtt, without TLS."`
	MQTTWSS   string `yaml:"mqtt_wss" doc:"Broker for devices over WebSocket with TLS at /mqtt; needs a certificate in tls."`
}

// Secure are the listeners that speak TLS, by their keys.
func (l Listeners) Secure() map[string]string {
	return map[string]string{"listeners.mqtts": l.MQTTS, "listeners.api_tls": l.APITLS, "listeners.ingest_tls": l.IngestTLS, "listeners.mqtt_wss": l.MQTTWSS}
}

// TLS is the certificate of the listeners that speak TLS.
type TLS struct {
	CertFile     string `yaml:"cert_file" doc:"Certificate in PEM, followed by those between it and its CA; read again when the file changes."`
	KeyFile      string `yaml:"key_file" doc:"Private key of cert_file in PEM, unencrypted; read again when the file changes."`
	ClientCAFile string `yaml:"client_ca_file" doc:"CAs in PEM that sign the certificates of devices (X509_CERTIFICATE), for listeners.mqtts; empty: none is asked for."`
}

// Enabled reports whether there is a certificate, so that listeners can speak TLS.
func (t TLS) Enabled() bool { return t.CertFile != "" }

// Files are the files of the certificate.
func (t TLS) Files() certs.Files {
	return certs.Files{Cert: t.CertFile, Key: t.KeyFile, ClientCA: t.ClientCAFile}
}

// Auth is about people, programs and what a device must prove.
type Auth struct {
	SuperuserEmail    string        `yaml:"superuser_email" doc:"With a password: this superuser is made at the first start."`
	SuperuserPassword Secret        `yaml:"superuser_password" doc:"No default exists; without one, make an administrator with: weir admin create."`
	AccessTokenTTL    time.Duration `yaml:"access_token_ttl" doc:"Life of an access or identity token." reload:"yes"`
	RefreshTokenTTL   time.Duration `yaml:"refresh_token_ttl" doc:"Life of a refresh token." reload:"yes"`
	SigningKeyMaxAge  time.Duration `yaml:"signing_key_max_age" doc:"A signing key older than this is replaced; 0s: never." reload:"yes"`
	ServiceSecret     Secret        `yaml:"service_secret" doc:"At least 32 bytes; empty: no service tokens are minted." reload:"yes"`
	DeviceAuthMode    string        `yaml:"device_auth_mode" doc:"What an event must prove: required, optional or disabled." enum:"required optional disabled" reload:"yes"`
}

// Ingest is about what devices send.
type Ingest struct {
	MaxFutureSkew      time.Duration `yaml:"max_future_skew" doc:"An event later than its receipt by more is stored at receipt + this."`
	MaxAge             time.Duration `yaml:"max_age" doc:"An event older than this at its receipt is a dead letter."`
	HTTPHeaderTimeout  time.Duration `yaml:"http_header_timeout" doc:"How long a client may take for its headers."`
	HTTPRequestTimeout time.Duration `yaml:"http_request_timeout" doc:"How long a whole request may take."`
	MaxBody            Size          `yaml:"max_body" doc:"Largest body of HTTP ingest." reload:"yes"`
	SpoolMaxBytes      Size          `yaml:"spool_max_bytes" doc:"Maximum bytes that may wait in the durable log."`
	SpoolMaxMessages   int           `yaml:"spool_max_messages" doc:"Maximum number of messages that may wait in the durable log."`
	DedupeWindow       time.Duration `yaml:"dedupe_window" doc:"How long an altId is remembered, by receive time."`
	DedupeMaxBytes     Size          `yaml:"dedupe_max_bytes" doc:"Maximum memory for remembered altIds."`
}

// Spool is about the durable log.
type Spool struct {
	CommitInterval Interval      `yaml:"commit_interval" doc:"auto: only while more is about to come, at most half a flush where a flush takes over 5 ms, else 3 ms; or a duration that trades latency for wear."`
	ReplayBytes    Size          `yaml:"replay_bytes" doc:"A checkpoint is written when the log after the last one passes this."`
	HeadAge        time.Duration `yaml:"head_age" doc:"A checkpoint is written when the oldest reading that none contains is older than this."`
	DiskReserve    Size          `yaml:"disk_reserve" doc:"Free disk below which new messages are refused; on a disk smaller than 20 times this, a twentieth of it."`
}

// Governance holds the platform defaults of what a tenant may use.
type Governance struct {
	IngestMessagesPerSecond float64 `yaml:"ingest_messages_per_second" doc:"Readings per second and tenant." reload:"yes"`
	IngestBurst             int     `yaml:"ingest_burst" doc:"Readings that may come at once; never below 256." reload:"yes"`
	ShedPriority            int     `yaml:"shed_priority" doc:"1..100; which tenants are shed first under load." min:"1" max:"100" reload:"yes"`
	ManualFloor             int     `yaml:"manual_floor" doc:"0..3: the shedding level that the operator sets." min:"0" max:"3" reload:"yes"`
}

// Broker is the MQTT broker for devices.
type Broker struct {
	Enabled        bool `yaml:"enabled" doc:"Whether the broker listens."`
	FailClosed     bool `yaml:"fail_closed" doc:"Publishes wait unacknowledged as soon as the log refuses others. Alias: infrastructure.messaging.mqttFailClosed." reload:"yes"`
	AllowQoS2      bool `yaml:"allow_qos2" doc:"Complete the QoS 2 handshake and keep the message as for QoS 1; else QoS 2 is refused." reload:"yes"`
	MaxConnections int  `yaml:"max_connections" doc:"Maximum number of connections at once." reload:"yes"`

	OpenTopics          string `yaml:"open_topics" doc:"Address of a listener for general publish and subscribe, apart from the devices; nothing published there is stored. Empty: there is none."`
	OpenTopicsTenant    string `yaml:"open_topics_tenant" doc:"The tenant whose device credentials open a connection there; empty: none of them."`
	OpenTopicsAnonymous bool   `yaml:"open_topics_anonymous" doc:"Any client that reaches that listener is let in; on a loopback address only."`
}

// Limits bound memory and cardinality.
type Limits struct {
	Memory           Memory `yaml:"memory" doc:"auto: from the container or the machine; or a size. Caches and queues follow it."`
	SeriesPerDevice  int    `yaml:"series_per_device" doc:"Maximum number of metrics of one device."`
	SeriesPerTenant  int    `yaml:"series_per_tenant" doc:"Maximum number of metrics of all devices of a tenant."`
	DevicesPerTenant int    `yaml:"devices_per_tenant" doc:"Maximum number of devices of a tenant." reload:"yes"`
	DeadLetters      int    `yaml:"dead_letters_per_tenant" doc:"Maximum number of dead letters that are kept of a tenant; the oldest go."`
	DeadLetterBytes  Size   `yaml:"dead_letter_bytes_per_tenant" doc:"Maximum bytes of them."`
}

// Presence is about which devices are connected.
type Presence struct {
	Broker            bool          `yaml:"broker" doc:"Whether connects and disconnects at the broker assert presence."`
	RestartGrace      time.Duration `yaml:"restart_grace" doc:"How long a device may take to come back after a start." reload:"yes"`
	ReconcileInterval time.Duration `yaml:"reconcile_interval" doc:"How often stored presence is compared with live connections and repaired." reload:"yes"`
	InactivityTimeout time.Duration `yaml:"inactivity_timeout" doc:"A device of inferred presence is inactive after this much silence." reload:"yes"`
}

// Detection bounds the rules.
type Detection struct {
	MaxRuleDuration   time.Duration `yaml:"max_rule_duration" doc:"Longest window, hold or time-out of a rule."`
	MaxRulesPerTenant int           `yaml:"max_rules_per_tenant" doc:"Maximum number of rules that run for a tenant."`
	MaxKeysPerTenant  int           `yaml:"max_keys_per_tenant" doc:"Maximum number of pairs of rule and device that hold state."`
}

// History says how long things are kept.
type History struct {
	EventRetentionDays    int           `yaml:"event_retention_days" doc:"How many days readings, alerts, state changes and detections are kept; 0: for ever."`
	LocationRetentionDays int           `yaml:"location_retention_days" doc:"How many days locations are kept; 0: as events."`
	AuditRetention        time.Duration `yaml:"audit_retention" doc:"How long the audit journal is kept; 0s: for ever."`
	DeadLetterRetention   time.Duration `yaml:"dead_letter_retention" doc:"How long a dead letter is kept; 0s: for ever." reload:"yes"`
}

// Secrets is about the root key.
type Secrets struct {
	RootKeyFile string `yaml:"root_key_file" doc:"Where the root key is; empty: root.key in data_dir."`
}

// Metrics is about /metrics.
type Metrics struct {
	Enabled bool `yaml:"enabled" doc:"Whether the metrics listener opens."`
}

// Logging is about the log on stderr.
type Logging struct {
	Level  string `yaml:"level" doc:"debug, info, warn or error." enum:"debug info warn error" reload:"yes"`
	Format string `yaml:"format" doc:"auto: text on a terminal, else json; or text or json." enum:"auto text json"`
}

// Files is about the files of the configuration themselves.
type Files struct {
	Watch bool `yaml:"watch" doc:"Whether a change of a file that the configuration was read from is taken as weir reload takes it." reload:"yes"`
}

// Default returns the defaults.
func Default() Config {
	return Config{
		Instance:  Instance{ID: "weir"},
		DataDir:   "./weir-data",
		Listeners: Listeners{API: ":8080", Ingest: ":8081", MQTT: ":1883", MQTTS: ":8883", Metrics: "127.0.0.1:9090"},
		Auth:      Auth{AccessTokenTTL: 15 * time.Minute, RefreshTokenTTL: 168 * time.Hour, DeviceAuthMode: "required"},
		Ingest: Ingest{MaxFutureSkew: 300 * time.Second, MaxAge: 366 * 24 * time.Hour, HTTPHeaderTimeout: 5 * time.Second,
			HTTPRequestTimeout: time.Minute, MaxBody: 1 << 20, SpoolMaxBytes: 1 << 30, SpoolMaxMessages: 10_000_000, DedupeWindow: 336 * time.Hour, DedupeMaxBytes: 64 << 20},
		Spool:      Spool{CommitInterval: Auto, ReplayBytes: 64 << 20, HeadAge: time.Hour, DiskReserve: 64 << 20},
		Governance: Governance{IngestMessagesPerSecond: 1000, IngestBurst: 2000, ShedPriority: 30},
		Broker:     Broker{Enabled: true, MaxConnections: 100_000},
		Limits:     Limits{SeriesPerDevice: 256, SeriesPerTenant: 100_000, DevicesPerTenant: 100_000, DeadLetters: 100_000, DeadLetterBytes: 64 << 20},
		Presence:   Presence{Broker: true, RestartGrace: 150 * time.Second, ReconcileInterval: 300 * time.Second, InactivityTimeout: 600 * time.Second},
		Detection:  Detection{MaxRuleDuration: 24 * time.Hour, MaxRulesPerTenant: 500, MaxKeysPerTenant: 1_000_000},
		History:    History{DeadLetterRetention: 720 * time.Hour},
		Metrics:    Metrics{Enabled: true},
		Logging:    Logging{Level: "info", Format: "auto"},
	}
}
