package gql

import (
	"testing"

	"weir/registry"
)

func TestEveryAreaOfTheBinaryBuilds(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	RegisterEvents(s.Area("event-management", TenantPlane), EventDeps{})
	RegisterState(s.Area("device-state", TenantPlane), StateDeps{})
	RegisterProcessing(s.Area("event-processing", TenantPlane), ProcessingDeps{})
	RegisterDashboards(s.Area("dashboard-management", TenantPlane), registry.New(registry.Config{}, registry.Deps{}))
	if err := s.Build(); err != nil {
		t.Fatal(err)
	}
}
