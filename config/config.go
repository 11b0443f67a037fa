// Package config is what an operator may set: one Config, read from a YAML file and from WEIR_* variables, checked as a
// whole before anything listens. Every mistake is told at once, each with its line, its column and what was meant.
//
// A key stands here when something obeys it. A key that Weir will obey one day is unknown until then, so that nobody
// believes in a setting that does nothing.
package config

import "time"

// Config is everything that can be set. The tags name the key, say what it is for, and mark secrets.
type Config struct {
	Instance   Instance   `yaml:"instance"`
	DataDir    string     `yaml:"data_dir" doc:"Where everything is kept. Relative paths start where weir was started."`
	BaseURL    string     `yaml:"base_url" doc:"Public URL of the API; empty: taken from the request."`
	DocsURL    string     `yaml:"docs_url" doc:"Public URL of the schema files; empty: base_url."`
	Listeners  Listeners  `yaml:"listeners"`
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
}

// Instance names this instance.
type Instance struct {
	ID   string `yaml:"id" doc:"First level of MQTT topics and first path segment of HTTP ingest; an entity token."`
	Node string `yaml:"node" doc:"Name of this node in logs; empty: the host name."`
}

// Listeners are addresses; an empty one is not opened.
type Listeners struct {
	API     string `yaml:"api" doc:"GraphQL, schema files, health."`
	Ingest  string `yaml:"ingest" doc:"HTTP ingest; plain HTTP, TLS by what stands in front."`
	MQTT    string `yaml:"mqtt" doc:"Broker for devices, without TLS."`
	Metrics string `yaml:"metrics" doc:"/metrics in the text exposition format."`
}

// Auth is about people, programs and what a device must prove.
type Auth struct {
	SuperuserEmail    string        `yaml:"superuser_email" doc:"With a password: this superuser is made at the first start."`
	SuperuserPassword Secret        `yaml:"superuser_password" doc:"No default exists; without one, make an administrator with: weir admin create."`
	AccessTokenTTL    time.Duration `yaml:"access_token_ttl" doc:"Life of an access or identity token."`
	RefreshTokenTTL   time.Duration `yaml:"refresh_token_ttl" doc:"Life of a refresh token."`
	SigningKeyMaxAge  time.Duration `yaml:"signing_key_max_age" doc:"A signing key older than this is replaced; 0s: never."`
	ServiceSecret     Secret        `yaml:"service_secret" doc:"At least 32 bytes; empty: no service tokens are minted."`
	DeviceAuthMode    string        `yaml:"device_auth_mode" doc:"What an event must prove: required, optional or disabled."`
}

// Ingest is about what devices send.
type Ingest struct {
	MaxFutureSkew      time.Duration `yaml:"max_future_skew" doc:"An event later than its receipt by more is stored at receipt + this."`
	MaxAge             time.Duration `yaml:"max_age" doc:"An event older than this at its receipt is a dead letter."`
	HTTPHeaderTimeout  time.Duration `yaml:"http_header_timeout" doc:"How long a client may take for its headers."`
	HTTPRequestTimeout time.Duration `yaml:"http_request_timeout" doc:"How long a whole request may take."`
	MaxBody            Size          `yaml:"max_body" doc:"Largest body of HTTP ingest."`
	SpoolMaxBytes      Size          `yaml:"spool_max_bytes" doc:"Most bytes that may wait in the durable log."`
	DedupeWindow       time.Duration `yaml:"dedupe_window" doc:"How long an altId is remembered, by receive time."`
	DedupeMaxBytes     Size          `yaml:"dedupe_max_bytes" doc:"Most memory for remembered altIds."`
}

// Spool is about the durable log.
type Spool struct {
	CommitInterval Interval      `yaml:"commit_interval" doc:"auto: half a flush where a flush takes over 5 ms, else none; or a duration that trades latency for wear."`
	ReplayBytes    Size          `yaml:"replay_bytes" doc:"The head is written when the log behind it passes this."`
	HeadAge        time.Duration `yaml:"head_age" doc:"The head is written when its oldest reading is older than this."`
}

// Governance holds the platform defaults of what a tenant may use.
type Governance struct {
	IngestMessagesPerSecond float64 `yaml:"ingest_messages_per_second" doc:"Readings per second and tenant."`
	IngestBurst             int     `yaml:"ingest_burst" doc:"Readings that may come at once; never below 256."`
	ShedPriority            int     `yaml:"shed_priority" doc:"1..100; who is shed first under load."`
	ManualFloor             int     `yaml:"manual_floor" doc:"0..3: the shedding level that the operator sets."`
}

// Broker is the MQTT broker for devices.
type Broker struct {
	Enabled        bool `yaml:"enabled" doc:"Whether the broker listens."`
	FailClosed     bool `yaml:"fail_closed" doc:"Publishes wait unacknowledged as soon as the log refuses others. Alias: infrastructure.messaging.mqttFailClosed."`
	AllowQoS2      bool `yaml:"allow_qos2" doc:"Complete the QoS 2 handshake and keep the message as for QoS 1; else QoS 2 is refused."`
	MaxConnections int  `yaml:"max_connections" doc:"Most connections at once."`
}

// Limits bound memory and cardinality.
type Limits struct {
	Memory           Memory `yaml:"memory" doc:"auto: from the container or the machine; or a size. Caches and queues follow it."`
	SeriesPerDevice  int    `yaml:"series_per_device" doc:"Most metrics of one device."`
	SeriesPerTenant  int    `yaml:"series_per_tenant" doc:"Most metrics of all devices of a tenant."`
	DevicesPerTenant int    `yaml:"devices_per_tenant" doc:"Most devices of a tenant."`
}

// Presence is about who is here.
type Presence struct {
	Broker            bool          `yaml:"broker" doc:"Whether connects and disconnects at the broker assert presence."`
	RestartGrace      time.Duration `yaml:"restart_grace" doc:"How long a device may take to come back after a start."`
	ReconcileInterval time.Duration `yaml:"reconcile_interval" doc:"How often stored presence is compared with live connections and repaired."`
	InactivityTimeout time.Duration `yaml:"inactivity_timeout" doc:"A device of inferred presence is inactive after this much silence."`
}

// Detection bounds the rules.
type Detection struct {
	MaxRuleDuration   time.Duration `yaml:"max_rule_duration" doc:"Longest window, hold or time-out of a rule."`
	MaxRulesPerTenant int           `yaml:"max_rules_per_tenant" doc:"Most rules that run for a tenant."`
	MaxKeysPerTenant  int           `yaml:"max_keys_per_tenant" doc:"Most pairs of rule and device that hold state."`
}

// History says how long things are kept.
type History struct {
	DeadLetterRetention time.Duration `yaml:"dead_letter_retention" doc:"How long a dead letter is kept; 0s: for ever."`
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
	Level  string `yaml:"level" doc:"debug, info, warn or error."`
	Format string `yaml:"format" doc:"auto: text on a terminal, else json; or text or json."`
}

// Default returns the defaults.
func Default() Config {
	return Config{
		Instance:  Instance{ID: "weir"},
		DataDir:   "./weir-data",
		Listeners: Listeners{API: ":8080", Ingest: ":8081", MQTT: ":1883", Metrics: "127.0.0.1:9090"},
		Auth:      Auth{AccessTokenTTL: 15 * time.Minute, RefreshTokenTTL: 168 * time.Hour, DeviceAuthMode: "required"},
		Ingest: Ingest{MaxFutureSkew: 300 * time.Second, MaxAge: 366 * 24 * time.Hour, HTTPHeaderTimeout: 5 * time.Second,
			HTTPRequestTimeout: time.Minute, MaxBody: 1 << 20, SpoolMaxBytes: 1 << 30, DedupeWindow: 336 * time.Hour, DedupeMaxBytes: 64 << 20},
		Spool:      Spool{CommitInterval: Auto, ReplayBytes: 64 << 20, HeadAge: time.Hour},
		Governance: Governance{IngestMessagesPerSecond: 1000, IngestBurst: 2000, ShedPriority: 30},
		Broker:     Broker{Enabled: true, MaxConnections: 100_000},
		Limits:     Limits{SeriesPerDevice: 256, SeriesPerTenant: 100_000, DevicesPerTenant: 100_000},
		Presence:   Presence{Broker: true, RestartGrace: 150 * time.Second, ReconcileInterval: 300 * time.Second, InactivityTimeout: 600 * time.Second},
		Detection:  Detection{MaxRuleDuration: 24 * time.Hour, MaxRulesPerTenant: 500, MaxKeysPerTenant: 1_000_000},
		History:    History{DeadLetterRetention: 720 * time.Hour},
		Metrics:    Metrics{Enabled: true},
		Logging:    Logging{Level: "info", Format: "auto"},
	}
}
