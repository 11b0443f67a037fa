package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	"weir/store/entity"
	"weir/store/sqlite"
)

// bench is a registry over a fresh store, with collaborators that tests can look at.
type bench struct {
	testing.TB
	*Registry
	config    Config // of New
	parts     Deps
	db        *sqlite.DB
	now       atomic.Int64 // clock in microseconds; each change is a millisecond later
	validator *fakeValidator
	mu        sync.Mutex
	forgotten [][2]int64
	removed   [][2]int64

	through store.Store   // of the changes; nil: db
	after   func()        // called after each change; nil: nothing is
	longest time.Duration // that a change held the writer
}

// Mutate implements store.Writer: the changes are those of a stopped instance, and watched.
func (b *bench) Mutate(ctx context.Context, by *model.Principal, fn func(*store.Change) error) error {
	begun := time.Now()
	through := b.through
	if through == nil {
		through = b.db
	}
	err := store.Direct{Store: through, Now: func() time.Time { return time.UnixMicro(b.now.Add(1000)) }}.Mutate(ctx, by, fn)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.longest = max(b.longest, time.Since(begun)); b.after != nil {
		b.after()
	}
	return err
}

// fakeValidator refuses the candidates that refuse names.
type fakeValidator struct {
	mu     sync.Mutex
	refuse map[string]string // token → reason
	err    error
	asked  [][]Candidate
	by     *model.Principal
	during func() // called while it validates
}

func (f *fakeValidator) Validate(_ context.Context, by *model.Principal, rules []Candidate, _ Vocabulary) ([]Refusal, []entity.Remark, error) {
	if f.during != nil {
		f.during()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked, f.by = append(f.asked, rules), by
	var refused []Refusal
	for _, c := range rules {
		if why, ok := f.refuse[c.Token]; ok {
			refused = append(refused, Refusal{Token: c.Token, Message: why})
		}
	}
	return refused, nil, f.err
}

type fakeHasher struct{}

func (fakeHasher) Hash(_ context.Context, password string) (string, error) {
	return "$hash$" + fmt.Sprint(len(password)), nil
}

func newBench(t testing.TB, c Config) *bench {
	t.Helper()
	db := fixture.Store(t)
	b := &bench{TB: t, db: db, validator: &fakeValidator{refuse: map[string]string{}}}
	b.now.Store(1_700_000_000_000_000)
	b.config = c
	b.parts = Deps{
		Store:     db,
		Writer:    b,
		Sealer:    store.NewVault([32]byte{1, 2, 3}),
		Hasher:    fakeHasher{},
		Validator: b.validator,
		Removals: []Removal{func(tx store.Tx, tenantID, deviceID int64) error {
			tx.OnCommit(func() { b.note(&b.removed, tenantID, deviceID) })
			return nil
		}},
		Invalidate: func(device, credential int64) { b.note(&b.forgotten, device, credential) },
	}
	b.Registry = New(b.config, b.parts)
	return b
}

func (b *bench) note(to *[][2]int64, x, y int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*to = append(*to, [2]int64{x, y})
}

// acme and other are the principals of two tenants.
var (
	acme  = fixture.Member("ada", "acme", 1, model.DeviceRead, model.DeviceWrite, model.LocationRead)
	other = fixture.Member("bob", "other", 2, model.DeviceRead, model.DeviceWrite, model.LocationRead)
)

// dump returns every row of every table that a change of the registry may touch, in the order of row ids.
func (b *bench) dump() map[string][]string {
	b.Helper()
	all := map[string][]string{}
	for _, table := range []string{"device_profiles", "device_profile_versions", "metric_definitions", "command_definitions", "detection_rules",
		"device_types", "devices", "device_counts", "device_credentials", "asset_types", "assets", "customer_types", "customers", "area_types", "areas",
		"row_counts", "facet_keys", "attributes", "geofences", "geofence_sets", "audit_events", "control"} {
		all[table] = b.rows("SELECT * FROM " + table + " ORDER BY 1")
	}
	return all
}

func (b *bench) rows(query string, args ...any) []string {
	b.Helper()
	return fixture.Rows(b, b.db, query, args...)
}

// unchanged runs fn and fails when any row changed.
func (b *bench) unchanged(what string, fn func()) {
	b.Helper()
	before := b.dump()
	fn()
	after := b.dump()
	for table, rows := range before {
		if !slices.Equal(rows, after[table]) {
			b.Errorf("%s: table %s changed\nfrom %q\nto   %q", what, table, rows, after[table])
		}
	}
}

// refused checks the code of a refusal and that its message holds a text.
func (b *bench) refused(what string, err error, code model.Code, text string) {
	b.Helper()
	if model.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		b.Errorf("%s: got %v (%s), want %s with %q", what, err, model.CodeOf(err), code, text)
	}
}

// views takes the view changes that wait for the log, decoded, and removes them.
func (b *bench) views() []model.ViewChange {
	b.Helper()
	var all []model.ViewChange
	err := b.db.Write(b.Context(), store.Durable, func(tx store.Tx) error {
		controls, err := store.PendingControl(tx, 0, 1000)
		if err != nil {
			return err
		}
		var body []byte
		for _, c := range controls {
			body = append(body, c.Body...)
			if c.Part+1 < c.Parts {
				continue
			}
			vs, err := store.DecodeViewChanges(body)
			if err != nil {
				return err
			}
			all, body = append(all, vs...), nil
			if err := store.RemoveControl(tx, c.Sequence); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return all
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// seed makes a profile "p", a type "t" that has it, and a device "d" of that type.
func (b *bench) seed() (*DeviceProfile, *DeviceType, *Device) {
	b.Helper()
	p := must(b.Profiles.Create(b.Context(), acme, store.Patch{"token": "p"}))(b)
	t := must(b.Types.Create(b.Context(), acme, store.Patch{"token": "t", "profileToken": "p"}))(b)
	d := must(b.Devices.Create(b.Context(), acme, store.Patch{"token": "d", "deviceTypeToken": "t"}))(b)
	b.views()
	return p, t, d
}

const ruleText = `{"name":"hot","type":"threshold","when":{"metric":"temp","op":"gt","threshold":30}}`
