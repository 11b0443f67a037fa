package registry

import (
	"encoding/json"
	"fmt"
	"slices"

	"weir/model"
)

// Formats of a snapshot. The second has commands, the third says what is observed of LwM2M devices, the fourth where rules are judged; each is written
// only where there is such a thing: a draft without any freezes to what it froze to before, so that an upgrade leaves nothing unpublished.
const (
	snapshotFormat         = 1
	snapshotFormatCommands = 2
	snapshotFormatLwM2M    = 3
	snapshotFormatPlaced   = 4
)

// Snapshot is the body of a published version: what the draft held when it was published. It is never changed.
type Snapshot struct {
	V                 int                  `json:"v"`
	Metrics           []SnapshotMetric     `json:"metrics,omitempty"`  // by key
	Rules             []SnapshotRule       `json:"rules,omitempty"`    // enabled and disabled, by token
	Commands          []SnapshotCommand    `json:"commands,omitempty"` // by key, since format 2
	InactivityTimeout int                  `json:"inactivityTimeoutSeconds,omitempty"`
	Location          *LocationDeclaration `json:"location,omitempty"`
	LwM2M             json.RawMessage      `json:"lwm2m,omitempty"` // model.LwM2MProfile, since format 3
}

// SnapshotMetric is a frozen metric definition.
type SnapshotMetric struct {
	model.MetricView
	Token       string `json:"token"`
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"`
	Descriptor  string `json:"descriptor,omitempty"`
}

// SnapshotRule is a frozen detection rule.
type SnapshotRule struct {
	model.RuleView
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"`
	Enabled     bool   `json:"enabled"`
}

// SnapshotCommand is a frozen command definition.
type SnapshotCommand struct {
	Token       string  `json:"token"`
	Key         string  `json:"commandKey" gql:"commandKey"`
	Name        *string `json:"name,omitempty" gql:"name"`
	Description *string `json:"description,omitempty" gql:"description"`
	Parameters  *string `json:"parameterSchema,omitempty" gql:"parameterSchema"` // see package parameter
}

// LocationDeclaration says what a profile's devices are expected to report of their position. It is information for
// clients and never gates ingest. The zero value declares a location without expectations.
type LocationDeclaration struct {
	ExpectedAccuracyMeters        *float64 `json:"expectedAccuracyMeters,omitempty" gql:"expectedAccuracyMeters"`
	ExpectedUpdateIntervalSeconds *int     `json:"expectedUpdateIntervalSeconds,omitempty" gql:"expectedUpdateIntervalSeconds"`
}

// decodeSnapshot reads a stored snapshot.
func decodeSnapshot(body string) (*Snapshot, error) {
	var s Snapshot
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		return nil, fmt.Errorf("snapshot of a profile version: %w", err)
	}
	if s.V < 1 || s.V > snapshotFormatPlaced {
		return nil, fmt.Errorf("snapshot of a profile version has format %d, this Weir reads up to %d", s.V, snapshotFormatPlaced)
	}
	return &s, nil
}

func (s *Snapshot) encode() (string, error) {
	b, err := json.Marshal(s)
	return string(b), err
}

// enabledRules is how many rules run while the snapshot is the active version. A nil one has none.
func (s *Snapshot) enabledRules() (n int64) {
	if s == nil {
		return 0
	}
	for _, r := range s.Rules {
		if r.Enabled {
			n++
		}
	}
	return n
}

// scoped reports whether an enabled rule is scoped to a group. None of a nil snapshot is.
func (s *Snapshot) scoped() bool {
	return s != nil && slices.ContainsFunc(s.Rules, func(r SnapshotRule) bool { return r.Enabled && r.Group != "" })
}

// view is what resolution reads of the snapshot while it is the active version: enabled rules only.
func (s *Snapshot) view(tenant, token string, version int) model.ProfileView {
	v := model.ProfileView{V: 1, Tenant: tenant, Token: token, Version: version, InactivityTimeout: s.InactivityTimeout}
	for _, m := range s.Metrics {
		v.Metrics = append(v.Metrics, m.MetricView)
	}
	for _, r := range s.Rules {
		if r.Enabled {
			v.Rules = append(v.Rules, r.RuleView)
		}
	}
	return v
}
