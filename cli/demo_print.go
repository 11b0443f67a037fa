package cli

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"

	"weir/operate"
)

// demoPrinter shows a demo. It is called from several goroutines.
type demoPrinter interface {
	intro(d *demo)
	show(m demoMoment)
	note(text string)
	summary(s *demoSummary)
	edges() int64 // how many edges were shown
}

// newDemoPrinter returns a printer to stdout; gone is called when its reader has left.
func newDemoPrinter(c *command, gone func()) demoPrinter {
	out := untilGone{c.io.Stdout, gone}
	if c.json {
		return &demoJSON{c: c, out: out}
	}
	return &demoText{out: out, color: isTerminal(c.io.Stdout) && c.getenv("NO_COLOR") == "" && c.getenv("TERM") != "dumb"}
}

// demoText shows a demo to people.
type demoText struct {
	out   io.Writer
	color bool
	mu    sync.Mutex
	shown atomic.Int64
}

// Colors, by what they mean here (ECMA-48 §8.3.117).
const (
	inBold  = "1"
	inRed   = "1;31"
	inGreen = "32"
	inGrey  = "2"
)

func (t *demoText) paint(how, text string) string {
	if !t.color {
		return text
	}
	return "\x1b[" + how + "m" + text + "\x1b[0m"
}

func (t *demoText) printf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, format, args...)
}

func (t *demoText) intro(d *demo) {
	api, ingest := "http://"+d.at.At(operate.APIListener), "http://"+d.at.At(operate.IngestListener)
	program := programName()
	t.printf("%s\n\n", t.paint(inBold, "A throw-away Weir. Ctrl-C ends it and removes everything."))
	t.printf("  api       %s, explorer at %s/api/event-management/graphiql\n", api, api)
	t.printf("  ingest    %s\n", ingest)
	t.printf("  mqtt      %s\n", d.at.At(operate.MQTTListener))
	t.printf("  metrics   http://%s/metrics\n", d.at.At(operate.MetricsListener))
	t.printf("  data      %s\n", d.cfg.DataDir)
	t.printf("  sign in   %s\n  password  %s\n", demoEmail, d.api.password)
	t.printf("\nTry it in another terminal:\n\n")
	t.printf("  %[1]s firings --data %[2]s\n  %[1]s tail --data %[2]s\n", program, d.cfg.DataDir)
	t.printf("  %s api %s '{measurementEvents(criteria:{pageNumber:1,pageSize:5}){results{deviceToken name value}}}' --data %s\n", program, eventArea, d.cfg.DataDir)
	t.printf("\nA reading of your own, over HTTP; it will be too hot:\n\n")
	t.printf("  curl -i %s/%s/%s/events -d '%s'\n\n", ingest, d.byHand.instance, demoTenant, d.byHandEvent())
	t.printf("%d devices send their temperature each second; the rule %q raises above %g °C.\n\n", len(d.cast), demoRule, demoThreshold)
	t.printf("%s\n", t.paint(inGrey, fmt.Sprintf("%-8s  %-10s  %s", "TIME", "DEVICE", "TEMPERATURE")))
}

// byHandEvent is an event that the reader may send; without a time it counts from its receipt.
func (d *demo) byHandEvent() string {
	return fmt.Sprintf(`{"credentialType":"ACCESS_TOKEN","credentialId":%q,"eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"99.9"}}]}}`,
		d.byHand.secret)
}

// programName is how to call this program again: as it was called, without the directory where a shell finds it by its name.
func programName() string {
	if len(os.Args) == 0 || os.Args[0] == "" {
		return "weir"
	}
	if found, err := exec.LookPath(filepath.Base(os.Args[0])); err == nil && found == os.Args[0] {
		return filepath.Base(os.Args[0])
	}
	return os.Args[0]
}

func (t *demoText) show(m demoMoment) {
	at := m.Occurred.Local().Format("15:04:05")
	switch {
	case m.Edge == "":
		t.printf("%s  %-10s  %6.1f °C\n", t.paint(inGrey, at), m.Device, deref(m.Value))
		return
	case m.Edge == "raised":
		t.printf("%s  %-10s  %s\n", t.paint(inGrey, at), m.Device,
			t.paint(inRed, fmt.Sprintf("FIRING  %s raised: %.1f is over %g (%s)", m.Rule, deref(m.Value), demoThreshold, m.Severity)))
	default:
		t.printf("%s  %-10s  %s\n", t.paint(inGrey, at), m.Device, t.paint(inGreen, fmt.Sprintf("FIRING  %s %s", m.Rule, m.Edge)))
	}
	t.shown.Add(1)
}

func deref(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

func (t *demoText) note(text string) { t.printf("%s\n", t.paint(inGrey, "("+text+")")) }

func (t *demoText) edges() int64 { return t.shown.Load() }

func (t *demoText) summary(s *demoSummary) {
	t.printf("\n%s\n", t.paint(inBold, "The demo has ended."))
	t.printf("  devices   %d messages sent and acknowledged, %d refused\n", s.Sent, s.Refused)
	balance := t.paint(inGreen, "balanced")
	if !s.Balanced {
		balance = t.paint(inRed, "NOT balanced")
	}
	t.printf("  ledger    %d received, %d stored with %d readings: %s\n", s.Received, s.Stored, s.Readings, balance)
	t.printf("  rule      %d firings counted, %d shown above; weir firings lists those of an instance\n", s.Fired, s.Seen)
	t.printf("  removed   %s\n", s.Dir)
}

// demoJSON shows a demo to programs: one object a line, each with a member that names its kind.
type demoJSON struct {
	c     *command
	out   io.Writer
	mu    sync.Mutex
	shown atomic.Int64
}

func (j *demoJSON) line(kind string, v any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.c.writeLine(j.out, map[string]any{kind: v})
}

func (j *demoJSON) intro(d *demo) {
	j.line("demo", map[string]any{"listeners": d.at, "dataDir": d.cfg.DataDir, "email": demoEmail, "password": d.api.password,
		"tenant": demoTenant, "devices": len(d.cast)})
}

func (j *demoJSON) show(m demoMoment) {
	if m.Edge == "" {
		j.line("reading", m)
		return
	}
	j.line("firing", m)
	j.shown.Add(1)
}

func (j *demoJSON) note(text string)       { j.line("note", text) }
func (j *demoJSON) edges() int64           { return j.shown.Load() }
func (j *demoJSON) summary(s *demoSummary) { j.line("summary", s) }
