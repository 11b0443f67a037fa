package e2e_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"weir/internal/test/poll"
	"weir/internal/test/testweir"
)

const sqlitePage = 4096

// TestADamagedDatabaseIsFoundAndNothingGoesOnInSilence: whatever page is damaged, the start says what to do, or the running
// instance does; what is queried is never wrong.
func TestADamagedDatabaseIsFoundAndNothingGoesOnInSilence(t *testing.T) {
	t.Parallel()
	tn := paired(t)
	tn = tn.again()
	tn.worksOn(3)
	if err := tn.Stop(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(tn.path("weir.db"))
	if err != nil {
		t.Fatal(err)
	}
	pages := len(whole) / sqlitePage
	damages := map[string]func(b []byte, r *rand.Rand) []byte{
		"no header":  func(b []byte, _ *rand.Rand) []byte { copy(b, bytes.Repeat([]byte{0}, 100)); return b },
		"cut off":    func(b []byte, _ *rand.Rand) []byte { return b[:pages/2*sqlitePage] },
		"a stranger": func([]byte, *rand.Rand) []byte { return bytes.Repeat([]byte("hello\n"), 9999) },
		"every page": func(b []byte, r *rand.Rand) []byte { return noise(b, r, 1, pages) },
		"the schema": func(b []byte, r *rand.Rand) []byte { return noise(b, r, 0, 1) },
	}
	for i := range 4 {
		damages[fmt.Sprint("some page ", i)] = func(b []byte, r *rand.Rand) []byte { n := (1+i)*pages/5 + r.IntN(pages/5); return noise(b, r, n, n+1) }
	}
	for name, damage := range damages {
		content := damage(bytes.Clone(whole), rand.New(rand.NewPCG(4, 4)))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mine := &tenant{tn.world, t, tn.name, tn.token}
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(tn.Dir)); err != nil {
				t.Fatal(err)
			}
			data := dir + "/data"
			if err := os.WriteFile(data+"/weir.db", content, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(data+"/root.key", 0o600); err != nil {
				t.Fatal(err)
			}
			_ = os.Remove(data + "/clean") // so that the start reads it through
			atRest := strings.Join([]string{"fail  store", "weir backup restore FILE --data " + data}, "\n")
			ended := func(told string) {
				if e := says(told, "damaged", "hint: stop weir, move the directory away", "weir backup restore FILE --data "); e != nil {
					t.Errorf("%v\n%v", e, told)
				}
			}
			p, err := testweir.TryStart(t, testweir.Options{Dir: dir, Config: generous})
			if err != nil {
				ended(err.Error())
				return
			}
			mine.world = &world{Proc: p}
			poll.Until(t, "the damage", func() error {
				out, _ := p.TryRun("", "doctor")
				health, _ := p.TryRun("", "health")
				status, _ := p.TryRun("", "status")
				if p.Over() { // a part met it right after the start
					ended(p.Stderr())
					return nil
				}
				if says(out, strings.Split(atRest, "\n")...) == nil && says(health, "degraded", "the database is damaged") == nil &&
					says(status, "the database is damaged", "StoreDamaged") == nil {
					return nil
				}
				return fmt.Errorf("%s\n%s", out, health)
			})
		})
	}
}

// noise fills pages with what nobody has written.
func noise(b []byte, r *rand.Rand, from, to int) []byte {
	for i := from * sqlitePage; i < to*sqlitePage; i++ {
		b[i] = byte(r.Uint32())
	}
	return b
}
