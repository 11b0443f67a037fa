// Package domain opens what an instance knows over a store of a test: tenants, accounts and devices, with the rules that publish
// asks. Passwords are hashed cheaply.
package domain

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"sync"
	"testing"
	"time"

	"weir/auth"
	"weir/govern"
	"weir/model"
	"weir/registry"
	"weir/rules"
	"weir/rules/vocabulary"
	"weir/store"
	"weir/store/entity"
)

// Config says what a test wants otherwise. The store and its writer must be given.
type Config struct {
	Store      store.Store
	Writer     store.Writer
	Clock      func() time.Time
	Auth       auth.Config     // InstanceID is "weir" when it is empty
	Hasher     registry.Hasher // nil: that of Auth
	Invalidate func(device, credential int64)
}

// Domain is what the instance knows.
type Domain struct {
	Govern   *govern.Govern
	Auth     *auth.Auth
	Registry *registry.Registry
	Hasher   *auth.Hasher
	Vault    *store.Vault
}

// New opens everything.
func New(t testing.TB, c Config) *Domain {
	t.Helper()
	d := &Domain{Hasher: auth.NewHasher(auth.Params{MemoryKiB: 8, Passes: 1, Lanes: 1}, nil), Vault: store.NewVault([32]byte{7})}
	if c.Auth.InstanceID == "" {
		c.Auth.InstanceID = "weir"
	}
	if c.Hasher == nil {
		c.Hasher = d.Hasher
	}
	var err error
	if d.Govern, err = govern.New(t.Context(), govern.DefaultConfig(), govern.Deps{Store: c.Store, Writer: c.Writer, Clock: c.Clock}); err != nil {
		t.Fatal(err)
	}
	d.Auth, err = auth.New(t.Context(), c.Auth, auth.Deps{Store: c.Store, Writer: c.Writer, Vault: d.Vault, Tenants: d.Govern, Hasher: d.Hasher, Clock: c.Clock,
		GenerateKey: signingKey})
	if err != nil {
		t.Fatal(err)
	}
	d.Registry = registry.New(registry.Config{}, registry.Deps{Store: c.Store, Writer: c.Writer, Sealer: d.Vault, Hasher: c.Hasher, Validator: Rules(t),
		Invalidate: c.Invalidate})
	return d
}

// signingKey is made once for all tests of a process: making one takes long.
var signingKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// Rules returns the validator of rules that an instance has.
func Rules(t testing.TB) registry.Validator {
	t.Helper()
	compiler, err := rules.NewCompiler(rules.Limits{Actions: rules.Performed()})
	if err != nil {
		t.Fatal(err)
	}
	return compiling{compiler}
}

type compiling struct{ *rules.Compiler }

func (c compiling) Validate(_ context.Context, _ *model.Principal, drafts []registry.Candidate, there registry.Vocabulary) ([]registry.Refusal, []entity.Remark, error) {
	var candidates []rules.Candidate
	for _, d := range drafts {
		candidates = append(candidates, rules.Candidate(d))
	}
	var refused []registry.Refusal
	var remarks []entity.Remark
	names := rules.Vocabulary{Metrics: there.Metrics, Commands: there.Commands, Fences: there.Fences, SourceNames: there.SourceNames, Ranges: map[string]vocabulary.Range{}}
	for metric, r := range there.Ranges {
		names.Ranges[metric] = vocabulary.Range(r)
	}
	errs, warnings := c.ValidateAgainst(names, candidates)
	for _, e := range errs {
		refused = append(refused, registry.Refusal{Token: e.Token, Message: e.Message})
	}
	for _, w := range warnings {
		remarks = append(remarks, entity.Remark{Token: w.Token, Code: w.Code, Params: w.Params, Message: w.Message})
	}
	return refused, remarks, nil
}
