package govern

import (
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// settingRow overrides the built-in value of a setting of the instance.
type settingRow struct {
	store.Row
	Key       string `store:"key,token,dotted" gql:"key"`
	Value     string `store:"value,required,json,max=65536" gql:"value"`
	UpdatedBy string `store:"updated_by,keep,hidden" gql:"updatedBy"`
}

// Setting is a setting of the instance. A time and an actor are those of the override, zero without one.
type Setting struct {
	Key         string       `gql:"key"`
	Description string       `gql:"description"`
	Value       string       `gql:"value"` // JSON
	Overridden  bool         `gql:"overridden"`
	UpdatedAt   model.Micros `gql:"updatedAt,omitzero"`
	UpdatedBy   string       `gql:"updatedBy,omitzero"`
}

// builtinSetting is a setting with its built-in value.
type builtinSetting struct {
	key, description, value string
	check                   func(value string) error
}

// tokenMasks is the key of the masks of tokens that clients propose.
const tokenMasks = "entity.token_masks"

// builtinSettings are all settings, sorted by key: their set is closed.
var builtinSettings = []builtinSetting{
	{basemapDefault, "The map of tenants that set none of their own: a JSON object with tileUrl and attribution, centerLat and centerLon, zoom.",
		builtinBasemap, checkBasemapDefault},
	{brandingDefault, "What tenants are shown with that set no branding of their own: a JSON object with title, logo, logoMaxHeight and the colors primary, background, foreground, accent.",
		builtinBranding, checkBrandingDefault},
	{tokenMasks, "Masks of the tokens that clients propose: a JSON object from entity type, or default, to a mask with {slug}, {uuid}, {alphanumeric-N} or {numeric-N}.",
		`{"default":"{slug}"}`, checkMasks},
	{localeDefault, "The language and region in which consoles show what has one: a BCP 47 tag such as de-CH, or null.", "null", checkLocale},
}

func builtinOf(key string) *builtinSetting {
	for i := range builtinSettings {
		if builtinSettings[i].key == key {
			return &builtinSettings[i]
		}
	}
	return nil
}

func (b *builtinSetting) with(row *settingRow) *Setting {
	s := &Setting{Key: b.key, Description: b.description, Value: b.value}
	if row != nil {
		s.Value, s.Overridden, s.UpdatedAt, s.UpdatedBy = row.Value, true, row.UpdatedAt, row.UpdatedBy
	}
	return s
}

// describeSettings makes the kind of the overrides.
func describeSettings(b entity.Base) *entity.Kind[settingRow] {
	return entity.New(b, entity.Desc[settingRow]{
		Kind:     "setting",
		Type:     "Setting",
		Plural:   "settings",
		Area:     area,
		Table:    "settings",
		Instance: true,
		Order:    "key",
		Read:     entity.Needs(model.SettingsRead),
		Write:    entity.Needs(model.SettingsWrite),
		Valid: func(row *settingRow) error {
			b := builtinOf(row.Key)
			if b == nil {
				return model.Invalid("key", "%q is no setting", row.Key)
			}
			return b.check(row.Value)
		},
	})
}

// Settings lists the settings with their effective values.
func (g *Govern) Settings(ctx context.Context, by *model.Principal) (all []*Setting, err error) {
	for i := range builtinSettings {
		s, err := g.Setting(ctx, by, builtinSettings[i].key)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// Setting returns a setting with its effective value, nil for an unknown key.
func (g *Govern) Setting(ctx context.Context, by *model.Principal, key string) (*Setting, error) {
	if err := g.settings.MayRead(by); err != nil {
		return nil, err
	}
	return g.setting(ctx, key)
}

func (g *Govern) setting(ctx context.Context, key string) (*Setting, error) {
	b := builtinOf(key)
	if b == nil {
		return nil, nil
	}
	// No row: the built-in value counts.
	rows, err := g.settings.Rows.ByToken(ctx, nil, []string{key})
	if err != nil || len(rows) == 0 {
		return b.with(nil), err
	}
	return b.with(rows[0]), nil
}

// TokenMasks returns the effective masks of the tokens that clients propose. Every caller may read them.
func (g *Govern) TokenMasks(ctx context.Context) (string, error) {
	s, err := g.setting(ctx, tokenMasks)
	if err != nil {
		return "", err
	}
	return s.Value, nil
}

// SetSetting overrides the built-in value of a setting. An unknown key is NOT_FOUND.
func (g *Govern) SetSetting(ctx context.Context, by *model.Principal, key, value string) (*Setting, error) {
	return g.editSetting(ctx, by, key, func(c *store.Change, row *settingRow) (*settingRow, error) {
		p := store.Patch{"value": value, "updatedBy": c.Actor()}
		if row != nil {
			return g.settings.Table.Update(c, 0, key, p)
		}
		p["key"] = key
		return g.settings.Table.Create(c, 0, p)
	})
}

// ClearSetting returns a setting to its built-in value.
func (g *Govern) ClearSetting(ctx context.Context, by *model.Principal, key string) (*Setting, error) {
	return g.editSetting(ctx, by, key, func(c *store.Change, row *settingRow) (*settingRow, error) {
		if row == nil {
			return nil, nil
		}
		return nil, g.settings.Table.Remove(c, row)
	})
}

// editSetting runs fn on the override of a setting, nil for none, and returns what is effective after it.
func (g *Govern) editSetting(ctx context.Context, by *model.Principal, key string, fn func(*store.Change, *settingRow) (*settingRow, error)) (s *Setting, err error) {
	if err := g.settings.MayWrite(by); err != nil {
		return nil, err
	}
	b := builtinOf(key)
	if b == nil {
		return nil, model.NotFound("setting", key)
	}
	err = g.writer.Mutate(ctx, by, func(c *store.Change) error {
		// Built-in values have no row: fn gets nil and may make one.
		row, err := g.settings.Table.Get(c, 0, key)
		if err != nil {
			return err
		}
		if row, err = fn(c, row); err == nil {
			s = b.with(row)
		}
		return err
	})
	return s, err
}

// placeholder is what a mask of tokens is made of, besides literal text.
var placeholder = regexp.MustCompile(`\{(slug|uuid|alphanumeric-[0-9]{1,3}|numeric-[0-9]{1,3})\}`)

// checkMasks refuses masks that give no tokens.
func checkMasks(value string) error {
	var masks map[string]*string
	if err := json.Unmarshal([]byte(value), &masks); err != nil || masks == nil {
		return model.Invalid("value", "must be a JSON object of texts")
	}
	for kind, mask := range masks {
		switch {
		case kind == "" || mask == nil:
			return model.Invalid("value", "must be a JSON object of texts by entity type")
		case !placeholder.MatchString(*mask):
			return model.Invalid("value", "the mask %.80q of %.40q has none of {slug}, {uuid}, {alphanumeric-N}, {numeric-N}", *mask, kind)
		}
		// Fill the mask in: what a client makes of it must be a token.
		if sample := placeholder.ReplaceAllStringFunc(*mask, sampleOf); !model.ValidToken(sample) {
			return model.Invalid("value", "the mask %.80q of %.40q gives %.40q, which is no token: at most %d letters, digits, - and _, the first a letter or a digit",
				*mask, kind, sample, model.MaxToken)
		}
	}
	return nil
}

// sampleOf is what a client may put in the place of a placeholder.
func sampleOf(placeholder string) string {
	name, digits, _ := strings.Cut(strings.Trim(placeholder, "{}"), "-")
	n, _ := strconv.Atoi(digits)
	switch name {
	case "slug":
		return "sample"
	case "uuid":
		return "00000000-0000-0000-0000-000000000000"
	case "numeric":
		return strings.Repeat("0", n)
	}
	return strings.Repeat("a", n)
}
