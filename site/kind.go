package site

import (
	"reflect"
	"slices"
	"strings"

	"weir/auth"
	"weir/govern"
	"weir/model"
	"weir/registry"
	"weir/store"
)

// kind describes what can be declared: the fields are those of the API, taken from the rooms' own descriptions.
type kind struct {
	name   string // in messages and plans: "device"
	list   string // the key of its list: "devices"
	id     string // the field that names one of them: token, email
	fields []field
	lists  []*kind // what is declared inside one of them
}

// fieldType is how a value is written.
type fieldType uint8

const (
	textField fieldType = iota
	boolField
	integerField
	numberField
	instantField
	listField     // of texts
	setField      // of texts whose order means nothing
	documentField // JSON, as a mapping or as a text
)

type field struct {
	name        string
	typ         fieldType
	ref         string // the list that it names a member of
	emptyClears bool
	immutable   bool
	secret      bool     // given by name_file or name_env
	own         bool     // no field of the API: it says what to do, not what is
	keys        []string // a document has only these keys; nil: any
}

// kinds is everything that can be declared, by the keys of a file.
type kinds struct {
	root                                                  *kind
	tier, role, tenant, identity, membership              *kind
	profile, metric, rule, deviceType, device, credential *kind
}

// Keys of the format that are no fields of the API.
const (
	keyVersion = "version"
	keyFrom    = "devicesFrom"
	keyFile    = "file"
	keyPublish = "publish"     // of a profile: false leaves its draft unpublished
	keyAccess  = "accessToken" // column of a list of devices
)

// declarable describes the format. The registry is asked for its fields only.
func declarable() *kinds {
	r := registry.New(registry.Config{}, registry.Deps{})
	k := &kinds{
		tier: &kind{name: "tenant tier", list: "tiers", id: "token", fields: fieldsOf(govern.TierFields())},
		role: &kind{name: "role", list: "roles", id: "token", fields: fieldsOf(auth.RoleFields())},
		identity: &kind{name: "identity", list: "identities", id: "email", fields: []field{
			{name: "firstName", emptyClears: true}, {name: "lastName", emptyClears: true}, {name: "enabled", typ: boolField},
			{name: "systemRoles", typ: setField, ref: "roles"}, {name: "password", secret: true}}},
		membership: &kind{name: "membership", list: "memberships", id: "tenant", fields: []field{
			{name: "enabled", typ: boolField}, {name: "roles", typ: setField, ref: "roles"}}},
		tenant:     &kind{name: "tenant", list: "tenants", id: "token", fields: append(fieldsOf(govern.TenantFields()), field{name: "enabled", typ: boolField})},
		profile:    &kind{name: "device profile", list: "deviceProfiles", id: "token", fields: append(fieldsOf(r.Profiles.Info().Fields), field{name: keyPublish, typ: boolField, own: true})},
		metric:     &kind{name: "metric definition", list: "metricDefinitions", id: "token", fields: fieldsOf(r.Metrics.Info().Fields, "deviceProfileToken")},
		rule:       &kind{name: "detection rule", list: "detectionRules", id: "token", fields: fieldsOf(r.Rules.Info().Fields, "deviceProfileToken")},
		deviceType: &kind{name: "device type", list: "deviceTypes", id: "token", fields: fieldsOf(r.Types.Info().Fields)},
		device:     &kind{name: "device", list: "devices", id: "token", fields: fieldsOf(r.Devices.Info().Fields)},
		credential: &kind{name: "device credential", list: "credentials", id: "token", fields: fieldsOf(r.Credentials.Info().Fields, "deviceToken", "credentialIdSealed")},
	}
	k.identity.lists = []*kind{k.membership}
	k.profile.lists = []*kind{k.metric, k.rule}
	k.device.lists = []*kind{k.credential}
	k.tenant.lists = []*kind{k.profile, k.deviceType, k.device}
	k.root = &kind{name: "site", lists: []*kind{k.tier, k.role, k.tenant, k.identity}}
	k.role.field("authorities").typ = setField
	k.profile.field("location").keys = []string{"expectedAccuracyMeters", "expectedUpdateIntervalSeconds"}
	return k
}

// fieldsOf turns a room's description of its fields into ours, without the token and what stands where it is nested.
func fieldsOf(described []store.Field, without ...string) []field {
	var fs []field
	for _, d := range described {
		if d.Name == "" || d.Token || slices.Contains(without, d.Name) {
			continue
		}
		fs = append(fs, field{name: d.Name, typ: typeOf(&d), ref: refs[d.Ref], emptyClears: d.EmptyClears, immutable: d.Immutable, secret: d.Secret})
	}
	return fs
}

// refs are the lists of the tables that fields refer to.
var refs = map[string]string{"tenant_tiers": "tiers", "device_profiles": "deviceProfiles", "device_types": "deviceTypes", "devices": "devices"}

func typeOf(d *store.Field) fieldType {
	switch {
	case d.Ref != "":
		return textField
	case d.List:
		return listField
	case d.JSON:
		return documentField
	case d.Type() == reflect.TypeFor[model.Micros]():
		return instantField
	}
	switch d.Type().Kind() {
	case reflect.Bool:
		return boolField
	case reflect.Int64, reflect.Int, reflect.Int32:
		return integerField
	case reflect.Float64:
		return numberField
	}
	return textField
}

// field returns the field of that name, nil for none.
func (k *kind) field(name string) *field {
	for i := range k.fields {
		if k.fields[i].name == name {
			return &k.fields[i]
		}
	}
	return nil
}

// secretOf returns the secret field that a key with _file or _env names.
func (k *kind) secretOf(key string) (f *field, from string) {
	for _, from := range []string{"_file", "_env"} {
		if name, ok := strings.CutSuffix(key, from); ok {
			if f := k.field(name); f != nil && f.secret {
				return f, from
			}
		}
	}
	return nil, ""
}

// nested returns the kind whose list has that key, nil for none.
func (k *kind) nested(key string) *kind {
	for _, n := range k.lists {
		if n.list == key {
			return n
		}
	}
	return nil
}

// keys are all keys that one of the kind may have.
func (k *kind) keys() []string {
	var keys []string
	if k.id != "" {
		keys = append(keys, k.id)
	}
	for _, f := range k.fields {
		if f.secret {
			keys = append(keys, f.name+"_file", f.name+"_env")
			if !f.literal() {
				continue
			}
		}
		keys = append(keys, f.name)
	}
	for _, n := range k.lists {
		keys = append(keys, n.list)
	}
	if k.list == "tenants" {
		keys = append(keys, keyFrom)
	}
	return keys
}

// literal reports whether the secret may be one in name only: the credentialId of a user name or of a certificate.
func (f *field) literal() bool { return f.name == "credentialId" }
