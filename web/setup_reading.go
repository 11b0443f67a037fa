package web

import (
	"net/http"
	"time"
)

// SetupReading is the newest value of a metric.
type SetupReading struct {
	Metric   string    `json:"metric"`
	Value    string    `json:"value"`
	Received time.Time `json:"received"`
}

// SetupRefusal is why a message was not stored.
type SetupRefusal struct {
	Reason  string `json:"reason"`
	Summary string `json:"summary"`
}

// SetupRule compares a metric of a device with a threshold.
type SetupRule struct {
	Token     string  `json:"token"`
	Device    string  `json:"device"`
	Metric    string  `json:"metric"`
	Op        string  `json:"op"` // gt, ge, lt or le
	Threshold float64 `json:"threshold"`
	Severity  string  `json:"severity"`
}

type setupTestReading struct {
	Page   string  `json:"page"`
	Device string  `json:"device"`
	Metric string  `json:"metric"`
	Value  float64 `json:"value"`
}

type setupTestSent struct{}

// send sends a test reading: the page shows what a device would see without any device at hand.
func (s *Setup) send(r *http.Request, q setupTestReading) (setupTestSent, error) {
	tenant, err := s.tenantOf(q.Page)
	if err != nil {
		return setupTestSent{}, err
	}
	return setupTestSent{}, s.steps.Send(r.Context(), tenant, q.Device, q.Metric, q.Value)
}

type setupReading struct {
	Page   string `json:"page"`
	Device string `json:"device"`
}

type setupReadings struct {
	Readings []SetupReading `json:"readings"`
	// Refused is the newest message of the tenant that was not stored, while no reading is there.
	Refused *SetupRefusal `json:"refused,omitempty"`
	// Firings are what the rules of the device have raised and resolved, newest first.
	Firings []Firing `json:"firings,omitempty"`
}

// lookForReading answers with what has arrived of the device and what fired; the page asks until there is something.
func (s *Setup) lookForReading(r *http.Request, q setupReading) (*setupReadings, error) {
	tenant, err := s.tenantOf(q.Page)
	if err != nil {
		return nil, err
	}
	out := &setupReadings{}
	if out.Readings, err = s.steps.Latest(r.Context(), tenant, q.Device); err != nil {
		return nil, err
	}
	if len(out.Readings) == 0 {
		out.Refused, err = s.steps.NewestRefusal(r.Context(), tenant)
		return out, err
	}
	out.Firings, err = s.steps.Firings(r.Context(), tenant, q.Device)
	return out, err
}

type setupAddRule struct {
	Page      string  `json:"page"`
	Device    string  `json:"device"`
	Metric    string  `json:"metric"`
	Op        string  `json:"op"`
	Threshold float64 `json:"threshold"`
	Severity  string  `json:"severity"`
}

func (s *Setup) addRule(r *http.Request, q setupAddRule) (*SetupRule, error) {
	tenant, err := s.tenantOf(q.Page)
	if err != nil {
		return nil, err
	}
	made, err := s.steps.AddRule(r.Context(), tenant, SetupRule{Device: q.Device, Metric: q.Metric, Op: q.Op, Threshold: q.Threshold, Severity: q.Severity})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.rule = made
	s.mu.Unlock()
	return made, nil
}
