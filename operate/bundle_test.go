package operate

import (
	"bytes"
	"testing"

	"weir/config"
	"weir/internal/yamldoc"
)

// A bundle goes to support: a line that did not read may hold what is not for them.
func TestABundleHoldsNoLineOfTheConfiguration(t *testing.T) {
	t.Parallel()
	line := yamldoc.Problem{File: "weir.yaml", Line: 3, Reason: "is wrong", Source: "  s3rv1ce: hunter2"}
	r := &ReloadReport{Outcome: ReloadFailed, Problems: config.Problems{line}, Warnings: []config.Warning{line}}
	var b bundler
	b.json("status.json", "", &Status{Reload: withoutLines(r)})
	if body := b.files[0].Body; bytes.Contains(body, []byte("hunter2")) || !bytes.Contains(body, []byte("is wrong")) {
		t.Errorf("%s", body)
	}
	if r.Problems[0].Source == "" || r.Warnings[0].Source == "" {
		t.Error("weir status itself shows the line no more")
	}
}
