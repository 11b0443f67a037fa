package app_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/app"
	"weir/health"
	"weir/operate"
)

// TestAnInstanceThatStartsIn1970SaysSoAndGoesOnWhenTheTimeIsSet starts a box without a battery, registers a device, takes
// a reading, and lets the time server answer.
func TestAnInstanceThatStartsIn1970SaysSoAndGoesOnWhenTheTimeIsSet(t *testing.T) {
	t.Parallel()
	began := time.Now()
	var set atomic.Bool
	in := runInstanceWith(t, app.Options{Now: func() (time.Time, time.Duration) {
		mono := time.Since(began)
		if set.Load() {
			return began.Add(mono), mono
		}
		return time.Unix(0, 0).Add(mono), mono
	}})
	client, err := operate.Dial(t.Context(), in.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if code, _, err := in.post(); err != nil || code != http.StatusAccepted {
		t.Fatalf("a reading without a time of day: %d, %v", code, err)
	}
	s := in.until(t, client, func(s *operate.Status) bool { return s.Waiting != "" })
	if !strings.Contains(s.Clock, "1970") || !strings.Contains(s.Waiting, "clock") || s.Unbalanced != 0 || !s.Ready {
		t.Errorf("status %+v", s)
	}
	report, err := operate.RunDoctor.Ask(t.Context(), client, operate.DoctorQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.ID == "clock" && (f.Result != health.Failure || !strings.Contains(f.Text, "1970")) {
			t.Errorf("doctor: %+v", f)
		}
	}
	set.Store(true)
	s = in.until(t, client, func(s *operate.Status) bool { return s.Waiting == "" && s.Clock == "" && s.Log.Applied == s.Log.Last })
	if s.Unbalanced != 0 {
		t.Errorf("the ledger does not balance afterwards: %+v", s)
	}
}

// until asks for the status until it is as wanted.
func (in *instance) until(t *testing.T, c *operate.Client, wanted func(*operate.Status) bool) *operate.Status {
	t.Helper()
	for late := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		s, err := operate.GetStatus.Ask(t.Context(), c, operate.None{})
		if err != nil {
			t.Fatal(err)
		}
		if wanted(s) {
			return s
		}
		if time.Now().After(late) {
			t.Fatalf("the status stays %+v", s)
		}
	}
}
