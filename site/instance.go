package site

import (
	"maps"
	"slices"
	"strings"

	"weir/auth"
	"weir/govern"
	"weir/model"
	"weir/notify/channel"
	"weir/registry"
	"weir/store"
)

// naming is the part of a patch that names an entity.
func (k *kind) naming(name string) store.Patch {
	p := store.Patch{}
	for i, value := range strings.SplitN(name, "/", len(k.ids)) {
		p[k.ids[i]] = value
	}
	return p
}

// enabledValue adds whether the rows are enabled to their values: it is no field of a patch but a verb of its own.
func enabledValue(k *kind, rows []any, values []store.Patch) {
	for i, row := range rows {
		values[i]["enabled"] = k.live.Value(row, "enabled")
	}
}

// enabledOf takes that out of a patch; nil where it is not named.
func enabledOf(patch store.Patch) (*bool, error) {
	v, named := patch["enabled"]
	delete(patch, "enabled")
	on, ok := v.(bool)
	switch {
	case !named:
		return nil, nil
	case !ok:
		return nil, model.Invalid("enabled", "null is refused")
	}
	return &on, nil
}

// lookFields are the fields of a tenant that say how it is shown. Each is a verb of its own, which replaces all of it.
func lookFields() []field {
	return []field{
		{name: "branding", typ: documentField, emptyIsNone: true, keys: []string{"title", "logoMaxHeight", "primary", "background", "foreground", "accent"},
			normal: func(text string) (string, error) { return govern.NormalBranding("branding", text) }},
		{name: "logo", emptyClears: true},
		{name: "basemap", typ: documentField, emptyIsNone: true, keys: []string{"tileUrl", "attribution", "centerLat", "centerLon", "zoom"},
			normal: func(text string) (string, error) { return govern.NormalBasemap("basemap", text) }},
	}
}

func tenantValues(l *level, k *kind, rows []any, values []store.Patch) error {
	enabledValue(k, rows, values)
	ids := make([]int64, len(rows))
	for i, row := range rows {
		ids[i] = k.live.Head(row).ID
	}
	all, err := l.parts.Govern.LookTexts(l.ctx, ids)
	for i, id := range ids {
		look := all[id]
		for name, text := range map[string]string{"branding": look.Branding, "logo": look.Logo, "basemap": look.Basemap} {
			if text != "" && text != "{}" {
				values[i][name] = text
			}
		}
	}
	return err
}

// writeTenant writes a tenant, how it is shown, and whether it is enabled.
func writeTenant(l *level, k *kind, name string, fresh bool, patch store.Patch) error {
	enabled, err := enabledOf(patch)
	if err != nil {
		return err
	}
	look := store.Patch{}
	for _, f := range lookFields() {
		if v, ok := patch[f.name]; ok {
			look[f.name] = v
			delete(patch, f.name)
		}
	}
	if fresh || len(patch) > 0 {
		if err := plainWrite(l, k, name, fresh, patch); err != nil {
			return err
		}
	}
	if err := writeLook(l, k, name, look); err != nil || enabled == nil {
		return err
	}
	_, err = l.parts.Govern.SetTenantEnabled(l.ctx, l.by, name, *enabled)
	return err
}

func writeLook(l *level, k *kind, tenant string, look store.Patch) error {
	if len(look) == 0 {
		return nil
	}
	rows, err := k.live.ByToken(l.ctx, l.by, []string{tenant})
	if err != nil || len(rows) == 0 {
		return err
	}
	by := *l.by
	by.Tenant, by.TenantID = tenant, k.live.Head(rows[0]).ID
	for _, name := range slices.Sorted(maps.Keys(look)) {
		text, _ := look[name].(string)
		if err := l.parts.Govern.SetLookText(l.ctx, &by, name, text); err != nil {
			return err
		}
	}
	return nil
}

// settingsKind: what stands in a file overrides a built-in value, and prune returns to it.
func settingsKind(k *kind) {
	k.write = func(l *level, _ *kind, name string, _ bool, patch store.Patch) error {
		text, _ := patch["value"].(string)
		_, err := l.parts.Govern.SetSetting(l.ctx, l.by, name, text)
		return err
	}
	k.remove = func(l *level, _ *kind, name string) error {
		_, err := l.parts.Govern.ClearSetting(l.ctx, l.by, name)
		return err
	}
}

// clientsKind: the secret of an OAuth client is compared by its hash; null makes the client a public one.
func clientsKind(k *kind) {
	k.field("scopes").typ = setField
	k.fields = append(k.fields, field{name: "enabled", typ: boolField, fresh: freshValue("enabled")}, field{name: "secret", secret: true})
	k.values = func(_ *level, k *kind, rows []any, values []store.Patch) error {
		enabledValue(k, rows, values)
		return nil
	}
	k.secrets = func(_ *level, _ *kind, d *declared, row any, patch store.Patch) ([]FieldChange, error) {
		client, _ := row.(*auth.OAuthClient)
		given, named := d.Secrets["secret"]
		_, cleared := d.Fields["secret"]
		switch {
		case named && (client == nil || !client.HasSecretOf(given)):
			patch["secret"] = given
		case cleared && client != nil && client.HasSecret():
			patch["secret"] = nil
		default:
			delete(patch, "secret")
			return nil, nil
		}
		return []FieldChange{{Name: "secret", Secret: true}}, nil
	}
	k.write = writeClient
}

func writeClient(l *level, k *kind, name string, fresh bool, patch store.Patch) error {
	secret, named := patch["secret"]
	delete(patch, "secret")
	enabled, err := enabledOf(patch)
	if err != nil {
		return err
	}
	if fresh || len(patch) > 0 {
		if err := plainWrite(l, k, name, fresh, patch); err != nil {
			return err
		}
	}
	if named {
		var given *string
		if text, ok := secret.(string); ok {
			given = &text
		}
		if err := l.parts.Auth.Clients.SetSecret(l.ctx, l.by, name, given); err != nil {
			return err
		}
	}
	if enabled == nil || fresh && *enabled { // a client is made enabled
		return nil
	}
	_, err = l.parts.Auth.Clients.SetEnabled(l.ctx, l.by, name, *enabled)
	return err
}

// facetsKind: a facet key has no token but the member type and the key, and one verb that replaces all of it.
func facetsKind(k *kind) {
	k.ids = []string{"memberType", "key"}
	k.named = func(row any) string {
		f := row.(*registry.FacetKey)
		return f.MemberType + "/" + f.Key
	}
	k.find = func(l *level, k *kind, names []string) ([]any, error) {
		keys := make([]any, len(names))
		for i, name := range names {
			_, keys[i], _ = strings.Cut(name, "/")
		}
		rows, err := k.live.By(l.ctx, l.by, "key", keys...)
		return slices.DeleteFunc(rows, func(row any) bool { return !slices.Contains(names, k.named(row)) }), err
	}
	k.write = writeFacet
	k.remove = func(l *level, k *kind, name string) error {
		of := k.naming(name)
		_, err := l.parts.Registry.FacetKeys.Unset(l.ctx, l.by, of["memberType"].(string), of["key"].(string))
		return err
	}
}

func writeFacet(l *level, k *kind, name string, fresh bool, patch store.Patch) error {
	whole := k.naming(name)
	if !fresh {
		found, err := k.find(l, k, []string{name})
		if err != nil {
			return err
		}
		values, err := k.live.Values(l.ctx, l.by, found...)
		if err != nil {
			return err
		}
		for _, v := range values {
			maps.Copy(whole, v)
		}
	}
	maps.Copy(whole, patch)
	_, err := l.parts.Registry.FacetKeys.Set(l.ctx, l.by, whole)
	return err
}

// special returns what is wrong with the fields of a declared entity that its description does not know.
func (it item) special() (refused []error) {
	switch {
	case it.kind.is(tableClients):
		if secret, ok := it.e.Secrets["secret"]; ok {
			refused = append(refused, auth.CheckClientSecret(secret))
		}
	case it.kind.is(tableChannels):
		typ, named := it.e.Fields["channelType"].(string)
		if secret := it.e.Secrets[keySecret]; named && secret != "" {
			if err := channel.CheckSecret(typ, secret); err != nil {
				refused = append(refused, err)
			}
		}
	case it.kind.is(tablePolicies):
		refused = append(refused, checkRecipients(it.e, it.outer)...)
	case it.kind.is(tableTenants):
		if logo, ok := it.e.Fields["logo"].(string); ok && logo != "" {
			refused = append(refused, govern.CheckLogo(logo))
		}
	}
	return refused
}
