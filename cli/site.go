package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/operate"
)

func newSite(c *command) *cobra.Command {
	return group("site", "The declared state: plan, apply, export", newSiteValidate(c), newSitePlan(c), newSiteApply(c), newSiteExport(c), newSiteSchema(c))
}

// siteFiles is cobra.MinimumNArgs with the exit code for usage errors.
func siteFiles(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError{fmt.Errorf("%s: a site file is missing", cmd.CommandPath())}
	}
	return nil
}

// readSite reads site files here, where the command runs: their paths, their secrets and their variables are this user's.
// Everything that needs no instance is checked here, where each mistake has its position.
func (c *command) readSite(files []string, src operate.SiteSource) (*operate.SiteDocument, error) {
	src.LookupEnv, src.Checked = c.lookupEnv, true
	d, warnings, err := operate.ReadSite(src, files...)
	for _, w := range warnings {
		c.note("warning: %s", w)
	}
	return d, err
}

func (c *command) lookupEnv(name string) (string, bool) {
	for i := len(c.io.Environ) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(c.io.Environ[i], name+"="); ok {
			return v, true
		}
	}
	return "", false
}

func newSiteValidate(c *command) *cobra.Command {
	var withoutSecrets, partial bool
	cmd := &cobra.Command{
		Use:   "validate FILE…",
		Short: "Check site files without an instance",
		Long: "Read site files as site apply would, check every value, compile the rules and\n" +
			"report every mistake with its file, line and column. With --partial a field\n" +
			"that is required may be missing, because the instance has the entity already.\n" +
			"site plan also reports what only an instance can check, such as whether an\n" +
			"external id is taken.",
		Example: "  weir site validate site.yaml\n  weir site validate --no-secrets site.yaml devices.yaml",
		Args:    siteFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := c.readSite(args, operate.SiteSource{WithoutSecrets: withoutSecrets, Complete: !partial}); err != nil {
				return err
			}
			c.show(map[string]any{"valid": true}, func(w io.Writer) { fmt.Fprintf(w, "%s valid\n", isOrAre(args)) })
			return nil
		},
	}
	cmd.Flags().BoolVar(&withoutSecrets, "no-secrets", false, "do not read files and variables with secrets")
	cmd.Flags().BoolVar(&partial, "partial", false, "allow required fields to be missing: the instance has them")
	return cmd
}

func isOrAre(files []string) string {
	if len(files) == 1 {
		return files[0] + " is"
	}
	return strings.Join(files, ", ") + " are"
}

func newSitePlan(c *command) *cobra.Command {
	var prune, exit bool
	cmd := &cobra.Command{
		Use:   "plan FILE…",
		Short: "Show what site apply would change",
		Long: "Show what site apply would change: + created, ~ changed, - deleted, ^\n" +
			"published. The plan is an apply that is rolled back, so it also reports what\n" +
			"would be refused. It works on a running instance and on a data directory that\n" +
			"no instance uses. The rule tests (*.ruletest) in the directories of the files run\n" +
			"if they name one of the files; the exit code is 5 if one of them failed.",
		Example: "  weir site plan site.yaml\n  weir site plan --exit-code site.yaml   # 5 when something would change",
		Args:    siteFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			tests, err := c.testsBeside(args)
			if err != nil {
				return err
			}
			p, err := c.withSite(cmd.Context(), args, "planning", func(ctx context.Context, op operate.Target, d *operate.SiteDocument) (*operate.SitePlan, error) {
				return operate.PlanSite.Ask(ctx, op, operate.SiteCommand{Document: d, Prune: prune})
			})
			if err != nil {
				return err
			}
			c.showTested(p, tests)
			if err := tests.failure(); err != nil {
				return err
			}
			if exit && len(p.Changes) > 0 {
				return checkError{errors.New("the instance is not as declared: " + count(len(p.Changes), "change")), "weir site apply makes it so"}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&prune, "prune", false, "delete undeclared entities of the kinds that have a list in the files")
	cmd.Flags().BoolVar(&exit, "exit-code", false, "exit with 5 if something would change")
	return cmd
}

func newSiteApply(c *command) *cobra.Command {
	var prune, yes bool
	var expect string
	cmd := &cobra.Command{
		Use:   "apply FILE…",
		Short: "Apply site files to the instance",
		Long: "Apply site files to the instance: everything that they declare, or nothing if\n" +
			"anything is refused. Entities that the files do not name are kept; --prune\n" +
			"deletes those whose kind has a list in the files, and needs --yes to delete\n" +
			"anything. A profile is published if its draft differs from the published\n" +
			"version. Applying the same files again changes nothing.",
		Example: "  weir site apply site.yaml\n  weir site apply --prune --yes site.yaml\n  weir site apply --expect \"$(weir site plan --json site.yaml | jq -r .digest)\" site.yaml",
		Args:    siteFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := c.withSite(cmd.Context(), args, "applying", func(ctx context.Context, op operate.Target, d *operate.SiteDocument) (*operate.SitePlan, error) {
				if prune && !yes {
					p, err := operate.PlanSite.Ask(ctx, op, operate.SiteCommand{Document: d, Prune: true})
					if err != nil {
						return nil, err
					}
					if n := p.Count(operate.SiteDelete); n > 0 {
						return nil, usageError{fmt.Errorf("this would delete %s: look at them with weir site plan --prune, then say --yes", count(n, "thing"))}
					}
				}
				return operate.ApplySite.Ask(ctx, op, operate.SiteCommand{Document: d, Prune: prune, Expect: expect})
			})
			if err != nil {
				return err
			}
			c.showPlan(p)
			return nil
		},
	}
	cmd.Flags().BoolVar(&prune, "prune", false, "delete undeclared entities of the kinds that have a list in the files")
	cmd.Flags().BoolVar(&yes, "yes", false, "delete without asking")
	cmd.Flags().StringVar(&expect, "expect", "", "digest of a plan: refuse other changes than it shows")
	return cmd
}

// withSite reads the files and works with them on the instance.
func (c *command) withSite(ctx context.Context, files []string, doing string, do func(context.Context, operate.Target, *operate.SiteDocument) (*operate.SitePlan, error)) (*operate.SitePlan, error) {
	d, err := c.readSite(files, operate.SiteSource{})
	if err != nil {
		return nil, err
	}
	op, err := c.operator(ctx)
	if err != nil {
		return nil, err
	}
	defer op.Close()
	defer c.progress(doing)()
	return do(ctx, op, d)
}

// progress shows on a terminal that a long step runs. The returned function removes the line.
func (c *command) progress(doing string) (done func()) {
	if !isTerminal(c.io.Stderr) {
		return func() {}
	}
	stop, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		began := time.Now()
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-stop:
				fmt.Fprint(c.io.Stderr, "\r\x1b[K")
				return
			case <-t.C:
				fmt.Fprintf(c.io.Stderr, "\r%s … %s", doing, time.Since(began).Round(time.Second))
			}
		}
	}()
	return func() {
		close(stop)
		<-gone
	}
}

// testedPlan is a plan with the tests of the rules beside the files, nil for none.
type testedPlan struct {
	*operate.SitePlan
	RuleTests *testedRules `json:"ruleTests,omitempty"`
}

// testsBeside runs the tests of rules beside site files, nil where there are none.
func (c *command) testsBeside(files []string) (*testedRules, error) {
	tests, err := operate.RuleTestsBeside(c.ruleSource(), files...)
	if err != nil || len(tests) == 0 {
		return nil, err
	}
	return c.testRules(tests)
}

func (c *command) showPlan(p *operate.SitePlan) { c.showTested(p, nil) }

// showTested shows a plan and what the tests of rules have found. As JSON the warnings are a part of it.
func (c *command) showTested(p *operate.SitePlan, tests *testedRules) {
	if !c.json {
		c.warnAll(p.Warnings)
	}
	c.show(testedPlan{p, tests}, func(w io.Writer) {
		printPlan(w, p)
		for i := range p.Undeclared {
			fmt.Fprintln(w, printable(p.Undeclared[i].String()))
		}
		if tests != nil {
			printRuleTests(w, tests, false)
		}
	})
}

func printPlan(w io.Writer, p *operate.SitePlan) {
	for i := range p.Changes {
		fmt.Fprintln(w, printable(p.Changes[i].String()))
	}
	if len(p.Changes) == 0 {
		fmt.Fprintln(w, "nothing to change: everything is as declared")
		return
	}
	form := map[bool]string{true: "%d %s", false: "%d to be %s"}[p.Applied]
	var parts []string
	for _, o := range []struct {
		op   operate.SiteOp
		done string
	}{{operate.SiteCreate, "made"}, {operate.SiteUpdate, "changed"}, {operate.SiteDelete, "deleted"}, {operate.SitePublish, "published"}} {
		if n := p.Count(o.op); n > 0 {
			parts = append(parts, fmt.Sprintf(form, n, o.done))
		}
	}
	fmt.Fprintf(w, "%s; digest %s\n", strings.Join(parts, ", "), p.Digest)
}

// siteText is the last apply on one line.
func siteText(s *operate.SiteStatus) string {
	changes := "nothing to change"
	if s.Changes > 0 {
		changes = count(s.Changes, "change")
	}
	return fmt.Sprintf("%s applied at %s: %s; digest %s", strings.Join(s.Files, ", "), s.At.Format(time.RFC3339), changes, s.Digest)
}

func newSiteSchema(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of site files",
		Long: "Print the JSON Schema (2020-12) of site files. Editors use it to complete keys\n" +
			"and to underline mistakes. What two values must be to each other only weir site\n" +
			"validate checks.",
		Example: "  weir site schema > site.schema.json",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			c.writeJSON(c.io.Stdout, operate.SiteSchema())
			return nil
		},
	}
}

func newSiteExport(c *command) *cobra.Command {
	var e operate.SiteExport
	var out string
	var force bool
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the declared state as a site file, without secrets",
		Long: "Write the state of the instance as a site file, without secrets. Applied to the\n" +
			"same instance the file changes nothing; applied to another one it reports which\n" +
			"secrets are missing.",
		Example: "  weir site export -o site.yaml\n  weir site export --tenant acme",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			op, err := c.operator(cmd.Context())
			if err != nil {
				return err
			}
			defer op.Close()
			x, err := operate.ExportSite.Ask(cmd.Context(), op, e)
			if err != nil {
				return err
			}
			if out != "" && out != "-" {
				return writeNew(out, x.YAML, ownFile, force)
			}
			c.show(x, func(w io.Writer) { fmt.Fprint(w, x.YAML) })
			return nil
		},
	}
	cmd.Flags().StringVar(&e.Tenant, "tenant", "", "only this tenant (default: the whole instance)")
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write; - for stdout")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite an existing file")
	return cmd
}
