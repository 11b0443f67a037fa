package gql

import (
	"testing"

	"weir/dashboard"
)

func TestEveryAreaOfTheBinaryBuilds(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	RegisterEvents(s.Area("event-management", TenantPlane), EventDeps{})
	RegisterState(s.Area("device-state", TenantPlane), StateDeps{})
	RegisterProcessing(s.Area("event-processing", TenantPlane), ProcessingDeps{})
	s.Area(dashboard.Area, TenantPlane).Entities(dashboard.Describe())
	if err := s.Build(); err != nil {
		t.Fatal(err)
	}
}
