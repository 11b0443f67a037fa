package app

import (
	"context"
	"encoding/json"
	"time"

	"weir/gql"
	"weir/gql/admin"
	"weir/health"
	"weir/ingest/trace"
	"weir/model"
	"weir/operate"
	"weir/web"
)

// asked answers what an operator asks, once the instance has come that far.
func (a *api) asked() (*operate.Operator, error) {
	if a.operator.asked == nil || !a.ready.Load() {
		return nil, model.Errorf(model.CodeUnavailable, "unavailable: Weir is starting; try again")
	}
	return a.operator.asked, nil
}

// instance tells the settings plane what weir doctor and weir status tell.
func (a *api) instance() admin.Instance {
	return admin.Instance{
		Findings: func(ctx context.Context) (*health.Report, error) {
			o, err := a.asked()
			if err != nil {
				return nil, err
			}
			return o.Findings(ctx)
		},
		Status: func(ctx context.Context) (any, error) {
			o, err := a.asked()
			if err != nil {
				return nil, err
			}
			return o.Status(ctx)
		},
		Configuration: func() []admin.ConfigurationValue {
			var all []admin.ConfigurationValue
			for _, v := range a.effective().Values() {
				text, err := json.Marshal(v.Value)
				if err != nil {
					text = []byte("null")
				}
				all = append(all, admin.ConfigurationValue{Key: v.Path, Value: string(text), Origin: v.Origin.String()})
			}
			return all
		},
		CheckConfiguration: a.checkConfiguration,
		Unauthenticated:    a.unauthenticated,
		Backups:            keptBackups{a},
		Recounts:           recounts{a},
		Log:                a.lines,
		Now:                time.Now,
	}
}

// trace tells what weir ledger trace tells.
func (a *api) trace(ctx context.Context, q trace.Query) (*trace.Report, error) {
	o, err := a.asked()
	if err != nil {
		return nil, err
	}
	return o.Trace(ctx, q)
}

// snippetsOf shows how a device sends its first reading. The name of the host becomes part of a command that a person types: one that no
// name or address can be is left out.
func snippetsOf(p entityParts) gql.SnippetMaker {
	return func(tenant, device, accessToken, host string) ([]gql.Snippet, error) {
		made, err := p.Snippets(tenant, device, accessToken, web.PlainHost(host))
		out := make([]gql.Snippet, len(made))
		for i, s := range made {
			out[i] = gql.Snippet(s)
		}
		return out, err
	}
}

// aboutConsole is what the console learns before anybody has signed in.
func (f *front) aboutConsole() web.ConsoleAbout {
	return web.ConsoleAbout{
		InstanceID: f.cfg.Instance.ID,
		Version:    f.opt.Version,
		Setup:      f.setupState() == web.SetupOpen,
		DevTools:   gql.DevTools(f.opt.Getenv),
	}
}
