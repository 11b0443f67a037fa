package operate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"weir/model"
	"weir/site"
)

// SiteCommand is a document that was read where the command runs, secrets included.
type SiteCommand struct {
	Document *site.Document `json:"document"`
	Prune    bool           `json:"prune,omitempty"`
	Expect   string         `json:"expect,omitempty"` // digest of a plan
}

// SiteExport names what is exported.
type SiteExport struct {
	Tenant string `json:"tenant,omitempty"` // "": the whole instance
}

// SiteExported is what there is, as a site file.
type SiteExported struct {
	YAML string `json:"yaml"`
}

// SiteSelection names entities of one kind.
type SiteSelection = site.Selection

// Got are the entities of a kind.
type Got struct {
	Kind     string       `json:"kind"`
	Tenant   string       `json:"tenant,omitempty"`
	Entities []*GotEntity `json:"entities"`
	YAML     string       `json:"yaml"` // the same as a site file
}

// GotEntity is one of them, with the fields that a site file gives it.
type GotEntity struct {
	Name   string                  `json:"name"` // token, or email
	Fields map[string]any          `json:"fields,omitempty"`
	Inside map[string][]*GotEntity `json:"inside,omitempty"` // what is declared inside of it, by list
}

func (e *Entities) get(ctx context.Context, q site.Selection) (*Got, error) {
	found, err := e.Site.Get(ctx, Local(), q)
	if err != nil {
		return nil, err
	}
	return &Got{Kind: found.Kind, Tenant: q.Tenant, Entities: gotEntities(found.Found), YAML: found.Document.YAML()}, nil
}

func gotEntities(list []*site.Entity) []*GotEntity {
	out := make([]*GotEntity, len(list))
	for i, e := range list {
		out[i] = &GotEntity{Name: e.Name, Fields: e.Fields}
		for inside, of := range e.Lists {
			if len(of) == 0 {
				continue
			}
			if out[i].Inside == nil {
				out[i].Inside = map[string][]*GotEntity{}
			}
			out[i].Inside[inside] = gotEntities(of)
		}
	}
	return out
}

// SiteStatus is the last apply of a site, at the start or by a command.
type SiteStatus struct {
	Files   []string  `json:"files"`
	Digest  string    `json:"digest"` // of the files
	Changes int       `json:"changes"`
	At      time.Time `json:"at"`
}

// Bounds of the commands about a site: a hundred thousand devices with their credentials fit, and passwords, each of which
// is hashed, take their time.
const (
	MaxSiteBytes = 64 << 20
	siteTimeout  = 30 * time.Minute
)

// planSite says what applySite would change.
func (e *Entities) planSite(ctx context.Context, c SiteCommand) (*site.Plan, error) {
	if c.Document == nil {
		return nil, model.Invalid("document", "is missing")
	}
	return e.Site.Plan(ctx, Local(), c.Document, site.Options{Prune: c.Prune})
}

func (e *Entities) applySite(ctx context.Context, c SiteCommand) (*site.Plan, error) {
	if c.Document == nil {
		return nil, model.Invalid("document", "is missing")
	}
	p, err := e.Site.Apply(ctx, Local(), c.Document, site.Options{Prune: c.Prune, Expect: c.Expect})
	if err == nil {
		e.NoteSite(p)
	}
	return p, err
}

// NoteSite keeps an apply for the status.
func (e *Entities) NoteSite(p *site.Plan) {
	s := &SiteStatus{Digest: DigestOf(p.Files), Changes: len(p.Changes), At: time.Now().UTC()}
	for _, f := range p.Files {
		s.Files = append(s.Files, f.Name)
	}
	e.sited.Store(s)
}

func (e *Entities) exportSite(ctx context.Context, q SiteExport) (*SiteExported, error) {
	d, err := e.Site.Export(ctx, Local(), q.Tenant)
	if err != nil {
		return nil, err
	}
	return &SiteExported{YAML: d.YAML()}, nil
}

// DigestOf names the content of files.
func DigestOf(files []site.File) string {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintln(h, f.SHA256)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
