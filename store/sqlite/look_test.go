package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"weir/store"
)

func made(t *testing.T, texts ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.db")
	db, err := open(t.Context(), path, Options{}, some(texts...))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAnInspectorReportsPendingMigrationsAndChangesNothing(t *testing.T) {
	t.Parallel()
	path := made(t, three[:2]...)
	o, err := look(t.Context(), path, some(three...))
	if err != nil {
		t.Fatal(err)
	}
	if o.Pending != 1 {
		t.Errorf("%d migrations are to come", o.Pending)
	}
	if err := o.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := o.Read(t.Context(), func(tx store.Tx) error {
		_, err := tx.Exec(`INSERT INTO a (x) VALUES ('y')`)
		return err
	}); err == nil {
		t.Error("an inspector has written")
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if o, err = look(t.Context(), path, some(three...)); err != nil || o.Pending != 1 {
		t.Fatalf("the second look: %+v, %v", o, err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}

func TestAnInspectorDistinguishesANewerAndADamagedDatabase(t *testing.T) {
	t.Parallel()
	if _, err := look(t.Context(), made(t, three...), some(three[:1]...)); !errors.Is(err, store.ErrVersion) {
		t.Errorf("a newer one: %v", err)
	}
	path := filepath.Join(t.TempDir(), "weir.db")
	if _, err := look(t.Context(), path, some(three...)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
	if err := os.WriteFile(path, []byte("this is no database, and long enough to be seen as none: ................................................."), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := look(t.Context(), path, some(three...)); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("no database: %v", err)
	}
}

func TestAnInspectorsCheckFindsABrokenPageAndEndsWithItsContext(t *testing.T) {
	t.Parallel()
	path := made(t, three...)
	o, err := look(t.Context(), path, some(three...))
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := o.Check(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	junk := make([]byte, 4096)
	for i := range junk {
		junk[i] = 0xff
	}
	if _, err := f.WriteAt(junk, info.Size()-4096); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if o, err = look(t.Context(), path, some(three...)); err != nil {
		return // so broken that it does not even open
	}
	if err := o.Check(t.Context()); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("a broken page: %v", err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}
