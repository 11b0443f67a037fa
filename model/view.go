package model

import (
	"encoding/json"
	"strconv"
	"strings"
)

// ViewKind is the kind of a row of the metadata view, which is stored with the offsets between which it is effective.
type ViewKind string

// The kinds of view rows. Rows are generic over kinds: a new kind is a new body and needs no new table.
const (
	ViewTenant     ViewKind = "tenant"      // key: tenant token; body TenantView
	ViewDevice     ViewKind = "device"      // key: tenant token + "/" + device token; body DeviceView
	ViewDeviceType ViewKind = "device-type" // key: row id; body DeviceTypeView
	ViewProfile    ViewKind = "profile"     // key: row id; body ProfileView
	ViewAnchors    ViewKind = "anchors"     // key: row id of a device; body AnchorsView

	ViewAttribute   ViewKind = "attribute"   // key: row id of a device + "/" + scope + "/" + key; body AttributeView
	ViewMemberships ViewKind = "memberships" // key: row id of a device; body MembershipsView
	ViewGroup       ViewKind = "group"       // key: row id of a group + "/" + version; body GroupView
	ViewFence       ViewKind = "fence"       // key: row id of a tenant + "/" + token of a fence; body FenceView
	ViewFenceSet    ViewKind = "fence-set"   // key: row id of a tenant; body FenceSetView
	ViewSite        ViewKind = "site"        // key: row id of a tenant + "/" + id of an edge's installation; body SiteView
	// ViewCheckpoint is no row: a checkpoint is due after the change that names it.
	ViewCheckpoint ViewKind = "checkpoint"
)

// ViewChange sets one view row from its metadata change record on; a nil Body ends the row.
type ViewChange struct {
	Kind ViewKind `json:"k"`
	Key  string   `json:"y"`
	Body []byte   `json:"b,omitempty"`
}

// Memory is about how many bytes the row takes in memory while it is effective.
func (c ViewChange) Memory() int64 {
	if c.Kind == ViewAttribute {
		return attributeMemory(c.Body)
	}
	n := int64(len(c.Key)) + 160 // with its places in maps
	switch c.Kind {
	case ViewProfile, ViewGroup, ViewFence:
		n += 8 * int64(len(c.Body)) // decoded, and compiled rules, selectors and polygons
	case ViewAnchors, ViewMemberships:
		n += int64(len(c.Body)) // devices with the same anchors share them
	}
	return n
}

// attributeMemory is the memory of an attribute: keys are shared, and numbers and short texts lie in its entry.
func attributeMemory(body []byte) int64 {
	var a AttributeView
	if json.Unmarshal(body, &a) != nil {
		return AttributeMemory
	}
	return a.Memory()
}

// TenantView is the body of a ViewTenant row.
type TenantView struct {
	V       int   `json:"v"`
	ID      int64 `json:"id"`
	Enabled bool  `json:"enabled"`
}

// DeviceView is the body of a ViewDevice row.
type DeviceView struct {
	V    int   `json:"v"`
	ID   int64 `json:"id"`
	Type int64 `json:"type"` // row id of the device type
}

// DeviceTypeView is the body of a ViewDeviceType row.
type DeviceTypeView struct {
	V       int   `json:"v"`
	Profile int64 `json:"profile,omitempty"` // row id of the device profile, 0 when the type has none
}

// AnchorsView is the body of a ViewAnchors row: the entities to which the tracked relationships of a device lead. A device
// without any has no row.
type AnchorsView struct {
	V       int      `json:"v"`
	Tenant  int64    `json:"tenant"`  // row id
	Anchors []Anchor `json:"anchors"` // in any order, one may be there more than once
}

// Anchor is an entity to which devices belong: what it says of itself is stamped on their events.
type Anchor struct {
	Type  string `json:"type" gql:"type"` // device, asset, area, customer or group
	Token string `json:"token" gql:"token"`
}

// GroupAnchor is the type of an anchor that is a group of devices.
const GroupAnchor = "group"

// AttributeView is the body of a ViewAttribute row: the value of an attribute that resolution reads. That is a number of the scopes
// SERVER and SHARED, and any value of the scope SHARED whose key a selector in use names. A value that is no number, text or bool
// exists and equals no scalar.
type AttributeView struct {
	V      int      `json:"v"`
	Number *float64 `json:"n,omitempty"`
	Text   *string  `json:"s,omitempty"`
	Bool   *bool    `json:"b,omitempty"`
}

// AttributeMemory is about how many bytes an attribute takes without its text: its entry, and a part of the place of its device.
const AttributeMemory = 40

// Memory is about how many bytes the attribute takes in memory.
func (a *AttributeView) Memory() int64 {
	if a.Text != nil {
		return AttributeMemory + int64(len(*a.Text))
	}
	return AttributeMemory
}

// AttributeKey is the key of the row of a device's attribute.
func AttributeKey(device int64, scope, key string) string {
	return strconv.FormatInt(device, 10) + "/" + scope + "/" + key
}

// ParseAttributeKey is the inverse of AttributeKey.
func ParseAttributeKey(text string) (device int64, scope, key string, err error) {
	id, rest, _ := strings.Cut(text, "/")
	device, err = strconv.ParseInt(id, 10, 64)
	scope, key, _ = strings.Cut(rest, "/")
	return device, scope, key, err
}

// MembershipsView is the body of a ViewMemberships row: the static groups that a device is a member of. A device without any has no row.
type MembershipsView struct {
	V      int      `json:"v"`
	Tenant int64    `json:"tenant"` // row id
	Groups []string `json:"groups"` // tokens, in any order
}

// GroupView is the body of a ViewGroup row: a published version of a dynamic group of devices that is the active one, or that an enabled
// rule of an active profile version is scoped to.
type GroupView struct {
	V        int    `json:"v"`
	Tenant   int64  `json:"tenant"` // row id
	Token    string `json:"token"`
	Version  int    `json:"version"`
	Selector string `json:"selector"`
	Active   bool   `json:"active,omitempty"` // its members bear the group as an anchor
}

// FenceView is the body of a ViewFence row: the geometry of a fence of the tenant's set.
type FenceView struct {
	V        int    `json:"v"`
	Geometry string `json:"geometry"`
}

// FenceSetView is the body of a ViewFenceSet row: the version of the tenant's set of fences. A tenant that never had one has no row.
type FenceSetView struct {
	V       int   `json:"v"`
	Version int64 `json:"version"`
}

// SiteView is the body of a ViewSite row: which profiles' rules with placement EDGE an installation of an edge judges itself.
type SiteView struct {
	V    int       `json:"v"`
	Runs []SiteRun `json:"runs"`
}

// SiteRun are the messages that a site judges by the rules of a profile: those whose number is From or higher, and lower than Until where that is not 0.
type SiteRun struct {
	Profile string `json:"profile"` // token
	From    uint64 `json:"from"`
	Until   uint64 `json:"until,omitempty"`
}

// ProfileView is the body of a ViewProfile row: the active published version of a profile. A profile that was never
// published has no row.
type ProfileView struct {
	V                 int          `json:"v"`
	Tenant            string       `json:"tenant"`
	Token             string       `json:"token"`
	Version           int          `json:"version"`
	Metrics           []MetricView `json:"metrics,omitempty"`
	Rules             []RuleView   `json:"rules,omitempty"` // enabled rules only
	InactivityTimeout int          `json:"inactivityTimeoutSeconds,omitempty"`
}

// VersionToken is the token of the version: {profileToken}@{version}.
func (p *ProfileView) VersionToken() string { return versionToken(p.Token, p.Version) }

// MetricView is a declared metric of a published version.
type MetricView struct {
	Key      string   `json:"key"`
	DataType string   `json:"dataType"`
	Unit     string   `json:"unit,omitempty"`
	Min      *float64 `json:"min,omitempty"`
	Max      *float64 `json:"max,omitempty"`
	Enum     []string `json:"enum,omitempty"`
	// OutOfRange is OutOfRangeFlag, OutOfRangeClamp or, for OutOfRangeRefuse, "".
	OutOfRange string `json:"outOfRange,omitempty"`
	// SourceNames are other names under which readings of the metric are sent: they are stored and judged under Key.
	SourceNames []string `json:"sourceNames,omitempty"`
}

// Outside reports whether a value is outside the metric's range, and the bound that it exceeds.
func (v *MetricView) Outside(value float64) (bound float64, outside bool) {
	switch {
	case v.Min != nil && value < *v.Min:
		return *v.Min, true
	case v.Max != nil && value > *v.Max:
		return *v.Max, true
	}
	return 0, false
}

// RuleView is an enabled detection rule of a published version.
type RuleView struct {
	Token        string `json:"token"`
	Definition   string `json:"definition"`
	Group        string `json:"group,omitempty"`
	GroupVersion int    `json:"groupVersion,omitempty"`
	Placement    string `json:"placement,omitempty"` // "": PlacementCloud
}

// Where a rule is judged.
const (
	PlacementCloud = "CLOUD" // here
	PlacementEdge  = "EDGE"  // at the site, for devices behind an edge that runs it
)
