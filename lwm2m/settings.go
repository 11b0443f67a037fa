package lwm2m

import (
	"time"

	"weir/internal/setting"
)

// Settings are the keys of the section lwm2m.
type Settings struct {
	Enabled            string        `yaml:"enabled" default:"auto" enum:"auto true false" doc:"Whether listeners.lwm2m is opened; auto: as soon as a device has a credential of type PSK."`
	ConnectionIDLength int           `yaml:"connection_id_length" default:"8" min:"0" max:"20" doc:"Bytes of the DTLS connection ids that devices are asked to use, by which a session survives a change of their address; 0: none."`
	HandshakeTimeout   time.Duration `yaml:"handshake_timeout" default:"10s" zero:"no" doc:"Timeout for a DTLS handshake."`
	MaxHandshakes      int           `yaml:"max_handshakes" default:"256" zero:"default" doc:"Maximum number of handshakes at once; beyond it the one that began first without a valid cookie makes room."`
	HandshakesPerSec   int           `yaml:"handshakes_per_second" default:"500" zero:"default" doc:"Maximum number of handshakes that begin in a second, 50 of them from one address."`
	ParkAfter          time.Duration `yaml:"park_after" default:"93s" zero:"no" doc:"A session that is quiet for so long is parked: next to nothing of it is left in memory, the next datagram of its device wakes it. Earlier where there are many."`
	Reserve            int           `yaml:"reserve" default:"1024" min:"64" max:"1048576" doc:"How many numbers of DTLS records are reserved on disk at a time for a session; after a restart it goes on with the first that was not."`
	IdleTimeout        time.Duration `yaml:"idle_timeout" doc:"A session that is quiet for so long ends; 0s: never."`
	MaxSessions        int           `yaml:"max_sessions" default:"100000" zero:"default" doc:"Maximum number of sessions at once; beyond it handshakes are refused."`
	MaxLifetime        time.Duration `yaml:"max_lifetime" default:"24h" min:"60s" zero:"no" doc:"Longest lifetime of a registration; a device that asks for a longer one has to update it earlier."`
	Awake              time.Duration `yaml:"awake" default:"93s" zero:"no" doc:"How long after its last message a device in queue mode can be reached."`
	CommandTimeout     time.Duration `yaml:"command_timeout" default:"10s" min:"1s" zero:"no" doc:"Timeout for the answer of a device to a request."`
	CommandConcurrency int           `yaml:"command_concurrency" default:"16" zero:"default" doc:"How many commands are performed at once."`
	MaxRead            setting.Size  `yaml:"max_read" default:"64KiB" min:"1KiB" max:"1MiB" doc:"Maximum size of an answer to a request; a command whose answer is larger fails."`
	MaxWrite           setting.Size  `yaml:"max_write" default:"8KiB" min:"1KiB" max:"64KiB" doc:"Maximum size of what a command writes."`
	MaxBody            setting.Size  `yaml:"max_body" default:"64KiB" min:"1KiB" max:"1MiB" doc:"Maximum size of what a device sends in blocks."`
	MaxObservations    int           `yaml:"max_observations" default:"32" min:"1" max:"256" doc:"Maximum number of observations of one registration."`
}
