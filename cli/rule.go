package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/operate"
)

func newRule(c *command) *cobra.Command {
	return group("rule", "Detection rules of a tenant", newRuleList(c), newRuleShow(c), newRuleValidate(c), newRuleTest(c), newRuleExplain(c), newRuleCanvas(c), newRulePreview(c), newRulePin(c), newRuleDraft(c))
}

var ruleKind = listedKind{command: "rule", name: "detection rule", query: "detectionRules", criteria: "DetectionRuleSearchCriteria",
	details: "token name description enabled definition createdAt updatedAt deviceProfile { token activeVersion }"}

// ruleRow is a rule as the API shows it. The names in JSON are those of the API, the definition is JSON itself.
type ruleRow struct {
	Token       string          `json:"token"`
	Name        *string         `json:"name"`
	Description *string         `json:"description,omitempty"`
	Profile     string          `json:"deviceProfileToken"`
	Kind        string          `json:"kind"`
	Severity    string          `json:"severity,omitempty"`
	Enabled     bool            `json:"enabled"`
	Published   bool            `json:"profilePublished"` // the profile has an active version; the rule may differ from it
	Definition  json.RawMessage `json:"definition"`
	CreatedAt   *time.Time      `json:"createdAt,omitempty"`
	UpdatedAt   *time.Time      `json:"updatedAt,omitempty"`
	Health      *ruleHealth     `json:"health,omitempty"`
}

// ruleHealth is how the live form of a rule does, on a running instance.
type ruleHealth struct {
	RuleToken      string     `json:"ruleToken"`
	Status         string     `json:"status"`
	Message        *string    `json:"message,omitempty"`
	LastFiredAt    *time.Time `json:"lastFiredAt"`
	FireCount      int64      `json:"fireCount"`
	LastSignal     *string    `json:"lastSignal"`
	EvalErrors     int64      `json:"evalErrors"`
	Missing        int64      `json:"missingAttributes"`
	LateSamples    int64      `json:"lateSamples"`
	Refused        int64      `json:"refusedSamples"`
	Held           int64      `json:"heldDetections"`
	StaleActions   int64      `json:"staleActions"`
	ClockHeld      bool       `json:"clockHeld"`
	LastInputAt    *time.Time `json:"lastInputAt"`
	MissingMetrics []string   `json:"missingMetrics"`
}

// troubles are the figures of what a rule could not judge or keep as it should, in words; "none" where all of them are 0.
func (h *ruleHealth) troubles() string {
	var all []string
	for _, f := range []struct {
		n    int64
		what string
	}{{h.EvalErrors, "failed evaluation"}, {h.Missing, "sample without the attribute"}, {h.LateSamples, "late sample"}, {h.Refused, "sample without room"},
		{h.Held, "detection over the ceiling"}, {h.StaleActions, "stale action"}} {
		if f.n > 0 {
			all = append(all, countOf(f.n, f.what))
		}
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

// countOf is a number with what it counts, in the plural where it is not 1.
func countOf(n int64, what string) string {
	if n != 1 {
		for _, noun := range []string{"time", "evaluation", "sample", "detection", "action"} {
			what = strings.Replace(what, noun, noun+"s", 1)
		}
	}
	return fmt.Sprintf("%d %s", n, what)
}

// UnmarshalJSON reads what the API answers.
func (r *ruleRow) UnmarshalJSON(b []byte) error {
	var in struct {
		Token                string
		Name, Description    *string
		Enabled              bool
		Definition           string
		CreatedAt, UpdatedAt *time.Time
		DeviceProfile        struct {
			Token         string
			ActiveVersion *int
		}
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	var def struct {
		Type, Severity string
	}
	if err := json.Unmarshal([]byte(in.Definition), &def); err != nil {
		in.Definition = "null" // a draft may hold anything
	}
	*r = ruleRow{Token: in.Token, Name: in.Name, Description: in.Description, Profile: in.DeviceProfile.Token, Kind: def.Type, Severity: def.Severity,
		Enabled: in.Enabled, Published: in.DeviceProfile.ActiveVersion != nil, Definition: json.RawMessage(in.Definition), CreatedAt: in.CreatedAt, UpdatedAt: in.UpdatedAt}
	return nil
}

func newRuleList(c *command) *cobra.Command {
	var profile string
	cmd := &cobra.Command{
		Use:   "list TENANT",
		Short: "List the detection rules of a tenant",
		Long: "List the detection rules of a tenant, newest first: profile, kind, severity,\n" +
			"whether the rule is enabled, and whether its profile was published; only\n" +
			"published rules judge devices.",
		Example: "  weir rule list acme\n  weir rule list acme --profile boiler --json",
		Args:    exactly("the tenant's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			op, err := c.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			a := tenantAPI{op, args[0]}
			criteria := gqlVars{}
			if profile != "" {
				if _, err := byToken[struct{ Token string }](cmd.Context(), a, profileKind.only("token"), profile); err != nil {
					return err
				}
				criteria["deviceProfile"] = profile
			}
			rules, err := listAll[ruleRow](cmd.Context(), a, ruleKind.query, ruleKind.criteria, ruleKind.details, criteria)
			if err != nil {
				return err
			}
			c.show(map[string]any{"total": len(rules), "rules": rules}, func(w io.Writer) { printRules(w, rules) })
			return nil
		},
	}
	cmd.Flags().StringVar(&profile, "profile", "", "only the rules of this device profile")
	return cmd
}

func printRules(w io.Writer, rules []ruleRow) {
	if len(rules) == 0 {
		fmt.Fprintln(w, "no rules")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOKEN\tPROFILE\tKIND\tSEVERITY\tENABLED\tPUBLISHED")
	for i := range rules {
		r := &rules[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Token, r.Profile, cmp.Or(printable(r.Kind), "-"), cmp.Or(printable(r.Severity), "-"), yesNo(r.Enabled), yesNo(r.Published))
	}
	_ = t.Flush() // the reader has gone
}

func newRuleShow(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "show TENANT RULE",
		Short: "Show a detection rule, its definition and its health",
		Long: "Show a detection rule and its definition. On a running instance the command\n" +
			"also shows the health of its published form: how often it fired and when last,\n" +
			"what it could not judge (failed evaluations, late samples, missing attributes,\n" +
			"samples without room), and metrics that no device has sent.",
		Example: "  weir rule show acme too-hot",
		Args:    exactly("the tenant's token", "the rule's token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			op, err := c.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			a := tenantAPI{op, args[0]}
			r, err := byToken[ruleRow](cmd.Context(), a, ruleKind, args[1])
			if err != nil {
				return err
			}
			if _, running := op.(*operate.Client); running {
				if r.Health, err = a.healthOf(cmd.Context(), r); err != nil {
					return err
				}
			}
			c.show(r, func(w io.Writer) { printRule(w, r) })
			return nil
		},
	}
}

// healthOf is the health of a rule, nil while its profile's active version does not have it.
func (a tenantAPI) healthOf(ctx context.Context, r *ruleRow) (*ruleHealth, error) {
	const document = `query($p: String!) { ruleHealth(profileToken: $p) { ruleToken status message lastFiredAt fireCount lastSignal evalErrors missingAttributes
		lateSamples refusedSamples heldDetections staleActions clockHeld lastInputAt missingMetrics } }`
	var got struct{ RuleHealth []ruleHealth }
	if err := a.run(ctx, processingArea, document, gqlVars{"p": r.Profile}, &got); err != nil {
		return nil, err
	}
	for i := range got.RuleHealth {
		if got.RuleHealth[i].RuleToken == r.Token {
			return &got.RuleHealth[i], nil
		}
	}
	return nil, nil
}

func printRule(w io.Writer, r *ruleRow) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintf(t, "%s\t%s\n", name, printable(value)) }
	row("token", r.Token)
	row("name", orDash(r.Name))
	row("profile", r.Profile)
	row("kind", cmp.Or(r.Kind, "-"))
	row("severity", cmp.Or(r.Severity, "-"))
	row("enabled", yesNo(r.Enabled))
	if h := r.Health; h != nil {
		row("status", strings.ToLower(strings.ReplaceAll(h.Status, "_", " ")))
		if h.Message != nil {
			row("error", *h.Message)
		}
		fired := "never"
		if h.FireCount > 0 {
			fired = countOf(h.FireCount, "time")
		}
		if h.LastFiredAt != nil && h.LastSignal != nil {
			fired += fmt.Sprintf(" (both edges), last %s %s", *h.LastSignal, timeText(h.LastFiredAt))
		}
		row("fired", fired)
		row("last input", timeText(h.LastInputAt))
		row("problems", h.troubles())
		if h.ClockHeld {
			row("held", "silence does not count: messages of the tenant are turned away or wait")
		}
		if len(h.MissingMetrics) > 0 {
			row("not sent yet", strings.Join(h.MissingMetrics, ", "))
		}
	} else {
		row("live", "not known: no instance runs, or no published version has the rule enabled")
	}
	_ = t.Flush() // the reader has gone
	var b bytes.Buffer
	if json.Indent(&b, r.Definition, "", "  ") == nil { // what does not read is not shown
		fmt.Fprintf(w, "definition\n%s\n", b.String())
	}
}
