package app

import (
	"context"
	"encoding/json"
	"strconv"

	"weir/ingest"
	"weir/model"
	"weir/operate"
	"weir/registry"
	"weir/store"
	"weir/web"
)

// setupSteps carries out what the page of the first run asks for.
type setupSteps struct {
	*entities
	applier *applier
	intake  *intake
}

// bySetup is the principal of a browser that has opened the link: it was printed for the owner of the data directory.
func bySetup() *model.Principal { return &model.Principal{Kind: model.LocalOperator, Subject: "setup"} }

// HasAdministrator implements web.SetupSteps.
func (s setupSteps) HasAdministrator() bool { return s.Auth.HasSuperuser() }

// MakeAdministrator implements web.SetupSteps.
func (s setupSteps) MakeAdministrator(ctx context.Context, email, password string) (string, error) {
	made, err := s.CreateAdmin(ctx, bySetup(), operate.NewAdmin{Email: email, Password: password})
	if err != nil {
		return "", err
	}
	return made.Email, nil
}

// MakeTenant implements web.SetupSteps.
func (s setupSteps) MakeTenant(ctx context.Context, token, name string) (*web.SetupTenant, error) {
	made, err := s.CreateTenant(ctx, bySetup(), operate.NewTenant{Token: token, Name: name})
	if err != nil {
		return nil, err
	}
	return &web.SetupTenant{Token: made.Token, Name: made.Name, Tier: made.Tier}, nil
}

// MakeDevice implements web.SetupSteps.
func (s setupSteps) MakeDevice(ctx context.Context, tenant, token, host string) (*web.SetupDevice, error) {
	made, err := s.AddDevice(ctx, bySetup(), operate.NewDevice{Tenant: tenant, Token: token})
	if err != nil {
		return nil, err
	}
	return &web.SetupDevice{Tenant: tenant, Token: made.Token, Snippets: operate.FirstReading(made, host)}, nil
}

// Latest implements web.SetupSteps.
func (s setupSteps) Latest(ctx context.Context, tenant, device string) ([]web.SetupReading, error) {
	by, err := s.Within(bySetup(), tenant)
	if err != nil {
		return nil, err
	}
	d, err := s.deviceOf(ctx, by, device)
	if err != nil {
		return nil, err
	}
	// From the applied results: the page shows a reading only once a query would.
	latest, err := s.applier.series.LatestMeasurements(ctx, d.ID)
	out := make([]web.SetupReading, len(latest))
	for i, m := range latest {
		out[i] = web.SetupReading{Metric: m.Metric, Value: strconv.FormatFloat(m.Value, 'g', -1, 64), Received: m.Updated.Time()}
	}
	return out, err
}

// NewestRefusal implements web.SetupSteps.
func (s setupSteps) NewestRefusal(ctx context.Context, tenant string) (newest *web.SetupRefusal, err error) {
	err = s.Entities.Store.Read(ctx, func(tx store.Tx) error {
		letters, err := store.DeadLetters(tx, store.DeadLetterFilter{Tenant: &tenant, Limit: 1})
		for i := range letters {
			newest = &web.SetupRefusal{Reason: letters[i].Reason, Summary: letters[i].Summary}
		}
		return err
	})
	return newest, err
}

func (s setupSteps) deviceOf(ctx context.Context, by *model.Principal, token string) (*registry.Device, error) {
	have, err := s.Registry.Devices.ByToken(ctx, by, []string{token})
	if err == nil && len(have) == 0 {
		err = model.NotFound("device", token)
	}
	if err != nil {
		return nil, err
	}
	return have[0], nil
}

// Send implements web.SetupSteps. The reading is a flat body as HTTP ingest takes it; the link of the page vouches for the
// device in place of an access token, which the page forgets.
func (s setupSteps) Send(ctx context.Context, tenant, device, metric string, value float64) error {
	by, err := s.Within(bySetup(), tenant)
	if err != nil {
		return err
	}
	d, err := s.deviceOf(ctx, by, device)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]float64{metric: value})
	if err != nil {
		return err
	}
	// Buffered: the answer may come from another goroutine, which must not block.
	answered := make(chan ingest.Answer, 1)
	s.intake.into.Accept(ctx, &ingest.Arrival{
		Transport: httpTransport.Name,
		Source:    httpTransport.Source,
		Tenant:    tenant,
		Topic:     device,
		Body:      body,
		Flat:      true,
		Conn:      &model.Binding{Tenant: tenant, TenantID: by.TenantID, Device: device, DeviceID: d.ID},
	}, func(a ingest.Answer) { answered <- a })
	return refusalOf(<-answered)
}

// refusalOf is what the page shows of a reading that was not stored, nil for one that was.
func refusalOf(a ingest.Answer) error {
	switch {
	case a.Outcome == ingest.Stored:
		return nil
	case a.Reason == ingest.ReasonUndecodable:
		return model.Invalid("metric", "%s", a.Text)
	case a.RetryAfter > 0:
		return &model.Error{Code: model.CodeThrottled, Message: a.Text, Ext: map[string]any{"retryAfterSeconds": a.RetryAfter}}
	}
	return model.Errorf(model.CodeUnavailable, "%s", a.Text)
}

// Firings implements web.SetupSteps.
func (s setupSteps) Firings(ctx context.Context, tenant, device string) ([]web.Firing, error) {
	return firingsOf(ctx, s.Entities, operate.FiringQuery{Tenant: tenant, Device: device, Limit: 3})
}
