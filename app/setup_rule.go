package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"weir/model"
	"weir/registry"
	"weir/store"
	"weir/store/entity"
	"weir/web"
)

// AddRule implements web.SetupSteps: in one change, and by the verbs of the API, it makes the profile of the device's type
// and the metric where they are missing, makes the rule or changes it, and publishes the profile.
func (s setupSteps) AddRule(ctx context.Context, tenant string, q web.SetupRule) (*web.SetupRule, error) {
	by, err := s.Within(bySetup(), tenant)
	if err != nil {
		return nil, err
	}
	q.Token = ruleToken(q)
	definition, err := definitionOf(q)
	if err != nil {
		return nil, err
	}
	err = s.control.Mutate(ctx, by, func(c *store.Change) error {
		// All of it is one change: a rule that is refused leaves neither profile nor metric behind.
		profile, err := s.profileOf(c.Context(), by, q.Device)
		if err != nil {
			return err
		}
		if err := s.declare(c.Context(), by, profile, q.Metric); err != nil {
			return err
		}
		patch := store.Patch{"deviceProfileToken": profile.Token, "name": nameOf(q), "definition": definition, "enabled": true}
		if err := createOrUpdate(c.Context(), s.Registry.Rules, by, q.Token, patch); err != nil {
			return err
		}
		return s.publish(c.Context(), by, profile.Token)
	})
	return &q, err
}

// profileOf returns the profile of a device's type, a new one of the type's token when it has none.
func (s setupSteps) profileOf(ctx context.Context, by *model.Principal, device string) (*registry.DeviceProfile, error) {
	r := s.Registry
	d, err := s.deviceOf(ctx, by, device)
	if err != nil {
		return nil, err
	}
	types, err := r.Types.ByID(ctx, by, []int64{d.TypeID})
	if err != nil {
		return nil, err
	}
	t := types[0]
	if t.ProfileID != nil {
		profiles, err := r.Profiles.ByID(ctx, by, []int64{*t.ProfileID})
		if err != nil {
			return nil, err
		}
		return profiles[0], nil
	}
	// Make the profile and have the type refer to it.
	made, err := r.Profiles.Create(ctx, by, store.Patch{"token": t.Token, "name": "Device"})
	if err != nil {
		return nil, err
	}
	_, err = r.Types.Update(ctx, by, t.Token, store.Patch{"profileToken": made.Token})
	return made, err
}

// declare makes a metric of a profile known, unless it is.
func (s setupSteps) declare(ctx context.Context, by *model.Principal, profile *registry.DeviceProfile, metric string) error {
	have, err := s.Registry.Metrics.By(ctx, by, "profile_id", profile.ID)
	if err != nil {
		return err
	}
	for _, m := range have {
		if m.MetricKey == metric {
			return nil
		}
	}
	_, err = s.Registry.Metrics.Create(ctx, by, store.Patch{
		"token":              tokenOf(profile.Token + "-" + metric),
		"deviceProfileToken": profile.Token,
		"metricKey":          metric,
		"dataType":           "DOUBLE",
		"outOfRange":         "FLAG",
	})
	return err
}

// publish makes the draft effective, unless it is. A refusal is the one of the rule.
func (s setupSteps) publish(ctx context.Context, by *model.Principal, profile string) error {
	differs, _, err := s.Registry.Profiles.Unpublished(ctx, by, profile)
	if err != nil || !differs {
		return err
	}
	_, err = s.Registry.Profiles.Publish(ctx, by, profile, nil, nil)
	if e, ok := errors.AsType[*model.Error](err); ok && len(e.All) > 0 {
		return e.All[0]
	}
	return err
}

// createOrUpdate makes a row or changes the one that there is: the answer to the first try may have been lost.
func createOrUpdate[T any](ctx context.Context, k *entity.Kind[T], by *model.Principal, token string, p store.Patch) error {
	have, err := k.ByToken(ctx, by, []string{token})
	switch {
	case err != nil:
	case len(have) > 0:
		_, err = k.Update(ctx, by, token, p)
	default:
		p["token"] = token
		_, err = k.Create(ctx, by, p)
	}
	return err
}

func definitionOf(q web.SetupRule) (string, error) {
	b, err := json.Marshal(map[string]any{"name": nameOf(q), "type": "threshold", "severity": q.Severity,
		"when": map[string]any{"metric": q.Metric, "op": q.Op, "threshold": q.Threshold}})
	return string(b), err
}

// ruleToken names a rule by what it compares, so that another threshold changes the rule instead of adding one.
func ruleToken(q web.SetupRule) string { return tokenOf(q.Metric + "-" + q.Op) }

func nameOf(q web.SetupRule) string {
	metric := []rune(q.Metric)
	sign := map[string]string{"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}[q.Op]
	return fmt.Sprintf("%s %s %s", string(metric[:min(len(metric), 64)]), sign, strconv.FormatFloat(q.Threshold, 'g', -1, 64))
}

// tokenOf is a token for a text that is none.
func tokenOf(text string) string {
	token := strings.Map(func(r rune) rune {
		if r < 0x80 && model.ValidToken(string(r)) || r == '_' {
			return r
		}
		return '-'
	}, text)
	// Cut to the maximum length last; a cut may end in a separator again.
	token = strings.Trim(token, "-_")
	return strings.TrimRight(token[:min(len(token), 128)], "-_")
}
