package model

// AlarmState is the state of an alarm, apart from its acknowledgement.
type AlarmState string

// The states.
const (
	AlarmActive  AlarmState = "ACTIVE"
	AlarmCleared AlarmState = "CLEARED"
)

// AlarmMove is what happened to an alarm.
type AlarmMove string

// The moves.
const (
	AlarmRaised       AlarmMove = "RAISED"
	AlarmEscalated    AlarmMove = "ESCALATED"
	AlarmDeescalated  AlarmMove = "DEESCALATED"
	AlarmWasCleared   AlarmMove = "CLEARED"
	AlarmAcknowledged AlarmMove = "ACKNOWLEDGED"
)

// AlarmSeverities are the severities of alarms, the gravest first.
func AlarmSeverities() []string {
	return []string{"CRITICAL", "MAJOR", "MINOR", "WARNING", AlarmIndeterminate}
}

// AlarmIndeterminate is the severity of an alarm of which none is known.
const AlarmIndeterminate = "INDETERMINATE"

// OriginatorDevice is the type of what alarms are raised for: rules watch devices.
const OriginatorDevice = "device"

// Alarm is a condition of a device that rules have raised. A device has one alarm for each key; a new raise uses it again.
type Alarm struct {
	ID             int64
	TenantID       int64
	CreatedAt      Micros
	UpdatedAt      Micros
	Token          string
	DeviceID       int64
	Device         string // token
	Key            string
	Metric         string // of the rule that raised it; "" for none
	State          AlarmState
	Severity       string
	RaisedAt       Micros
	ClearedAt      *Micros
	AcknowledgedAt *Micros
	AcknowledgedBy string
	LastValue      *float64
	Moves          int64  // events of the alarm so far
	Offset         Offset // position of the newest move that came from the log
}

// AlarmEvent is a move of an alarm with what the alarm was after it.
type AlarmEvent struct {
	Number   int64 // of the alarm's events, from 1
	Move     AlarmMove
	Before   string // severity, of an escalation or de-escalation
	Occurred Micros // stamp of the edge, or when the operator acted
	At       Micros // receive time of the record, or when the operator acted
	Alarm
}

// ContributionKind is what a rule says of the alarms of a device.
type ContributionKind uint8

// The kinds of contributions.
const (
	// ContributeRaise: the rule contributes to the alarms with the keys, in addition to those that it contributes to.
	ContributeRaise ContributionKind = 1 + iota
	// ContributeResolve: the rule contributes to no alarm of the device.
	ContributeResolve
	// ContributeReplace: the rule has changed while it was raised. It contributes to the alarms with the keys and to no
	// others. A guarded key is only for a rule that contributed to an alarm before: its guard was asked when it raised.
	ContributeReplace
	// ContributeGone: the device is gone, and its alarms with it.
	ContributeGone
)

// AlarmKey is a key that a rule contributes to.
type AlarmKey struct {
	Key     string
	Guarded bool
}

// Contribution is what a rule contributes to the alarms of a device at a position in the log. Alarms are folded from
// contributions in the order of their positions.
type Contribution struct {
	Kind     ContributionKind
	Edge     EdgeID // of the edge; of a publish or a removal: its position
	TenantID int64
	DeviceID int64
	Device   string // token
	Rule     string // stable id
	Keys     []AlarmKey
	Metric   string
	Severity string // upper case
	Occurred Micros
	Received Nanos
	Value    float64
	HasValue bool
}

// Order is an action of an edge that is to be performed once, outside the log. It is written with the edge.
type Order struct {
	Edge     EdgeID
	TenantID int64
	Key      string // idempotency key, hex
	Kind     string // type of the action
	Target   string // whom it goes to outside Weir: host and port, connector; "" for the device itself
	DeviceID int64
	Occurred Micros
	Received Nanos
	Expires  Micros // 0: never
	Body     []byte // JSON: a Dispatch
}

// Dispatch is what is to be performed.
type Dispatch struct {
	Kind     string           `json:"kind"`
	Tenant   string           `json:"tenant"`
	Device   string           `json:"deviceToken"`
	Rule     string           `json:"ruleId"` // runtime id
	Edge     string           `json:"edge"`
	Occurred string           `json:"occurredTime"`
	Key      string           `json:"idempotencyKey"`
	Payload  string           `json:"payload,omitempty"` // rendered text
	Command  *DispatchCommand `json:"sendCommand,omitempty"`
	HTTPCall *DispatchCall    `json:"httpCall,omitempty"`
	Publish  *DispatchPublish `json:"publish,omitempty"`
	Answer   *DispatchAnswer  `json:"commandResponse,omitempty"`
	// Notification says who is to be notified; Payload is what.
	Notification *DispatchNotification `json:"notification,omitempty"`
}

// DispatchNotification is a notification to people. The payload of its Dispatch is JSON: an alarm as webhooks get it, or several where Note is set.
type DispatchNotification struct {
	ChannelID  int64    `json:"channelId"`
	Recipients []string `json:"recipients,omitempty"`
	// Note is what is said about several alarms, such as that a mute has ended; "" for one alarm.
	Note   string         `json:"note,omitempty"`
	Counts map[string]int `json:"counts,omitempty"` // of several, by severity, those included that the payload leaves out
}

// DispatchAnswer is the answer of a device to a command that was not there.
type DispatchAnswer struct {
	Command  string `json:"command"` // token
	Nonce    string `json:"dispatchNonce,omitempty"`
	Success  bool   `json:"success"`
	Payload  string `json:"payload,omitempty"`
	Error    string `json:"error,omitempty"`
	Source   string `json:"source"`
	Epoch    uint32 `json:"epoch"`    // of its place in the log
	Received Nanos  `json:"received"` // nanoseconds since the epoch
}

// DispatchCommand is a command to the device.
type DispatchCommand struct {
	Command string `json:"command"`
	Expires string `json:"expiresAt,omitempty"`
	// DefaultAge says that the rule has no maxAge: Expires is a default, which ends later for a device that sleeps.
	DefaultAge bool `json:"defaultAge,omitempty"`
}

// DispatchCall is a call to a URL.
type DispatchCall struct {
	URL       string      `json:"url"`
	Method    string      `json:"method"`
	Headers   [][2]string `json:"headers,omitempty"`
	SecretRef string      `json:"secretRef,omitempty"`
	TimeoutMs int32       `json:"timeoutMs,omitempty"`
}

// DispatchPublish is a message to a connector.
type DispatchPublish struct {
	ConnectorRef string `json:"connectorRef"`
	TimeoutMs    int32  `json:"timeoutMs,omitempty"`
}

// Detection is an edge as other systems get it.
type Detection struct {
	Rule     string   `json:"ruleId"` // runtime id
	Tenant   string   `json:"tenant"`
	Kind     string   `json:"kind"`
	Edge     string   `json:"edge"`
	Series   string   `json:"series"`
	Occurred string   `json:"occurredTime"`
	Severity string   `json:"severity,omitempty"`
	Value    *float64 `json:"value,omitempty"`
}

// Detection returns the edge as other systems get it. Only a raised edge has a value.
func (e *Edge) Detection() Detection {
	d := Detection{Rule: e.RuntimeID(), Tenant: e.Tenant, Kind: e.Kind, Edge: e.Signal.String(), Series: e.Series, Occurred: e.Occurred.String(),
		Severity: e.Severity}
	if e.HasValue && e.Signal == Raised {
		d.Value = &e.Value
	}
	return d
}
