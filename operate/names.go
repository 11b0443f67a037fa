package operate

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"weir/backup"
	"weir/ingest/trace"
	"weir/rules"
	"weir/rules/ruletest"
	"weir/site"
	"weir/store"
)

// What goes in and out of verbs, and how a client prepares it, under one name for the command line.
type (
	TraceQuery   = trace.Query
	TraceReport  = trace.Report
	Traced       = trace.Traced
	Retained     = store.Retained
	BackupReport = backup.Report
	BackupDraft  = backup.Draft
	SiteDocument = site.Document
	SiteSource   = site.Source
	SitePlan     = site.Plan
	SiteOp       = site.Op
	SiteProblems = site.Problems

	DeclaredRule    = site.DeclaredRule
	ExplainedRule   = site.ExplainedRule
	ExplainedAction = rules.ExplainedAction
	RuleProblems    = site.RuleProblems
	RuleReport      = ruletest.Report
	CompiledCanvas  = site.CompiledCanvas
	RuleDraft       = site.RuleDraft
	Preview         = site.Preview
	PreviewFiring   = site.PreviewFiring
	Pinned          = site.Pinned
)

// MaxDevicePage is the maximum of devices on one page.
const MaxDevicePage = store.MaxPageSize

// The changes of a site.
const (
	SiteCreate  = site.Create
	SiteUpdate  = site.Update
	SiteDelete  = site.Delete
	SitePublish = site.Publish
)

// AllRetained are the kinds of history that are removed with time.
func AllRetained() []Retained { return store.AllKept[:] }

// NewBackupDraft is a file that becomes a backup once it is kept.
func NewBackupDraft(file string) (*BackupDraft, error) { return backup.NewDraft(file) }

// SiteSchema is the JSON Schema of a site file.
func SiteSchema() map[string]any { return site.Schema() }

// SiteKinds are the kinds of entities that a site file declares, as its lists are called: those of a tenant, and those of the instance.
func SiteKinds() (tenant, instance []string) { return site.DefaultFormat().Kinds() }

// KindOfInstance reports whether the entities of a kind belong to the instance and to no tenant.
func KindOfInstance(kind string) bool { return site.DefaultFormat().OfInstance(kind) }

// ReadSite reads the files of a site.
func ReadSite(src SiteSource, files ...string) (*SiteDocument, []string, error) {
	return site.Read(src, files...)
}

// ReadRules reads the rules of a file and compiles them.
func ReadRules(src SiteSource, file string) ([]DeclaredRule, []string, error) {
	return site.ReadRules(src, file)
}

// ExplainRules explains the rules of a file, or those that a reference names.
func ExplainRules(src SiteSource, file, reference string) ([]ExplainedRule, []string, error) {
	return site.ExplainRules(src, file, reference)
}

// CompileCanvas compiles the file of a canvas to a rule; with an empty profile that of its first source.
func CompileCanvas(src SiteSource, file, profile string) (*CompiledCanvas, []string, error) {
	return site.CompileCanvas(src, file, profile)
}

// ShowAsCanvas shows a rule of a file as a canvas.
func ShowAsCanvas(src SiteSource, file, reference, profile string) (json.RawMessage, []string, error) {
	return site.ShowAsCanvas(src, file, reference, profile)
}

// ReadDraft reads the only rule of a file, or the one that a reference names, as a preview takes it.
func ReadDraft(src SiteSource, file, reference, profile string) (*RuleDraft, []string, error) {
	return site.ReadDraft(src, file, reference, profile)
}

// PreviewEvents runs a draft over a file of events, without an instance.
func PreviewEvents(ctx context.Context, d *RuleDraft, name string, events io.Reader, from, to time.Time, trace bool) (*Preview, error) {
	return site.PreviewEvents(ctx, d, name, events, from, to, trace)
}

// PinEvents records what a file of events gives to a draft.
func PinEvents(ctx context.Context, d *RuleDraft, name string, events io.Reader, from, to time.Time, device string) (*Pinned, error) {
	return site.PinEvents(ctx, d, name, events, from, to, device)
}

// PinTest writes the rule test that history comes to.
func PinTest(src SiteSource, p *Pinned, d *RuleDraft, test, source, output string) (string, error) {
	return site.PinTest(src, p, d, test, source, output)
}

// AsRuleProblems returns what is wrong with files of rules or of their tests.
func AsRuleProblems(err error) (RuleProblems, bool) { return errors.AsType[RuleProblems](err) }

// RuleTestFiles returns the files of rule tests among files, and those beside the others that name them.
func RuleTestFiles(src SiteSource, files ...string) (tests []string, err error) {
	var others []string
	for _, f := range files {
		if strings.HasSuffix(f, ruletest.Extension) {
			tests = append(tests, f)
		} else {
			others = append(others, f)
		}
	}
	beside, err := site.RuleTestsBeside(src, others...)
	return append(tests, beside...), err
}

// RuleTestsBeside returns the files of rule tests beside site files that name one of them.
func RuleTestsBeside(src SiteSource, files ...string) ([]string, error) {
	return site.RuleTestsBeside(src, files...)
}

// RunRuleTests runs files of rule tests.
func RunRuleTests(src SiteSource, files ...string) ([]RuleReport, []string, error) {
	return site.RunRuleTests(src, files...)
}
