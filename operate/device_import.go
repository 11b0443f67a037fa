package operate

import (
	"context"
	"time"

	"weir/registry"
	"weir/store"
)

// MaxDeviceImport is the most devices that one import makes.
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
	secrets, problems, err := e.Registry.ImportDevices(ctx, by, in)
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
