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
	return group("site", "The declared state: plan, apply, export", newSiteValidate(c), newSitePlan(c), newSiteApply(c), newSiteExport(c))
}

// siteFiles is cobra.MinimumNArgs with our exit code.
func siteFiles(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError{fmt.Errorf("%s: a site file is missing", cmd.CommandPath())}
	}
	return nil
}

// readSite reads site files here, where the command runs: their paths, their secrets and their variables are this user's.
func (c *command) readSite(files []string, withoutSecrets bool) (*operate.SiteDocument, error) {
	d, warnings, err := operate.ReadSite(operate.SiteSource{LookupEnv: c.lookupEnv, WithoutSecrets: withoutSecrets}, files...)
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
	var withoutSecrets bool
	cmd := &cobra.Command{
		Use:   "validate FILE…",
		Short: "Check site files without an instance",
		Long: "Read site files as site apply would and report every mistake with its file, line and column. What only an instance can\n" +
			"say (whether a name is taken, whether a rule compiles) is said by site plan.",
		Example: "  weir site validate site.yaml\n  weir site validate --no-secrets site.yaml devices.yaml",
		Args:    siteFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := c.readSite(args, withoutSecrets); err != nil {
				return err
			}
			c.show(map[string]any{"valid": true}, func(w io.Writer) { fmt.Fprintf(w, "%s valid\n", isOrAre(args)) })
			return nil
		},
	}
	cmd.Flags().BoolVar(&withoutSecrets, "no-secrets", false, "do not look for the files and variables of secrets")
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
		Long: "Show what site apply would change, and for whom: + is made, ~ changed, - deleted, ^ published. The plan is an apply\n" +
			"that is taken back, so it also says what would be refused. It works on a running instance and on a directory where\n" +
			"none runs.",
		Example: "  weir site plan site.yaml\n  weir site plan --exit-code site.yaml   # 5 when something would change",
		Args:    siteFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := c.withSite(cmd.Context(), args, "planning", func(ctx context.Context, op operate.Target, d *operate.SiteDocument) (*operate.SitePlan, error) {
				return operate.PlanSite.Ask(ctx, op, operate.SiteCommand{Document: d, Prune: prune})
			})
			if err != nil {
				return err
			}
			c.show(p, func(w io.Writer) { printPlan(w, p) })
			if exit && len(p.Changes) > 0 {
				return checkError{errors.New("the instance is not as declared: " + count(len(p.Changes), "change")), "weir site apply makes it so"}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&prune, "prune", false, "delete what is not declared, of the kinds whose lists the files have")
	cmd.Flags().BoolVar(&exit, "exit-code", false, "end with 5 when something would change")
	return cmd
}

func newSiteApply(c *command) *cobra.Command {
	var prune, yes bool
	var expect string
	cmd := &cobra.Command{
		Use:   "apply FILE…",
		Short: "Apply site files to the instance",
		Long: "Apply site files to the instance: all that they declare, or nothing when anything is refused. What the files do not\n" +
			"name is kept; --prune deletes it, of the kinds whose lists the files have, and asks for --yes when it would delete\n" +
			"something. Profiles whose draft is not what is published are published. Applying the same files again changes nothing.",
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
			c.show(p, func(w io.Writer) { printPlan(w, p) })
			return nil
		},
	}
	cmd.Flags().BoolVar(&prune, "prune", false, "delete what is not declared, of the kinds whose lists the files have")
	cmd.Flags().BoolVar(&yes, "yes", false, "delete without asking")
	cmd.Flags().StringVar(&expect, "expect", "", "digest of a plan: refuse when other changes would be made")
	return cmd
}

// withSite reads the files and works with them on the instance.
func (c *command) withSite(ctx context.Context, files []string, doing string, do func(context.Context, operate.Target, *operate.SiteDocument) (*operate.SitePlan, error)) (*operate.SitePlan, error) {
	d, err := c.readSite(files, false)
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

// progress says on a terminal that something takes its time. The function that it returns takes that back.
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

func newSiteExport(c *command) *cobra.Command {
	var e operate.SiteExport
	var out string
	var force bool
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the declared state as a site file, without secrets",
		Long: "Write what is there as a site file. Secrets are not written: applied to the same instance the file changes nothing;\n" +
			"applied to another one it says which secrets it lacks.",
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
	cmd.Flags().StringVar(&e.Tenant, "tenant", "", "of one tenant; default: of the whole instance")
	cmd.Flags().StringVarP(&out, "output", "o", "", "write it to a file; - for stdout")
	cmd.Flags().BoolVar(&force, "force", false, "write over a file that is there")
	return cmd
}
