package operate

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"time"

	"weir/model"
	"weir/registry"
	"weir/store"
)

// NewDevice is the device that weir device add makes.
type NewDevice struct {
	Tenant     string `json:"tenant"`
	Token      string `json:"token"`
	Type       string `json:"type"`
	Name       string `json:"name,omitempty"`
	ExternalID string `json:"externalId,omitempty"`
	PSK        bool   `json:"psk,omitempty"` // a pre-shared key for LwM2M is made, too
}

// DeviceAdded is the result. Secret is the access token, which cannot be shown again without the API.
type DeviceAdded struct {
	Tenant   string `json:"tenant"`
	Token    string `json:"token"`
	Type     string `json:"type"`
	TypeMade bool   `json:"typeMade,omitempty"`      // the device type did not exist and was made
	Removed  int    `json:"removedTokens,omitempty"` // access tokens that are no longer good
	Secret   string `json:"accessToken"`
	PSK      *PSK   `json:"psk,omitempty"`
	Entrances
}

// PSK is a new pre-shared key of an LwM2M device, which cannot be shown again.
type PSK struct {
	Identity string `json:"identity"`
	Hex      string `json:"keyHex"`
	Base64   string `json:"keyBase64"`
	Server   string `json:"server,omitempty"` // host:port of the LwM2M server; "" while it is closed
}

// Entrances are where devices send to: "" for a listener that is closed, all of them where nothing runs.
type Entrances struct {
	Instance string `json:"instanceId"`
	MQTT     string `json:"mqtt,omitempty"`
	Ingest   string `json:"ingest,omitempty"` // HTTP ingest
	// Secure are the same listeners over TLS, nil when none is open.
	Secure *SecureListeners `json:"secure,omitempty"`
}

func (e *Entities) entrances(context.Context, None) (*Entrances, error) {
	at := e.Listeners()
	return &Entrances{e.Config.Instance.ID, at.At(MQTTListener), at.At(IngestListener), e.secureListeners(at)}, nil
}

// SecureListeners are the listeners that speak TLS, and what a client must know of their certificate.
type SecureListeners struct {
	MQTT   string   `json:"mqtt,omitempty"`
	Ingest string   `json:"ingest,omitempty"`
	Names  []string `json:"names"` // hosts that the certificate is for
	// CAFile is what a client must be configured to trust, "" when its system does already.
	CAFile string `json:"caFile,omitempty"`
}

// secureListeners are those that are open.
func (e *Entities) secureListeners(at Listeners) *SecureListeners {
	mqtts, ingest := at.At(MQTTSListener), at.At(IngestTLSListener)
	if e.Served == nil || mqtts == "" && ingest == "" {
		return nil
	}
	p := e.Served.State().Pair
	d := &SecureListeners{MQTT: mqtts, Ingest: ingest, Names: p.Names()}
	switch {
	case p.Public():
	case p.Rooted():
		d.CAFile = e.Config.TLS.Cert
	default:
		d.CAFile = "ca.pem" // of the CA; where it lies is not known
	}
	return d
}

// DefaultDeviceType is the device type that a device gets when none is named.
const DefaultDeviceType = "device"

func (e *Entities) addDevice(ctx context.Context, d NewDevice) (*DeviceAdded, error) {
	return e.AddDevice(ctx, Local(), d)
}

// AddDevice makes a device with its access token and, on demand, the default type: all of it in one change.
func (e *Entities) AddDevice(ctx context.Context, by *model.Principal, d NewDevice) (*DeviceAdded, error) {
	by, err := e.Within(by, d.Tenant)
	if err != nil {
		return nil, err
	}
	if d.Type == "" {
		d.Type = DefaultDeviceType
	}
	var ensure store.Patch // the default type is made on demand; any other one must exist
	if d.Type == DefaultDeviceType {
		ensure = defaultType()
	}
	p := store.Patch{"token": d.Token, "deviceTypeToken": d.Type}
	if d.Name != "" {
		p["name"] = d.Name
	}
	if d.ExternalID != "" {
		p["externalId"] = d.ExternalID
	}
	added := &DeviceAdded{Tenant: d.Tenant, Type: d.Type}
	var dev *registry.Device
	if d.PSK {
		var identity string
		var key []byte
		if dev, added.TypeMade, added.Secret, identity, key, err = e.Registry.Devices.AddWithKey(ctx, by, p, ensure); err != nil {
			return nil, err
		}
		added.PSK = &PSK{Identity: identity, Hex: hex.EncodeToString(key), Base64: base64.StdEncoding.EncodeToString(key), Server: e.Listeners().At(LwM2MListener)}
	} else if dev, added.TypeMade, added.Secret, err = e.Registry.Devices.AddOfType(ctx, by, p, ensure); err != nil {
		return nil, err
	}
	at, err := e.entrances(ctx, None{})
	added.Token, added.Entrances = dev.Token, *at
	return added, err
}

// within is the operator in a tenant.
func (e *Entities) within(tenant string) (*model.Principal, error) { return e.Within(Local(), tenant) }

// Within resolves a principal to a tenant.
func (e *Entities) Within(by *model.Principal, tenant string) (*model.Principal, error) {
	id, _, known := e.Govern.Lookup(tenant)
	if !known {
		return nil, e.noTenant(tenant)
	}
	by.Tenant, by.TenantID = tenant, id
	return by, nil
}

// MaxDeviceImport is the maximum of devices in one import.
const MaxDeviceImport = registry.MaxImport

// importTimeout bounds an import: each password of a device is hashed with care, which takes its time.
const importTimeout = 15 * time.Minute

// maxImportProblems bounds an answer: it must fit into one.
const maxImportProblems = 10_000

// DeviceImport are devices that weir device import makes: all of them or none.
type DeviceImport struct {
	Tenant string      `json:"tenant"`
	Rows   []DeviceRow `json:"rows"`
	DryRun bool        `json:"dryRun,omitempty"`
}

// DeviceRow is a row of an import: the fields by the API's names. Absent fields are null.
type DeviceRow struct {
	Device     map[string]string `json:"device"`
	Credential map[string]string `json:"credential,omitempty"` // none: the device gets an access token
}

// DevicesImported is the result of an import.
type DevicesImported struct {
	Tenant   string          `json:"tenant"`
	DryRun   bool            `json:"dryRun,omitempty"`
	Made     int             `json:"made"`
	Minted   []MintedToken   `json:"minted,omitempty"`
	Found    int             `json:"found,omitempty"`    // how many problems there are; with any, nothing is made
	Problems []ImportProblem `json:"problems,omitempty"` // the first maxImportProblems of them
}

// MintedToken is the access token that a device got.
type MintedToken struct {
	Device string `json:"token"`
	Secret string `json:"accessToken"`
}

// ImportProblem is why a row cannot be made. Rows count from 0; Other is the one it collides with, -1 for none.
type ImportProblem struct {
	Row    int    `json:"row"`
	Field  string `json:"field"`
	Reason string `json:"reason"`
	Other  int    `json:"other"`
}

func (e *Entities) importDevices(ctx context.Context, q DeviceImport) (*DevicesImported, error) {
	by, err := e.within(q.Tenant)
	if err != nil {
		return nil, err
	}
	in := registry.Import{DryRun: q.DryRun}
	for _, row := range q.Rows {
		e := registry.Entry{Device: patchOf(row.Device)}
		if len(row.Credential) > 0 {
			e.Credential = patchOf(row.Credential)
		}
		if row.Device["deviceTypeToken"] == "" {
			e.Device["deviceTypeToken"] = DefaultDeviceType
		}
		if e.Device["deviceTypeToken"] == DefaultDeviceType {
			in.EnsureType = defaultType()
		}
		in.Entries = append(in.Entries, e)
	}
	secrets, problems, err := e.Registry.Devices.Import(ctx, by, in)
	if err != nil {
		return nil, err
	}
	out := &DevicesImported{Tenant: q.Tenant, DryRun: q.DryRun, Found: len(problems)}
	for _, p := range problems[:min(len(problems), maxImportProblems)] {
		out.Problems = append(out.Problems, ImportProblem{Row: p.Entry, Field: p.Field, Reason: p.Reason, Other: p.Other})
	}
	if len(problems) > 0 {
		return out, nil
	}
	out.Made = len(q.Rows)
	for i, secret := range secrets {
		if secret != "" && !q.DryRun {
			out.Minted = append(out.Minted, MintedToken{q.Rows[i].Device["token"], secret})
		}
	}
	return out, nil
}

func patchOf(fields map[string]string) store.Patch {
	p := make(store.Patch, len(fields)+1)
	for name, v := range fields {
		p[name] = v
	}
	return p
}

// defaultType is the device type that is made when a device names none.
func defaultType() store.Patch { return store.Patch{"token": DefaultDeviceType, "name": "Device"} }
