package app

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"weir/internal/smallfile"
	"weir/lwm2m"
	"weir/model"
	"weir/store"
	lwm2mrows "weir/store/lwm2m"
)

// registrations keeps what is known of LwM2M devices.
type registrations struct {
	store    *database
	entities *entities

	mu    sync.Mutex
	place *place // nil: no session was stored yet
}

// place is where sessions belong. A session must go on in one place at most, and never from a row of earlier: its records would be encrypted twice
// with the same numbers. So rows open only in the directory in which they were sealed, and count only in the database that the directory has seen
// last. What says so is a file beside it, which no backup holds.
type place struct {
	ID   string `json:"id"`   // of the directory, random
	Last string `json:"last"` // random marks of the database: of the start before this one, of this one
	Next string `json:"next"`

	seal    string // name under which sessions are sealed
	claimed bool   // the database has the mark
}

// Names of the mark.
const (
	metaPlace    = "lwm2m_place"
	placeName    = "lwm2m-sessions.json"
	maxPlaceFile = 4 << 10
	machineID    = "/etc/machine-id"
)

func randomMark() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// readPlace reads the file of a directory. One that is not there or does not read is that of a new place.
func readPlace(dir string, pair [16]byte) (*place, error) {
	p := &place{}
	b, err := smallfile.Read(filepath.Join(dir, placeName), maxPlaceFile)
	if err == nil {
		err = json.Unmarshal(b, p)
	}
	if err != nil || p.ID == "" {
		p = &place{ID: randomMark()}
	}
	// The name depends on inode, machine and pair id, so that sessions do not open in a copy of the directory.
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	inode := uint64(0)
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = s.Ino
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %x %d %s", p.ID, pair, inode, machineOf()))
	p.seal = "lwm2m-session:" + hex.EncodeToString(sum[:])
	return p, nil
}

// machineOf is the id of the machine, "" where it has none.
func machineOf() string {
	b, err := smallfile.Read(machineID, maxPlaceFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// begin writes the file for a start, before the database has the mark Next.
func (p *place) begin(dir, before string) error {
	// Both marks are in the file: the database may have either, depending on where a crash came.
	p.Last, p.Next = before, randomMark()
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	// Write beside and rename, so that the file is never half there.
	path := filepath.Join(dir, placeName)
	f, err := os.OpenFile(path+".part", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close(), os.Rename(path+".part", path)); err != nil {
		return err
	}
	// Sync the directory: the rename must be durable before a session is stored under the new mark.
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (p *place) name(device int64) string { return fmt.Sprintf("%s:%d", p.seal, device) }

// binding is the device of a row.
func (r *registrations) binding(tenant, device, credential int64, token string) model.Binding {
	return model.Binding{
		Tenant:     r.entities.Govern.TokenOf(tenant),
		TenantID:   tenant,
		Device:     token,
		DeviceID:   device,
		Credential: credential,
	}
}

// Restore implements lwm2m.Store.
func (r *registrations) Restore(ctx context.Context, reserve uint64, to lwm2m.Restored) error {
	// Everything but sessions goes on wherever the rows are.
	var sessions []lwm2mrows.Session
	db := r.store.db.For(store.Devices)
	if err := db.Read(ctx, func(tx store.Tx) error {
		if err := lwm2mrows.All(tx, func(row lwm2mrows.Registration) {
			to.Registration(lwm2m.Registration{
				Binding:    r.binding(row.TenantID, row.DeviceID, row.CredentialID, row.Device),
				Location:   row.Location,
				Endpoint:   row.Endpoint,
				Version:    row.Version,
				Binds:      row.Binding,
				Queue:      row.Queue,
				Lifetime:   row.Lifetime,
				Links:      row.Links,
				Session:    row.Session,
				Registered: row.Registered,
				Heard:      row.Heard,
				Harvested:  row.Harvested,
			})
		}); err != nil {
			return err
		}
		if err := lwm2mrows.Observations(tx, func(row lwm2mrows.Observation) {
			to.Observation(lwm2m.Observation{
				Binding:  model.Binding{TenantID: row.TenantID, DeviceID: row.DeviceID},
				Token:    row.Token,
				Paths:    row.Paths,
				Settings: row.Settings,
				Session:  row.Session,
				Number:   row.Number,
				Heard:    row.Heard,
				Value:    row.Value,
			})
		}); err != nil {
			return err
		}
		if err := lwm2mrows.AllFirmware(tx, func(row lwm2mrows.Firmware) {
			to.Firmware(lwm2m.Firmware{
				Binding:  r.binding(row.TenantID, row.DeviceID, 0, row.Device),
				Command:  row.Command,
				Nonce:    row.Nonce,
				Expires:  row.Expires,
				Artifact: row.Artifact,
				Body:     row.Body,
				Phase:    row.Phase,
				Pull:     row.Pull,
				Secret:   row.Secret,
				Before:   row.Before,
				Began:    row.Began,
				Updated:  row.Updated,
			})
		}); err != nil {
			return err
		}
		return lwm2mrows.Sessions(tx, func(row lwm2mrows.Session) { sessions = append(sessions, row) })
	}); err != nil || len(sessions) == 0 {
		return err
	}
	// Decide once for all sessions whether they belong to this directory.
	good, err := r.settleSessions(ctx, reserve)
	if err != nil {
		return err
	}
	if !good {
		r.store.log.Warn("sessions of LwM2M devices are not those of this directory: it is a copy, or its database is an older one. The devices shake hands again", "sessions", len(sessions))
		return nil
	}
	// A session that does not open is ended, so that its row is not tried again.
	var ended []int64
	for _, row := range sessions {
		state, err := r.store.vault.Open(r.place.name(row.DeviceID), row.State)
		if err != nil || !to.Session(lwm2m.Session{
			Binding:  r.binding(row.TenantID, row.DeviceID, row.CredentialID, row.Device),
			Name:     row.Name,
			Form:     row.Form,
			State:    state,
			Bound:    row.Bound,
			Received: row.Received,
			Address:  row.Address,
			Heard:    row.Heard,
		}) {
			ended = append(ended, row.DeviceID)
		}
	}
	if len(ended) == 0 {
		return nil
	}
	r.store.log.Warn("sessions of LwM2M devices cannot go on: they were sealed elsewhere, or by another version. The devices shake hands again", "sessions", len(ended))
	return r.Save(ctx, false, &lwm2m.Changes{Ended: ended})
}

// settleSessions raises the bounds of all sessions where they belong to this place, and removes them where they do not.
func (r *registrations) settleSessions(ctx context.Context, reserve uint64) (good bool, err error) {
	p, before, err := r.find(ctx)
	if err != nil {
		return false, err
	}
	// The marks agree, or the last start ended between the file and the database.
	good = before != "" && (before == p.Last || before == p.Next)
	// The file first: after a crash here the database still has a mark that the file knows.
	if err := p.begin(r.store.cfg.DataDir, before); err != nil {
		return false, err
	}
	if err := r.store.db.Write(ctx, store.Durable, func(tx store.Tx) error {
		// Sessions of elsewhere are removed. The bounds of others are raised, since record numbers up to them may have been used.
		if !good {
			if err := lwm2mrows.RemoveSessions(tx); err != nil {
				return err
			}
		}
		return errors.Join(lwm2mrows.ReserveAll(tx, reserve), store.SetMeta(tx, metaPlace, []byte(p.Next)))
	}); err != nil {
		return false, err
	}
	p.claimed = true
	r.place = p
	return good, nil
}

// find reads the place, and the mark of the database.
func (r *registrations) find(ctx context.Context) (p *place, mark string, err error) {
	var pair [16]byte
	if err := r.store.db.Read(ctx, func(tx store.Tx) error {
		value, err := store.Meta(tx, metaPlace)
		if err != nil {
			return err
		}
		mark = string(value)
		pair, _, err = store.PairID(tx)
		return err
	}); err != nil {
		return nil, "", err
	}
	p, err = readPlace(r.store.cfg.DataDir, pair)
	return p, mark, err
}

// currentPlace is the place in which sessions are stored from now on.
func (r *registrations) currentPlace(ctx context.Context) (*place, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.place != nil {
		return r.place, nil
	}
	p, before, err := r.find(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.begin(r.store.cfg.DataDir, before); err != nil {
		return nil, err
	}
	r.place = p
	return p, nil
}

// Save implements lwm2m.Store.
func (r *registrations) Save(ctx context.Context, sync bool, c *lwm2m.Changes) error {
	durable := store.Results
	if sync {
		durable = store.Durable
	}
	// Seal outside of the transaction, which holds the only writer.
	sealed := make([][]byte, len(c.Sessions))
	var at *place
	if len(c.Sessions) > 0 {
		var err error
		if at, err = r.currentPlace(ctx); err != nil {
			return err
		}
		for i := range c.Sessions {
			if sealed[i], err = r.store.vault.Seal(at.name(c.Sessions[i].Binding.DeviceID), c.Sessions[i].State); err != nil {
				return err
			}
		}
	}
	if err := r.store.db.Write(ctx, durable, func(tx store.Tx) error {
		if at != nil {
			if err := r.claim(tx, at); err != nil {
				return err
			}
		}
		return saveLwM2M(tx, c, sealed)
	}); err != nil {
		return err
	}
	if at != nil {
		r.mu.Lock()
		at.claimed = true
		r.mu.Unlock()
	}
	return nil
}

// claim gives the database the mark of the place.
func (r *registrations) claim(tx store.Tx, at *place) error {
	r.mu.Lock()
	claimed := at.claimed
	r.mu.Unlock()
	if claimed {
		return nil
	}
	return store.SetMeta(tx, metaPlace, []byte(at.Next))
}

// saveLwM2M writes changes. sealed are the states of the sessions.
func saveLwM2M(tx store.Tx, c *lwm2m.Changes, sealed [][]byte) error {
	for i := range c.Registrations {
		row := &c.Registrations[i]
		if err := lwm2mrows.Save(tx, &lwm2mrows.Registration{
			DeviceID:     row.Binding.DeviceID,
			TenantID:     row.Binding.TenantID,
			CredentialID: row.Binding.Credential,
			Location:     row.Location,
			Endpoint:     row.Endpoint,
			Version:      row.Version,
			Binding:      row.Binds,
			Queue:        row.Queue,
			Lifetime:     row.Lifetime,
			Links:        row.Links,
			Session:      row.Session,
			Registered:   row.Registered,
			Heard:        row.Heard,
			Harvested:    row.Harvested,
		}); err != nil {
			return err
		}
	}
	// Forget before the new observations: a device that registered again may have both.
	for _, device := range c.Forget {
		if err := lwm2mrows.RemoveObservations(tx, device); err != nil {
			return err
		}
	}
	for _, o := range c.Observations {
		if err := lwm2mrows.SaveObservation(tx, &lwm2mrows.Observation{
			DeviceID: o.Binding.DeviceID,
			TenantID: o.Binding.TenantID,
			Token:    o.Token,
			Paths:    o.Paths,
			Settings: o.Settings,
			Session:  o.Session,
			Number:   o.Number,
			Heard:    o.Heard,
			Value:    o.Value,
		}); err != nil {
			return err
		}
	}
	for _, o := range c.Unobserved {
		if err := lwm2mrows.RemoveObservation(tx, o.Binding.DeviceID, o.Token); err != nil {
			return err
		}
	}
	for i := range c.Firmware {
		row := &c.Firmware[i]
		if err := lwm2mrows.SaveFirmware(tx, &lwm2mrows.Firmware{
			DeviceID: row.Binding.DeviceID,
			TenantID: row.Binding.TenantID,
			Command:  row.Command,
			Nonce:    row.Nonce,
			Expires:  row.Expires,
			Artifact: row.Artifact,
			Body:     row.Body,
			Phase:    row.Phase,
			Pull:     row.Pull,
			Secret:   row.Secret,
			Before:   row.Before,
			Began:    row.Began,
			Updated:  row.Updated,
		}); err != nil {
			return err
		}
	}
	for i := range c.FirmwareEnded {
		if err := lwm2mrows.RemoveFirmware(tx, c.FirmwareEnded[i].Binding.DeviceID, c.FirmwareEnded[i].Nonce); err != nil {
			return err
		}
	}
	return saveSessions(tx, c, sealed)
}

func saveSessions(tx store.Tx, c *lwm2m.Changes, sealed [][]byte) error {
	for _, device := range c.Ended {
		if err := lwm2mrows.RemoveSession(tx, device); err != nil {
			return err
		}
	}
	for i := range c.Sessions {
		row := &c.Sessions[i]
		if err := lwm2mrows.SaveSession(tx, &lwm2mrows.Session{
			DeviceID:     row.Binding.DeviceID,
			TenantID:     row.Binding.TenantID,
			CredentialID: row.Binding.Credential,
			Name:         row.Name,
			Form:         row.Form,
			State:        sealed[i],
			Bound:        row.Bound,
			Received:     row.Received,
			Address:      row.Address,
			Heard:        row.Heard,
		}); err != nil {
			return err
		}
	}
	for i := range c.Reserved {
		row := &c.Reserved[i]
		if err := lwm2mrows.Reserve(tx, row.Binding.DeviceID, row.Name, row.Bound); err != nil {
			return err
		}
	}
	for i := range c.Progress {
		row := &c.Progress[i]
		if err := lwm2mrows.Progress(tx, row.Binding.DeviceID, row.Name, row.Received, row.Address, row.Heard); err != nil {
			return err
		}
	}
	return nil
}
