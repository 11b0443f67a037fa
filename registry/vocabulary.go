package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"weir/model"
	"weir/registry/parameter"
	"weir/store"
	"weir/store/entity"
)

// MaxCommandBatch is the maximum number of devices of one check of a command.
const MaxCommandBatch = 10_000

// Reasons for which a command is refused. They are data and not errors of the API: it is the command that does not fit.
const (
	RefusedPayload    = "PAYLOAD_NOT_JSON"
	RefusedSize       = "COMMAND_REJECTED"
	RefusedDevice     = "DEVICE_NOT_FOUND"
	RefusedKey        = "COMMAND_NOT_IN_VOCABULARY"
	RefusedParameters = "PAYLOAD_SCHEMA_VIOLATION"
	// RefusedDestructive is of a command that would reset a device to the state of its factory without saying so.
	RefusedDestructive = "COMMAND_DESTRUCTIVE_REFUSED"
)

// CommandVocabulary is which commands the active version of a device's profile declares. Without any the device takes every
// key.
type CommandVocabulary struct {
	Constrained bool              `gql:"constrained"`
	Commands    []SnapshotCommand `gql:"commands"`
}

// CommandRefusal is why a device does not take a command.
type CommandRefusal struct {
	Device string `gql:"deviceToken"`
	Code   string `gql:"code"`
	Reason string `gql:"reason"`
}

// Vocabularies say which commands the devices of all tenants take.
type Vocabularies struct {
	store      store.Store
	devices    *entity.Kind[Device]
	profiles   *Profiles
	remembered declaredCommands
}

// Of returns the commands of a device, nil for an unknown device.
func (vs *Vocabularies) Of(ctx context.Context, by *model.Principal, device string) (found *CommandVocabulary, err error) {
	if err := vs.devices.MayRead(by); err != nil {
		return nil, err
	}
	err = store.Read(ctx, vs.store, func(tx store.Tx) error {
		d, err := vs.devices.Table.Get(tx, by.TenantID, device)
		if err != nil || d == nil {
			return err
		}
		s, err := vs.profiles.activeOf(tx, d)
		found = &CommandVocabulary{Commands: []SnapshotCommand{}}
		if s != nil && len(s.Commands) > 0 {
			found = &CommandVocabulary{Constrained: true, Commands: s.Commands}
		}
		return err
	})
	return found, err
}

// Refused returns which of the devices do not take a command with a payload (nil: without one), in the order in which
// they are named first. Each is judged by the active version of its profile.
func (vs *Vocabularies) Refused(ctx context.Context, by *model.Principal, devices []string, key string, payload *string) (refused []CommandRefusal, err error) {
	if err := vs.devices.MayRead(by); err != nil {
		return nil, err
	}
	devices = unique(devices)
	if len(devices) > MaxCommandBatch {
		return nil, model.OverLimit("deviceTokens", "%d devices, at most %d may be checked at a time", len(devices), MaxCommandBatch)
	}
	var judged []JudgedDevice
	err = store.Read(ctx, vs.store, func(tx store.Tx) (err error) {
		judged, err = vs.Judge(tx, by.TenantID, devices, key, payload)
		return err
	})
	refused = []CommandRefusal{}
	for i := range judged {
		if judged[i].Code != "" {
			refused = append(refused, judged[i].CommandRefusal)
		}
	}
	return refused, err
}

// JudgedDevice is what is said of one device and a command.
type JudgedDevice struct {
	ID             int64 // row id, 0 where there is no such device
	CommandRefusal       // Code "": the device takes the command
}

// Judge says of each device of a tenant whether it takes a command with a payload (nil: without one), in the order of the
// argument. It is the one judgement of all who check a command or make one.
func (vs *Vocabularies) Judge(tx store.Tx, tenant int64, devices []string, key string, payload *string) ([]JudgedDevice, error) {
	// One query for all devices, and each version of a profile is read once.
	found, err := store.JudgedDevices(tx, tenant, devices)
	if err != nil {
		return nil, err
	}
	byToken := make(map[string]*store.JudgedDevice, len(found))
	active := map[int64][]SnapshotCommand{}
	for i := range found {
		d := &found[i]
		byToken[d.Token] = d
		if _, known := active[d.TypeID]; known {
			continue
		}
		if active[d.TypeID] = nil; d.Version != nil {
			if active[d.TypeID], err = vs.declared(tx, d.Profile, *d.Version); err != nil {
				return nil, err
			}
		}
	}
	// The payload is checked once for each type.
	refuse := commandCheck(key, payload, active)
	judged := make([]JudgedDevice, len(devices))
	for i, token := range devices {
		var typ int64
		if d := byToken[token]; d != nil {
			judged[i].ID, typ = d.ID, d.TypeID
		}
		judged[i].Device = token
		judged[i].Code, judged[i].Reason = refuse(token, typ)
	}
	return judged, nil
}

// commandCheck returns what says why a device of a type (0: there is no such device) does not take a command; "" for one that
// takes it. Devices of a type get the same answer, so that it is found once.
func commandCheck(key string, payload *string, active map[int64][]SnapshotCommand) func(device string, typ int64) (code, reason string) {
	// What does not depend on the device is found out once.
	isJSON := payload == nil || json.Valid([]byte(*payload))
	size := len(text(payload))
	answers := map[int64][2]string{}
	return func(device string, typ int64) (code, reason string) {
		switch {
		case !isJSON:
			return RefusedPayload, "the payload is no JSON document"
		case size > model.MaxCommandPayload:
			return RefusedSize, fmt.Sprintf("the payload has %d bytes, at most %d are allowed", size, model.MaxCommandPayload)
		case destructive(key, payload):
			return RefusedDestructive, "an Execute of /3/0/5 resets the device to the state of its factory: use lwm2m.factoryReset, and confirm it"
		case typ == 0:
			return RefusedDevice, fmt.Sprintf("there is no device %q", device)
		}
		answer, known := answers[typ]
		if !known {
			answer[0], answer[1] = refuseCommand(active[typ], key, payload)
			answers[typ] = answer
		}
		return answer[0], answer[1]
	}
}

// maxCommandKey is how long the key of a definition may be, and so that of a command which needs none.
const maxCommandKey = 128

// declaredCommands remembers the commands that versions of profiles declare, which never change: a version holds much besides, and rules order
// commands by the thousand.
type declaredCommands struct {
	mu    sync.Mutex
	known map[profileVersion][]SnapshotCommand
}

type profileVersion struct{ profile, version int64 }

// Bounds of what is remembered: versions, and the bytes of what one declares.
const (
	maxVocabularies = 256
	maxVocabulary   = 64 << 10
)

func (v *declaredCommands) get(of profileVersion) (all []SnapshotCommand, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	all, ok = v.known[of]
	return all, ok
}

func (v *declaredCommands) put(of profileVersion, all []SnapshotCommand) {
	// Large ones are read again each time rather than held.
	size := 0
	for i := range all {
		c := &all[i]
		size += len(c.Token) + len(c.Key) + len(text(c.Name)) + len(text(c.Description)) + len(text(c.Parameters))
	}
	if size > maxVocabulary {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known == nil || len(v.known) >= maxVocabularies {
		v.known = map[profileVersion][]SnapshotCommand{}
	}
	v.known[of] = all
}

// declared are the commands that a version of a profile declares. They are remembered once they are known to be committed.
func (vs *Vocabularies) declared(tx store.Tx, profile, version int64) ([]SnapshotCommand, error) {
	of := profileVersion{profile, version}
	if all, ok := vs.remembered.get(of); ok {
		return all, nil
	}
	body, err := vs.profiles.versions.Body(tx, profile, version)
	if err != nil || body == nil {
		return nil, err
	}
	tx.OnCommit(func() { vs.remembered.put(of, body.Commands) })
	return body.Commands, nil
}

// refuseCommand says why a device whose profile declares commands does not take one, "" when it does. Without any it takes every key.
// The payload, which is JSON, is an object even where no parameters are declared: devices get nothing else.
func refuseCommand(declared []SnapshotCommand, key string, payload *string) (code, reason string) {
	switch {
	case key == "":
		return RefusedKey, "the command key is empty"
	case utf8.RuneCountInString(key) > maxCommandKey:
		return RefusedKey, fmt.Sprintf("the command key has more than %d characters", maxCommandKey)
	}
	var parameters *string
	if len(declared) > 0 {
		i := slices.IndexFunc(declared, func(c SnapshotCommand) bool { return c.Key == key })
		if i < 0 {
			return RefusedKey, fmt.Sprintf("the device's profile does not declare the command %q", key)
		}
		parameters = declared[i].Parameters
	}
	if parameters == nil {
		if payload != nil && !strings.HasPrefix(strings.TrimLeft(*payload, " \t\r\n"), "{") {
			return RefusedParameters, "the payload must be a JSON object"
		}
		return "", ""
	}
	schema, err := parameter.Parse(*parameters)
	if err == nil {
		err = schema.Check(text(payload))
	}
	if err != nil {
		return RefusedParameters, err.Error()
	}
	return "", ""
}

// activeOfTypes fills in, for device types by row id, the active version that judges their devices; nil for none.
func (ps *Profiles) activeOfTypes(tx store.Tx, tenant int64, active map[int64]*Snapshot) error {
	types, err := ps.types.Table.ByID(tx, tenant, slices.Sorted(maps.Keys(active)))
	if err != nil {
		return err
	}
	// Types share profiles: each is read once.
	profiles := map[int64]*Snapshot{}
	for _, t := range types {
		if t.ProfileID != nil {
			profiles[*t.ProfileID] = nil
		}
	}
	adopted, err := ps.Table.ByID(tx, tenant, slices.Sorted(maps.Keys(profiles)))
	if err != nil {
		return err
	}
	for _, p := range adopted {
		if p.ActiveVersion == nil {
			continue
		}
		if profiles[p.ID], err = ps.versions.Body(tx, p.ID, *p.ActiveVersion); err != nil {
			return err
		}
	}
	for _, t := range types {
		active[t.ID] = profiles[t.profile()]
	}
	return nil
}
