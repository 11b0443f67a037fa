package site

import (
	"cmp"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/connectors"
	"weir/internal/yamldoc"
	"weir/model"
	"weir/notify"
	"weir/notify/channel"
	"weir/registry"
	"weir/rules"
	"weir/store"
)

// Tables of the kinds that have something special. Everything else about a kind is in its description.
const (
	tableTiers       = "tenant_tiers"
	tableTenants     = "tenants"
	tableRoles       = "roles"
	tableProfiles    = "device_profiles"
	tableMetrics     = "metric_definitions"
	tableCommands    = "command_definitions"
	tableRules       = "detection_rules"
	tableDevices     = "devices"
	tableCredentials = "device_credentials"
	tableTypes       = "device_types"
	tableFences      = "geofences"

	tableSettings     = "settings"
	tableClients      = "oauth_clients"
	tableFacets       = "facet_keys"
	tableProvisioning = "provisioning_profiles"
	tableHTTPSecrets  = "http_secrets"
	tableConnectors   = "connectors"
	tableChannels     = "notification_channels"
	tablePolicies     = "notification_policies"

	tableGroups            = "entity_groups"
	tableRelationships     = "entity_relationships"
	tableRelationshipTypes = "entity_relationship_types"
)

// specialize adds what descriptions do not say: of the format (which lists are sets, which keys a document has), and of the
// kinds with fields that have verbs of their own or are secrets.
func (f *Format) specialize() {
	for table, adjust := range map[string]func(k *kind){
		tableTiers: func(k *kind) {
			k.ordered = true
			k.field("config").emptyIsNone = true
		},
		tableGroups: func(k *kind) { k.first = true }, // rules are scoped to versions
		tableRoles:  func(k *kind) { k.field("authorities").typ = setField },
		tableTenants: func(k *kind) {
			k.fields = append(k.fields, field{name: "enabled", typ: boolField, fresh: freshValue("enabled")})
			k.fields = append(k.fields, lookFields()...)
			k.values, k.write = tenantValues, writeTenant
		},
		tableSettings: settingsKind,
		tableClients:  clientsKind,
		tableFacets:   facetsKind,
		tableProfiles: func(k *kind) {
			k.field("location").keys = []string{"expectedAccuracyMeters", "expectedUpdateIntervalSeconds"}
		},
		tableRules:    func(k *kind) { k.field("definition").inner = rules.Schema },
		tableCommands: func(k *kind) { k.field("commandKey").uniqueInside = true },
		tableMetrics: func(k *kind) {
			k.field("metricKey").uniqueInside = true
			names := k.field("sourceNames")
			names.typ, names.uniqueInside, names.with = setField, true, "metricKey"
		},
		tableProvisioning: func(k *kind) { k.secrets = profileSecrets },
		tableCredentials:  func(k *kind) { k.secrets, k.exported = credentialSecrets, exportedCredential },
		tableHTTPSecrets:  func(k *kind) { k.field("hosts").normalList = connectors.NormalHosts },
		tableConnectors:   func(k *kind) { k.field("config").placed = true },
		tableChannels: func(k *kind) {
			k.field("config").placed = true
			for _, c := range channel.Kinds() {
				k.field("channelType").oneOf = append(k.field("channelType").oneOf, c.ID)
			}
		},
		tablePolicies: policyKind,
	} {
		if k := f.of(table); k != nil {
			adjust(k)
		}
	}
	for entityType, table := range registry.EntityTypes() {
		if k := f.of(table); k != nil {
			withAttributes(k, entityType)
		}
	}
}

// people makes the kinds that are none of store/entity: each of their fields has a verb of its own.
func (f *Format) people() {
	f.membership = &kind{name: kindMembership, list: "memberships", ids: []string{"tenant"}, fields: []field{
		{name: "enabled", typ: boolField}, {name: "roles", typ: setField, ref: "roles"}}}
	f.identity = &kind{name: "identity", list: "identities", ids: []string{"email"}, lists: []*kind{f.membership}, fields: []field{
		{name: "firstName", emptyClears: true}, {name: "lastName", emptyClears: true}, {name: "enabled", typ: boolField},
		{name: "systemRoles", typ: setField, ref: "roles"}, {name: "password", secret: true}}}
}

// credentialSecrets puts the secrets of a credential into a patch. An id is compared by its hash; a password was compared
// before the transaction began. A credential that does not exist yet has its secrets in the file.
func credentialSecrets(l *level, _ *kind, d *declared, row any, patch store.Patch) (fields []FieldChange, err error) {
	id, hasID := d.Secrets["credentialId"]
	value, hasValue := d.Secrets["credentialValue"]
	set := func(name string, v any) {
		patch[name] = v
		fields = append(fields, FieldChange{Name: name, Secret: true})
	}
	stored := ""
	if row == nil {
		switch {
		case !hasID:
			return nil, model.Invalid("credentialId", "is required")
		case !hasValue && (patch["credentialType"] == registry.MQTTBasic || isKey(patch["credentialType"])):
			return nil, model.Invalid("credentialValue", "is required")
		}
		patch["credentialId"] = id
	} else {
		have := row.(*registry.DeviceCredential)
		if have.ValueHash != nil {
			stored = *have.ValueHash
		}
		if hasID && !have.HasID(id) {
			set("credentialId", id)
		}
		if v, ok := d.Fields["credentialValue"]; ok && v == nil && stored != "" {
			set("credentialValue", nil)
		}
	}
	if !hasValue {
		return fields, nil
	}
	if keyOf(row, patch) {
		if have, ok := row.(*registry.DeviceCredential); ok && registry.IsKey(have.Type) {
			same, err := l.sameKey(have, value)
			if err != nil || same {
				return fields, err
			}
		}
		set("credentialValue", registry.PreSharedKey(value))
		return fields, nil
	}
	if row != nil {
		same, err := l.pw.same(credentialHolder(l.tenant, d.Name), stored)
		if err != nil || same {
			return fields, err
		}
	}
	hash, err := l.pw.Hash(l.ctx, value)
	set("credentialValue", registry.Hashed(hash))
	return fields, err
}

// sameKey reports whether a credential has the key that the document gives in base64.
func (l *level) sameKey(have *registry.DeviceCredential, given string) (bool, error) {
	key, err := l.parts.Registry.Credentials.Key(have)
	if err != nil {
		return false, err
	}
	want, err := base64.StdEncoding.DecodeString(strings.TrimSpace(given))
	return err == nil && subtle.ConstantTimeCompare(key, want) == 1, nil
}

// isKey reports whether a declared type of credentials is one with a pre-shared key.
func isKey(declared any) bool {
	t, _ := declared.(string)
	return registry.IsKey(t)
}

// keyOf returns whether a declared credential has a pre-shared key, and not a password.
func keyOf(row any, patch store.Patch) bool {
	t, named := patch["credentialType"].(string)
	if have, ok := row.(*registry.DeviceCredential); ok && !named {
		t = have.Type
	}
	return registry.IsKey(t)
}

// vaultSecrets puts the secret that the vault keeps of a row into a patch, where the file gives another one than is stored.
func vaultSecrets(l *level, k *kind, d *declared, row any, patch store.Patch) ([]FieldChange, error) {
	given, ok := d.Secrets[keySecret]
	if _, null := d.Fields[keySecret]; !ok && !null {
		return nil, nil
	}
	stored := ""
	if row != nil {
		var err error
		if stored, _, err = k.live.Secret(l.ctx, row); err != nil {
			return nil, err
		}
	}
	if given == stored {
		_, connector := patch["type"]
		_, channel := patch["channelType"]
		switch {
		case len(patch) > 0 && k.is(tableHTTPSecrets), // whose other fields change only together with it
			given != "" && (connector || channel): // another type loses a secret that is not set anew
			patch[keySecret] = given
		}
		return nil, nil
	}
	patch[keySecret] = given
	return []FieldChange{{Name: keySecret, Secret: true}}, nil
}

// profileSecrets puts the secret of a provisioning profile into a patch. It was compared and hashed before the transaction began.
func profileSecrets(l *level, k *kind, d *declared, row any, patch store.Patch) ([]FieldChange, error) {
	secret, given := d.Secrets["provisionSecret"]
	switch {
	case !given && row == nil:
		return nil, model.Invalid("provisionSecret", "is required")
	case !given:
		return nil, nil
	case row != nil:
		stored, _ := k.live.Value(row, "secret_hash").(string)
		if same, err := l.pw.same(profileHolder(l.tenant, d.Name), stored); err != nil || same {
			return nil, err
		}
	}
	hash, err := l.pw.Hash(l.ctx, secret)
	patch["provisionSecret"] = registry.Hashed(hash)
	return []FieldChange{{Name: "provisionSecret", Secret: true}}, err
}

// exportedCredential adds the id of a credential where it is no secret.
func exportedCredential(l *level, row any, e *Entity) error {
	c := row.(*registry.DeviceCredential)
	if c.Type == registry.AccessToken {
		return nil
	}
	id, err := l.parts.Registry.Credentials.ID(c)
	e.keep("credentialId", id)
	return err
}

// The lists of notifications, and the fields of a policy's rule.
const (
	listChannels  = "notificationChannels"
	keyRules      = "rules"
	keySeverity   = "severity"
	keyChannel    = "channelToken"
	keyRecipients = "recipients"
	anyAlarm      = "*" // the severity of a rule for all alarms
)

var policyRuleKeys = []string{keySeverity, keyChannel, keyRecipients}

// policyKind: in a file the recipients of a rule are a list, and a text that holds one in the API.
func policyKind(k *kind) {
	rules := k.field(keyRules)
	rules.placed, rules.inner, rules.normal, rules.sent = true, policyRulesSchema, normalRules, sentRules
	k.values = policyValues
	k.mentions = func(e *Entity) (names []mention) {
		for i, rule := range policyRules(e) {
			if name, _ := rule[keyChannel].(string); name != "" {
				names = append(names, mention{listChannels, name, rulePath(i, keyChannel)})
			}
		}
		return names
	}
	write := k.write
	k.write = func(l *level, k *kind, name string, fresh bool, patch store.Patch) error {
		if text, ok := patch[keyRules].(string); ok {
			patch[keyRules] = sentRules(text)
		}
		return write(l, k, name, fresh, patch)
	}
}

func rulePath(i int, key string) string { return fmt.Sprintf("%s[%d].%s", keyRules, i, key) }

// eachRule calls f for each rule of a document, and returns the document as f leaves it; as it is where it is no list.
func eachRule(text string, f func(i int, rule map[string]any)) string {
	v, err := decodeJSON(text)
	list, ok := v.([]any)
	if err != nil || !ok {
		return text
	}
	for i := range list {
		if rule, ok := list[i].(map[string]any); ok {
			f(i, rule)
		}
	}
	b, err := json.Marshal(list)
	if err != nil {
		return text
	}
	return string(b)
}

// policyRules are the rules that a policy declares, an empty one in place of what is none.
func policyRules(e *Entity) (rules []map[string]any) {
	text, _ := e.Fields[keyRules].(string)
	eachRule(text, func(i int, rule map[string]any) {
		for len(rules) < i {
			rules = append(rules, nil)
		}
		rules = append(rules, rule)
	})
	return rules
}

// recipientsOf are the recipients of a rule, given as a list or as its text. ok is false for anything else.
func recipientsOf(v any) (recipients []string, ok bool) {
	switch v := v.(type) {
	case nil:
		return nil, true
	case string:
		return recipients, v == "" || json.Unmarshal([]byte(v), &recipients) == nil
	case []any:
		recipients = texts(v)
		return recipients, len(recipients) == len(v)
	}
	return nil, false
}

// normalRules is the form of rules in which they are compared: recipients are a list, and none are left out.
func normalRules(text string) (string, error) {
	var wrong error
	out := eachRule(text, func(i int, rule map[string]any) {
		given, isText := rule[keyRecipients].(string)
		recipients, ok := recipientsOf(rule[keyRecipients])
		switch {
		case !ok && !isText:
			wrong = cmp.Or[error](wrong, model.Invalid(rulePath(i, keyRecipients), "must be a list of texts; write what looks like a number in quotes"))
		case !ok: // the API says what is wrong with it
			rule[keyRecipients] = given
		case len(recipients) == 0:
			delete(rule, keyRecipients)
		default:
			rule[keyRecipients] = recipients
		}
	})
	return out, wrong
}

// sentRules is the form of rules that the API takes. It leaves out recipients that normalRules refuses.
func sentRules(text string) string {
	return eachRule(text, func(_ int, rule map[string]any) {
		if _, isText := rule[keyRecipients].(string); isText {
			return
		}
		recipients, ok := recipientsOf(rule[keyRecipients])
		delete(rule, keyRecipients)
		if ok && len(recipients) > 0 {
			b, _ := json.Marshal(recipients) // texts: always JSON
			rule[keyRecipients] = string(b)
		}
	})
}

// policyValues gives the rules of rows the form of a file. A rule whose channel is gone notifies no one, and is none: a file that
// declares it makes it anew, or is refused.
func policyValues(l *level, _ *kind, rows []any, values []store.Patch) error {
	of := make([][]notify.RuleView, len(rows))
	var tokens []string
	for i, row := range rows {
		var err error
		if of[i], err = notify.RulesOf(row.(*notify.Policy)); err != nil {
			return err
		}
		for _, rule := range of[i] {
			tokens = append(tokens, rule.ChannelToken)
		}
	}
	slices.Sort(tokens)
	channels := l.format.of(tableChannels).live
	there := map[int64]bool{}
	for some := range slices.Chunk(slices.Compact(tokens), batch) {
		found, err := channels.ByToken(l.ctx, l.by, some)
		if err != nil {
			return err
		}
		for _, row := range found {
			there[channels.Head(row).ID] = true
		}
	}
	for i := range rows {
		rules := []any{}
		for _, rule := range of[i] {
			if !there[rule.ChannelID] {
				continue
			}
			r := struct {
				Severity   string `json:"severity"`
				Channel    string `json:"channelToken"`
				Recipients any    `json:"recipients,omitempty"`
			}{Severity: rule.Severity, Channel: rule.ChannelToken}
			if rule.Recipients != nil {
				if recipients, ok := recipientsOf(*rule.Recipients); !ok {
					r.Recipients = *rule.Recipients
				} else if len(recipients) > 0 {
					r.Recipients = recipients
				}
			}
			rules = append(rules, r)
		}
		b, err := json.Marshal(rules)
		if err != nil {
			return err
		}
		values[i][keyRules] = string(b)
	}
	return nil
}

// checkRecipients holds the recipients of a policy against the channels that its tenant declares beside it.
func checkRecipients(policy, tenant *Entity) (refused []error) {
	if tenant == nil {
		return nil
	}
	for i, rule := range policyRules(policy) {
		at := slices.IndexFunc(tenant.Lists[listChannels], func(e *Entity) bool { return e.Name == rule[keyChannel] })
		recipients, ok := recipientsOf(rule[keyRecipients])
		if at < 0 || !ok {
			continue
		}
		typ, _ := tenant.Lists[listChannels][at].Fields["channelType"].(string)
		if !slices.ContainsFunc(channel.Kinds(), func(k *channel.Kind) bool { return k.ID == typ }) {
			continue // reported at the channel, or known to the instance alone
		}
		text, err := json.Marshal(append([]string{}, recipients...))
		if err == nil {
			_, err = channel.ParseRecipients(typ, string(text))
		}
		if e, ok := errors.AsType[*model.Error](err); ok {
			err = model.Invalid(fmt.Sprintf("%s[%d].%s", keyRules, i, e.Field), "%s", e.Text())
		}
		if err != nil {
			refused = append(refused, err)
		}
	}
	return refused
}

// policyHint suggests what was meant by a key or a severity of a policy's rule, "" for nothing.
func policyHint(e *Entity, path string) string {
	for i, rule := range policyRules(e) {
		key, ok := strings.CutPrefix(path, rulePath(i, ""))
		key, _, _ = strings.Cut(key, "[")
		value, _ := rule[keySeverity].(string)
		switch {
		case !ok:
		case key == keySeverity:
			return yamldoc.Suggest(strings.ToUpper(value), append(model.AlarmSeverities(), anyAlarm))
		case !slices.Contains(policyRuleKeys, key):
			return suggest(key, policyRuleKeys)
		}
	}
	return ""
}

// policyRulesSchema describes the rules of a policy.
func policyRulesSchema() map[string]any {
	return map[string]any{"items": map[string]any{"type": "object", "required": []string{keySeverity, keyChannel}, "additionalProperties": false, "properties": map[string]any{
		keySeverity:   map[string]any{"enum": append(slices.Clone(model.AlarmSeverities()), anyAlarm)},
		keyChannel:    map[string]any{"type": []string{"string", "integer"}},
		keyRecipients: map[string]any{"type": []string{"array", "string", "null"}, "items": map[string]any{"type": "string"}},
	}}}
}
