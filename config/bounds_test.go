//go:build unix

package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func put(t *testing.T, path string, text []byte) string {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A running instance reads its configuration at every reload, and a watched one every two seconds: a file that has become
// something else must neither make it wait nor fill its memory.
func TestAConfigurationThatIsNoPlainFileIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	plain := put(t, filepath.Join(dir, "weir.yaml"), []byte("auth:\n  service_secret_file: "+pipe+"\n"))
	for name, src := range map[string]Source{"the file": {File: pipe}, "the file of a secret": {File: plain}} {
		if _, err := Load(src); err == nil || !strings.Contains(err.Error(), "is no plain file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAConfigurationIsBounded(t *testing.T) {
	t.Parallel()
	large := make([]byte, maxFileBytes+1)
	for i := range large {
		large[i] = '\n'
	}
	if _, err := Load(Source{File: put(t, filepath.Join(t.TempDir(), "weir.yaml"), large)}); err == nil || !strings.Contains(err.Error(), "is larger than 256 KiB") {
		t.Errorf("a file too large: %v", err)
	}
	for _, c := range []struct {
		files, size int
		want        string
	}{
		{maxOverlays + 1, 1, "holds 257 files; 256 are read at most"},
		{5, maxFileBytes - 1, "larger than 1 MiB together"},
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, overlays), 0o700); err != nil {
			t.Fatal(err)
		}
		for i := range c.files {
			put(t, filepath.Join(dir, overlays, fmt.Sprintf("%03d.yaml", i)), large[:c.size])
		}
		if _, err := Load(Source{File: dir}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d files of %d bytes: %v", c.files, c.size, err)
		}
	}
}
