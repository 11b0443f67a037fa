package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"weir/model"
)

// draftedRule is the answer of draftDetectionRuleFromText.
type draftedRule struct {
	OK                bool           `json:"ok"`
	Definition        *string        `json:"definition"` // JSON
	EstimatedCost     *int64         `json:"estimatedCost"`
	Model             *string        `json:"model"`
	Provider          *string        `json:"provider"`
	Attempts          int            `json:"attempts"`
	RawCandidate      *string        `json:"rawCandidate"`
	Diagnostics       []draftFinding `json:"diagnostics"`
	Warnings          []draftFinding `json:"warnings"`
	Unavailable       bool           `json:"unavailable"`
	UnavailableReason *string        `json:"unavailableReason"`
}

// draftFinding is what is wrong with a candidate, or advice on a draft.
type draftFinding struct {
	Field   *string  `json:"field"`
	Message string   `json:"message"`
	Code    *string  `json:"code"`
	Params  []string `json:"params"`
}

func (f *draftFinding) String() string {
	if f.Field != nil {
		return *f.Field + ": " + f.Message
	}
	return f.Message
}

const draftDocument = `mutation($i: DraftRuleFromTextInput!) { draft: draftDetectionRuleFromText(input: $i) { ok definition estimatedCost model provider attempts rawCandidate
	diagnostics { field message code params } warnings { field message code params } unavailable unavailableReason } }`

func newRuleDraft(c *command) *cobra.Command {
	var tenant, profile string
	cmd := &cobra.Command{
		Use:   "draft TEXT",
		Short: "Draft a rule from words",
		Long: "Let the AI provider of the tenant draft a rule from plain words, and print its\n" +
			"definition. The compiler of rules has accepted it; nothing is stored. The metrics\n" +
			"that the profile declares are sent along. An instance must run, with ai.enabled\n" +
			"and a provider, and the tenant must have agreed to external AI. If the model\n" +
			"gives no rule that compiles, the command prints what is wrong with its last one\n" +
			"and exits with 5.",
		Example: "  weir rule draft \"warn when a boiler is above 80 degrees for 5 minutes\" --profile boiler\n" +
			"  weir rule draft \"report silence of an hour\" --tenant acme --profile pump --json",
		Args: exactly("what the rule is to do, in quotes"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if profile == "" {
				return usageError{errors.New("--profile is missing: it says which devices the rule is for")}
			}
			op, err := c.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			a := tenantAPI{op, tenant}
			if a.tenant == "" {
				if a.tenant, err = onlyTenant(cmd.Context(), op); err != nil {
					return err
				}
			}
			shown, err := byToken[profileMetrics](cmd.Context(), a, profileKind.only("token metricDefinitions { metricKey dataType unit description }"), profile)
			if err != nil {
				return err
			}
			done := c.waiting("drafting")
			var got struct{ Draft draftedRule }
			err = a.run(cmd.Context(), processingArea, draftDocument, gqlVars{"i": gqlVars{"text": args[0], "profileToken": profile, "metrics": shown.hints()}}, &got)
			done()
			if err != nil {
				return err
			}
			return c.showDraft(&got.Draft, a.tenant)
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "tenant whose provider drafts (default: the only one)")
	cmd.Flags().StringVar(&profile, "profile", "", "device profile that the rule is for")
	return cmd
}

// profileMetrics are the metrics that a profile declares.
type profileMetrics struct {
	Token             string
	MetricDefinitions []struct {
		MetricKey, DataType string
		Unit, Description   *string
	}
}

// maxHints is how many metrics are sent along, at most.
const maxHints = 500

// hints are the metrics as drafting takes them.
func (p *profileMetrics) hints() []gqlVars {
	var all []gqlVars
	for _, m := range p.MetricDefinitions[:min(len(p.MetricDefinitions), maxHints)] {
		all = append(all, gqlVars{"key": m.MetricKey, "dataType": m.DataType, "unit": m.Unit, "description": m.Description})
	}
	return all
}

// showDraft prints a draft, or is the error that says why there is none.
func (c *command) showDraft(d *draftedRule, tenant string) error {
	switch {
	case d.Unavailable:
		reason := "drafting is not available"
		if d.UnavailableReason != nil {
			reason = *d.UnavailableReason
		}
		return &model.Error{Code: model.CodeUnavailable, Message: reason,
			Hint: "drafting needs ai.enabled in the configuration, an AI provider for tenant " + tenant + ", and its consent: see weir docs inference"}
	case !d.OK:
		var why []string
		for i := range d.Diagnostics {
			why = append(why, printable(d.Diagnostics[i].String()))
		}
		if c.json {
			c.show(d, nil)
		} else if d.RawCandidate != nil {
			c.note("the last of %d candidates:", d.Attempts)
			fmt.Fprintln(c.io.Stderr, harmless(*d.RawCandidate))
		}
		return checkError{fmt.Errorf("no rule that compiles came of it: %s", strings.Join(why, "; ")), "say it more exactly, or name the metrics as the profile does"}
	}
	if !c.json {
		for i := range d.Warnings {
			c.note("warning: %s", printable(d.Warnings[i].String()))
		}
		if d.Model != nil && d.Provider != nil {
			c.note("drafted by %s of %s in %s; nothing is stored", printable(*d.Model), printable(*d.Provider), count(d.Attempts, "attempt"))
		}
	}
	c.show(d, func(w io.Writer) { printJSON(w, json.RawMessage(*d.Definition)) })
	return nil
}
