package model

// CommandState is where a command is in its life.
type CommandState string

// The states of commands. The final ones absorb every event.
const (
	CommandQueued CommandState = "QUEUED" // waits for its turn
	CommandHeld   CommandState = "HELD"   // its device is absent
	CommandParked CommandState = "PARKED" // its device sleeps
	CommandSent   CommandState = "SENT"   // on its way, or with the device

	CommandSuccessful CommandState = "SUCCESSFUL" // the device said so
	CommandFailed     CommandState = "FAILED"     // the device said so, or it cannot be delivered
	CommandTimedOut   CommandState = "TIMEOUT"    // sent, and not answered in its life
	CommandExpired    CommandState = "EXPIRED"    // not sent in its life
	CommandCancelled  CommandState = "CANCELLED"
)

// CommandStates are all states.
func CommandStates() []CommandState {
	return []CommandState{CommandQueued, CommandHeld, CommandParked, CommandSent, CommandSuccessful, CommandFailed, CommandTimedOut, CommandExpired, CommandCancelled}
}

// Final reports whether nothing can move the command any more.
func (s CommandState) Final() bool { return !s.Undelivered() && s != CommandSent }

// Undelivered reports whether the command counts against the ceiling of its tenant.
func (s CommandState) Undelivered() bool {
	return s == CommandQueued || s == CommandHeld || s == CommandParked
}

// MaxCommandPayload is how many bytes the payload of a command may have, and its metadata.
const MaxCommandPayload = 65_536

// Command is a command for a device.
type Command struct {
	ID        int64
	TenantID  int64
	CreatedAt Micros
	UpdatedAt Micros
	Token     string
	DeviceID  int64
	Device    string // token
	Name      string // command key
	Payload   *string
	Metadata  *string
	State     CommandState

	Queued    Micros
	Sent      *Micros // the newest dispatch
	Delivered *Micros // when the device acknowledged the newest dispatch
	Responded *Micros // when the device answered
	Expires   Micros

	Response *string // of the device, JSON
	Error    *string // why it failed
	BatchID  int64   // row id of the batch, 0 for none
	Batch    string  // its token, "" for none

	// Nonce is that of the newest dispatch, "" before the first. Earlier holds those before it that may still be answered, since none
	// of the dispatches after them was acknowledged; newest last.
	Nonce   string
	Earlier []string
	// Awaits is the name of the carrier that owes the end of the newest dispatch, "" when nobody does.
	Awaits   string
	Attempts int // dispatches in a row that could not be written
	// Progress says how far the newest dispatch is where its exchange with the device takes long, "" where nothing is reported.
	Progress string
}

// What is reported of the progress of an exchange that takes long. The list is open.
const (
	ProgressWaiting      = "waiting"      // for its turn among those of other devices
	ProgressTransferring = "transferring" // the device is given what it needs
	ProgressDownloaded   = "downloaded"   // it has it
	ProgressUpdating     = "updating"     // it applies it, and cannot be stopped
)

// Targets of batches.
const (
	BatchOfList  = "DEVICE_LIST"
	BatchOfGroup = "GROUP"
)

// BatchState is what a batch does with its commands that are not sent.
type BatchState string

// The states of a batch.
const (
	BatchMaking  BatchState = "MAKING"  // its commands are being written; nobody sees it
	BatchRunning BatchState = "RUNNING" // they are sent
	BatchStopped BatchState = "STOPPED" // they wait: too many have failed
	// BatchCancelling: its commands are being cancelled; shown as CANCELLED.
	BatchCancelling BatchState = "CANCELLING"
	BatchCancelled  BatchState = "CANCELLED"
)

// CommandBatch is one command for many devices.
type CommandBatch struct {
	ID           int64
	TenantID     int64
	CreatedAt    Micros
	UpdatedAt    Micros
	Token        string
	Metadata     *string
	Name         string
	Payload      *string
	TargetKind   string
	Group        *string // token
	GroupVersion *int64
	AllowPartial bool
	Resolved     int64
	Accepted     int64
	Refusals     string // JSON: a sample of the refused devices
	Counts       string // JSON: refused devices by code
	CancelledAt  *Micros
	Cancelled    int64 // by the first call
	Expires      Micros

	MaxPerMinute int64   // 0: no pace
	StopPercent  float64 // 0: never
	State        BatchState
	StoppedAt    *Micros
	StopReason   string
	Succeeded    int64
	Failed       int64 // FAILED, TIMEOUT
	// Successes and Failures since the batch was made or resumed: the stop is judged by them.
	SucceededBefore, FailedBefore int64
	ReleasedTo                    int64  // row id of the newest command whose turn has come
	NextAt                        Micros // when the next turn comes, where there is a pace
}
