package govern

import (
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// Branding is how consoles show a tenant. A nil field is left to the instance's default.
type Branding struct {
	Title         *string      `json:"title,omitempty" gql:"title"`
	Logo          *string      `json:"logo,omitempty" gql:"logo"`
	LogoMaxHeight *int64       `json:"logoMaxHeight,omitempty" gql:"logoMaxHeight"`
	Primary       *string      `json:"primary,omitempty" gql:"primary"`
	Background    *string      `json:"background,omitempty" gql:"background"`
	Foreground    *string      `json:"foreground,omitempty" gql:"foreground"`
	Accent        *string      `json:"accent,omitempty" gql:"accent"`
	UpdatedAt     model.Micros `json:"-" gql:"updatedAt,omitzero"`
}

// Basemap is the map on which consoles show positions. A nil field is left to the instance's default.
type Basemap struct {
	TileURL     *string  `json:"tileUrl,omitempty" gql:"tileUrl"`
	Attribution *string  `json:"attribution,omitempty" gql:"attribution"`
	CenterLat   *float64 `json:"centerLat,omitempty" gql:"centerLat"`
	CenterLon   *float64 `json:"centerLon,omitempty" gql:"centerLon"`
	Zoom        *float64 `json:"zoom,omitempty" gql:"zoom"`
}

// Look is how a tenant wants to be shown, and what its fields and the instance's defaults make together.
type Look struct {
	Branding, BrandingOverride Branding
	Basemap, BasemapOverride   Basemap
	Locale, LocaleOverride     *string // a tenant has no verb to set its own yet
}

// lookRow holds the overrides of a tenant.
type lookRow struct {
	store.Row
	Branding string  `store:"branding"` // JSON, without the logo
	Logo     *string `store:"logo"`
	Basemap  string  `store:"basemap"` // JSON
}

var looks = store.NewTable[lookRow](store.Desc[lookRow]{Kind: "tenant look", Name: "tenant_looks",
	Label: func(*lookRow) string { return "look" }})

// Bounds of a look.
const (
	maxTitle       = 64
	minLogoHeight  = 16
	maxLogoHeight  = 200
	maxLookURL     = 2048
	maxAttribution = 512
	maxZoom        = 24
)

// Keys of the settings that hold the defaults, and their built-in values.
const (
	brandingDefault = "branding.default"
	basemapDefault  = "basemap.default"
	localeDefault   = "locale.default"

	builtinBranding = `{"title":"Weir","logoMaxHeight":28}`
	builtinBasemap  = `{"tileUrl":"https://tile.openstreetmap.org/{z}/{x}/{y}.png","attribution":"© <a href=\"https://www.openstreetmap.org/copyright\">OpenStreetMap</a> contributors"}`
)

// Look returns how a tenant is shown.
func (g *Govern) Look(ctx context.Context, tenant int64) (l *Look, err error) {
	l = &Look{}
	if err := store.Read(ctx, g.store, func(tx store.Tx) error {
		row, err := looks.First(tx, tenant)
		if err != nil || row == nil {
			return err
		}
		l.BrandingOverride, l.BasemapOverride, err = row.parts()
		return err
	}); err != nil {
		return nil, err
	}
	// What is effective begins with what the tenant has set.
	l.Branding, l.Basemap = l.BrandingOverride, l.BasemapOverride
	return l, g.fillLook(ctx, l)
}

// LookTexts are the overrides of a tenant as JSON documents, "" for none; the logo is a URL.
type LookTexts struct{ Branding, Logo, Basemap string }

// LookTexts returns the overrides of some tenants by their row ids.
func (g *Govern) LookTexts(ctx context.Context, tenants []int64) (map[int64]LookTexts, error) {
	all := make(map[int64]LookTexts, len(tenants))
	return all, store.Read(ctx, g.store, func(tx store.Tx) error {
		// All in one snapshot, for an export of the site.
		for _, id := range tenants {
			row, err := looks.First(tx, id)
			if err != nil {
				return err
			}
			if row != nil {
				all[id] = row.texts()
			}
		}
		return nil
	})
}

func (r *lookRow) texts() LookTexts {
	t := LookTexts{Branding: r.Branding, Basemap: r.Basemap}
	if r.Logo != nil {
		t.Logo = *r.Logo
	}
	return t
}

// NormalBranding returns the JSON document of a branding as it is stored, or what is wrong with it. The logo is no part of it.
func NormalBranding(field, text string) (string, error) {
	b, err := brandingOf(field, text)
	if err != nil {
		return "", err
	}
	return normalLook(b)
}

// NormalBasemap is NormalBranding for a basemap.
func NormalBasemap(field, text string) (string, error) {
	m, err := basemapOf(field, text)
	if err != nil {
		return "", err
	}
	return normalLook(m)
}

func normalLook(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

func brandingOf(field, text string) (b Branding, err error) {
	if err = decodeStrict(field, text, &b); err == nil && b.Logo != nil {
		err = model.Invalid(field, "logo stands beside the branding")
	}
	if err == nil {
		err = b.check(field)
	}
	return b, err
}

func basemapOf(field, text string) (m Basemap, err error) {
	if err = decodeStrict(field, text, &m); err == nil {
		err = m.check(field)
	}
	return m, err
}

// SetLookText sets one override of the principal's tenant by its name in site files: branding, logo or basemap; "" clears it.
func (g *Govern) SetLookText(ctx context.Context, by *model.Principal, name, text string) error {
	document := cmp.Or(text, "{}")
	switch name {
	case "branding":
		b, err := brandingOf(name, document)
		if err != nil {
			return err
		}
		return g.SetBranding(ctx, by, b)
	case "basemap":
		m, err := basemapOf(name, document)
		if err != nil {
			return err
		}
		return g.SetBasemap(ctx, by, m)
	}
	if text == "" {
		return g.SetLogo(ctx, by, nil)
	}
	return g.SetLogo(ctx, by, &text)
}

func (r *lookRow) parts() (b Branding, m Basemap, err error) {
	if err = json.Unmarshal([]byte(r.Branding), &b); err == nil {
		err = json.Unmarshal([]byte(r.Basemap), &m)
	}
	b.Logo, b.UpdatedAt = r.Logo, r.UpdatedAt
	return b, m, err
}

// fillLook takes what a tenant leaves open from the settings of the instance: single fields of a branding, and of a basemap the
// tiles with their attribution, the center, and the zoom.
func (g *Govern) fillLook(ctx context.Context, l *Look) error {
	var b Branding
	if err := g.settingInto(ctx, brandingDefault, &b); err != nil {
		return err
	}
	for to, from := range map[**string]*string{&l.Branding.Title: b.Title, &l.Branding.Logo: b.Logo, &l.Branding.Primary: b.Primary,
		&l.Branding.Background: b.Background, &l.Branding.Foreground: b.Foreground, &l.Branding.Accent: b.Accent} {
		if *to == nil {
			*to = from
		}
	}
	if l.Branding.LogoMaxHeight == nil {
		l.Branding.LogoMaxHeight = b.LogoMaxHeight
	}
	if err := g.settingInto(ctx, localeDefault, &l.Locale); err != nil {
		return err
	}
	var m Basemap
	if err := g.settingInto(ctx, basemapDefault, &m); err != nil {
		return err
	}
	// Tiles go with their attribution, and a latitude with its longitude.
	if l.Basemap.TileURL == nil {
		l.Basemap.TileURL, l.Basemap.Attribution = m.TileURL, m.Attribution
	}
	if l.Basemap.CenterLat == nil {
		l.Basemap.CenterLat, l.Basemap.CenterLon = m.CenterLat, m.CenterLon
	}
	if l.Basemap.Zoom == nil {
		l.Basemap.Zoom = m.Zoom
	}
	return nil
}

func (g *Govern) settingInto(ctx context.Context, key string, into any) error {
	s, err := g.setting(ctx, key)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(s.Value), into)
}

// SetBranding replaces the theme of the principal's tenant; its logo stays.
func (g *Govern) SetBranding(ctx context.Context, by *model.Principal, b Branding) error {
	b.Logo = nil
	if err := b.check("input"); err != nil {
		return err
	}
	return g.editLook(ctx, by, model.BrandingWrite, func(row *lookRow) (string, error) {
		text, err := json.Marshal(b)
		row.Branding = string(text)
		return "branding", err
	})
}

// SetBasemap replaces the basemap of the principal's tenant.
func (g *Govern) SetBasemap(ctx context.Context, by *model.Principal, m Basemap) error {
	if err := m.check("input"); err != nil {
		return err
	}
	return g.editLook(ctx, by, model.BasemapWrite, func(row *lookRow) (string, error) {
		text, err := json.Marshal(m)
		row.Basemap = string(text)
		return "basemap", err
	})
}

// editLook runs fn, which returns the column that it has changed, on the overrides of the principal's tenant.
func (g *Govern) editLook(ctx context.Context, by *model.Principal, needs model.Authority, fn func(*lookRow) (string, error)) error {
	if err := entity.Demand(by, entity.Needs(needs)); err != nil {
		return err
	}
	tenant, err := entity.TenantOf(by)
	if err != nil {
		return err
	}
	return g.writer.Mutate(ctx, by, func(c *store.Change) error {
		row, err := looks.First(c, tenant)
		if err != nil {
			return err
		}
		// The first override makes the row.
		fresh := row == nil
		if fresh {
			row = &lookRow{Row: store.Row{TenantID: tenant}, Branding: "{}", Basemap: "{}"}
		}
		column, err := fn(row)
		switch {
		case err != nil:
			return err
		case fresh:
			return looks.Insert(c, row)
		}
		return looks.Save(c, row, column)
	})
}

// languageTag is the form of a BCP 47 tag.
var languageTag = regexp.MustCompile(`^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$`)

// maxLocale is the maximum length of a tag (RFC 5646, section 4.4.1, recommends room for 35 characters).
const maxLocale = 64

func checkLocale(value string) error {
	var tag *string
	if err := json.Unmarshal([]byte(value), &tag); err != nil || tag != nil && (len(*tag) > maxLocale || !languageTag.MatchString(*tag)) {
		return model.Invalid("value", "must be a BCP 47 tag such as \"de-CH\", or null")
	}
	return nil
}

// checkBrandingDefault and checkBasemapDefault refuse settings that are no defaults.
func checkBrandingDefault(value string) error {
	var b Branding
	if err := decodeStrict("value", value, &b); err != nil {
		return err
	}
	if b.Logo != nil {
		if why := refusedLogo(*b.Logo); why != "" {
			return model.Invalid("value", "logo %s", why)
		}
	}
	return b.check("value")
}

func checkBasemapDefault(value string) error {
	var m Basemap
	if err := decodeStrict("value", value, &m); err != nil {
		return err
	}
	return m.check("value")
}

// decodeStrict reads a JSON object without unknown members.
func decodeStrict(field, value string, into any) error {
	d := json.NewDecoder(strings.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil || !strings.HasPrefix(strings.TrimSpace(value), "{") {
		return model.Invalid(field, "must be a JSON object with the fields of the type")
	}
	return nil
}

var color = regexp.MustCompile(`^#[0-9a-fA-F]{6}$`)

func (b *Branding) check(field string) error {
	if t := b.Title; t != nil && (utf8.RuneCountInString(*t) > maxTitle || strings.ContainsFunc(*t, isControl)) {
		return model.Invalid(field, "title must have at most %d characters, none of them a control character", maxTitle)
	}
	if h := b.LogoMaxHeight; h != nil && (*h < minLogoHeight || *h > maxLogoHeight) {
		return model.Invalid(field, "logoMaxHeight must lie in %d..%d", minLogoHeight, maxLogoHeight)
	}
	for _, c := range []struct {
		name  string
		value *string
	}{{"primary", b.Primary}, {"background", b.Background}, {"foreground", b.Foreground}, {"accent", b.Accent}} {
		if c.value != nil && !color.MatchString(*c.value) {
			return model.Invalid(field, "%s must be a color such as #1a2b3c", c.name)
		}
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// refusedWebURL reports whether a text is no https URL, or one that is too long.
func refusedWebURL(text string) bool {
	u, err := url.Parse(text)
	return err != nil || !utf8.ValidString(text) || len(text) > maxLookURL || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.ContainsFunc(text, notInURL)
}

// notInURL reports what a URL holds only escaped (RFC 3986, section 2): pages put it into attributes.
func notInURL(r rune) bool { return isControl(r) || strings.ContainsRune(" \"<>\\^`{|}", r) }

// tilePlaceholder is what a tile URL may hold in braces.
var tilePlaceholder = regexp.MustCompile(`\{(z|x|y|bbox-epsg-3857|quadkey|prefix|ratio)\}`)

// link is the one element that an attribution may hold.
var link = regexp.MustCompile(`<a href="(https://[^"<>\s]+)">([^<>]*)</a>`)

func (m *Basemap) check(field string) error {
	switch {
	case (m.TileURL == nil) != (m.Attribution == nil):
		return model.Invalid(field, "tileUrl and attribution are set together")
	case (m.CenterLat == nil) != (m.CenterLon == nil):
		return model.Invalid(field, "centerLat and centerLon are set together")
	case m.CenterLat != nil && !(*m.CenterLat >= -90 && *m.CenterLat <= 90 && *m.CenterLon >= -180 && *m.CenterLon <= 180):
		return model.Invalid(field, "centerLat must lie in -90..90 and centerLon in -180..180")
	case m.Zoom != nil && !(*m.Zoom >= 0 && *m.Zoom <= maxZoom):
		return model.Invalid(field, "zoom must lie in 0..%d", maxZoom)
	case m.TileURL == nil:
		return nil
	}
	// The URL must name the tile in one of the known ways.
	has := func(names ...string) bool {
		for _, name := range names {
			if !strings.Contains(*m.TileURL, "{"+name+"}") {
				return false
			}
		}
		return true
	}
	// Fill the placeholders in: what is left must be a URL.
	plain := tilePlaceholder.ReplaceAllString(*m.TileURL, "0")
	switch {
	case refusedWebURL(plain) || len(*m.TileURL) > maxLookURL || strings.ContainsAny(plain, "{}"):
		return model.Invalid(field, "tileUrl must be an https URL of at most %d characters", maxLookURL)
	case !has("z", "x", "y") && !has("bbox-epsg-3857") && !has("quadkey"):
		return model.Invalid(field, "tileUrl must hold {z}, {x} and {y}, or {bbox-epsg-3857}, or {quadkey}")
	case utf8.RuneCountInString(*m.Attribution) > maxAttribution:
		return model.Invalid(field, "attribution has more than %d characters", maxAttribution)
	case strings.ContainsAny(link.ReplaceAllString(*m.Attribution, ""), "<>") || strings.ContainsFunc(*m.Attribution, isControl):
		return model.Invalid(field, `attribution may hold text and links such as <a href="https://example.org">name</a>`)
	}
	return nil
}
