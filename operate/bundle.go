package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"weir/health"
	"weir/ingest"
	"weir/model"
	"weir/store"
	"weir/web"
)

// BundleFile is one file of a bundle of diagnostics.
type BundleFile struct {
	Name string `json:"name"`
	What string `json:"what"` // for the table of contents
	Body []byte `json:"body"`
}

// How far back a bundle goes, and how much of the ledger it holds at most.
const (
	bundleDays     = 7
	maxBundleLines = 1500
)

// bundle gathers what a remote helper needs to understand the instance. No secret and nothing that a device has sent is
// in it: counts, figures, names of tenants and rules.
func (o *Operator) bundle(ctx context.Context, _ None) ([]BundleFile, error) {
	b := &bundler{now: time.Now()}
	b.json("config.json", "the effective configuration of the instance, without secrets", o.deps.Effective().Values())
	report, err := o.doctor(ctx, DoctorQuery{})
	b.either("doctor.json", "what weir doctor finds", report, err)
	status, err := o.status(ctx, None{})
	if err == nil {
		status.Reload = withoutLines(status.Reload)
	}
	b.either("status.json", "weir status", status, err)
	b.ledger(ctx, o.deps.Applier.Ledger(), o.deps.Store)
	metrics, err := o.metricsText(ctx)
	b.either("metrics.txt", "the metrics, as /metrics shows them", metrics, err)
	b.profile("goroutines.txt", "what every goroutine is doing", "goroutine", 1)
	b.profile("heap.pprof", "where memory is held, for go tool pprof", "heap", 0)
	b.machine(o.deps.Config.DataDir)
	return b.files, nil
}

// withoutLines leaves the lines of the configuration out of a report: one that is wrong may hold a secret where none is
// looked for.
func withoutLines(r *ReloadReport) *ReloadReport {
	if r == nil {
		return nil
	}
	clean := *r
	clean.Problems, clean.Warnings = slices.Clone(r.Problems), slices.Clone(r.Warnings)
	for i := range clean.Problems {
		clean.Problems[i].Source = ""
	}
	for i := range clean.Warnings {
		clean.Warnings[i].Source = ""
	}
	return &clean
}

// bundle is MakeBundle where nothing runs.
func (d *Directory) bundle(ctx context.Context, _ None) ([]BundleFile, error) {
	cfg := d.Config
	b := &bundler{now: time.Now()}
	b.json("config.json", "the configuration, without secrets", cfg.Values())
	b.json("doctor.json", "what weir doctor finds", d.examine(ctx, health.ThisMachine(), CheckTimeout))
	rest := d.lookAtRest(ctx)
	defer rest.close()
	if rest.opened == nil {
		b.ledger(ctx, ingest.NewStoredLedger(storeReader{rest.store}), rest.store)
	}
	b.machine(cfg.DataDir)
	return b.files, nil
}

// bundler gathers files. What cannot be had is named in the place of the file.
type bundler struct {
	now   time.Time
	files []BundleFile
}

// maxBundleFile bounds one file: the whole has to fit into an answer over the socket.
const maxBundleFile = 1 << 20

func (b *bundler) add(name, what string, body []byte) {
	if len(body) > maxBundleFile {
		body = append(body[:maxBundleFile:maxBundleFile], "\n… cut off here: it was too long\n"...)
	}
	b.files = append(b.files, BundleFile{name, what, body})
}

func (b *bundler) json(name, what string, v any) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		b.add(name, what, []byte(err.Error()))
		return
	}
	b.add(name, what, out.Bytes())
}

func (b *bundler) either(name, what string, v any, err error) {
	switch text, ok := v.([]byte); {
	case err != nil:
		b.add(name, what, []byte("it could not be had: "+err.Error()+"\n"))
	case ok:
		b.add(name, what, text)
	default:
		b.json(name, what, v)
	}
}

// ledger adds the ledger and the dead letters of the last days: hours and counts, nothing of what they hold.
func (b *bundler) ledger(ctx context.Context, l *ingest.Ledger, st reader) {
	since := b.now.Add(-bundleDays * 24 * time.Hour)
	lines, err := l.Lines(ctx, store.LedgerFilter{From: new(model.NanosOf(since).Hour())})
	what := fmt.Sprintf("the ledger of the last %d days", bundleDays)
	if len(lines) > maxBundleLines {
		what += fmt.Sprintf(": the newest %d lines of %d", maxBundleLines, len(lines))
		lines = lines[:maxBundleLines]
	}
	entries := make([]LedgerEntry, len(lines))
	for i := range lines {
		entries[i] = ledgerEntry(&lines[i])
	}
	b.either("ledger.json", what, entries, err)
	reasons := []store.ReasonCount{}
	err = st.Read(ctx, func(tx store.Tx) error {
		found, err := store.DeadLetterReasons(tx, model.MicrosOf(since))
		reasons = append(reasons, found...)
		return err
	})
	b.either("dead-letters.json", fmt.Sprintf("how many dead letters by reason in the last %d days; not the letters", bundleDays), reasons, err)
}

func (b *bundler) profile(name, what, profile string, debug int) {
	var out bytes.Buffer
	err := pprof.Lookup(profile).WriteTo(&out, debug)
	b.either(name, what, out.Bytes(), err)
}

func (b *bundler) machine(dir string) {
	b.add("files.txt", "the files of the data directory with their sizes, not what is in them", listing(dir))
	b.add("system.txt", "kernel, memory, and where the data directory is mounted", []byte(health.Facts(dir)))
}

// listing names the files under a directory.
func listing(dir string) []byte {
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			fmt.Fprintf(&out, "%v\n", err)
			return nil
		}
		if info, err := d.Info(); err == nil {
			rel, _ := filepath.Rel(dir, path) // it lies under dir
			fmt.Fprintf(&out, "%s %12d %s %s\n", info.Mode(), info.Size(), info.ModTime().UTC().Format(time.RFC3339), rel)
		}
		return nil
	})
	if err != nil {
		fmt.Fprintln(&out, err)
	}
	return []byte(out.String())
}

// metricsText is the page of /metrics, whether or not its listener is open.
func (o *Operator) metricsText(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil, err
	}
	p := page{header: http.Header{}}
	web.Metrics(o.deps.Metrics).ServeHTTP(&p, req)
	return p.Bytes(), nil
}

// page is an http.ResponseWriter that keeps the body.
type page struct {
	bytes.Buffer
	header http.Header
}

func (p *page) Header() http.Header { return p.header }
func (p *page) WriteHeader(int)     {}
