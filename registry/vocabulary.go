package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"weir/model"
	"weir/registry/parameter"
	"weir/store"
)

// MaxCommandBatch is the maximum number of devices of one check of a command.
const MaxCommandBatch = 10_000

// Reasons for which a command is refused. They are data and not errors of the API: it is the command that does not fit.
const (
	RefusedPayload    = "PAYLOAD_NOT_JSON"
	RefusedDevice     = "DEVICE_NOT_FOUND"
	RefusedKey        = "COMMAND_NOT_IN_VOCABULARY"
	RefusedParameters = "PAYLOAD_SCHEMA_VIOLATION"
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

// Vocabulary returns the commands of a device, nil for an unknown device.
func (r *Registry) Vocabulary(ctx context.Context, by *model.Principal, device string) (found *CommandVocabulary, err error) {
	if err := r.Devices.MayRead(by); err != nil {
		return nil, err
	}
	err = store.Read(ctx, r.parts.Store, func(tx store.Tx) error {
		d, err := r.Devices.Table.Get(tx, by.TenantID, device)
		if err != nil || d == nil {
			return err
		}
		s, err := r.activeOf(tx, d)
		found = &CommandVocabulary{Commands: []SnapshotCommand{}}
		if s != nil && len(s.Commands) > 0 {
			found = &CommandVocabulary{Constrained: true, Commands: s.Commands}
		}
		return err
	})
	return found, err
}

// RefusedCommands returns which of the devices do not take a command with a payload (nil: without one), in the order in which
// they are named first. Each is judged by the active version of its profile.
func (r *Registry) RefusedCommands(ctx context.Context, by *model.Principal, devices []string, key string, payload *string) (refused []CommandRefusal, err error) {
	if err := r.Devices.MayRead(by); err != nil {
		return nil, err
	}
	devices = unique(devices)
	if len(devices) > MaxCommandBatch {
		return nil, model.OverLimit("deviceTokens", "%d devices, at most %d may be checked at a time", len(devices), MaxCommandBatch)
	}
	types, active := map[string]int64{}, map[int64]*Snapshot{}
	err = store.Read(ctx, r.parts.Store, func(tx store.Tx) error {
		found, err := r.Devices.Table.ByToken(tx, by.TenantID, devices)
		if err != nil {
			return err
		}
		for _, d := range found {
			types[d.Token], active[d.TypeID] = d.TypeID, nil
		}
		return r.activeOfTypes(tx, by.TenantID, active)
	})
	if err != nil {
		return nil, err
	}
	refuse := commandCheck(key, payload, active)
	refused = []CommandRefusal{}
	for _, token := range devices {
		if code, reason := refuse(token, types[token]); code != "" {
			refused = append(refused, CommandRefusal{Device: token, Code: code, Reason: reason})
		}
	}
	return refused, nil
}

// commandCheck returns what says why a device of a type (0: there is no such device) does not take a command; "" for one that
// takes it. Devices of a type get the same answer, so that it is found once.
func commandCheck(key string, payload *string, active map[int64]*Snapshot) func(device string, typ int64) (code, reason string) {
	isJSON := payload == nil || json.Valid([]byte(*payload))
	answers := map[int64][2]string{}
	return func(device string, typ int64) (code, reason string) {
		switch {
		case !isJSON:
			return RefusedPayload, "the payload is no JSON document"
		case typ == 0:
			return RefusedDevice, fmt.Sprintf("there is no device %q", device)
		}
		answer, known := answers[typ]
		if !known {
			answer[0], answer[1] = active[typ].refuseCommand(key, payload)
			answers[typ] = answer
		}
		return answer[0], answer[1]
	}
}

// refuseCommand says why a device that is judged by the snapshot does not take a command, "" when it does. A nil snapshot takes
// every key.
func (s *Snapshot) refuseCommand(key string, payload *string) (code, reason string) {
	if key == "" {
		return RefusedKey, "the command key is empty"
	}
	if s == nil || len(s.Commands) == 0 {
		return "", ""
	}
	i := slices.IndexFunc(s.Commands, func(c SnapshotCommand) bool { return c.Key == key })
	switch {
	case i < 0:
		return RefusedKey, fmt.Sprintf("the device's profile does not declare the command %q", key)
	case s.Commands[i].Parameters == nil:
		return "", ""
	}
	schema, err := parameter.Parse(*s.Commands[i].Parameters)
	if err == nil {
		err = schema.Check(text(payload))
	}
	if err != nil {
		return RefusedParameters, err.Error()
	}
	return "", ""
}

// activeOfTypes fills in, for device types by row id, the active version that judges their devices; nil for none.
func (r *Registry) activeOfTypes(tx store.Tx, tenant int64, active map[int64]*Snapshot) error {
	types, err := r.Types.Table.ByID(tx, tenant, slices.Sorted(maps.Keys(active)))
	if err != nil {
		return err
	}
	profiles := map[int64]*Snapshot{}
	for _, t := range types {
		if t.ProfileID != nil {
			profiles[*t.ProfileID] = nil
		}
	}
	adopted, err := r.Profiles.Table.ByID(tx, tenant, slices.Sorted(maps.Keys(profiles)))
	if err != nil {
		return err
	}
	for _, p := range adopted {
		if p.ActiveVersion == nil {
			continue
		}
		if profiles[p.ID], err = r.versions.Body(tx, p.ID, *p.ActiveVersion); err != nil {
			return err
		}
	}
	for _, t := range types {
		active[t.ID] = profiles[t.profile()]
	}
	return nil
}
