package rootkey

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var (
	someKey  = Key(bytes.Repeat([]byte{7}, Size))
	someText = base64.StdEncoding.EncodeToString(someKey[:])
)

func keyFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "root.key")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // past the umask
		t.Fatal(err)
	}
	return path
}

func TestAKeyIsMadeOnceAndReadFromThenOn(t *testing.T) {
	dir := t.TempDir()
	o := Options{File: filepath.Join(dir, "root.key")}
	made, err := Load(o)
	if err != nil || !made.Created || made.Key == (Key{}) {
		t.Fatal(made, err)
	}
	info, err := os.Stat(o.File)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	o.SealedUnder = made.Key.ID()
	again, err := Load(o)
	if err != nil || again.Created || again.Key != made.Key || len(again.Warnings) != 0 {
		t.Error(again, err)
	}
	if entries, err := os.ReadDir(dir); len(entries) != 1 || err != nil {
		t.Error("something was left behind:", entries, err)
	}
	other, err := Load(Options{File: filepath.Join(t.TempDir(), "root.key")})
	if err != nil || other.Key == made.Key {
		t.Error("two keys are the same", err)
	}
}

func TestTheVariableGoesBeforeTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "root.key")
	res, err := Load(Options{File: path, Env: someText})
	if err != nil || res.Key != someKey || res.Created {
		t.Error(res, err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a file was made")
	}
}

func TestFormsOfAKey(t *testing.T) {
	for name, text := range map[string]string{
		"base64 with an end of line": someText + "\n",
		"base64 without padding":     strings.TrimRight(someText, "="),
		"bytes":                      string(someKey[:]),
	} {
		res, err := Load(Options{File: keyFile(t, text, 0o600)})
		if err != nil || res.Key != someKey {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{"", "\n", "abc", someText[1:], someText + "AAAA", strings.Repeat("A", 5000), strings.Repeat("%", 44)} {
		_, err := Load(Options{File: keyFile(t, text, 0o600)})
		if !errors.Is(err, ErrMalformed) || len(text) > 2 && strings.Contains(err.Error(), text) {
			t.Errorf("%.20q: %v", text, err)
		}
		if _, err := Load(Options{Env: text + "!"}); !errors.Is(err, ErrMalformed) {
			t.Errorf("variable %.20q: %v", text, err)
		}
	}
}

func TestNoNewKeyWhileSomethingIsSealed(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "root.key")
	for _, o := range []Options{
		{File: missing, SealedUnder: "0011223344556677"},
		{File: keyFile(t, someText, 0o600), SealedUnder: "0011223344556677"},
		{Env: someText, SealedUnder: "0011223344556677"},
	} {
		_, err := Load(o)
		m, ok := errors.AsType[*MissingError](err)
		if !ok || m.ID != o.SealedUnder || !strings.Contains(err.Error(), o.SealedUnder) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("a key was made")
	}
}

func TestAnOpenKeyFile(t *testing.T) {
	for _, mode := range []os.FileMode{0o644, 0o604, 0o606} {
		if _, err := Load(Options{File: keyFile(t, someText, mode)}); !errors.Is(err, ErrExposed) {
			t.Errorf("%o: %v", mode, err)
		}
	}
	res, err := Load(Options{File: keyFile(t, someText, 0o640)})
	if err != nil || len(res.Warnings) != 1 || res.Key != someKey {
		t.Error(res, err)
	}
}

func TestAKeyIsNeverPrinted(t *testing.T) {
	text := fmt.Sprintf("%v %s %+v %#v", someKey, someKey, Result{Key: someKey}, someKey)
	if strings.Contains(text, "7, 7") || strings.Contains(text, "7 7") || !strings.Contains(text, someKey.ID()) {
		t.Error(text)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(someText))
	f.Add(someKey[:])
	f.Add([]byte(""))
	f.Add([]byte(" \n=="))
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := parse(text)
		if err != nil {
			if !errors.Is(err, ErrMalformed) || k != (Key{}) {
				t.Error(k, err)
			}
			return
		}
		if back, err := parse([]byte(base64.StdEncoding.EncodeToString(k[:]))); back != k || err != nil {
			t.Error(back, err)
		}
	})
}

func TestALookMakesNoKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "root.key")
	if _, err := Look(Options{File: path}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none, and nothing is sealed: %v", err)
	}
	if _, err := Look(Options{File: path, SealedUnder: someKey.ID()}); err == nil {
		t.Error("none, and something is sealed")
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a look has made a key: %v", err)
	}
	if res, err := Look(Options{File: keyFile(t, someText, 0o600), SealedUnder: someKey.ID()}); err != nil || res.Key != someKey {
		t.Error(res, err)
	}
	if res, err := Look(Options{File: path, Env: someText}); err != nil || res.Key != someKey {
		t.Error(res, err)
	}
}
