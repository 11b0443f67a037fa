package edge

import "time"

// Status is what is shown of an edge.
type Status struct {
	InstallID string `json:"installId"`
	Epoch     uint32 `json:"epoch"`
	Position  uint64 `json:"position"` // everything up to here has left
	Newest    uint64 `json:"newest"`   // number of the newest message
	Waiting   int64  `json:"waiting"`
	InFlight  int    `json:"inFlight"`
	// Oldest is the receive time of the oldest message that waits, nil when none does or it is not known.
	OldestSeconds float64      `json:"oldestSeconds"`
	Bytes         int64        `json:"bytes"`
	MaxBytes      int64        `json:"maxBytes"`
	WhenFull      string       `json:"whenFull"`
	LogError      string       `json:"logError,omitempty"`
	ClockUnknown  bool         `json:"clockUnknown,omitempty"`
	LocalAuth     bool         `json:"localAuth"`
	Uplink        UplinkStatus `json:"uplink"`
	// RatePerSecond is the rate to which the broker above has slowed the uplink; 0: none.
	RatePerSecond float64 `json:"ratePerSecond,omitempty"`
}

// UplinkStatus is how the connection to the broker above is.
type UplinkStatus struct {
	Broker    string    `json:"broker"`
	ClientID  string    `json:"clientId"`
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since,omitzero"`
	MQTT      string    `json:"mqtt,omitempty"` // version
	Window    int       `json:"window,omitempty"`
	Refused   string    `json:"refused,omitempty"`
	LastError string    `json:"lastError,omitempty"`
}

// Status returns how the edge is.
func (e *Edge) Status() Status {
	stats := e.spool.Stats()
	f := e.forward
	s := Status{InstallID: e.id.InstallID, Epoch: e.epoch, Newest: uint64(stats.Last), Waiting: e.waiting(), OldestSeconds: e.oldestAge().Seconds(),
		Bytes: stats.Bytes, MaxBytes: int64(e.cfg.SpoolMaxBytes), WhenFull: e.cfg.WhenFull, ClockUnknown: e.clock.doubt(), LocalAuth: e.cfg.Username != ""}
	if stats.Err != nil {
		s.LogError = stats.Err.Error()
	}
	f.mu.Lock()
	s.Position, s.InFlight, s.RatePerSecond = uint64(f.position), f.inFlight, f.pace.rate
	f.mu.Unlock()
	u := &f.uplink
	u.mu.Lock()
	defer u.mu.Unlock()
	s.Uplink = UplinkStatus{Broker: shown(e.cfg.Uplink.BrokerURL), ClientID: e.clientID(), Connected: u.connected, Since: u.since.UTC(), Refused: u.refused, LastError: u.lastError}
	if u.since.IsZero() {
		s.Uplink.Since = time.Time{}
	}
	if u.connected {
		s.Uplink.Window, s.Uplink.MQTT = u.window, "5.0"
		if u.v311 {
			s.Uplink.MQTT = "3.1.1"
		}
	}
	return s
}

// DeadLetters returns the newest messages that the broker above has refused for good, the newest first.
func (e *Edge) DeadLetters(limit int) ([]DeadLetter, error) { return e.letters.newest(limit) }

// Problems says in a line each what is wrong, for health checks; none when all is well. A cut uplink is none: the edge is made for it.
func (e *Edge) Problems() (all []string) {
	s := e.Status()
	if s.LogError != "" {
		all = append(all, "the log refuses appends: "+s.LogError)
	}
	if s.Bytes >= s.MaxBytes/10*9 {
		all = append(all, "the log is nearly full")
	}
	if s.Uplink.Refused != "" {
		all = append(all, s.Uplink.Refused)
	}
	if s.ClockUnknown {
		all = append(all, "the clock cannot be believed; what comes in is kept and waits until it is set")
	}
	return all
}
