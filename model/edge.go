package model

import "strconv"

// EdgeSignal is a firing edge.
type EdgeSignal uint8

// The edges.
const (
	Raised   EdgeSignal = 1
	Resolved EdgeSignal = 2
)

func (s EdgeSignal) String() string {
	switch s {
	case Raised:
		return "raised"
	case Resolved:
		return "resolved"
	}
	return "EdgeSignal(?)"
}

// EdgeID is the identity of a detection: the log position that caused it, the rule, its key, and a number for the n-th
// edge of that rule and key at that position. It orders edges and every idempotency key is derived from it.
type EdgeID struct {
	Epoch  uint32
	Offset Offset
	Index  uint32 // of the reading in the record
	Rule   string // stable id {profileToken}/{ruleToken}
	Key    string // row id of the device, or the anchor's
	N      uint16
}

// Edge is one detection.
type Edge struct {
	ID       EdgeID
	Tenant   string
	TenantID int64
	Profile  string // profile token
	Version  int
	Rule     string // rule token
	Kind     string // one of the eight kinds
	Signal   EdgeSignal
	Series   string // device token, or the anchor's token
	Device   int64  // row id, 0 for an anchor
	Occurred Micros // event time of the edge
	Received Nanos  // receive time of the record that caused it
	Severity string // "" when the rule declares none
	Value    float64
	HasValue bool
	Timer    bool // a timer caused it, no sample; it is not stored
	AtSite   bool // of a rule with placement EDGE that is judged here; it is not stored
}

// RuntimeID is {tenant}/{profileToken}@{version}/{ruleToken}.
func (e *Edge) RuntimeID() string { return RuleRuntimeID(e.Tenant, e.Profile, e.Version, e.Rule) }

// RuleRuntimeID composes the runtime id of a rule of a published version.
func RuleRuntimeID(tenant, profile string, version int, rule string) string {
	return tenant + "/" + versionToken(profile, version) + "/" + rule
}

// RuleStableID composes the id of a rule that outlives versions.
func RuleStableID(profile, rule string) string { return profile + "/" + rule }

func versionToken(profile string, version int) string { return profile + "@" + strconv.Itoa(version) }
