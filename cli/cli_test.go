package cli

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/config"
	"weir/internal/dirlock"
	"weir/internal/rootkey"
	"weir/model"
	"weir/operate"
	"weir/spool"
	"weir/store"
)

func TestEveryKindOfErrorHasItsExitCodeAndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		code int
		hint string // part of it, "" for none
	}{
		"anything":           {errors.New("disk on fire"), ExitFailed, ""},
		"usage":              {usageError{errors.New("two, please")}, ExitUsage, "weir x --help"},
		"unknown command":    {unknownCommand(newRoot(&command{}), []string{"x"}), ExitUsage, "--help"},
		"config":             {config.Problems{{Reason: "bad"}}, ExitConfig, ""},
		"root key missing":   {fmt.Errorf("store: %w", &rootkey.MissingError{ID: "1", From: "f"}), ExitConfig, "put the key back"},
		"root key exposed":   {fmt.Errorf("store: %w", rootkey.ErrExposed), ExitConfig, ""},
		"root key is no key": {rootkey.ErrMalformed, ExitConfig, ""},
		"not running":        {operate.ErrNotRunning, ExitNotRunning, "weir run"},
		"locked":             {fmt.Errorf("lock: %w", &dirlock.LockedError{Dir: "d"}), ExitConflict, "--data"},
		"newer store":        {fmt.Errorf("store: %w", store.ErrVersion), ExitConflict, "newer"},
		"newer log":          {fmt.Errorf("spool: %w", spool.ErrVersion), ExitConflict, "newer"},
		"refused":            {model.NotFound("tenant", "acme"), ExitRefused, ""},
		"refused with hint":  {&model.Error{Code: model.CodeConflict, Hint: "try tomorrow"}, ExitRefused, "try tomorrow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code := exitCode(c.err)
			hint := hintOf(c.err, code, "weir x")
			if code != c.code || (hint == "") != (c.hint == "") || !strings.Contains(hint, c.hint) {
				t.Errorf("exit code %d, hint %q", code, hint)
			}
		})
	}
}

func TestAHintIsAddedToItsReasonOnly(t *testing.T) {
	t.Parallel()
	taken := model.NotUnique("tenant", "token", "acme")
	e, ok := errors.AsType[*model.Error](hinted(taken, model.ReasonNotUnique, "take another"))
	if !ok || e.Hint != "take another" || taken.Hint != "" {
		t.Errorf("hint %q; the error itself now has %q", e.Hint, taken.Hint)
	}
	for name, err := range map[string]error{"nothing": nil, "no refusal": errors.New("x"), "another reason": model.NotFound("tenant", "acme"),
		"has one": &model.Error{Reason: model.ReasonNotUnique, Hint: "its own"}} {
		if got := hinted(err, model.ReasonNotUnique, "take another"); got != err {
			t.Errorf("%s: became %v", name, got)
		}
	}
}

func TestBytesAreWrittenForPeople(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 10 << 10: "10 KiB", 1 << 20: "1.0 MiB",
		100 << 20: "100 MiB", 1 << 30: "1.0 GiB", 1 << 40: "1.0 TiB", 5000 << 40: "5000 TiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d: %q, not %q", n, got, want)
		}
	}
}

func TestTheJSONLogWritesDurationsAsPeopleDo(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := &command{io: IO{Stderr: &out}}
	c.logger(config.Logging{Level: "info", Format: "auto"}).Info("ready", "took", 1500*time.Millisecond, slog.Group("g", "since", time.Minute))
	if s := out.String(); !strings.Contains(s, `"took":"1.5s"`) || !strings.Contains(s, `"since":"1m0s"`) {
		t.Error(s)
	}
}

func TestTheConfigurationOfThePackagesCountsWhereNothingElseIsNamed(t *testing.T) {
	t.Parallel()
	installed := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(installed, []byte("data_dir: installed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, system string
		environ      []string
		flags        []string
		want         string
	}{
		{"nothing else", installed, nil, nil, "installed"},
		{"a directory", installed, nil, []string{"--data", "named"}, "named"},
		{"no file, said explicitly", installed, []string{"WEIR_CONFIG="}, nil, "./weir-data"},
		{"another file", "", []string{"WEIR_CONFIG=" + installed}, nil, "installed"},
		{"not installed", installed + ".none", nil, nil, "./weir-data"},
	} {
		var out, errs bytes.Buffer
		code := Run(t.Context(), append([]string{"config", "show"}, c.flags...), IO{Stdout: &out, Stderr: &errs, Environ: c.environ, SystemConfig: c.system})
		if want := fmt.Sprintf("data_dir: %q\n", c.want); code != ExitOK || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit %d, want %s in\n%s%s", c.what, code, want, &out, &errs)
		}
	}
}
