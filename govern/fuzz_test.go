package govern

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"weir/model"
)

// FuzzSetting: what a setting takes, those who use it can read.
func FuzzSetting(f *testing.F) {
	for i := range builtinSettings {
		f.Add(builtinSettings[i].value)
	}
	for _, seed := range []string{`{"default":"{slug}-{numeric-4}","device":"d-{alphanumeric-12}"}`, `{"device":null}`, `{"a":"{numeric-999}"}`, `"de-CH"`, `{}`, `[]`, ` {"title":null} {}`,
		`{"logo":"data:image/png;base64,AAAA","primary":"#112233"}`, `{"logo":"https://example.org/l.svg"}`, `{"centerLat":91,"centerLon":0}`, `{"zoom":1e400}`,
		`{"tileUrl":"https://t.example.org/{z}/{x}/{y}.png","attribution":"<a href=\"https://example.org\">x</a> & <b>"}`} {
		f.Add(seed)
	}
	into := map[string]func() any{brandingDefault: func() any { return new(Branding) }, basemapDefault: func() any { return new(Basemap) },
		tokenMasks: func() any { return new(map[string]string) }, localeDefault: func() any { return new(*string) }}
	f.Fuzz(func(t *testing.T, value string) {
		if !json.Valid([]byte(value)) { // the table refuses it
			return
		}
		for i := range builtinSettings {
			b := &builtinSettings[i]
			err := b.check(value)
			if err != nil {
				if model.CodeOf(err) != model.CodeInvalidInput {
					t.Errorf("%s: %v", b.key, err)
				}
				continue
			}
			if err := json.Unmarshal([]byte(value), into[b.key]()); err != nil {
				t.Errorf("%s takes %q: %v", b.key, value, err)
			}
		}
	})
}

// FuzzLook: what a tenant may be shown with has one normal form, and a logo is what a page may show.
func FuzzLook(f *testing.F) {
	for _, seed := range []string{builtinBranding, builtinBasemap, `{}`, `null`, `{"title":"é","accent":"#a0B1c2"}`, `{"Title":"a","title":"b"}`, `{"zoom":7.25,"centerLat":-90,"centerLon":180}`,
		`{"tileUrl":"https://t.example.org/wms?bbox={bbox-epsg-3857}","attribution":""}`, "https://example.org/logo.png", "data:image/webp;base64,UklGRg==", "data:image/svg+xml;base64,AAAA", "javascript:alert(1)"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, normal := range map[string]func(string, string) (string, error){"branding": NormalBranding, "basemap": NormalBasemap} {
			first, err := normal(name, text)
			if err != nil {
				continue
			}
			if again, err := normal(name, first); err != nil || again != first {
				t.Errorf("%s %q: %q, then %q, %v", name, text, first, again, err)
			}
		}
		if CheckLogo(text) == nil && !strings.HasPrefix(text, "data:image/") && !strings.HasPrefix(strings.ToLower(text), "https://") {
			t.Errorf("a logo may be %q", text)
		}
		if CheckLogo(text) == nil && !utf8.ValidString(text) {
			t.Errorf("a logo may be %q", text)
		}
	})
}

// FuzzTierConfig: what a tier takes is within the bounds of its dimensions.
func FuzzTierConfig(f *testing.F) {
	for _, seed := range []string{`{}`, `null`, `{"ingestBurst":500,"ingestMessagesPerSecond":0.5}`, `{"ingestBurst":1e99}`, `{"shedPriority":null}`, `{"shedPriority":20} x`, `{"geoFenceCeiling":-0}`, `{"ingestBurst":"1"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := ParseTierConfig(text)
		if err != nil {
			if model.CodeOf(err) != model.CodeInvalidInput {
				t.Error(err)
			}
			return
		}
		if got := v.usable(); got != v {
			t.Errorf("%q: %+v, of which %+v is usable", text, v, got)
		}
	})
}
