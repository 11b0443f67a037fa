package cli

import (
	"bytes"
	"strings"
	"testing"

	"weir/config"
	"weir/health"
)

func TestAConfigurationIsReportedWithoutItsLines(t *testing.T) {
	t.Parallel()
	ps := config.Problems{{File: "weir.yaml", Line: 3, Column: 5, Path: "auth.superuser_pasword", Reason: "is not a key", Source: "  superuser_pasword: hunter2"}}
	for want, f := range map[health.Result]health.Finding{health.Failure: configFinding(ps, nil, false), health.Warning: configFinding(nil, ps, false), health.OK: configFinding(nil, nil, false)} {
		if f.Result != want || f.ID != "config" || strings.Contains(f.Text, "hunter2") || want != health.OK && !strings.Contains(f.Text, "weir.yaml:3:5: auth.superuser_pasword: is not a key") {
			t.Errorf("%+v", f)
		}
	}
}

func TestAReportIsALineForEachFindingAndOneForWhatToDo(t *testing.T) {
	t.Parallel()
	r := &health.Report{}
	for _, f := range []health.Finding{{ID: "clock", Result: health.OK, Text: "right", Hint: "never shown"}, {ID: "data-dir", Result: health.Failure, Text: "gone\naway", Hint: "bring it back"},
		{ID: "x", Result: health.Warning, Text: "hm", Hint: "look"}} {
		r.Add(f)
	}
	var out bytes.Buffer
	printReport(&out, r)
	want := "ok    clock     right\nfail  data-dir  gone; away\n                hint: bring it back\nwarn  x         hm\n                hint: look\n"
	if out.String() != want {
		t.Errorf("%q\n%q", out.String(), want)
	}
	if err := reportError(r, false); exitCode(err) != ExitCheck || err.Error() != "1 failure, 1 warning" {
		t.Error(err)
	}
	r.Findings = r.Findings[2:]
	if err := reportError(r, false); err != nil {
		t.Error(err)
	}
	if err := reportError(r, true); exitCode(err) != ExitCheck {
		t.Error(err)
	}
}
