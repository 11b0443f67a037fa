package gql

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"weir/gql/engine"
	"weir/model"
	"weir/registry"
	"weir/rules"
	"weir/store"
)

// DetectionReader reads past detections.
type DetectionReader interface {
	Detections(ctx context.Context, f store.DetectionFilter, page store.Page) (found []store.Detection, total int64, err error)
	// DetectionAt returns the position of a tenant's detection in the list, nil when there is none.
	DetectionAt(ctx context.Context, tenantID, row int64) (*store.DetectionPosition, error)
}

// ProfileFinder finds profiles of the caller's tenant by their tokens.
type ProfileFinder interface {
	ByToken(ctx context.Context, by *model.Principal, tokens []string) ([]*registry.DeviceProfile, error)
}

// RuleFinder finds rules of the caller's tenant by their tokens.
type RuleFinder interface {
	ByToken(ctx context.Context, by *model.Principal, tokens []string) ([]*registry.DetectionRule, error)
}

// pastDetection is a stored detection.
type pastDetection struct {
	Row       string       `gql:"id"`
	ID        string       `gql:"ruleId"`
	Token     string       `gql:"ruleToken"`
	Profile   string       `gql:"profileToken"`
	Version   int          `gql:"profileVersion"`
	Kind      string       `gql:"kind"`
	Edge      string       `gql:"edge"`
	Series    string       `gql:"series"`
	Device    *string      `gql:"deviceToken"`
	Occurred  model.Micros `gql:"occurredTime"`
	Processed model.Micros `gql:"processedTime"`
	Severity  *string      `gql:"severity"`
	Value     *float64     `gql:"value"`
}

func showDetection(d *store.Detection) pastDetection {
	v := pastDetection{Row: strconv.FormatInt(d.Row, 10), ID: d.RuntimeID(), Token: d.Rule, Profile: d.Profile, Version: d.Version, Kind: d.Kind,
		Edge: d.Signal.String(), Series: d.Series, Occurred: d.Occurred, Processed: d.Received.Micros(), Severity: textOrNil(d.Severity)}
	if d.Device != 0 {
		v.Device = &v.Series
	}
	if d.HasValue && d.Signal == model.Raised {
		v.Value = &d.Value
	}
	return v
}

func (p *processingResolvers) detections(ctx context.Context, _ any, args engine.Args) (any, error) {
	c, asOf := args.Object("criteria"), p.AsOf.now()
	page := store.Page{Number: c.Int("pageNumber"), Size: c.Int("pageSize")}.Norm()
	f, err := p.detectionFilter(ctx, c, page)
	if err != nil {
		return nil, err
	}
	found, total, err := p.Past.Detections(ctx, *f, page)
	if err == nil && total == 0 {
		err = p.allExist(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	out := eventPage[pastDetection]{Results: make([]pastDetection, len(found)), Pagination: pageOf(page.Number, page.Size, len(found), total), AsOf: asOf}
	for i := range found {
		out.Results[i] = showDetection(&found[i])
	}
	return out, nil
}

func (p *processingResolvers) detectionFilter(ctx context.Context, c engine.Args, page store.Page) (*store.DetectionFilter, error) {
	by := PrincipalFrom(ctx)
	f := &store.DetectionFilter{TenantID: by.TenantID, Profile: c.String("profileToken"), Rule: c.String("ruleToken"), Severity: c.String("severity")}
	var err error
	if f.Signal, err = signalOf(c.String("edge")); err != nil {
		return nil, err
	}
	if f.Severity != "" && !slices.Contains(rules.SeverityNames(), f.Severity) {
		return nil, model.Invalid("severity", "%q is none of %s", f.Severity, strings.Join(rules.SeverityNames(), ", "))
	}
	from, err := instant(c, "startTime", false)
	if err != nil {
		return nil, err
	}
	to, err := instant(c, "endTime", true)
	if err != nil {
		return nil, err
	}
	if from != nil {
		f.From = *from
	}
	if to != nil {
		f.To = *to
	}
	if err := p.ofDevice(ctx, f, c.String("deviceToken")); err != nil {
		return nil, err
	}
	return f, p.before(ctx, f, c.String("before"), page)
}

// ofDevice restricts a filter to a device. What a removed device fired is found by its token.
func (p *processingResolvers) ofDevice(ctx context.Context, f *store.DetectionFilter, token string) error {
	if token == "" {
		return nil
	}
	ds, err := p.Devices.ByToken(ctx, PrincipalFrom(ctx), []string{token})
	if len(ds) > 0 {
		f.Device = ds[0].ID
	} else {
		f.Series = token
	}
	return err
}

func (p *processingResolvers) before(ctx context.Context, f *store.DetectionFilter, id string, page store.Page) error {
	if id == "" {
		return nil
	}
	row, err := strconv.ParseInt(id, 10, 64)
	if err != nil || row < 1 {
		return model.Invalid("before", "%q is not the id of a detection", id)
	}
	if page.Number > 1 {
		return model.Invalid("before", "only page 1 can be requested with it")
	}
	f.Before, err = p.Past.DetectionAt(ctx, f.TenantID, row)
	if err == nil && f.Before == nil {
		return model.NotFound("detection", id)
	}
	return err
}

// allExist refuses criteria that name what does not exist, so that a misspelt token does not look like a quiet night.
func (p *processingResolvers) allExist(ctx context.Context, c engine.Args) error {
	by := PrincipalFrom(ctx)
	if token := c.String("deviceToken"); token != "" {
		if ds, err := p.Devices.ByToken(ctx, by, []string{token}); err != nil || len(ds) == 0 {
			return orNotFound(err, "device", token)
		}
	}
	if token := c.String("profileToken"); token != "" {
		if known, err := p.hasProfile(ctx, token); err != nil || !known {
			return orNotFound(err, "device profile", token)
		}
	}
	if token := c.String("ruleToken"); token != "" {
		if rs, err := p.RuleRows.ByToken(ctx, by, []string{token}); err != nil || len(rs) == 0 {
			return orNotFound(err, "detection rule", token)
		}
	}
	return nil
}

func orNotFound(err error, kind, token string) error {
	if err != nil {
		return err
	}
	return model.NotFound(kind, token)
}

// signalOf reads the name of an edge; "" is 0.
func signalOf(name string) (model.EdgeSignal, error) {
	for _, s := range []model.EdgeSignal{model.Raised, model.Resolved} {
		if name == s.String() {
			return s, nil
		}
	}
	if name != "" {
		return 0, model.Invalid("edge", "%q is neither raised nor resolved", name)
	}
	return 0, nil
}
