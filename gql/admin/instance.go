package admin

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"weir/gql/engine"
	"weir/health"
	"weir/internal/logring"
	"weir/model"
)

// Instance tells how the program that runs is. All are nil where nothing runs.
type Instance struct {
	Findings func(context.Context) (*health.Report, error)
	Status   func(context.Context) (any, error) // as JSON
	// Configuration is what applies, without secrets.
	Configuration func() []ConfigurationValue
	// CheckConfiguration looks at a text in place of the file of the configuration.
	CheckConfiguration func(text string) *ConfigurationCheck
	// Unauthenticated are the last senders that are not known, the newest first.
	Unauthenticated func() []UnauthenticatedSender
	Backups         Backups
	Recounts        Recounts
	Log             *logring.Ring
	Now             func() time.Time
}

// findingsAge is how long a round of checks is shown: they write to the disk and ask the ports, so that many who look cost no more
// than one.
const findingsAge = 10 * time.Second

// ConfigurationValue is a key of the configuration.
type ConfigurationValue struct {
	Key    string `gql:"key"`
	Value  string `gql:"value"`
	Origin string `gql:"origin"`
}

type findingView struct {
	ID     string  `gql:"id"`
	Result string  `gql:"result"`
	Text   string  `gql:"text"`
	Hint   *string `gql:"hint"`
}

// registerInstance registers what the settings plane tells of the instance.
func (r *resolvers) registerInstance() {
	r.area.Types(map[string]any{"Finding": findingView{}, "ConfigurationValue": ConfigurationValue{}})
	looking := make(chan struct{}, 1) // held by whoever checks; the others wait for what it finds
	var last []findingView
	var at time.Time
	r.query("findings", model.SettingsRead, func(ctx context.Context, _ *model.Principal, _ engine.Args) (any, error) {
		if r.Instance.Findings == nil {
			return nil, notRunning()
		}
		select {
		case looking <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		defer func() { <-looking }()
		if now := r.Instance.Now(); last != nil && now.Sub(at) < findingsAge {
			return last, nil
		}
		report, err := r.Instance.Findings(ctx)
		if err != nil {
			return nil, err
		}
		last, at = findingsOf(report), r.Instance.Now()
		return last, nil
	})
	r.query("instance", model.SettingsRead, func(ctx context.Context, _ *model.Principal, _ engine.Args) (any, error) {
		if r.Instance.Status == nil {
			return nil, notRunning()
		}
		status, err := r.Instance.Status(ctx)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(status)
		return string(text), err
	})
	r.query("configurationValues", model.SettingsRead, func(context.Context, *model.Principal, engine.Args) (any, error) {
		if r.Instance.Configuration == nil {
			return nil, notRunning()
		}
		return r.Instance.Configuration(), nil
	})
}

// findingsOf are the findings of a report, the gravest first.
func findingsOf(report *health.Report) []findingView {
	all := make([]findingView, len(report.Findings))
	for i, f := range report.Findings {
		all[i] = findingView{ID: f.ID, Result: string(f.Result), Text: f.Text}
		if f.Hint != "" {
			all[i].Hint = &f.Hint
		}
	}
	order := []health.Result{health.Failure, health.Warning, health.Skipped, health.OK}
	slices.SortStableFunc(all, func(a, b findingView) int {
		return slices.Index(order, health.Result(a.Result)) - slices.Index(order, health.Result(b.Result))
	})
	return all
}

func notRunning() error {
	return model.Errorf(model.CodeUnavailable, "unavailable: no instance runs, weir doctor looks at the directory")
}
