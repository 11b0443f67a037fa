package operate

import (
	"weir/backup"
	"weir/ingest/trace"
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

// ReadSite reads the files of a site.
func ReadSite(src SiteSource, files ...string) (*SiteDocument, []string, error) {
	return site.Read(src, files...)
}
