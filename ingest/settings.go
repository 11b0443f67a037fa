package ingest

import (
	"time"

	"weir/internal/setting"
	"weir/store"
)

// AuthSettings are the intake's key in the section auth.
type AuthSettings struct {
	DeviceAuth DeviceAuthMode `yaml:"device_auth_mode" default:"required" enum:"required optional disabled" doc:"Credential in an event: required, optional (verified when present) or disabled (not verified)." reload:"yes"`
}

// HoldSettings are the intake's key in the section broker.
type HoldSettings struct {
	// FailClosed holds arrivals with HoldFor from the first refusal of the log on.
	FailClosed bool `yaml:"fail_closed" doc:"Publishes wait unacknowledged while the log refuses messages. Alias: infrastructure.messaging.mqttFailClosed." reload:"yes"`
}

// TimeSettings are the keys of event times, in the section ingest.
type TimeSettings struct {
	MaxFutureSkew time.Duration `yaml:"max_future_skew" default:"5m" doc:"An event time further after its receipt is replaced by receipt + this."`
	MaxAge        time.Duration `yaml:"max_age" default:"8784h" zero:"no" doc:"An event older than this at its receipt is a dead letter."`
}

// DedupeSettings are the keys of de-duplication, in the section ingest.
type DedupeSettings struct {
	DedupeWindow   time.Duration `yaml:"dedupe_window" default:"336h" zero:"no" doc:"How long an altId is remembered, by receive time."`
	DedupeMaxBytes setting.Size  `yaml:"dedupe_max_bytes" default:"64MiB" min:"1MiB" doc:"Maximum memory for remembered altIds."`
}

// CheckpointSettings are the keys of checkpoints, in the section spool.
type CheckpointSettings struct {
	ReplayBytes setting.Size  `yaml:"replay_bytes" default:"64MiB" min:"64KiB" doc:"A checkpoint is written when the log after the last checkpoint is larger than this."`
	HeadAge     time.Duration `yaml:"head_age" default:"1h" zero:"no" doc:"A checkpoint is written when the oldest reading outside a checkpoint is older than this."`
}

// DiskSettings are the key of the gauge, in the section spool.
type DiskSettings struct {
	DiskReserve setting.Size `yaml:"disk_reserve" default:"64MiB" zero:"default" doc:"Free disk below which new messages are refused; on a disk smaller than 20 times this, a twentieth of it."`
}

// DeadLetterSettings are the keys of dead letters, in the section limits.
type DeadLetterSettings struct {
	DeadLetters     int64        `yaml:"dead_letters_per_tenant" default:"100000" zero:"default" doc:"Maximum number of stored dead letters of a tenant; the oldest are removed first."`
	DeadLetterBytes setting.Size `yaml:"dead_letter_bytes_per_tenant" default:"64MiB" zero:"default" doc:"Maximum bytes of the stored dead letters of a tenant."`
}

func (s DeadLetterSettings) bound() store.DeadLetterBound {
	return store.DeadLetterBound{Rows: s.DeadLetters, Bytes: int64(s.DeadLetterBytes)}
}
