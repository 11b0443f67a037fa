// Package site is the declared state of a gateway: YAML files say which tenants, people, profiles and devices there are,
// and Apply makes it so, in one transaction and through the verbs of the API, so that a file can do nothing that the API
// refuses. Absent keeps, null clears, a value sets, as everywhere; nothing is deleted unless that is asked for.
//
// A plan is the same code run in a transaction that is rolled back: what it says is what an apply would do. Export writes
// what is there, and the plan of it is empty.
//
// An apply holds the one writer while it runs: a second for ten thousand devices. Meanwhile what the API writes, and the
// applier's own writes, wait; the listeners continue, because the log takes what they accept.
package site

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"weir/auth"
	"weir/govern"
	"weir/model"
	"weir/registry"
	"weir/rules"
	"weir/store"
	"weir/store/entity"
)

// Parts are a site's collaborators.
type Parts struct {
	Store    store.Store
	Writer   store.Writer
	Govern   *govern.Govern
	Auth     *auth.Auth
	Registry *registry.Registry
	Hasher   Hasher
	Vault    *store.Vault
	Catalog  *entity.Catalog // of the instance
	// Connectors returns the tokens of a tenant's connectors; nil: they are not known.
	Connectors func(ctx context.Context, tenant int64) ([]string, error)
	// Progress is called with how many passwords are checked and hashed, each of which takes a good part of a second on a small
	// machine. May be nil.
	Progress func(done, all int)
}

// Hasher hashes passwords and checks them against their hashes.
type Hasher interface {
	Hash(ctx context.Context, password string) (string, error)
	Verify(ctx context.Context, l auth.Lane, encoded, password string) (ok, renew bool, err error)
}

// Site makes an instance what files declare. It is safe for concurrent use.
type Site struct {
	parts    Parts
	format   *Format
	compiler func() (*rules.Compiler, error) // of the rules that a plan looks at
}

// New returns the site of an instance.
func New(p Parts) *Site {
	if p.Progress == nil {
		p.Progress = func(int, int) {}
	}
	return &Site{parts: p, format: NewFormat(p.Catalog), compiler: sync.OnceValues(newCompiler)}
}

// Read reads the files of a site into one document, see Format.Read.
func (s *Site) Read(src Source, files ...string) (d *Document, warnings []string, err error) {
	return s.format.Read(src, files...)
}

// Options say how a document is applied.
type Options struct {
	// Prune deletes what is not declared, of the kinds whose lists the document has: inside the tenants that it declares,
	// and of the instance. Tenants themselves are never deleted.
	Prune bool
	// Parts deletes what is not declared, of the kinds whose lists the document has, inside of the entities that it declares, and nothing else.
	Parts bool
	// Expect is the digest of a plan: other changes than its are refused. "" takes any.
	Expect string
}

// Plan returns what Apply would change.
func (s *Site) Plan(ctx context.Context, by *model.Principal, d *Document, o Options) (*Plan, error) {
	p, err := s.run(ctx, by, d, o, true)
	return p, err
}

// Apply makes the instance what the document declares, all of it or nothing. Refusals are *model.Error that begin with the
// place of what was refused.
func (s *Site) Apply(ctx context.Context, by *model.Principal, d *Document, o Options) (*Plan, error) {
	return s.run(ctx, by, d, o, false)
}

var (
	// errPlanned rolls the transaction of a plan back.
	errPlanned = errors.New("site: planned")
	// errMoved: a password was changed after it was compared.
	errMoved = errors.New("site: a password changed meanwhile")
)

// tries is how often an apply starts again because passwords are changed while it compares them.
const tries = 3

func (s *Site) run(ctx context.Context, by *model.Principal, d *Document, o Options, dry bool) (*Plan, error) {
	d.settle(s.format.root)
	for range tries {
		p, err := s.attempt(ctx, by, d, o, dry)
		if !errors.Is(err, errMoved) {
			return p, err
		}
	}
	return nil, &model.Error{Code: model.CodeConflict, Reason: model.ReasonStaleWrite, Message: "conflict: passwords keep changing, apply it again"}
}

// attempt compares the passwords outside of the transaction and does all else inside of it.
func (s *Site) attempt(ctx context.Context, by *model.Principal, d *Document, o Options, dry bool) (*Plan, error) {
	pw, err := s.comparePasswords(ctx, by, d)
	if err != nil {
		return nil, err
	}
	var plan *Plan
	err = s.parts.Writer.Mutate(ctx, by, func(c *store.Change) error {
		w := s.work(c, by, d, o, pw)
		w.dry = dry
		if err := w.all(); err != nil {
			return err
		}
		plan = w.plan
		plan.Files = d.Files
		plan.seal()
		if dry {
			return errPlanned
		}
		if o.Expect != "" && o.Expect != plan.Digest {
			return &model.Error{Code: model.CodeConflict, Reason: model.ReasonStaleWrite, Hint: "look at the plan again",
				Message: fmt.Sprintf("conflict: the changes are not those of the plan %s any more", o.Expect)}
		}
		plan.Applied = true
		return pw.remember(c)
	})
	if dry && errors.Is(err, errPlanned) {
		return plan, nil
	}
	if err != nil {
		return nil, err
	}
	return plan, nil
}
