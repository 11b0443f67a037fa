package site

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/auth"
	"weir/govern"
	"weir/model"
	"weir/registry"
	"weir/store"
)

// work is one apply in its transaction.
type work struct {
	ctx   context.Context
	by    *model.Principal
	kinds *kinds
	doc   *Document
	opt   Options
	plan  *Plan
	pw    *passwords

	govern   *govern.Govern
	auth     *auth.Auth
	registry *registry.Registry
	tenants  tenants
}

// work joins the rooms to a change. Their verbs are called with the context of the transaction: one that would forget that
// it is inside of it is refused by the store instead of waiting for itself.
func (s *Site) work(c *store.Change, by *model.Principal, d *Document, o Options, pw *passwords) *work {
	p := s.parts
	w := &work{ctx: c.Context(), by: by, kinds: s.kinds, doc: d, opt: o, plan: &Plan{}, pw: pw, tenants: tenants{}}
	w.govern, w.registry = p.Govern.In(c), p.Registry.In(c, pw)
	w.auth = p.Auth.In(c, w.tenants, pw.Hash)
	return w
}

// all is the order of things: what is referred to comes before what refers to it. What is deleted and holds something that
// must be unique (an external id, the secret of a credential) goes first, so that another may take it; the rest goes last,
// in reverse order.
func (w *work) all() error {
	for _, step := range []func() error{w.loadTenants, w.putTiers, w.putRoles, w.putTenants} {
		if err := step(); err != nil {
			return err
		}
	}
	var inside []*inTenant
	for _, e := range w.doc.Lists["tenants"] {
		t := w.enter(e)
		inside = append(inside, t)
		if err := t.all(); err != nil {
			return err
		}
	}
	if err := w.putIdentities(); err != nil {
		return err
	}
	if !w.opt.Prune {
		return nil
	}
	for _, t := range slices.Backward(inside) {
		if err := t.pruneRest(); err != nil {
			return err
		}
	}
	return w.pruneInstance()
}

// at gives a refusal the position of what it refuses: of the field that it names, where that is declared, or else of the
// entity.
func at(e *Entity, err error) error {
	refusal, ok := errors.AsType[*model.Error](err)
	if !ok {
		return err
	}
	name := cmp.Or(refusal.Field, refusal.Kind)
	position := e.field(name)
	if name == "roleTokens" { // the verbs' name of the roles
		position = e.field("roles")
		if _, ok := e.Fields["systemRoles"]; ok {
			position = e.field("systemRoles")
		}
	}
	placed := *refusal
	path, message := position.Path, refusal.Message
	if refusal.Reason != model.ReasonNotUnique && strings.HasSuffix(path, "."+name) { // the path names the field already
		message = refusal.Text()
	}
	if path != "" {
		path += ": "
	}
	placed.Message = fmt.Sprintf("%s: %s%s", position, path, message)
	if placed.Hint == "" {
		placed.Hint = hintOf(e, refusal)
	}
	return &placed
}

// hintOf says how to give a secret that the file leaves out.
func hintOf(e *Entity, refusal *model.Error) string {
	field := refusal.Field
	_, given := e.Secrets[field]
	_, named := e.Fields[field]
	if !given && !named && (field == "credentialId" || field == "credentialValue" || field == "password") {
		return fmt.Sprintf("it is new: give its secret with %s_file or %s_env", field, field)
	}
	return "nothing was changed"
}
