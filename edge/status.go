package edge

import (
	"time"

	"weir/internal/edgewire"
)

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
	// Live is how many messages of the live lane wait, with edge.uplink.order: live_first.
	Live int64 `json:"live,omitempty"`
	// Outcomes are what became of all messages that the uplink of a platform has met; nil for the role edge, whose ledger says it.
	Outcomes map[string]int64 `json:"outcomes,omitempty"`
	// Devices are those of the Weir above that may sign in; nil without edge.auth: synced.
	Devices *SyncStatus `json:"devices,omitempty"`
	// Follows is how a platform follows the Weir above; nil where it does not.
	Follows *FollowStatus `json:"follows,omitempty"`
}

// FollowStatus is how a platform follows the Weir above.
type FollowStatus struct {
	Time    time.Time `json:"time,omitzero"` // when everything was followed last; zero: not since the start
	Problem string    `json:"problem,omitempty"`
	// Judges are the profiles whose rules with placement EDGE are judged here for the Weir above; Firings is how many edges of them wait.
	Judges  []edgewire.Runs `json:"judges,omitempty"`
	Firings int64           `json:"firings,omitempty"`
}

// SyncStatus is how many devices of the Weir above the edge knows, and since when; the zero time says that it has never been said.
type SyncStatus struct {
	Devices int       `json:"devices"`
	Time    time.Time `json:"time,omitzero"`
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
	Peer      string    `json:"peer,omitempty"` // weir, or broker for one that answers no hello
	// Gaps are ranges of numbers that have left the edge, are not above, and cannot be sent again.
	Gaps []string `json:"gaps,omitempty"`
}

// Status returns how the edge is.
func (e *Edge) Status() Status {
	stats := e.spool.Stats()
	f := e.forward
	s := Status{InstallID: e.InstallID(), Epoch: e.epoch, Newest: uint64(stats.Last), Waiting: e.waiting(), OldestSeconds: e.oldestAge().Seconds(),
		Bytes: stats.Bytes, MaxBytes: int64(e.cfg.SpoolMaxBytes), WhenFull: e.cfg.WhenFull, ClockUnknown: e.clock.doubt(), LocalAuth: e.deps.Beside != nil || e.cfg.Username != "" || e.cfg.Synced()}
	if e.deps.Beside != nil {
		s.Newest, s.Outcomes = e.book.numbered(), e.Totals()
	}
	if stats.Err != nil {
		s.LogError = stats.Err.Error()
	}
	if d := e.devices; d != nil {
		d.mu.Lock()
		s.Devices = &SyncStatus{Devices: d.count, Time: d.at}
		d.mu.Unlock()
	}
	f.mu.Lock()
	if f.live != nil {
		s.Live = int64(len(f.live.ring))
	}
	if w := e.follow; w != nil {
		at, problem := e.Following()
		s.Follows = &FollowStatus{Time: at, Problem: problem, Firings: w.waiting.Load()}
		for _, j := range f.runs {
			if f.tells() {
				s.Follows.Judges = append(s.Follows.Judges, j.Runs)
			}
		}
	}
	s.Position, s.InFlight, s.RatePerSecond = f.number, f.inFlight, f.pace.rate
	f.mu.Unlock()
	u := &f.uplink
	u.mu.Lock()
	defer u.mu.Unlock()
	s.Uplink = UplinkStatus{Broker: shown(e.cfg.Uplink.BrokerURL), ClientID: e.clientID(), Connected: u.connected, Since: u.since.UTC(), Refused: u.refused, LastError: u.lastError, Gaps: shownGap(u.gaps)}
	if u.since.IsZero() {
		s.Uplink.Since = time.Time{}
	}
	if u.connected {
		s.Uplink.Window, s.Uplink.MQTT, s.Uplink.Peer = u.window, "5.0", peerWord(u.weir)
		if u.v311 {
			s.Uplink.MQTT = "3.1.1"
		}
	}
	return s
}

// Resync ends the connection to the broker above, which is made again at once. It reports false where there is none.
func (e *Edge) Resync() bool {
	u := &e.forward.uplink
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.current == nil {
		return false
	}
	go u.current.Close() // a waiting write must not hold the caller
	return true
}

// DeadLetters returns the newest messages that the broker above has refused for good, the newest first.
func (e *Edge) DeadLetters(limit int) ([]DeadLetter, error) { return e.letters.newest(limit) }

// Problems says in a line each what is wrong, for health checks; none when all is well. A cut uplink is none: the edge is made for it.
func (e *Edge) Problems() (all []string) {
	s := e.Status()
	if s.LogError != "" && !e.IsBeside() { // a platform says so itself
		all = append(all, "the log refuses appends: "+s.LogError)
	}
	if s.Bytes >= s.MaxBytes/10*9 && !e.IsBeside() {
		all = append(all, "the log is nearly full")
	}
	if s.Uplink.Refused != "" {
		all = append(all, s.Uplink.Refused)
	}
	if why := e.syncProblem(); why != "" {
		all = append(all, why)
	}
	if s.ClockUnknown {
		all = append(all, "the clock cannot be believed; what comes in is kept and waits until it is set")
	}
	return all
}
