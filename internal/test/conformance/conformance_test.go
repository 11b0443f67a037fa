package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// fake is a test whose name and fate are given.
type fake struct {
	name   string
	failed bool
	fatal  string
}

func (f *fake) Helper()                        {}
func (f *fake) Name() string                   { return f.name }
func (f *fake) Failed() bool                   { return f.failed }
func (f *fake) Fatalf(format string, a ...any) { f.fatal = fmt.Sprintf(format, a...) }

func TestShownWritesIdPackageAndTest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	t.Setenv(LogVariable, path)
	Shown(&fake{name: "TestA/its_|part`,_here/and_deeper"}, "S1-001", "S3-113")
	Shown(&fake{name: "TestB", failed: true}, "S1-002")
	Shown(&fake{name: "TestC"}, "S2-100")
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "S1-001\tinternal/test/conformance\tTestA/its__part___here\nS3-113\tinternal/test/conformance\tTestA/its__part___here\nS2-100\tinternal/test/conformance\tTestC\n"
	if string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestShownRefusesWhatIsNoId(t *testing.T) {
	t.Setenv(LogVariable, "")
	for _, id := range []string{"", "S4-001", "S1-1", "S1-0001", "s1-001"} {
		f := &fake{name: "TestA"}
		if Shown(f, id); f.fatal == "" {
			t.Errorf("%q was taken", id)
		}
	}
}

func TestThePackageIsTakenOutOfAFunctionsName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"weir/gql_test.TestX.func1":            "gql",
		"weir/spool/bolt.(*log).x":             "spool/bolt",
		"weir/internal/test/conformance.TestY": "internal/test/conformance",
		"weir.TestZ":                           "weir",
		"weir/httpingest_test.newDoor[...].fn": "httpingest",
	} {
		if got := packageOf(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
