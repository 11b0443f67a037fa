package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"weir/operate"
	"weir/site"
)

// hostile clears the screen in two spellings, turns the direction round, begins a line of its own and rings.
const hostile = "a\x1b[2J\u009b2J\u202eb\rok\vx\fy\nweir: all is well\a\x7f"

func TestNothingThatIsShownSteersTheTerminal(t *testing.T) {
	t.Parallel()
	var out, stderr bytes.Buffer
	c := &command{io: IO{Stdout: &out, Stderr: &stderr}}
	c.show(nil, func(w io.Writer) { fmt.Fprintln(w, hostile) })
	c.note("%s", hostile)
	c.report(errors.New(hostile), 1, hostile)
	for name, text := range map[string]string{"data": out.String(), "messages": stderr.String()} {
		if strings.ContainsAny(text, "\x1b\u009b\u202e\r\v\f\a\x7f") {
			t.Errorf("%s: %q", name, text)
		}
	}
	out.Reset()
	c.json = true
	c.show(map[string]string{"name": hostile}, nil)
	if strings.ContainsAny(out.String(), "\x1b\u009b\u202e\r\v\f\a\x7f") {
		t.Errorf("JSON: %q", out.String())
	}
	var back map[string]string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back["name"] != hostile {
		t.Errorf("JSON does not say what it was: %q, %v", back["name"], err)
	}
}

func TestAValueDoesNotBeginALineOfItsOwn(t *testing.T) {
	t.Parallel()
	for name, print := range map[string]func(io.Writer){
		"ledger dead-letters": func(w io.Writer) {
			printDeadLetters(w, []operate.DeadLetter{{Device: hostile, Summary: hostile, Detail: hostile, Occurred: time.Unix(0, 0)}})
		},
		"tenant list": func(w io.Writer) { printTenants(w, []operate.TenantLine{{Name: hostile}}) },
		"admin list":  func(w io.Writer) { printAdmins(w, []operate.AdminLine{{Email: hostile}}) },
		"device list": func(w io.Writer) {
			printDevices(w, &deviceList{Devices: []deviceSummary{{Name: new(hostile), ExternalID: new(hostile)}}})
		},
		"site plan": func(w io.Writer) {
			printPlan(w, &site.Plan{Changes: []site.Change{{Op: site.Create, Kind: "identity", Name: hostile}}})
		},
	} {
		var out bytes.Buffer
		print(&out)
		if strings.Contains(out.String(), "\nweir: all is well") {
			t.Errorf("%s: %q", name, out.String())
		}
	}
}
