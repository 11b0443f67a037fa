package model

// ViewKind is the kind of a row of the metadata view, which is stored with the offsets between which it is effective.
type ViewKind string

// The kinds of view rows. Rows are generic over kinds: a new kind is a new body and needs no new table.
const (
	ViewTenant     ViewKind = "tenant"      // key: tenant token; body TenantView
	ViewDevice     ViewKind = "device"      // key: tenant token + "/" + device token; body DeviceView
	ViewDeviceType ViewKind = "device-type" // key: row id; body DeviceTypeView
	ViewProfile    ViewKind = "profile"     // key: row id; body ProfileView
	ViewAnchors    ViewKind = "anchors"     // key: row id of a device; body AnchorsView
)

// ViewChange sets one view row from its metadata change record on; a nil Body ends the row.
type ViewChange struct {
	Kind ViewKind `json:"k"`
	Key  string   `json:"y"`
	Body []byte   `json:"b,omitempty"`
}

// Memory is about how many bytes the row takes in memory while it is effective.
func (c ViewChange) Memory() int64 {
	n := int64(len(c.Key)) + 160 // with its places in maps
	switch c.Kind {
	case ViewProfile:
		n += 8 * int64(len(c.Body)) // decoded, and compiled rules
	case ViewAnchors:
		n += int64(len(c.Body)) // devices with the same anchors share them
	}
	return n
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
}
