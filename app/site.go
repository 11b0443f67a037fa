package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"

	"weir/model"
	"weir/site"
)

// SiteOperator is the part of an Operator that is about the declared state.
type SiteOperator interface {
	// PlanSite says what ApplySite would change.
	PlanSite(ctx context.Context, c SiteCommand) (*site.Plan, error)
	ApplySite(ctx context.Context, c SiteCommand) (*site.Plan, error)
	ExportSite(ctx context.Context, e SiteExport) (*SiteExported, error)
}

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
	maxSiteBytes = 64 << 20
	sitePatience = 30 * time.Minute
)

// PlanSite implements Operator.
func (r rooms) PlanSite(ctx context.Context, c SiteCommand) (*site.Plan, error) {
	if c.Document == nil {
		return nil, model.Invalid("document", "is missing")
	}
	return r.site.Plan(ctx, local(), c.Document, site.Options{Prune: c.Prune})
}

// ApplySite implements Operator.
func (r rooms) ApplySite(ctx context.Context, c SiteCommand) (*site.Plan, error) {
	if c.Document == nil {
		return nil, model.Invalid("document", "is missing")
	}
	return r.site.Apply(ctx, local(), c.Document, site.Options{Prune: c.Prune, Expect: c.Expect})
}

// ExportSite implements Operator.
func (r rooms) ExportSite(ctx context.Context, e SiteExport) (*SiteExported, error) {
	d, err := r.site.Export(ctx, local(), e.Tenant)
	if err != nil {
		return nil, err
	}
	return &SiteExported{YAML: d.YAML()}, nil
}

// ApplySite implements Operator, and is shown in the status.
func (in *Instance) ApplySite(ctx context.Context, c SiteCommand) (*site.Plan, error) {
	p, err := in.rooms.ApplySite(ctx, c)
	if err == nil {
		in.tellSite(p)
	}
	return p, err
}

// startSite applies the files that the configuration names. They are applied at every start: what was changed by hand since
// is again what they say, and an apply that finds nothing to change costs little.
func (in *Instance) startSite(ctx, _ context.Context) error {
	if len(in.cfg.Site) == 0 {
		return nil
	}
	d, warnings, err := site.Read(site.Source{LookupEnv: func(name string) (string, bool) {
		v := in.opt.Getenv(name)
		return v, v != ""
	}}, in.cfg.Site...)
	for _, w := range warnings {
		in.log.Warn(w)
	}
	if err != nil {
		return err
	}
	by := &model.Principal{Kind: model.LocalOperator, Subject: "site"}
	began := time.Now()
	p, err := in.site.Apply(ctx, by, d, site.Options{})
	if err != nil {
		return err
	}
	in.tellSite(p)
	in.log.Info("the site is as declared", "files", in.cfg.Site, "digest", digestOf(p.Files), "changes", len(p.Changes), "took", time.Since(began).Round(time.Millisecond).String())
	return nil
}

func (in *Instance) tellSite(p *site.Plan) {
	s := &SiteStatus{Digest: digestOf(p.Files), Changes: len(p.Changes), At: time.Now().UTC()}
	for _, f := range p.Files {
		s.Files = append(s.Files, f.Name)
	}
	in.sited.Store(s)
}

// digestOf names the content of files.
func digestOf(files []site.File) string {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintln(h, f.SHA256)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func (in *Instance) siteVerbs() map[string]http.Handler {
	return map[string]http.Handler{
		"site-plan":   boundedVerb(in, bounds{maxSiteBytes, sitePatience}, in.PlanSite),
		"site-apply":  boundedVerb(in, bounds{maxSiteBytes, sitePatience}, in.ApplySite),
		"site-export": verb(in, in.ExportSite),
	}
}

// PlanSite implements Operator.
func (c *Client) PlanSite(ctx context.Context, s SiteCommand) (*site.Plan, error) {
	return call[site.Plan](ctx, c, "site-plan", s)
}

// ApplySite implements Operator.
func (c *Client) ApplySite(ctx context.Context, s SiteCommand) (*site.Plan, error) {
	return call[site.Plan](ctx, c, "site-apply", s)
}

// ExportSite implements Operator.
func (c *Client) ExportSite(ctx context.Context, e SiteExport) (*SiteExported, error) {
	return call[SiteExported](ctx, c, "site-export", e)
}
