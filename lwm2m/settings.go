package lwm2m

import (
	"time"

	"weir/internal/setting"
)

// Settings are the keys of the section lwm2m.
type Settings struct {
	Enabled            string        `yaml:"enabled" default:"auto" enum:"auto true false" doc:"Whether listeners.lwm2m is opened; auto: as soon as there is an identity, or a device has a credential of type PSK. Credentials of type X509_CERTIFICATE alone do not open it."`
	ConnectionIDLength int           `yaml:"connection_id_length" default:"8" min:"0" max:"20" doc:"Bytes of the DTLS connection ids that devices are asked to use, by which a session survives a change of their address; 0: none."`
	HandshakeTimeout   time.Duration `yaml:"handshake_timeout" default:"10s" zero:"no" doc:"Timeout for a DTLS handshake."`

	//limit:what DTLS handshakes of LwM2M devices
	//limit:chapter Connections
	//limit:bound {} at once, {lwm2m.handshake_timeout} each; {lwm2m.handshakes_per_second} begin in a second, 50 of them from one IPv4
	//limit:bound address or IPv6 /64
	//limit:keys lwm2m.handshakes_per_second lwm2m.handshake_timeout
	//limit:level weir_lwm2m_open_handshakes
	//limit:met weir_lwm2m_handshakes_total{outcome="refused"} weir_lwm2m_handshakes_total{outcome="evicted"}
	//limit:then the oldest that has not returned a cookie makes room, or none begins; sessions are not touched
	//limit:cost some 30 KiB each
	MaxHandshakes    int `yaml:"max_handshakes" default:"256" zero:"default" doc:"Maximum number of handshakes at once; beyond it the one that began first without a valid cookie makes room."`
	HandshakesPerSec int `yaml:"handshakes_per_second" default:"500" zero:"default" doc:"Maximum number of handshakes that begin in a second, 50 of them from one address."`

	//limit:what parked LwM2M sessions
	//limit:chapter Connections
	//limit:bound 20 for each session that may be live
	//limit:keys lwm2m.max_sessions
	//limit:level weir_lwm2m_parked_sessions
	//limit:met weir_lwm2m_dropped_total{reason="sessions"}
	//limit:then a further one ends; a datagram that would wake one while too many are live is dropped, and the device sends it again
	//limit:cost some 2 KiB each
	ParkAfter time.Duration `yaml:"park_after" default:"93s" zero:"no" doc:"A session that is quiet for so long is parked: next to nothing of it is left in memory, the next datagram of its device wakes it. Earlier where there are many."`

	//limit:what numbers of DTLS records of an LwM2M session
	//limit:chapter Connections
	//limit:bound {} above what may have been sent
	//limit:met weir_lwm2m_dropped_total{reason="datagram"}
	//limit:then what has no number yet is dropped, as the network may drop it; more are reserved meanwhile
	Reserve     int           `yaml:"reserve" default:"1024" min:"64" max:"1048576" doc:"How many numbers of DTLS records are reserved on disk at a time for a session; after a restart it goes on with the first that was not."`
	IdleTimeout time.Duration `yaml:"idle_timeout" doc:"A session that is quiet for so long ends; 0s: never."`

	//limit:what LwM2M sessions
	//limit:chapter Connections
	//limit:bound {}; fewer where memory is small
	//limit:keys limits.memory
	//limit:level weir_lwm2m_active_sessions weir_lwm2m_max_sessions
	//limit:met weir_lwm2m_handshakes_total{outcome="refused"}
	//limit:then no handshake begins
	//limit:cost 80 KiB each, of `LwM2M sessions`
	MaxSessions    int           `yaml:"max_sessions" default:"100000" zero:"default" doc:"Maximum number of sessions at once; beyond it handshakes are refused."`
	MaxLifetime    time.Duration `yaml:"max_lifetime" default:"24h" min:"60s" zero:"no" doc:"Longest lifetime of a registration; a device that asks for a longer one has to update it earlier."`
	Awake          time.Duration `yaml:"awake" default:"93s" zero:"no" doc:"How long after its last message a device in queue mode can be reached."`
	CommandTimeout time.Duration `yaml:"command_timeout" default:"10s" min:"1s" zero:"no" doc:"Timeout for the answer of a device to a request."`

	//limit:what commands to LwM2M devices at once
	//limit:chapter Connections
	//limit:bound {}, one of a device
	//limit:keys lwm2m.command_timeout
	//limit:then the others wait
	CommandConcurrency int          `yaml:"command_concurrency" default:"16" zero:"default" doc:"How many commands are performed at once."`
	MaxRead            setting.Size `yaml:"max_read" default:"64KiB" min:"1KiB" max:"1MiB" doc:"Maximum size of an answer to a request; a command whose answer is larger fails."`
	MaxWrite           setting.Size `yaml:"max_write" default:"8KiB" min:"1KiB" max:"64KiB" doc:"Maximum size of what a command writes."`

	//limit:what what an LwM2M device sends in blocks; its answer to a request; what a command writes
	//limit:chapter Connections
	//limit:bound {}; {lwm2m.max_read}; {lwm2m.max_write}
	//limit:keys lwm2m.max_read lwm2m.max_write
	//limit:met weir_lwm2m_commands_failed_total
	//limit:then 4.13; the command is FAILED with the size; FAILED, the device sees nothing
	MaxBody            setting.Size `yaml:"max_body" default:"64KiB" min:"1KiB" max:"1MiB" doc:"Maximum size of what a device sends in blocks."`
	CertFile           string       `yaml:"cert_file" doc:"Certificate of the LwM2M server in PEM, for devices with a certificate (X509_CERTIFICATE); read again when the file changes. Empty: one of its own, see data_dir/lwm2m-certificate.pem."`
	KeyFile            string       `yaml:"key_file" doc:"Private key of cert_file in PEM, unencrypted."`
	CipherSuites       []string     `yaml:"cipher_suites" doc:"Cipher suites of DTLS that are offered, by their names of IANA; empty: all, CCM and GCM before CBC."`
	NotificationFormat string       `yaml:"notification_format" default:"auto" enum:"auto tlv senml-cbor senml-json json lwm2m-cbor" doc:"Content format in which values are asked for first, where a device profile names none; auto: TLV with LwM2M 1.0, SenML-CBOR from 1.1 on."`
	Identities         []Identity   `yaml:"identities" doc:"Pre-shared keys of devices that are known by their external ids, beside the credentials of type PSK."`
	ModelsDir          string       `yaml:"models_dir" doc:"Directory of definition files (*.xml) of LwM2M objects beside those that are built in; empty: lwm2m-models in data_dir. See weir lwm2m model."`

	//limit:what observations of an LwM2M registration
	//limit:chapter Connections
	//limit:bound {}
	//limit:level weir_lwm2m_active_observations
	//limit:met weir_lwm2m_dropped_total{reason="observations"}
	//limit:then the others are not observed, which the log says
	MaxObservations int `yaml:"max_observations" default:"32" min:"1" max:"256" doc:"Maximum number of observations of one registration."`

	Bootstrap BootstrapSettings `yaml:"bootstrap"`

	PublicURI string `yaml:"public_uri" doc:"Where devices reach this server, such as coaps://weir.example.org:5684, for those that fetch their firmware or are given it by bootstrap; empty: they are refused."`

	//limit:what firmware updates of LwM2M devices
	//limit:chapter Connections
	//limit:bound {} at once, one of a device, {lwm2m.firmware_timeout} each
	//limit:keys lwm2m.firmware_timeout
	//limit:level weir_lwm2m_firmware_jobs
	//limit:met weir_lwm2m_firmware_ended_total{outcome="failed"}
	//limit:then the others wait, and so do their commands; one that takes longer is FAILED
	//limit:cost 64 KiB each while the device is given its package
	FirmwareConcurrency int           `yaml:"firmware_concurrency" default:"8" zero:"default" doc:"How many firmware updates are under way at once; the others wait."`
	FirmwareTimeout     time.Duration `yaml:"firmware_timeout" default:"1h" min:"60s" zero:"no" doc:"Timeout for a firmware update from the beginning of its transfer to what the device says of it after its return."`

	//limit:what artifacts
	//limit:chapter Connections
	//limit:bound {} each, {lwm2m.max_artifacts} and 10,000 of the instance together, 4 received at once; 30 s without a byte, 30 min each
	//limit:keys lwm2m.max_artifacts
	//limit:level weir_artifacts weir_artifacts_bytes weir_artifacts_uploads
	//limit:met weir_artifacts_refused_total
	//limit:then 413; 503 where too many are received; nothing of it is kept
	//limit:cost 256 KiB for each that is received
	MaxArtifact  setting.Size `yaml:"max_artifact" default:"64MiB" min:"64KiB" max:"1GiB" doc:"Maximum size of an artifact."`
	MaxArtifacts setting.Size `yaml:"max_artifacts" default:"1GiB" min:"64KiB" doc:"Maximum size of all artifacts of the instance together; they lie in the database and are in its backups."`
}

// Identity is a pre-shared key of the configuration, and the device that it proves. Several may name one device, so that its key can be changed.
type Identity struct {
	Identity     string         `yaml:"identity" doc:"Identity of the DTLS handshake; unique."`
	PSK          setting.Secret `yaml:"psk" doc:"Key of 16 to 64 bytes in base64."`
	Tenant       string         `yaml:"tenant" doc:"Tenant of the device."`
	ExternalID   string         `yaml:"external_id" doc:"External id of the device."`
	DeviceType   string         `yaml:"device_type_token" doc:"Device type of a device that auto_register makes."`
	AutoRegister bool           `yaml:"auto_register" doc:"Whether a device that does not exist is made once it has proven the key."`
}
