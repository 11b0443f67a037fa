package app

import (
	"context"
	"time"

	"weir/model"
	"weir/operate"
	"weir/site"
)

// siteFiles are the files of the declared state that the configuration names.
type siteFiles struct {
	*base
	noStop
	entities *entities
}

// Start applies the files. They are applied at every start: what was changed by hand since is again what they say, and an
// apply that finds nothing to change costs little.
func (s *siteFiles) Start(ctx, _ context.Context) error {
	if len(s.cfg.Site) == 0 {
		return nil
	}
	// Warnings are reported even where the files are refused: they may explain why.
	d, warnings, err := site.Read(site.Source{LookupEnv: func(name string) (string, bool) {
		v := s.opt.Getenv(name)
		return v, v != ""
	}}, s.cfg.Site...)
	for _, w := range warnings {
		s.log.Warn(w)
	}
	if err != nil {
		return err
	}
	// A declared tenant cannot be deleted from here on: the next start would make it again.
	s.entities.Govern.DeclareTenants(d.Tenants())
	// The journal shows the site files as the author.
	by := &model.Principal{Kind: model.LocalOperator, Subject: "site"}
	began := time.Now()
	p, err := s.entities.Site.Apply(ctx, by, d, site.Options{})
	if err != nil {
		return err
	}
	// Kept for the status.
	s.entities.NoteSite(p)
	s.log.Info("the site is as declared", "files", s.cfg.Site, "digest", operate.DigestOf(p.Files), "changes", len(p.Changes), "took", time.Since(began).Round(time.Millisecond).String())
	return nil
}
