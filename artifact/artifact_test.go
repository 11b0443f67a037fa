package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"testing"
	"time"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	"weir/store/sqlite"
)

func service(t *testing.T, one, all int64) (*Service, *sqlite.DB) {
	db := fixture.Store(t)
	return New(Deps{Store: db, Writer: store.Direct{Store: db, Now: time.Now}, Limits: func() (int64, int64) { return one, all }}), db
}

func member(tenant int64) *model.Principal {
	return fixture.Member("ann", "acme", tenant, model.DeviceWrite)
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func TestAnArtifactIsReadAsItWasWritten(t *testing.T) {
	s, db := service(t, 1<<20, 1<<20)
	want := pattern(5*partBytes + 17)
	a, made, err := s.Put(t.Context(), member(1), Upload{Token: "fw-2", Name: "meter", Version: "2.0", SHA256: sumOf(want)}, bytes.NewReader(want))
	if err != nil || !made || a.Bytes != int64(len(want)) || a.SHA256 != sumOf(want) {
		t.Fatalf("%+v %v %v", a, made, err)
	}
	found, err := s.Find(t.Context(), 1, "fw-2")
	if err != nil || found == nil || *found != *a {
		t.Fatalf("%+v %v", found, err)
	}
	for _, c := range []struct{ off, n int }{{0, len(want)}, {partBytes - 1, 3}, {len(want) - 5, 5}, {1024, 1024}} {
		got := make([]byte, c.n)
		if n, err := s.ReadAt(t.Context(), a, got, int64(c.off)); err != nil || n != c.n || !bytes.Equal(got, want[c.off:c.off+c.n]) {
			t.Errorf("at %d: %d %v", c.off, n, err)
		}
	}
	if n, err := s.ReadAt(t.Context(), a, make([]byte, 10), int64(len(want)-4)); n != 4 || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %d %v", n, err)
	}
	if b, made, err := s.Put(t.Context(), member(1), Upload{Token: "fw-2", Version: "2.0.0"}, bytes.NewReader(want)); err != nil || made || b.Version != "2.0.0" || b.Body != a.Body {
		t.Errorf("the same bytes again: %+v %v %v", b, made, err)
	}
	_, _, err = s.Put(t.Context(), member(1), Upload{Token: "fw-2"}, bytes.NewReader(want[1:]))
	fixture.Refused(t, err, model.CodeConflict, "other bytes")
	if other, err := s.Find(t.Context(), 2, "fw-2"); err != nil || other != nil {
		t.Errorf("another tenant finds %+v %v", other, err)
	}
	fixture.Refused(t, s.Delete(t.Context(), member(2), "fw-2"), model.CodeNotFound, "fw-2")
	if parts := fixture.Rows(t, db, `SELECT COUNT(*) FROM artifact_parts`); parts[0] != "6" {
		t.Errorf("parts: %q", parts)
	}
	if err := s.Delete(t.Context(), member(1), "fw-2"); err != nil {
		t.Fatal(err)
	}
	if n, err := s.ReadAt(t.Context(), a, make([]byte, 10), 0); n != 0 || !errors.Is(err, ErrGone) {
		t.Errorf("after its end: %d %v", n, err)
	}
	if parts := fixture.Rows(t, db, `SELECT COUNT(*) FROM artifact_parts`); parts[0] != "0" {
		t.Errorf("left are parts: %q", parts)
	}
}

func TestWhatIsNoArtifactLeavesNothing(t *testing.T) {
	s, db := service(t, 300<<10, 400<<10)
	put := func(u Upload, r io.Reader) error {
		_, _, err := s.Put(t.Context(), member(1), u, r)
		return err
	}
	fixture.Refused(t, put(Upload{Token: "a b"}, bytes.NewReader(pattern(1))), model.CodeInvalidInput, "token")
	fixture.Refused(t, put(Upload{Token: "a", SHA256: "12"}, bytes.NewReader(pattern(1))), model.CodeInvalidInput, "sha256")
	fixture.Refused(t, put(Upload{Token: "a", Version: "1\n"}, bytes.NewReader(pattern(1))), model.CodeInvalidInput, "version")
	fixture.Refused(t, put(Upload{Token: "a"}, bytes.NewReader(nil)), model.CodeInvalidInput, "empty")
	fixture.Refused(t, put(Upload{Token: "a", SHA256: sumOf(nil)}, bytes.NewReader(pattern(300<<10))), model.CodeInvalidInput, "other bytes")
	fixture.Refused(t, put(Upload{Token: "a"}, bytes.NewReader(pattern(300<<10+1))), model.CodeLimitExceeded, "max_artifact")
	broken := errors.New("the line is cut")
	if err := put(Upload{Token: "a"}, io.MultiReader(bytes.NewReader(pattern(290<<10)), errorReader{broken})); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := put(Upload{Token: "a"}, bytes.NewReader(pattern(290<<10))); err != nil {
		t.Fatal(err)
	}
	fixture.Refused(t, put(Upload{Token: "b"}, bytes.NewReader(pattern(200<<10))), model.CodeLimitExceeded, "max_artifacts")
	if got := fixture.Rows(t, db, `SELECT COUNT(*) FROM artifact_parts`); got[0] != "5" {
		t.Errorf("parts: %q", got)
	}
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

// TestWhatACrashHasLeftIsRemoved: parts of a body whose artifact was never written.
func TestWhatACrashHasLeftIsRemoved(t *testing.T) {
	s, db := service(t, 1<<20, 1<<20)
	if _, _, err := s.Put(t.Context(), member(1), Upload{Token: "a"}, bytes.NewReader(pattern(100<<10))); err != nil {
		t.Fatal(err)
	}
	for _, body := range []int64{5, 1 << 62} {
		if _, _, err := s.receive(context.Background(), 1, body, bytes.NewReader(pattern(500<<10))); err != nil {
			t.Fatal(err)
		}
		delete(s.writing, body)
	}
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fixture.Rows(t, db, `SELECT COUNT(*) FROM artifact_parts`); got[0] != "2" {
		t.Errorf("parts: %q", got)
	}
}
