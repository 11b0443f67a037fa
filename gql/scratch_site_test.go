package gql_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/test/domain"
	"weir/model"
	"weir/site"
	"weir/store/entity"
)

// scratchSite is the site of an instance that has the scratch kinds besides its own.
type scratchSite struct {
	*scratch
	site *site.Site
	dir  string
}

var siteOperator = &model.Principal{Kind: model.LocalOperator, Subject: "ada"}

func newScratchSite(t testing.TB) *scratchSite {
	t.Helper()
	s := &scratchSite{scratch: newScratch(t), dir: t.TempDir()}
	d := domain.New(t, domain.Config{Store: s.db, Writer: s.writer})
	s.site = site.New(site.Parts{Store: s.db, Writer: s.writer, Govern: d.Govern, Auth: d.Auth, Registry: d.Registry, Hasher: d.Hasher, Vault: d.Vault,
		Catalog: entity.Union(d.Govern.Kinds, d.Auth.Kinds, d.Registry.Kinds, d.Registry.Keyed, s.catalog)})
	return s
}

func (s *scratchSite) read(text string) (*site.Document, error) {
	s.Helper()
	name := filepath.Join(s.dir, "site.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	d, _, err := s.site.Read(site.Source{LookupEnv: func(name string) (string, bool) { return "secret of " + name, true }}, name)
	return d, err
}

// wants plans a file, applies it, and finds nothing to change then, nor in the plan of an export.
func (s *scratchSite) wants(text string, o site.Options, want string) {
	s.Helper()
	d, err := s.read(text)
	if err != nil {
		s.Fatal(err)
	}
	before := s.rows()
	for _, f := range []func() (*site.Plan, error){
		func() (*site.Plan, error) { return s.site.Plan(s.Context(), siteOperator, d, o) },
		func() (*site.Plan, error) {
			if after := s.rows(); after != before {
				s.Errorf("a plan changed rows from\n%s\nto\n%s", before, after)
			}
			return s.site.Apply(s.Context(), siteOperator, d, o)
		},
	} {
		plan, err := f()
		if err != nil {
			s.Fatal(err)
		}
		if got := planLines(plan); got != want {
			s.Errorf("the plan is\n%s\nwant\n%s", got, want)
		}
	}
	exported, err := s.site.Export(s.Context(), siteOperator, "")
	if err != nil {
		s.Fatal(err)
	}
	again, err := s.read(exported.YAML())
	if err != nil {
		s.Fatal(err)
	}
	for _, d := range []*site.Document{d, again} {
		if plan, err := s.site.Plan(s.Context(), siteOperator, d, site.Options{Prune: true}); err != nil || o.Prune && len(plan.Changes) > 0 || d == again && len(plan.Changes) > 0 {
			s.Errorf("applied, and yet %v would change\n%s\nof\n%s", err, planLines(plan), exported.YAML())
		}
	}
}

func planLines(p *site.Plan) string {
	var b strings.Builder
	for i := range p.Changes {
		b.WriteString(p.Changes[i].String() + "\n")
	}
	return b.String()
}

// The kinds that are described in this test alone are declared in site files: references, parts, secrets, drafts and what
// is not declared.
func TestADescribedKindIsDeclaredInASiteFile(t *testing.T) {
	t.Parallel()
	s := newScratchSite(t)
	s.wants(`
version: 1
tenants:
  - token: green
    gardens: [{token: g, name: G}, {token: h}]
    beds:
      - {token: b, gardenToken: g, sunny: true, length: 2.5, tags: [x, y], key_env: KEY, plants: [{token: p1}, {token: p2, name: P}]}
      - {token: c, gardenToken: h, sunny: false, publish: false}
    labels: [{token: l, text: first}]
`, site.Options{}, `+ tenant green
+ garden green/g
+ garden green/h
+ bed green/b
+ bed green/c
+ plant green/p1
+ plant green/p2
+ label green/l
^ publish green/b v1
^ publish green/l v1
`)
	if rows := s.rows(); !strings.Contains(rows, "secret of KEY") || !strings.Contains(rows, "[1 b 1 <nil> 2.5 1") {
		t.Errorf("stored is\n%s", rows)
	}
	exported, err := s.site.Export(t.Context(), siteOperator, "green")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"beds:\n      - token: b\n        gardenToken: g\n", "        plants:\n          - token: p1\n", "        publish: false\n"} {
		if text := exported.YAML(); !strings.Contains(text, want) || strings.Contains(text, "secret of") {
			t.Errorf("exported\n%s\nwant in it\n%s", text, want)
		}
	}
	s.wants(`
version: 1
tenants:
  - token: green
    beds:
      - {token: c, plants: [{token: p1}]}
      - {token: b, name: B, length: null, key_env: OTHER}
`, site.Options{}, `~ bed green/b: name none → "B", length 2.5 → none, key (changed)
~ plant green/p1: bedToken "b" → "c"
^ publish green/c v1
^ publish green/b v2
`)
	s.wants(`
version: 1
tenants:
  - token: green
    gardens: [{token: h}]
    beds: [{token: c, plants: [{token: p3}]}]
    labels: []
`, site.Options{Prune: true}, `- plant green/p1
+ plant green/p3
^ publish green/c v2
- label green/l
- bed green/b
- garden green/g
`)
}

// What a file says wrong of a described kind is named with its place; what its hooks refuse, too, and nothing is changed.
func TestAMistakeAboutADescribedKindHasItsPlace(t *testing.T) {
	t.Parallel()
	s := newScratchSite(t)
	for text, want := range map[string]string{
		"gardens: [{token: g}], beds: [{token: b, gardenToken: x, sunny: true}]":                                    `"x" is not declared under gardens`,
		"beds: [{token: b, sunny: maybe}]":                                                                          "beds[0].sunny: must be true or false",
		"beds: [{token: b, key: open}]":                                                                             "a secret does not stand in a site file",
		"beds: [{token: b, plants: [{token: p, nam: x}]}]":                                                          "beds[0].plants[0].nam",
		"gardens: [{token: g}], beds: [{token: b, gardenToken: g, sunny: true, length: 101, plants: [{token: p}]}]": "site.yaml:2:96: tenants[0].beds[0].length: no bed is that long",
		"gardens: [{token: g}], beds: [{token: b, gardenToken: g, sunny: true}]":                                    "an empty bed cannot be published",
		"gardens: [{token: g, name: far too long}]":                                                                 "tenants[0].gardens[0].name: is longer than 8 characters",
	} {
		t.Run(text, func(t *testing.T) {
			before := s.rows()
			d, err := s.read("version: 1\ntenants: [{token: green, " + text + "}]")
			if err == nil {
				_, err = s.site.Apply(s.Context(), siteOperator, d, site.Options{})
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", text, err, want)
			}
			if after := s.rows(); after != before {
				t.Errorf("%s: refused, but rows changed to\n%s", text, after)
			}
		})
	}
}
